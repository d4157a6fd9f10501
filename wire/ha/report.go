package ha

import (
	"encoding/binary"
	"io"

	"github.com/haagent/haagent/wire"
)

// AppendReport appends the ReportSize bytes of a slave's report to b. A
// negative offset is a programming error and panics: no broker knows it.
func AppendReport(b []byte, off wire.PhyOffset) []byte {
	if off < 0 {
		panic(&FrameError{PhyOffset: off, Reason: ReasonNegativeOffset})
	}
	return binary.BigEndian.AppendUint64(b, uint64(off))
}

// ParseReport reads the report in the first ReportSize bytes of b. It returns
// io.EOF if b is empty, io.ErrUnexpectedEOF if it is too short, and a
// *FrameError, which matches ErrFrame, if the offset is negative.
func ParseReport(b []byte) (wire.PhyOffset, error) {
	if err := whole(b, ReportSize); err != nil {
		return wire.NoOffset, err
	}
	off := wire.PhyOffset(int64(binary.BigEndian.Uint64(b)))
	if off < 0 {
		return wire.NoOffset, &FrameError{PhyOffset: off, Reason: ReasonNegativeOffset}
	}
	return off, nil
}

// reportBatch is how many reports one read can take: a slave sends one for
// each frame it stored, so many queue up while the reader is busy.
const reportBatch = 512

// ReportReader reads a slave's reports from a connection. It does not allocate
// once it is made. It is not safe for concurrent use.
type ReportReader struct {
	r   io.Reader
	n   int // bytes of an unfinished report at the start of buf
	err error
	buf [reportBatch * ReportSize]byte
}

// NewReportReader returns a reader of the reports that arrive on r.
func NewReportReader(r io.Reader) *ReportReader { return &ReportReader{r: r} }

// First returns the next report, and never skips one: a slave's first report
// is its request, whatever it sent behind it.
func (r *ReportReader) First() (wire.PhyOffset, error) {
	for r.n < ReportSize {
		if err := r.fill(); err != nil {
			return wire.NoOffset, err
		}
	}
	off, err := ParseReport(r.buf[:ReportSize])
	if err != nil {
		return wire.NoOffset, r.fail(err)
	}
	r.n = copy(r.buf[:], r.buf[ReportSize:r.n])
	return off, nil
}

// Next waits for at least one whole report and returns the last whole one that
// has arrived, as a broker does; bytes of an unfinished one are kept for later.
// A report that the read stepped over must be valid all the same.
//
// It returns io.EOF where the stream ends between two reports,
// io.ErrUnexpectedEOF where it ends inside one, a *FrameError, which matches
// ErrFrame, for a negative report, and otherwise what the connection returned.
// An error other than a timeout of the connection stays.
func (r *ReportReader) Next() (wire.PhyOffset, error) {
	for r.n < ReportSize {
		if err := r.fill(); err != nil {
			return wire.NoOffset, err
		}
	}
	whole := r.n - r.n%ReportSize
	last := wire.NoOffset
	for at := 0; at < whole; at += ReportSize {
		off, err := ParseReport(r.buf[at:])
		if err != nil {
			return wire.NoOffset, r.fail(err)
		}
		last = off
	}
	r.n = copy(r.buf[:], r.buf[whole:r.n])
	return last, nil
}

// fill reads once. What came together with an error is kept, and the error is
// returned when it is asked for more.
func (r *ReportReader) fill() error {
	if r.err != nil {
		return r.err
	}
	n, err := r.r.Read(r.buf[r.n:])
	r.n += n
	if err == nil {
		return nil
	}
	if err == io.EOF && r.n%ReportSize != 0 {
		err = io.ErrUnexpectedEOF
	}
	if t, ok := err.(interface{ Timeout() bool }); ok && t.Timeout() {
		if n > 0 {
			return nil // the next call meets the deadline again
		}
		return err
	}
	r.err = err
	if n > 0 {
		return nil
	}
	return err
}

func (r *ReportReader) fail(err error) error {
	r.err, r.n = err, 0
	return err
}
