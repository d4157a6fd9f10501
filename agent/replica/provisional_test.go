package replica

import (
	"testing"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// TestProvisional_WholeMessageBehindTheVerifiedEndProvesNothing: bytes that the
// source has not confirmed are not believed by the next process, however whole
// they look, neither after a kill nor after a crash of the machine (I1, I3).
func TestProvisional_WholeMessageBehindTheVerifiedEndProvesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		boot string // of the run of the kernel that wrote it; "" is this one
	}{{"kill", ""}, {"crash of the machine", "another"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			log := makeLog(7, 64<<10, 0, 20, forge.Variety{})
			confirmed := log.bounds[len(log.bounds)-2]
			opt := Options{Dir: t.TempDir(), SegmentSize: log.size}
			s := openStore(t, opt)
			if err := s.Begin(0); err != nil {
				t.Fatal(err)
			}
			feed(t, s, log, 0, confirmed)
			if err := s.flush(); err != nil {
				t.Fatal(err)
			}
			if err := s.ExpectProvisional(); err != nil {
				t.Fatal(err)
			}
			if err := s.Append(confirmed, [][]byte{log.at(confirmed, log.end())}); err != nil {
				t.Fatal(err)
			}
			kill(t, s)
			if c.boot != "" {
				state, err := ReadState(opt.Dir)
				if err != nil {
					t.Fatal(err)
				}
				state.Boot = c.boot
				if err := writeState(opt.Dir, state); err != nil {
					t.Fatal(err)
				}
			}
			s = openStore(t, opt)
			if got := s.Ends(); got.Verified != confirmed || got.Written != confirmed {
				t.Errorf("ends %+v, want %d: the message behind it was provisional", got, confirmed)
			}
			if s.State().Provisional {
				t.Error("the note about provisional bytes stays without any")
			}
			feed(t, s, log, confirmed, log.end())
			closeStore(t, s)
			checkPrefix(t, opt.Dir, log, log.end())
		})
	}
}

// TestDropBefore_SegmentThatIsStillOpen: after a restart at the end of a segment
// that segment is open, until something is synced behind it; dropping it then is
// no disturbance.
func TestDropBefore_SegmentThatIsStillOpen(t *testing.T) {
	t.Parallel()
	log := makeLog(3, 16<<10, 0, 60, forge.Variety{})
	opt := Options{Dir: t.TempDir(), SegmentSize: log.size}
	s := openStore(t, opt)
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	edge := wire.PhyOffset(log.size)
	feed(t, s, log, 0, edge)
	closeStore(t, s)
	s = openStore(t, opt)
	if err := s.Append(edge, [][]byte{log.at(edge, edge+100)}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.DropBefore(edge); n != 1 || err != nil {
		t.Fatalf("dropped %d, %v", n, err)
	}
	if err := s.Intact(); err != nil {
		t.Error(err)
	}
	feed(t, s, log, edge+100, log.end())
	closeStore(t, s)
}
