// Package stock talks to unmodified RocketMQ brokers in the protocols that they
// have.
//
// As a slave: a Broker asks the remoting port, a Follower keeps a replica equal
// to the log that the HA port streams.
//
//	        26, 28 who are you, where is your log        (survey)
//	        33     your message at the replica's last    (plan)
//	          │
//	          ▼
//	request = verified end − overlap ──► HA port
//	  overlap compared ─ rest appended ─ whole messages verified   (stream)
//	  report ◄─ verified end (ack memory) or flushed end (ack disk)
//
// The first report on a connection is its request, and brokers count it as an
// acknowledgement like every later one, unchecked. So it is never beyond what
// the replica holds, and, where the source can be asked, never sent before its
// last message was found equal.
//
// As a master: HAServer serves the stream of a log to stock slaves, and
// RemotingServer answers what such a slave asks. Both read a store that somebody
// else writes.
//
// Beside a broker: an Authority learns from the local broker where its log ends,
// without ever being counted by one that waits for slaves.
//
// What stops replication is a *state.Problem with its own code; everything else
// is tried again.
package stock
