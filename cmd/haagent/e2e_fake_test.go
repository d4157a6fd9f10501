//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// fakeMaster is a peer that answers on an HA port as it likes, and writes down
// what it is told.
type fakeMaster struct {
	addr string

	mu      sync.Mutex
	highest wire.PhyOffset // of all reports, requests included
}

// startFakeMaster starts a peer whose answer to a request is what answer writes.
// The connection stays open until the agent ends it.
func startFakeMaster(t *testing.T, answer func(to io.Writer, request wire.PhyOffset) error) *fakeMaster {
	t.Helper()
	f := &fakeMaster{highest: wire.NoOffset}
	f.addr = startPeer(t, func(conn net.Conn) {
		reports := ha.NewReportReader(conn)
		request, err := reports.First()
		if err != nil {
			return
		}
		f.note(request)
		if err := answer(conn, request); err != nil {
			return // the agent has closed the connection already
		}
		for {
			off, err := reports.Next()
			if err != nil {
				return
			}
			f.note(off)
		}
	})
	return f
}

func (f *fakeMaster) note(off wire.PhyOffset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.highest = max(f.highest, off)
}

func (f *fakeMaster) highestReport() wire.PhyOffset {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}

// startPeer listens on loopback and serves each connection until the test ends.
func startPeer(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				stop := context.AfterFunc(ctx, func() { closeConn(t, conn) })
				serve(conn)
				if stop() {
					closeConn(t, conn)
				}
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		closeConn(t, l)
		running.Wait()
	})
	return l.Addr().String()
}

func closeConn(t *testing.T, c io.Closer) {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// startHTTP starts what answers like a web server to a request that it does not
// understand.
func startHTTP(t *testing.T) (addr string) {
	t.Helper()
	return startPeer(t, func(conn net.Conn) {
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			return
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request"); err != nil {
			return
		}
	})
}

// header writes a frame's header without any check.
func header(to io.Writer, at wire.PhyOffset, size int32) error {
	b := binary.BigEndian.AppendUint64(nil, uint64(at))
	_, err := to.Write(binary.BigEndian.AppendUint32(b, uint32(size)))
	return err
}

// sendLog serves [from, to) of a store with segments of 1 MiB, as a master does.
func sendLog(w io.Writer, dir string, from, to wire.PhyOffset) error {
	for at := from; at < to; {
		base := at.SegmentBase(wire.MiB)
		b, err := os.ReadFile(filepath.Join(dir, "commitlog", commitlog.Name(base)))
		if err != nil {
			return err
		}
		n := min(to.Sub(at), base.Add(wire.MiB).Sub(at), ha.StockBatch)
		if err := header(w, at, int32(n)); err != nil {
			return err
		}
		if _, err := w.Write(b[at.Sub(base):][:n]); err != nil {
			return err
		}
		at = at.Add(n)
	}
	return nil
}
