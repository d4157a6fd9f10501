package link_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/replica"
)

// Steps of a cluster test, and of a long one (HAAGENT_LONG=1).
const (
	clusterSteps     = 10_000
	clusterStepsLong = 200_000
)

// clusterTiming is fast; silence is long enough for a machine that is busy.
var clusterTiming = link.Timing{Heartbeat: 20 * time.Millisecond, Silence: time.Second, Dial: time.Second, FirstRetry: time.Millisecond, MaxRetry: 20 * time.Millisecond}

// TestCluster_RandomSteps runs a master and two slaves over links that are cut,
// delayed, held up, spoilt and come back, and checks the invariants I1 to I6
// after every step. HAAGENT_SEED=N plays the steps of one seed again.
func TestCluster_RandomSteps_I1_I2_I3_I4_I5_I6(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("HAAGENT_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	steps := clusterSteps
	if os.Getenv("HAAGENT_LONG") != "" {
		steps = clusterStepsLong
	}
	t.Logf("HAAGENT_SEED=%d", seed)
	w := newWorld(t, seed)
	defer func() {
		if t.Failed() {
			t.Logf("HAAGENT_SEED=%d plays this again; the last steps were %v", seed, w.recent)
		}
	}()
	for n := range steps {
		w.step(n)
		w.check()
		if t.Failed() {
			return
		}
	}
	w.finish()
	t.Logf("%d messages, %d segments, %d restarts, %d waits, %s", w.messages, w.rolls, w.restarts, w.answered, w.traffic())
}

// kinds are what may happen in a step, with how often it does. The rare ones
// cost the most time.
var kinds = []struct {
	name   string
	weight int
	do     func(w *world)
}{
	{"append", 400, (*world).appendOne},
	{"burst", 40, (*world).appendBurst},
	{"half a message", 80, (*world).appendPart},
	{"change the last message", 20, (*world).change},
	{"roll", 8, (*world).roll},
	{"drop", 15, (*world).drop},
	{"config", 12, (*world).writeConfig},
	{"the broker's word", 80, (*world).say},
	{"spoil a link", 50, (*world).spoil},
	{"heal a link", 60, (*world).heal},
	{"cut a link", 20, (*world).cut},
	{"wait for acks", 80, (*world).wait},
	{"breathe", 120, (*world).breathe},
	{"kill a slave", 2, (*world).kill},
	{"restart a slave", 2, (*world).restart},
	{"restart the master", 2, (*world).restartMaster},
	{"catch up", 3, (*world).catchUp},
}

// step does one random thing.
func (w *world) step(n int) {
	w.t.Helper()
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	at := w.r.IntN(total)
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			w.recent = append(w.recent[max(0, len(w.recent)-40):], fmt.Sprintf("%d %s", n, k.name))
			k.do(w)
			return
		}
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 0)), boundary: map[int64]bool{0: true}, versions: map[string]map[string]int{}}
	w.startMaster()
	for i, ack := range []replica.Ack{replica.AckMemory, replica.AckDisk} {
		w.nodes = append(w.nodes, w.startNode(fmt.Sprintf("slave-%d", i), ack))
	}
	t.Cleanup(w.endHalf)
	return w
}
