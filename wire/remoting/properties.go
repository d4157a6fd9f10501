package remoting

import (
	"iter"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Property is one entry of Java properties.
type Property struct {
	Key, Value string
	Line       int // of the text, from 1, in which it begins
	// Malformed: there is a \u without four hexadecimal digits. Java refuses the
	// whole text then; here it stands for itself.
	Malformed bool
}

// ParseProperties reads Java properties: the body of an answer to
// GetBrokerConfig, or a broker.conf. Of a repeated key the last value counts.
// Every text is valid properties, so there is no error.
func ParseProperties(body []byte) map[string]string {
	m := make(map[string]string)
	for p := range Properties(body) {
		m[p.Key] = p.Value
	}
	return m
}

// Properties returns the entries of Java properties in their order. Lines that
// start with # or ! are comments; a key ends at the first =, : or blank that no
// backslash escapes; a backslash at the end continues the line; \t \n \r \f and
// \uXXXX are decoded, and any other escaped character stands for itself.
//
// Unlike Java, bytes above 0x7f are taken as UTF-8: brokers send their
// configuration so, and people write broker.conf so.
func Properties(body []byte) iter.Seq[Property] {
	return func(yield func(Property) bool) {
		rest := strings.ReplaceAll(string(body), "\r\n", "\n")
		rest = strings.ReplaceAll(rest, "\r", "\n")
		number := 1
		for rest != "" {
			before := rest
			var line string
			line, rest = logicalLine(rest)
			if line != "" {
				key, value := splitProperty(line)
				p := Property{Line: number}
				var badKey, badValue bool
				p.Key, badKey = unescape(key)
				p.Value, badValue = unescape(value)
				p.Malformed = badKey || badValue
				if !yield(p) {
					return
				}
			}
			number += strings.Count(before[:len(before)-len(rest)], "\n")
		}
	}
}

const propertyBlanks = " \t\f"

// logicalLine returns the first line with its continuations joined, "" for a
// comment or a blank line, and the text after it.
func logicalLine(s string) (line, rest string) {
	line, rest, _ = strings.Cut(s, "\n")
	line = strings.TrimLeft(line, propertyBlanks)
	if line == "" || line[0] == '#' || line[0] == '!' {
		return "", rest
	}
	if !continued(line) {
		return line, rest
	}
	var joined strings.Builder
	for continued(line) {
		joined.WriteString(line[:len(line)-1])
		line, rest, _ = strings.Cut(rest, "\n")
		line = strings.TrimLeft(line, propertyBlanks)
	}
	joined.WriteString(line)
	return joined.String(), rest
}

// continued reports whether line ends in a backslash that none escapes.
func continued(line string) bool {
	trimmed := strings.TrimRight(line, `\`)
	return (len(line)-len(trimmed))%2 == 1
}

// splitProperty splits a line, still escaped, into key and value.
func splitProperty(line string) (key, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=:"+propertyBlanks, line[i]) >= 0 {
			end = i
			break
		}
	}
	value = strings.TrimLeft(line[end:], propertyBlanks)
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], propertyBlanks)
	}
	return line[:end], value
}

// unescape also reports whether a \u was malformed.
func unescape(s string) (text string, malformed bool) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, false
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 == len(s) {
			if s[i] != '\\' {
				b.WriteByte(s[i])
			}
			i++
			continue
		}
		switch c := s[i+1]; c {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			r, n := unicodeEscape(s[i:])
			if n > 0 {
				b.WriteRune(r)
				i += n
				continue
			}
			malformed = true
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
		i += 2
	}
	return b.String(), malformed
}

// unicodeEscape reads \uXXXX, or two of them that are a surrogate pair, at the
// start of s, and returns how many bytes it took: 0 if there is none.
func unicodeEscape(s string) (rune, int) {
	const size = len(`\uXXXX`)
	one := func(s string) (rune, bool) {
		if len(s) < size || s[:2] != `\u` {
			return 0, false
		}
		n, err := strconv.ParseUint(s[2:size], 16, 16)
		return rune(n), err == nil
	}
	r, ok := one(s)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, size
	}
	if low, ok := one(s[size:]); ok {
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, 2 * size
		}
	}
	return utf8.RuneError, size
}
