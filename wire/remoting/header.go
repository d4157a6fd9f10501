package remoting

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// jsonHeader is the JSON form of a header. Brokers leave out members that are
// null, but not an empty extFields; other clients leave out some more.
type jsonHeader struct {
	Code      int             `json:"code"`
	ExtFields map[string]text `json:"extFields,omitzero"`
	Flag      int             `json:"flag"`
	Language  text            `json:"language"`
	Opaque    int32           `json:"opaque"`
	Remark    text            `json:"remark,omitempty"`
	Type      string          `json:"serializeTypeCurrentRPC"`
	Version   int             `json:"version"`
}

// text is a string that may have been written as a bare number or truth value,
// which fastjson reads as a string, too.
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case '{', '[':
		return fmt.Errorf("%.20q where a text belongs", b)
	case 'n':
		*t = ""
		return nil
	case '"':
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*t = text(s)
		return nil
	}
	*t = text(b)
	return nil
}

func decodeJSON(b []byte) (Command, error) {
	var h jsonHeader
	if len(b) == 0 || b[0] != '{' {
		return Command{}, errors.New("JSON header: no object")
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return Command{}, fmt.Errorf("JSON header: %w", err)
	}
	c := Command{
		Code: h.Code, Language: string(h.Language), Version: h.Version,
		Opaque: h.Opaque, Flag: h.Flag, Remark: string(h.Remark),
	}
	if h.ExtFields != nil {
		c.ExtFields = make(map[string]string, len(h.ExtFields))
		for k, v := range h.ExtFields {
			c.ExtFields[k] = string(v)
		}
	}
	return c, nil
}

func encodeJSON(c Command) ([]byte, error) {
	if err := checkTexts(c); err != nil {
		return nil, err
	}
	h := jsonHeader{
		Code: c.Code, Flag: c.Flag, Language: text(c.Language), Opaque: c.Opaque,
		Remark: text(c.Remark), Type: JSON.String(), Version: c.Version,
	}
	if c.ExtFields != nil {
		h.ExtFields = make(map[string]text, len(c.ExtFields))
		for k, v := range c.ExtFields {
			h.ExtFields[k] = text(v)
		}
	}
	return json.Marshal(h)
}

func checkTexts(c Command) error {
	if !utf8.ValidString(c.Remark) || !utf8.ValidString(c.Language) {
		return errors.New("remark or language is not UTF-8")
	}
	for k, v := range c.ExtFields {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("field %q is not UTF-8", k)
		}
	}
	return nil
}

var errShort = errors.New("binary header: ends early")

// cursor takes a binary header apart. A failed take leaves ok false for good.
type cursor struct {
	b  []byte
	ok bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.ok = false
	}
	if !c.ok {
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) int16() int {
	if b := c.take(2); b != nil {
		return int(int16(binary.BigEndian.Uint16(b)))
	}
	return 0
}

func (c *cursor) int32() int32 {
	if b := c.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

// text returns n bytes as a string; bytes that are not UTF-8 become U+FFFD, as
// in Java.
func (c *cursor) text(n int) string {
	return strings.ToValidUTF8(string(c.take(n)), "\uFFFD")
}

func decodeBinary(b []byte) (Command, error) {
	cur := &cursor{b: b, ok: true}
	var c Command
	c.Code = cur.int16()
	if l := cur.take(1); l != nil {
		c.Language = languageName(l[0])
	}
	c.Version = cur.int16()
	c.Opaque = cur.int32()
	c.Flag = int(cur.int32())
	c.Remark = cur.text(int(cur.int32()))
	ext := &cursor{b: cur.take(int(cur.int32())), ok: true}
	switch {
	case !cur.ok:
		return Command{}, errShort
	case len(cur.b) > 0:
		return Command{}, fmt.Errorf("binary header: %d bytes left over", len(cur.b))
	}
	for len(ext.b) > 0 {
		key := ext.text(ext.int16())
		value := ext.text(int(ext.int32()))
		if !ext.ok {
			return Command{}, errShort
		}
		if c.ExtFields == nil {
			c.ExtFields = make(map[string]string)
		}
		c.ExtFields[key] = value
	}
	return c, nil
}

func encodeBinary(c Command) ([]byte, error) {
	if err := checkTexts(c); err != nil {
		return nil, err
	}
	if int(int16(c.Code)) != c.Code || int(int16(c.Version)) != c.Version || int(int32(c.Flag)) != c.Flag {
		return nil, fmt.Errorf("code %d, version %d or flag %d does not fit", c.Code, c.Version, c.Flag)
	}
	var ext []byte
	for _, k := range slices.Sorted(maps.Keys(c.ExtFields)) {
		v := c.ExtFields[k]
		if len(k) > math.MaxInt16 {
			return nil, fmt.Errorf("a field's name has %d bytes", len(k))
		}
		ext = binary.BigEndian.AppendUint16(ext, uint16(len(k)))
		ext = append(ext, k...)
		ext = binary.BigEndian.AppendUint32(ext, uint32(len(v)))
		ext = append(ext, v...)
	}
	b := binary.BigEndian.AppendUint16(nil, uint16(c.Code))
	b = append(b, languageNumber(c.Language))
	b = binary.BigEndian.AppendUint16(b, uint16(c.Version))
	b = binary.BigEndian.AppendUint32(b, uint32(c.Opaque))
	b = binary.BigEndian.AppendUint32(b, uint32(c.Flag))
	b = binary.BigEndian.AppendUint32(b, uint32(len(c.Remark)))
	b = append(b, c.Remark...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(ext)))
	return append(b, ext...), nil
}
