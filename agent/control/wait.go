package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// What may be waited for.
const (
	MaxWaitAcks        = 64
	MaxWaitTimeout     = 5 * time.Minute
	DefaultWaitAcks    = 1
	DefaultWaitTimeout = 5 * time.Second
)

// answerMargin is how much longer than the wait itself a client waits for the
// answer to it.
const answerMargin = 10 * time.Second

// A WaitRequest asks whether replicas hold the log up to an offset.
type WaitRequest struct {
	Offset  wire.PhyOffset // >= 0, an end: every byte below it is meant. Not looked at where Now is set
	Now     bool           // means the end of what the log shows when the request comes
	Acks    int            // 1..MaxWaitAcks nodes must hold it
	Timeout time.Duration  // > 0, <= MaxWaitTimeout
}

// Check returns what is wrong with r, by the names that its values have on the
// wire and on the command line.
func (r WaitRequest) Check() error {
	switch {
	case !r.Now && r.Offset < 0:
		return fmt.Errorf("offset is %d: an offset is 0 or more", r.Offset)
	case r.Acks < 1 || r.Acks > MaxWaitAcks:
		return fmt.Errorf("acks is %d: 1 to %d replicas can be waited for", r.Acks, MaxWaitAcks)
	case r.Timeout <= 0 || r.Timeout > MaxWaitTimeout:
		return fmt.Errorf("timeout is %s: one must wait longer than 0 and at most %s", r.Timeout, MaxWaitTimeout)
	}
	return nil
}

// WaitAnswer says how a wait ended, and what was so then. Fields are only ever
// added. Offsets are JSON integers; -1 stands for "nothing yet".
type WaitAnswer struct {
	Result  acks.Result    `json:"result"`
	Offset  wire.PhyOffset `json:"offset"`  // that was waited for, also where the end of the log was asked for
	Acks    int            `json:"acks"`    // how many nodes were asked for
	Acked   wire.PhyOffset `json:"acked"`   // what so many nodes hold
	InReach int            `json:"inReach"` // nodes
	// Provisional is set where the last record below Offset may still change: no
	// replica acks it until the next record or the broker's own end confirms it.
	Provisional    bool    `json:"provisional"`
	Reason         string  `json:"reason"` // one sentence without a full stop; empty with PUT_OK
	ElapsedSeconds float64 `json:"elapsedSeconds"`
}

// explain says why the answer is not PUT_OK, as far as its numbers tell.
func (a WaitAnswer) explain() string {
	switch a.Result {
	case acks.SlaveNotAvailable:
		return "no replica is in reach"
	case acks.FlushSlaveTimeout:
	default:
		return ""
	}
	waited := fmt.Sprintf("%.1f s", a.ElapsedSeconds)
	switch {
	case a.InReach < a.Acks:
		return fmt.Sprintf("%s in reach after %s, and %d were asked for", english.Plural(a.InReach, "replica", ""), waited, a.Acks)
	case a.Provisional:
		return fmt.Sprintf("the last record below %d is unconfirmed after %s: no next record, and no word of the broker, says that it is complete", a.Offset, waited)
	case a.Acked < 0 && a.Acks == 1:
		return fmt.Sprintf("no replica acked anything within %s, and %d is waited for", waited, a.Offset)
	case a.Acked < 0:
		return fmt.Sprintf("fewer than %d replicas acked anything within %s, and %d is waited for", a.Acks, waited, a.Offset)
	}
	return fmt.Sprintf("%s acked up to %d after %s, and %d is waited for", english.Plural(a.Acks, "replica", ""), a.Acked, waited, a.Offset)
}

