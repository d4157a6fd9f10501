package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
)

// CheckPorts opens the ports that Run would open, gossip's aside, and closes them
// again. It returns the *ConfigError that Run would end with.
func (a *Agent) CheckPorts(ctx context.Context) (err error) {
	var open []net.Listener
	defer func() {
		for _, l := range open {
			err = errors.Join(err, l.Close())
		}
	}()
	try := func(list []net.Listener, err error) error {
		open = append(open, list...)
		return err
	}
	one := func(l net.Listener, err error) error {
		if err != nil {
			return err
		}
		return try([]net.Listener{l}, nil)
	}
	if a.cfg.HTTP != "" {
		if err := one(listen(ctx, "http", a.cfg.HTTP, DefaultHTTP)); err != nil {
			return err
		}
	}
	if a.cfg.Role == RoleMaster {
		if err := one(a.listenLink(ctx)); err != nil {
			return err
		}
	}
	if a.cfg.HABind != "" {
		if err := one(listen(ctx, "ha-bind", a.cfg.HABind, "")); err != nil {
			return err
		}
	}
	if a.cfg.RemotingBind != "" {
		return try(listenBelow(ctx, a.cfg.RemotingBind))
	}
	return nil
}

// What access(2) is asked for.
const (
	mayEnter = 1 << iota
	mayWrite
	mayRead
)

// CheckDir returns the *state.Problem that Run would have with the directories of
// the config: this user may not read them as a master, or write to them as a slave,
// or what they hold does not fit the role. It changes nothing. A slave's may be
// missing if it can be made, and a master waits for its own.
func (a *Agent) CheckDir() error {
	switch a.cfg.Role {
	case RoleMaster:
		if err := access(a.cfg.CommitLogDir, mayRead|mayEnter, "may not read"); err != nil {
			return err
		}
		_, err := promotedState(a.cfg.Dir)
		return err
	case RoleSlave:
		for _, dir := range []string{a.cfg.Dir, a.cfg.CommitLogDir} {
			for !exists(dir) && dir != filepath.Dir(dir) {
				dir = filepath.Dir(dir)
			}
			if err := access(dir, mayRead|mayWrite|mayEnter, "may not write to"); err != nil {
				return err
			}
			if to, err := os.Readlink(dir); err == nil && !leads(dir) {
				return state.Problemf(state.IOError, "io_error", "make that directory, or mount what holds it", nil, "%s is a link to %s, which is not there", dir, to)
			}
		}
		kind, err := a.admit()
		if err != nil || kind != replica.KindReplica {
			return err
		}
		if err := a.handedOver(kind); err != nil {
			return err
		}
		return a.remember(&replica.Options{Dir: a.cfg.Dir, SegmentSize: a.cfg.SegmentSize})
	}
	return nil
}

// CheckLock returns the *state.Problem that Run would have with whoever else works
// on the directory.
func (a *Agent) CheckLock() error {
	if a.cfg.Role != RoleSlave {
		return nil // its broker has the lock
	}
	return replica.Problem(a.cfg.Dir, replica.CheckLock(a.cfg.Dir))
}

// admit says what the directory of a slave is, or in a *state.Problem why it cannot
// be a replica's. It changes nothing.
func (a *Agent) admit() (replica.Kind, error) {
	dir := a.cfg.Dir
	kind, err := replica.Classify(dir, a.cfg.CommitLogDir)
	switch {
	case err != nil:
	case kind == replica.KindStore:
		err = fmt.Errorf("%s: %w", a.cfg.CommitLogDir, replica.ErrForeignStore)
		if _, listed := commitlog.List(a.cfg.CommitLogDir); listed != nil {
			err = listed
		}
	case kind == replica.KindNotStore:
		err = fmt.Errorf("%s: %w", dir, replica.ErrNotStore)
	}
	return kind, replica.Problem(dir, err)
}

// handedOver returns a *state.Problem for a replica that was promoted.
func (a *Agent) handedOver(kind replica.Kind) error {
	dir := a.cfg.Dir
	if st, err := replica.ReadState(dir); err == nil && kind == replica.KindReplica && st.Promoted {
		return replica.Problem(dir, fmt.Errorf("%s: %w", dir, replica.ErrPromoted))
	}
	return nil
}

// leads reports whether a path ends at something that is there.
func leads(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func access(dir string, mode uint32, lacks string) error {
	err := syscall.Access(dir, mode)
	if errors.Is(err, syscall.ENOENT) {
		return nil // Run waits for it
	}
	if err == nil {
		return nil
	}
	s := state.IOError
	if errors.Is(err, syscall.EROFS) {
		s = state.ReadOnly
	}
	return &state.Problem{State: s, Code: "permission", Reason: fmt.Sprintf("this user %s %s", lacks, dir), Err: err,
		Try: "run as the user that the broker runs as, or give that directory to this one"}
}
