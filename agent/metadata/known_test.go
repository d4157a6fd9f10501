package metadata

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/haagent/haagent/wire/remoting"
)

func TestFault53_EveryFileOfABrokerHasItsPlace(t *testing.T) {
	want := map[string]Policy{
		"topics.json": AtOnce, "topicQueueMapping.json": AtOnce, "subscriptionGroup.json": AtOnce,
		"messageRequestMode.json": AtOnce, "consumerFilter.json": AtOnce, "transactionMetrics": AtOnce,
		"consumerOffset.json": WhenCovered, "delayOffset.json": WhenCovered,
		"lmqConsumerOffset.json": WhenCovered, "consumerOrderInfo.json": WhenCovered,
		"timercheck": HistoryOnly, "timermetrics": HistoryOnly,
	}
	for name, policy := range want {
		if k, ok := Lookup(name); !ok || k.Policy != policy {
			t.Errorf("%s: %v, %v, want %v", name, k.Policy, ok, policy)
		}
	}
	// What real brokers have written is known, all of it.
	paths, err := filepath.Glob("testdata/stock/*/config/*")
	if err != nil || len(paths) < 30 {
		t.Fatalf("%d files of brokers, %v", len(paths), err)
	}
	for _, path := range paths {
		if _, ok := Lookup(filepath.Base(path)); !ok {
			t.Errorf("%s is not known", path)
		}
	}
	seen := make(map[string]bool)
	for n, k := range KnownFiles() {
		if k.Holds == "" || k.Since == "" || seen[k.Name] || k.Policy.String() == "unknown policy" {
			t.Errorf("%s: entry is not complete, or double", k.Name)
		}
		if (k.Policy == HistoryOnly || k.Policy == Never) != (k.Why != "") {
			t.Errorf("%s: %v with the reason %q", k.Name, k.Policy, k.Why)
		}
		if k.Policy.installable() != (k.Request != 0 || k.Without != "") {
			if k.Policy.installable() {
				t.Errorf("%s: neither a request nor what it means to go without", k.Name)
			}
		}
		if n > 0 && k.Policy < KnownFiles()[n-1].Policy {
			t.Errorf("%s: %v behind %v; what positions refer to is installed before them", k.Name, k.Policy, KnownFiles()[n-1].Policy)
		}
		seen[k.Name] = true
	}
}

func TestNotOverStock(t *testing.T) {
	var names []string
	for _, k := range NotOverStock() {
		names = append(names, k.Name)
	}
	if want := []string{"consumerFilter.json", "transactionMetrics", "lmqConsumerOffset.json", "consumerOrderInfo.json"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

// badNames are what a peer might send to get out of config/.
var badNames = []string{
	"", ".", "..", "../x", "/etc/passwd", "commitlog/evil", "config/../commitlog/1", "topics.json/", "./topics.json",
	"topics.json\x00", "\x00", "topics.json.bak", "topics.json.tmp", "Topics.json", " topics.json", "topics.json ",
	"timerwheel", "consumequeue", "checkpoint", "config/users", "lock", "abort", "broker.properties",
	"topics.json\n", strings.Repeat("a", 300),
}

func TestFault88_NamesFromAPeer(t *testing.T) {
	dir := t.TempDir()
	i := open(t, dir, Options{})
	before := tree(t, dir)
	for _, name := range badNames {
		if _, ok := Lookup(name); ok {
			t.Errorf("%q is known", name)
		}
		if _, err := NewFile(name, []byte("{}")); !errors.Is(err, ErrName) {
			t.Errorf("NewFile(%q): %v", name, err)
		}
		f := mustFile(t, "topics.json", topics(1, 1))
		good := f
		f.Name = name
		if err := i.Offer(Snapshot{Files: []File{good, f}}); !errors.Is(err, ErrName) {
			t.Errorf("Offer of %q: %v", name, err)
		}
	}
	installed(t, i, 1<<40)
	if after := tree(t, dir); !slices.Equal(before, after) {
		t.Errorf("the store changed from %q to %q", before, after)
	}
}

// tree lists all paths below dir.
func tree(t testing.TB, dir string) []string {
	t.Helper()
	var list []string
	if err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		list = append(list, strings.TrimPrefix(path, dir))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestFault88_TargetsThatAreNotOurs(t *testing.T) {
	for kind, make := range map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink(filepath.Join(filepath.Dir(path), "..", "victim"), path) },
		"dead link": func(path string) error { return os.Symlink("nowhere", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"fifo":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "victim"), []byte("untouched"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "config"), 0o755); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "config", "subscriptionGroup.json")
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			i := open(t, dir, Options{})
			offered(t, i, Snapshot{Files: []File{
				mustFile(t, "topics.json", topics(1, 3)),
				mustFile(t, "subscriptionGroup.json", []byte(`{"subscriptionGroupTable":{}}`)),
			}})
			before := tree(t, dir)
			for range 2 {
				if names, err := i.Install(0); !errors.Is(err, ErrTarget) || names != nil {
					t.Fatalf("Install: %q, %v", names, err)
				}
			}
			if after := tree(t, dir); !slices.Equal(before, after) {
				t.Errorf("the store changed from %q to %q", before, after)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "victim")); err != nil || string(b) != "untouched" {
				t.Errorf("what the link points to: %q, %v", b, err)
			}
			// Once the cause is gone it goes on by itself.
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			installed(t, i, 0, "topics.json", "subscriptionGroup.json")
		})
	}
}

