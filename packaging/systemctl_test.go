package packaging_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// systemctlVariable in the environment makes the test binary be systemctl, on a
// machine that has no systemd: it does what the verbs that people and maintainer
// scripts use mean for the units of this package, and nothing of the sandbox.
const systemctlVariable = "HAAGENT_TEST_SYSTEMCTL"

func TestMain(m *testing.M) {
	if os.Getenv(systemctlVariable) != "" {
		if err := systemctl(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "systemctl:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Where systemctl keeps what it knows: NAME.pid of the service, NAME.status with
// what it has last notified, NAME.log with its output, and NAME.wanted of what is
// to start at boot.
const servicesDir = "/run/haagent-test"

// readyWithin is how long a service may take to say that it is ready.
const readyWithin = 60 * time.Second

func systemctl(args []string) error {
	var words []string
	now := false
	for _, arg := range args {
		switch {
		case arg == "--now":
			now = true
		case !strings.HasPrefix(arg, "-"):
			words = append(words, arg)
		}
	}
	if len(words) == 0 {
		return errors.New("no verb")
	}
	if err := os.MkdirAll(servicesDir, 0o755); err != nil {
		return err
	}
	verb, units := words[0], words[1:]
	var all error
	for _, name := range units {
		name = strings.TrimSuffix(name, ".service")
		all = errors.Join(all, act(verb, name, now))
	}
	return all
}

func act(verb, name string, now bool) error {
	switch verb {
	case "supervise":
		return supervise(name)
	case "enable", "preset":
		if err := os.WriteFile(filepath.Join(servicesDir, name+".wanted"), nil, 0o644); err != nil || !now {
			return err
		}
		return startUnit(name)
	case "disable", "mask":
		if err := os.Remove(filepath.Join(servicesDir, name+".wanted")); err != nil && !errors.Is(err, fs.ErrNotExist) || !now {
			return err
		}
		return stopUnit(name)
	case "start":
		return startUnit(name)
	case "stop":
		return stopUnit(name)
	case "restart":
		return errors.Join(stopUnit(name), startUnit(name))
	case "try-restart":
		if servicePID(name) == 0 {
			return nil
		}
		return errors.Join(stopUnit(name), startUnit(name))
	case "reload", "reload-or-restart":
		if pid := servicePID(name); pid != 0 {
			return syscall.Kill(pid, syscall.SIGHUP)
		}
		return errors.New(name + " is not active")
	case "is-active":
		if servicePID(name) == 0 {
			fmt.Println("inactive")
			return errors.New("inactive")
		}
		fmt.Println("active")
	case "is-enabled":
		if _, err := os.Stat(filepath.Join(servicesDir, name+".wanted")); err != nil {
			fmt.Println("disabled")
			return err
		}
		fmt.Println("enabled")
	case "status":
		text, err := os.ReadFile(filepath.Join(servicesDir, name+".status"))
		fmt.Printf("%s\n", text)
		return err
	}
	return nil // daemon-reload and the like
}

// servicePID returns the process of a service, 0 where it does not run.
func servicePID(name string) int {
	text, err := os.ReadFile(filepath.Join(servicesDir, name+".pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || syscall.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}

// startUnit starts a service and waits until it is ready.
func startUnit(name string) error {
	if servicePID(name) != 0 {
		return nil
	}
	u, err := readUnit(name)
	if err != nil {
		return err
	}
	for _, path := range u["ConditionPathExists"] {
		if _, err := os.Stat(path); err != nil {
			return nil // systemd skips it without an error
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(servicesDir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "supervise", name)
	cmd.Env = append(os.Environ(), systemctlVariable+"=1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(os.RemoveAll(filepath.Join(servicesDir, name+".status")), cmd.Start(), log.Close()); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.After(readyWithin)
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		if text, err := os.ReadFile(filepath.Join(servicesDir, name+".status")); err == nil && strings.Contains(string(text), "READY=1") {
			return nil
		}
		select {
		case err := <-ended:
			text, readErr := os.ReadFile(filepath.Join(servicesDir, name+".log"))
			return fmt.Errorf("%s ended at its start: %w\n%s", name, errors.Join(err, readErr), text)
		case <-deadline:
			return fmt.Errorf("%s is not ready after %v", name, readyWithin)
		case <-tick.C:
		}
	}
}

// stopUnit ends a service and waits for it.
func stopUnit(name string) error {
	pid := servicePID(name)
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for servicePID(name) != 0 {
		select {
		case <-deadline:
			return fmt.Errorf("%s does not end", name)
		case <-tick.C:
		}
	}
	return nil
}

// supervise runs a service as its unit says, and notes what it notifies.
func supervise(name string) error {
	u, err := readUnit(name)
	if err != nil {
		return err
	}
	cmd, err := u.command(name)
	if err != nil {
		return err
	}
	socket := filepath.Join(servicesDir, name+".notify")
	if err := os.RemoveAll(socket); err != nil {
		return err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+socket)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	pidFile := filepath.Join(servicesDir, name+".pid")
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return err
	}
	go func() {
		status, err := os.OpenFile(filepath.Join(servicesDir, name+".status"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		buf := make([]byte, 4096)
		for err == nil {
			var n int
			if n, err = conn.Read(buf); err == nil {
				_, err = fmt.Fprintf(status, "%s\n", buf[:n])
			}
		}
	}()
	err = cmd.Wait()
	return errors.Join(err, os.Remove(pidFile), conn.Close())
}

// unit has the values of each key, in the order in which they stand.
type unit map[string][]string

// readUnit reads a unit and its drop-ins.
func readUnit(name string) (unit, error) {
	file := name
	if template, _, ok := strings.Cut(name, "@"); ok {
		file = template + "@"
	}
	path := filepath.Join("/usr/lib/systemd/system", file+".service")
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("no unit %s: %w", name, err)
	}
	paths := []string{path}
	for _, dir := range []string{file, name} {
		more, err := filepath.Glob(filepath.Join("/etc/systemd/system", dir+".service.d", "*.conf"))
		if err != nil {
			return nil, err
		}
		for _, p := range more {
			if !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	_, instance, _ := strings.Cut(name, "@")
	u := unit{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			key, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
			if !ok || strings.HasPrefix(key, "#") {
				continue
			}
			if value == "" {
				delete(u, key)
				continue
			}
			u[key] = append(u[key], strings.ReplaceAll(value, "%i", instance))
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// last returns the last value of a key.
func (u unit) last(key string) string {
	if v := u[key]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// command is what the unit runs, as its user.
func (u unit) command(name string) (*exec.Cmd, error) {
	args := strings.Fields(u.last("ExecStart"))
	if len(args) == 0 {
		return nil, fmt.Errorf("%s has no ExecStart", name)
	}
	who, err := user.Lookup(u.last("User"))
	if err != nil {
		return nil, err
	}
	for key, parent := range map[string]string{"StateDirectory": "/var/lib", "RuntimeDirectory": "/run"} {
		for _, dir := range strings.Fields(u.last(key)) {
			mode := cmp.Or(u.last(key+"Mode"), "0755")
			out, err := exec.Command("install", "-d", "-o", who.Uid, "-g", who.Gid, "-m", mode, filepath.Join(parent, dir)).CombinedOutput()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", out, err)
			}
		}
	}
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "USER=" + who.Username, "HOME=" + who.HomeDir}
	env = append(env, u["Environment"]...)
	for _, file := range u["EnvironmentFile"] {
		text, err := os.ReadFile(strings.TrimPrefix(file, "-"))
		if err != nil && !strings.HasPrefix(file, "-") {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); strings.Contains(line, "=") && !strings.HasPrefix(line, "#") {
				env = append(env, line)
			}
		}
	}
	for i, arg := range args { // $VARIABLES split into words, as systemd does
		if variable, ok := strings.CutPrefix(arg, "$"); ok {
			value := ""
			for _, e := range env {
				if v, ok := strings.CutPrefix(e, variable+"="); ok {
					value = v
				}
			}
			args = slices.Concat(args[:i], strings.Fields(value), args[i+1:])
			break
		}
	}
	cmd := exec.Command("setpriv", slices.Concat([]string{"--reuid=" + who.Uid, "--regid=" + who.Gid, "--init-groups",
		"--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"}, args)...)
	cmd.Env = env
	if mask, err := strconv.ParseUint(u.last("UMask"), 8, 32); err == nil {
		syscall.Umask(int(mask))
	}
	return cmd, nil
}
