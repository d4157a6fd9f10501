package packaging_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
)

// brokerHome is where documents say that RocketMQ lies.
const brokerHome = "/opt/rocketmq"

// step is one fenced block of a document and the machines that it is for.
type step struct {
	hosts    []string
	file     string // that the block is the content of; empty: commands
	dir      string // that the commands run in
	language string
	lines    []string
}

// A line that ends in a colon says for whom the next block is:
//
//	On 10.0.0.6 and 10.0.0.7, `/etc/haagent/haagent.yml`:
//	... On 10.0.0.5, in `/opt/rocketmq`:
//	... On 10.0.0.5:
var forWhom = regexp.MustCompile("(?:^|[\\s,;])[Oo]n\\s+(10\\.0\\.0\\.\\d+)(?:\\s+and\\s+(10\\.0\\.0\\.\\d+))?(?:,\\s+(in\\s+)?`([^`]+)`)?:$")

// steps reads a document from heading on ("": from its beginning) to the next one
// of the same depth.
func steps(t *testing.T, document, heading string) []step {
	t.Helper()
	text := readAll(t, filepath.Join("..", "docs", document))
	if heading != "" {
		_, rest, ok := strings.Cut(text, "\n"+heading+"\n")
		if !ok {
			t.Fatalf("%s has no %q", document, heading)
		}
		depth, _, _ := strings.Cut(heading, " ")
		text, _, _ = strings.Cut(rest, "\n"+depth+" ")
	} else {
		text, _, _ = strings.Cut(text, "\n## ")
	}
	var all []step
	prose, open := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !open:
			open = true
			s := step{language: language}
			if m := forWhom.FindStringSubmatch(strings.TrimRight(prose, "\n")); m != nil {
				s.hosts = append(s.hosts, m[1])
				if m[2] != "" {
					s.hosts = append(s.hosts, m[2])
				}
				if m[3] != "" {
					s.dir = m[4]
				} else {
					s.file = m[4]
				}
			}
			all, prose = append(all, s), ""
		case fence:
			open = false
		case open:
			last := &all[len(all)-1]
			last.lines = append(last.lines, line)
		default:
			prose += line + "\n"
		}
	}
	for _, s := range all {
		if s.language != "text" && len(s.hosts) == 0 {
			t.Fatalf("%s does not say on which machine to use\n%s", document, strings.Join(s.lines, "\n"))
		}
	}
	return all
}

// town is the machines that the documents speak of.
type town struct {
	t       *testing.T
	version brokertest.Version
	at      map[string]*machine
	brokers map[string]func() // by address: kills the broker that a document had started
	played  int               // commands and files
}

func newTown(t *testing.T, v brokertest.Version) *town {
	t.Helper()
	w := &town{t: t, version: v, brokers: map[string]func(){}}
	release := t.TempDir() // a file system of its own, so that it can lie over that of this system
	shell(t, "mount -t tmpfs tmpfs "+release)
	t.Cleanup(func() { shell(t, "umount "+release) })
	brokertest.Install(t, v, release, brokerHome)
	w.at = newMachines(t, map[string]string{
		"10.0.0.5": "broker-1", "10.0.0.6": "replica-1", "10.0.0.7": "replica-2", "10.0.0.8": "slave-1", "10.0.0.9": "names-1",
	}, release)
	for addr, m := range w.at {
		// What stands for sudo, and for copying between machines.
		m.write("/usr/local/bin/sudo", "#!/bin/sh\nif [ \"$1\" = -u ]; then user=$2; shift 2; exec setpriv --reuid=\"$user\" --regid=\"$user\" --init-groups -- \"$@\"; fi\nexec \"$@\"\n", 0o755)
		m.run("mkdir -p /etc/rocketmq; useradd --system --home-dir " + brokerHome + " rocketmq; install -d -o rocketmq -g rocketmq /data/rocketmq/store; chown rocketmq: " + brokerHome)
		if addr == "10.0.0.9" {
			m.write("/etc/rocketmq/namesrv.conf", "listenPort=9876\n", 0o644)
			m.start("sh " + brokerHome + "/bin/mqnamesrv -c /etc/rocketmq/namesrv.conf")
			waitFor(t, "the name server", func() (string, bool) { return m.words(), listens("10.0.0.9:9876") })
		}
	}
	return w
}

