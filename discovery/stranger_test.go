package discovery

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// stranger starts a bare memberlist: not an agent, or a garbled one.
func stranger(t testing.TB, name string, edit func(*memberlist.Config)) *memberlist.Memberlist {
	t.Helper()
	c := memberlist.DefaultLocalConfig()
	c.Name = name
	c.BindAddr, c.BindPort = nextIP().String(), 0
	c.Label = label
	c.LogOutput = io.Discard
	c.TCPTimeout = 2 * time.Second
	edit(c)
	m, err := memberlist.Create(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Shutdown() })
	return m
}

// meta is a Delegate that says what it is told to say.
type rawMeta struct{ callbacks }

func saying(meta []byte) memberlist.Delegate {
	return &rawMeta{callbacks{meta: func() []byte { return meta }}}
}

// Strangers that lack the key, or have another one, or another label, neither
// get in nor learn who is there, whoever of the two calls. Fault 87.
func TestStranger_StaysOut_Fault87(t *testing.T) {
	t.Parallel()
	table := map[string]func(*memberlist.Config){
		"no key":           func(*memberlist.Config) {},
		"wrong key":        func(c *memberlist.Config) { c.SecretKey = key(9) },
		"short key":        func(c *memberlist.Config) { c.SecretKey = key(1)[:16] },
		"other label":      func(c *memberlist.Config) { c.SecretKey, c.Label = key(1), "other" },
		"no label":         func(c *memberlist.Config) { c.SecretKey, c.Label = key(1), "" },
		"no key, no label": func(c *memberlist.Config) { c.Label = "" },
	}
	for name, edit := range table {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := stranger(t, "stranger", edit)
			opt := options("a", m.LocalNode().Address())
			opt.Keys = [][]byte{key(1), key(2)}
			a := start(t, opt)
			opt = options("b", a.Addr())
			opt.Keys = [][]byte{key(1)}
			b := start(t, opt)
			a.sees(Alive, "b")
			b.sees(Alive, "a")
			for range 5 {
				if n, err := m.Join([]string{a.Addr()}); n > 0 {
					t.Fatalf("it got in, %v", err)
				}
			}
			stays(t, time.Second, "the stranger is not known", func() bool {
				return a.status("stranger") == "" && b.status("stranger") == "" && m.NumMembers() == 1
			})
		})
	}
}

// Without a key, a program that is no agent is kept out by the label alone.
func TestStranger_OtherProgramStaysOut(t *testing.T) {
	t.Parallel()
	a := start(t, options("a"))
	for _, l := range []string{"", "consul"} {
		m := stranger(t, "stranger", func(c *memberlist.Config) { c.Label = l })
		if n, err := m.Join([]string{a.Addr()}); n > 0 {
			t.Errorf("label %q got in, %v", l, err)
		}
	}
	if got := a.Members(); len(got) != 1 {
		t.Errorf("there are %+v", got)
	}
}

// A member of another version, or one that says garbage, is shown with its
// status and nothing else.
func TestStranger_UnreadableMetaIsShownWithoutFields(t *testing.T) {
	t.Parallel()
	a := start(t, options("a"))
	for i, meta := range [][]byte{nil, {}, {0xff}, []byte("{\"json\":1}"), make([]byte, MaxMeta)} {
		name := fmt.Sprintf("odd-%d", i)
		m := stranger(t, name, func(c *memberlist.Config) { c.Delegate = saying(meta) })
		if n, err := m.Join([]string{a.Addr()}); n != 1 {
			t.Fatal(err)
		}
		a.sees(Alive, name)
		got := a.member(name)
		if want := (Member{Node: name, Addr: m.LocalNode().Address(), Status: Alive, Since: got.Since}); got != want {
			t.Errorf("it is %+v", got)
		}
	}
}

// A member that speaks another protocol, or has a name that would garble a page,
// is refused; it would make memberlist refuse everybody.
func TestStranger_OddOnesAreRefused(t *testing.T) {
	t.Parallel()
	a := start(t, options("a"))
	b := start(t, options("b", a.Addr()))
	a.sees(Alive, "b")
	for name, edit := range map[string]func(*memberlist.Config){
		"protocol":    func(c *memberlist.Config) { c.ProtocolVersion = 5 },
		"line\nend":   func(*memberlist.Config) {},
		readerName:    func(*memberlist.Config) {},
		"unspecified": func(c *memberlist.Config) { c.AdvertiseAddr, c.AdvertisePort = "0.0.0.0", 1 },
		"delegate-ver": func(c *memberlist.Config) {
			c.DelegateProtocolMin, c.DelegateProtocolMax, c.DelegateProtocolVersion = 1, 2, 2
		},
	} {
		m := stranger(t, name, edit)
		_, _ = m.Join([]string{a.Addr()}) // it may well believe that it is in
		if err := a.SetSelf(func(s *Member) { s.Epoch++ }); err != nil {
			t.Fatal(err)
		}
		want := a.member("a").Epoch
		eventually(t, "a and b go on", func() bool { return b.member("a").Epoch == want })
		if got := a.status(name); got != "" {
			t.Errorf("%q is %s", name, got)
		}
	}
}

// Noise on both sockets neither ends anything, nor is it logged at length.
// Fault 87.
func TestStranger_NoiseIsBornAndBounded_Fault87(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][][]byte{"clear": nil, "encrypted": {key(1)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := options("a")
			opt.Keys = keys
			a := start(t, opt)
			opt = options("b", a.Addr())
			opt.Keys = keys
			b := start(t, opt)
			a.sees(Alive, "b")
			before := len(a.log.String())
			packets := makeNoise(t, a.socks.bound.String(), 5*time.Second)
			a.sees(Alive, "b")
			b.sees(Alive, "a")
			if got := a.Members(); len(got) != 2 {
				t.Errorf("there are %+v", got)
			}
			lines, size := a.log.count(""), len(a.log.String())-before
			t.Logf("%d packets and streams of noise, %d lines, %d bytes of log", packets, lines, size)
			if lines > 100 || size > 50_000 {
				t.Errorf("%d lines, %d bytes of log", lines, size)
			}
		})
	}
}

// makeNoise sends random bytes to both sockets, half of them behind what looks
// like a beginning, and returns how many packets and streams it has sent.
func makeNoise(t testing.TB, to string, d time.Duration) int {
	t.Helper()
	deadline := time.Now().Add(d)
	udp, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	header := append([]byte{244, byte(len(label))}, label...) // of the label
	random := func(r *rand.Rand) []byte {
		var b []byte
		if r.IntN(2) == 0 {
			b = append(b, header...)
			b = append(b, byte(r.IntN(14))) // of a message
		}
		for range r.IntN(1200) {
			b = append(b, byte(r.Uint32()))
		}
		return b
	}
	var (
		wg      sync.WaitGroup
		streams int
		packets int
	)
	wg.Go(func() {
		r := rand.New(rand.NewPCG(1, 1))
		for time.Now().Before(deadline) {
			if conn, err := net.Dial("tcp", to); err == nil {
				_ = conn.SetDeadline(deadline)
				_, _ = conn.Write(random(r)) // it may be cut off
				if r.IntN(4) > 0 {
					conn.Close()
				} else {
					defer conn.Close()
				}
				streams++
			}
			<-time.After(5 * time.Millisecond)
		}
	})
	r := rand.New(rand.NewPCG(2, 2))
	for time.Now().Before(deadline) {
		for range 20 {
			_, _ = udp.Write(random(r)) // it may be lost
			packets++
		}
		<-time.After(5 * time.Millisecond)
	}
	wg.Wait()
	return packets + streams
}
