package options

import (
	"slices"
	"time"
)

// The chapters that options stand in.
const (
	groupAgent   = "This agent"
	groupGossip  = "Gossip"
	groupTrust   = "Keys and certificates"
	groupMaster  = "Beside a broker"
	groupStock   = "For unmodified slave brokers"
	groupReplica = "A replica"
	groupPath    = "The path of the data"
	groupWatch   = "Watching it"
)

// Who uses an option.
var (
	masters   = []string{"master"}
	slaves    = []string{"slave"}
	keepers   = []string{"master", "slave"}
	answerers = []string{"master", "observer"}
)

// Table returns all options of the agent, in the order of the manual.
func Table() []Option {
	return slices.Concat(agentOptions(), gossipOptions(), trustOptions(), brokerTLSOptions(), masterOptions(), stockOptions(), replicaOptions(), pathOptions(), watchOptions())
}

// Lookup returns the option of that name.
func Lookup(table []Option, name string) (Option, bool) {
	i := slices.IndexFunc(table, func(o Option) bool { return o.Name == name })
	if i < 0 {
		return Option{}, false
	}
	return table[i], true
}

func names(table []Option, which func(Option) bool) []string {
	var list []string
	for _, o := range table {
		if which(o) {
			list = append(list, o.Name)
		}
	}
	return list
}

func agentOptions() []Option {
	return []Option{
		{Name: "role", Kind: Choice, Arg: "ROLE", Group: groupAgent, Example: "slave", Choices: []string{"master", "slave", "observer"}, DefaultText: "required",
			Help: "side of this agent: master beside a broker, slave for a replica, observer to look on",
			More: "A master reads the store of the broker beside it and serves replicas. A slave keeps a replica. An observer joins the gossip and writes nothing; it is the name server of unmodified slave brokers."},
		{Name: "dir", Kind: Dir, Arg: "DIR", Group: groupAgent, Example: "/var/lib/rocketmq/store", DefaultText: "required of master and slave", Roles: keepers, Property: "storePathRootDir",
			Help: "store root (storePathRootDir); commit log in DIR/commitlog, config in DIR/config",
			More: "For a master the directory of its broker, for a slave the one to replicate into, which may be empty or missing. What haagent itself keeps is in DIR/.haagent."},
		{Name: "commitlog-dir", Kind: Dir, Arg: "DIR", Group: groupAgent, Example: "/data/rocketmq/commitlog", DefaultText: "what a replica remembers, else DIR/commitlog", Roles: keepers, Property: "storePathCommitLog",
			Help: "directory of the segments, if not DIR/commitlog (storePathCommitLog)",
			More: "A replica remembers it, until resync: later starts, and all other commands, need DIR only. Brokers up to 4.5 keep the segments in $HOME/store/commitlog unless they are told otherwise, whatever their storePathRootDir is."},
		{Name: "config", Kind: File, Arg: "FILE", Group: groupAgent, Example: "/etc/haagent/haagent.yml", DefaultText: "none", NoKey: true,
			Help: "YAML file with any of these options, by their names without dashes before them",
			More: "A key that is no option, a value that cannot be used and a key that is given twice are refused, with file and line."},
		{Name: "broker-conf", Kind: File, Arg: "FILE", Group: groupAgent, Example: "/etc/rocketmq/broker.conf", DefaultText: "none",
			Help: "the broker's own properties, for what is not given otherwise",
			More: "Read are brokerClusterName, brokerName, brokerId, storePathRootDir (by default $HOME/store, as for the broker), storePathCommitLog, mappedFileSizeCommitLog and listenPort, and bindAddress where the broker does not listen on all addresses."},
		{Name: "cluster", Kind: Text, Arg: "NAME", Group: groupAgent, Example: "DefaultCluster", DefaultText: "what the source or the own broker says", Property: "brokerClusterName",
			Help: "brokerClusterName that the source must have"},
		{Name: "broker-name", Kind: Text, Arg: "NAME", Group: groupAgent, Example: "broker-a", DefaultText: "what the source or the own broker says", Property: "brokerName",
			Help: "brokerName that the source must have"},
		{Name: "broker-id", Kind: Whole, Arg: "N", Group: groupAgent, Example: "1", DefaultText: "0 for a master, 1 for a slave", Property: "brokerId",
			Help: "brokerId of the broker beside a master, or of the one that would boot on a replica"},
		{Name: "node", Kind: Text, Arg: "NAME", Group: groupAgent, Example: "replica-1", DefaultText: "host/brokerName/brokerId",
			Help: "name of this agent, which no other agent has",
			More: "Acks count by it, so that a replica that connects twice counts once."},
		{Name: "segment-size", Kind: Size, Arg: "SIZE", Group: groupAgent, Example: "1GiB", DefaultText: "asked of the source, else what DIR holds, else 1GiB", Roles: keepers, Property: "mappedFileSizeCommitLog",
			Help: "length of a segment (mappedFileSizeCommitLog)"},
	}
}

