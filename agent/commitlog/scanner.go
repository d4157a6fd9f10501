package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime/debug"

	"github.com/haagent/haagent/wire"
)

// Scanner walks over the records of a commit log directory, across the ends of
// segments. It is an iterator whose end is not final: when Err is ErrNotYet,
// Next may be called again, and goes on with what was written meanwhile.
//
// The directory may be in use: segments may appear and old ones may be deleted.
// While a broker writes, the last record before an ErrNotYet may have been
// returned before all of it was there: brokers store topic and properties last,
// and no check covers them. It is whole when another record follows it.
//
// A Scanner belongs to one goroutine.
type Scanner struct {
	dir  string
	size wire.ByteSize

	at      wire.PhyOffset // start of the next record
	view    *View          // the segment that holds at, nil when it is to be opened
	base    wire.PhyOffset // start of view
	rec     Record
	err     error
	torn    *CorruptError
	records int64
}

// NewScanner returns a Scanner over the segments of the given size in dir, which
// starts at the record boundary from; wire.NoOffset stands for the start of the
// first segment. It looks at the names and lengths of all segments first and
// returns what List and CheckSegments find wrong with them, or a *RangeError
// where from is outside of them. A directory without any segment is no error.
func NewScanner(dir string, size wire.ByteSize, from wire.PhyOffset) (*Scanner, error) {
	segs, err := List(dir)
	if err != nil {
		return nil, err
	}
	if err := CheckSegments(segs, size); err != nil {
		return nil, err
	}
	if from == wire.NoOffset {
		from = 0
		if len(segs) > 0 {
			from = segs[0].Base
		}
	}
	if len(segs) > 0 {
		if first, end := segs[0].Base, segs[len(segs)-1].End(); from < first || from > end {
			return nil, &RangeError{PhyOffset: from, Min: first, End: end}
		}
	}
	if from < 0 {
		return nil, &RangeError{PhyOffset: from}
	}
	return &Scanner{dir: dir, size: size, at: from}, nil
}

// Next advances to the next record and reports whether there is one. It steps
// over BLANKs. After false, Err says why.
func (s *Scanner) Next() bool {
	s.torn = nil
	for {
		s.err = s.step()
		switch {
		case s.err == nil:
			s.at = s.rec.End()
			s.records++
			return true
		case errors.Is(s.err, ErrSegmentEnd):
			s.at = s.rec.End()
			if s.err = s.closeView(); s.err == nil {
				continue
			}
		case s.judgeEnd():
			continue
		}
		s.rec = Record{}
		return false
	}
}

// Record returns the record that Next advanced to. It is valid until the next
// call of Next or Close. Its bytes are mapped memory: read them under Guard where
// the directory is not one's own.
func (s *Scanner) Record() *Record { return &s.rec }

// Offset returns the end of the valid data so far: the end of the last record or
// BLANK that Next went over, or the offset it started at.
func (s *Scanner) Offset() wire.PhyOffset { return s.at }

// Records returns the number of records that Next has returned.
func (s *Scanner) Records() int64 { return s.records }

// Err returns why Next returned false:
//   - ErrNotYet: here the log ends, with or without a torn record, see Torn;
//   - *CorruptError: damage, with something behind it;
//   - *HoleError: nothing here, but there is data in a later segment;
//   - *RangeError: the segment was deleted before it was read;
//   - *LengthError, *FaultError or an error of the file system.
func (s *Scanner) Err() error { return s.err }

// Torn returns what is wrong with the last record, if Err is ErrNotYet because
// nothing but zeros follows a bad record: one that is being written right now, or
// was when the broker died. A broker recovering the log cuts it off.
func (s *Scanner) Torn() *CorruptError { return s.torn }

// Close unmaps what is open. The Scanner must not be used any more.
func (s *Scanner) Close() error {
	s.rec = Record{}
	return s.closeView()
}

// step parses the record at s.at, guarded.
func (s *Scanner) step() (err error) {
	if s.view == nil {
		if err := s.open(); err != nil {
			return err
		}
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { asFault(recover(), &err) }()
	window := s.view.Bytes()[s.at.Sub(s.base):]
	if err = Parse(window, s.at, s.base.Add(s.size), &s.rec); err != nil {
		nameFile(err, s.view.Path())
	}
	return err
}

// nameFile puts the path of the segment into a CorruptError of Parse.
func nameFile(err error, path string) {
	var damage *CorruptError
	if errors.As(err, &damage) {
		damage.File = path
	}
}

// open maps the segment that holds s.at. It is found by its name, never by its
// place in a list: lists shrink while old segments are deleted.
func (s *Scanner) open() error {
	base := s.at.SegmentBase(s.size)
	view, err := OpenView(filepath.Join(s.dir, Name(base)))
	if errors.Is(err, fs.ErrNotExist) {
		return s.missing()
	}
	if err != nil {
		return fmt.Errorf("scan at offset %d: %w", s.at, err)
	}
	if view.Size() == 0 {
		return ErrNotYet // being created
	}
	if view.Size() != s.size {
		err := &LengthError{Path: view.Path(), Size: view.Size(), Want: s.size}
		return errors.Join(err, view.Close())
	}
	if err := view.AdviseSequential(); err != nil {
		return errors.Join(err, view.Close())
	}
	s.view, s.base = view, base
	return nil
}

// missing says what it means that there is no segment that holds s.at.
func (s *Scanner) missing() error {
	segs, err := List(s.dir)
	if err != nil {
		return err
	}
	for i, seg := range segs {
		switch {
		case seg.Base <= s.at && s.at < seg.Base.Add(s.size):
			return ErrNotYet // born since
		case seg.Base > s.at && i == 0: // expired
			return &RangeError{PhyOffset: s.at, Min: seg.Base, End: segs[len(segs)-1].End()}
		case seg.Base > s.at:
			return &HoleError{After: s.at, Before: seg.Base}
		}
	}
	return ErrNotYet
}

func (s *Scanner) closeView() error {
	if s.view == nil {
		return nil
	}
	err := s.view.Close()
	s.view = nil
	return err
}
