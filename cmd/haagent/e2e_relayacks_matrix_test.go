//go:build linux

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
)

// relayLimit is how long producers may be told otherwise than the replicas are,
// asserted in long runs only.
const relayLimit = time.Second

// slaveTimeout is how long brokers wait for a slave by default.
const slaveTimeout = 3 * time.Second

// sendersForTimeouts are enough producers for one to begin often although 5.x
// holds each for 3 s.
const sendersForTimeouts = 8

// departure is one replica that leaves, and how.
type departure struct {
	replica int // of the case
	way     string
}

// relayCases are the replicas of a relay, and who of them leaves.
var relayCases = []struct {
	kinds  []string // as many as --relay-acks says
	leaves []departure
	long   bool // only in long runs
}{
	{kinds: []string{"memory"}, leaves: []departure{{0, byTerm}, {0, byKill}, {0, byStop}}},
	{kinds: []string{"disk", "stock"}, leaves: []departure{{0, byKill}, {1, byKill}}},
	{kinds: []string{"disk"}, leaves: []departure{{0, byTerm}, {0, byKill}, {0, byStop}}, long: true},
	{kinds: []string{"stock"}, leaves: []departure{{0, byTerm}, {0, byKill}, {0, byStop}}, long: true},
	{kinds: []string{"memory", "disk"}, leaves: []departure{{0, byKill}, {1, byKill}, {1, byStop}}, long: true},
	{kinds: []string{"memory", "stock"}, leaves: []departure{{0, byTerm}, {1, byTerm}, {0, byStop}}, long: true},
}

// TestRelayAcks_ProducersAreToldWhatReplicasHave: while enough replicas are up
// every message is SEND_OK; soon after one of them has left none is, and producers
// are told what a broker says without a slave; soon after its return all are again.
func TestRelayAcks_ProducersAreToldWhatReplicasHave(t *testing.T) {
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		for _, c := range relayCases {
			if c.long && !long() {
				continue
			}
			t.Run(fmt.Sprintf("relay %d %s", len(c.kinds), strings.Join(c.kinds, " and ")), func(t *testing.T) {
				r := newRelayed(t, v, nil)
				r.startRelay(len(c.kinds))
				r.refused("before there are replicas")
				for _, kind := range c.kinds {
					r.add(kind)
				}
				for _, x := range r.replicas {
					x.reported()
				}
				r.connected(true)
				for _, d := range c.leaves {
					r.leavesAndReturns(r.replicas[d.replica], d.way)
				}
			})
		}
	})
}

// refused: one message is told what a broker without a slave says.
func (r *relayed) refused(when string) {
	r.t.Helper()
	if sent := r.driver.Send(r.t, brokertest.SendSpec{Topic: "orders"})[0]; sent.Status != r.lacking() {
		r.t.Errorf("%s: %s %s after %s, want %s", when, sent.Status, sent.Err, sent.Latency(), r.lacking())
	}
}

// leavesAndReturns takes one replica away and brings it back, while producers send.
func (r *relayed) leavesAndReturns(x *relayReplica, way string) {
	t := r.t
	t.Helper()
	p := r.produce(sendersForTimeouts)
	steady := time.Now()
	r.await(p, 100, brokertest.StatusOK, steady)

	asked, gone := x.leave(way)
	apart := r.connected(false)
	r.refused("just after " + x.node + " has left") // those who sent before wait for the slaveTimeout
	r.await(p, 2*sendersForTimeouts, r.lacking(), apart)
	leaving := time.Now()

	back := x.back(way)
	r.await(p, 1, brokertest.StatusOK, leaving)
	r.connected(true)
	again := time.Now()
	r.await(p, 100, brokertest.StatusOK, again)
	all := p.collect()

	r.judge(all, x.node+" by "+way, relayTimes{asked, gone, apart, leaving, back, again})
	for _, other := range r.replicas {
		other.reported()
		other.holds(all)
	}
}

// relayTimes are the moments of one departure.
type relayTimes struct {
	asked   time.Time // the replica was told to leave
	gone    time.Time // it has left for certain
	apart   time.Time // the relay was seen to be disconnected
	leaving time.Time // it was still away
	back    time.Time // the replica was back
	again   time.Time // the relay was seen to be connected
}

// judge holds what producers were told against when what was so.
func (r *relayed) judge(all []produced, what string, at relayTimes) {
	t := r.t
	t.Helper()
	var lastOK, firstOK time.Time // of sends that began after the departure; before and after the return
	for _, s := range all {
		ok := s.Status == brokertest.StatusOK
		switch {
		case s.ended.Before(at.asked) && !ok:
			t.Errorf("%s: with all replicas a send was told %s %s", what, s.Status, s.Err)
		case s.began.After(at.apart) && s.ended.Before(at.leaving) && s.Status != r.lacking():
			t.Errorf("%s: with a replica short a send was told %s %s after %s, want %s", what, s.Status, s.Err, s.Latency(), r.lacking())
		case s.began.After(at.again) && !ok:
			t.Errorf("%s: with all replicas again a send was told %s %s", what, s.Status, s.Err)
		}
		if ok && s.began.After(at.gone) && s.ended.Before(at.leaving) {
			lastOK = s.began
		}
		if ok && s.ended.After(at.leaving) && (firstOK.IsZero() || s.ended.Before(firstOK)) {
			firstOK = s.ended
		}
	}
	var off time.Duration
	if !lastOK.IsZero() {
		off = lastOK.Sub(at.gone)
	}
	on := max(firstOK.Sub(at.back), 0)
	t.Logf("%s: the last SEND_OK was for a message sent %s after; the relay was seen apart after %s; SEND_OK again after %s; %s",
		what, off.Round(time.Millisecond), at.apart.Sub(at.gone).Round(time.Millisecond), on.Round(time.Millisecond), statuses(all))
	limit := relayLimit
	if strings.HasSuffix(what, byStop) { // nobody is told; producers wait in vain meanwhile
		limit += slaveTimeout
	}
	if long() && (off > relayLimit || on > relayLimit || at.apart.Sub(at.gone) > limit) {
		t.Errorf("%s: that is more than %s", what, relayLimit)
	}
}