func gossipOptions() []Option {
	return []Option{
		{Name: "join", Kind: List, Arg: "HOST:PORT,...", Group: groupGossip, Example: "10.0.0.5,10.0.0.6", DefaultText: "the default port of this host", Live: true,
			Help: "agents that are in the gossip",
			More: "They are tried for ever, and their names are resolved for every try. Without a port, 7946 is meant. Naming all agents on each of them lets any of them start first."},
		{Name: "gossip-bind", Kind: Address, Arg: "HOST:PORT", Group: groupGossip, Example: "0.0.0.0:7946", DefaultText: "0.0.0.0:7946 with a key, else 127.0.0.1:7946",
			Help: "where gossip listens, for TCP and UDP",
			More: "Where the default port is taken, by another agent of the host, a free one is used. A slave that was given --master gossips only where --join or this is given too."},
		{Name: "gossip-advertise", Kind: Address, Arg: "HOST:PORT", Group: groupGossip, Example: "10.0.0.6:7946", DefaultText: "chosen and logged", Peers: true,
			Help: "where the other agents reach the gossip of this one"},
	}
}

func trustOptions() []Option {
	return []Option{
		{Name: "key-file", Kind: File, Arg: "FILE", Group: groupTrust, Example: "/etc/haagent/key", DefaultText: "none", Live: true, Secret: true, Peers: true,
			Help: "shared keys, base64 of 32 bytes, one a line: they encrypt gossip and link",
			More: "haagent keygen writes one. The first key encrypts, all are accepted, so that keys are changed in three steps: add the new one as second line everywhere, make it the first everywhere, take the old one out; reload after each. Nobody but the owner may read the file. Without a key agents talk on one host only."},
		{Name: "link-security", Kind: Choice, Arg: "MODE", Group: groupTrust, Example: "tls", Choices: []string{"auto", "tls", "clear"}, Default: "auto", Peers: true,
			Help: "how the link is protected: auto (TLS where there is a key or a certificate), tls, or clear",
			More: "With clear the peers still prove that they have the key, and then bytes go unencrypted and without a copy: for networks in which nobody else is, because whoever is on the path can inject."},
		{Name: "tls-cert", Kind: File, Arg: "FILE", Group: groupTrust, Example: "/etc/haagent/agent.pem", DefaultText: "none", Live: true, Peers: true,
			Help: "certificate (PEM) of this agent from your own PKI, for the link",
			More: "It goes together with --tls-key and --tls-ca. Changed files are read again by themselves. Certificates protect the link, not the gossip: that needs --key-file."},
		{Name: "tls-key", Kind: File, Arg: "FILE", Group: groupTrust, Example: "/etc/haagent/agent-key.pem", DefaultText: "none", Live: true, Secret: true, Peers: true,
			Help: "private key (PEM) of that certificate"},
		{Name: "tls-ca", Kind: File, Arg: "FILE", Group: groupTrust, Example: "/etc/haagent/ca.pem", DefaultText: "none", Live: true, Peers: true,
			Help: "authority (PEM) that the other agents' certificates are from"},
		{Name: "insecure", Kind: Switch, Group: groupTrust, Example: "false", Default: "false", Peers: true,
			Help: "talk to other hosts without a key",
			More: "Whoever reaches the ports can then read the log, and join. Meant for tests."},
		{Name: "broker-acl-file", Kind: File, Arg: "FILE", Group: groupTrust, Example: "/etc/haagent/broker-acl", DefaultText: "none", Secret: true, Roles: keepers,
			Help: "accessKey and secretKey lines, for brokers with access control"},
	}
}

