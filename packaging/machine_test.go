package packaging_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// patience bounds every wait; a busy machine with a few JVMs is slow.
	patience = 90 * time.Second
	// lookInterval is the pause between two looks at something that changes.
	lookInterval = 100 * time.Millisecond
	// apartVariable says that a test runs apart from the system.
	apartVariable = "HAAGENT_TEST_APART"
)

// A machine is a host of its own as far as programs can tell: it has the files of
// this system, with its own changes to them, a name, and one network address.
type machine struct {
	t    *testing.T
	name string
	addr string
	root string // where its files can be seen from here
	pid  string // of the process that holds its network and its name

	mu      sync.Mutex
	printed []string // files that take what background commands print
}

// runApart runs the test in a process that has network, mounts and processes of
// its own, and reports whether this is that process. All that it leaves behind
// ends with it.
func runApart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(apartVariable) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Fatal("run as root: machines are made of overlay mounts and network namespaces")
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v"}
	if at, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+time.Until(at).String())
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), apartVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		Unshareflags: syscall.CLONE_NEWNS, // makes the mounts private
		Pdeathsig:    syscall.SIGKILL,
	}
	lines := &logLines{t: t}
	cmd.Stdout, cmd.Stderr = lines, lines
	if err := cmd.Run(); err != nil {
		t.Errorf("apart from the system: %v", err)
	}
	return false
}

// logLines logs what is written to it when a line is whole.
type logLines struct {
	t    *testing.T
	rest []byte
}

func (l *logLines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		l.t.Logf("%s", line)
		l.rest = rest
	}
}

// newMachines makes machines with these names and addresses in one network, which
// this process is part of as 10.0.0.1. They have the files below extra besides.
func newMachines(t *testing.T, hosts map[string]string, extra string) map[string]*machine {
	t.Helper()
	shell(t, `mount -t proc proc /proc
		ip link set lo up
		ip link add haagent0 type bridge
		ip addr add 10.0.0.1/24 dev haagent0
		ip link set haagent0 up`)
	machines := make(map[string]*machine, len(hosts))
	for addr, name := range hosts {
		machines[addr] = newMachine(t, name, addr, extra)
	}
	return machines
}

func newMachine(t *testing.T, name, addr, extra string) *machine {
	t.Helper()
	dir := t.TempDir()
	holder := exec.Command("unshare", "--net", "--uts", "--fork", "--kill-child", "sh", "-c", `hostname "$0"; exec sleep infinity`, name)
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := holder.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := holder.Wait(); err == nil {
			t.Errorf("machine %s ended by itself", name)
		}
	})
	t.Cleanup(func() { shell(t, "umount --recursive --lazy "+filepath.Join(dir, "root")) })
	m := &machine{t: t, name: name, addr: addr, root: filepath.Join(dir, "root")}
	parent := strconv.Itoa(holder.Process.Pid)
	waitFor(t, "the network of "+name, func() (string, bool) {
		children, err := os.ReadFile("/proc/" + parent + "/task/" + parent + "/children")
		if m.pid = strings.TrimSpace(string(children)); err != nil || m.pid == "" {
			return fmt.Sprint("no child: ", err), false
		}
		was, err := os.ReadFile("/proc/" + m.pid + "/comm")
		return string(was), err == nil && strings.TrimSpace(string(was)) == "sleep"
	})
	shell(t, `mkdir -p `+dir+`/upper `+dir+`/work `+m.root+`
		mount -t overlay overlay -o lowerdir=`+extra+`:/,upperdir=`+dir+`/upper,workdir=`+dir+`/work `+m.root+`
		mount -t proc proc `+m.root+`/proc
		mount --rbind /dev `+m.root+`/dev
		mount -t tmpfs tmpfs `+m.root+`/run
		mkdir -p `+m.root+`/run/systemd/system
		ip link add name to-`+m.pid+` type veth peer name eth0 netns `+m.pid+`
		ip link set to-`+m.pid+` master haagent0 up`)
	m.run(`ip link set lo up; ip addr add ` + addr + `/24 dev eth0; ip link set eth0 up`)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m.run("rm -f /usr/sbin/policy-rc.d") // it keeps services from being started
	m.write("/usr/bin/systemctl", "#!/bin/sh\n"+systemctlVariable+"=1 exec "+binary+" \"$@\"\n", 0o755)
	return m
}

