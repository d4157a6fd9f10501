package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"

	"os"
)

func env(name string) []string {
	return []string{"HAAGENT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))}
}

func text(name, value, usage string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Value: value, Usage: usage, EnvVars: env(name)}
}

// agentFlags are the options of the agent itself.
func agentFlags() []cli.Flag {
	return []cli.Flag{
		text("role", "", "`ROLE` of this agent: master beside a broker, slave for a replica, observer to look on"),
		text("dir", "", "store root (storePathRootDir) `DIR`; commit log in DIR/commitlog, config in DIR/config"),
		text("commitlog-dir", "", "`DIR` of the segments, if not DIR/commitlog (storePathCommitLog)"),
		text("join", "", "`HOST:PORT,...` of agents that are in the gossip; default: the default port of this host"),
		text("gossip-bind", "", "`HOST:PORT` of the gossip; default 0.0.0.0:7946 with a key, else 127.0.0.1:7946"),
		text("gossip-advertise", "", "`HOST:PORT` at which others reach it; default chosen and logged"),
		text("key-file", "", "`FILE` of shared keys, base64 of 32 bytes, one a line: encrypts gossip and link"),
		text("link-bind", "", "`HOST:PORT` where a master serves its replicas; default 0.0.0.0:10915 with a key, else 127.0.0.1:10915"),
		text("link-advertise", "", "`HOST:PORT` at which they reach it; default chosen and logged"),
		&cli.IntFlag{Name: "relay-acks", Usage: "`N` replicas must have a message before a SYNC_MASTER broker tells its producer SEND_OK; 0 leaves that to the broker", EnvVars: env("relay-acks")},
		text("ha-bind", "", "`HOST:PORT` where a master serves unmodified slave brokers the stock HA stream; default: nowhere"),
		text("remoting-bind", "", "`HOST:PORT` where a master or observer answers unmodified slave brokers, also at the port - 2; default: nowhere"),
		text("ha-allow", "", "`CIDR,...` of the hosts that may talk to these two; default: this host only"),
		text("link-security", "auto", "`MODE` auto (TLS where there is a key or a certificate), tls, or clear (the key is proven, bytes go unencrypted)"),
		text("tls-cert", "", "`FILE` (PEM) of this agent's certificate, from your own PKI, for the link"),
		text("tls-key", "", "`FILE` (PEM) of its private key"),
		text("tls-ca", "", "`FILE` (PEM) of the authority that the others' certificates are from"),
		&cli.BoolFlag{Name: "insecure", Usage: "talk to other hosts without a key", EnvVars: env("insecure")},
		text("broker", agent.DefaultBroker, "`HOST:PORT` (listenPort) of the broker beside a master, which knows where its log ends"),
		&cli.DurationFlag{Name: "tail-settle", Value: time.Second, Usage: "`TIME` a last record stands unchanged before a master without broker sends it, unconfirmed", EnvVars: env("tail-settle")},
		text("master", "", "`HOST:PORT` (listenPort) of a broker without agent, to be followed"),
		text("master-ha", "", "its HA `HOST:PORT`, where it cannot be asked; works alone, then without config files"),
		text("cluster", "", "`NAME` the source must have as brokerClusterName; default: what the source or the own broker says"),
		text("broker-name", "", "`NAME` the source must have as brokerName; default: what the source or the own broker says"),
		&cli.Int64Flag{Name: "broker-id", DefaultText: "0 master, 1 slave", Usage: "brokerId `N` of the broker beside a master, or that would boot on a replica", EnvVars: env("broker-id")},
		text("node", "", "`NAME` of this agent; default host/brokerName/brokerId"),
		text("segment-size", "", "`SIZE` of a segment (mappedFileSizeCommitLog); default: asked of the source"),
		text("ack", "memory", "what an ack means: `LEVEL` memory (verified, in the page cache) or disk (fdatasync done)"),
		text("retention", "follow", "`RULE` for old segments: follow the source, keep all, or an age such as 72h"),
		&cli.DurationFlag{Name: "metadata-interval", Value: 0, DefaultText: "10s", Usage: "`TIME` between snapshots of the config files", EnvVars: env("metadata-interval")},
		text("broker-acl-file", "", "`FILE` with accessKey and secretKey lines, for brokers with access control"),
		text("http", agent.DefaultHTTP, "`HOST:PORT` of the status page; empty for none"),
		text("log-level", "info", "`LEVEL` debug, info, warn or error"),
		text("log-format", "auto", "`FORMAT` auto (colours on a terminal), text or json"),
	}
}

