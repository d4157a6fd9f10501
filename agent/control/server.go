// Package control is how an agent is asked: HTTP for reading (status, health),
// and a socket that only the owner of the store may open for what changes
// state.
//
//	GET  /v1/status   Status as JSON                 --http and socket
//	GET  /metrics     for Prometheus                 --http and socket
//	GET  /            the status for people, HTML    --http and socket
//	GET  /healthz     200 while the process works    --http and socket
//	GET  /readyz      200 where the whole job is done: a line that says how it is,
//	                  or JSON where that is accepted by name
//	GET  /v1/wait     WaitAnswer as JSON             --http and socket
//	POST /v1/promote  Promotion as JSON              socket only
//
// The socket is there from when the store is open on. Before that, and where it
// cannot be, the same user and root read by a name: see ServeName.
//
// A wait is asked for with offset=N|now, acks=1..64 (1) and timeout=5s (at most
// 5m). Who looks at nothing but the HTTP status sees success only in PUT_OK:
//
//	200  PUT_OK                so many replicas hold it
//	504  FLUSH_SLAVE_TIMEOUT   not within the timeout
//	503  SLAVE_NOT_AVAILABLE   no replica is in reach, said at once
//	400  Failure bad_request   a value that cannot be, or a word that is not known
//	409  Failure not_master    this role has no replicas, or was left meanwhile
//	503  Failure stopping      the agent ends
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// SocketName is the name of the socket below DIR/.haagent.
const SocketName = "control.sock"

// Handlers are what a server answers with.
type Handlers struct {
	Status  func() Status
	Promote func(ctx context.Context) (Promotion, error) // nil where the role has nothing to promote
	// Wait waits until replicas hold the log up to an offset, or ctx ends; nil
	// where the role has no replicas. The request is within its limits, and ctx
	// ends with its timeout. Of the answer it gives Result, Acked, InReach and
	// Provisional, Offset where Now was asked for, and Reason where it knows more
	// than these numbers say. Many thousands may wait at once.
	Wait func(ctx context.Context, r WaitRequest) (WaitAnswer, error)
	// Counts is what the metrics tell besides the status; nil: there are no metrics.
	Counts *Counts
}

// ServeHTTP serves the read-only part on l until ctx ends.
func (h Handlers) ServeHTTP(ctx context.Context, l net.Listener) error {
	return serve(ctx, l, h.readMux(ctx), maxConns)
}

// ServeSocket serves everything on DIR/.haagent/control.sock, which only the
// owner may open, until ctx ends. A socket that a killed process left is
// replaced; where an agent answers on it, that is left alone, and waited for.
func (h Handlers) ServeSocket(ctx context.Context, agentDir string) error {
	return whenFree(ctx, func() error { return h.serveSocket(ctx, agentDir) })
}

func (h Handlers) serveSocket(ctx context.Context, agentDir string) error {
	path := filepath.Join(agentDir, SocketName)
	conn, err := dialSocket(ctx, agentDir)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("control socket: %w", errServed), conn.Close())
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, os.ErrNotExist):
	case errors.Is(err, syscall.ECONNREFUSED): // nobody has it any more
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("control socket: %w", err)
		}
	case errors.Is(err, syscall.EAGAIN): // whoever has it is busy
		return fmt.Errorf("control socket: %w", errServed)
	default:
		return fmt.Errorf("control socket: %w", err)
	}
	dir, err := os.Open(agentDir)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	defer dir.Close()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", socketAddr(dir))
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
	}
	mux := h.readMux(ctx)
	mux.HandleFunc("POST /v1/promote", h.promote)
	return serve(ctx, l, mux, maxConns)
}

// socketAddr names the socket by its directory's descriptor, because the path
// of a Unix socket is limited to 107 bytes and that of a store is not.
func socketAddr(dir *os.File) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + SocketName
}

// serve answers on l until ctx ends; requests under way get a second to end.
// There is no write timeout, because a wait may take as long as MaxWaitTimeout.
func serve(ctx context.Context, l net.Listener, handler http.Handler, most int) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: 16 << 10, ConnState: newConnBook(most).note}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := server.Shutdown(wait)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// readMux answers what changes nothing. Waits end when stopping does.
func (h Handlers) readMux(stopping context.Context) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/wait", func(w http.ResponseWriter, r *http.Request) { h.wait(stopping, w, r) })
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, h.Status()) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		sayHealth(w, r, http.StatusOK, health{Ok: true, Status: "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		s, code := h.Status(), http.StatusServiceUnavailable
		if s.State.Ready() {
			code = http.StatusOK
		}
		sayHealth(w, r, code, health{Ok: code == http.StatusOK, Status: s.Line()})
	})
	mux.HandleFunc("GET /{$}", page)
	if h.Counts != nil {
		mux.Handle("GET /metrics", h.metricsHandler())
	}
	return mux
}

func (h Handlers) promote(w http.ResponseWriter, r *http.Request) {
	if h.Promote == nil {
		answer(w, http.StatusConflict, Failure{Error: "this agent has no replica to promote"})
		return
	}
	p, err := h.Promote(r.Context())
	if err != nil {
		answer(w, http.StatusConflict, failureOf(err))
		return
	}
	answer(w, http.StatusOK, p)
}

// health is the body of /healthz and /readyz where JSON is asked for; elsewhere it
// is the status alone, as a line.
type health struct {
	Ok     bool   `json:"ok"`
	Status string `json:"status"`
}

func sayHealth(w http.ResponseWriter, r *http.Request, code int, is health) {
	w.Header().Set("Vary", "Accept")
	if wantsJSON(r.Header.Values("Accept")) {
		answer(w, code, is)
		return
	}
	say(w, code, "text/plain; charset=utf-8", []byte(is.Status+"\n"))
}

// wantsJSON reports whether a request names JSON among what it accepts; that it
// would accept anything does not count.
func wantsJSON(accept []string) bool {
	for _, list := range accept {
		for one := range strings.SplitSeq(list, ",") {
			media, params, err := mime.ParseMediaType(one)
			if err != nil || media != "application/json" {
				continue
			}
			if q, err := strconv.ParseFloat(params["q"], 64); err != nil || q > 0 { // without one it is 1
				return true
			}
		}
	}
	return false
}

// Failure is the body of an answer that is not 200.
type Failure struct {
	Error string `json:"error"`
	Code  string `json:"code"`
	Try   string `json:"try"`
}

func answer(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	say(w, code, "application/json", append(b, '\n'))
}

// say answers with a body. A peer that has gone away is its own problem.
func say(w http.ResponseWriter, code int, mediaType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	if _, err := w.Write(body); err != nil {
		return
	}
}
