package stock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// A stock slave broker follows the server as it follows a stock master: its log
// is the served one, while that grows and rolls and after a restart, and it
// takes over the topics of the store.
func TestHAServerFeedsAStockSlave(t *testing.T) {
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		l := newServedLog(t, wire.MiB, 0)
		l.variety = forge.Variety{}
		l.grow(l.size / 2)
		// Slaves ask for topics at the VIP port, two below the other one.
		info, vip := remotingOptions(t), remotingOptions(t)
		info.Listener, vip.Listener = listenTwoApart(t, info.Listener, vip.Listener)
		haAddr := serveHA(t, l.options())
		info.CommitLogDir, info.SegmentSize, info.End = l.dir, l.size, l.writer.End
		info.Dir = filepath.Dir(l.dir)
		writeConfig(t, info.Dir, "topics.json", `{"dataVersion":{"counter":7,"timestamp":9},"topicConfigTable":{"served":{`+
			`"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"served","topicSysFlag":0,"writeQueueNums":4}}}`)
		addr := info.Listener.Addr().String()
		info.Handlers = map[remoting.RequestCode]stock.RemotingHandler{
			remoting.RegisterBroker: func(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
				a := req.Reply(remoting.Success, "")
				a.ExtFields = map[string]string{"haServerAddr": haAddr, "masterAddr": addr}
				return a
			},
		}
		serveRemoting(t, info)
		vip.Dir = info.Dir
		serveRemoting(t, vip)
		slave := brokertest.StartBroker(t, brokertest.BrokerOptions{
			Version: v, Role: "SLAVE", MasterHA: haAddr, SegmentSize: l.size,
			Properties: map[string]string{"namesrvAddr": addr},
		})
		equal := func() {
			t.Helper()
			end := l.writer.End()
			l.await(func(reports []haReport, _ []error) bool { return reports != nil && reports[len(reports)-1].off == end })
			copied := &servedLog{t: t, size: l.size, dir: filepath.Join(slave.Dir(), "commitlog")}
			if !bytes.Equal(copied.bytes(0, end), l.bytes(0, end)) {
				t.Error("the slave's log is another one")
			}
		}
		equal()
		for range 4 {
			l.grow(l.size / 3)
			l.roll()
		}
		l.grow(1)
		equal()
		slave.Stop()
		l.grow(l.size)
		slave.Restart(t)
		equal()
		if v.Major() == 4 { // later ones ask once a minute
			awaitFile(t, filepath.Join(slave.Dir(), "config", "topics.json"), `"served"`)
		}
	})
}

// listenTwoApart returns listeners whose ports differ by two, the higher first,
// in place of the given ones.
func listenTwoApart(t *testing.T, old ...net.Listener) (high, low net.Listener) {
	t.Helper()
	for _, ln := range old {
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		low, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr, ok := low.Addr().(*net.TCPAddr)
		if !ok {
			t.Fatal(low.Addr())
		}
		high, err := net.Listen("tcp", (&net.TCPAddr{IP: addr.IP, Port: addr.Port + 2}).String())
		if err == nil {
			return high, low
		}
		if err := low.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("no two ports that differ by two")
	return nil, nil
}

// awaitFile waits until a broker has written a file that holds what is wanted.
func awaitFile(t *testing.T, path, want string) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(brokerPatience)
	for {
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), want) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s holds no %s: %v, %q", path, want, err, b)
		}
	}
}

// brokerPatience is how long a stock slave may take for what it does every 10 s.
const brokerPatience = 30 * time.Second

// bareKey is a key that fastjson writes without quotes.
var bareKey = regexp.MustCompile(`([{,])\s*(-?[0-9]+)\s*:`)

// loose reads JSON of a broker whose strings hold no braces.
func loose(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(bareKey.ReplaceAll(b, []byte(`$1"$2":`)), &v); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return v
}

// settled takes out of an answer what a broker changes all by itself: it makes
// the topic of transactions some time after its start, and stamps anew.
func settled(answer any) any {
	top, _ := answer.(map[string]any)
	if topics, ok := top["topicConfigTable"].(map[string]any); ok {
		delete(topics, "RMQ_SYS_TRANS_HALF_TOPIC")
		delete(top, "dataVersion")
		delete(top, "mappingDataVersion")
	}
	return answer
}

// What a stock broker answered about its store before it stopped, the server
// answers from what it left behind.
func TestRemotingServerAnswersAsTheBrokerOfItsStore(t *testing.T) {
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		ns := brokertest.StartNameServer(t, v)
		broker := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr})
		driver := brokertest.StartDriver(t, v, ns.Addr)
		driver.CreateTopic(t, "orders", 2)
		sent := driver.Send(t, brokertest.SendSpec{Topic: "orders", Count: 40})
		delayed := driver.Send(t, brokertest.SendSpec{Topic: "orders", Count: 2, Kind: brokertest.Delayed})
		driver.PullN(t, "orders", len(sent)+len(delayed))
		driver.Consume(t, "billing", "orders", 10)

		client := stock.NewBroker(broker.Addr(), stock.BrokerOptions{})
		defer client.Close()
		codes := []remoting.RequestCode{
			remoting.GetAllTopicConfig, remoting.GetAllConsumerOffset, remoting.GetAllSubscriptionGroupConfig,
		}
		if v.AtLeast("4.9.0") {
			// 4.5 does not answer what it does not know, and stops without writing its
			// delay offsets once more.
			codes = append(codes, remoting.GetAllMessageRequestMode, remoting.GetAllDelayOffset)
		}
		ask := func(b *stock.Broker) map[string]any {
			t.Helper()
			got := make(map[string]any)
			for _, code := range codes {
				a, err := b.Raw(t.Context(), code, nil, nil)
				if err != nil {
					got[code.String()] = errors.Is(err, stock.ErrNotSupported)
					continue
				}
				got[code.String()] = settled(loose(t, a.Body))
			}
			info, err := b.RuntimeInfo(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got["info"] = []any{info.MinOffset, info.MaxOffset, info.Version}
			for _, s := range sent {
				m, err := b.ViewMessage(t.Context(), s.PhyOffset)
				if err != nil {
					t.Fatal(err)
				}
				got[s.PhyOffset.String()] = string(m)
			}
			return got
		}
		want := ask(client)
		version, ok := want["info"].([]any)[2].(string)
		if !ok {
			t.Fatal(want["info"])
		}
		end, ok := want["info"].([]any)[1].(wire.PhyOffset)
		if !ok {
			t.Fatal(want["info"])
		}
		broker.Stop()

		opt := remotingOptions(t)
		opt.Dir, opt.CommitLogDir, opt.SegmentSize = broker.Dir(), filepath.Join(broker.Dir(), "commitlog"), wire.MiB
		opt.Version, opt.End = version, func() wire.PhyOffset { return end }
		if diff := cmp.Diff(want, ask(serveRemoting(t, opt))); diff != "" {
			t.Error(diff)
		}
	})
}
