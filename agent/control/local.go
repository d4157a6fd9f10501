package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// maxLocal bounds how many agents of this host are asked, and localAtOnce how
	// many of them side by side.
	maxLocal    = 256
	localAtOnce = 16
	// localTimeout bounds how long one of them may take: it is asked for a hint.
	localTimeout = 2 * time.Second
	// maxSockets bounds what is read of the kernel's list of sockets, in bytes.
	maxSockets = 16 << 20
)

// DialDir returns a client of the agent that works on dir, whose own directory
// below it is agentDir: by the socket there, or, where nobody serves that, by name.
// Its errors match *OtherUserError where that is another user's.
func DialDir(dir, agentDir string) *Client {
	return unixClient(dir, func(ctx context.Context) (net.Conn, error) {
		conn, err := dialSocket(ctx, agentDir)
		if err == nil {
			return conn, nil
		}
		for _, name := range namesOf(dir) {
			named, failed := dialName(ctx, name, dir)
			if failed == nil {
				return named, nil
			}
			if other := new(OtherUserError); errors.As(failed, &other) {
				return nil, failed
			}
		}
		if errors.Is(err, os.ErrPermission) {
			return nil, &OtherUserError{Dir: dir, Err: err}
		}
		return nil, err
	})
}

// dialName connects to the agent that has a name, where it may be believed about dir.
func dialName(ctx context.Context, name, dir string) (net.Conn, error) {
	conn, peer, err := connect(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := believe(peer, dir); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// connect connects to a name, and tells who has it.
func connect(ctx context.Context, name string) (net.Conn, *syscall.Ucred, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", name)
	if err != nil {
		return nil, nil, err
	}
	peer, err := peerOf(conn)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, peer, nil
}

// OtherUserError says that another user's process is, or may be, the agent of a
// directory.
type OtherUserError struct {
	Dir      string
	PID      int32  // 0 where it is not seen from here
	UID      uint32 // of who says that it is the agent
	Doubtful bool   // root asks, and the directory is a third user's
	Err      error  // why the agent's socket cannot be seen; nil where a process was
}

// Error implements error.
func (e *OtherUserError) Error() string {
	switch {
	case e.Err != nil:
		return fmt.Sprintf("whether an agent works on %s cannot be seen by this user: %v", e.Dir, e.Err)
	case e.Doubtful:
		return fmt.Sprintf("process %d of user %d says that it works on %s, which belongs to neither that user nor root", e.PID, e.UID, e.Dir)
	}
	return fmt.Sprintf("process %d of user %d works on %s: only that user and root may ask it", e.PID, e.UID, e.Dir)
}

// Unwrap returns what Err says.
func (e *OtherUserError) Unwrap() error { return e.Err }

// believe returns an *OtherUserError unless what peer says about dir may be
// believed: anybody may have a name. It is this user, or, where root asks, the one
// whom dir belongs to.
func believe(peer *syscall.Ucred, dir string) error {
	own := os.Geteuid()
	if int(peer.Uid) == own || own == 0 && owns(peer.Uid, dir) {
		return nil
	}
	return &OtherUserError{Dir: dir, PID: peer.Pid, UID: peer.Uid, Doubtful: own == 0}
}

// owns reports whether dir, or what is there above it, belongs to a user.
func owns(uid uint32, dir string) bool {
	full, err := resolve(dir)
	if err != nil {
		return false
	}
	_, info, err := nearest(full)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == uid
}

// Local returns the status of each agent of this host that works on a directory and
// may be asked by this user, in the order of their directories. Those that do not
// answer soon are left out.
func Local(ctx context.Context) []Status {
	names, err := localNames("/proc/net/unix")
	if err != nil {
		return nil
	}
	var (
		asking sync.WaitGroup
		gate   = make(chan struct{}, localAtOnce)
		mu     sync.Mutex
		all    []Status
	)
	for _, name := range names {
		gate <- struct{}{}
		asking.Go(func() {
			defer func() { <-gate }()
			if s, ok := askLocal(ctx, name); ok {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, s)
			}
		})
	}
	asking.Wait()
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Dir, b.Dir) })
	return all
}

// askLocal asks the agent that has a name. It is believed if that is the name of the
// directory that it says it works on, and if that directory lets it be.
func askLocal(ctx context.Context, name string) (s Status, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	conn, peer, err := connect(ctx, name)
	if err != nil {
		return s, false
	}
	defer conn.Close() // the client has, unless it did not come to ask
	s, err = unixClient(name, func(context.Context) (net.Conn, error) { return conn, nil }).Status(ctx)
	return s, err == nil && slices.Contains(namesOf(s.Dir), name) && believe(peer, s.Dir) == nil
}

// localNames returns the names of agents in a list of Unix sockets, such as
//
//	Num       RefCount Protocol Flags    Type St Inode Path
//	00000000: 00000002 00000000 00010000 0001 01 81312 @haagent/6f1ed002ab5595859014ebf0951522d9
//
// where a connection has its listener's name too.
func localNames(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("look for agents of this host: %w", err)
	}
	defer f.Close()
	var names []string
	lines := bufio.NewScanner(io.LimitReader(f, maxSockets))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 8 && strings.HasPrefix(fields[7], namePrefix) && !slices.Contains(names, fields[7]) && len(names) < maxLocal {
			names = append(names, fields[7])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("look for agents of this host: %w", err)
	}
	return names, nil
}

// unixClient returns a client that connects by dial.
func unixClient(name string, dial func(ctx context.Context) (net.Conn, error)) *Client {
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	return &Client{http: &http.Client{Transport: transport, Timeout: time.Minute}, base: "http://agent", name: name}
}
