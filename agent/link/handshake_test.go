package link_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/state"
	wirelink "github.com/haagent/haagent/wire/link"
)

func TestHandshake_CommonKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mode, dialer, listener string }{
		{"auto", "", ""}, {"tls", "a", "a"}, {"clear", "a", "a"},
		// Rotation: the new key n is added behind, then moved to the front, then
		// the old one goes. Neighbours in that order must talk.
		{"tls", "o", "on"}, {"tls", "on", "o"}, {"tls", "on", "no"}, {"tls", "no", "on"}, {"tls", "no", "n"}, {"tls", "n", "no"},
		{"clear", "o", "on"}, {"clear", "on", "o"}, {"clear", "on", "no"}, {"clear", "no", "on"}, {"clear", "no", "n"}, {"clear", "n", "no"},
		// The listener answers with the key that it was shown.
		{"clear", "o", "no"},
	} {
		t.Run(c.mode+" "+c.dialer+" "+c.listener, func(t *testing.T) {
			t.Parallel()
			dialed, listened := handshake(t, security(t, c.mode, c.dialer), security(t, c.mode, c.listener))
			if dialed.err == nil && listened.err == nil {
				for _, s := range []*link.Session{dialed.session, listened.session} {
					if _, plain := s.Conn().(*net.TCPConn); plain != (c.mode != "tls") {
						t.Errorf("the connection is a %T", s.Conn())
					}
				}
			}
			wantTalk(t, dialed, listened)
		})
	}
}

// TestHandshake_WrongKey: both sides say the same, however it was found out.
// Each is tried many times, because what was said last must not get lost.
func TestHandshake_WrongKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, mode, dialer, listener string }{
		{"tls", "tls", "a", "b"},
		{"tls, the dialer does not know the listener's", "tls", "o", "no"},
		{"tls, the listener does not know the dialer's", "tls", "no", "o"},
		{"clear", "clear", "a", "b"},
		{"clear, the listener does not know the dialer's", "clear", "no", "o"},
		{"clear, many", "clear", "abcdef", "ghijkl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dialing, listening := security(t, c.mode, c.dialer), security(t, c.mode, c.listener)
			for range 25 {
				dialed, listened := handshake(t, dialing, listening)
				wantProblem(t, "dialer", dialed.err, state.Unauthorized, "wrong_key", "--key-file")
				wantProblem(t, "listener", listened.err, state.Unauthorized, "wrong_key", "--key-file")
			}
		})
	}
}

func TestHandshake_ModesMustBeEqual(t *testing.T) {
	t.Parallel()
	modes := map[string]*link.Security{"none": security(t, "auto", ""), "tls": security(t, "tls", "a"), "clear": security(t, "clear", "a")}
	for d, dialing := range modes {
		for l, listening := range modes {
			if d == l {
				continue
			}
			dialed, listened := handshake(t, dialing, listening)
			try := "give both the same --link-security"
			if d == "none" || l == "none" {
				try = "--key-file"
			}
			wantProblem(t, "dialer", dialed.err, state.Incompatible, "link_security", "speaks "+l, "we want "+d, try)
			wantProblem(t, "listener", listened.err, state.Incompatible, "link_security", "speaks "+d, "we want "+l, try)
		}
	}
	// What the dialer is told.
	peer, _ := rawDialer(t, modes["tls"])
	peer.read(wirelink.GreetingSize)
	peer.send(greeting(wirelink.ModeClear))
	r, ok := peer.frame().(*wirelink.Refuse)
	if !ok || r.Code != wirelink.CodeSecurity || r.Text != "we want tls, you speak clear" {
		t.Errorf("%+v", r)
	}
}

func TestHandshake_VersionsMustMeet(t *testing.T) {
	t.Parallel()
	for mode, keyBytes := range map[string]string{"auto": "", "tls": "a", "clear": "a"} {
		s := security(t, mode, keyBytes)
		dialed, listened := handshake(t, s.Speaking(1, 2), s.Speaking(3, 4))
		for side, err := range map[string]error{"dialer": dialed.err, "listener": listened.err} {
			wantProblem(t, side, err, state.Incompatible, "link_version", "update")
			var ve *wirelink.VersionError
			if !errors.As(err, &ve) {
				t.Errorf("%s: the ranges are lost: %v", side, err)
			}
		}
		dialed, listened = handshake(t, s.Speaking(1, 3), s.Speaking(2, 9))
		if dialed.err != nil || listened.err != nil || dialed.session.Version() != 3 || listened.session.Version() != 3 {
			t.Errorf("%s: %v, %v", mode, dialed.err, listened.err)
		}
	}
	peer, _ := rawDialer(t, security(t, "auto", ""))
	peer.read(wirelink.GreetingSize)
	peer.send((wirelink.Greeting{Min: 3, Max: 5, Nonce: [32]byte{1}}).Append(nil))
	r, ok := peer.frame().(*wirelink.Refuse)
	if !ok || r.Code != wirelink.CodeVersion || r.Text != "we speak versions 1 to 2, you 3 to 5" {
		t.Errorf("%+v", r)
	}
}

// TestSession_RefuseArrives: the dialer hears why, in every mode and every time.
func TestSession_RefuseArrives(t *testing.T) {
	t.Parallel()
	for mode, keyBytes := range map[string]string{"auto": "", "tls": "a", "clear": "a"} {
		s := security(t, mode, keyBytes)
		for range 25 {
			d, l := tcpPair(t)
			refused := make(chan error)
			ctx := t.Context()
			go func() {
				session, err := s.Accept(ctx, l)
				if err == nil {
					if _, err = session.ReadHello(ctx); err == nil {
						err = session.Refuse(wirelink.CodeWrongCluster, "another\ncluster")
					}
				}
				refused <- err
			}()
			got := dial(ctx, s, d)
			var r *link.RefusedError
			if !errors.As(got.err, &r) || r.Code != wirelink.CodeWrongCluster || r.Text != "another?cluster" || !strings.Contains(r.Error(), "wrong_cluster: another") {
				t.Errorf("%s: %v", mode, got.err)
			}
			if err := <-refused; err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			if _, err := l.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: the refused connection is open: %v", mode, err)
			}
		}
	}
}

