package discovery

import "testing"

// An agent whose seeds have other keys can say so, on either side of the call; one
// whose seeds are silent has no such trouble, nor one that is with others.
func TestTrouble_OtherKeys(t *testing.T) {
	t.Parallel()
	opt := options("a")
	opt.Keys = [][]byte{key(1)}
	a := start(t, opt)
	for _, c := range []struct {
		name    string
		keys    [][]byte
		seed    string
		trouble bool
	}{
		{"the same", [][]byte{key(1)}, a.Addr(), false},
		{"one of two", [][]byte{key(1), key(2)}, a.Addr(), false},
		{"another", [][]byte{key(2)}, a.Addr(), true},
		{"none", nil, a.Addr(), true},
		{"nobody answers", [][]byte{key(2)}, freeAddr(t), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opt := options("b-"+c.name[:3], c.seed)
			opt.Keys = c.keys
			b := start(t, opt)
			if c.trouble {
				eventually(t, "the trouble is known", func() bool { return b.Trouble() != nil })
				return
			}
			if c.seed == a.Addr() {
				b.sees(Alive, "a")
			} else {
				eventually(t, "a try is over", func() bool { return b.log.count("no other member answers") > 0 })
			}
			if err := b.Trouble(); err != nil {
				t.Errorf("there is %v", err)
			}
		})
	}
}
