package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
)

// askAgent asks the agent that the flags of askFlags name.
func askAgent[T any](c *cli.Context, ask func(*control.Client, context.Context) (T, error)) (T, error) {
	dir, byPort := c.String("dir"), c.IsSet("http")
	client := control.Dial(c.String("http"))
	if dir != "" && !byPort {
		client = control.DialDir(dir, replica.AgentDir(dir))
	}
	answer, err := ask(client, c.Context)
	other := new(control.OtherUserError)
	var late net.Error
	switch {
	case err == nil:
	case c.Err() != nil:
		err = &exitError{code: exitNotConnected, err: errors.New("interrupted before the agent has answered")}
	case errors.As(err, &other):
		err = &exitError{code: exitNotConnected, err: other, try: "run this as the user of the agent or as root, or give the agent's --http HOST:PORT"}
	case !errors.Is(err, control.ErrNoAgent):
	case errors.As(err, &late) && late.Timeout():
		err = &exitError{code: exitNotConnected, err: fmt.Errorf("no answer in time: %w", err),
			try: "see whether that process was stopped or waits for a disk, and whether its address can be reached"}
	case dir != "" && nobody(err):
		err = absent(agent.LeftIn(dir))
	case dir == "" && !byPort:
		err = elsewhere(control.Local(c.Context), err)
	}
	return answer, err
}

// nobody reports whether err says that nobody listens, and not that somebody does
// who has not answered.
func nobody(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// absent says that no agent works on a directory, and what is to be done about it.
func absent(l agent.Left) error {
	what := "no agent works on " + l.Dir
	if _, failed := os.Stat(l.Dir); errors.Is(failed, os.ErrNotExist) {
		return &exitError{code: exitNotConnected, err: fmt.Errorf("%s: there is no such directory", what), try: "give the --dir of an agent"}
	}
	again := "start its agent again: haagent --role %s --dir " + l.Dir + ", with the options that it had"
	code, try := exitNotConnected, fmt.Sprintf(again, agent.RoleSlave)
	st := l.Replica
	switch {
	case st != nil && st.Promoted:
		code, try = exitDifferent, "haagent promote --dir "+l.Dir+" prints the broker's properties again"
		what = fmt.Sprintf("the replica at %s was promoted (epoch %d): it belongs to a broker, and no agent works on it", l.Dir, st.Epoch)
	case st != nil:
		what = "no agent works on the replica at " + l.Dir
	case l.Unread != nil:
		what, try = fmt.Sprintf("%s, and what one has left there cannot be read: %v", what, l.Unread), "haagent resync --dir "+l.Dir+" starts anew; the log is set aside"
	case l.BrokerName != "":
		try = fmt.Sprintf(again, agent.RoleMaster)
	default:
		return &absentError{what: what}
	}
	if l.Held != nil {
		what += "; " + holder(l)
		if code == exitNotConnected {
			try = "fuser " + filepath.Join(l.Dir, "lock") + " names that process; an agent in another container answers there"
		}
	}
	return &exitError{code: code, err: &absentError{left: &l, what: what}, try: try}
}

// absentError says that no agent works on a directory. It matches control.ErrNoAgent.
type absentError struct {
	left *agent.Left // what one has left there; nil: none has been there
	what string
}

// Error implements error.
func (e *absentError) Error() string { return e.what }

// Is says so to errors.Is.
func (e *absentError) Is(target error) bool { return target == control.ErrNoAgent }

// holder says who has the lock of a store that no agent answers for.
func holder(l agent.Left) string {
	who := "another process"
	if l.Replica != nil && l.Replica.Promoted {
		who = "its broker"
	}
	if _, number, ok := strings.Cut(l.Held.Error(), "(process "); ok { // the kernel tells it of a broker
		who += " (process " + number
	}
	return who + " has it open"
}

// elsewhere says that nobody answers at the default port, and who may be asked
// instead: to take one of them for the one that was meant would be a guess.
func elsewhere(here []control.Status, err error) error {
	if len(here) == 0 {
		return err
	}
	ways := make([]string, len(here))
	for i, s := range here {
		ways[i] = fmt.Sprintf("--dir %s asks %s (%s)", s.Dir, s.Node, s.Role)
	}
	return &exitError{code: exitNotConnected, err: err, try: strings.Join(ways, ", ")}
}

// printOthers says whose answer this was, where somebody else's may have been
// meant: that of the directory that was named, or that of another agent of the host.
func printOthers(w io.Writer, c *cli.Context, s control.Status) error {
	if dir := c.String("dir"); dir != "" {
		if sameDir(dir, s.Dir) {
			return nil
		}
		_, err := fmt.Fprintf(w, "\nThis is %s, %s, and not the agent of %s: --http goes before --dir.\n", s.Node, worksOn(s), dir)
		return err
	}
	if c.IsSet("http") {
		return nil
	}
	var ways []string
	for _, other := range control.Local(c.Context) {
		if other.Node != s.Node || !sameDir(other.Dir, s.Dir) {
			ways = append(ways, fmt.Sprintf("  --dir %s asks %s (%s, %s)", other.Dir, other.Node, other.Role, other.State))
		}
	}
	if len(ways) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s answered, %s. This host has other agents:\n%s\n", s.Node, worksOn(s), strings.Join(ways, "\n"))
	return err
}

// worksOn says which directory an agent has.
func worksOn(s control.Status) string {
	if s.Dir == "" {
		return "which has no directory"
	}
	return "which works on " + s.Dir
}

// sameDir reports whether two paths name one directory.
func sameDir(a, b string) bool {
	if one, err := os.Stat(a); err == nil {
		other, err := os.Stat(b)
		return err == nil && os.SameFile(one, other)
	}
	first, err := filepath.Abs(a)
	second, failed := filepath.Abs(b)
	return err == nil && failed == nil && first == second
}