func TestSession_RefusesWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	s := security(t, "clear", "a")
	ctx := t.Context()
	d, l := tcpPair(t)
	go listen(ctx, s, l)
	session, err := s.Connect(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	bad := hello()
	bad.Node = ""
	var fe *wirelink.FrameError
	if err := session.SendHello(ctx, bad); !errors.As(err, &fe) {
		t.Errorf("%v", err)
	}
	for name, change := range map[string]func(*wirelink.Welcome){
		"no node":          func(w *wirelink.Welcome) { w.Node = "" },
		"too few verdicts": func(w *wirelink.Welcome) { w.Verdicts = nil },
	} {
		d, l := tcpPair(t)
		listened := make(chan error)
		go func() {
			session, err := s.Accept(ctx, l)
			if err == nil {
				if _, err = session.ReadHello(ctx); err == nil {
					w := welcome()
					change(w)
					err = session.SendWelcome(ctx, w)
				}
			}
			listened <- err
		}()
		dialed := dial(ctx, s, d)
		var r *link.RefusedError
		if err := <-listened; err == nil || !errors.As(dialed.err, &r) || r.Code != wirelink.CodeInternal {
			t.Errorf("%s: listener %v, dialer %v", name, err, dialed.err)
		}
	}
}

// elsewhere is a connection to another host.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 10915} }

func TestHandshake_NoKeyNoStrangers(t *testing.T) {
	t.Parallel()
	insecure, err := link.NewSecurity(link.SecurityOptions{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	d, l := tcpPair(t)
	dialed, listened := over(t, security(t, "auto", ""), elsewhere{d}, security(t, "auto", ""), elsewhere{l})
	wantProblem(t, "dialer", dialed.err, state.Unauthorized, "no_key", "--insecure", "--key-file")
	wantProblem(t, "listener", listened.err, state.Unauthorized, "no_key", "--insecure", "--key-file")
	d, l = tcpPair(t)
	dialed, listened = over(t, insecure, elsewhere{d}, insecure, elsewhere{l})
	if dialed.err != nil || listened.err != nil {
		t.Errorf("insecure: %v, %v", dialed.err, listened.err)
	}
	d, l = tcpPair(t)
	dialed, listened = over(t, security(t, "clear", "k"), elsewhere{d}, security(t, "clear", "k"), elsewhere{l})
	if dialed.err != nil || listened.err != nil {
		t.Errorf("with a key: %v, %v", dialed.err, listened.err)
	}
}

// TestHandshake_EndsWithItsContext ends each step while the peer is silent.
func TestHandshake_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	why := errors.New("the agent stops")
	patient := func(mode, keyBytes string) *link.Security { return securityWithin(t, mode, keyBytes, 10*patience) }
	for _, mode := range []string{"tls", "clear"} {
		s := patient(mode, "a")
		for name, step := range map[string]func(ctx context.Context, d, l net.Conn, ready func()) error{
			"accept": func(ctx context.Context, _, l net.Conn, ready func()) error {
				ready()
				_, err := s.Accept(ctx, l)
				return err
			},
			"connect": func(ctx context.Context, d, _ net.Conn, ready func()) error {
				ready()
				_, err := s.Connect(ctx, d)
				return err
			},
			"read hello": func(ctx context.Context, d, l net.Conn, ready func()) error {
				go func() { _, _ = s.Connect(t.Context(), d) }()
				session, err := s.Accept(t.Context(), l)
				if err != nil {
					return err
				}
				ready()
				_, err = session.ReadHello(ctx)
				return err
			},
			"read welcome": func(ctx context.Context, d, l net.Conn, ready func()) error {
				go func() { _, _ = s.Accept(t.Context(), l) }()
				session, err := s.Connect(t.Context(), d)
				if err != nil {
					return err
				}
				if err := session.SendHello(t.Context(), hello()); err != nil {
					return err
				}
				ready()
				_, err = session.ReadWelcome(ctx)
				return err
			},
		} {
			t.Run(mode+" "+name, func(t *testing.T) {
				t.Parallel()
				d, l := tcpPair(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				if err := step(ctx, d, l, func() { go cancel(why) }); !errors.Is(err, why) {
					t.Errorf("%v", err)
				}
			})
		}
	}
	// A context that has ended already.
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, l := tcpPair(t)
	if _, err := patient("tls", "a").Accept(ctx, l); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	if _, err := l.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("left open: %v", err)
	}
}

// TestConnect_SaysNothingFirst: a broker's HA port waits for 8 bytes and takes
// whatever comes for an acknowledgement, and a remoting port waits too.
func TestConnect_SaysNothingFirst(t *testing.T) {
	t.Parallel()
	for mode, keyBytes := range map[string]string{"auto": "", "tls": "a", "clear": "a"} {
		s := securityWithin(t, mode, keyBytes, 50*time.Millisecond)
		peer, done := rawListener(t, s)
		if got := peer.rest(); len(got) != 0 {
			t.Errorf("%s: % x was sent", mode, got)
		}
		if e := <-done; !errors.Is(e.err, os.ErrDeadlineExceeded) || !strings.Contains(e.err.Error(), "within 50ms") {
			t.Errorf("%s: %v", mode, e.err)
		}
	}
}
