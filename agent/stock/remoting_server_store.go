package stock

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// storeHandlers returns the handlers of the requests that the options tell the
// answers to.
func storeHandlers(opt RemotingServerOptions) map[remoting.RequestCode]RemotingHandler {
	handlers := make(map[remoting.RequestCode]RemotingHandler)
	answer := func(code remoting.RequestCode, f func(context.Context, remoting.Command) remoting.Command) {
		handlers[code] = func(ctx context.Context, _ net.Addr, req remoting.Command) remoting.Command { return f(ctx, req) }
	}
	if opt.Config != nil {
		body := propertiesText(opt.Config)
		answer(remoting.GetBrokerConfig, func(_ context.Context, req remoting.Command) remoting.Command {
			a := req.Reply(remoting.Success, "")
			a.ExtFields = map[string]string{"version": `{"counter":0,"timestamp":0}`}
			a.Body = body
			return a
		})
	}
	if opt.CommitLogDir != "" {
		l := logAnswers{opt}
		answer(remoting.GetBrokerRuntimeInfo, l.runtimeInfo)
		answer(remoting.ViewMessageByID, l.viewMessage)
	}
	if opt.Dir != "" {
		v4 := strings.HasPrefix(opt.Version, "V4_") || strings.HasPrefix(opt.Version, "V3_")
		for code, body := range configAnswers(opt.Dir, v4) {
			answer(code, func(ctx context.Context, req remoting.Command) remoting.Command {
				b, err := body(ctx)
				if err != nil {
					return req.Reply(configProblem(err), err.Error())
				}
				a := req.Reply(remoting.Success, "")
				a.Body = b
				return a
			})
		}
	}
	return handlers
}

// propertiesText writes properties, one a line in the order of their names, so
// that remoting.ParseProperties reads the same.
func propertiesText(m map[string]string) []byte {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m)) {
		escapeProperty(&b, key, true)
		b.WriteByte('=')
		escapeProperty(&b, m[key], false)
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// escapeProperty writes a key, or a value, whose first blanks alone would be lost.
func escapeProperty(b *strings.Builder, s string, key bool) {
	leading := true
	for i := range len(s) {
		switch c := s[i]; c {
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\f':
			b.WriteString(`\f`)
		case '\\':
			b.WriteString(`\\`)
		case ' ', '=', ':', '#', '!':
			if key || leading && c == ' ' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
			if c == ' ' {
				continue
			}
		default:
			b.WriteByte(c)
		}
		leading = false
	}
}

// logAnswers answers what can be asked about a log.
type logAnswers struct{ opt RemotingServerOptions }

// runtimeInfo answers request 28. A log without a segment begins at -1 and ends
// at 0, in a broker's words.
func (l logAnswers) runtimeInfo(_ context.Context, req remoting.Command) remoting.Command {
	end := l.opt.End() // before the beginning, which may pass an end taken later
	if end < 0 {
		return req.Reply(remoting.SystemBusy, "the end of the log is not known yet")
	}
	first, err := l.first()
	if err != nil {
		return req.Reply(remoting.SystemError, err.Error())
	}
	table := map[string]string{
		"brokerVersionDesc":  l.opt.Version,
		"brokerVersion":      strconv.Itoa(l.opt.VersionNumber),
		"commitLogMinOffset": first.String(),
		"commitLogMaxOffset": max(end, first, 0).String(),
	}
	body, err := json.Marshal(map[string]any{"table": table})
	if err != nil {
		return req.Reply(remoting.SystemError, err.Error())
	}
	a := req.Reply(remoting.Success, "")
	a.Body = body
	return a
}

// first returns the start of the first segment, wire.NoOffset if there is none.
func (l logAnswers) first() (wire.PhyOffset, error) {
	if l.opt.Min != nil {
		return l.opt.Min(), nil
	}
	segs, err := commitlog.List(l.opt.CommitLogDir)
	var foreign *commitlog.ForeignFileError
	if err != nil && !errors.As(err, &foreign) {
		return wire.NoOffset, err
	}
	if len(segs) == 0 {
		return wire.NoOffset, nil
	}
	return segs[0].Base, nil
}

// viewMessage answers request 33 with the record that begins at the offset.
func (l logAnswers) viewMessage(_ context.Context, req remoting.Command) remoting.Command {
	field := req.ExtFields["offset"]
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil {
		return req.Reply(remoting.SystemError, fmt.Sprintf("the field offset is %q, not a number", field))
	}
	record, err := l.record(wire.PhyOffset(n))
	if err != nil {
		return req.Reply(remoting.SystemError, err.Error())
	}
	if record == nil {
		return req.Reply(remoting.SystemError, fmt.Sprintf("can not find message by the offset, %d", n))
	}
	a := req.Reply(remoting.Success, "")
	a.Body = record
	return a
}

// The start of a record, up to and with the offset it carries of itself.
const (
	recordOffsetAt = 28
	recordHead     = 36
)

// record returns the whole record that begins at off, nil if none does. Unlike a
// broker it does not take any 4 bytes for a length.
func (l logAnswers) record(off wire.PhyOffset) (_ []byte, err error) {
	end := l.opt.End()
	if off < 0 || off.Add(recordHead) > end {
		return nil, nil
	}
	base := off.SegmentBase(l.opt.SegmentSize)
	end = min(end, base.Add(l.opt.SegmentSize))
	f, err := openSegment(l.opt.CommitLogDir, base, l.opt.SegmentSize)
	if f == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var head [recordHead]byte
	if off.Add(recordHead) > end {
		return nil, nil
	}
	if _, err := f.ReadAt(head[:], int64(off.Sub(base))); err != nil {
		return nil, fmt.Errorf("message at %d: %w", off, err)
	}
	size := wire.ByteSize(int32(binary.BigEndian.Uint32(head[:])))
	own := wire.PhyOffset(binary.BigEndian.Uint64(head[recordOffsetAt:]))
	if own != off || size < recordHead || size > end.Sub(off) || size > remoting.MaxFrame {
		return nil, nil
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, int64(off.Sub(base))); err != nil {
		return nil, fmt.Errorf("message at %d: %w", off, err)
	}
	var r commitlog.Record
	if err := commitlog.Parse(b, off, base.Add(l.opt.SegmentSize), &r); err != nil || r.Blank() {
		return nil, nil
	}
	return b, nil
}
