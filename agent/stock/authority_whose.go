package stock

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// whose proves that the surveyed broker writes our directory. What proves it:
//
//   - A broker on this host names a directory that is ours, and has the message
//     which begins our last segment: a container's paths mean something else here.
//   - A broker whose directory cannot be looked at from here has the last message
//     of ours.
//
// It returns a Problem where the broker is another one, and another error where
// that cannot be told.
func (a *Authority) whose(ctx context.Context, s Survey) error {
	_, local := a.opt.Broker.dialled()
	named := namedDirs(s.Config)
	found, visible := ourDir(a.opt.CommitLogDir, named)
	if local && visible && !found {
		return a.otherBroker(s, nil, "it writes %s", strings.Join(named, ", "))
	}
	byName := local && visible
	at, err := a.witness(s, byName)
	if err != nil {
		return err
	}
	if at == wire.NoOffset {
		if byName {
			return nil // nothing is stored yet
		}
		return fmt.Errorf("broker %s writes %s, which cannot be looked at from here, and has no message yet that tells whether that is %s",
			a.opt.Broker.Addr(), strings.Join(named, ", "), a.opt.CommitLogDir)
	}
	own, err := readMessage(a.opt.CommitLogDir, s.Config.SegmentSize, at)
	if err != nil {
		return a.otherBroker(s, err, "its message at %d is not here", at)
	}
	theirs, err := a.opt.Broker.ViewMessage(ctx, at)
	switch {
	case errors.Is(err, ErrNoMessage):
		return a.otherBroker(s, nil, "it has no message at %d", at)
	case err != nil:
		return asLocal(BrokerProblem(a.opt.Broker.Addr(), err))
	case !bytes.Equal(own, theirs):
		return a.otherBroker(s, nil, "it has another message at %d", at)
	}
	return nil
}

// otherBroker is the Problem of a broker that writes another directory.
func (a *Authority) otherBroker(s Survey, err error, format string, args ...any) error {
	return state.Problemf(state.Incompatible, "other_broker", "give the listenPort of the broker whose storePathCommitLog is "+a.opt.CommitLogDir+" as --broker", err,
		"%s (%s, brokerId %d) is not the broker of %s: %s", a.opt.Broker.Addr(), s.Config.BrokerName, s.Config.BrokerID, a.opt.CommitLogDir, fmt.Sprintf(format, args...))
}

// asLocal names the flag of the local broker in what to try.
func asLocal(err error) error {
	if p := state.AsProblem(err); p != nil && strings.Contains(p.Try, "--master") {
		local := *p
		local.Try = strings.ReplaceAll(p.Try, "--master", "--broker")
		return &local
	}
	return err
}

// namedDirs returns the directories that a broker keeps its segments in.
func namedDirs(cfg BrokerConfig) []string {
	if cfg.StorePathCommitLog == "" {
		return []string{filepath.Join(cfg.Raw["storePathRootDir"], "commitlog")}
	}
	return strings.Split(cfg.StorePathCommitLog, ",")
}

// ourDir reports whether dir is among the named directories, and whether these
// can be looked at at all.
func ourDir(dir string, named []string) (found, visible bool) {
	own, err := os.Stat(dir)
	if err != nil {
		return false, false
	}
	for _, name := range named {
		if !filepath.IsAbs(name) {
			continue // below the directory that the broker was started in
		}
		if theirs, err := os.Stat(name); err == nil {
			visible = true
			found = found || os.SameFile(own, theirs)
		}
	}
	return found, visible
}

// witness returns where a message begins that tells this log from others:
// the first one of the last segment, or else the last one of all.
// wire.NoOffset: there is none.
func (a *Authority) witness(s Survey, first bool) (wire.PhyOffset, error) {
	size := s.Config.SegmentSize
	if s.Max == 0 {
		return wire.NoOffset, nil
	}
	base := (s.Max - 1).SegmentBase(size)
	view, err := commitlog.OpenView(filepath.Join(a.opt.CommitLogDir, commitlog.Name(base)))
	if errors.Is(err, os.ErrNotExist) {
		if s.Max == base.Add(size) {
			return wire.NoOffset, nil // all of it has expired
		}
		return wire.NoOffset, a.otherBroker(s, err, "its log ends at %d", s.Max)
	}
	if err != nil {
		return wire.NoOffset, fmt.Errorf("compare with broker %s: %w", a.opt.Broker.Addr(), err)
	}
	last := wire.NoOffset
	err = commitlog.Guard(func() error {
		b := view.Bytes()
		last = lastMessage(b[:min(len(b), int(s.Max.Sub(base)))], first)
		return nil
	})
	if err = errors.Join(err, view.Close()); err != nil {
		return wire.NoOffset, fmt.Errorf("compare with broker %s: %w", a.opt.Broker.Addr(), err)
	}
	if last == wire.NoOffset {
		return last, nil
	}
	return base + last, nil
}

// lastMessage returns where the last whole message of a segment's valid bytes
// begins, or the first one. It looks at lengths and magics only.
func lastMessage(b []byte, first bool) wire.PhyOffset {
	const magicAt = 4
	last := wire.NoOffset
	for at := 0; len(b)-at >= int(commitlog.BlankSize); {
		n := int(commitlog.LoadSize(b[at:]))
		if n < int(commitlog.BlankSize) || n > len(b)-at {
			break
		}
		if magic := binary.BigEndian.Uint32(b[at+magicAt:]); magic != commitlog.MagicV1 && magic != commitlog.MagicV2 {
			break
		}
		last = wire.PhyOffset(at)
		if first {
			break
		}
		at += n
	}
	return last
}

// readMessage reads the message that begins at an offset of a directory.
func readMessage(dir string, size wire.ByteSize, at wire.PhyOffset) ([]byte, error) {
	var head [4]byte
	if err := readLog(dir, size, at, head[:]); err != nil {
		return nil, err
	}
	n := wire.ByteSize(int32(binary.BigEndian.Uint32(head[:])))
	if n < commitlog.MinRecord || n > commitlog.MaxRecord {
		return nil, fmt.Errorf("no message begins at offset %d", at)
	}
	b := make([]byte, n)
	return b, readLog(dir, size, at, b)
}

// readLog fills b with the bytes of the log from an offset on, which must lie in
// one segment.
func readLog(dir string, size wire.ByteSize, at wire.PhyOffset, b []byte) error {
	base := at.SegmentBase(size)
	f, err := openSegment(dir, base, size)
	if err != nil {
		return err
	}
	if f == nil {
		return fmt.Errorf("no segment of %s at offset %d in %s", size, base, dir)
	}
	if _, err = f.ReadAt(b, int64(at.Sub(base))); err != nil {
		err = fmt.Errorf("read %d bytes at offset %d: %w", len(b), at, err)
	}
	return errors.Join(err, f.Close())
}