// agentConfig reads the options into a config.
func agentConfig(c *cli.Context) (agent.Config, error) {
	cfg := agent.Config{
		Role: agent.Role(c.String("role")), Dir: c.String("dir"), CommitLogDir: c.String("commitlog-dir"),
		Cluster: c.String("cluster"), BrokerName: c.String("broker-name"), BrokerID: c.Int64("broker-id"), Node: c.String("node"),
		Master: c.String("master"), MasterHA: c.String("master-ha"), Broker: c.String("broker"), TailSettle: c.Duration("tail-settle"),
		LinkBind: c.String("link-bind"), LinkAdvertise: c.String("link-advertise"),
		RelayAcks: c.Int("relay-acks"), HABind: c.String("ha-bind"), RemotingBind: c.String("remoting-bind"),
		Ack: replica.Ack(c.String("ack")), MetadataInterval: c.Duration("metadata-interval"),
		HTTP: c.String("http"), Version: version,
	}
	var err error
	if s := c.String("segment-size"); s != "" {
		if cfg.SegmentSize, err = parseSize(s); err != nil {
			return cfg, &agent.ConfigError{Key: "segment-size", Value: s, Why: err.Error(), Try: "give a size such as 1GiB or 1073741824"}
		}
	}
	if cfg.HAAllow, err = stock.ParseAllowList(c.String("ha-allow")); err != nil {
		return cfg, &agent.ConfigError{Key: "ha-allow", Value: c.String("ha-allow"), Why: err.Error(), Try: "give networks or addresses, such as 10.1.0.0/16,192.168.7.5"}
	}
	if cfg.Retention, err = agent.ParseRetention(c.String("retention")); err != nil {
		return cfg, &agent.ConfigError{Key: "retention", Value: c.String("retention"), Why: "not a rule", Try: err.Error()}
	}
	if file := c.String("broker-acl-file"); file != "" {
		if cfg.Credentials, err = readCredentials(file); err != nil {
			return cfg, &agent.ConfigError{Key: "broker-acl-file", Value: file, Why: err.Error(), Try: "write two lines: accessKey=NAME and secretKey=SECRET, readable for haagent only"}
		}
	}
	return cfg, nil
}

func readCredentials(file string) (remoting.Credentials, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return remoting.Credentials{}, err
	}
	p := remoting.ParseProperties(b)
	c := remoting.Credentials{AccessKey: p["accessKey"], SecretKey: p["secretKey"]}
	if !c.Valid() {
		return c, fmt.Errorf("accessKey or secretKey is missing")
	}
	return c, nil
}

// parseSize reads "1GiB", "64MiB", "1048576"; units without i count as binary
// too, as brokers' documentation uses them.
func parseSize(s string) (wire.ByteSize, error) {
	binary := strings.NewReplacer("kb", "KiB", "KB", "KiB", "MB", "MiB", "mb", "MiB", "GB", "GiB", "gb", "GiB").Replace(strings.TrimSpace(s))
	if n := len(binary); n > 1 && strings.ContainsRune("kKmMgG", rune(binary[n-1])) {
		binary = strings.ToUpper(binary) + "iB"
	}
	n, err := humanize.ParseBytes(binary)
	if err != nil || n == 0 || n > 1<<62 {
		return 0, fmt.Errorf("not a size")
	}
	return wire.ByteSize(n), nil
}
