package brokertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// fetchTimeout bounds one run of mvn; a version is about 80 MB.
	fetchTimeout = 10 * time.Minute
	// compileTimeout bounds one run of javac.
	compileTimeout = 2 * time.Minute
	// completeMarker is the file that says that a lib directory is whole.
	completeMarker = ".complete"
)

//go:embed java
var javaFiles embed.FS

// A cache is the directory of fetched jars and compiled classes.
type cache struct{ dir string }

// openCache returns the cache that the environment names, and makes its directory.
func openCache() (cache, error) {
	dir := os.Getenv("HAAGENT_BROKER_CACHE")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return cache{}, fmt.Errorf("no directory for broker jars (set HAAGENT_BROKER_CACHE): %w", err)
		}
		dir = filepath.Join(user, "haagent-brokers")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return cache{}, fmt.Errorf("create the cache of broker jars: %w", err)
	}
	return cache{dir: dir}, nil
}

// classPath returns the class path of v, after fetching its jars if need be.
func (c cache) classPath(v Version) (string, error) {
	if v.Major() == 0 {
		return "", fmt.Errorf("%q is no version of RocketMQ (see %s)", v, versionsVariable)
	}
	lib := filepath.Join(c.dir, "lib-"+string(v))
	err := c.once(filepath.Join(lib, completeMarker), func() error { return c.fetch(v, lib) })
	if err != nil {
		return "", fmt.Errorf("broker %s: %w", v, err)
	}
	return filepath.Join(lib, "*"), nil
}

// once makes what the marker file stands for unless it is there already. Two
// processes never make at the same time, and the second finds the first's work.
func (c cache) once(marker string, produce func() error) (err error) {
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	lock, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("lock the cache of broker jars: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := flock(lock, syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	return produce()
}

// flock is flock(2), repeated while signals interrupt it.
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// fetch has Maven copy the jars of v next to lib, and moves them there when all
// of them have come. What an interrupted fetch has left is fetched anew.
func (c cache) fetch(v Version, lib string) (err error) {
	if _, err := exec.LookPath("mvn"); err != nil {
		return fmt.Errorf("mvn fetches the broker's jars and is not on the PATH: %w", err)
	}
	work, err := os.MkdirTemp(c.dir, "fetch-")
	if err != nil {
		return fmt.Errorf("prepare the fetch: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	pom, err := javaFiles.ReadFile("java/pom.xml")
	if err != nil {
		return fmt.Errorf("read the embedded project file: %w", err)
	}
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o644); err != nil {
		return fmt.Errorf("prepare the fetch: %w", err)
	}
	jars := filepath.Join(work, "lib")
	if err := runTool(fetchTimeout, work, "mvn", "-q", "-B", "dependency:copy-dependencies",
		"-Drocketmq.version="+string(v), "-DoutputDirectory="+jars); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(jars, completeMarker), nil, 0o644); err != nil {
		return fmt.Errorf("mark the fetched jars: %w", err)
	}
	if err := os.RemoveAll(lib); err != nil {
		return fmt.Errorf("clear an interrupted fetch: %w", err)
	}
	if err := os.Rename(jars, lib); err != nil {
		return fmt.Errorf("keep the fetched jars: %w", err)
	}
	return nil
}

// driverPath returns the class path of the driver for v, after compiling it
// against the jars of v if this very source has not been compiled yet.
func (c cache) driverPath(v Version) (string, error) {
	lib, err := c.classPath(v)
	if err != nil {
		return "", err
	}
	sources, err := fs.Glob(javaFiles, "java/*.java")
	if err != nil {
		return "", fmt.Errorf("list the driver's sources: %w", err)
	}
	hash := sha256.New()
	texts := make(map[string][]byte, len(sources))
	for _, name := range sources {
		text, err := javaFiles.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read the driver's source: %w", err)
		}
		texts[filepath.Base(name)] = text
		fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
	}
	classes := filepath.Join(c.dir, fmt.Sprintf("driver-%s-%s", v, hex.EncodeToString(hash.Sum(nil))[:16]))
	if err := c.once(classes, func() error { return c.compile(lib, classes, texts) }); err != nil {
		return "", fmt.Errorf("driver for %s: %w", v, err)
	}
	return classes + string(filepath.ListSeparator) + lib, nil
}

// compile turns the sources into class files in a directory that appears whole.
func (c cache) compile(lib, classes string, texts map[string][]byte) (err error) {
	if _, err := exec.LookPath("javac"); err != nil {
		return fmt.Errorf("javac compiles the driver and is not on the PATH (a JDK is needed): %w", err)
	}
	work, err := os.MkdirTemp(c.dir, "compile-")
	if err != nil {
		return fmt.Errorf("prepare the compilation: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	args := []string{"-nowarn", "-encoding", "UTF-8", "-cp", lib, "-d", filepath.Join(work, "classes")}
	for name, text := range texts {
		path := filepath.Join(work, name)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return fmt.Errorf("prepare the compilation: %w", err)
		}
		args = append(args, path)
	}
	if err := runTool(compileTimeout, work, "javac", args...); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(work, "classes"), classes); err != nil {
		return fmt.Errorf("keep the compiled driver: %w", err)
	}
	return nil
}

// runTool runs a program to its end; its output becomes part of the error.
func runTool(timeout time.Duration, dir, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, lastWords(out.String()))
	}
	return nil
}