// httpStatus is the status of an answer, for those who look at nothing else: who
// polls for replication sees an error as long as it is not so.
func httpStatus(r acks.Result) int {
	switch r {
	case acks.PutOK:
		return http.StatusOK
	case acks.FlushSlaveTimeout:
		return http.StatusGatewayTimeout
	case acks.SlaveNotAvailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

var notMaster = Failure{
	Error: "this agent has no replicas to wait for: it is not a master", Code: "not_master",
	Try: "ask the agent with --role master: haagent members lists them",
}

// wait answers GET /v1/wait. A client that goes away ends it, and so does the
// end of the server.
func (h Handlers) wait(stopping context.Context, w http.ResponseWriter, r *http.Request) {
	if h.Wait == nil {
		h.Counts.waited(failedWait)
		answer(w, http.StatusConflict, notMaster)
		return
	}
	req, err := parseWait(r)
	if err != nil {
		h.Counts.waited(failedWait)
		answer(w, http.StatusBadRequest, Failure{Error: err.Error(), Code: "bad_request",
			Try: fmt.Sprintf("GET /v1/wait?offset=N|now&acks=1..%d&timeout=%s", MaxWaitAcks, DefaultWaitTimeout)})
		return
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), req.Timeout)
	defer cancel()
	defer context.AfterFunc(stopping, cancel)()
	a, err := h.Wait(ctx, req)
	a.Acks, a.ElapsedSeconds = req.Acks, time.Since(begin).Seconds()
	if !req.Now {
		a.Offset = req.Offset
	}
	if a.Reason == "" {
		a.Reason = a.explain()
	}
	switch {
	case err != nil:
		h.Counts.waited(failedWait)
		answer(w, http.StatusConflict, failureOf(err))
	case a.Result == acks.NotMaster:
		h.Counts.waited(failedWait)
		answer(w, http.StatusConflict, notMaster)
	case a.Result == acks.FlushSlaveTimeout && errors.Is(ctx.Err(), context.Canceled):
		// The time is not over: nobody may take this for a verdict on the replicas.
		h.Counts.waited(failedWait)
		answer(w, http.StatusServiceUnavailable, Failure{Error: "this agent is stopping", Code: "stopping", Try: "ask again once it runs"})
	default:
		h.Counts.waited(string(a.Result))
		answer(w, httpStatus(a.Result), a)
	}
}

// failureOf takes code and next step out of a problem.
func failureOf(err error) Failure {
	f := Failure{Error: err.Error()}
	if problem := state.AsProblem(err); problem != nil {
		f.Code, f.Try = problem.Code, problem.Try
	}
	return f
}

// parseWait reads a request strictly: with a word overlooked, a client would
// take PUT_OK for more than it says.
func parseWait(r *http.Request) (WaitRequest, error) {
	req := WaitRequest{Offset: wire.NoOffset, Acks: DefaultWaitAcks, Timeout: DefaultWaitTimeout}
	if r.ContentLength != 0 {
		return req, errors.New("a request to wait has no body") // while one is unread, a client that goes away is not seen
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return req, fmt.Errorf("the query cannot be read: %w", err)
	}
	for name, values := range query {
		if len(values) != 1 {
			return req, fmt.Errorf("%.20q is given %d times", name, len(values))
		}
		value := values[0]
		switch name {
		case "offset":
			if req.Now = value == "now"; req.Now {
				continue
			}
			var offset int64
			offset, err = strconv.ParseInt(value, 10, 64)
			req.Offset = wire.PhyOffset(offset)
		case "acks":
			req.Acks, err = strconv.Atoi(value)
		case "timeout":
			req.Timeout, err = time.ParseDuration(value)
		default:
			return req, fmt.Errorf("%.20q is none of offset, acks and timeout", name)
		}
		if err != nil {
			return req, fmt.Errorf("%s cannot be %.40q", name, value)
		}
	}
	if !query.Has("offset") {
		return req, errors.New("offset is missing: a number, or now")
	}
	return req, req.Check()
}

// query is what parseWait reads.
func (r WaitRequest) query() string {
	query := url.Values{"offset": {"now"}, "acks": {strconv.Itoa(r.Acks)}, "timeout": {r.Timeout.String()}}
	if !r.Now {
		query.Set("offset", r.Offset.String())
	}
	return query.Encode()
}

// Wait asks the agent to wait until replicas hold the log up to an offset. An
// answer that is not PUT_OK is no error. The error matches ErrNoAgent where
// nobody answers, and is a *RefusedError where the agent cannot wait.
func (c *Client) Wait(ctx context.Context, r WaitRequest) (WaitAnswer, error) {
	if err := r.Check(); err != nil {
		return WaitAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout+answerMargin)
	defer cancel()
	patient := *c.http
	patient.Timeout = 0 // the context has it
	status, body, err := c.ask(ctx, &patient, http.MethodGet, "/v1/wait?"+r.query())
	if err != nil {
		return WaitAnswer{}, err
	}
	var a WaitAnswer
	if json.Unmarshal(body, &a) == nil && status != http.StatusInternalServerError && httpStatus(a.Result) == status {
		return a, nil
	}
	if status == http.StatusOK {
		return WaitAnswer{}, fmt.Errorf("agent at %s does not answer as haagent: %.100q", c.name, body)
	}
	return WaitAnswer{}, c.refused(status, body)
}
