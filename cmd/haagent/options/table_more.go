package options

import "time"

func stockOptions() []Option {
	return []Option{
		{Name: "ha-bind", Kind: Address, Arg: "HOST:PORT", Group: groupStock, Example: "10.0.0.5:10922", DefaultText: "off", Off: true, Roles: masters,
			Help: "where a master serves unmodified slave brokers the stock HA stream"},
		{Name: "remoting-bind", Kind: Address, Arg: "HOST:PORT", Group: groupStock, Example: "10.0.0.5:10921", DefaultText: "off", Off: true, Roles: answerers,
			Help: "where a master or observer answers unmodified slave brokers, also at the port - 2"},
		{Name: "ha-allow", Kind: List, Arg: "CIDR,...", Group: groupStock, Example: "10.0.0.0/24", DefaultText: "this host only", Roles: answerers, Needs: []string{"ha-bind", "remoting-bind"},
			Help: "hosts that may talk to these two",
			More: "Their protocols know no keys: nobody else gets an answer."},
	}
}

func replicaOptions() []Option {
	return []Option{
		{Name: "master", Kind: Address, Arg: "HOST:PORT", Group: groupReplica, Example: "10.0.0.5:10911", DefaultText: "what gossip finds", Roles: slaves,
			Help: "listenPort of a broker without agent, to be followed"},
		{Name: "master-ha", Kind: Address, Arg: "HOST:PORT", Group: groupReplica, Example: "10.0.0.5:10912", DefaultText: "asked of --master", Roles: slaves,
			Help: "its HA port, where it cannot be asked; works alone, then without config files"},
		{Name: "ack", Kind: Choice, Arg: "LEVEL", Group: groupReplica, Example: "disk", Choices: []string{"memory", "disk"}, Default: "memory", Roles: slaves,
			Help: "what an ack means: memory (verified, in the page cache) or disk (fdatasync done)"},
		{Name: "retention", Kind: Text, Arg: "RULE", Group: groupReplica, Example: "72h", Default: "follow", Roles: slaves,
			Help: "what becomes of old segments: follow the source, keep all, or an age such as 72h"},
		{Name: "metadata-interval", Kind: Time, Arg: "TIME", Group: groupReplica, Example: "10s", Default: "10s", Min: int64(time.Second), Max: int64(24 * time.Hour), Roles: keepers,
			Help: "time between snapshots of the config files"},
		{Name: "on-divergence", Kind: Choice, Arg: "WAY", Group: groupReplica, Example: "rewind", Choices: []string{"halt", "rewind"}, Default: "halt", Roles: slaves,
			Help: "what a replica does that parted from its source: halt, or rewind to the last common message",
			More: "Rewind needs an agent beside the source: with --master or --master-ha it is refused. Nothing is cut before the first byte that differs is proven; what is cut off is kept in DIR/.haagent/salvage, and told by haagent status."},
	}
}

func pathOptions() []Option {
	return []Option{
		{Name: "compress", Kind: Choice, Arg: "HOW", Group: groupPath, Example: "auto", Choices: []string{"off", "auto", "zstd"}, Default: "off", Roles: keepers, Peers: true,
			Help: "how the log travels on the link: off, zstd, or auto (zstd while it pays)"},
		{Name: "limit-rate", Kind: Rate, Arg: "SIZE", Group: groupPath, Example: "64MiB", Default: "0", Roles: keepers, Live: true,
			Help: "bytes of the log that are sent or taken in a second at most, all peers together; 0: no limit"},
		{Name: "catchup-rate", Kind: Rate, Arg: "SIZE", Group: groupPath, Example: "32MiB", Default: "0", Roles: keepers, Live: true,
			Help: "the same, but only while a replica is behind; 0: no limit"},
	}
}

func watchOptions() []Option {
	return []Option{
		{Name: "http", Kind: Address, Arg: "HOST:PORT", Group: groupWatch, Example: "127.0.0.1:10916", Default: "127.0.0.1:10916", Off: true,
			Help: "where status, health and waits are served; off for nowhere",
			More: "It is read only and knows no keys. Where the default port is taken, by another agent of the host, a free one is used, and haagent status --dir DIR finds it."},
		{Name: "log-level", Kind: Choice, Arg: "LEVEL", Group: groupWatch, Example: "debug", Choices: []string{"debug", "info", "warn", "error"}, Default: "info", Live: true,
			Help: "least of what is logged: debug, info, warn or error"},
		{Name: "log-format", Kind: Choice, Arg: "FORMAT", Group: groupWatch, Example: "json", Choices: []string{"auto", "text", "json"}, Default: "auto",
			Help: "how it is logged: auto (colours on a terminal), text or json"},
	}
}
