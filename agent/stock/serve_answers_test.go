package stock_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// store is a store about which is answered.
type store struct {
	t       *testing.T
	answers map[remoting.RequestCode]stock.RemotingHandler // nil: made for each request
	opt     stock.StoreAnswersOptions
	version string
	size    wire.ByteSize
	end     wire.PhyOffset
}

func newStore(t *testing.T) *store {
	s := &store{t: t, version: "V5_3_3"}
	dir := t.TempDir()
	s.opt = stock.StoreAnswersOptions{Dir: dir, CommitLogDir: filepath.Join(dir, "commitlog"), HA: "10.0.0.1:10922", Remoting: "10.0.0.1:10921",
		SegmentSize: func() wire.ByteSize { return s.size }, Min: func() wire.PhyOffset { return 0 }, End: func() wire.PhyOffset { return s.end },
		Version: func() string { return s.version }, Config: func() map[string]string { return map[string]string{"brokerName": "b"} },
		Log: slog.New(slog.DiscardHandler)}
	for name, content := range map[string]string{
		"topics.json":            `{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},"topicConfigTable":{"orders":{}}}`,
		"consumerOffset.json":    `{"offsetTable":{"orders@g":{0:5}}}`,
		"subscriptionGroup.json": `{"dataVersion":{"counter":1,"timestamp":2},"subscriptionGroupTable":{"g":{}}}`,
		"timermetrics":           `{"dataVersion":{"counter":9,"stateVersion":0,"timestamp":2},"timingCount":{}}`,
	} {
		writeConfig(t, dir, name, content)
	}
	check := make([]byte, 4096)
	for i := range 7 {
		binary.BigEndian.PutUint64(check[8*i:], uint64(i+1))
	}
	if err := os.WriteFile(filepath.Join(dir, "config", "timercheck"), check, 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *store) ask(code remoting.RequestCode, fields map[string]string) remoting.Command {
	s.t.Helper()
	answers := s.answers
	if answers == nil {
		answers = stock.StoreAnswers(s.opt)
	}
	handle := answers[code]
	if handle == nil {
		s.t.Fatalf("nobody answers %v", code)
	}
	return handle(s.t.Context(), desk, remoting.NewRequest(code, fields, nil))
}

// Without a broker the files are answered, in the forms of its generation.
func TestStoreAnswers_FromFiles(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for code, want := range map[remoting.RequestCode]string{
		remoting.GetAllTopicConfig:             `"topicQueueMappingDetailMap"`,
		remoting.GetAllConsumerOffset:          `{"offsetTable":{"orders@g":{0:5}}}`,
		remoting.GetAllDelayOffset:             `{"offsetTable":{}}`,
		remoting.GetAllSubscriptionGroupConfig: `"g":{}`,
		remoting.GetAllMessageRequestMode:      `messageRequestModeMap`,
		remoting.GetTimerMetrics:               `"counter":9`,
		remoting.GetBrokerConfig:               "brokerName=b",
	} {
		if got := s.ask(code, nil); got.Answer() != remoting.Success || !strings.Contains(string(got.Body), want) {
			t.Errorf("%v is answered %v %q %s", code, got.Answer(), got.Remark, got.Body)
		}
	}
	check := s.ask(remoting.GetTimerCheckPoint, nil)
	if len(check.Body) != 56 || !bytes.Equal(check.Body[48:], []byte{0, 0, 0, 0, 0, 0, 0, 7}) {
		t.Errorf("the timer's checkpoint is % x", check.Body)
	}
	s.version = "V4_9_7"
	for _, code := range []remoting.RequestCode{remoting.GetAllMessageRequestMode, remoting.GetTimerCheckPoint, remoting.GetTimerMetrics} {
		if got := s.ask(code, nil); got.Answer() != remoting.RequestCodeNotSupported {
			t.Errorf("as a broker of 4.x %v is answered %v", code, got.Answer())
		}
	}
	s.version = "" // never met: its files tell that it is one of 5.x
	if got := s.ask(remoting.GetTimerMetrics, nil); got.Answer() != remoting.Success {
		t.Errorf("without a word of the broker %v is answered %v", remoting.GetTimerMetrics, got.Answer())
	}
}

// A slave drops what a table does not have, so a table that is not there is no
// empty one.
func TestStoreAnswers_MissingTableIsNotEmpty(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for code, name := range map[remoting.RequestCode]string{remoting.GetAllTopicConfig: "topics.json", remoting.GetAllSubscriptionGroupConfig: "subscriptionGroup.json"} {
		for _, suffix := range []string{"", ".bak"} {
			if err := os.RemoveAll(filepath.Join(s.opt.Dir, "config", name+suffix)); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.ask(code, nil); got.Answer() != remoting.SystemBusy || got.Body != nil {
			t.Errorf("%v is answered %v %s", code, got.Answer(), got.Body)
		}
	}
}

// The log is told about once it is known, and the addresses of a master are for
// slaves that may act as one.
func TestStoreAnswers_LogAndAddresses(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	if got := s.ask(remoting.GetBrokerRuntimeInfo, nil); got.Answer() != remoting.SystemBusy {
		t.Errorf("without a segment size the log is answered %v", got.Answer())
	}
	s.size, s.end = wire.MiB, 1234
	if got := s.ask(remoting.GetBrokerRuntimeInfo, nil); got.Answer() != remoting.Success || !strings.Contains(string(got.Body), `"commitLogMaxOffset":"1234"`) {
		t.Errorf("the log is answered %v %s", got.Answer(), got.Body)
	}
	want := map[string]string{"masterHaAddress": "10.0.0.1:10922", "masterAddress": "10.0.0.1:10921", "masterFlushOffset": "1234"}
	if got := s.ask(remoting.ExchangeBrokerHAInfo, nil); !maps.Equal(got.ExtFields, want) {
		t.Errorf("the addresses are %v", got.ExtFields)
	}
	if got := s.ask(remoting.ExchangeBrokerHAInfo, map[string]string{"masterHaAddress": "10.0.0.2:1"}); got.Answer() != remoting.Success || len(got.ExtFields) != 0 {
		t.Errorf("what a slave tells is answered %v %v", got.Answer(), got.ExtFields)
	}
}

// A broker that can be asked knows more than its files; what it refuses is
// refused, and what it does not answer is answered from files.
func TestStoreAnswers_BrokerFirst(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var failure error
	s.opt.Ask = func(_ context.Context, req remoting.Command) (remoting.Command, error) {
		a := req.Reply(remoting.Success, "")
		a.Version, a.ExtFields, a.Body = 500, map[string]string{"totalTopicNum": "1"}, []byte("from the broker, seq "+req.ExtFields["topicSeq"])
		return a, failure
	}
	got := s.ask(remoting.GetAllTopicConfig, map[string]string{"topicSeq": "7"})
	if string(got.Body) != "from the broker, seq 7" || got.ExtFields["totalTopicNum"] != "1" || got.Version != 500 {
		t.Errorf("answered %+v", got)
	}
	if got := s.ask(remoting.GetBrokerConfig, nil); !strings.Contains(string(got.Body), "brokerName=b") {
		t.Errorf("the broker's own properties were passed on: %s", got.Body)
	}
	for _, failure = range []error{stock.ErrNoOwnBroker, errors.New("refused"), &stock.ResponseError{Code: remoting.SystemError, Remark: "?"}} {
		if got := s.ask(remoting.GetAllConsumerOffset, nil); !strings.Contains(string(got.Body), "orders@g") {
			t.Errorf("after %v answered %v %s", failure, got.Answer(), got.Body)
		}
	}
	failure = &stock.ResponseError{Code: remoting.RequestCodeNotSupported, Remark: "no"}
	if got := s.ask(remoting.GetAllMessageRequestMode, nil); got.Answer() != remoting.RequestCodeNotSupported || got.Remark != "no" {
		t.Errorf("what the broker refuses is answered %v %q", got.Answer(), got.Remark)
	}
	s.version = "V4_5_2" // would never answer
	if got := s.ask(remoting.GetAllMessageRequestMode, nil); got.Answer() != remoting.RequestCodeNotSupported || got.Remark == "no" {
		t.Errorf("a broker of 4.5 was asked: %v %q", got.Answer(), got.Remark)
	}
}

// Whoever passes requests on passes refusals on as well.
func TestForwardAnswers(t *testing.T) {
	t.Parallel()
	var failure error
	handlers := stock.ForwardAnswers(func(_ context.Context, req remoting.Command) (remoting.Command, error) {
		a := req.Reply(remoting.Success, "")
		a.Body = []byte("there")
		return a, failure
	})
	ask := func() remoting.Command {
		return handlers[remoting.GetAllTopicConfig](t.Context(), desk, remoting.NewRequest(remoting.GetAllTopicConfig, nil, nil))
	}
	if got := ask(); got.Answer() != remoting.Success || string(got.Body) != "there" {
		t.Errorf("answered %v %s", got.Answer(), got.Body)
	}
	failure = &stock.ResponseError{Code: remoting.NoPermission, Remark: "no"}
	if got := ask(); got.Answer() != remoting.NoPermission || got.Remark != "no" {
		t.Errorf("a refusal is answered %v %q", got.Answer(), got.Remark)
	}
	failure = errors.New("no master is known")
	if got := ask(); got.Answer() != remoting.SystemBusy || got.Remark != "no master is known" {
		t.Errorf("without a master answered %v %q", got.Answer(), got.Remark)
	}
}

// A slave on which clients go on while the broker is gone keeps the positions
// that they commit there: the same file is not merged into them again.
func TestStoreAnswers_PositionsDoNotGoBack(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	path := filepath.Join(s.opt.Dir, "config", "consumerOffset.json")
	write := func(content string, at time.Time) {
		t.Helper()
		writeConfig(t, s.opt.Dir, "consumerOffset.json", content)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	down := errors.New("refused")
	s.opt.Ask = func(_ context.Context, req remoting.Command) (remoting.Command, error) {
		a := req.Reply(remoting.Success, "")
		a.Body = []byte("live")
		return a, down
	}
	var began time.Time
	s.opt.Began = func(netip.Addr) time.Time { return began }
	s.answers = stock.StoreAnswers(s.opt)
	want := func(when, body string) {
		t.Helper()
		if got := s.ask(remoting.GetAllConsumerOffset, nil); string(got.Body) != body {
			t.Errorf("%s a slave is given %s, want %s", when, got.Body, body)
		}
	}
	const first, second = `{"dataVersion":{"counter":1},"offsetTable":{"a@g":{0:5}}}`, `{"dataVersion":{"counter":2},"offsetTable":{"a@g":{0:6}}}`
	past := time.Now().Add(-time.Hour)
	write(first, past)
	want("at first", first)
	want("once more", `{"dataVersion":{"counter":1},"offsetTable":{}}`)
	write(second, past.Add(time.Minute))
	want("when it was written anew", second)
	down = nil
	want("by the broker", "live")
	down = errors.New("refused")
	want("after the broker", `{"dataVersion":{"counter":2},"offsetTable":{}}`)
	write(first, time.Now().Add(time.Minute))
	want("when the broker wrote once more", first)
	began = time.Now()
	want("when it began anew", first)
	other := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 77), Port: 1}
	got := s.answers[remoting.GetAllConsumerOffset](t.Context(), other, remoting.NewRequest(remoting.GetAllConsumerOffset, nil, nil))
	if string(got.Body) != first {
		t.Errorf("another slave is given %s", got.Body)
	}
}

// Slaves of 5.5.0 do not read bare keys in members that they do not know; agents
// want the bytes as they are.
func TestStoreAnswers_SlavesGetStrictJSON(t *testing.T) {
	t.Parallel()
	const live = `{"offsetTable":{"a@g":{0:5}},"pullOffsetTable":{"a@g":{0:5}}}`
	ask := func(_ context.Context, req remoting.Command) (remoting.Command, error) {
		a := req.Reply(remoting.Success, "")
		a.Body = []byte(live)
		return a, nil
	}
	s := newStore(t)
	s.opt.Ask = ask
	for name, answers := range map[string]map[remoting.RequestCode]stock.RemotingHandler{"master": stock.StoreAnswers(s.opt), "observer": stock.ForwardAnswers(ask)} {
		for language, want := range map[string]string{"JAVA": `{"offsetTable":{"a@g":{"0":5}},"pullOffsetTable":{"a@g":{"0":5}}}`, "GO": live} {
			req := remoting.NewRequest(remoting.GetAllConsumerOffset, nil, nil)
			req.Language = language
			if got := answers[remoting.GetAllConsumerOffset](t.Context(), desk, req); string(got.Body) != want {
				t.Errorf("%s gives %s the positions %s", name, language, got.Body)
			}
		}
	}
}
