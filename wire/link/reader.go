package link

import (
	"errors"
	"io"
	"unsafe"

	"github.com/haagent/haagent/wire"
)

// firstBuffer is what a payload is read into before more than that has arrived.
const firstBuffer = 4 * wire.KiB

// Reader takes frames from a stream. It never reads beyond the frame it
// returns, so the stream may be handed on between two frames. It is used by one
// goroutine at a time.
type Reader struct {
	from    io.Reader
	allowed uint32 // one bit for each type
	head    [HeaderSize]byte
	buf     []byte // as long as its capacity; kept between frames
	err     error  // what ended the stream
}

// NewReader returns a Reader of r's frames, of every type.
func NewReader(r io.Reader) *Reader {
	return &Reader{from: r, allowed: ^uint32(0)}
}

// Expect says which types may come from now on; none stands for all. Others are
// refused by their header with ErrUnexpected, so that a peer cannot have more
// read than its next step needs.
func (r *Reader) Expect(types ...Type) {
	r.allowed = 0
	for _, t := range types {
		r.allowed |= 1 << t
	}
	if len(types) == 0 {
		r.allowed = ^uint32(0)
	}
}

// Next returns the next frame's type and payload, which is valid until the next
// call. It allocates nothing once it has seen a frame as large.
//
// It returns io.EOF where the stream ends between frames, io.ErrUnexpectedEOF
// where it ends inside one, and a *FrameError for bytes that are no frame; other
// errors are those of the stream. All of them are final, except an error of the
// stream that is not io.EOF and came before a frame's first byte, such as a
// deadline that passed: Next may be called again then.
func (r *Reader) Next() (Type, []byte, error) {
	if r.err != nil {
		return 0, nil, r.err
	}
	n, err := io.ReadFull(r.from, r.head[:])
	if err != nil {
		if n > 0 || errors.Is(err, io.EOF) {
			r.err = err
		}
		return 0, nil, err
	}
	h, err := parseHeader(r.head[:])
	if err == nil && r.allowed&(1<<h.typ) == 0 {
		err = refuse(h.typ, ErrUnexpected, "it makes no sense here")
	}
	if err != nil {
		r.err = err
		return 0, nil, err
	}
	if err := r.fill(int(h.size)); err != nil {
		r.err = err
		return 0, nil, err
	}
	payload := r.buf[:h.size]
	if got := checksum(r.head[:], payload, nil); got != h.crc {
		r.err = refuse(h.typ, ErrChecksum, "%08x computed over %d bytes, %08x received", got, h.size, h.crc)
		return 0, nil, r.err
	}
	return h.typ, payload, nil
}

// Exchange hands the buffer that the last payload lies in to the caller, to keep it
// beyond the next call of Next, and goes on with another one: an older one, or nil.
func (r *Reader) Exchange(buf []byte) []byte {
	r.buf, buf = buf, r.buf
	return buf
}

// Buffers as large as alignedBuffer begin such that the body of a Transfer lies at
// the start of a page, as it does in the page cache that it comes from: some
// processors copy five times slower to where the last bits of the address are a
// little higher than those of the address that they copy from (16 bytes here).
const alignedBuffer = 64 * wire.KiB

// PageSize is where senders should end large bodies: the next one then lies in the
// page cache as it will lie in the buffer.
const PageSize = 4 * wire.KiB

func newBuffer(n int) []byte {
	if n < int(alignedBuffer) {
		return make([]byte, n)
	}
	b := make([]byte, n+int(PageSize))
	over := (uintptr(unsafe.Pointer(unsafe.SliceData(b))) + transferFixed) % uintptr(PageSize)
	skip := int(uintptr(PageSize) - over)
	return b[skip : skip+n : skip+n]
}

// fill reads n bytes into the buffer, which is never more than twice as long as
// what has arrived at any time, now or before.
func (r *Reader) fill(n int) error {
	have := 0
	for {
		if have == len(r.buf) && have < n {
			grown := newBuffer(min(n, max(2*have, int(firstBuffer))))
			copy(grown, r.buf)
			r.buf = grown
		}
		end := min(n, len(r.buf))
		m, err := io.ReadFull(r.from, r.buf[have:end])
		have += m
		switch {
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case have == n:
			return nil
		}
	}
}
