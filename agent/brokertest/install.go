package brokertest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Install lays a release out below root as its archive does at home, as far as
// people use it to start brokers: home/bin/mqbroker and home/bin/mqnamesrv, which
// run the unmodified programs with the arguments that they are given, and with
// little memory, and home/lib. It is for systems whose root directory is root, and
// whose documents say "sh bin/mqbroker -c FILE".
func Install(t testing.TB, v Version, root, home string) {
	t.Helper()
	if err := install(v, root, home); err != nil {
		t.Fatal(fmt.Errorf("install a broker %s: %w", v, err))
	}
}

func install(v Version, root, home string) error {
	c, err := openCache()
	if err != nil {
		return err
	}
	jars, err := c.classPath(v)
	if err != nil {
		return err
	}
	at := filepath.Join(root, home)
	if err := errors.Join(writeHome(at), os.MkdirAll(filepath.Join(at, "bin"), 0o755)); err != nil {
		return err
	}
	if err := copyJars(filepath.Dir(jars), filepath.Join(at, "lib")); err != nil {
		return err
	}
	for script, main := range map[string]string{
		"mqbroker":  "org.apache.rocketmq.broker.BrokerStartup",
		"mqnamesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
	} {
		args := javaArgs(jvmOptions{classPath: filepath.Join(home, "lib", "*"), home: home, heapMiB: 256, main: main})
		text := "#!/bin/sh\nexec java '" + strings.Join(args, "' '") + "' \"$@\"\n"
		if err := os.WriteFile(filepath.Join(at, "bin", script), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// copyJars copies all files of a directory, which others may read then. CopyFS
// keeps what is there already.
func copyJars(from, to string) error {
	err := os.CopyFS(to, os.DirFS(from))
	return errors.Join(err, filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return errors.Join(err, os.Chmod(path, 0o755))
		}
		return os.Chmod(path, 0o644)
	}))
}
