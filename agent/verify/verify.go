// Package verify reads whole stores and says what is in them: how far the log
// is valid, and whether two stores hold the same bytes. It changes nothing and
// may be used while a broker or an agent works on the store.
package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// Report is what walking over one store found.
type Report struct {
	Dir         string         `json:"dir"`
	SegmentSize wire.ByteSize  `json:"segmentSize"`
	Segments    int            `json:"segments"`
	Min         wire.PhyOffset `json:"min"`
	End         wire.PhyOffset `json:"end"` // of the valid messages
	Messages    int64          `json:"messages"`
	Bad         *Bad           `json:"bad,omitempty"`  // damage: nothing behind it would be served
	Torn        *Bad           `json:"torn,omitempty"` // an unfinished last message, which a broker cuts off
}

// Bad is a place where no message is.
type Bad struct {
	File      string         `json:"file"`
	PhyOffset wire.PhyOffset `json:"phyOffset"`
	Reason    string         `json:"reason"`
}

// ErrNoStore says that a directory is no store.
var ErrNoStore = errors.New("not a store")

// LogDir returns the directory of the segments of the store at dir: its
// commitlog directory, or dir itself where the segments lie in it.
func LogDir(dir string) (string, error) {
	log := filepath.Join(dir, "commitlog")
	if info, err := os.Stat(log); err == nil && info.IsDir() {
		return log, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("%s: %w: %w", dir, ErrNoStore, err)
	}
	for _, e := range entries {
		if _, err := commitlog.ParseName(e.Name()); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s: %w: it has no commitlog directory", dir, ErrNoStore)
}

// Store walks over the store at dir. The error is about not being able to look;
// damage is in the report. progress, where not nil, is told the offset reached
// and the end of the last segment.
func Store(ctx context.Context, dir string, progress func(at, of wire.PhyOffset)) (Report, error) {
	r := Report{Dir: dir}
	log, err := LogDir(dir)
	if err != nil {
		return r, err
	}
	segments, err := commitlog.List(log)
	if err != nil {
		return r, err
	}
	r.Segments = len(segments)
	if len(segments) == 0 {
		return r, nil
	}
	if r.SegmentSize, err = commitlog.GuessSegmentSize(segments); err != nil {
		return r, err
	}
	r.Min, r.End = segments[0].Base, segments[0].Base
	err = r.walk(ctx, log, segments, progress)
	return r, err
}

func (r *Report) walk(ctx context.Context, log string, segments []commitlog.Segment, progress func(at, of wire.PhyOffset)) (err error) {
	var hole *commitlog.HoleError
	if err := commitlog.CheckSegments(segments, r.SegmentSize); errors.As(err, &hole) {
		r.Bad = &Bad{File: log, PhyOffset: hole.After, Reason: hole.Error()}
		return nil
	}
	s, err := openScanner(ctx, log, r.SegmentSize)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for s.Next() {
		if r.Messages++; r.Messages%4096 != 0 {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if progress != nil {
			progress(s.Offset(), segments[len(segments)-1].End())
		}
	}
	r.Messages, r.End = s.Records(), s.Offset()
	var corrupt *commitlog.CorruptError
	switch why := s.Err(); {
	case errors.Is(why, commitlog.ErrNotYet):
		if t := s.Torn(); t != nil {
			r.Torn = &Bad{File: t.File, PhyOffset: t.PhyOffset, Reason: t.Reason}
		}
	case errors.As(why, &corrupt):
		r.Bad = &Bad{File: corrupt.File, PhyOffset: corrupt.PhyOffset, Reason: corrupt.Reason}
	case errors.As(why, &hole):
		r.Bad = &Bad{File: log, PhyOffset: hole.After, Reason: hole.Error()}
	default:
		return why
	}
	return nil
}

// A broker that is just creating a segment shows it empty for a moment, longer on
// a slow disk.
const (
	birthTime  = 2 * time.Second
	birthPause = 5 * time.Millisecond
)

// openScanner opens a scanner of a whole log, and waits for a segment that is
// just being born.
func openScanner(ctx context.Context, log string, size wire.ByteSize) (*commitlog.Scanner, error) {
	tick := time.NewTicker(birthPause)
	defer tick.Stop()
	for began := time.Now(); ; {
		s, err := commitlog.NewScanner(log, size, wire.NoOffset)
		var length *commitlog.LengthError
		if err == nil || !errors.As(err, &length) || length.Size != 0 || time.Since(began) > birthTime {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// Comparison is what holding two stores against each other found.
type Comparison struct {
	A           Report         `json:"a"`
	B           Report         `json:"b"`
	From        wire.PhyOffset `json:"from"`        // first offset that both have
	IdenticalTo wire.PhyOffset `json:"identicalTo"` // both have the same bytes up to here
	// Different is the first byte that differs among the valid messages of both,
	// wire.NoOffset where there is none.
	Different wire.PhyOffset `json:"different"`
}

// Same reports whether the two have the same bytes wherever both have messages,
// and neither is damaged.
func (c Comparison) Same() bool {
	return c.Different == wire.NoOffset && c.A.Bad == nil && c.B.Bad == nil && c.From <= c.IdenticalTo
}

// Compare walks over both stores and compares the bytes that both have.
func Compare(ctx context.Context, a, b string, progress func(at, of wire.PhyOffset)) (Comparison, error) {
	c := Comparison{Different: wire.NoOffset}
	var err error
	// The replica is read first: a source that grows meanwhile stays ahead.
	if c.B, err = Store(ctx, b, progress); err != nil {
		return c, err
	}
	if c.A, err = Store(ctx, a, progress); err != nil {
		return c, err
	}
	c.From = max(c.A.Min, c.B.Min)
	c.IdenticalTo = min(c.A.End, c.B.End)
	if c.From >= c.IdenticalTo {
		return c, nil
	}
	at, err := firstDifference(ctx, c)
	if err != nil {
		return c, err
	}
	if at != wire.NoOffset {
		c.Different, c.IdenticalTo = at, at
	}
	return c, nil
}

// firstDifference compares [From, IdenticalTo) piece by piece.
func firstDifference(ctx context.Context, c Comparison) (wire.PhyOffset, error) {
	ra, rb := &reader{report: c.A}, &reader{report: c.B}
	defer ra.close()
	defer rb.close()
	for at := c.From; at < c.IdenticalTo; {
		if ctx.Err() != nil {
			return wire.NoOffset, ctx.Err()
		}
		n := min(c.IdenticalTo.Sub(at), 4*wire.MiB)
		pa, err := ra.piece(at, n)
		if err != nil {
			return wire.NoOffset, err
		}
		pb, err := rb.piece(at, wire.ByteSize(len(pa)))
		if err != nil {
			return wire.NoOffset, err
		}
		pa = pa[:len(pb)]
		found := -1
		err = commitlog.Guard(func() error {
			if !bytes.Equal(pa, pb) {
				for found = 0; pa[found] == pb[found]; found++ {
				}
			}
			return nil
		})
		if err != nil {
			return wire.NoOffset, err
		}
		if found >= 0 {
			return at.Add(wire.ByteSize(found)), nil
		}
		at = at.Add(wire.ByteSize(len(pb)))
	}
	return wire.NoOffset, nil
}

// reader maps one segment of a store after the other.
type reader struct {
	report Report
	base   wire.PhyOffset
	view   *commitlog.View
}

// piece returns up to n bytes at offset at, less where the segment ends.
func (r *reader) piece(at wire.PhyOffset, n wire.ByteSize) ([]byte, error) {
	base := at.SegmentBase(r.report.SegmentSize)
	if r.view == nil || r.base != base {
		r.close()
		log, err := LogDir(r.report.Dir)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(log, commitlog.Name(base))
		if r.view, err = commitlog.OpenView(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s was deleted meanwhile: %w", path, err)
		} else if err != nil {
			return nil, err
		}
		r.base = base
	}
	b := r.view.Bytes()[at.Sub(base):]
	return b[:min(n, wire.ByteSize(len(b)))], nil
}

func (r *reader) close() {
	if r.view != nil {
		// Unmapping what was only read cannot lose anything.
		if err := r.view.Close(); err == nil {
			r.view = nil
		}
	}
}
