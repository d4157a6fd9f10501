package metadata

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// settle lets the time of a bubble pass, and then everything happen that is due.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A broker that adds a topic 20 times a second, each way of writing, with a reader
// on the replica.
func TestPair_Churn_Faults44And48(t *testing.T) {
	const versions = 40
	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			size := func(v int) int { return 200 + v }
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, SnapshotterOptions{})
				p.start(t)
				r := &reader{dir: p.rep, name: "topics.json", version: topicsVersion(size)}
				stop, done := make(chan struct{}), make(chan error, 1)
				go func() { done <- r.follow(7*time.Millisecond, stop) }()
				for v := 1; v <= versions; v++ {
					start := time.Now()
					if err := p.write("topics.json", topics(v, size(v)), style, 3*time.Millisecond); err != nil {
						t.Fatal(err)
					}
					time.Sleep(50*time.Millisecond - time.Since(start))
				}
				settle(DefaultInterval)
				close(stop)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				wantContent(t, p.rep, "topics.json", topics(versions, size(versions)))
				if _, parcels := p.traffic(); parcels < 5 || r.reads < 100 {
					t.Errorf("%d snapshots, %d reads", parcels, r.reads)
				}
			})
		})
	}
}

// A broker that takes a second for each step, then one that dies at each.
func TestPair_SlowMotionAndDeath_Fault48(t *testing.T) {
	for name, style := range styles {
		for k := 0; ; k++ { // 0: it does not die
			steps := 0
			t.Run(fmt.Sprint(name, "/", k), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPair(t, SnapshotterOptions{})
					for v := 1; v <= 2; v++ {
						written(t, p.src, "topics.json", topics(v, 50))
					}
					p.start(t)
					synctest.Wait()
					wantContent(t, p.rep, "topics.json", topics(2, 50))
					r := &reader{dir: p.rep, name: "topics.json", version: topicsVersion(func(int) int { return 50 })}
					stop, done := make(chan struct{}), make(chan error, 1)
					go func() { done <- r.follow(100*time.Millisecond, stop) }()
					err := forge.WriteConfig(p.src, "topics.json", topics(3, 50), style, func(string) error {
						p.hint()
						if steps++; steps == k {
							return errDied
						}
						time.Sleep(time.Second)
						return nil
					})
					if k > 0 && err != nil != (k <= steps) {
						t.Fatal(err)
					}
					settle(2 * DefaultInterval)
					if err == nil {
						wantContent(t, p.rep, "topics.json", topics(3, 50))
					}
					// The broker is started again and writes its state anew.
					if err := p.write("topics.json", topics(4, 50), style, 0); err != nil {
						t.Fatal(err)
					}
					settle(DefaultInterval)
					wantContent(t, p.rep, "topics.json", topics(4, 50))
					close(stop)
					if err := <-done; err != nil || r.seen != 4 {
						t.Errorf("version %d: %v", r.seen, err)
					}
				})
			})
			if k > steps {
				break
			}
		}
	}
}

// A watch that saw nothing but the first change: what it missed arrives with the
// next interval.
func TestPair_HintsLost_Fault77(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, SnapshotterOptions{})
		p.start(t)
		for round := range 5 {
			for v := range 100 {
				tmp := filepath.Join(p.src, "config", "topics.json.new")
				if err := os.WriteFile(tmp, topics(100*round+v+1, 5), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(tmp, filepath.Join(p.src, "config", "topics.json")); err != nil {
					t.Fatal(err)
				}
				if round == 0 && v == 0 {
					p.hint()
				}
				time.Sleep(50 * time.Millisecond)
			}
			settle(DefaultInterval)
			wantContent(t, p.rep, "topics.json", topics(100*round+100, 5))
		}
	})
}

// Changes of equal size in the same millisecond, with their time set back.
func TestPair_EqualSizeAndTime_Fault80(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, SnapshotterOptions{})
		path := filepath.Join(p.src, "config", "topics.json")
		at := time.UnixMilli(1_700_000_000_000)
		p.start(t)
		for v := 1; v < 10; v++ {
			if err := os.WriteFile(path, topics(v, 5), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
			settle(DefaultInterval)
			wantContent(t, p.rep, "topics.json", topics(v, 5))
		}
	})
}

// A topic that is deleted goes away on the replica too. A file that is deleted
// stays there, for as long as it is away.
func TestPair_Deletions_Fault45(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, SnapshotterOptions{})
		written(t, p.src, "topics.json", topics(1, 50))
		written(t, p.src, "subscriptionGroup.json", []byte(`{"subscriptionGroupTable":{"a":{},"b":{}}}`))
		p.start(t)
		synctest.Wait()
		written(t, p.src, "topics.json", topics(2, 49))
		written(t, p.src, "subscriptionGroup.json", []byte(`{"subscriptionGroupTable":{"a":{}}}`))
		settle(DefaultInterval)
		wantContent(t, p.rep, "topics.json", topics(2, 49))
		wantContent(t, p.rep, "subscriptionGroup.json", []byte(`{"subscriptionGroupTable":{"a":{}}}`))
		for _, name := range []string{"topics.json", "topics.json.bak"} {
			if err := os.Remove(filepath.Join(p.src, "config", name)); err != nil {
				t.Fatal(err)
			}
		}
		p.hint()
		settle(time.Hour)
		wantContent(t, p.rep, "topics.json", topics(2, 49))
		if st := status(t, p.i, "topics.json"); !st.Stale || st.Age < 59*time.Minute {
			t.Errorf("%+v", st)
		}
		written(t, p.src, "topics.json", topics(3, 1))
		settle(DefaultInterval)
		wantContent(t, p.rep, "topics.json", topics(3, 1))
	})
}

