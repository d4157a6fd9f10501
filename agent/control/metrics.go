package control

import (
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/haagent/haagent/agent/meter"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

const (
	// maxReplicaSeries bounds the replicas that have series of their own.
	maxReplicaSeries = 256
	// maxLabel bounds a label's value, in bytes: names come from peers.
	maxLabel = 128
	// maxScrapes bounds the scrapes at once.
	maxScrapes = 8
)

// metricsHandler answers GET /metrics. It has a registry of its own.
func (h Handlers) metricsHandler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), h.Collector())
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// Collector returns what tells the metrics of an agent. Nothing is kept between
// scrapes but the counts: gauges are the status at that moment, and the series of a
// peer end with it.
func (h Handlers) Collector() prometheus.Collector { return collector{h} }

type collector struct{ h Handlers }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range families {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.h.Status()
	e := emitter{ch: ch, labels: []string{label(s.Cluster), label(s.BrokerName), label(s.Role)}}
	e.agent(s)
	e.offsets(s)
	e.members(s)
	e.metadata(s)
	e.replicas(s)
	e.guarantee(s)
	if c.h.Counts != nil {
		e.counts(c.h.Counts)
	}
}

// An emitter sends the metrics of one scrape.
type emitter struct {
	ch     chan<- prometheus.Metric
	labels []string // values of cluster, broker, role
}

func (e emitter) gauge(f *family, v float64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, v, append(e.labels[:len(e.labels):len(e.labels)], labels...)...)
}

func (e emitter) counter(f *family, c *meter.Counter, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(f.desc, prometheus.CounterValue, float64(c.Value()), append(e.labels[:len(e.labels):len(e.labels)], labels...)...)
}

func (e emitter) histogram(f *family, h *meter.Histogram) {
	d := h.Read()
	buckets := make(map[float64]uint64, len(d.Bounds))
	for i, b := range d.Bounds {
		buckets[b.Seconds()] = d.Buckets[i]
	}
	e.ch <- prometheus.MustNewConstHistogram(f.desc, d.Count, d.Sum.Seconds(), buckets, e.labels...)
}

// offset tells an offset, if it is known.
func (e emitter) offset(f *family, o wire.PhyOffset, labels ...string) {
	if o >= 0 {
		e.gauge(f, float64(o), labels...)
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// label makes a label's value of a name that may come from a peer.
func label(name string) string { return clean(strings.ToValidUTF8(name, " "), maxLabel) }

func (e emitter) agent(s Status) {
	e.gauge(buildInfo, 1, label(s.Version))
	e.gauge(up, 1)
	for _, role := range []string{"master", "slave", "observer"} {
		e.ch <- prometheus.MustNewConstMetric(roleIs.desc, prometheus.GaugeValue, truth(role == s.Role), e.labels[0], e.labels[1], role)
	}
	for _, word := range state.All() {
		e.gauge(stateIs, truth(word == s.State), string(word))
	}
	e.gauge(stateSince, seconds(s.Since))
	if s.State.Stuck() && s.Code != "" {
		e.gauge(problem, 1, label(s.Code))
	}
	e.gauge(connected, truth(s.Source.Connected))
	inSync := 0
	for _, r := range s.Replicas {
		if r.State == state.Streaming {
			inSync++
		}
	}
	e.gauge(isInSync, truth(s.State == state.Streaming || s.State == state.Serving && inSync > 0))
	e.gauge(degraded, truth(s.degraded()))
	e.gauge(segments, float64(s.Segments))
	if s.DiskFreeBytes >= 0 {
		e.gauge(diskFree, float64(s.DiskFreeBytes))
	}
	if !s.CertExpires.IsZero() {
		e.gauge(certExpires, seconds(s.CertExpires))
	}
}

// degraded reports whether the agent does less than it was told to: a replica that
// confirms nothing to producers, or a master whose broker does not get the acks
// that --relay-acks asks for.
func (s Status) degraded() bool {
	if s.Guarantee != nil && s.Guarantee.RelayAcks > 0 && !s.Guarantee.RelayConnected {
		return true
	}
	return !s.State.Ready()
}

func (e emitter) offsets(s Status) {
	o := s.Offsets
	for _, p := range []struct {
		stage  string
		offset wire.PhyOffset
	}{{"min", o.Min}, {"source", o.Source}, {"received", o.Received}, {"written", o.Written}, {"verified", o.Verified}, {"flushed", o.Flushed}, {"acked", o.Acked}} {
		e.offset(offsetBytes, p.offset, p.stage)
	}
	if s.Role == "slave" && o.Source >= 0 { // without a source nobody knows
		e.gauge(lagBytes, float64(max(s.LagBytes, 0)))
		e.gauge(lagSeconds, max(s.LagSeconds, 0))
	}
}

func (e emitter) members(s Status) {
	counts := map[string]int{"alive": 0, "suspect": 0, "dead": 0, "left": 0}
	for _, m := range s.Members {
		if _, known := counts[m.Status]; known {
			counts[m.Status]++
		}
	}
	for status, n := range counts {
		e.gauge(gossipMembers, float64(n), status)
	}
}

func (e emitter) metadata(s Status) {
	if s.Role == "observer" {
		return
	}
	age := s.Metadata.AgeSeconds
	if age < 0 {
		age = math.Inf(1) // never had: older than any limit
	}
	e.gauge(metadataAge, age)
	e.gauge(metadataGeneration, float64(s.Metadata.Generation))
}

// replicas tells each replica of a master once, and at most so many.
func (e emitter) replicas(s Status) {
	if s.Role != "master" {
		return
	}
	e.gauge(replicaCount, float64(len(s.Replicas)))
	type key struct{ peer, kind string }
	seen := map[key]bool{}
	for _, r := range s.Replicas {
		k := key{label(r.Node), label(r.Kind)}
		if seen[k] || len(seen) == maxReplicaSeries {
			continue
		}
		seen[k] = true
		e.offset(replicaAcked, r.Acked, k.peer, k.kind)
		e.offset(replicaFlushed, r.Flushed, k.peer, k.kind)
		e.gauge(replicaLagBytes, float64(max(r.LagBytes, 0)), k.peer, k.kind)
		e.gauge(replicaLagSeconds, max(r.LagSeconds, 0), k.peer, k.kind)
		e.gauge(replicaInSync, truth(r.State == state.Streaming), k.peer, k.kind)
	}
}

func (e emitter) guarantee(s Status) {
	if s.Guarantee == nil {
		return
	}
	e.gauge(producersWait, truth(s.Guarantee.Waits))
	e.gauge(relayAcks, float64(s.Guarantee.RelayAcks))
	e.gauge(relayConnected, truth(s.Guarantee.RelayConnected))
	e.offset(relayed, s.Guarantee.Relayed)
}

func (e emitter) counts(c *Counts) {
	for direction, t := range map[string]*meter.Traffic{"received": &c.Received, "sent": &c.Sent} {
		e.counter(bytesTotal, &t.Bytes, direction)
		e.counter(framesTotal, &t.Frames, direction)
		e.counter(crcErrors, &t.Corrupt, direction)
	}
	e.histogram(ackLatency, c.Received.Latency)
	e.histogram(fsyncSeconds, c.Fsync)
	e.counter(divergences, &c.Divergences)
	e.gauge(reloadSuccess, truth(!c.stale.Load()))
	e.gauge(reloadTime, float64(c.loaded.Load())/1000)
	for _, reason := range sorted(c.reconnects) {
		e.counter(reconnects, c.reconnects[reason], reason)
	}
	for _, answer := range sorted(c.waits) {
		e.counter(waits, c.waits[answer], answer)
	}
}
