package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/cmd/haagent/options"
	"github.com/haagent/haagent/discovery"
	"github.com/haagent/haagent/wire/remoting"
)

// env is the variable of a command's flag that is one of the agent's options
// too.
func env(name string) []string { return []string{options.Option{Name: name}.Env()} }

func text(name, value, usage string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Value: value, Usage: usage, EnvVars: env(name)}
}

// agentFlags are the options of the agent as flags. They have neither variables
// nor defaults: options.Resolve knows those, and must tell what was given from
// what was not.
func agentFlags() []cli.Flag {
	var flags []cli.Flag
	for _, o := range options.Table() {
		if o.Kind == options.Switch {
			flags = append(flags, &cli.BoolFlag{Name: o.Name, Usage: o.Help})
			continue
		}
		flags = append(flags, &cli.StringFlag{Name: o.Name, Usage: "`" + o.Arg + "` " + o.Help})
	}
	return flags
}

// resolve finds the value of every option. The environment is a parameter of the
// process, as the command line is.
func resolve(c *cli.Context) (*options.Set, error) { return resolveWith(c, map[string]string{}) }

// configDir is where packages keep the files of services.
const configDir = "/etc/haagent"

// resolveInstalled is resolve, but takes the file of an installed service where no
// option says what agent is meant, and returns its name.
func resolveInstalled(c *cli.Context, dir string) (set *options.Set, from string, err error) {
	set, err = resolve(c)
	if err != nil || set.Given("role") || set.Given("dir") || set.Given("config") {
		return set, "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yml"))
	if err != nil {
		return nil, "", err
	}
	from = filepath.Join(dir, "haagent.yml")
	switch known := slices.Contains(files, from); {
	case !known && len(files) == 1:
		from = files[0]
	case !known && len(files) > 1:
		return nil, "", set.Refuse("config", "", "is missing", "give --config FILE with one of "+strings.Join(files, ", "))
	case !known:
		return nil, "", set.Refuse("role", "", "is missing", "give the options of the agent, or --config FILE; there is no "+from)
	}
	set, err = resolveWith(c, map[string]string{"config": from})
	if err == nil && !set.Given("role") {
		return nil, "", set.Refuse("role", "", "is missing, in "+from+" too", "give the options of the agent, or --config FILE")
	}
	return set, from, err
}

// resolveWith is resolve with more flags.
func resolveWith(c *cli.Context, given map[string]string) (*options.Set, error) {
	for _, o := range options.Table() {
		switch {
		case !c.IsSet(o.Name):
		case o.Kind == options.Switch:
			given[o.Name] = fmt.Sprint(c.Bool(o.Name))
		default:
			given[o.Name] = c.String(o.Name)
		}
	}
	set, err := options.Resolve(options.Table(), options.Sources{Flags: given, Environ: os.Environ()})
	if err != nil {
		return nil, err
	}
	set.Warnings = append(set.Warnings, advice(set)...)
	return set, nil
}

// agentConfig makes a config out of the options that do something.
func agentConfig(all *options.Set) (agent.Config, error) {
	set := all.Effective()
	cfg := agent.Config{
		Role: agent.Role(set.Text("role")), Dir: set.Text("dir"), CommitLogDir: set.Text("commitlog-dir"),
		Cluster: set.Text("cluster"), BrokerName: set.Text("broker-name"), BrokerID: set.Whole("broker-id"), Node: set.Text("node"),
		Master: set.Text("master"), MasterHA: set.Text("master-ha"), Broker: set.Text("broker"), TailSettle: set.Time("tail-settle"),
		LinkBind: set.Text("link-bind"), LinkAdvertise: set.Text("link-advertise"),
		RelayAcks: int(set.Whole("relay-acks")), HABind: set.Text("ha-bind"), RemotingBind: set.Text("remoting-bind"),
		Compress: agent.Compress(set.Text("compress")), LimitRate: set.Size("limit-rate"), CatchupRate: set.Size("catchup-rate"),
		OnDivergence: agent.OnDivergence(set.Text("on-divergence")),
		SegmentSize:  set.Size("segment-size"), Ack: replica.Ack(set.Text("ack")), MetadataInterval: set.Time("metadata-interval"),
		HTTP: set.Text("http"), Version: version,
	}
	var err error
	if cfg.HAAllow, err = stock.ParseAllowList(set.Text("ha-allow")); err != nil {
		return cfg, set.Refuse("ha-allow", set.Text("ha-allow"), err.Error(), "give networks or addresses, such as 10.1.0.0/16,192.168.7.5")
	}
	if cfg.Retention, err = agent.ParseRetention(set.Text("retention")); err != nil {
		return cfg, set.Refuse("retention", set.Text("retention"), "not a rule", err.Error())
	}
	if file := set.Text("broker-acl-file"); file != "" {
		if cfg.Credentials, err = readCredentials(file); err != nil {
			return cfg, set.Refuse("broker-acl-file", file, err.Error(), "write two lines, accessKey=NAME and secretKey=SECRET, and chmod 600 "+file)
		}
	}
	cfg.BrokerTLS, err = brokerTLS(set)
	return cfg, err
}

// brokerTLS is how TLS is spoken with brokers; nil where it is not. Its files must
// be of use.
func brokerTLS(set *options.Set) (*stock.BrokerTLS, error) {
	if !set.Switch("broker-tls") {
		return nil, nil
	}
	t := &stock.BrokerTLS{CA: set.Text("broker-tls-ca"), Cert: set.Text("broker-tls-cert"), Key: set.Text("broker-tls-key"),
		Verify: stock.BrokerVerify(set.Text("broker-tls-verify")), ReadKey: link.ReadSecret}
	switch {
	case t.Cert != "" && t.Key == "":
		return nil, set.Refuse("broker-tls-cert", t.Cert, "its key is missing", "give --broker-tls-key too")
	case t.Cert == "" && t.Key != "":
		return nil, set.Refuse("broker-tls-key", t.Key, "its certificate is missing", "give --broker-tls-cert too")
	}
	var file *stock.TLSFileError
	if err := t.Check(); errors.As(err, &file) {
		try := "give a file in PEM form that this user may read"
		if file.Option == "key" {
			try += " and others may not (chmod 600 " + file.Path + ")"
		}
		return nil, set.Refuse("broker-tls-"+file.Option, file.Path, file.Err.Error(), try)
	} else if err != nil {
		return nil, err
	}
	return t, nil
}

// placed adds to an error about an option where the option was given.
func placed(set *options.Set, err error) error {
	var cfg *agent.ConfigError
	var option *discovery.OptionError
	switch {
	case errors.As(err, &cfg):
		return set.Refuse(cfg.Key, cfg.Value, cfg.Why, cfg.Try)
	case errors.As(err, &option):
		why := option.Why
		if option.Err != nil {
			why += ": " + option.Err.Error()
		}
		return set.Refuse(option.Option, option.Value, why, option.Try)
	}
	return err
}

// maxCredentials is more than two lines take.
const maxCredentials = 64 << 10

func readCredentials(file string) (remoting.Credentials, error) {
	b, err := link.ReadSecret(file, maxCredentials)
	if err != nil {
		return remoting.Credentials{}, err
	}
	p := remoting.ParseProperties(b)
	c := remoting.Credentials{AccessKey: strings.TrimSpace(p["accessKey"]), SecretKey: strings.TrimSpace(p["secretKey"])}
	if !c.Valid() {
		return c, errors.New("accessKey or secretKey is missing")
	}
	return c, nil
}
