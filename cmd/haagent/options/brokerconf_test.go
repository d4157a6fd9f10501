package options_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/haagent/haagent/cmd/haagent/options"
)

// TestBrokerConf_Yields: what a broker's own file says of the options.
func TestBrokerConf_Yields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, role, text string
		want             map[string]string // of those that were not there by default
	}{
		{"all", "master", "# of broker a\nbrokerClusterName=c1\nbrokerName : a\nbrokerId 0\nstorePathRootDir=/s\nstorePathCommitLog=/log\nmappedFileSizeCommitLog=1048576\nlistenPort=20911\nhaListenPort=20912\nbrokerIP1=10.0.0.5\nflushDiskType=ASYNC_FLUSH\n",
			map[string]string{"cluster": "c1", "broker-name": "a", "broker-id": "0", "dir": "/s", "commitlog-dir": "/log", "segment-size": "1048576", "broker": "127.0.0.1:20911"}},
		{"the broker's default store", "master", "brokerName=a\n", map[string]string{"broker-name": "a", "dir": "/home/rocketmq/store"}},
		{"a continued line", "slave", "storePathRootDir = /s/\\\n    more\n! a comment\nbrokerName=caf\\u00e9\r\n", map[string]string{"dir": "/s/more", "broker-name": "café"}},
		{"the last of several", "slave", "brokerName=a\nbrokerName=b\nstorePathRootDir=/s", map[string]string{"broker-name": "b", "dir": "/s"}},
		{"blanks behind", "slave", "brokerName=a  \nstorePathRootDir=/s\t\n", map[string]string{"broker-name": "a", "dir": "/s"}},
		{"a broker of one address", "master", "bindAddress=10.0.0.5\nstorePathRootDir=/s\n", map[string]string{"dir": "/s", "broker": "10.0.0.5:10911"}},
		{"a broker of all addresses", "master", "bindAddress=0.0.0.0\nlistenPort=1\nstorePathRootDir=/s\n", map[string]string{"dir": "/s", "broker": "127.0.0.1:1"}},
		{"a slave has no broker", "slave", "listenPort=1\nstorePathRootDir=/s\n", map[string]string{"dir": "/s"}},
		{"an observer has no store", "observer", "brokerName=a\nstorePathRootDir=/s\n", map[string]string{"broker-name": "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			set := resolved(t, options.Sources{Environ: []string{"HOME=/home/rocketmq"},
				Flags: map[string]string{"role": c.role, "broker-conf": write(t, "broker.conf", c.text)}})
			got := map[string]string{}
			for _, v := range set.Values() {
				if v.Origin.Layer == options.FromBrokerConf {
					got[v.Option.Name] = v.Text
				}
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestBrokerConf_Refused: file, line, property and what is wrong.
func TestBrokerConf_Refused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"something else", "role: slave\ndir: /s\n", ": this is no broker.conf"},
		{"nothing", "", ": this is no broker.conf"},
		{"an id that is none", "brokerName=a\nbrokerId=first\n", `:2: brokerId "first": not a whole number`},
		{"a negative id", "brokerId=-1\n", `:1: brokerId "-1": must be between 0 and`},
		{"a size with its unit", "\n\nmappedFileSizeCommitLog=1GiB\n", `:3: mappedFileSizeCommitLog "1GiB": not a whole number`},
		{"a port", "listenPort=70000\n", `:1: listenPort "70000": must be between 1 and 65535`},
		{"an HA port", "brokerName=a\\\n  b\nhaListenPort=x\n", `:3: haListenPort "x": not a whole number`},
		{"an escape", "brokerName=a\nstorePathRootDir=C:\\users\n", `:2: has a \u without four hexadecimal digits`},
		{"a byte that is no text", "brokerName=a\nx=\x00\n", ":2: holds a NUL byte"},
		{"no UTF-8", "brokerName=a\nx=\xff\n", ":2: is not UTF-8"},
		{"a relative store", "brokerName=a\nstorePathRootDir=store\n", `:2: storePathRootDir "store": is relative to where the broker was started`},
		{"a relative log", "storePathRootDir=/s\nstorePathCommitLog=log\n", `:2: storePathCommitLog "log": is relative to where the broker was started`},
		{"no home", "brokerName=a\n", `: storePathRootDir: the file does not say it, and there is no HOME to look in`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := write(t, "broker.conf", c.text)
			e := refused(t, options.Sources{Flags: map[string]string{"role": "master", "broker-conf": path}})
			if !strings.HasPrefix(e.Error(), path+c.want) {
				t.Errorf("got  %v\nwant %s", e, path+c.want)
			}
		})
	}
	set := resolved(t, options.Sources{Flags: map[string]string{"role": "master", "dir": "/s", "broker-conf": write(t, "broker.conf", "storePathRootDir=store\n")}})
	if set.Text("dir") != "/s" {
		t.Errorf("what a flag says does not need the file: %q", set.Text("dir"))
	}
}

// FuzzBrokerConf: no text makes it panic, and what it yields can be used.
func FuzzBrokerConf(f *testing.F) {
	for _, seed := range []string{"", "brokerName=a\n", "brokerId=\\\n 7\nlistenPort:1\n", "storePathRootDir=/\\u0041\n", "\\", "=\n:\n", "haListenPort=0\r\rbrokerIP2=::1"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		conf, err := options.ParseBrokerConf("b.conf", text)
		if e := new(options.Error); err != nil {
			if !errors.As(err, &e) || strings.ContainsAny(err.Error(), "\n\r") || e.Try == "" {
				t.Errorf("%q", err)
			}
			return
		}
		if dir, err := conf.Dir("/h"); err == nil && !strings.HasPrefix(dir, "/") {
			t.Errorf("the store is %q", dir)
		}
		if !strings.Contains(conf.Broker(), ":") {
			t.Errorf("the broker is %q", conf.Broker())
		}
	})
}
