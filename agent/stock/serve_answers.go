package stock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// StoreAnswersOptions say about whose store is answered. All but Ask are
// required; the functions are called for each request and must not block.
type StoreAnswersOptions struct {
	// Dir is the store root, CommitLogDir holds the segments.
	Dir, CommitLogDir string
	// SegmentSize, Min and End say what of the log is served; 0 and wire.NoOffset
	// while that is not known.
	SegmentSize func() wire.ByteSize
	Min, End    func() wire.PhyOffset
	// Version is the release of the store's broker ("V5_3_3"), empty where it is not
	// known: then the files tell its generation.
	Version func() string
	// Config is what request 26 answers.
	Config func() map[string]string
	// HA and Remoting are where slaves find the log and these answers (request 906).
	HA, Remoting string
	// Ask, where not nil, passes a request for config on to the store's own broker,
	// which knows more than its files: it writes them every few seconds. Where that
	// fails the files are answered. It returns an error that matches
	// ErrNoOwnBroker where there is none to be asked.
	Ask func(ctx context.Context, req remoting.Command) (remoting.Command, error)
	// Began returns when a slave on that host last began with an empty store; the
	// zero time where it never did. Nil: nobody does.
	Began func(host netip.Addr) time.Time
	// Log is told when files are answered in place of a broker.
	Log *slog.Logger
}

// ErrNoOwnBroker says that there is no broker to be asked.
var ErrNoOwnBroker = errors.New("the broker of the store cannot be asked")

// configRequests are the requests by which slaves copy what is not in the log.
var configRequests = []remoting.RequestCode{
	remoting.GetAllTopicConfig, remoting.GetAllConsumerOffset, remoting.GetAllDelayOffset, remoting.GetAllSubscriptionGroupConfig,
	remoting.GetAllMessageRequestMode, remoting.GetTimerCheckPoint, remoting.GetTimerMetrics,
}

// youngerRequests are those that brokers of 4.x do not know.
var youngerRequests = map[remoting.RequestCode]bool{
	remoting.GetAllMessageRequestMode: true, remoting.GetTimerCheckPoint: true, remoting.GetTimerMetrics: true,
}

// wholeTables are the files that slaves make their own table equal to. One that
// is not there is no empty table: they would drop what they have.
var wholeTables = map[remoting.RequestCode]string{
	remoting.GetAllTopicConfig: "topics.json", remoting.GetAllSubscriptionGroupConfig: "subscriptionGroup.json",
}

// StoreAnswers returns what answers about a store as its broker does: config
// (21, 43, 45, 201, 402, 60, 61), properties (26), the log (28, 33) and the
// addresses of both (906).
func StoreAnswers(opt StoreAnswersOptions) map[remoting.RequestCode]RemotingHandler {
	s := &storeAnswers{opt: opt, given: make(map[netip.Addr]givenPositions)}
	handlers := map[remoting.RequestCode]RemotingHandler{
		remoting.GetBrokerConfig:      s.fromFiles,
		remoting.GetBrokerRuntimeInfo: s.fromFiles,
		remoting.ViewMessageByID:      s.fromFiles,
		remoting.ExchangeBrokerHAInfo: s.haInfo,
	}
	for _, code := range configRequests {
		handlers[code] = s.config
	}
	handlers[remoting.GetAllConsumerOffset] = quoted(s.config)
	return handlers
}

// quoted makes strict JSON of the positions that a slave is given. A slave of
// 5.5.0 stumbles over bare keys in members that it does not know, and so takes
// nothing of what a broker of its own release answers once there are positions of
// pull consumers. Agents keep the bytes as they are.
func quoted(handle RemotingHandler) RemotingHandler {
	return func(ctx context.Context, from net.Addr, req remoting.Command) remoting.Command {
		answer := handle(ctx, from, req)
		if req.Language != "JAVA" || answer.Answer() != remoting.Success {
			return answer
		}
		if strict, err := strictJSON(answer.Body); err == nil {
			answer.Body = strict
		}
		return answer
	}
}

type storeAnswers struct {
	opt   StoreAnswersOptions
	alone atomic.Bool // the broker could not be asked the last time

	mu sync.Mutex
	// given is what each host knows of the positions of consumers. Guarded by mu.
	given map[netip.Addr]givenPositions
}

// givenPositions are positions that a slave was given.
type givenPositions struct {
	asOf time.Time // when they were so
	at   time.Time // when it was given them
}

