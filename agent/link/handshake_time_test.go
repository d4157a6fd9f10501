package link_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/haagent/haagent/agent/link"
	wirelink "github.com/haagent/haagent/wire/link"
)

// wantAfter fails unless d has passed since start, to the second.
func wantAfter(tb testing.TB, what string, start time.Time, d time.Duration) {
	tb.Helper()
	if got := time.Since(start).Round(time.Second); got != d {
		tb.Errorf("%s: after %v, want %v", what, got, d)
	}
}

// TestHandshake_DeadlineIsForTheWhole: a peer that sends a byte each second
// holds a listener no longer than one that sends nothing.
func TestHandshake_DeadlineIsForTheWhole(t *testing.T) {
	bytesOf := func(mode wirelink.Mode) []byte { return append(greeting(mode), hello().Append(nil)...) }
	for name, c := range map[string]struct {
		mode    string
		at      []byte // sent at once
		dribble []byte // sent a byte each second
	}{
		"nothing":                   {"clear", nil, nil},
		"a slow greeting":           {"clear", nil, bytesOf(wirelink.ModeClear)},
		"a greeting":                {"clear", greeting(wirelink.ModeClear), nil},
		"a slow hello":              {"clear", bytesOf(wirelink.ModeClear)[:48], bytesOf(wirelink.ModeClear)[48:]},
		"a hello without proof":     {"clear", bytesOf(wirelink.ModeClear), nil},
		"a greeting and no TLS":     {"tls", greeting(wirelink.ModeTLS), nil},
		"a greeting and slow TLS":   {"tls", greeting(wirelink.ModeTLS), []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")},
		"a greeting, nobody proves": {"auto", greeting(wirelink.ModeNone), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keyBytes := "a"
				if c.mode == "auto" {
					keyBytes = ""
				}
				s := securityWithin(t, c.mode, keyBytes, 0)
				d, l := net.Pipe()
				var peer sync.WaitGroup
				peer.Go(func() { _, _ = io.Copy(io.Discard, d) })
				peer.Go(func() {
					_, _ = d.Write(c.at)
					for _, b := range c.dribble {
						time.Sleep(time.Second)
						if _, err := d.Write([]byte{b}); err != nil {
							return
						}
					}
				})
				start := time.Now()
				e := listen(t.Context(), s, l)
				wantAfter(t, "listener", start, link.HandshakeTimeout)
				if !errors.Is(e.err, os.ErrDeadlineExceeded) {
					t.Errorf("%v", e.err)
				}
				if _, err := l.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("left open: %v", err)
				}
				d.Close()
				peer.Wait()
			})
		})
	}
}

// TestConnect_Deadline: a listener that is silent, at first or after the Hello.
func TestConnect_Deadline(t *testing.T) {
	for name, says := range map[string][]byte{"nothing": nil, "a greeting": greeting(wirelink.ModeClear)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, l := net.Pipe()
				go func() {
					_, _ = l.Write(says)
					_, _ = io.Copy(io.Discard, l)
				}()
				start := time.Now()
				if e := dial(t.Context(), securityWithin(t, "clear", "a", 0), d); !errors.Is(e.err, os.ErrDeadlineExceeded) {
					t.Errorf("%v", e.err)
				}
				wantAfter(t, "dialer", start, link.HandshakeTimeout)
				l.Close()
			})
		})
	}
}

// TestSession_DeadlinesEndWithTheHandshake: a session may be idle for longer.
func TestSession_DeadlinesEndWithTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := securityWithin(t, "clear", "a", 0)
		d, l := net.Pipe()
		dialed, listened := over(t, s, d, s, l)
		if dialed.err != nil || listened.err != nil {
			t.Fatal(dialed.err, listened.err)
		}
		time.Sleep(time.Hour)
		go func() { _, _ = dialed.session.Conn().Write((&wirelink.Start{From: 5}).Append(nil)) }()
		if typ, _, err := listened.session.Reader().Next(); typ != wirelink.TypeStart || err != nil {
			t.Errorf("%v, %v", typ, err)
		}
		dialed.session.Close()
		listened.session.Close()
	})
}

// TestRefuse_TakesASecondAtMost: the peer neither reads nor closes.
func TestRefuse_TakesASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := securityWithin(t, "clear", "a", 0)
		for name, reads := range map[string]bool{"does not read": false, "does not close": true} {
			d, l := net.Pipe()
			done := make(chan *link.Session)
			go func() {
				session, err := s.Accept(t.Context(), l)
				if err == nil {
					_, err = session.ReadHello(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
				done <- session
			}()
			dialer, err := s.Connect(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			if err := dialer.SendHello(t.Context(), hello()); err != nil {
				t.Fatal(err)
			}
			session := <-done
			if reads {
				go func() { _, _ = io.Copy(io.Discard, d) }()
			}
			start := time.Now()
			if err := session.Refuse(wirelink.CodeStopping, "stops"); (err == nil) != reads {
				t.Errorf("%s: %v", name, err)
			}
			wantAfter(t, name, start, time.Second)
			d.Close()
		}
	})
}
