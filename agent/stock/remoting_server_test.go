package stock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// remotingOptions are those of a server on a TCP port whose connections are
// gone when the test ends.
func remotingOptions(t testing.TB) stock.RemotingServerOptions {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return stock.RemotingServerOptions{Listener: ln}
}

// serveRemoting runs a server until the test ends and returns a client of it.
func serveRemoting(t testing.TB, opt stock.RemotingServerOptions) *stock.Broker {
	t.Helper()
	run(t, stock.NewRemotingServer(opt).Run)
	b := stock.NewBroker(opt.Listener.Addr().String(), stock.BrokerOptions{Timeout: patience})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestRemotingServerTellsItsConfig(t *testing.T) {
	opt := remotingOptions(t)
	opt.Config = map[string]string{
		"brokerClusterName": "c", "brokerName": "b", "brokerId": "0", "brokerRole": "ASYNC_MASTER",
		"listenPort": "10911", "haListenPort": "20912", "mappedFileSizeCommitLog": "65536",
	}
	got, err := serveRemoting(t, opt).Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.ClusterName != "c" || got.HAListenPort != 20912 || got.SegmentSize != 64*wire.KiB {
		t.Errorf("%+v", got)
	}
}

func TestRemotingServerConfigTextReadsBack(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ \t\\=:#!a\n\r\f]{0,6}`)).Filter(func(s string) bool { return !strings.ContainsRune(s, '\uFFFD') })
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.MapOf(text.Filter(func(s string) bool { return s != "" }), text).Draw(rt, "config")
		if got := remoting.ParseProperties(stock.PropertiesText(want)); !maps.Equal(got, want) {
			rt.Errorf("got %q, want %q", got, want)
		}
	})
}

// servedStore is a server of a store that holds a few segments.
func servedStore(t *testing.T) (*servedLog, *stock.Broker) {
	t.Helper()
	l := newServedLog(t, 64*wire.KiB, 3*64<<10)
	l.grow(3 * l.size)
	opt := remotingOptions(t)
	opt.CommitLogDir, opt.SegmentSize, opt.End = l.dir, l.size, l.writer.End
	return l, serveRemoting(t, opt)
}

func TestRemotingServerTellsTheEndsOfItsLog(t *testing.T) {
	l, b := servedStore(t)
	check := func() {
		t.Helper()
		info, err := b.RuntimeInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.MinOffset != l.writer.Min() || info.MaxOffset != l.writer.End() || info.Version != "V4_9_7" {
			t.Errorf("%+v; the log is [%d, %d)", info, l.writer.Min(), l.writer.End())
		}
	}
	check()
	l.grow(1)
	if _, err := l.writer.DropOldest(); err != nil {
		t.Fatal(err)
	}
	check()
}

