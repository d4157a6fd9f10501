package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

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

// CheckDir returns a *state.Problem where this user cannot work with the
// directories of the config: read them as a master, write to them as a slave. It
// changes nothing. A slave's may be missing if it can be made.
func (a *Agent) CheckDir() error {
	switch a.cfg.Role {
	case RoleMaster:
		return access(a.cfg.CommitLogDir, mayRead|mayEnter, "may not read")
	case RoleSlave:
		for _, dir := range []string{a.cfg.Dir, a.cfg.CommitLogDir} {
			for !exists(dir) && dir != filepath.Dir(dir) {
				dir = filepath.Dir(dir)
			}
			if err := access(dir, mayRead|mayWrite|mayEnter, "may not write to"); err != nil {
				return err
			}
		}
	}
	return nil
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