func TestFault88_ConfigDirectoryIsALink(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(dir, "config")); err != nil {
		t.Fatal(err)
	}
	i := open(t, dir, Options{})
	offered(t, i, Snapshot{Files: []File{mustFile(t, "topics.json", topics(1, 3))}})
	if _, err := i.Install(0); !errors.Is(err, ErrTarget) {
		t.Errorf("Install: %v", err)
	}
	if names := listing(t, elsewhere); names != nil {
		t.Errorf("written through the link: %q", names)
	}
}

func TestNewFile_Refuses(t *testing.T) {
	for _, test := range []struct {
		name    string
		content string
		err     error
	}{
		{"topics.json", "", ErrIncomplete},
		{"topics.json", " \n", ErrIncomplete},
		{"topics.json", "{", ErrIncomplete},
		{"topics.json", "[]", ErrNotJSON},
		{"topics.json", "1", ErrNotJSON},
		{"topics.json", `{} rubbish`, ErrNotJSON},
		{"transactionMetrics", "\x00\x00", ErrNotJSON},
		{"timercheck", "", ErrIncomplete},
	} {
		if _, err := NewFile(test.name, []byte(test.content)); !errors.Is(err, test.err) {
			t.Errorf("%s %q: %v, want %v", test.name, test.content, err, test.err)
		}
	}
	if _, err := NewFile("timercheck", make([]byte, MaxFile+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("timercheck beyond MaxFile: %v", err)
	}
}

func TestOffer_RefusesWhatCannotBeRight(t *testing.T) {
	i := open(t, t.TempDir(), Options{})
	f := mustFile(t, "topics.json", topics(1, 3))
	wrong := f
	wrong.SHA256[0]++
	torn := f
	torn.Content = f.Content[:len(f.Content)-1]
	half := torn
	half.SHA256 = hashed(half.Content)
	for what, test := range map[string]struct {
		s   Snapshot
		err error
	}{
		"twice the same name": {Snapshot{Files: []File{f, f}}, ErrName},
		"another hash":        {Snapshot{Files: []File{wrong}}, ErrHash},
		"torn":                {Snapshot{Files: []File{torn}}, ErrHash},
		"half":                {Snapshot{Files: []File{half}}, ErrIncomplete},
		"negative end":        {Snapshot{SourceEnd: -2, Files: []File{f}}, nil},
	} {
		if err := i.Offer(test.s); err == nil || test.err != nil && !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", what, err, test.err)
		}
	}
	installed(t, i, 1<<40)
}

func TestFile_DataVersion(t *testing.T) {
	for in, want := range map[string]*remoting.DataVersion{
		`{"dataVersion":{"counter":5,"timestamp":7},"t":{}}`:                 {Counter: 5, Timestamp: 7},
		`{"t":{"dataVersion":{"counter":1}}}`:                                nil,
		`{"offsetTable":{0:1},"dataVersion":{"counter":2,"stateVersion":3}}`: {Counter: 2, StateVersion: 3},
		`{"dataVersion":7}`: nil, `{"dataVersion":{"counter":"x"}}`: nil, `{}`: nil,
	} {
		got := mustFile(t, "consumerOffset.json", []byte(in)).DataVersion
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: %v, want %v", in, got, want)
		}
	}
}
