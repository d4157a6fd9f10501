package link

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pump sends frames whose bodies lie in files, without taking them through this
// process. It allocates nothing.
type pump struct {
	raw  syscall.RawConn
	step func(fd uintptr) bool // p.write, made once

	head []byte
	file *os.File
	fd   int // of file
	off  int64
	left int
	err  error
}

func newPump(raw syscall.RawConn) *pump {
	p := &pump{raw: raw}
	p.step = p.write
	return p
}

// send sends head, and the n bytes of file at off behind it. The deadline is the
// connection's.
func (p *pump) send(head []byte, file *os.File, off int64, n int) error {
	p.head, p.file, p.fd, p.off, p.left, p.err = head, file, int(file.Fd()), off, n, nil
	err := p.raw.Write(p.step)
	if err == nil {
		err = p.err
	}
	p.file = nil
	return err
}

// write sends as much as fits into the socket; false says that it is full.
func (p *pump) write(fd uintptr) bool {
	for len(p.head) > 0 {
		// MSG_MORE: the head goes with the first bytes of the body.
		n, _, errno := unix.Syscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&p.head[0])), uintptr(len(p.head)), unix.MSG_MORE|unix.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			p.head = p.head[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			p.err = os.NewSyscallError("sendto", errno)
			return true
		}
	}
	for p.left > 0 {
		n, err := unix.Sendfile(int(fd), p.fd, &p.off, p.left)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return false
		case err != nil:
			p.err = os.NewSyscallError("sendfile", err)
			return true
		case n == 0:
			p.err = fmt.Errorf("segment %s was cut short: %w", p.file.Name(), io.ErrUnexpectedEOF)
			return true
		default:
			p.left -= n
		}
	}
	return true
}
