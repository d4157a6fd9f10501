package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a server until the test ends, when it must end without an error.
func serve(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("server: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("server does not end")
		}
	})
}

// serveHTTP serves h on a port and returns its address.
func serveHTTP(t *testing.T, h control.Handlers) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, func(ctx context.Context) error { return h.ServeHTTP(ctx, l) })
	return l.Addr().String()
}

// serveSocket serves h on a socket in dir, and waits until it is there.
func serveSocket(t *testing.T, h control.Handlers, dir string) *control.Client {
	t.Helper()
	serve(t, func(ctx context.Context) error { return h.ServeSocket(ctx, dir) })
	client := control.DialSocket(dir)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(10 * time.Second); ; {
		if _, err := client.Status(t.Context()); err == nil {
			return client
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("no answer on the socket")
		}
	}
}

func statusOf(s state.State) func() control.Status {
	return func() control.Status {
		return control.Status{State: s, Node: "n1", Offsets: control.Offsets{Min: 0, Verified: 1 << 60, Source: wire.NoOffset},
			Replicas: []control.Replica{}, Members: []control.Member{}}
	}
}

// request asks without a connection that outlives it.
func request(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// The port is read only: whatever changes state is not there.
func TestHTTP_IsReadOnly(t *testing.T) {
	promoted := false
	addr := serveHTTP(t, control.Handlers{Status: statusOf(state.Streaming), Promote: func(context.Context) (control.Promotion, error) {
		promoted = true
		return control.Promotion{}, nil
	}})
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{http.MethodGet, "/v1/status", 200}, {http.MethodHead, "/v1/status", 200},
		{http.MethodGet, "/healthz", 200}, {http.MethodGet, "/readyz", 200},
		{http.MethodPost, "/v1/status", 405}, {http.MethodPut, "/v1/status", 405}, {http.MethodDelete, "/v1/status", 405},
		{http.MethodPost, "/healthz", 405}, {http.MethodPost, "/readyz", 405},
		{http.MethodPost, "/v1/promote", 404}, {http.MethodGet, "/v1/promote", 404},
		{http.MethodGet, "/v1/../v1/promote", 404}, {http.MethodGet, "/nothing", 404},
	} {
		if code, body := request(t, c.method, "http://"+addr+c.path); code != c.code {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, code, body, c.code)
		}
	}
	if promoted {
		t.Error("promoted over HTTP")
	}
}

// I9: ready is said in the states that do the whole job, and only there.
func TestI9_ReadyzFollowsTheState(t *testing.T) {
	for s, want := range map[state.State]int{
		state.Streaming: 200, state.Serving: 200, state.Observing: 200,
		state.Starting: 503, state.Searching: 503, state.Connecting: 503, state.CatchingUp: 503, state.Stopping: 503,
		state.Gap: 503, state.Diverged: 503, state.SourceReplaced: 503, state.SplitBrain: 503, state.Incompatible: 503,
		state.Unauthorized: 503, state.ProtocolError: 503, state.Disturbed: 503, state.Locked: 503, state.NoSpace: 503,
		state.ReadOnly: 503, state.IOError: 503, state.Promoted: 503,
	} {
		addr := serveHTTP(t, control.Handlers{Status: statusOf(s)})
		if code, body := request(t, http.MethodGet, "http://"+addr+"/readyz"); code != want || !strings.Contains(body, string(s)) {
			t.Errorf("%s: %d %q, want %d", s, code, body, want)
		}
		if code, _ := request(t, http.MethodGet, "http://"+addr+"/healthz"); code != 200 {
			t.Errorf("%s: healthz %d", s, code)
		}
	}
}

