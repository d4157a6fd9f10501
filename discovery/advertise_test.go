package discovery

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"context"
)

func ips(pairs ...string) []localIP {
	var out []localIP
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, localIP{pairs[i], netip.MustParseAddr(pairs[i+1])})
	}
	return out
}

func TestAdvertise_BestAddressOfAHost_Fault85(t *testing.T) {
	t.Parallel()
	table := map[string]struct {
		all    []localIP
		want   string
		others int
	}{
		"nothing":             {nil, "127.0.0.1", 0},
		"loopback":            {ips("lo", "127.0.0.1", "lo", "::1"), "127.0.0.1", 0},
		"private over public": {ips("lo", "127.0.0.1", "eth0", "192.0.2.1", "eth1", "10.0.0.1"), "10.0.0.1", 0},
		"public alone":        {ips("lo", "127.0.0.1", "eth0", "192.0.2.1"), "192.0.2.1", 0},
		"not a container's":   {ips("docker0", "172.17.0.1", "br-12ab", "172.18.0.1", "eth0", "192.0.2.1"), "192.0.2.1", 0},
		"but a container's":   {ips("lo", "127.0.0.1", "docker0", "172.17.0.1"), "172.17.0.1", 0},
		"two of a kind":       {ips("eth0", "10.0.0.1", "eth1", "10.1.0.1", "eth1", "192.0.2.1"), "10.0.0.1", 1},
		"no link-local":       {ips("eth0", "169.254.0.1", "eth0", "fe80::1%eth0", "lo", "127.0.0.1"), "127.0.0.1", 0},
		"IPv4 first":          {ips("eth0", "fd00::1", "eth0", "2001:db8::1", "eth0", "10.0.0.1"), "10.0.0.1", 0},
		"IPv6 alone":          {ips("lo", "127.0.0.1", "eth0", "2001:db8::1", "eth0", "fd00::1"), "fd00::1", 0},
	}
	for name, c := range table {
		ip, why, others := best(c.all)
		if ip.String() != c.want || len(others) != c.others || why == "" {
			t.Errorf("%s: %v because %s, besides %v", name, ip, why, others)
		}
	}
}

// choose tables every way to an address; 0.0.0.0 is never one. Fault 85.
func TestAdvertise_Chooses_Fault85(t *testing.T) {
	t.Parallel()
	find := names(map[string]string{"here": "10.9.9.9", "any": "0.0.0.0"})
	host := func() ([]localIP, error) { return ips("eth0", "10.0.0.1", "eth0", "fd00::1"), nil }
	table := []struct {
		option, bound, want string
		vague               bool
	}{
		{"", "127.3.2.1:99", "127.3.2.1:99", false},
		{"", "0.0.0.0:99", "10.0.0.1:99", false},
		{"", "[::]:99", "10.0.0.1:99", false},
		{"192.0.2.7", "0.0.0.0:99", "192.0.2.7:99", false},
		{"192.0.2.7:5", "127.0.0.1:99", "192.0.2.7:5", false},
		{"2001:db8::5", "[::]:99", "[2001:db8::5]:99", false},
		{"here:5", "0.0.0.0:99", "10.9.9.9:5", false},
		{"nowhere:5", "0.0.0.0:99", "10.0.0.1:99", true},
		{"any:5", "0.0.0.0:99", "10.0.0.1:99", true},
	}
	for _, c := range table {
		a := advertiser{option: c.option, bound: netip.MustParseAddrPort(c.bound), find: find, local: host}
		got, err := a.choose(context.Background())
		if err != nil || got.addr.String() != c.want || (got.vague != nil) != c.vague {
			t.Errorf("%q bound to %s: %+v, %v", c.option, c.bound, got, err)
		}
	}
}

func TestAdvertise_AmbiguousIsLogged_Fault85(t *testing.T) {
	t.Parallel()
	opt := options("a")
	opt.Bind, opt.Insecure = "0.0.0.0:0", true
	book := &logBook{}
	opt.Log = newTestLog(book)
	g, err := newGossip(opt, names(nil), func() ([]localIP, error) {
		return ips("eth0", "10.0.0.1", "eth1", "10.1.0.1", "lo", "127.0.0.1"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, g, book)
	if !strings.HasPrefix(g.Addr(), "10.0.0.1:") {
		t.Errorf("it advertises %s", g.Addr())
	}
	if book.count("several addresses", g.Addr(), "10.1.0.1 of eth1") != 1 {
		t.Error("it does not say so")
	}
}

// An advertised name whose address becomes another one is followed, and what has
// no address yet does not keep the agent from working.
func TestAdvertise_NameMoves(t *testing.T) {
	t.Parallel()
	opt := options("b")
	ip := nextIP()
	var where atomic.Value
	where.Store("") // no address yet
	find := func(ctx context.Context, host string) ([]netip.Addr, error) {
		if w := where.Load().(string); w != "" {
			return names(map[string]string{"b.test": w})(ctx, host)
		}
		return names(nil)(ctx, host)
	}
	a := start(t, options("a"))
	opt.Bind, opt.Insecure, opt.Advertise, opt.Join = "0.0.0.0:0", true, "b.test", []string{a.Addr()}
	book := &logBook{}
	opt.Log = newTestLog(book)
	g, err := newGossip(opt, find, func() ([]localIP, error) { return ips("lo", "127.0.0.1"), nil })
	if err != nil {
		t.Fatal(err)
	}
	b := run(t, g, book)
	a.sees(Alive, "b")
	if book.count("not known yet") != 1 {
		t.Error("it does not say that the name has no address")
	}
	for _, to := range []netip.Addr{ip, nextIP()} {
		where.Store(to.String())
		want := netip.AddrPortFrom(to, b.socks.bound.Port()).String()
		eventually(t, "a has b at its new address", func() bool {
			m := a.member("b")
			return m.Addr == want && m.Status == Alive
		})
		eventually(t, "b advertises it", func() bool { return b.Addr() == want })
		b.sees(Alive, "a")
	}
}
