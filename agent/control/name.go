package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// An agent can be asked before its store is open, and where nothing may be written
// to its directory: a broker's own store, one that another process has locked, one
// that is not there yet. So from its first moment on it listens on a name in the
// kernel's own table of Unix sockets too, which lies in no directory, ends with the
// process, and is had by one process at a time:
//
//	@haagent/6f1ed002ab5595859014ebf0951522d9     as ss -xl shows it
//	         ^ hash of device and inode of the nearest directory above the store's
//	           that is there, and of the way down from it
//
// Two containers that share a network share these names, but no such directory.

// namePrefix begins the names of all agents' sockets.
const namePrefix = "@haagent/"

// retryInterval is how often a name, or a socket, is tried that another agent has.
const retryInterval = 5 * time.Second

// ServeName answers what changes nothing about the agent of dir until ctx ends. It
// needs no file and makes none. This process's user and root are answered, nobody
// else. Where another process serves dir it is left alone, and waited for.
func (h Handlers) ServeName(ctx context.Context, dir string) error {
	return whenFree(ctx, func() error { return h.serveName(ctx, dir) })
}

// errServed says that another agent serves there.
var errServed = errors.New("another agent serves there")

// whenFree serves as soon as no other agent does.
func whenFree(ctx context.Context, serve func() error) error {
	for {
		if err := serve(); !errors.Is(err, errServed) {
			return err
		}
		again := time.NewTimer(retryInterval)
		select {
		case <-ctx.Done():
			again.Stop()
			return nil
		case <-again.C:
		}
	}
}

func (h Handlers) serveName(ctx context.Context, dir string) error {
	name, base, err := nameOf(dir)
	if err != nil {
		return fmt.Errorf("control name: %w", err)
	}
	if base != nil {
		defer base.Close()
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", name)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("control name: %w", errServed)
	}
	if err != nil {
		return fmt.Errorf("control name: %w", err)
	}
	return serve(ctx, ownersOnly{l}, h.readMux(ctx), maxConns)
}

// nameOf returns the name that the agent of dir is asked by, and the directory that
// it is derived from, open if it may be: its inode stays the same as long.
func nameOf(dir string) (name string, base *os.File, err error) {
	full, err := resolve(dir)
	if err != nil {
		return "", nil, err
	}
	up, info, err := nearest(filepath.Dir(full))
	if err != nil {
		return "", nil, err
	}
	if name, err = nameBelow(info, up, full); err != nil {
		return "", nil, err
	}
	if base, err = os.Open(up); err != nil {
		base = nil // it may be passed through only
	}
	return name, base, nil
}

// nearest returns path, or what of it is there above it.
func nearest(path string) (at string, info os.FileInfo, err error) {
	at = path
	info, err = os.Stat(at)
	for missing(err) && at != filepath.Dir(at) {
		at = filepath.Dir(at)
		info, err = os.Stat(at)
	}
	return at, info, err
}

// namesOf returns the names that the agent of dir may have: when it began, not all
// of the directories above its own need have been there.
func namesOf(dir string) []string {
	full, err := resolve(dir)
	if err != nil {
		return nil
	}
	var names []string
	for up := filepath.Dir(full); ; up = filepath.Dir(up) {
		if info, err := os.Stat(up); err == nil {
			if name, err := nameBelow(info, up, full); err == nil {
				names = append(names, name)
			}
		}
		if up == filepath.Dir(up) {
			return names
		}
	}
}

// nameBelow returns the name of the directory at path as seen from one above it.
func nameBelow(base os.FileInfo, above, path string) (string, error) {
	st, ok := base.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("%s has no inode", above)
	}
	way, err := filepath.Rel(above, path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strconv.FormatUint(uint64(st.Dev), 10) + ":" + strconv.FormatUint(st.Ino, 10) + ":" + way)) //nolint:unconvert // not all have 64 bits
	return namePrefix + hex.EncodeToString(sum[:16]), nil
}

// resolve returns the absolute path of dir without symbolic links, as far as it is
// there.
func resolve(dir string) (string, error) {
	full, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	rest := ""
	for at := full; ; at = filepath.Dir(at) {
		there, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(there, rest), nil
		}
		if at == filepath.Dir(at) || !missing(err) {
			return "", err
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

func missing(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// ownersOnly lets this process's user and root in. Names have no mode.
type ownersOnly struct{ net.Listener }

// Accept implements net.Listener.
func (l ownersOnly) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := peerOf(conn)
		if err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid()) {
			return conn, nil
		}
		if err := conn.Close(); err != nil {
			continue // it is gone already
		}
	}
}

// peerOf returns who is at the other end of a Unix socket: who has connected, or, on
// the side that has, who listens.
func peerOf(conn net.Conn) (peer *syscall.Ucred, err error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%T is no socket", conn)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if failed := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); failed != nil {
		return nil, failed
	}
	return peer, err
}
