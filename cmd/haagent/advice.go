package main

import (
	"net"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/cmd/haagent/options"
)

// gossips reports whether an agent with these options is in a gossip.
func gossips(set *options.Set) bool {
	told := set.Text("master") != "" || set.Text("master-ha") != ""
	return !told || set.Given("join") || set.Given("gossip-bind")
}

// binds are where an agent with these options listens for others: on all addresses
// where somebody has to prove something, or nobody needs to. Certificates prove
// nothing to gossip.
func binds(set *options.Set) (gossip, link string) {
	gossip, link = set.Text("gossip-bind"), set.Text("link-bind")
	open := set.Text("key-file") != "" || set.Switch("insecure")
	if gossip == "" {
		gossip = "127.0.0.1:7946"
		if open {
			gossip = "0.0.0.0:7946"
		}
	}
	if link == "" {
		link = "127.0.0.1:10915"
		if open || set.Text("tls-cert") != "" {
			link = agent.DefaultLink
		}
	}
	return gossip, link
}

// advice finds what can be meant, but seldom is.
func advice(set *options.Set) []string {
	var list []string
	gossip, link := binds(set)
	mislead := func(name, bind string) {
		text := set.Text(name)
		if text == "" || set.Value(name).Idle || !onLoopback(text) || onLoopback(bind) {
			return
		}
		list = append(list, "--"+name+" "+text+" leads agents of other hosts to themselves, and this one listens at "+bind+
			" for them. Try: give the address at which they reach this host, or leave it away; where all agents are on this host, bind to 127.0.0.1")
	}
	mislead("gossip-advertise", gossip)
	mislead("link-advertise", link)
	return list
}

// onLoopback reports whether HOST:PORT, or HOST, is of this host only.
func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
