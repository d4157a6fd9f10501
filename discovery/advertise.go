package discovery

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A localIP is one address of this host.
type localIP struct {
	iface string
	ip    netip.Addr
}

// choice is the address to advertise, and how it came about.
type choice struct {
	addr   netip.AddrPort
	why    string
	others []localIP // what could have been chosen as well; then it is worth a look
	vague  error     // the wanted name has no address yet: a stopgap
}

// advertiser finds the address under which others reach this agent.
type advertiser struct {
	option string // HOST:PORT, HOST or empty
	bound  netip.AddrPort
	find   lookup
	local  func() ([]localIP, error)
}

// check refuses an option that can never be advertised.
func (a *advertiser) check() error {
	if a.option == "" {
		return nil
	}
	host, port, err := splitHostPort(a.option)
	switch {
	case err != nil:
		return a.fail("it is not HOST:PORT or HOST", err)
	case host == "":
		return a.fail("it names no host", nil)
	case port == 0:
		return a.fail("port 0 can be bound, not reached", nil)
	}
	if ip, err := netip.ParseAddr(host); err == nil && (ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "") {
		return a.fail("nobody can reach this agent there", nil)
	}
	return nil
}

func (a *advertiser) fail(why string, err error) error {
	return &OptionError{Option: "gossip-advertise", Value: a.option, Why: why, Try: "give HOST:PORT as other hosts reach this one", Err: err}
}

// advertiseTimeout bounds finding the address of a name.
const advertiseTimeout = 2 * time.Second

// choose finds the address now. A name that has none is replaced by what would
// be advertised without it.
func (a *advertiser) choose(ctx context.Context) (choice, error) {
	if a.option == "" {
		return a.automatic()
	}
	ctx, cancel := context.WithTimeout(ctx, advertiseTimeout)
	defer cancel()
	addrs, err := resolve(ctx, a.find, a.option, int(a.bound.Port()))
	if err != nil {
		c, second := a.automatic()
		c.vague = err
		return c, second
	}
	addrs = slices.DeleteFunc(addrs, func(x netip.AddrPort) bool { return x.Addr().IsUnspecified() })
	if len(addrs) == 0 {
		c, second := a.automatic()
		c.vague = fmt.Errorf("%s is an unspecified address", a.option)
		return c, second
	}
	return choice{addr: addrs[0], why: "as configured"}, nil
}

// automatic takes the bound address, or the best one of this host.
func (a *advertiser) automatic() (choice, error) {
	if !a.bound.Addr().IsUnspecified() {
		return choice{addr: a.bound, why: "as bound"}, nil
	}
	all, err := a.local()
	if err != nil {
		return choice{}, fmt.Errorf("list the addresses of this host: %w", err)
	}
	if a.bound.Addr().Is4() {
		all = slices.DeleteFunc(all, func(l localIP) bool { return !l.ip.Is4() })
	}
	ip, why, others := best(all)
	return choice{addr: netip.AddrPortFrom(ip, a.bound.Port()), why: why, others: others}, nil
}

// stands reports whether own can still be advertised: the name still has that
// address, or the host. What cannot be found out stands.
func (a *advertiser) stands(ctx context.Context, own netip.AddrPort) bool {
	if a.option == "" {
		if !a.bound.Addr().IsUnspecified() {
			return true
		}
		all, err := a.local()
		if err != nil || slices.ContainsFunc(all, func(l localIP) bool { return l.ip == own.Addr() }) {
			return true
		}
		c, err := a.automatic()
		return err != nil || c.addr == own
	}
	ctx, cancel := context.WithTimeout(ctx, advertiseTimeout)
	defer cancel()
	addrs, err := resolve(ctx, a.find, a.option, int(a.bound.Port()))
	if err != nil || slices.Contains(addrs, own) {
		return true
	}
	c, err := a.choose(ctx)
	return err != nil || c.addr == own
}

// A grade says how likely others reach an address; less is better.
type grade int

const (
	privateV4 grade = iota
	publicV4
	privateV6
	publicV6
	onBridge // of containers and virtual machines: reached from this host alone, as a rule
	loopback
	useless
)

func (g grade) String() string {
	return [...]string{
		"a private address", "an address", "a private IPv6 address", "an IPv6 address",
		"a container bridge, there is nothing else", "loopback, there is nothing else", "useless",
	}[g]
}

// bridges begin the names of interfaces whose addresses only this host reaches.
var bridges = []string{"docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "podman", "lxc", "lxd", "vmnet", "vboxnet"}

func rate(l localIP) grade {
	isBridge := slices.ContainsFunc(bridges, func(b string) bool { return strings.HasPrefix(l.iface, b) })
	ip := l.ip
	switch {
	case ip.IsLoopback():
		return loopback
	case !ip.IsGlobalUnicast() || ip.Zone() != "":
		return useless // link-local, multicast, unspecified
	case isBridge:
		return onBridge
	case ip.Is4() && ip.IsPrivate():
		return privateV4
	case ip.Is4():
		return publicV4
	case ip.IsPrivate():
		return privateV6
	}
	return publicV6
}

// best chooses among the addresses of a host: the first one of the best grade.
// The others of that grade make the choice doubtful. With no address at all it
// is 127.0.0.1.
func best(all []localIP) (ip netip.Addr, why string, others []localIP) {
	top := useless
	var chosen localIP
	for _, l := range all {
		switch g := rate(l); {
		case g < top:
			top, chosen, others = g, l, nil
		case g == top && g < loopback:
			others = append(others, l)
		}
	}
	if top == useless {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), loopback.String(), nil
	}
	return chosen.ip, fmt.Sprintf("%s of %s", top, chosen.iface), others
}

// localIPs lists the addresses of the interfaces that are up, in the system's
// order.
func localIPs() ([]localIP, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []localIP
	for i := range interfaces {
		if interfaces[i].Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := interfaces[i].Addrs()
		if err != nil {
			continue // it went away in between
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			out = append(out, localIP{iface: interfaces[i].Name, ip: prefix.Addr().Unmap()})
		}
	}
	return out, nil
}
