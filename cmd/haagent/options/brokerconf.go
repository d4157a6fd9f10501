package options

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/haagent/haagent/wire/remoting"
)

// BrokerConf is a broker's own properties file.
type BrokerConf struct {
	Path       string
	properties map[string]remoting.Property
}

// brokerProperties are what is read of a broker.conf; a file that has none of
// them is something else.
var brokerProperties = []string{
	"brokerClusterName", "brokerName", "brokerId", "storePathRootDir", "storePathCommitLog", "mappedFileSizeCommitLog",
	"listenPort", "haListenPort", "brokerIP1", "brokerIP2", "bindAddress", "namesrvAddr", "brokerRole", "flushDiskType",
}

// ReadBrokerConf reads the file of --broker-conf. Errors are an *Error.
func ReadBrokerConf(path string) (*BrokerConf, error) {
	text, err := readSmall(path, maxFile)
	if err != nil {
		return nil, &Error{Origin: Origin{Layer: FromFlag}, Key: "broker-conf", Value: path, Why: reason(err), Try: "give the file that the broker is started with (mqbroker -c FILE), readable for this user"}
	}
	return ParseBrokerConf(base(path), text)
}

// ParseBrokerConf reads the text of such a file. Errors are an *Error.
func ParseBrokerConf(path string, text []byte) (*BrokerConf, error) {
	c := &BrokerConf{Path: path, properties: map[string]remoting.Property{}}
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return nil, c.fail(1+bytes.Count(text[:i], []byte("\n")), "", "", "holds a NUL byte, this is no text")
	}
	if !utf8.Valid(text) {
		return nil, c.fail(invalidLine(text), "", "", "is not UTF-8")
	}
	for p := range remoting.Properties(text) {
		if p.Malformed {
			return nil, c.fail(p.Line, "", "", `has a \u without four hexadecimal digits: the broker refuses this file`)
		}
		p.Value = strings.TrimSpace(p.Value) // as the broker does
		c.properties[p.Key] = p
	}
	if !slices.ContainsFunc(brokerProperties, func(name string) bool { _, ok := c.properties[name]; return ok }) {
		return nil, c.fail(0, "", "", "this is no broker.conf: it has none of a broker's properties, such as brokerName=broker-a")
	}
	for _, name := range []string{"brokerId", "mappedFileSizeCommitLog", "listenPort", "haListenPort"} {
		if err := c.checkNumber(name); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// invalidLine returns the first line that is not UTF-8.
func invalidLine(text []byte) int {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if !utf8.Valid(line) {
			break
		}
	}
	return number
}

func (c *BrokerConf) fail(line int, name, value, why string) error {
	return &Error{Origin: Origin{Layer: FromBrokerConf, File: c.Path, Line: line, Name: name}, Value: value, Why: why,
		Try: "give the file that the broker is started with (mqbroker -c FILE)"}
}

func (c *BrokerConf) checkNumber(name string) error {
	p, ok := c.properties[name]
	if !ok {
		return nil
	}
	low, high := int64(0), int64(1)<<62
	switch name {
	case "mappedFileSizeCommitLog":
		low = 1
	case "listenPort":
		low, high = 1, 1<<16-1
	case "haListenPort":
		high = 1<<16 - 1
	}
	n, err := strconv.ParseInt(p.Value, 10, 64)
	switch {
	case err != nil:
		return c.fail(p.Line, name, p.Value, "not a whole number")
	case n < low || n > high:
		return c.fail(p.Line, name, p.Value, fmt.Sprintf("must be between %d and %d", low, high))
	}
	return nil
}

// Get returns a property, "" where the file does not have it.
func (c *BrokerConf) Get(name string) string { return c.properties[name].Value }

// Origin returns where a property stands.
func (c *BrokerConf) Origin(name string) Origin {
	return Origin{Layer: FromBrokerConf, File: c.Path, Line: c.properties[name].Line, Name: name}
}

// Dir returns the store root: where the file does not name one, the broker has
// it below the home of its user. home is "" where that is not known.
func (c *BrokerConf) Dir(home string) (string, error) {
	dir := c.Get("storePathRootDir")
	switch {
	case dir == "" && home == "":
		return "", errors.New("the file does not say it, and there is no HOME to look in")
	case dir == "":
		return filepath.Join(home, "store"), nil
	case !filepath.IsAbs(dir):
		return "", errors.New("is relative to where the broker was started")
	}
	return dir, nil
}

// Broker returns the broker's listenPort as an address of this host.
func (c *BrokerConf) Broker() string {
	port := c.Get("listenPort")
	if port == "" {
		port = "10911"
	}
	host := c.Get("bindAddress")
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// brokerConf lays the values of the file over the defaults, for what the role
// has a use for.
func (r *resolver) brokerConf(path string, environ []string) error {
	if path == "" {
		return nil
	}
	conf, err := ReadBrokerConf(path)
	if own := new(Error); errors.As(err, &own) && own.Key == "broker-conf" {
		return r.set.Refuse(own.Key, own.Value, own.Why, own.Try)
	}
	if err != nil {
		return err
	}
	role := r.set.Text("role")
	for _, o := range r.table {
		if o.Property == "" || !o.Usable(role) || r.set.Value(o.Name).Origin.Layer > FromBrokerConf {
			continue
		}
		v, err := conf.value(o, home(environ))
		if err != nil {
			return err
		}
		if v.Text != "" {
			r.lay([]Value{v})
		}
	}
	return nil
}

// value returns what the file says of an option.
func (c *BrokerConf) value(o Option, home string) (Value, error) {
	v := Value{Option: o, Text: c.Get(o.Property), Origin: c.Origin(o.Property)}
	switch o.Name {
	case "dir":
		dir, err := c.Dir(home)
		if err != nil {
			return Value{}, &Error{Origin: v.Origin, Value: v.Text, Why: err.Error(), Try: "give --dir DIR, the broker's store root"}
		}
		v.Text = dir
	case "broker":
		if v.Text != "" || c.Get("bindAddress") != "" {
			v.Text = c.Broker()
		}
	case "commitlog-dir":
		if v.Text != "" && !filepath.IsAbs(v.Text) {
			return Value{}, &Error{Origin: v.Origin, Value: v.Text, Why: "is relative to where the broker was started", Try: "give --commitlog-dir DIR"}
		}
	}
	return value(o, v.Text, v.Origin)
}

func home(environ []string) string {
	for _, entry := range environ {
		if dir, ok := strings.CutPrefix(entry, "HOME="); ok {
			return dir
		}
	}
	return ""
}
