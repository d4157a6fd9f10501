package stock

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/wire"
)

// discardSize is how much one system call throws away: two full frames.
const discardSize = 64 << 10

// discarder throws away bytes of a connection, where that is TCP without copying
// them out of the kernel.
type discarder struct {
	conn net.Conn
	raw  syscall.RawConn       // nil: not TCP
	recv func(fd uintptr) bool // made once, so that a call allocates nothing
	buf  []byte                // of TCP never written to
	want int                   // of recv
	got  int
	err  error
}

func newDiscarder(conn net.Conn) *discarder {
	d := &discarder{conn: conn, buf: make([]byte, discardSize)}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			d.raw, d.recv = raw, d.truncate
		}
	}
	return d
}

// discard throws away exactly n bytes. The connection's read deadline holds.
func (d *discarder) discard(n wire.ByteSize) error {
	for n > 0 {
		d.want = int(min(n, discardSize))
		if err := d.some(); err != nil {
			return err
		}
		n -= wire.ByteSize(d.got)
	}
	return nil
}

// some throws away up to want bytes, and at least one.
func (d *discarder) some() (err error) {
	if d.raw == nil {
		d.got, err = d.conn.Read(d.buf[:d.want])
		if d.got > 0 {
			return nil
		}
		return err
	}
	if err := d.raw.Read(d.recv); err != nil {
		return err
	}
	switch {
	case d.err != nil:
		return fmt.Errorf("discard: %w", os.NewSyscallError("recvfrom", d.err))
	case d.got == 0:
		return io.ErrUnexpectedEOF
	}
	return nil
}

// truncate is one receive; false says to wait until there is something. The
// address that unix.Recvfrom makes room for would be an allocation each time.
func (d *discarder) truncate(fd uintptr) bool {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&d.buf[0])), uintptr(d.want),
			unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		case 0:
			d.got, d.err = int(n), nil
		default:
			d.got, d.err = 0, errno
		}
		return true
	}
}