func TestRemotingServerOfAnEmptyLog(t *testing.T) {
	opt := remotingOptions(t)
	end := wire.NoOffset
	opt.CommitLogDir, opt.SegmentSize, opt.End = filepath.Join(t.TempDir(), "none"), wire.MiB, func() wire.PhyOffset { return end }
	b := serveRemoting(t, opt)
	if _, err := b.RuntimeInfo(t.Context()); !errors.Is(err, stock.ErrNotReady) {
		t.Errorf("with an unknown end: %v", err)
	}
	end = 0
	info, err := b.RuntimeInfo(t.Context())
	if err != nil || !info.Empty() || info.MinOffset != wire.NoOffset {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := b.ViewMessage(t.Context(), 0); !errors.Is(err, stock.ErrNoMessage) {
		t.Errorf("message of an empty log: %v", err)
	}
}

func TestRemotingServerShowsEveryMessageAndNothingElse(t *testing.T) {
	l, b := servedStore(t)
	log := l.bytes(l.writer.Min(), l.writer.End())
	scan, err := commitlog.NewScanner(l.dir, l.size, wire.NoOffset)
	if err != nil {
		t.Fatal(err)
	}
	starts := make(map[wire.PhyOffset]bool)
	for scan.Next() {
		r := scan.Record()
		starts[r.PhyOffset] = true
		got, err := b.ViewMessage(t.Context(), r.PhyOffset)
		if err != nil || !bytes.Equal(got, r.Bytes()) {
			t.Fatalf("message at %d: %v", r.PhyOffset, err)
		}
	}
	if err := scan.Close(); err != nil {
		t.Error(err)
	}
	none := []wire.PhyOffset{-1, 0, l.writer.Min() - 1, l.writer.End(), l.writer.End() - 1, l.writer.End().Add(l.size), 1<<63 - 1}
	for i := range log {
		if off := l.writer.Min().Add(wire.ByteSize(i)); i%97 == 0 && !starts[off] {
			none = append(none, off)
		}
	}
	for _, off := range none {
		_, err := b.Raw(t.Context(), remoting.ViewMessageByID, map[string]string{"offset": off.String()}, nil)
		if !errors.Is(err, stock.ErrNoMessage) {
			t.Errorf("message at %d: %v", off, err)
		}
	}
	for _, field := range []string{"", "x", "1e3", "9223372036854775808"} {
		if _, err := b.Raw(t.Context(), remoting.ViewMessageByID, map[string]string{"offset": field}, nil); err == nil {
			t.Errorf("offset %q was answered", field)
		}
	}
}

// I1: what is behind the confirmed end is not shown.
func TestI1_RemotingServerHidesUnconfirmedMessages(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	opt := remotingOptions(t)
	opt.CommitLogDir, opt.SegmentSize = l.dir, l.size
	l.grow(1)
	last := l.writer.End()
	l.grow(1)
	opt.End = func() wire.PhyOffset { return last.Add(50) }
	b := serveRemoting(t, opt)
	if _, err := b.ViewMessage(t.Context(), last); !errors.Is(err, stock.ErrNoMessage) {
		t.Errorf("a message that is not confirmed: %v", err)
	}
}

func TestRemotingServerDoesNotKnow(t *testing.T) {
	opt := remotingOptions(t)
	opt.Config = map[string]string{"brokerName": "b"}
	opt.Handlers = map[remoting.RequestCode]stock.RemotingHandler{
		remoting.GetBrokerConfig: nil,
		remoting.QueryDataVersion: func(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
			a := req.Reply(remoting.Success, "")
			a.Body = req.Body
			return a
		},
	}
	b := serveRemoting(t, opt)
	for _, code := range []remoting.RequestCode{
		remoting.GetBrokerConfig, remoting.GetBrokerRuntimeInfo, remoting.ViewMessageByID, remoting.GetAllTopicConfig, 9999, -1,
	} {
		if _, err := b.Raw(t.Context(), code, nil, nil); !errors.Is(err, stock.ErrNotSupported) {
			t.Errorf("%v: %v", code, err)
		}
	}
	a, err := b.Raw(t.Context(), remoting.QueryDataVersion, nil, []byte("echo"))
	if err != nil || string(a.Body) != "echo" || a.Version != 407 {
		t.Errorf("%+v, %v", a, err)
	}
}

// exchange sends requests in one write and reads as many answers.
func exchange(t *testing.T, addr net.Addr, answers int, requests ...remoting.Command) []remoting.Command {
	t.Helper()
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, r := range requests {
		b, err := remoting.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	if _, err := conn.Write(all); err != nil {
		t.Fatal(err)
	}
	var got []remoting.Command
	for range answers {
		a, err := remoting.ReadCommand(conn, remoting.MaxFrame)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, a)
	}
	return got
}

func TestRemotingServerAnswersInTheFormAndOrderOfTheRequests(t *testing.T) {
	opt := remotingOptions(t)
	serveRemoting(t, opt)
	request := func(opaque int32, flag int, s remoting.Serialization) remoting.Command {
		r := remoting.NewRequest(9999, map[string]string{"a": "b"}, []byte("body"))
		r.Opaque, r.Flag, r.Serialization = opaque, flag, s
		return r
	}
	got := exchange(t, opt.Listener.Addr(), 3,
		request(1, 0, remoting.Binary),
		request(2, remoting.FlagOneWay, remoting.JSON),
		request(3, remoting.FlagResponse, remoting.JSON),
		request(4, 0, remoting.JSON),
		request(5, 0, remoting.Binary))
	want := []string{"1 ROCKETMQ true", "4 JSON true", "5 ROCKETMQ true"}
	var have []string
	for _, a := range got {
		have = append(have, fmt.Sprint(a.Opaque, " ", a.Serialization, " ", a.Response()))
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

// writeConfig puts a file into DIR/config.
func writeConfig(t testing.TB, dir, name, content string) {
	t.Helper()
	if err := forge.WriteConfig(dir, name, []byte(content), forge.Style4x, nil); err != nil {
		t.Fatal(err)
	}
}

func TestRemotingServerAnswersWithConfigFiles(t *testing.T) {
	const (
		topics  = "{\n\t\"dataVersion\":{\"counter\":7,\"timestamp\":9},\n\t\"topicConfigTable\":{\"a\":{\"topicName\":\"a\"}}\n}\n"
		mapping = `{ "dataVersion" : {"counter":3,"timestamp":4,"stateVersion":1} , "topicQueueMappingInfoMap":{"s,\"}{":{"hostedQueues":{0:[{"gen":1}]}}} }`
		offsets = `{"offsetTable":{"a@g":{0:12,1:9}}}`
	)
	for _, version := range []string{"V4_9_7", "V5_3_3"} {
		t.Run(version, func(t *testing.T) {
			opt := remotingOptions(t)
			opt.Dir, opt.Version = t.TempDir(), version
			b := serveRemoting(t, opt)
			files := func() map[string]string {
				t.Helper()
				got := make(map[string]string)
				for _, code := range metadata.StockRequests() {
					a, err := b.Raw(t.Context(), code, nil, nil)
					if errors.Is(err, stock.ErrNotSupported) {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					fs, err := metadata.FromStock(code, a)
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range fs {
						got[f.Name] = string(f.Content)
					}
				}
				return got
			}
			empty := files()
			writeConfig(t, opt.Dir, "topics.json", topics)
			writeConfig(t, opt.Dir, "topicQueueMapping.json", mapping)
			writeConfig(t, opt.Dir, "consumerOffset.json", offsets)
			want := map[string]string{
				"topics.json":            `{"dataVersion":{"counter":7,"timestamp":9},"topicConfigTable":{"a":{"topicName":"a"}}}`,
				"consumerOffset.json":    offsets,
				"delayOffset.json":       empty["delayOffset.json"],
				"subscriptionGroup.json": empty["subscriptionGroup.json"],
			}
			if version == "V5_3_3" {
				want["messageRequestMode.json"] = empty["messageRequestMode.json"]
				want["topicQueueMapping.json"] = `{"dataVersion":{"counter":3,"timestamp":4,"stateVersion":1},"topicQueueMappingInfoMap":{"s,\"}{":{"hostedQueues":{0:[{"gen":1}]}}}}`
			}
			if diff := cmp.Diff(want, files()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Fault 44: a file that is being rewritten is answered whole, or the one before.
func TestFault44_RemotingServerNeverAnswersATornFile(t *testing.T) {
	for _, style := range []forge.Style{forge.Style4x, forge.Style5x, forge.StyleNewer} {
		opt := remotingOptions(t)
		opt.Dir = t.TempDir()
		b := serveRemoting(t, opt)
		version := func(n int) string {
			return fmt.Sprintf(`{"dataVersion":{"counter":%d,"timestamp":1},"topicConfigTable":{%s}}`, n, `"t":{"topicName":"t"}`)
		}
		writeConfig(t, opt.Dir, "topics.json", version(0))
		for n := 1; n <= 3; n++ {
			err := forge.WriteConfig(opt.Dir, "topics.json", []byte(version(n)), style, func(change string) error {
				a, err := b.Raw(t.Context(), remoting.GetAllTopicConfig, nil, nil)
				if err != nil {
					return err
				}
				if got := string(a.Body); got != version(n) && got != version(n-1) {
					return fmt.Errorf("after %q: answered %s", change, got)
				}
				return nil
			})
			if err != nil {
				t.Fatalf("style %d: %v", style, err)
			}
		}
	}
}

func TestRemotingServerAsksToComeAgainForATornFile(t *testing.T) {
	opt := remotingOptions(t)
	opt.Dir = t.TempDir()
	b := serveRemoting(t, opt)
	writeConfig(t, opt.Dir, "topics.json", `{"dataVersion":`)
	if _, err := b.Raw(t.Context(), remoting.GetAllTopicConfig, nil, nil); !errors.Is(err, stock.ErrNotReady) {
		t.Errorf("a file that is torn for good: %v", err)
	}
}
