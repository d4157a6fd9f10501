package discovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxMeta is how many bytes a member can say of itself. memberlist panics above.
const MaxMeta = 512

// Meta is what a member says of itself, big endian:
//
//	0         1           9        17
//	| version | brokerID  | epoch  | role | cluster | brokerName | link | ha | remoting | version |
//	  u8 = 1    i64         i64      each: u8 length, UTF-8 without control characters
//
// What is added later stands behind the last field and is ignored by those who
// do not know it, so that old and new agents find each other while a ring is
// upgraded. Only a change that they must not misread counts the version up.
const (
	metaVersion = 1
	metaHead    = 17
)

// errMeta is what every failure of decodeMeta wraps.
var errMeta = errors.New("meta cannot be read")

// metaField is one string of the meta, with the option that sets it.
type metaField struct {
	option string
	at     *string
}

// metaFields lists m's strings in their order on the wire.
func metaFields(m *Member) []metaField {
	return []metaField{
		{"role", &m.Role},
		{"cluster", &m.Cluster},
		{"broker-name", &m.BrokerName},
		{"link-advertise", &m.Link},
		{"ha-bind", &m.HA},
		{"remoting-bind", &m.Remoting},
		{"version", &m.Version},
	}
}

// encodeMeta returns the bytes that m says of itself. It fails with an
// *OptionError that names the field to shorten.
func encodeMeta(m Member) ([]byte, error) {
	out := make([]byte, metaHead, 128)
	out[0] = metaVersion
	binary.BigEndian.PutUint64(out[1:], uint64(m.BrokerID))
	binary.BigEndian.PutUint64(out[9:], uint64(m.Epoch))
	var longest metaField
	for _, f := range metaFields(&m) {
		s := *f.at
		if err := checkText(s); err != nil {
			return nil, &OptionError{Option: f.option, Value: s, Why: err.Error(), Try: "use printable characters"}
		}
		if len(s) > 255 {
			return nil, &OptionError{
				Option: f.option, Value: s, Why: fmt.Sprintf("it has %d bytes, 255 are the limit", len(s)), Try: "shorten it",
			}
		}
		if longest.at == nil || len(s) > len(*longest.at) {
			longest = f
		}
		out = append(out, byte(len(s)))
		out = append(out, s...)
	}
	if len(out) > MaxMeta {
		return nil, &OptionError{
			Option: longest.option, Value: *longest.at,
			Why: fmt.Sprintf("what members are told of this agent takes %d bytes, %d are the limit, and this is the longest part",
				len(out), MaxMeta),
			Try: "shorten it",
		}
	}
	return out, nil
}

// decodeMeta sets what a member says of itself in m. Where it fails, with an
// error that wraps errMeta, m is left alone.
func decodeMeta(meta []byte, m *Member) error {
	switch {
	case len(meta) > MaxMeta:
		return fmt.Errorf("%w: it has %d bytes, %d are the limit", errMeta, len(meta), MaxMeta)
	case len(meta) < metaHead:
		return fmt.Errorf("%w: it has %d bytes, %d are its head", errMeta, len(meta), metaHead)
	case meta[0] != metaVersion:
		return fmt.Errorf("%w: version %d, known is %d", errMeta, meta[0], metaVersion)
	}
	var out Member
	out.BrokerID = int64(binary.BigEndian.Uint64(meta[1:]))
	out.Epoch = int64(binary.BigEndian.Uint64(meta[9:]))
	rest := meta[metaHead:]
	for _, f := range metaFields(&out) {
		if len(rest) < 1 || len(rest) < 1+int(rest[0]) {
			return fmt.Errorf("%w: it ends within %s", errMeta, f.option)
		}
		s := string(rest[1 : 1+int(rest[0])])
		if err := checkText(s); err != nil {
			return fmt.Errorf("%w: %s: %w", errMeta, f.option, err)
		}
		*f.at = s
		rest = rest[1+len(s):]
	}
	out.Node, out.Addr, out.Status, out.Since = m.Node, m.Addr, m.Status, m.Since
	*m = out
	return nil
}

// checkText refuses what would garble a status page or a log line.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("it is not UTF-8")
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return errors.New("it has control characters")
	}
	return nil
}

// maxNode bounds a node name, so that an alive message fits a packet.
const maxNode = 128

// checkNode reports why a node name cannot be one.
func checkNode(name string) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case len(name) > maxNode:
		return fmt.Errorf("it has %d bytes, %d are the limit", len(name), maxNode)
	}
	return checkText(name)
}
