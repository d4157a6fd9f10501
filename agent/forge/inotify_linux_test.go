package forge_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// The kernel tells nobody about a stored record, as with a broker: a test that
// passes only because of such an event proves nothing about brokers.
func TestFault76_StoresAreNotWrites(t *testing.T) {
	w := open(t, forge.Options{SegmentSize: wire.MiB})
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}()
	if _, err := unix.InotifyAddWatch(fd, w.CommitLogDir(), unix.IN_ALL_EVENTS); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if _, err := w.Append(forge.Message{Topic: "t", Body: []byte("unseen")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	if n, err := unix.Read(fd, buf); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%d bytes of events, %v", n, err)
	}
	// The watch itself works.
	if err := w.Roll(); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(fd, buf); n <= 0 || err != nil {
		t.Errorf("no event for a new segment: %v", err)
	}
}