// fromFiles answers from what is on disk.
func (s *storeAnswers) fromFiles(ctx context.Context, from net.Addr, req remoting.Command) remoting.Command {
	opt := RemotingServerOptions{Config: s.opt.Config(), Version: s.version(), Dir: s.opt.Dir, Min: s.opt.Min, End: s.opt.End}
	if size := s.opt.SegmentSize(); size > 0 {
		opt.CommitLogDir, opt.SegmentSize = s.opt.CommitLogDir, size
	}
	handlers := storeHandlers(opt)
	if isOld(opt.Version) {
		maps.DeleteFunc(handlers, func(code remoting.RequestCode, _ RemotingHandler) bool { return youngerRequests[code] })
	} else {
		handlers[remoting.GetTimerCheckPoint], handlers[remoting.GetTimerMetrics] = s.timerCheckPoint, s.timerMetrics
	}
	handle := handlers[req.Request()]
	if name := wholeTables[req.Request()]; name != "" && !s.kept(name) {
		return req.Reply(remoting.SystemBusy, name+" is not there yet")
	}
	switch {
	case handle != nil && req.Request() == remoting.GetAllConsumerOffset:
		return s.positions(ctx, from, req, handle)
	case handle != nil:
		return handle(ctx, from, req)
	case req.Request() == remoting.GetBrokerRuntimeInfo || req.Request() == remoting.ViewMessageByID:
		return req.Reply(remoting.SystemBusy, "the log is not known yet")
	}
	return notSupported(req)
}

// kept reports whether a config file is there, or what it was before.
func (s *storeAnswers) kept(name string) bool {
	path := filepath.Join(s.opt.Dir, "config", name)
	_, err := os.Stat(path)
	if err != nil {
		_, err = os.Stat(path + ".bak")
	}
	return err == nil
}

func notSupported(req remoting.Command) remoting.Command {
	return req.Reply(remoting.RequestCodeNotSupported, fmt.Sprintf(" request type %d not supported", req.Code))
}

func isOld(version string) bool {
	return strings.HasPrefix(version, "V4_") || strings.HasPrefix(version, "V3_")
}

// version is the release of the store's broker, or one of its generation.
func (s *storeAnswers) version() string {
	if v := s.opt.Version(); v != "" {
		return v
	}
	b, err := readWhole(filepath.Join(s.opt.Dir, "config", "topics.json"))
	if err == nil && strings.Contains(string(b), `"stateVersion"`) {
		return "V5_0_0"
	}
	return defaultBrokerVersion
}

// config answers as the store's own broker, or from its files where that is not
// to be had.
func (s *storeAnswers) config(ctx context.Context, from net.Addr, req remoting.Command) remoting.Command {
	if youngerRequests[req.Request()] && isOld(s.version()) {
		return notSupported(req) // brokers of 4.5 would leave it unanswered
	}
	if s.opt.Ask == nil {
		return s.fromFiles(ctx, from, req)
	}
	answer, err := s.opt.Ask(ctx, req)
	var refused *ResponseError
	switch {
	case err == nil:
		s.note(nil)
		if req.Request() == remoting.GetAllConsumerOffset {
			s.give(from, time.Now())
		}
		reply := req.Reply(remoting.Success, answer.Remark)
		reply.Version, reply.ExtFields, reply.Body = answer.Version, answer.ExtFields, answer.Body
		return reply
	case errors.As(err, &refused) && errors.Is(err, ErrNotSupported):
		return req.Reply(refused.Code, refused.Remark)
	}
	s.note(err)
	return s.fromFiles(ctx, from, req)
}

// positions answers request 43 from the file, which slaves merge into what they
// have. Where the broker is gone, clients go on at a slave, and commit there; the
// same file once more would set them back. So each slave is given what is newer
// than what it was given before, and nothing besides, unless it has begun anew.
func (s *storeAnswers) positions(ctx context.Context, from net.Addr, req remoting.Command, handle RemotingHandler) remoting.Command {
	var written time.Time
	if info, err := os.Stat(filepath.Join(s.opt.Dir, "config", "consumerOffset.json")); err == nil {
		written = info.ModTime()
	}
	answer := handle(ctx, from, req)
	if answer.Answer() != remoting.Success || s.give(from, written) {
		return answer
	}
	version, ok := member(answer.Body, "dataVersion")
	answer.Body = []byte(`{"offsetTable":{}}`)
	if ok {
		answer.Body = fmt.Appendf(nil, `{"dataVersion":%s,"offsetTable":{}}`, version)
	}
	return answer
}

