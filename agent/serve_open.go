package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/haagent/haagent/agent/stock"
)

// openStockPorts opens what --ha-bind and --remoting-bind say.
func (a *Agent) openStockPorts(ctx context.Context) (_ *stockPorts, err error) {
	p := &stockPorts{a: a}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	p.registry = stock.NewRegistry(stock.RegistryOptions{Find: p.find, Vet: stock.VetSlave, Log: a.log})
	if bind := a.cfg.HABind; bind != "" {
		l, err := listen(ctx, "ha-bind", bind, "")
		if err != nil {
			return nil, err
		}
		if p.ha, p.haAddr, err = p.gate(l, "ha-bind"); err != nil {
			return nil, err
		}
	}
	if bind := a.cfg.RemotingBind; bind != "" {
		listeners, err := listenBelow(ctx, bind)
		if err != nil {
			return nil, err
		}
		for i, l := range listeners {
			g, addr, err := p.gate(l, "remoting-bind")
			if err != nil {
				return nil, errors.Join(err, listeners[len(listeners)-1].Close())
			}
			if p.remoting = append(p.remoting, g); i == 0 {
				p.addr = addr
			}
		}
	}
	return p, nil
}

// gate puts a guard before a port, and says where others reach it.
func (p *stockPorts) gate(l net.Listener, key string) (*stock.Gate, string, error) {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, "", errors.Join(fmt.Errorf("--%s: %v is no TCP port", key, l.Addr()), l.Close())
	}
	addr, err := reachable(l.Addr(), p.a.cfg.Finder.Addr())
	if err != nil {
		return nil, "", errors.Join(err, l.Close())
	}
	allow := p.a.cfg.HAAllow
	if host := stock.PeerAddr(l.Addr()); len(allow) == 0 {
		allow = stock.AllowLoopback()
		if !host.IsLoopback() {
			p.a.log.Warn("only this host may talk to a port that other hosts see. Try: list your slaves with --ha-allow", "port", key, "bound", l.Addr().String())
		}
	}
	return stock.NewGate(tcp, allow, "--"+key, p.a.log), addr, nil
}

// reachable is where others reach a listener: where it is bound, or, on all
// addresses, the host that gossip is reached at.
func reachable(bound net.Addr, gossip string) (string, error) {
	host, port, err := net.SplitHostPort(bound.String())
	if err != nil {
		return "", fmt.Errorf("bound address: %w", err)
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return bound.String(), nil
	}
	if host, _, err = net.SplitHostPort(gossip); err != nil {
		return "", fmt.Errorf("gossip address: %w", err)
	}
	return net.JoinHostPort(host, port), nil
}

// listenBelow opens a port and the one two below it. Port 0 is any pair that is
// free.
func listenBelow(ctx context.Context, bind string) ([]net.Listener, error) {
	const tries = 100
	host, port, err := net.SplitHostPort(bind)
	if err != nil {
		return nil, &ConfigError{"remoting-bind", bind, err.Error(), "give HOST:PORT"}
	}
	if port != "0" {
		n, err := strconv.Atoi(port)
		if err != nil || n <= vipDistance {
			return nil, &ConfigError{"remoting-bind", bind, "the port two below it is needed too", "give a port above 2"}
		}
		return listenPair(ctx, host, n)
	}
	for range tries {
		probe, err := listen(ctx, "remoting-bind", bind, "")
		if err != nil {
			return nil, err
		}
		addr, ok := probe.Addr().(*net.TCPAddr)
		if err := probe.Close(); err != nil || !ok {
			return nil, fmt.Errorf("--remoting-bind %s: %w", bind, err)
		}
		if pair, err := listenPair(ctx, host, addr.Port); err == nil {
			return pair, nil
		}
	}
	return nil, &ConfigError{"remoting-bind", bind, "no two ports that differ by two are free", "give a port"}
}

// listenPair opens a port and the one two below it.
func listenPair(ctx context.Context, host string, port int) ([]net.Listener, error) {
	upper, err := listen(ctx, "remoting-bind", net.JoinHostPort(host, strconv.Itoa(port)), "")
	if err != nil {
		return nil, err
	}
	below := net.JoinHostPort(host, strconv.Itoa(port-vipDistance))
	lower, err := listen(ctx, "remoting-bind", below, "")
	if err != nil {
		return nil, &ConfigError{"remoting-bind", upper.Addr().String(), fmt.Sprintf("stock slaves ask for topics two ports below it, at %s: %v", below, errors.Join(err, upper.Close())),
			"give a port whose second lower neighbour is free"}
	}
	return []net.Listener{upper, lower}, nil
}

// close closes the ports, for good.
func (p *stockPorts) close() {
	gates := p.remoting
	if p.ha != nil {
		gates = append(gates[:len(gates):len(gates)], p.ha)
	}
	for _, g := range gates {
		if err := g.Close(); err != nil {
			p.a.log.Debug("port did not close", "cause", err)
		}
	}
}

// checkStockPorts checks what is served to unmodified brokers, who prove nothing.
func (c Config) checkStockPorts() error {
	for _, p := range []struct{ key, bind string }{{"ha-bind", c.HABind}, {"remoting-bind", c.RemotingBind}} {
		host, _, _ := net.SplitHostPort(p.bind)
		ip := net.ParseIP(host)
		switch {
		case p.bind == "":
		case c.Role == RoleSlave:
			return &ConfigError{p.key, p.bind, "a replica serves no stock slaves", "give it to the master agent beside the broker"}
		case c.Role == RoleObserver && p.key == "ha-bind":
			return &ConfigError{p.key, p.bind, "an observer has no log", "give it to the master agent beside the broker"}
		case ip != nil && ip.IsUnspecified() && len(c.HAAllow) == 0:
			return &ConfigError{p.key, p.bind, "the protocol asks nobody who he is, and so everybody could read the log there", "list the slaves with --ha-allow, such as --ha-allow 10.1.0.0/16, or bind to 127.0.0.1"}
		}
	}
	if len(c.HAAllow) > 0 && c.HABind == "" && c.RemotingBind == "" {
		return &ConfigError{"ha-allow", c.HAAllow.String(), "there is nothing to be allowed to", "give --ha-bind or --remoting-bind, or leave it away"}
	}
	return nil
}
