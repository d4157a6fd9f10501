package source_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/wire"
)

// TestSource_BesideABroker_I1 takes every confirmed byte the moment it is
// confirmed, while a real broker stores messages, is killed, recovers and goes on.
// What was taken is what the files hold in the end.
func TestSource_BesideABroker_I1(t *testing.T) {
	for _, v := range brokertest.Versions() {
		t.Run(string(v), func(t *testing.T) {
			ns := brokertest.StartNameServer(t, v)
			broker := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, SegmentSize: wire.MiB, NameServer: ns.Addr})
			driver := brokertest.StartDriver(t, v, ns.Addr)
			s := start(t, source.Options{Dir: broker.Dir(), Settle: -1, Rescan: 100 * time.Millisecond})
			var taken []byte
			take := func(until wire.PhyOffset) {
				t.Helper()
				s.until("the log", func(e source.Ends) bool {
					taken = append(taken, confirmed(t, s, wire.PhyOffset(len(taken)), e.Confirmed)...)
					return e.Visible >= until
				})
			}
			for round := range 2 {
				stop := driver.StartSending(t, brokertest.SendSpec{Topic: "beside", Count: 2000, Threads: 4, BodySize: 1500, Rate: 2000, KeyPrefix: string(rune('a' + round))})
				take(wire.PhyOffset(len(taken)).Add(2 * wire.MiB))
				end := wire.NoOffset
				for _, m := range stop() {
					if m.Placed() {
						end = max(end, m.PhyOffset+1)
					}
				}
				take(end)
				broker.Kill()
				if round == 0 {
					broker.Restart(t)
				}
			}
			e := s.Ends()
			if len(taken) < 4*int(wire.MiB) || e.Confirmed < wire.PhyOffset(len(taken)) || s.Incarnation() != 1 {
				t.Errorf("took %d bytes of %+v in incarnation %d", len(taken), e, s.Incarnation())
			}
			s.untilWell()
			for at := 0; at < len(taken); at += int(wire.MiB) {
				file, err := os.ReadFile(segmentPath(broker.Dir(), commitlog.Name(wire.PhyOffset(at))))
				if err != nil {
					t.Fatal(err)
				}
				part := taken[at:min(at+int(wire.MiB), len(taken))]
				if !bytes.Equal(part, file[:len(part)]) {
					t.Errorf("bytes of the segment at %d changed after they were confirmed", at)
				}
			}
		})
	}
}

// confirmed copies the log from one offset to another.
func confirmed(t *testing.T, s *running, from, to wire.PhyOffset) []byte {
	t.Helper()
	var out []byte
	for from < to {
		seg, err := s.OpenSegment(from)
		if err != nil {
			t.Fatal(err)
		}
		n := min(to, seg.End).Sub(from)
		out = append(out, seg.Bytes()[from.Sub(seg.Base):][:n]...)
		from = from.Add(n)
		seg.Close()
	}
	return out
}
