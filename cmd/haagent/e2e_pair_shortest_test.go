//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
)

// ownNetworkVariable says that a test runs in a network of its own.
const ownNetworkVariable = "HAAGENT_TEST_OWN_NETWORK"

// TestPair_ShortestForm: on one host, all that agents have to be told is what they
// are and where their stores are. The default ports are everybody's, so the test
// runs in a network of its own where the system allows that.
func TestPair_ShortestForm(t *testing.T) {
	t.Parallel() // most of the time is waiting
	if os.Getenv(ownNetworkVariable) == "" && runInOwnNetwork(t) {
		return
	}
	if os.Getenv(ownNetworkVariable) != "" {
		raiseLoopback(t)
	}
	source, dir := forgeStore(t), filepath.Join(t.TempDir(), "replica")
	master := startProcess(t, testBinary(t), source, "--role", "master", "--dir", source)
	slave := startProcess(t, testBinary(t), dir, "--role", "slave", "--dir", dir)
	end := slave.waitState(state.Streaming).Offsets.Verified
	if got := master.wait(control.WaitRequest{Offset: end, Acks: 1, Timeout: patience}); got.Result != acks.PutOK || end <= 0 {
		t.Errorf("up to %d: %+v", end, got)
	}
	if stdout, stderr, code := haagentCommand(t, "status", "--dir", dir); code != exitOK {
		t.Errorf("status ended with %d: %s%s", code, stdout, stderr)
	}
	slave.term()
	if got := verifySame(t, source, dir); got < end {
		t.Errorf("identical up to %d of %d", got, end)
	}
}

// runInOwnNetwork runs the test in a process of its own, whose network has
// loopback only. It returns false where the system does not allow that.
func runInOwnNetwork(t *testing.T) bool {
	t.Helper()
	cmd := exec.Command(testBinary(t), "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownNetworkVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	said, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Logf("no network of its own: %v", err)
		return false
	}
	if t.Logf("%s", said); err != nil {
		t.Errorf("in a network of its own: %v", err)
	}
	return true
}

// raiseLoopback gives a new network its only address.
func raiseLoopback(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}
