package control_test

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

var update = flag.Bool("update", false, "write the metrics as they are now to testdata")

// whole is a status of a master in which everything has a value.
func whole() control.Status {
	return control.Status{Version: "1.2.3", Node: "m", Role: "master", State: state.Diverged, Code: "diverged", Since: time.Unix(1000, 0),
		Cluster: "DefaultCluster", BrokerName: "broker-a", Source: control.Source{Connected: true},
		Offsets: control.Offsets{Min: 100, Received: 900, Written: 900, Verified: 800, Flushed: 700, Acked: 700, Source: 1000}, Segments: 3, DiskFreeBytes: 1 << 40,
		CertExpires: time.Unix(2000, 0), Metadata: control.Metadata{Generation: 4, AgeSeconds: 2},
		Replicas: []control.Replica{{Node: "r1", Kind: "agent", State: state.Streaming, Acked: 700, Flushed: 600, LagBytes: 100, LagSeconds: 1.5},
			{Node: "10.0.0.9", Kind: "broker", State: state.CatchingUp, Acked: 10, Flushed: wire.NoOffset, LagBytes: 990}},
		Guarantee: &control.Guarantee{Waits: true, RelayAcks: 1, RelayConnected: true, Relayed: 650},
		Members:   []control.Member{{Status: "alive"}, {Status: "alive"}, {Status: "suspect"}}}
}

// wholeSlave is the same of a slave.
func wholeSlave() control.Status {
	s := whole()
	s.Role, s.State, s.Code, s.Guarantee, s.Replicas = "slave", state.Streaming, "", nil, nil
	s.LagBytes, s.LagSeconds = 200, 0.5
	return s
}

// scrape returns the metrics of a status as they are told.
func scrape(t *testing.T, s control.Status) string {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(control.Handlers{Status: func() control.Status { return s }, Counts: control.NewCounts()}.Collector())
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// The names, types, labels and units are a contract, which testdata holds: what
// promtool is asked about too (make promcheck).
func TestMetrics_AreAContract(t *testing.T) {
	for name, s := range map[string]control.Status{"master": whole(), "slave": wholeSlave()} {
		var got string
		synctest.Test(t, func(t *testing.T) { got = scrape(t, s) }) // where the clock stands still
		file := filepath.Join("testdata", "metrics-"+name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs; go test ./agent/control -run Contract -update writes it anew. Now:\n%s", file, got)
		}
	}
}

func TestMetrics_Lint(t *testing.T) {
	observer := control.Status{Role: "observer", State: state.Observing, Offsets: control.Offsets{Source: -1}, DiskFreeBytes: -1}
	for _, s := range []control.Status{whole(), wholeSlave(), observer, {}} {
		problems, err := testutil.CollectAndLint(control.Handlers{Status: func() control.Status { return s }, Counts: control.NewCounts()}.Collector())
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v, %v", s.Role, problems, err)
		}
	}
}

var described = regexp.MustCompile(`fqName: "([a-z_]+)"`)

// names returns the names of all metrics.
func names(t *testing.T) []string {
	t.Helper()
	ch := make(chan *prometheus.Desc, 200)
	control.Handlers{}.Collector().Describe(ch)
	close(ch)
	var list []string
	for d := range ch {
		list = append(list, described.FindStringSubmatch(d.String())[1])
	}
	if len(list) < 30 {
		t.Fatalf("%d metrics are described", len(list))
	}
	return list
}

var used = regexp.MustCompile(`haagent_[a-z_]+[a-z]`)

// What alert rules, dashboard and documentation name is there, and what is there
// is documented.
func TestMetrics_UsedOnesExist(t *testing.T) {
	root := filepath.Join("..", "..")
	all := names(t)
	base := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, file := range []string{"packaging/prometheus/haagent.rules.yml", "packaging/grafana/haagent.json", "docs/operations.md"} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		found := used.FindAllString(string(text), -1)
		if len(found) < 8 {
			t.Errorf("%s names %d metrics: are they still read?", file, len(found))
		}
		for _, name := range found {
			if !slices.Contains(all, name) && !slices.Contains(all, base.ReplaceAllString(name, "")) {
				t.Errorf("%s names %s, which does not exist", file, name)
			}
		}
		if strings.HasPrefix(file, "docs") {
			for _, name := range all {
				if !strings.Contains(string(text), "`"+name+"`") {
					t.Errorf("%s does not explain %s", file, name)
				}
			}
		}
	}
}

// Exactly one state is 1, whichever it is, and all of them are there.
func TestMetrics_EveryStateIsVisible(t *testing.T) {
	line := regexp.MustCompile(`haagent_state\{.*state="([a-z_]+)"\} ([01])`)
	for _, now := range state.All() {
		s := wholeSlave()
		s.State = now
		rows := line.FindAllStringSubmatch(scrape(t, s), -1)
		if len(rows) != len(state.All()) {
			t.Fatalf("%d states are told", len(rows))
		}
		for _, row := range rows {
			if (row[2] == "1") != (row[1] == string(now)) {
				t.Errorf("in %s, %s is %s", now, row[1], row[2])
			}
		}
	}
}

