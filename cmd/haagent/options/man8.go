package options

import (
	"strconv"
	"strings"
)

// man8 returns haagent(8).
func (p Program) man8() string {
	m := manPage("HAAGENT", "8", "haagent", "running a replication agent for RocketMQ brokers")
	m.section("SYNOPSIS")
	m.WriteString(".Nm\n.Fl -config Ar FILE\n.Nm systemctl\n.Cm start | stop | reload | status\n.Ar haagent\n")
	m.section("DESCRIPTION")
	m.text(`The agent runs in the foreground, logs to standard error and never puts itself into the background. It runs as the user that the broker runs as, or one that may read its store: a master only reads it, a slave writes into its own directory and nowhere else.

Before a start, haagent config check says whether the configuration can be used, and haagent config show which value is in force and where it was given. haagent doctor reads the broker's own file, asks the broker, looks at the directory, and says in words what is in force and what is wrong.`)
	m.section("PORTS")
	m.tags("Li", [][2]string{
		{"7946", "TCP and UDP, gossip of all agents (--gossip-bind). On loopback without a key."},
		{"10915", "TCP, a master for its replicas (--link-bind). On loopback without a key or a certificate."},
		{"10916", "TCP, status, health and waits (--http). For this host unless told otherwise; read only."},
	})
	m.text("A default port that is taken by another agent of the host is replaced by a free one, which is logged; haagent status --dir DIR finds the agent all the same.")
	m.section("SIGNALS")
	m.tags("Dv", [][2]string{
		{"SIGTERM", "Ends the agent within seconds, with everything synced and exit status 0."},
		{"SIGINT", "The same."},
		{"SIGHUP", "Reads the configuration, the keys and the certificates again. What can change while the agent runs takes effect: " +
			enumerateAnd(names(p.Options, func(o Option) bool { return o.Live })) +
			". Other options that have changed are named in the log with \"restart to apply\". Where the new configuration cannot be used, that is logged, and the old one stays in force."},
	})
	m.section("STATES")
	m.text("haagent status tells the state of an agent. It stays up in all of them, and goes on by itself when the cause is gone. A state that needs somebody has a code, a reason and a next step in the status and in the log.")
	m.tags("Li", [][2]string{
		{"starting, searching, connecting", "On the way. searching: no live master of the group is known."},
		{"catching_up", "A replica takes what the source has more."},
		{"streaming, serving, observing", "At work, as slave, master and observer. Only in these the agent is ready."},
		{"gap", "The source no longer has what the replica needs next."},
		{"diverged, source_replaced", "The source holds other bytes than the replica."},
		{"split_brain", "Two masters claim the group. Nothing is acked until one is left."},
		{"incompatible, protocol_error", "The peer or the store is of another kind than was asked for."},
		{"unauthorized", "The peer wants another key, certificate or access key."},
		{"locked", "Another process works on the store."},
		{"disturbed", "Somebody else has written to the replica."},
		{"no_space, read_only, io_error", "The disk. Acks stop, and what was not synced is written anew."},
		{"promoted", "The replica was handed over to a broker."},
	})
	m.section("FAILOVER")
	m.text("When the broker is gone for good, hand a replica over. The agent syncs everything, ends, and prints the properties that a broker needs:")
	m.literal("haagent promote --dir /var/lib/rocketmq/store --yes > promoted.conf\nsh bin/mqbroker -c promoted.conf -n 10.0.0.9:9876")
	m.text("The old store must not come back as a master. To make it a replica of the new one, set its log aside with haagent resync and start a slave on it.")
	m.section("CHANGING KEYS")
	m.text("Add the new key as second line of the key file on every host and reload every agent. Then make it the first line everywhere and reload. Then take the old line out and reload.")
	m.section("FILES")
	m.files()
	m.section("DIAGNOSTICS")
	m.text("Errors are one line that says what and where, and a line that begins with Try. The exit status says of which kind they are; a service manager should not start the agent again on 2, 3, 8 and 9, which a restart does not cure.")
	m.WriteString(".Bl -tag -width Ds\n")
	for _, e := range p.Exits {
		m.WriteString(".It " + strconv.Itoa(e.Code) + "\n")
		m.text(e.Meaning)
	}
	m.WriteString(".El\n")
	m.section("SEE ALSO")
	m.WriteString(".Xr haagent 1 ,\n.Xr haagent.yml 5\n")
	return m.String()
}

// enumerateAnd returns "a, b and c".
func enumerateAnd(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
