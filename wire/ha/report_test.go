package ha_test

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"testing/iotest"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// pieces is a connection that delivers one piece a read and then err.
type pieces struct {
	parts [][]byte
	err   error
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.parts) == 0 {
		if p.err == nil {
			return 0, io.EOF
		}
		return 0, p.err
	}
	n := copy(b, p.parts[0])
	if p.parts[0] = p.parts[0][n:]; len(p.parts[0]) == 0 {
		p.parts = p.parts[1:]
	}
	return n, nil
}

func reports(offs ...wire.PhyOffset) []byte {
	var b []byte
	for _, o := range offs {
		b = ha.AppendReport(b, o)
	}
	return b
}

func TestFault9_GluedAndTornReports(t *testing.T) {
	glued := reports(10, 20, 30, 40, 50)
	torn := reports(60)
	r := ha.NewReportReader(&pieces{parts: [][]byte{glued, torn[:3], torn[3:8], append(reports(70), reports(80)[:5]...), reports(80)[5:]}})
	for _, want := range []wire.PhyOffset{50, 60, 70, 80} {
		if got, err := r.Next(); got != want || err != nil {
			t.Fatalf("got %d, %v; want %d", got, err, want)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestFault9_ResetInsideAReportUsesNoStaleValue(t *testing.T) {
	reset := errors.New("connection reset by peer")
	r := ha.NewReportReader(&pieces{parts: [][]byte{reports(10), reports(20)[:5]}, err: reset})
	if got, err := r.Next(); got != 10 || err != nil {
		t.Fatalf("got %d, %v", got, err)
	}
	for range 2 {
		if got, err := r.Next(); got != wire.NoOffset || err != reset {
			t.Errorf("got %d, %v", got, err)
		}
	}
}

func TestReportsTruncatedAtEveryByte(t *testing.T) {
	all := reports(1, 2, 3)
	for n := range len(all) + 1 {
		r := ha.NewReportReader(iotest.OneByteReader(&pieces{parts: [][]byte{all[:n]}}))
		var got []wire.PhyOffset
		var err error
		for err == nil {
			var off wire.PhyOffset
			if off, err = r.Next(); err == nil {
				got = append(got, off)
			}
		}
		want := io.EOF
		if n%ha.ReportSize != 0 {
			want = io.ErrUnexpectedEOF
		}
		if err != want || len(got) != n/ha.ReportSize {
			t.Errorf("%d bytes: %v, %v; want %v", n, got, err, want)
		}
	}
}

func TestReportArrivingWithTheEndOfTheStreamCounts(t *testing.T) {
	r := ha.NewReportReader(iotest.DataErrReader(&pieces{parts: [][]byte{reports(9)}}))
	if got, err := r.Next(); got != 9 || err != nil {
		t.Fatalf("got %d, %v", got, err)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("got %v", err)
	}
}

func TestNegativeReportEndsTheStreamWhereverItStands(t *testing.T) {
	bad := binary.BigEndian.AppendUint64(nil, 1<<63)
	for name, b := range map[string][]byte{"alone": bad, "glued in": append(append(reports(1), bad...), reports(2)...)} {
		t.Run(name, func(t *testing.T) {
			r := ha.NewReportReader(&pieces{parts: [][]byte{b, reports(3)}})
			for range 2 {
				if off, err := r.Next(); off != wire.NoOffset || !errors.Is(err, ha.ErrFrame) {
					t.Errorf("got %d, %v", off, err)
				}
			}
		})
	}
}

func TestFirstReportIsTheRequestWhateverIsGluedBehind(t *testing.T) {
	r := ha.NewReportReader(iotest.HalfReader(&pieces{parts: [][]byte{reports(0, 10, 20)}}))
	if got, err := r.First(); got != 0 || err != nil {
		t.Fatalf("first: %d, %v", got, err)
	}
	last := wire.NoOffset
	for {
		got, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = got
	}
	if last != 20 {
		t.Errorf("last report %d", last)
	}

	r = ha.NewReportReader(&pieces{parts: [][]byte{binary.BigEndian.AppendUint64(nil, 1<<63)}})
	if _, err := r.First(); !errors.Is(err, ha.ErrFrame) {
		t.Errorf("negative request: %v", err)
	}
	r = ha.NewReportReader(&pieces{parts: [][]byte{reports(5)[:7]}})
	if _, err := r.First(); err != io.ErrUnexpectedEOF {
		t.Errorf("torn request: %v", err)
	}
}

func TestReadDeadlineDoesNotEndTheReader(t *testing.T) {
	p := &pieces{parts: [][]byte{reports(7)[:4]}, err: os.ErrDeadlineExceeded}
	r := ha.NewReportReader(p)
	if _, err := r.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	p.parts = [][]byte{reports(7)[4:]}
	if got, err := r.Next(); got != 7 || err != nil {
		t.Errorf("after the deadline: %d, %v", got, err)
	}
}

// repeating delivers the same bytes for ever.
type repeating struct{ b []byte }

func (r repeating) Read(b []byte) (int, error) { return copy(b, r.b), nil }

func TestReportReaderDoesNotAllocate(t *testing.T) {
	r := ha.NewReportReader(repeating{reports(1, 2, 3)})
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a read", n)
	}
}