// maxGiven bounds the hosts that are told apart.
const maxGiven = 1024

// give notes that a host knows the positions as they were at a time, and reports
// whether that is news to it.
func (s *storeAnswers) give(to net.Addr, asOf time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	host := PeerAddr(to)
	last, known := s.given[host]
	if known && s.opt.Began != nil && s.opt.Began(host).After(last.at) {
		known = false
	}
	if known && !asOf.After(last.asOf) {
		return false
	}
	if len(s.given) >= maxGiven {
		clear(s.given)
	}
	s.given[host] = givenPositions{asOf: asOf, at: time.Now()}
	return true
}

// note says once that files are answered, and once that they no longer are.
func (s *storeAnswers) note(err error) {
	if s.alone.Swap(err != nil) == (err != nil) {
		return
	}
	if err != nil {
		s.opt.Log.Info("slaves are answered from the config files", "cause", err)
		return
	}
	s.opt.Log.Info("slaves are answered by the broker itself")
}

// haInfo answers request 906, by which slaves of 5.x that act as master ask for
// their master's addresses. What they tell about themselves is not needed.
func (s *storeAnswers) haInfo(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
	answer := req.Reply(remoting.Success, "")
	if req.ExtFields["masterHaAddress"] != "" {
		return answer
	}
	answer.ExtFields = map[string]string{"masterHaAddress": s.opt.HA, "masterAddress": s.opt.Remoting,
		"masterFlushOffset": strconv.FormatInt(int64(max(s.opt.End(), 0)), 10)}
	return answer
}

// timerCheckPoint answers request 60: seven numbers of 8 bytes, as the file
// begins.
func (s *storeAnswers) timerCheckPoint(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
	const numbers = 56
	b := make([]byte, numbers)
	f, err := os.Open(filepath.Join(s.opt.Dir, "config", "timercheck"))
	if err != nil {
		return req.Reply(remoting.SystemError, "The checkpoint is null")
	}
	_, err = io.ReadFull(f, b)
	if err = errors.Join(err, f.Close()); err != nil {
		return req.Reply(remoting.SystemError, "The checkpoint is null: "+err.Error())
	}
	answer := req.Reply(remoting.Success, "")
	answer.Body = b
	return answer
}

// timerMetrics answers request 61.
func (s *storeAnswers) timerMetrics(ctx context.Context, _ net.Addr, req remoting.Command) remoting.Command {
	b, err := readConfig(ctx, s.opt.Dir, "timermetrics", `{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"timingCount":{}}`)
	if err != nil {
		return req.Reply(configProblem(err), err.Error())
	}
	answer := req.Reply(remoting.Success, "")
	answer.Body = b
	return answer
}

// ForwardRequest passes a request for config on to a broker. Signatures are the
// broker's own affair, so those of the asker stay behind.
func ForwardRequest(ctx context.Context, to *Broker, req remoting.Command) (remoting.Command, error) {
	fields := maps.Clone(req.ExtFields)
	for _, name := range []string{"AccessKey", "Signature", "SecurityToken"} {
		delete(fields, name)
	}
	return to.Raw(ctx, req.Request(), fields, nil)
}

// ForwardAnswers returns what passes the requests about a store on by ask, whose
// error is the remark of the answer.
func ForwardAnswers(ask func(ctx context.Context, req remoting.Command) (remoting.Command, error)) map[remoting.RequestCode]RemotingHandler {
	handlers := make(map[remoting.RequestCode]RemotingHandler)
	forward := func(ctx context.Context, _ net.Addr, req remoting.Command) remoting.Command {
		answer, err := ask(ctx, req)
		var refused *ResponseError
		switch {
		case errors.As(err, &refused):
			return req.Reply(refused.Code, refused.Remark)
		case err != nil:
			return req.Reply(remoting.SystemBusy, err.Error())
		}
		reply := req.Reply(remoting.Success, answer.Remark)
		reply.Version, reply.ExtFields, reply.Body = answer.Version, answer.ExtFields, answer.Body
		return reply
	}
	for _, code := range append([]remoting.RequestCode{remoting.GetBrokerConfig, remoting.GetBrokerRuntimeInfo, remoting.ViewMessageByID}, configRequests...) {
		handlers[code] = forward
	}
	handlers[remoting.GetAllConsumerOffset] = quoted(forward)
	return handlers
}
