package discovery

import "strings"

// Trouble returns why this agent is alone although others answer: they have none
// of its keys. It is nil where there are others, and where nobody answers.
func (g *Gossip) Trouble() error {
	if t := g.trouble.Load(); t != nil {
		return *t
	}
	return nil
}

// setTrouble keeps err where it is that trouble, and wakes listeners when that
// changes.
func (g *Gossip) setTrouble(is bool, err error) {
	var now *error
	if is {
		now = &err
	}
	if before := g.trouble.Swap(now); (before != nil) != is {
		g.listeners.wake()
	}
}

// otherKeys reports whether a join has failed for the want of a common key.
// memberlist has no error to compare with, on either side.
func otherKeys(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "could decrypt") || strings.Contains(text, "encrypt")
}