// Health is a line for people and probes, and JSON only where that is asked for.
func TestHealth_TextUnlessJSONIsAccepted(t *testing.T) {
	addr := serveHTTP(t, control.Handlers{Status: statusOf(state.Searching)})
	for accept, isJSON := range map[string]bool{
		"": false, "*/*": false, "text/html,application/xhtml+xml,*/*;q=0.8": false, "application/*": false, "application/json;q=0": false, ";;": false,
		"application/json": true, "text/plain;q=0.1, Application/JSON;q=0.5": true, "application/json; charset=utf-8": true,
	} {
		for path, want := range map[string]string{"/healthz": "ok", "/readyz": "searching"} {
			media, body := "text/plain; charset=utf-8", want+"\n"
			if isJSON {
				media, body = "application/json", fmt.Sprintf("{\"ok\":%t,\"status\":%q}\n", path == "/healthz", want)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if accept != "" {
				req.Header.Set("Accept", accept)
			}
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil {
				t.Fatal(err)
			}
			if string(got) != body || res.Header.Get("Content-Type") != media {
				t.Errorf("%s, accepting %q: %q as %s", path, accept, got, res.Header.Get("Content-Type"))
			}
		}
	}
}

// The names in the status are a contract, and offsets are whole numbers.
func TestStatus_NamesAreAContract(t *testing.T) {
	addr := serveHTTP(t, control.Handlers{Status: statusOf(state.Streaming)})
	_, body := request(t, http.MethodGet, "http://"+addr+"/v1/status")
	var top map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &top); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"version", "node", "role", "state", "code", "reason", "since", "cluster", "brokerName", "brokerId", "dir", "ack",
		"segmentSize", "source", "offsets", "lagBytes", "lagSeconds", "bytesPerSecond", "metadata", "replicas", "members"} {
		if _, ok := top[name]; !ok {
			t.Errorf("%q is missing", name)
		}
	}
	for _, want := range []string{`"verified":1152921504606846976`, `"source":-1`, `"replicas":[]`, `"members":[]`, `"state":"streaming"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	s, err := control.Dial(addr).Status(t.Context())
	if err != nil || s.Offsets.Verified != 1<<60 || s.State != state.Streaming {
		t.Errorf("client: %+v, %v", s, err)
	}
	http.DefaultClient.CloseIdleConnections()
	if tr, ok := http.DefaultTransport.(*http.Transport); ok {
		tr.CloseIdleConnections()
	}
}

// The socket is its owner's alone, also where a killed process left one.
func TestSocket_IsPrivate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, control.SocketName)
	if err := os.WriteFile(path, []byte("left over"), 0o666); err != nil {
		t.Fatal(err)
	}
	serveSocket(t, control.Handlers{Status: statusOf(state.Streaming)}, dir)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode()&os.ModeSocket == 0 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Paths of stores may be longer than those of sockets.
func TestSocket_LongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("a-long-name-", 12), strings.Repeat("b", 60))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if len(filepath.Join(dir, control.SocketName)) <= 107 {
		t.Fatalf("%s is not long", dir)
	}
	client := serveSocket(t, control.Handlers{Status: statusOf(state.Streaming)}, dir)
	if s, err := client.Status(t.Context()); err != nil || s.Node != "n1" {
		t.Errorf("%+v, %v", s, err)
	}
}

// Promotion over the socket: the answer, a refusal with its next step, and a
// role that has nothing to promote.
func TestSocket_Promote(t *testing.T) {
	want := control.Promotion{Dir: "/store", Cluster: "c1", BrokerName: "b1", SegmentSize: wire.GiB, Min: 0, End: 12345, Epoch: 3}
	client := serveSocket(t, control.Handlers{Status: statusOf(state.Streaming),
		Promote: func(context.Context) (control.Promotion, error) { return want, nil }}, t.TempDir())
	if got, err := client.Promote(t.Context()); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	client = serveSocket(t, control.Handlers{Status: statusOf(state.Diverged), Promote: func(context.Context) (control.Promotion, error) {
		return control.Promotion{}, &state.Problem{State: state.NoSpace, Code: "no_space", Reason: "full", Try: "free space"}
	}}, t.TempDir())
	if _, err := client.Promote(t.Context()); err == nil || errors.Is(err, control.ErrNoAgent) || !strings.Contains(err.Error(), "full") {
		t.Errorf("refused: %v", err)
	}
	client = serveSocket(t, control.Handlers{Status: statusOf(state.Serving)}, t.TempDir())
	if _, err := client.Promote(t.Context()); err == nil || !strings.Contains(err.Error(), "no replica") {
		t.Errorf("nothing to promote: %v", err)
	}
}

// Where nobody answers, and where somebody else does, the client says so.
func TestClient_NoAgent(t *testing.T) {
	if _, err := control.DialSocket(t.TempDir()).Status(t.Context()); !errors.Is(err, control.ErrNoAgent) {
		t.Errorf("no socket: %v", err)
	}
	if _, err := control.DialSocket(filepath.Join(t.TempDir(), "missing")).Status(t.Context()); !errors.Is(err, control.ErrNoAgent) {
		t.Errorf("no directory: %v", err)
	}
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, control.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// An answer that comes before its question is none to the client.
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				t.Error(err)
			}
			if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"); err != nil {
				t.Error(err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	if _, err := control.DialSocket(dir).Status(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer as haagent") {
		t.Errorf("a stranger: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	<-done
}
