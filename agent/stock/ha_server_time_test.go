package stock_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// inVirtualTime runs test over a log of three segments, served on a pipe.
func inVirtualTime(t *testing.T, test func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions)) {
	synctest.Test(t, func(t *testing.T) {
		l := newServedLog(t, 64*wire.KiB, 3*64<<10)
		l.grow(2*l.size + l.size/2)
		ln := newPipeListener()
		opt := l.options()
		if err := opt.Listener.Close(); err != nil {
			t.Fatal(err)
		}
		opt.Listener = ln
		test(t, l, ln, opt)
	})
}

// pipePeer is a slave on the pipe that drains what it is sent into a channel.
func pipePeer(t *testing.T, ln *pipeListener, reports ...wire.PhyOffset) (*haPeer, <-chan timedFrame) {
	t.Helper()
	p := &haPeer{t, ln.dial()}
	frames := make(chan timedFrame, 10_000)
	start := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			h, body, err := readFrame(p.conn)
			frames <- timedFrame{h, body, err, time.Since(start)}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		if err := p.conn.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	p.report(reports...)
	return p, frames
}

type timedFrame struct {
	ha.Header
	body []byte
	err  error
	at   time.Duration // since the connection
}

// Outside of the log there is nothing but heartbeats, every 5 s, that name the
// offset asked for.
func TestHAServerSendsHeartbeatsOutsideOfItsLog(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions) {
		run(t, stock.NewHAServer(opt).Run)
		end := l.writer.End()
		for _, from := range []wire.PhyOffset{1, l.writer.Min() - 1, end, end + 1, 1<<63 - 1} {
			p, frames := pipePeer(t, ln, from)
			for n := time.Duration(1); n <= 10; n++ {
				if n%3 == 0 {
					p.report(0)
				}
				f := <-frames
				if f.err != nil || !f.Heartbeat() || f.PhyOffset != from || f.at != n*5*time.Second {
					t.Fatalf("from %d: frame %d is %+v", from, n, f)
				}
			}
		}
	})
}

// What lies above the end is sent once it is there.
func TestHAServerSendsWhatWasNotThereYet(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions) {
		opt.Listen = nil
		run(t, stock.NewHAServer(opt).Run)
		from := l.writer.End().Add(100)
		_, frames := pipePeer(t, ln, from)
		if f := <-frames; !f.Heartbeat() || f.PhyOffset != from {
			t.Fatalf("%+v", f)
		}
		grown := time.Now()
		l.grow(1000)
		f := <-frames
		if f.PhyOffset != from || !bytes.Equal(f.body, l.bytes(from, f.End())) {
			t.Errorf("%+v", f.Header)
		}
		if late := time.Since(grown); late > 10*time.Millisecond {
			t.Errorf("sent after %v, idle polling is every 10 ms", late)
		}
		// Near traffic it looks more often.
		grown = time.Now()
		l.grow(1000)
		<-frames
		if late := time.Since(grown); late > time.Millisecond {
			t.Errorf("sent after %v just behind other traffic", late)
		}
	})
}

// A wake-up that was lost delays what it told by no more than 100 ms.
func TestHAServerLivesWithLostWakeUps(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions) {
		opt.Listen = func() (<-chan struct{}, func()) { return make(chan struct{}), func() {} }
		run(t, stock.NewHAServer(opt).Run)
		_, frames := pipePeer(t, ln, l.writer.End())
		<-frames // a heartbeat
		grown := time.Now()
		l.grow(1)
		if f := <-frames; f.Heartbeat() || time.Since(grown) > 100*time.Millisecond {
			t.Errorf("%+v after %v", f.Header, time.Since(grown))
		}
	})
}

// A heartbeat comes 5 s after the last frame and names the next one's offset.
func TestHAServerHeartbeatsFollowFrames(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions) {
		run(t, stock.NewHAServer(opt).Run)
		from := l.writer.End()
		_, frames := pipePeer(t, ln, from)
		grow := time.AfterFunc(3*time.Second, func() { l.grow(100) })
		defer grow.Stop()
		f := <-frames
		if f.Heartbeat() || f.at != 3*time.Second {
			t.Fatalf("%+v", f)
		}
		for _, want := range []time.Duration{8 * time.Second, 13 * time.Second} {
			if f := <-frames; !f.Heartbeat() || f.at != want || f.PhyOffset != l.writer.End() {
				t.Errorf("%+v, want a heartbeat at %v", f, want)
			}
		}
	})
}

// Fault 39: a quiet link lives as long as reports come; a silent peer is dropped
// after 20 s, whether it has asked for something or not.
func TestFault39_HAServerDropsSilentPeersOnly(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions) {
		run(t, stock.NewHAServer(opt).Run)
		quiet, frames := pipePeer(t, ln, l.writer.End())
		silent := map[string]<-chan timedFrame{}
		_, silent["after its request"] = pipePeer(t, ln, l.writer.End())
		_, silent["at once"] = pipePeer(t, ln)
		for range 8 {
			time.Sleep(19 * time.Second) // virtual
			quiet.write([]byte{0})       // the eighth part of a report
		}
		for name, frames := range silent {
			f := timedFrame{}
			for f = range frames {
				if f.err != nil {
					break
				}
			}
			if !errors.Is(f.err, io.EOF) || f.at != 20*time.Second {
				t.Errorf("silent %s: %v after %v", name, f.err, f.at)
			}
		}
		if len(frames) != 8*19/5 {
			t.Errorf("%d heartbeats in %v", len(frames), 8*19*time.Second)
		}
		l.awaitClose(1, os.ErrDeadlineExceeded)
		l.awaitClose(2, os.ErrDeadlineExceeded)
		l.await(func(reports []haReport, closes []error) bool { return len(closes) == 2 && len(reports) == 3 })
	})
}

// Where the end is not known, a request for the last segment waits.
func TestHAServerWaitsForItsEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions) {
		known := make(chan struct{})
		opt.End = func() wire.PhyOffset {
			select {
			case <-known:
				return l.writer.End()
			default:
				return wire.NoOffset
			}
		}
		run(t, stock.NewHAServer(opt).Run)
		p, frames := pipePeer(t, ln, 0)
		time.Sleep(12 * time.Second) // virtual
		p.report(7)                  // no reason to close: nobody knows
		synctest.Wait()
		if len(frames) != 0 {
			t.Fatalf("got %+v", <-frames)
		}
		close(known)
		if f := <-frames; f.Heartbeat() || f.PhyOffset != l.writer.End().SegmentBase(l.size) {
			t.Errorf("%+v", f.Header)
		}
	})
}

// A listener that fails for a while is asked again; connections stay.
func TestHAServerOutlivesFailedAccepts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions) {
		run(t, stock.NewHAServer(opt).Run)
		_, first := pipePeer(t, ln, l.writer.End()-1)
		for range cap(ln.errs) {
			ln.errs <- errAccept
		}
		_, second := pipePeer(t, ln, l.writer.End()-2)
		for _, frames := range []<-chan timedFrame{first, second} {
			if f := <-frames; f.err != nil || f.End() != l.writer.End() {
				t.Errorf("%+v", f)
			}
		}
	})
}

// A listener that somebody else closes ends the server with an error, and its
// connections with it.
func TestHAServerEndsWithItsListener(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions) {
		done := make(chan error, 1)
		go func() { done <- stock.NewHAServer(opt).Run(t.Context()) }()
		_, frames := pipePeer(t, ln, l.writer.End())
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("ended with %v", err)
		}
		if f := <-frames; !errors.Is(f.err, io.EOF) {
			t.Errorf("%+v", f)
		}
	})
}
