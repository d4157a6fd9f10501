package link_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/wire"
)

// TestI8_Rewind_BecomesEqualToItsSource: a replica that holds a tail which its source
// never had ends with the first difference, is opened anew, cut back, and becomes
// equal to the source; no ack is counted before, and what was cut is kept.
func TestI8_Rewind_BecomesEqualToItsSource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		same, more int
	}{
		{"longer", 120, 200},
		{"shorter", 60, 20},
		{"in the first segment", 3, 300},
		{"in the last message", 199, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, addr, before := follow(t, 200)
			m := other(t, addr, c.same, c.more)
			s.opt.rewind = true
			s.run()
			at, ok := replica.PartedAt(s.wait())
			if want := firstDifference(t, before.opt.dir, m.opt.dir); !ok || at != want {
				t.Fatalf("it ended with a difference at %d (%t), which is at %d", at, ok, want)
			}
			if got := m.table.Rank(1); got != wire.NoOffset {
				t.Errorf("a replica that differs acked %d", got)
			}
			if err := s.store.Abandon(); err != nil {
				t.Fatal(err)
			}
			s.opt.from = at
			s.run()
			end := m.w.End()
			m.acked("slave", end)
			cut := s.store.Rewound()
			s.stop()
			s.same(m.opt.dir, end)
			_, whole := logOf(t, before.opt.dir)
			lost := whole[:before.w.End()][before.w.End().Add(-cut):]
			if got := salvaged(t, s.opt.dir, before.w.End().Add(-cut), len(lost)); cut <= 0 || !bytes.Equal(got, lost) {
				t.Errorf("I8: %d bytes were cut off, and are not what is kept", cut)
			}
		})
	}
}

// A replica whose source is another log altogether, or only behind, is never cut.
func TestRewind_OnlyWhereLogsHaveParted(t *testing.T) {
	t.Parallel()
	for code, n := range map[string]int{"source_replaced": 0, "source_behind": 150} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			s, addr, before := follow(t, 200)
			more := 0
			if n == 0 {
				more = 300
			}
			other(t, addr, n, more)
			s.opt.rewind = true
			s.run()
			until(t, code, func() bool { return bytes.Contains([]byte(s.problemText()), []byte(code)) })
			end := s.store.Ends().Verified
			s.stop()
			s.same(before.opt.dir, end)
		})
	}
}

// salvaged returns n bytes of what was cut off a replica from an offset on.
func salvaged(t *testing.T, dir string, from wire.PhyOffset, n int) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(replica.AgentDir(dir), "salvage", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, n+int(segmentSize))
	for _, path := range files {
		name := filepath.Base(path)
		if len(name) > 5 && name[:5] == "from-" {
			name = name[5:]
		}
		at, err := commitlog.ParseName(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		copy(got[at.Sub(from):], b)
	}
	return got[:n]
}
