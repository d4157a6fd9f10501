package brokertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// jvmOptions says how to run a Java program.
type jvmOptions struct {
	classPath string
	home      string // rocketmq.home.dir and user.home, made here
	heapMiB   int
	flags     []string
	main      string
	args      []string
	log       string // file that takes what the program prints
	stdin     io.Reader
	stdout    io.Writer // instead of the log, for standard output
}

// A jvm is one running Java program.
type jvm struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed once the process has ended and err is set
	err  error
}

// startJVM starts a Java program. It dies with the thread that called this,
// which the Go runtime keeps as long as the process, unless a goroutine that is
// locked to its thread ends without unlocking it.
func startJVM(o jvmOptions) (*jvm, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("java runs the brokers and is not on the PATH (a JDK is needed): %w", err)
	}
	if err := writeHome(o.home); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(o.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", o.main, err)
	}
	cmd := exec.Command(java, javaArgs(o)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.stdin, log, log
	if o.stdout != nil {
		cmd.Stdout = o.stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := errors.Join(cmd.Start(), log.Close()); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.main, err)
	}
	p := &jvm{cmd: cmd, log: o.log, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// javaArgs writes the command line of a Java program. Tests start many short
// lives on few cores, so the flags favour a quick start over peak speed; the
// caller's flags come later and win.
func javaArgs(o jvmOptions) []string {
	var args []string
	for _, p := range []string{"java.nio", "sun.nio.ch", "java.lang", "java.util"} {
		args = append(args, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
	}
	heap := strconv.Itoa(o.heapMiB) + "m"
	args = append(args,
		"--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
		"--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
		"-Xms"+heap, "-Xmx"+heap, "-XX:MaxDirectMemorySize="+strconv.Itoa(2*o.heapMiB)+"m",
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData",
		"-Duser.home="+o.home, "-Drocketmq.home.dir="+o.home,
		"-Drocketmq.client.logRoot="+filepath.Join(o.home, "logs"),
		"-Dcom.rocketmq.sendMessageWithVIPChannel=false",
		"-Dtls.server.mode=disabled", // setting up TLS takes seconds
		// A broker refuses to write above these shares of a used disk, which
		// says nothing about a test.
		"-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
		"-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
	)
	args = append(args, o.flags...)
	args = append(args, "-cp", o.classPath, o.main)
	return append(args, o.args...)
}

// writeHome makes a home directory with the logging configurations that 4.x
// looks for there.
func writeHome(home string) error {
	conf := filepath.Join(home, "conf")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return fmt.Errorf("home of a broker: %w", err)
	}
	text, err := javaFiles.ReadFile("java/logback.xml")
	if err != nil {
		return fmt.Errorf("read the embedded log configuration: %w", err)
	}
	for _, part := range []string{"namesrv", "broker", "tools"} {
		if err := os.WriteFile(filepath.Join(conf, "logback_"+part+".xml"), text, 0o644); err != nil {
			return fmt.Errorf("home of a broker: %w", err)
		}
	}
	return nil
}

// ended reports whether the process is gone.
func (p *jvm) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process at once and waits for it.
func (p *jvm) kill() error {
	err := p.signal(syscall.SIGKILL)
	<-p.done
	return err
}

// stop asks the process to end and waits up to the given time; then it is killed
// and an error says so.
func (p *jvm) stop(patience time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("process %d did not end within %v of SIGTERM", p.cmd.Process.Pid, patience), p.kill())
	}
}

// signal sends a signal; a process that has ended already is fine.
func (p *jvm) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.cmd.Process.Pid, err)
	}
	return nil
}

// output returns what the program has printed so far.
func (p *jvm) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
