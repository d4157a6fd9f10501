package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// waiters answers from a table; what the log shows ends at visible.
func waiters(table *acks.Table, visible wire.PhyOffset) control.Handlers {
	return control.Handlers{Status: statusOf(state.Serving), Wait: func(ctx context.Context, r control.WaitRequest) (control.WaitAnswer, error) {
		offset := r.Offset
		if r.Now {
			offset = visible
		}
		result := table.Wait(ctx, offset, r.Acks)
		return control.WaitAnswer{Result: result, Offset: offset, Acked: table.Rank(r.Acks), InReach: table.InReach()}, nil
	}}
}

// twoNodes returns a table in which a holds 200 and b 100.
func twoNodes() *acks.Table {
	table := acks.NewTable()
	table.Join("a", acks.Memory).Report(acks.Marks{Memory: 200, Disk: 200})
	table.Join("b", acks.Disk).Report(acks.Marks{Memory: 300, Disk: 100})
	return table
}

// sameButTime compares answers but for how long they took.
func sameButTime(got, want control.WaitAnswer) string {
	got.ElapsedSeconds = want.ElapsedSeconds
	if _, rest, ok := strings.Cut(got.Reason, " s"); ok && want.Reason != "" {
		got.Reason = "... s" + rest
	}
	return cmp.Diff(want, got)
}

