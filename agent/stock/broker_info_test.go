package stock_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

func TestBroker_ConfigurationsOfOtherBrokers(t *testing.T) {
	base := map[string]string{
		"brokerName": "b", "brokerRole": "SLAVE", "listenPort": "10911", "mappedFileSizeCommitLog": "1073741824",
	}
	tests := []struct {
		name   string
		change map[string]string // "-" removes
		want   func(stock.BrokerConfig) bool
		fails  string
	}{
		{"as it is", nil, func(c stock.BrokerConfig) bool {
			return c.Role == "SLAVE" && c.SegmentSize == wire.GiB && c.InSyncReplicas == 1 && c.HAListenPort == 10912 && c.BrokerID == 0
		}, ""},
		{"old spelling", map[string]string{"mappedFileSizeCommitLog": "-", "mapedFileSizeCommitLog": "1048576"}, func(c stock.BrokerConfig) bool { return c.SegmentSize == wire.MiB }, ""},
		{"controller", map[string]string{"enableControllerMode": "true"}, func(c stock.BrokerConfig) bool { return c.Controller && !c.DLedger }, ""},
		{"DLedger", map[string]string{"enableDLegerCommitLog": "true"}, func(c stock.BrokerConfig) bool { return c.DLedger && !c.Controller }, ""},
		{"RocksDB by version", map[string]string{"configManagerVersion": "v2"}, func(c stock.BrokerConfig) bool { return c.ConfigRocksDB }, ""},
		{"RocksDB by store", map[string]string{"storeType": "DefaultRocksDB"}, func(c stock.BrokerConfig) bool { return c.ConfigRocksDB }, ""},
		{"no RocksDB", map[string]string{"configManagerVersion": "v1", "storeType": "default"}, func(c stock.BrokerConfig) bool { return !c.ConfigRocksDB }, ""},
		{"HA port 0 means the next one", map[string]string{"haListenPort": "0"}, func(c stock.BrokerConfig) bool { return c.HAListenPort == 10912 }, ""},
		{"HA port", map[string]string{"haListenPort": "20000"}, func(c stock.BrokerConfig) bool { return c.HAListenPort == 20000 }, ""},
		{"replicas", map[string]string{"inSyncReplicas": "2", "brokerId": "3"}, func(c stock.BrokerConfig) bool { return c.InSyncReplicas == 2 && c.BrokerID == 3 }, ""},
		{"no name", map[string]string{"brokerName": "-"}, nil, "brokerName is missing"},
		{"no role", map[string]string{"brokerRole": ""}, nil, "brokerRole is missing"},
		{"no port", map[string]string{"listenPort": "-"}, nil, "listenPort is missing"},
		{"port too large", map[string]string{"haListenPort": "65536"}, nil, "haListenPort is 65536"},
		{"no segment size", map[string]string{"mappedFileSizeCommitLog": "-"}, nil, "mappedFileSizeCommitLog is missing"},
		{"segment size in words", map[string]string{"mappedFileSizeCommitLog": "1G"}, nil, `mappedFileSizeCommitLog is "1G"`},
		{"negative", map[string]string{"brokerId": "-1"}, nil, `brokerId is "-1"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			raw := maps.Clone(base)
			for k, v := range tt.change {
				if v == "-" {
					delete(raw, k)
				} else {
					raw[k] = v
				}
			}
			c, err := stock.ParseBrokerConfig(raw)
			switch {
			case tt.fails == "" && (err != nil || !tt.want(c)):
				t.Errorf("got %+v, %v", c, err)
			case tt.fails != "" && (!errors.Is(err, remoting.ErrBody) || !strings.Contains(err.Error(), tt.fails)):
				t.Errorf("got %v", err)
			}
		})
	}
}

// A name server answers request 26 with a refusal, other servers with anything.
func TestBroker_ConfigOfSomethingElse(t *testing.T) {
	for _, body := range []string{"", "rocketmqHome=/opt\nlistenPort=9876\n"} {
		p := startAnswering(t, func(req remoting.Command) []remoting.Command {
			answer := req.Reply(remoting.Success, "")
			answer.Body = []byte(body)
			return []remoting.Command{answer}
		})
		_, err := newClient(t, p.Addr().String(), stock.BrokerOptions{}).Config(t.Context())
		if !errors.Is(err, remoting.ErrBody) || !strings.Contains(err.Error(), p.Addr().String()) {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestI9_AnUnknownEndIsNotZero(t *testing.T) {
	tests := map[string]bool{
		`{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"100"}}`:   true,
		`{"table":{"commitLogMinOffset":"-1","commitLogMaxOffset":"0"}}`:    true,
		`{"table":{"commitLogMaxOffset":"100"}}`:                            true,
		`{"table":{"commitLogMinOffset":"0"}}`:                              false,
		`{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":""}}`:      false,
		`{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"-1"}}`:    false,
		`{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"1e3"}}`:   false,
		`{"table":{"commitLogMinOffset":"-2","commitLogMaxOffset":"100"}}`:  false,
		`{"table":{"commitLogMinOffset":"101","commitLogMaxOffset":"100"}}`: false,
		`{"table":{"commitLogMaxOffset":"9223372036854775808"}}`:            false,
		`{"table":{}}`: false,
		`<html>`:       false,
	}
	for body, ok := range tests {
		p := startAnswering(t, func(req remoting.Command) []remoting.Command {
			answer := req.Reply(remoting.Success, "")
			answer.Body = []byte(body)
			return []remoting.Command{answer}
		})
		info, err := newClient(t, p.Addr().String(), stock.BrokerOptions{}).RuntimeInfo(t.Context())
		if ok != (err == nil) || !ok && !errors.Is(err, remoting.ErrBody) {
			t.Errorf("%s: %d to %d, %v", body, info.MinOffset, info.MaxOffset, err)
		}
	}
}

func TestBroker_SignsEveryRequest(t *testing.T) {
	cred := remoting.Credentials{AccessKey: "haagent", SecretKey: "s"}
	p := startAnswering(t, func(req remoting.Command) []remoting.Command {
		if !cred.Verify(req) {
			return []remoting.Command{req.Reply(remoting.NoPermission, "check signature failed.")}
		}
		return []remoting.Command{req.Reply(remoting.Success, "")}
	})
	good := newClient(t, p.Addr().String(), stock.BrokerOptions{Credentials: cred})
	for range 3 {
		if _, err := good.Raw(t.Context(), remoting.ViewMessageByID, map[string]string{"offset": "7"}, []byte("body")); err != nil {
			t.Error(err)
		}
	}
	cred.SecretKey = "s" // what the peer knows
	for _, c := range []remoting.Credentials{{}, {AccessKey: "haagent", SecretKey: "wrong"}} {
		b := newClient(t, p.Addr().String(), stock.BrokerOptions{Credentials: c})
		if _, err := b.Raw(t.Context(), remoting.GetBrokerConfig, nil, nil); !errors.Is(err, stock.ErrUnauthorized) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestBroker_DialsAsItIsTold(t *testing.T) {
	refused := errors.New("no way")
	b := newClient(t, "broker.example:10911", stock.BrokerOptions{Dial: func(_ context.Context, network, addr string) (net.Conn, error) {
		if network != "tcp" || addr != "broker.example:10911" {
			t.Errorf("dialled %s %s", network, addr)
		}
		return nil, refused
	}})
	if _, err := b.Config(t.Context()); !errors.Is(err, refused) || b.Addr() != "broker.example:10911" {
		t.Errorf("got %v", err)
	}
}

// A property file may be shared by brokers of both generations: what 4.x does not
// know means nothing there, although it tells the property.
func TestBroker_InSyncReplicasOf4x(t *testing.T) {
	t.Parallel()
	const v452, v497, v500, v533 = 317, 407, 413, 479
	for release, want := range map[int]int{v452: 1, v497: 1, v500: 2, v533: 2, 0: 2} {
		p := startAnswering(t, func(req remoting.Command) []remoting.Command {
			answer := req.Reply(remoting.Success, "")
			answer.Version = release
			answer.Body = []byte("brokerName=b\nbrokerRole=SYNC_MASTER\nlistenPort=10911\nmappedFileSizeCommitLog=1048576\ninSyncReplicas=2\n")
			return []remoting.Command{answer}
		})
		c, err := newClient(t, p.Addr().String(), stock.BrokerOptions{}).Config(t.Context())
		if err != nil || c.InSyncReplicas != want || c.CountsInSync != (want == 2) {
			t.Errorf("release %d: %d, %t, %v, want %d", release, c.InSyncReplicas, c.CountsInSync, err, want)
		}
	}
}
