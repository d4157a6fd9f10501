package options

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// refused are the options that are an error, and not without effect, where the
// role has no use for them.
var refused = []string{"dir", "master", "master-ha"}

// idle marks the options that were given and do nothing, and says so in one
// warning for each place and reason.
//
// A file that does not name the role serves several: what one of them has no use
// for belongs to another, and is nothing to be warned of. Nor is what the broker's
// own file says.
func (r *resolver) idle() {
	type line struct{ place, why string }
	var lines []line
	names := map[line][]string{}
	for _, o := range r.table {
		v := r.set.values[o.Name]
		if v.Origin.Layer <= FromBrokerConf || v.Text == "" || v.Text == o.Default || o.Kind == Switch && !r.set.Switch(o.Name) {
			continue
		}
		why, byRole := r.set.idleness(o)
		if why == "" {
			continue
		}
		v.Idle = true
		r.set.values[o.Name] = v
		if v.Origin.Layer == FromFile && byRole && r.set.Value("role").Origin.Layer != FromFile {
			continue
		}
		l, name := line{why: why}, "--"+o.Name
		switch v.Origin.Layer {
		case FromEnv:
			name = v.Origin.Name
		case FromFile:
			l.place, name = visible(v.Origin.File)+": ", o.Name
		}
		if !slices.Contains(lines, l) {
			lines = append(lines, l)
		}
		names[l] = append(names[l], name)
	}
	for _, l := range lines {
		verb := " has"
		if len(names[l]) > 1 {
			verb = " have"
		}
		r.set.Warnings = append(r.set.Warnings, l.place+strings.Join(names[l], ", ")+verb+" no effect "+l.why)
	}
}

// idleness says why an option does nothing; byRole: because of the role, or of
// whom that one follows. It is "" where the option does something.
func (s *Set) idleness(o Option) (why string, byRole bool) {
	role := s.Text("role")
	on := func(name string) bool {
		need := s.Value(name)
		return need.Option.Usable(role) && need.Text != "" && (need.Option.Kind != Switch || s.Switch(name))
	}
	switch {
	case role == "" || slices.Contains(refused, o.Name):
	case !o.Usable(role):
		return fmt.Sprintf("with --role %s, only with %s", role, enumerate(o.Roles)), true
	case len(o.Needs) > 0 && !slices.ContainsFunc(o.Needs, on):
		return "without --" + strings.Join(o.Needs, " or --"), false
	case o.Peers && role == "slave" && (on("master") || on("master-ha")) && !s.Given("join") && !s.Given("gossip-bind"):
		return "on a slave that follows a broker and does not gossip: that needs --join or --gossip-bind", true
	}
	return "", false
}

// Effective returns the values that do something: what was given and does nothing is
// as if it had not been.
func (s *Set) Effective() *Set {
	e := &Set{values: maps.Clone(s.values), order: s.order, Warnings: s.Warnings}
	for name, v := range e.values {
		if v.Idle {
			e.values[name] = Value{Option: v.Option, Text: v.Option.Default}
		}
	}
	return e
}