// play does what a part of a document says, in its order.
func (w *town) play(document, heading string) {
	w.t.Helper()
	w.t.Logf("=== docs/%s %s", document, heading)
	for _, s := range steps(w.t, document, heading) {
		for _, host := range s.hosts {
			m := w.at[host]
			if m == nil {
				w.t.Fatalf("%s: there is no machine %s", document, host)
			}
			w.do(m, s)
		}
	}
}

func (w *town) do(m *machine, s step) {
	w.t.Helper()
	text := strings.Join(s.lines, "\n") + "\n"
	switch {
	case s.language == "text":
	case s.file != "":
		w.t.Logf("%s: %s", m.name, s.file)
		m.write(s.file, text, 0o644)
		w.played++
	case s.language == "sh":
		for _, line := range s.lines {
			w.command(m, s.dir, line)
			w.played++
		}
	default:
		w.t.Fatalf("what is to be done with %s?\n%s", s.language, text)
	}
}

var startsBroker = regexp.MustCompile(`^sudo -u rocketmq sh bin/mqbroker -c (\S+)$`)

func (w *town) command(m *machine, dir, line string) {
	w.t.Helper()
	if from := strings.Fields(line); len(from) == 4 && from[1] == "scp" {
		host, path, _ := strings.Cut(from[2], ":")
		m.write(from[3], readAll(w.t, w.at[host].path(path)), 0o600)
		return
	}
	if conf := startsBroker.FindStringSubmatch(line); conf != nil {
		w.startBroker(m, conf[1])
		return
	}
	if dir != "" {
		line = "cd " + dir + "; " + line
	}
	if !strings.HasPrefix(line, "haagent status") && !strings.HasPrefix(line, "haagent wait") {
		m.run(line)
		return
	}
	// A reader looks again until it is so.
	waitFor(w.t, m.name+": "+line, func() (string, bool) {
		out, err := m.try(line)
		return fmt.Sprint(out, err), err == nil
	})
}

// startBroker starts a broker and waits until it serves.
func (w *town) startBroker(m *machine, conf string) {
	w.t.Helper()
	if kill := w.brokers[m.addr]; kill != nil {
		kill()
	}
	cmd := m.start("setpriv --reuid=rocketmq --regid=rocketmq --init-groups sh -c 'cd " + brokerHome + " && exec sh bin/mqbroker -c " + conf + "'")
	w.brokers[m.addr] = func() { m.end(cmd) }
	before := strings.Count(m.words(), "boot success")
	defer func() {
		if w.t.Failed() {
			m.run("tail -n 30 " + brokerHome + "/logs/rocketmqlogs/*.log")
		}
	}()
	waitFor(w.t, "the broker on "+m.name, func() (string, bool) {
		return m.words(), strings.Count(m.words(), "boot success") > before && listens(m.addr+":10911")
	})
}

// packages builds the packages with a version and returns the Debian one for this
// machine.
func packages(t *testing.T, version string) string {
	t.Helper()
	dist := t.TempDir()
	shell(t, "cd .. && make packages VERSION="+version+" DIST="+dist+" ARCHES=$(dpkg --print-architecture) FORMATS=deb")
	found, err := filepath.Glob(filepath.Join(dist, "*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("make packages leaves %v: %v", found, errors.Join(err, os.ErrNotExist))
	}
	return found[0]
}

// install installs a package on machines as docs/install.md says.
func (w *town) install(deb string, hosts ...string) {
	w.t.Helper()
	for _, host := range hosts {
		m := w.at[host]
		start := time.Now()
		m.run("sudo apt-get install -y --no-install-recommends --allow-downgrades -o Dpkg::Options::=--force-confold " + deb)
		w.t.Logf("%s: installed in %v", m.name, time.Since(start).Round(time.Millisecond))
	}
}