func brokerTLSOptions() []Option {
	return []Option{
		{Name: "broker-tls", Kind: Switch, Group: groupTrust, Example: "true", Default: "false", Roles: keepers,
			Help: "speak TLS with brokers at their listenPort",
			More: "For brokers that demand it (tls.server.mode=enforcing in the broker's JVM), or to encrypt what is asked of one elsewhere (permissive, the default there). Only requests go that way. A broker's HA port never speaks TLS: the log that a slave takes from a broker without agent is not encrypted, whatever is given here. Nor does haagent speak TLS where it answers unmodified brokers (--ha-bind, --remoting-bind)."},
		{Name: "broker-tls-ca", Kind: File, Arg: "FILE", Group: groupTrust, Example: "/etc/haagent/broker-ca.pem", DefaultText: "the authorities of the system", Roles: keepers, Needs: []string{"broker-tls"}, Reread: true,
			Help: "authority (PEM) that the brokers' certificates are from, or such a certificate itself",
			More: "This file and the two below are read anew for every connection."},
		{Name: "broker-tls-verify", Kind: Choice, Arg: "HOW", Group: groupTrust, Example: "ca", Choices: []string{"full", "ca", "none"}, Default: "full", Roles: keepers, Needs: []string{"broker-tls"},
			Help: "what of a broker's certificate is looked at: full (authority and host), ca, or none",
			More: "RocketMQ's own clients look at nothing, or at the authority only where they have tls.client.authServer, and its certificates often name no host: then ca is right. A broker that was given no certificate makes one for each start (tls.test.mode.enable), which only none accepts: the connection is encrypted then, but whoever is on the path can pose as the broker. With Java 17 brokers can make none, and speak no TLS before they are given one."},
		{Name: "broker-tls-cert", Kind: File, Arg: "FILE", Group: groupTrust, Example: "/etc/haagent/broker-client.pem", DefaultText: "none", Roles: keepers, Needs: []string{"broker-tls"}, Reread: true,
			Help: "certificate (PEM) that brokers are shown which ask for one (tls.server.need.client.auth)",
			More: "It goes together with --broker-tls-key."},
		{Name: "broker-tls-key", Kind: File, Arg: "FILE", Group: groupTrust, Example: "/etc/haagent/broker-client-key.pem", DefaultText: "none", Secret: true, Roles: keepers, Needs: []string{"broker-tls"}, Reread: true,
			Help: "private key (PEM) of that certificate"},
	}
}

func masterOptions() []Option {
	return []Option{
		{Name: "broker", Kind: Address, Arg: "HOST:PORT", Group: groupMaster, Example: "127.0.0.1:10911", Default: "127.0.0.1:10911", Roles: masters, Property: "listenPort",
			Help: "listenPort of the broker beside a master, which knows where its log ends"},
		{Name: "tail-settle", Kind: Time, Arg: "TIME", Group: groupMaster, Example: "1s", Default: "1s", Min: int64(time.Millisecond), Max: int64(time.Hour), Roles: masters,
			Help: "how long a last record stands unchanged before a master without broker sends it, unconfirmed"},
		{Name: "relay-acks", Kind: Whole, Arg: "N", Group: groupMaster, Example: "1", Default: "0", Max: 16, Roles: masters,
			Help: "replicas that must have a message before a SYNC_MASTER broker tells its producer SEND_OK",
			More: "0 leaves that to the broker. Brokers from 5.0 on wait only with inSyncReplicas, which counts the broker: N must be at least inSyncReplicas-1."},
		{Name: "link-bind", Kind: Address, Arg: "HOST:PORT", Group: groupMaster, Example: "0.0.0.0:10915", DefaultText: "0.0.0.0:10915 with a key, else 127.0.0.1:10915", Roles: masters,
			Help: "where a master serves its replicas"},
		{Name: "link-advertise", Kind: Address, Arg: "HOST:PORT", Group: groupMaster, Example: "10.0.0.5:10915", DefaultText: "chosen and logged", Roles: masters,
			Help: "where replicas reach that"},
	}
}
