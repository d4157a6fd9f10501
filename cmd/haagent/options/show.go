package options

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Shown is one line of `config show`.
type Shown struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
	Live   bool   `json:"live"`
	Idle   bool   `json:"idle,omitempty"` // was given, and does nothing
}

// Show returns the values in force. No secret is among them: those are in files,
// and only the files' names are values.
func (s *Set) Show() []Shown {
	var list []Shown
	for _, v := range s.Values() {
		list = append(list, Shown{Key: v.Option.Name, Value: v.Text, Origin: v.Origin.String(), Live: v.Option.Live, Idle: v.Idle})
	}
	return list
}

// Print writes the values as a table, or as JSON.
func (s *Set) Print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, s.Show())
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tVALUE\tORIGIN")
	for _, v := range s.Values() {
		text := v.Text
		if text == "" {
			text = "-"
			if v.Origin.Layer != FromDefault {
				text = "off"
			} else if v.Option.DefaultText != "" {
				text = "(" + v.Option.DefaultText + ")"
			}
		}
		origin := v.Origin.String()
		if v.Idle || !v.Option.Usable(s.Text("role")) {
			origin += " (no effect)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", v.Option.Name, visible(text), origin)
	}
	return t.Flush()
}

// visible returns a text as a terminal may be given it: in quotes and with escapes
// where something in it is not to be seen.
func visible(text string) string {
	if strings.ContainsFunc(text, hidden) || !utf8.ValidString(text) {
		return strconv.Quote(text)
	}
	return text
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }

// printJSON escapes what is not to be seen too, which only stands within texts.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	var out strings.Builder
	for _, r := range b.String() {
		if r == '\n' || !hidden(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, "\\u%04x", unit)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
