package replica

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// salvaged returns what salvage holds from end on, put together by offset.
func salvaged(t *testing.T, dir string, size wire.ByteSize, end wire.PhyOffset, want []byte) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(AgentDir(dir), "salvage", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want)+int(size))
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
		copy(got[at.Sub(end):], b)
	}
	return got[:len(want)]
}

// rewound checks a store that was cut back to end: I2 up to there, I8 for the rest.
func rewound(t *testing.T, dir string, l *sourceLog, s *Store, end wire.PhyOffset) {
	t.Helper()
	if e := s.Ends(); e.Verified != end || e.Flushed != end || e.Written != end {
		t.Fatalf("ends are %+v, want %d", e, end)
	}
	if st, err := ReadState(dir); err != nil || st.VerifiedEnd > end || st.LastMessage >= end {
		t.Fatalf("the state remembers %d, last message %d, %v (I3)", st.VerifiedEnd, st.LastMessage, err)
	}
	checkPrefix(t, dir, l, end)
	want := l.at(end, l.end())
	if got := salvaged(t, dir, l.size, end, want); !bytes.Equal(got, want) {
		t.Fatalf("I8: salvage has not what was cut off from %d on", end)
	}
}

// The log is cut back to the last message that ends before the difference, wherever
// that is, and goes on from there; what was cut is kept, in whole messages.
func TestI8_Rewind_ToTheLastCommonMessage(t *testing.T) {
	l := makeLog(7, 16*wire.KiB, 0, 120, anyMessage)
	for _, back := range []int{1, 2, 40, 110} {
		for _, inside := range []wire.PhyOffset{0, 1, 50} {
			t.Run(fmt.Sprintf("%d messages and %d bytes", back, inside), func(t *testing.T) {
				dir := t.TempDir()
				s := replicate(t, dir, l)
				closeStore(t, s)
				end := l.bounds[len(l.bounds)-1-back]
				at := end + inside
				s = openStore(t, Options{Dir: dir, SegmentSize: l.size, Rewind: at})
				for i := len(l.bounds) - 1; l.bounds[i] > at; i-- {
					end = l.boundary(l.bounds[i] - 1)
				}
				if got := s.Ends().Verified; got != end && l.blanks[end] != got {
					t.Fatalf("cut back to %d, want %d", got, end)
				}
				end = s.Ends().Verified
				if n := s.Rewound(); n != l.end().Sub(end) {
					t.Errorf("%d bytes are said to be cut, not %d", n, l.end().Sub(end))
				}
				rewound(t, dir, l, s, end)
				feed(t, s, l, end, l.end())
				closeStore(t, s)
				checkPrefix(t, dir, l, l.end())
			})
		}
	}
}

// Whatever call of the disk fails, and whenever the process is killed after that,
// the next attempt gets there, and nothing is lost.
func TestI8_Rewind_FaultAtEachCall(t *testing.T) {
	l := makeLog(8, 16*wire.KiB, 0, 60, anyMessage)
	end := l.bounds[20]
	for fault := 1; ; fault++ {
		dir := t.TempDir()
		closeStore(t, replicate(t, dir, l))
		disk := newFaultyDisk(dir, func(call int, _ string) bool { return call == fault })
		s, err := tryOpen(Options{Dir: dir, SegmentSize: l.size, Rewind: end, disk: disk})
		if err == nil {
			rewound(t, dir, l, s, end)
			closeStore(t, s)
			if disk.failures == 0 {
				if fault < 4 {
					t.Errorf("only %d calls were made", fault-1)
				}
				return
			}
			continue
		}
		s = openStore(t, Options{Dir: dir, SegmentSize: l.size})
		if verified := s.Ends().Verified; verified < end || !slices.Contains(l.bounds, verified) {
			t.Fatalf("call %d: the replica has %d after a fault, its source parted at %d", fault, verified, end)
		}
		kill(t, s)
		s = openStore(t, Options{Dir: dir, SegmentSize: l.size, Rewind: end})
		rewound(t, dir, l, s, end)
		closeStore(t, s)
	}
}

// What is before an offset is found in the middle of a message, at its ends, and over
// the ends of segments; before the first message's end there is nothing.
func TestMessageBefore(t *testing.T) {
	l := makeLog(9, 16*wire.KiB, 0, 60, anyMessage)
	s := replicate(t, t.TempDir(), l)
	defer closeStore(t, s)
	for _, bound := range l.bounds {
		for _, at := range []wire.PhyOffset{bound - 1, bound, bound + 1, bound.SegmentBase(l.size)} {
			wantStart, wantEnd, want := wire.PhyOffset(0), wire.PhyOffset(0), false
			for end, start := range l.begins {
				if end <= at && end > wantEnd {
					wantStart, wantEnd, want = start, end, true
				}
			}
			if start, end, ok := s.MessageBefore(t.Context(), at); start != wantStart || end != wantEnd || ok != want {
				t.Fatalf("before %d there is [%d, %d), %t; want [%d, %d), %t", at, start, end, ok, wantStart, wantEnd, want)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, ok := s.MessageBefore(ctx, l.end()); ok {
		t.Error("it was found after all")
	}
}
