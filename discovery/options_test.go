package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// noLocal is a host without addresses of its own.
func noLocal() ([]localIP, error) { return nil, nil }

// names answers for hosts of tests; others have no address.
func names(known map[string]string) lookup {
	return func(_ context.Context, host string) ([]netip.Addr, error) {
		if ip, ok := known[host]; ok {
			return []netip.Addr{netip.MustParseAddr(ip)}, nil
		}
		return nil, fmt.Errorf("no such host %s", host)
	}
}

func TestNew_NamesTheOptionThatCannotBe(t *testing.T) {
	t.Parallel()
	busy, err := listen(nextIP(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { release(t, busy) })
	table := map[string]struct {
		edit   func(*Options)
		option string
		why    string
	}{
		"no name":                 {func(o *Options) { o.Self.Node = "" }, "node", "empty"},
		"long name":               {func(o *Options) { o.Self.Node = strings.Repeat("n", 129) }, "node", "129 bytes"},
		"name with a line end":    {func(o *Options) { o.Self.Node = "a\nb" }, "node", "control"},
		"key of 15 bytes":         {func(o *Options) { o.Keys = [][]byte{make([]byte, 15)} }, "key-file", "15 bytes, not 32"},
		"second key empty":        {func(o *Options) { o.Keys = [][]byte{make([]byte, 32), {}} }, "key-file", "key 2 has 0 bytes"},
		"key of 16 bytes":         {func(o *Options) { o.Keys = [][]byte{make([]byte, 16)} }, "key-file", "16 bytes, not 32"},
		"open without key":        {func(o *Options) { o.Bind = "0.0.0.0:0" }, "gossip-bind", "no key"},
		"port alone without key":  {func(o *Options) { o.Bind = ":0" }, "gossip-bind", "no key"},
		"public without key":      {func(o *Options) { o.Bind = "192.0.2.1:0" }, "gossip-bind", "no key"},
		"far seed without key":    {func(o *Options) { o.Join = []string{"127.0.0.1", "192.0.2.1:7946"} }, "join", "no key"},
		"port in use":             {func(o *Options) { o.Bind = busy.bound.String() }, "gossip-bind", "in use"},
		"address of another host": {func(o *Options) { o.Bind, o.Insecure = "192.0.2.1:0", true }, "gossip-bind", "listened on"},
		"bind is no address":      {func(o *Options) { o.Bind = "127.0.0.1:x" }, "gossip-bind", "HOST:PORT"},
		"bind is no name":         {func(o *Options) { o.Bind = "nobody:0" }, "gossip-bind", "no address"},
		"port too large":          {func(o *Options) { o.Bind = "127.0.0.1:65536" }, "gossip-bind", "65535"},
		"advertise any":           {func(o *Options) { o.Advertise = "0.0.0.0:7946" }, "gossip-advertise", "nobody"},
		"advertise any IPv6":      {func(o *Options) { o.Advertise = "::" }, "gossip-advertise", "nobody"},
		"advertise port 0":        {func(o *Options) { o.Advertise = "10.0.0.1:0" }, "gossip-advertise", "port 0"},
		"advertise port alone":    {func(o *Options) { o.Advertise = ":7946" }, "gossip-advertise", "no host"},
		"advertise two":           {func(o *Options) { o.Advertise = "a,b" }, "gossip-advertise", "not a host"},
		"seed without host":       {func(o *Options) { o.Join = []string{":7946"} }, "join", "names no host"},
		"empty seed":              {func(o *Options) { o.Join = []string{""} }, "join", "names no host"},
		"seed with node":          {func(o *Options) { o.Join = []string{"node/10.0.0.1:1"} }, "join", "not a host"},
		"long broker name":        {func(o *Options) { o.Self.BrokerName = strings.Repeat("b", 256) }, "broker-name", "255"},
		"garbled cluster":         {func(o *Options) { o.Self.Cluster = "c\x00" }, "cluster", "control"},
	}
	for name, c := range table {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := options("a")
			c.edit(&opt)
			g, err := newGossip(opt, names(nil), noLocal)
			var wrong *OptionError
			if !errors.As(err, &wrong) {
				t.Fatalf("it says %v", err)
			}
			if g != nil || wrong.Option != c.option || !strings.Contains(err.Error(), c.why) || wrong.Try == "" {
				t.Errorf("it says %v, and to try %q", err, wrong.Try)
			}
		})
	}
}

