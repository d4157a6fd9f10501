package options

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// Shown is one line of `config show`.
type Shown struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
	Live   bool   `json:"live"`
}

// Show returns the values in force. No secret is among them: those are in files,
// and only the files' names are values.
func (s *Set) Show() []Shown {
	var list []Shown
	for _, v := range s.Values() {
		list = append(list, Shown{Key: v.Option.Name, Value: v.Text, Origin: v.Origin.String(), Live: v.Option.Live})
	}
	return list
}

// Print writes the values as a table, or as JSON.
func (s *Set) Print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(s.Show())
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
		fmt.Fprintf(t, "%s\t%s\t%s\n", v.Option.Name, text, v.Origin)
	}
	return t.Flush()
}