// Whatever peers are called, and however many there are: every scrape succeeds, no
// value is negative, and the number of series is bounded.
func TestMetrics_SurviveAnyPeers(t *testing.T) {
	text := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "\xff\xfe", "a\nb\"\\", strings.Repeat("x", 500)}), rapid.String())
	negative := regexp.MustCompile(`(?m)^haagent.* -\S+$`)
	rapid.Check(t, func(rt *rapid.T) {
		s := whole()
		s.Role = rapid.SampledFrom([]string{"master", "slave", "observer", "\xff"}).Draw(rt, "role")
		s.Cluster, s.BrokerName, s.Version, s.Code = text.Draw(rt, "cluster"), text.Draw(rt, "broker"), text.Draw(rt, "version"), text.Draw(rt, "code")
		number := rapid.Int64Range(-3, 1<<62)
		s.Replicas = nil
		for i := range rapid.SampledFrom([]int{0, 0, 0, 400}).Draw(rt, "many") {
			s.Replicas = append(s.Replicas, control.Replica{Node: fmt.Sprint("node ", i), State: state.Streaming})
		}
		for range rapid.IntRange(0, 5).Draw(rt, "replicas") {
			s.Replicas = append(s.Replicas, control.Replica{Node: text.Draw(rt, "node"), Kind: text.Draw(rt, "kind"), State: state.Streaming,
				Acked: wire.PhyOffset(number.Draw(rt, "acked")), LagBytes: number.Draw(rt, "lag"), LagSeconds: rapid.Float64Range(-1, 1e9).Draw(rt, "seconds")})
		}
		s.Members = append(s.Members, control.Member{Status: text.Draw(rt, "status")})
		s.LagBytes, s.DiskFreeBytes, s.Offsets.Acked = number.Draw(rt, "behind"), number.Draw(rt, "disk"), wire.PhyOffset(number.Draw(rt, "offset"))
		out := scrape(t, s)
		if bad := negative.FindString(out); bad != "" {
			rt.Fatalf("a negative value: %s", bad)
		}
		if n := strings.Count(out, "\n"); n > 300+5*256 {
			rt.Fatalf("%d lines", n)
		}
	})
}

// The series of a replica end with it, and what is not known has none.
func TestMetrics_NothingStale(t *testing.T) {
	s := whole()
	if out := scrape(t, s); !strings.Contains(out, `peer="r1"`) || strings.Contains(out, `haagent_replica_flushed_offset_bytes{broker="broker-a",cluster="DefaultCluster",kind="broker"`) {
		t.Error(out)
	}
	s.Replicas, s.Offsets.Source = nil, wire.NoOffset
	if out := scrape(t, s); strings.Contains(out, "peer=") || strings.Contains(out, `stage="source"`) || strings.Contains(out, "haagent_lag_bytes") {
		t.Error(out)
	}
}

// What is counted is told: waits by their answer, attempts by how they ended.
func TestMetrics_CountersMove(t *testing.T) {
	counts := control.NewCounts()
	h := control.Handlers{Status: whole, Counts: counts}
	addr := serveHTTP(t, h)
	for range 2 {
		if code, _ := request(t, http.MethodGet, "http://"+addr+"/v1/wait?offset=now"); code != http.StatusConflict {
			t.Errorf("a wait is answered with %d", code)
		}
	}
	counts.Reconnect(errors.New("it hung up"))
	counts.Reconnect(fmt.Errorf("no: %w", &state.Problem{State: state.Gap, Code: "history_gone"}))
	counts.Reconnect(&state.Problem{State: "unheard_of"})
	counts.Received.Frame(1000)
	counts.Fsync.Observe(3 * time.Millisecond)
	counts.Reloaded(errors.New("no such option"))
	_, out := request(t, http.MethodGet, "http://"+addr+"/metrics")
	for _, want := range []string{
		`haagent_waits_total{answer="refused",broker="broker-a",cluster="DefaultCluster",role="master"} 2`,
		`haagent_waits_total{answer="PUT_OK",broker="broker-a",cluster="DefaultCluster",role="master"} 0`,
		`reason="connection",role="master"} 2`, `reason="gap",role="master"} 1`, `reason="diverged",role="master"} 0`,
		`haagent_bytes_total{broker="broker-a",cluster="DefaultCluster",direction="received",role="master"} 1000`,
		`haagent_fsync_seconds_bucket{broker="broker-a",cluster="DefaultCluster",role="master",le="0.005"} 1`,
		`haagent_fsync_seconds_bucket{broker="broker-a",cluster="DefaultCluster",role="master",le="0.0025"} 0`,
		`haagent_config_last_reload_success{broker="broker-a",cluster="DefaultCluster",role="master"} 0`,
		"\ngo_goroutines ", "\nprocess_open_fds ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}