// command returns a command that runs a line of shell on the machine, as root.
func (m *machine) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", "--target", m.pid, "--net", "--uts", "chroot", m.root, "bash", "-euo", "pipefail", "-c", line)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + filepath.Dir(mustFind(m.t, "java")),
		"HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	return cmd
}

// run runs a line to its end, which must be a good one, and returns what it prints.
func (m *machine) run(line string) string {
	m.t.Helper()
	out, err := m.try(line)
	if err != nil {
		m.t.Fatalf("%s: %s: %v", m.name, line, err)
	}
	return out
}

// try is run for a line that may fail.
func (m *machine) try(line string) (stdout string, err error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	cmd := m.command(ctx, line)
	cmd.WaitDelay = time.Second
	// Files, not pipes: what the line leaves running must not hold us up.
	dir := m.t.TempDir()
	said, wrong := filepath.Join(dir, "stdout"), filepath.Join(dir, "stderr")
	outFile, err := os.Create(said)
	if err != nil {
		return "", err
	}
	errFile, err := os.Create(wrong)
	if err != nil {
		return "", errors.Join(err, outFile.Close())
	}
	cmd.Stdout, cmd.Stderr = outFile, errFile
	err = errors.Join(cmd.Run(), outFile.Close(), errFile.Close())
	out, talk := readAll(m.t, said), readAll(m.t, wrong)
	m.t.Logf("%s$ %s\n%s%s", m.name, line, out, talk)
	return out, err
}

// start runs a line in the background, until the test ends at the latest.
func (m *machine) start(line string) *exec.Cmd {
	m.t.Helper()
	said := filepath.Join(m.t.TempDir(), "said")
	out, err := os.Create(said)
	if err != nil {
		m.t.Fatal(err)
	}
	m.mu.Lock()
	m.printed = append(m.printed, said)
	m.mu.Unlock()
	cmd := m.command(context.Background(), "exec "+line)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := errors.Join(cmd.Start(), out.Close()); err != nil {
		m.t.Fatalf("%s: %s: %v", m.name, line, err)
	}
	m.t.Logf("%s$ %s &", m.name, line)
	m.t.Cleanup(func() { m.end(cmd) })
	return cmd
}

// end kills what start has started.
func (m *machine) end(cmd *exec.Cmd) {
	m.t.Helper()
	if cmd.ProcessState != nil {
		return
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		m.t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		m.t.Logf("%s: %v had ended", m.name, cmd.Args)
	}
}

// path is where a file of the machine can be seen from here.
func (m *machine) path(file string) string { return filepath.Join(m.root, file) }

// write writes a file of the machine, keeping owner and mode of one that is there.
func (m *machine) write(file, text string, mode os.FileMode) {
	m.t.Helper()
	err := os.MkdirAll(filepath.Dir(m.path(file)), 0o755)
	if err = errors.Join(err, os.WriteFile(m.path(file), []byte(text), mode)); err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
}

// words returns what the background commands of the machine have printed.
func (m *machine) words() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all strings.Builder
	for _, said := range m.printed {
		all.WriteString(readAll(m.t, said))
	}
	return all.String()
}

// shell runs lines here, each of which must succeed.
func shell(t *testing.T, lines string) {
	t.Helper()
	if said, err := exec.Command("bash", "-euxc", lines).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

func mustFind(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func readAll(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// waitFor looks again and again until is says yes, and fails the test with what
// it last saw where that takes too long.
func waitFor(t *testing.T, what string, is func() (seen string, ok bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		seen, ok := is()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v for %s, last seen: %s", patience, what, seen)
		case <-tick.C:
		}
	}
}

// listens reports whether something accepts connections there.
func listens(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	return err == nil && conn.Close() == nil
}