// TestWait_Answers asks over HTTP and over the socket, which are the same.
func TestWait_Answers(t *testing.T) {
	const ms = time.Millisecond
	none := acks.NewTable()
	silent := acks.NewTable()
	silent.Join("a", acks.Memory)
	silent.Join("b", acks.Memory)
	for _, c := range []struct {
		name    string
		table   *acks.Table
		request control.WaitRequest
		want    control.WaitAnswer
	}{
		{"held", twoNodes(), control.WaitRequest{Offset: 200, Acks: 1, Timeout: time.Minute},
			control.WaitAnswer{Result: acks.PutOK, Offset: 200, Acks: 1, Acked: 200, InReach: 2}},
		{"now", twoNodes(), control.WaitRequest{Now: true, Acks: 2, Timeout: time.Minute},
			control.WaitAnswer{Result: acks.PutOK, Offset: 77, Acks: 2, Acked: 100, InReach: 2}},
		{"not held", twoNodes(), control.WaitRequest{Offset: 201, Acks: 1, Timeout: ms},
			control.WaitAnswer{Result: acks.FlushSlaveTimeout, Offset: 201, Acks: 1, Acked: 200, InReach: 2,
				Reason: "... s, and 201 is waited for"}},
		{"too few", twoNodes(), control.WaitRequest{Offset: 1, Acks: 3, Timeout: ms},
			control.WaitAnswer{Result: acks.FlushSlaveTimeout, Offset: 1, Acks: 3, Acked: -1, InReach: 2,
				Reason: "... s, and 3 were asked for"}},
		{"silent", silent, control.WaitRequest{Offset: 0, Acks: 1, Timeout: ms},
			control.WaitAnswer{Result: acks.FlushSlaveTimeout, Offset: 0, Acks: 1, Acked: -1, InReach: 2,
				Reason: "... s, and 0 is waited for"}},
		{"both silent", silent, control.WaitRequest{Offset: 0, Acks: 2, Timeout: ms},
			control.WaitAnswer{Result: acks.FlushSlaveTimeout, Offset: 0, Acks: 2, Acked: -1, InReach: 2,
				Reason: "... s, and 0 is waited for"}},
		{"nobody", none, control.WaitRequest{Offset: 0, Acks: 1, Timeout: time.Minute},
			control.WaitAnswer{Result: acks.SlaveNotAvailable, Offset: 0, Acks: 1, Acked: -1, InReach: 0, Reason: "no replica is in reach"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := waiters(c.table, 77)
			for where, client := range map[string]*control.Client{
				"http": control.Dial(serveHTTP(t, h)), "socket": serveSocket(t, h, t.TempDir()),
			} {
				got, err := client.Wait(t.Context(), c.request)
				if diff := sameButTime(got, c.want); err != nil || diff != "" || got.ElapsedSeconds <= 0 {
					t.Errorf("%s: %v %+v (-want +got)\n%s", where, err, got, diff)
				}
			}
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

// The reason tells apart why time ran out; a handler that knows more has the word.
func TestWait_Reasons(t *testing.T) {
	for _, c := range []struct {
		answer control.WaitAnswer
		want   string
	}{
		{control.WaitAnswer{Result: acks.PutOK}, ""},
		{control.WaitAnswer{Result: acks.SlaveNotAvailable}, "no replica is in reach"},
		{control.WaitAnswer{Result: acks.FlushSlaveTimeout, InReach: 1, Acked: -1}, "1 replica in reach after"},
		{control.WaitAnswer{Result: acks.FlushSlaveTimeout, InReach: 1, Provisional: true}, "1 replica in reach after"},
		{control.WaitAnswer{Result: acks.FlushSlaveTimeout, InReach: 2, Provisional: true}, "the last record below 900 is unconfirmed"},
		{control.WaitAnswer{Result: acks.FlushSlaveTimeout, InReach: 2, Acked: -1}, "fewer than 2 replicas acked anything"},
		{control.WaitAnswer{Result: acks.FlushSlaveTimeout, InReach: 2, Acked: 5}, "2 replicas acked up to 5 after"},
		{control.WaitAnswer{Result: acks.FlushSlaveTimeout, InReach: 2, Acked: 5, Reason: "the log has a hole"}, "the log has a hole"},
	} {
		h := control.Handlers{Status: statusOf(state.Serving),
			Wait: func(context.Context, control.WaitRequest) (control.WaitAnswer, error) { return c.answer, nil }}
		got, err := control.Dial(serveHTTP(t, h)).Wait(t.Context(), control.WaitRequest{Offset: 900, Acks: 2, Timeout: time.Second})
		if err != nil || !strings.HasPrefix(got.Reason, c.want) || (c.want == "") != (got.Reason == "") {
			t.Errorf("%+v: %q, %v, want %q", c.answer, got.Reason, err, c.want)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}

// The names in the answer and its HTTP status are a contract.
func TestWait_NamesAreAContract(t *testing.T) {
	table := twoNodes()
	for query, want := range map[string]struct {
		code int
		body []string
	}{
		"offset=100&acks=2":                 {200, []string{`{"result":"PUT_OK","offset":100,"acks":2,"acked":100,"inReach":2,"provisional":false,"reason":"","elapsedSeconds":`}},
		"offset=100":                        {200, []string{`"acks":1,"acked":200`}},
		"offset=now&acks=1&timeout=300s":    {200, []string{`"offset":0`}},
		"offset=101&acks=2&timeout=1ms":     {504, []string{`"result":"FLUSH_SLAVE_TIMEOUT"`, `"reason":"2 replicas acked up to 100 after`}},
		"offset=101&acks=64&timeout=1000us": {504, []string{`"acked":-1`, `"reason":"2 replicas in reach after`}},
	} {
		code, body := request(t, http.MethodGet, "http://"+serveHTTP(t, waiters(table, 0))+"/v1/wait?"+query)
		for _, part := range want.body {
			if code != want.code || !strings.Contains(body, part) {
				t.Errorf("%s: %d %s, want %d %s", query, code, body, want.code, part)
			}
		}
	}
	code, body := request(t, http.MethodGet, "http://"+serveHTTP(t, waiters(acks.NewTable(), 0))+"/v1/wait?offset=1")
	if want := `{"result":"SLAVE_NOT_AVAILABLE","offset":1,"acks":1,"acked":-1,"inReach":0,`; code != 503 || !strings.HasPrefix(body, want) {
		t.Errorf("nobody: %d %s, want %s", code, body, want)
	}
}

// Whatever is not understood is refused by name, and never waited for.
func TestWait_BadRequests(t *testing.T) {
	h := control.Handlers{Status: statusOf(state.Serving), Wait: func(context.Context, control.WaitRequest) (control.WaitAnswer, error) {
		t.Error("asked all the same")
		return control.WaitAnswer{}, nil
	}}
	addr := serveHTTP(t, h)
	for query, says := range map[string]string{
		"":                                    "offset is missing",
		"acks=1":                              "offset is missing",
		"offset=":                             "offset cannot be",
		"offset=-1":                           "offset is -1",
		"offset=Now":                          "offset cannot be",
		"offset=1.5":                          "offset cannot be",
		"offset=1e3":                          "offset cannot be",
		"offset=9223372036854775808":          "offset cannot be",
		"offset=1&offset=2":                   "2 times",
		"offset=now&offset=5":                 "2 times",
		"offset=1&acks=0":                     "acks is 0",
		"offset=1&acks=-1":                    "acks is -1",
		"offset=1&acks=65":                    "acks is 65",
		"offset=1&acks=many":                  "acks cannot be",
		"offset=1&ack=2":                      "is none of",
		"offset=1&ACKS=2":                     "is none of",
		"offset=1&timeout=0":                  "timeout is 0s",
		"offset=1&timeout=-1s":                "timeout is -1s",
		"offset=1&timeout=5m1ns":              "timeout is 5m0.000000001s",
		"offset=1&timeout=5":                  "timeout cannot be",
		"offset=1&timeout=":                   "timeout cannot be",
		"offset=%zz":                          "cannot be read",
		"offset=1;acks=2":                     "cannot be read",
		strings.Repeat("x", 4000) + "=1":      "is none of",
		"offset=" + strings.Repeat("9", 9000): "offset cannot be",
	} {
		code, body := request(t, http.MethodGet, "http://"+addr+"/v1/wait?"+query)
		var f control.Failure
		if err := json.Unmarshal([]byte(body), &f); err != nil || code != 400 || !strings.Contains(f.Error, says) || f.Code != "bad_request" || f.Try == "" {
			t.Errorf("%.60q: %d %s, want 400 with %q", query, code, body, says)
		}
		if len(body) > 500 {
			t.Errorf("%.60q is answered by %d bytes", query, len(body))
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		if code, body := request(t, method, "http://"+addr+"/v1/wait?offset=1"); code != 405 {
			t.Errorf("%s: %d %s", method, code, body)
		}
	}
	conn := dial(t, addr)
	write(t, conn, "GET /v1/wait?offset=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
	if code, body := read(t, conn); code != 400 || !strings.Contains(body, "no body") {
		t.Errorf("with a body: %d %s", code, body)
	}
}

// A client checks before it asks: the same limits hold on both sides.
func TestWait_ClientChecks(t *testing.T) {
	client := control.Dial("127.0.0.1:1") // where nobody is
	for _, r := range []control.WaitRequest{
		{Offset: -1, Acks: 1, Timeout: time.Second},
		{Acks: 0, Timeout: time.Second},
		{Acks: control.MaxWaitAcks + 1, Timeout: time.Second},
		{Acks: 1},
		{Now: true, Acks: 1, Timeout: control.MaxWaitTimeout + 1},
	} {
		if _, err := client.Wait(t.Context(), r); err == nil || errors.Is(err, control.ErrNoAgent) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, r := range []control.WaitRequest{
		{Offset: 0, Acks: 1, Timeout: 1},
		{Offset: -1, Now: true, Acks: control.MaxWaitAcks, Timeout: control.MaxWaitTimeout},
	} {
		if _, err := client.Wait(t.Context(), r); !errors.Is(err, control.ErrNoAgent) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// Refusals carry their code and next step to the client: a role without
// replicas, one that is left meanwhile, and a problem.
func TestWait_Refusals(t *testing.T) {
	closed := acks.NewTable()
	closed.Close()
	problem := func(context.Context, control.WaitRequest) (control.WaitAnswer, error) {
		return control.WaitAnswer{}, &state.Problem{State: state.IOError, Code: "io_error", Reason: "the log cannot be read", Try: "look at the disk"}
	}
	plain := func(context.Context, control.WaitRequest) (control.WaitAnswer, error) {
		return control.WaitAnswer{}, errors.New("no")
	}
	mute := func(context.Context, control.WaitRequest) (control.WaitAnswer, error) {
		return control.WaitAnswer{}, nil
	}
	for _, c := range []struct {
		name     string
		handlers control.Handlers
		status   int
		want     control.Failure
	}{
		{"no role for it", control.Handlers{Status: statusOf(state.Streaming)}, 409,
			control.Failure{Error: "not a master", Code: "not_master", Try: "--role master"}},
		{"the role was left", waiters(closed, 0), 409, control.Failure{Error: "not a master", Code: "not_master", Try: "--role master"}},
		{"a problem", control.Handlers{Wait: problem}, 409, control.Failure{Error: "cannot be read", Code: "io_error", Try: "disk"}},
		{"an error", control.Handlers{Wait: plain}, 409, control.Failure{Error: "no"}},
		{"no word", control.Handlers{Wait: mute}, 500, control.Failure{Error: "500 Internal Server Error"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := control.Dial(serveHTTP(t, c.handlers)).Wait(t.Context(), control.WaitRequest{Offset: 5, Acks: 1, Timeout: time.Minute})
			http.DefaultClient.CloseIdleConnections()
			var refused *control.RefusedError
			if !errors.As(err, &refused) || errors.Is(err, control.ErrNoAgent) {
				t.Fatal(err)
			}
			f := refused.Failure
			if refused.Status != c.status || f.Code != c.want.Code || !strings.Contains(f.Error, c.want.Error) || !strings.Contains(f.Try, c.want.Try) || (f.Try == "") != (c.want.Try == "") {
				t.Errorf("%+v, want %d %+v", refused, c.status, c.want)
			}
		})
	}
}

// Leaving the master role answers who waits over HTTP as well (I4).
func TestI4_CloseAnswersWaitersOverHTTP(t *testing.T) {
	table := acks.NewTable()
	table.Join("a", acks.Memory)
	h, entered := announced(waiters(table, 0))
	client := control.Dial(serveHTTP(t, h))
	done := make(chan error, 1)
	go func() {
		_, err := client.Wait(t.Context(), control.WaitRequest{Offset: 5, Acks: 1, Timeout: time.Minute})
		done <- err
	}()
	<-entered
	table.Close()
	var refused *control.RefusedError
	if err := <-done; !errors.As(err, &refused) || refused.Failure.Code != "not_master" {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Somebody else who answers there is no agent.
func TestWait_Stranger(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answers := []string{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nContent-Length: 33\r\nConnection: close\r\n\r\n{\"result\":\"SLAVE_NOT_AVAILABLE\"}\n",
		"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 5\r\nConnection: close\r\n\r\nproxy"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, text := range answers {
			conn, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				t.Error(err)
			}
			if _, err := io.WriteString(conn, text); err != nil {
				t.Error(err)
			}
			conn.Close()
		}
	}()
	for i, says := range []string{"does not answer as haagent", "does not answer as haagent", "504 Gateway Timeout"} {
		_, err := control.Dial(l.Addr().String()).Wait(t.Context(), control.WaitRequest{Acks: 1, Timeout: time.Minute})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("answer %d: %v", i, err)
		}
	}
	<-done
	l.Close()
}
