package control

import "github.com/prometheus/client_golang/prometheus"

// A family is the metrics of one name.
type family struct {
	name, help string
	desc       *prometheus.Desc
}

// families are all of them, in the order in which they are described.
var families []*family

// common are the labels of every metric.
var common = []string{"cluster", "broker", "role"}

// metric makes a family with more labels than the common ones.
func metric(name, help string, labels ...string) *family {
	f := &family{name: "haagent_" + name, help: help}
	f.desc = prometheus.NewDesc(f.name, help, append(common[:len(common):len(common)], labels...), nil)
	families = append(families, f)
	return f
}

// The metrics. Their names, labels and units are a contract: alert rules and
// dashboards are made of them. What is not known has no series.
var (
	buildInfo  = metric("build_info", "1, with the version of this agent.", "version")
	up         = metric("up", "1 while the agent works.")
	roleIs     = metric("role", "1 for the role that the agent has, 0 for the others.")
	stateIs    = metric("state", "1 for the state that the agent is in, 0 for all others.", "state")
	stateSince = metric("state_since_timestamp_seconds", "When that state began, in seconds since 1970.")
	problem    = metric("problem_info", "1, with the code of what stops the agent; no series where nothing does.", "code")
	connected  = metric("connected", "1 while a replica has a stream from its source, or the broker beside a master tells where its log ends.")
	isInSync   = metric("in_sync", "1 while a replica is streaming, or at least one replica of a master is.")
	degraded   = metric("degraded", "1 while a replica confirms nothing to producers, or a master relays fewer acks than it was told to, or does not serve.")

	offsetBytes = metric("offset_bytes", "How far the log is, by stage: min, source, received, written, verified, flushed, acked.", "stage")
	lagBytes    = metric("lag_bytes", "How much of the source's log a replica has not verified.")
	lagSeconds  = metric("lag_seconds", "How old the last verified message of a replica that lags is; 0 where it does not lag.")

	bytesTotal   = metric("bytes_total", "Bytes of the log that were received from the source, or sent to replicas.", "direction")
	framesTotal  = metric("frames_total", "Frames that carried them, without heartbeats.", "direction")
	crcErrors    = metric("crc_errors_total", "Connections that ended because a frame or a message failed its checks.", "direction")
	ackLatency   = metric("ack_latency_seconds", "Samples of the time from receiving bytes until their ack leaves (slave), or from sending them until a replica acks them (master).")
	fsyncSeconds = metric("fsync_seconds", "How long each sync of a segment took.")
	reconnects   = metric("reconnects_total", "Attempts to follow the source that ended, by the state they ended in; connection where that has no name.", "reason")
	divergences  = metric("divergence_total", "How often the source turned out to hold another log.")
	waits        = metric("waits_total", "Answers to those who waited for replicas (haagent wait), by the word they got.", "answer")

	metadataAge        = metric("metadata_age_seconds", "How long ago the config files were last had; +Inf where they never were.")
	metadataGeneration = metric("metadata_generation", "How often they have changed.")
	segments           = metric("segments", "Files of the log that hold messages.")
	diskFree           = metric("disk_free_bytes", "What the file system of the log has left for the agent.")
	certExpires        = metric("cert_expiry_timestamp_seconds", "When the certificate of the link ends, in seconds since 1970; no series without one.")
	reloadSuccess      = metric("config_last_reload_success", "1 where the last reading of the configuration succeeded.")
	reloadTime         = metric("config_last_reload_success_timestamp_seconds", "When the configuration was last read with success, in seconds since 1970.")
	gossipMembers      = metric("gossip_members", "Agents in the gossip, by status: alive, suspect, dead, left.", "status")

	replicaCount      = metric("replicas", "Replicas that follow a master now.")
	replicaAcked      = metric("replica_acked_offset_bytes", "What a replica has acked to this master.", "peer", "kind")
	replicaFlushed    = metric("replica_flushed_offset_bytes", "What it has synced, where it says so.", "peer", "kind")
	replicaLagBytes   = metric("replica_lag_bytes", "How much it is behind the confirmed end of the log.", "peer", "kind")
	replicaLagSeconds = metric("replica_lag_seconds", "How long ago it last had everything; 0 where it has.", "peer", "kind")
	replicaInSync     = metric("replica_in_sync", "1 while it is streaming.", "peer", "kind")

	producersWait  = metric("producers_wait", "1 where SEND_OK of the broker says that at least one replica has the message.")
	relayAcks      = metric("relay_acks", "How many replicas' acks the broker is to be told of; 0 for none.")
	relayConnected = metric("relay_connected", "1 while so many are in reach and the broker is told.")
	relayed        = metric("relay_offset_bytes", "The last offset that the broker was told.")
)