// Whatever else lies in the source's directory does not travel.
func TestPair_OnlyKnownPlainFiles_Fault50(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, SnapshotterOptions{})
		config := filepath.Join(p.src, "config")
		for _, name := range []string{"topics.json.tmp", "topics.json~", ".topics.json.swp", "other.json", "delayOffset.json.bak", "sub/topics.json"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(config, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(config, name), topics(1, 1), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Symlink("topics.json~", filepath.Join(config, "subscriptionGroup.json")),
			syscall.Mkfifo(filepath.Join(config, "consumerFilter.json"), 0o600)); err != nil {
			t.Fatal(err)
		}
		written(t, p.src, "topics.json", topics(2, 5))
		written(t, p.src, "timercheck", []byte{1, 2, 3})
		p.start(t)
		settle(3 * DefaultInterval)
		if got := listing(t, p.rep, "config"); !slices.Equal(got, []string{"topics.json"}) {
			t.Errorf("config/ of the replica holds %q", got)
		}
		if got := listing(t, p.rep, ".haagent", "tmp"); len(got) != 0 {
			t.Errorf("left over: %q", got)
		}
	})
}

// Positions wait for the log, nothing else does; and where the end of the source's
// log is not known they wait whatever the replica holds.
func TestPair_PositionsWaitForTheLog_Fault51(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := make(chan wire.PhyOffset, 1)
		end := wire.NoOffset // as Run's goroutine knows it
		p := newPair(t, SnapshotterOptions{End: func(context.Context) wire.PhyOffset {
			select {
			case end = <-ends:
			default:
			}
			return end
		}})
		p.verified.Store(1 << 40)
		written(t, p.src, "topics.json", topics(1, 5))
		written(t, p.src, "consumerOffset.json", offsets(1))
		p.start(t)
		settle(3 * DefaultInterval)
		wantContent(t, p.rep, "topics.json", topics(1, 5))
		wantContent(t, p.rep, "consumerOffset.json", nil)
		sent, _ := p.traffic()
		p.verified.Store(999)
		ends <- 1000
		settle(DefaultInterval)
		wantContent(t, p.rep, "consumerOffset.json", nil)
		if st := status(t, p.i, "consumerOffset.json"); st.Waits != 1000 {
			t.Errorf("%+v", st)
		}
		written(t, p.src, "topics.json", topics(2, 5))
		ends <- 2000
		settle(DefaultInterval)
		wantContent(t, p.rep, "topics.json", topics(2, 5))
		wantContent(t, p.rep, "consumerOffset.json", nil)
		p.verified.Store(1000) // where the log ended when the positions were first read
		settle(DefaultInterval)
		wantContent(t, p.rep, "consumerOffset.json", offsets(1))
		if after, _ := p.traffic(); after["consumerOffset.json"] != sent["consumerOffset.json"] {
			t.Errorf("%v of positions are sent, after %v", after["consumerOffset.json"], sent["consumerOffset.json"])
		}
	})
}

// Where nothing changes nothing is sent but the word that it is so, and nothing is
// written.
func TestPair_QuietSource_Fault52(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, SnapshotterOptions{})
		written(t, p.src, "topics.json", topics(1, 500))
		written(t, p.src, "consumerOffset.json", offsets(3))
		p.start(t)
		synctest.Wait()
		sent, parcels := p.traffic()
		info, err := os.Stat(filepath.Join(p.rep, "config", "topics.json"))
		if err != nil {
			t.Fatal(err)
		}
		generation := p.i.Generation()
		for range 60 {
			settle(DefaultInterval)
			for _, f := range p.i.Status() {
				if f.Stale || f.Age >= time.Millisecond {
					t.Fatalf("%+v", f)
				}
			}
		}
		after, confirmed := p.traffic()
		if after["topics.json"] != sent["topics.json"] || after["consumerOffset.json"] != sent["consumerOffset.json"] || confirmed-parcels != 60 {
			t.Errorf("sent %v after %v, %d snapshots", after, sent, confirmed-parcels)
		}
		now, err := os.Stat(filepath.Join(p.rep, "config", "topics.json"))
		if err != nil || stampOf(now) != stampOf(info) || p.i.Generation() != generation {
			t.Errorf("written again: %v", err)
		}
	})
}