func TestNew_RefusesTimingWithoutSense(t *testing.T) {
	t.Parallel()
	for _, timing := range []Timing{
		{ProbeInterval: -1},
		{ProbeInterval: time.Millisecond, ProbeTimeout: time.Millisecond},
		{ProbeTimeout: time.Minute},
		{RetryMin: time.Minute},
		{SuspicionMult: -1},
		{Leave: time.Minute},
		{GossipInterval: 1},
	} {
		opt := options("a")
		opt.Timing = timing
		if g, err := New(opt); err == nil {
			t.Errorf("%+v passed", timing)
			run(t, g, &logBook{}).leave()
		}
	}
}

// A key is never part of what is said about it.
func TestNew_KeysAreNotTold(t *testing.T) {
	t.Parallel()
	opt := options("a")
	opt.Keys = [][]byte{[]byte("secret-of-15-by")}
	_, err := New(opt)
	if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), "secret") {
		t.Errorf("it says %v", err)
	}
}

func TestBind_WithoutKeyIsLoopback(t *testing.T) {
	t.Parallel()
	table := map[string]struct {
		opt  Options
		want string
	}{
		"nothing":  {Options{}, "127.0.0.1"},
		"insecure": {Options{Insecure: true}, "0.0.0.0"},
		"key":      {Options{Keys: [][]byte{key(1)}}, "0.0.0.0"},
	}
	for name, c := range table {
		ip, err := c.opt.bindIP("", names(nil))
		if err != nil || ip.String() != c.want {
			t.Errorf("%s: it binds %v, %v", name, ip, err)
		}
	}
}

// The default port gives way when it is in use, a port that was asked for does
// not.
func TestBind_DefaultPortFallsBack(t *testing.T) {
	t.Parallel()
	ip := nextIP()
	var taken *sockets
	eventually(t, "nobody has that port of all addresses", func() bool {
		var err error
		taken, err = listen(ip, DefaultPort)
		return err == nil
	})
	defer release(t, taken)
	opt := options("a")
	opt.Bind = ip.String()
	a := start(t, opt)
	if a.socks.bound.Addr() != ip || a.socks.bound.Port() == DefaultPort {
		t.Errorf("it is bound to %v", a.socks.bound)
	}
	if a.log.count("default gossip port is in use") != 1 {
		t.Error("it does not say so")
	}
	opt.Bind = fmt.Sprintf("%v:%d", ip, DefaultPort)
	var wrong *OptionError
	if _, err := New(opt); !errors.As(err, &wrong) {
		t.Errorf("it says %v", err)
	}
}

func TestSplitHostPort(t *testing.T) {
	t.Parallel()
	table := []struct {
		in, host string
		port     int
	}{
		{"a", "a", -1}, {"a:1", "a", 1}, {":1", "", 1}, {"1.2.3.4", "1.2.3.4", -1}, {"1.2.3.4:0", "1.2.3.4", 0},
		{"::1", "::1", -1}, {"[::1]", "::1", -1}, {"[::1]:65535", "::1", 65535}, {"::", "::", -1}, {"", "", -1},
	}
	for _, c := range table {
		host, port, err := splitHostPort(c.in)
		if host != c.host || port != c.port || err != nil {
			t.Errorf("%q is %q, %d, %v", c.in, host, port, err)
		}
	}
	for _, in := range []string{"a:", "a:b:c", "[::1", "a:-1", "a:65536", "a b", "a/b:1", "a@b", "[a]:1:2"} {
		if host, port, err := splitHostPort(in); err == nil {
			t.Errorf("%q is %q, %d", in, host, port)
		}
	}
}
