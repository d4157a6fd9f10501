package stock_test

import (
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// Whatever a slave sends, in whatever pieces: its first 8 bytes are its request,
// no acknowledgement is one that it did not send as a whole or that exceeds the
// log, all frames follow the request, and the connection comes to its end.
func FuzzHAServer(f *testing.F) {
	l := newServedLog(f, 64*wire.KiB, 64<<10)
	l.grow(l.size + 1000)
	end := l.writer.End()
	f.Fuzz(func(t *testing.T, sent []byte, cut uint8) {
		ln := newPipeListener()
		var reports []haReport
		ended := make(chan error, 1)
		server := startHA(stock.HAServerOptions{
			Listener: ln, CommitLogDir: l.dir, SegmentSize: l.size, End: l.writer.End,
			OnReport: func(_ net.Addr, off wire.PhyOffset, request bool) { reports = append(reports, haReport{off, request}) },
			OnClose:  func(_ net.Addr, err error) { ended <- err },
		})
		defer server.stop(t)
		conn := ln.dial()
		frames := make(chan []ha.Header)
		go func() {
			var got []ha.Header
			for {
				h, _, err := readFrame(conn)
				if err != nil {
					frames <- got
					return
				}
				got = append(got, h)
			}
		}()
		for rest := sent; len(rest) > 0; {
			n := min(1+int(cut)%23, len(rest))
			if _, err := conn.Write(rest[:n]); err != nil {
				break // dropped for what it sent
			}
			rest = rest[n:]
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil {
			t.Error("no reason for the end")
		}
		checkFuzzed(t, sent, end, reports, <-frames)
	})
}

func checkFuzzed(t *testing.T, sent []byte, end wire.PhyOffset, reports []haReport, frames []ha.Header) {
	t.Helper()
	whole := make(map[wire.PhyOffset]bool)
	for at := 0; at+ha.ReportSize <= len(sent); at += ha.ReportSize {
		whole[wire.PhyOffset(binary.BigEndian.Uint64(sent[at:]))] = true
	}
	if len(reports) == 0 {
		if len(frames) > 0 {
			t.Errorf("frames without a request: %v", frames)
		}
		return
	}
	request := reports[0].off
	if !reports[0].request || uint64(request) != binary.BigEndian.Uint64(sent) {
		t.Errorf("request is %+v", reports[0])
	}
	for _, r := range reports[1:] {
		capped := r.off >= request && r.off <= end // to what was sent
		if r.request || r.off > end && r.off != request || !whole[r.off] && !capped {
			t.Errorf("report %+v was never made", r)
		}
	}
	at := request
	if request == 0 {
		at = end.SegmentBase(64 * wire.KiB)
	}
	for _, h := range frames {
		if h.PhyOffset != at || !h.Heartbeat() && h.End() > end {
			t.Errorf("frame %+v at %d", h, at)
		}
		at = h.End()
	}
}

func TestFuzzHAServerHasACorpus(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join("testdata", "fuzz", "FuzzHAServer"))
	if err != nil || len(entries) < 5 {
		t.Errorf("%d seeds, %v", len(entries), err)
	}
}
