package link_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent/link"
)

// keysOf returns the keys of the texts, in their order.
func keysOf(t *testing.T, lines ...string) link.Keys {
	t.Helper()
	text := ""
	for _, l := range lines {
		text += l + "\n"
	}
	keys, err := link.ParseKeys([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestReload_KeysChangeInThreeSteps: at no step of a rotation are there two ends
// that do not understand each other, and at the end the old key opens nothing.
func TestReload_KeysChangeInThreeSteps(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"tls", "clear"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			old, fresh := link.NewKey(), link.NewKey()
			ends := make([]*link.Security, 2)
			for i := range ends {
				var err error
				if ends[i], err = link.NewSecurity(link.SecurityOptions{Mode: mode, Keys: keysOf(t, old)}); err != nil {
					t.Fatal(err)
				}
			}
			stranger, err := link.NewSecurity(link.SecurityOptions{Mode: mode, Keys: keysOf(t, old)})
			if err != nil {
				t.Fatal(err)
			}
			understood := func(step string) {
				t.Helper()
				for i := range ends {
					if d, l := handshake(t, ends[i], ends[1-i]); d.err != nil || l.err != nil {
						t.Fatalf("%s: %v, %v", step, d.err, l.err)
					}
				}
			}
			understood("before")
			for _, step := range [][]string{{old, fresh}, {fresh, old}, {fresh}} {
				for _, s := range ends {
					if err := s.Reload(link.SecurityOptions{Mode: mode, Keys: keysOf(t, step...)}); err != nil {
						t.Fatal(err)
					}
					understood("in the middle of a step")
				}
			}
			if d, l := handshake(t, stranger, ends[0]); d.err == nil || l.err == nil {
				t.Error("the old key still opens the link")
			}
		})
	}
}

// TestReload_OtherProtectionIsRefused leaves what was there.
func TestReload_OtherProtectionIsRefused(t *testing.T) {
	t.Parallel()
	keys := keysOf(t, link.NewKey())
	s, err := link.NewSecurity(link.SecurityOptions{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]link.SecurityOptions{
		"no keys":     {},
		"clear":       {Mode: "clear", Keys: keys},
		"insecure":    {Keys: keys, Insecure: true},
		"no such way": {Mode: "loud", Keys: keys},
	} {
		if err := s.Reload(o); !errors.Is(err, link.ErrSecurityOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := filepath.Join(t.TempDir(), "gone.pem")
	if err := s.Reload(link.SecurityOptions{Cert: gone, Key: gone, CA: gone}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files that are not there: %v", err)
	}
	if d, l := handshake(t, s, s); d.err != nil || l.err != nil {
		t.Errorf("after that: %v, %v", d.err, l.err)
	}
}
