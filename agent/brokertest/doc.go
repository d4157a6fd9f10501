// Package brokertest runs unmodified RocketMQ brokers for tests. It is imported
// by tests only, and runs on Linux.
//
// Brokers come from Maven: a version's jars are fetched on first use into a
// cache that all test processes share (HAAGENT_BROKER_CACHE, else
// haagent-brokers in the user's cache directory):
//
//	lib-VERSION/*.jar      what the broker, the name server and their tools need
//	lib-VERSION/.complete  present once all of them are there
//	driver-VERSION-HASH/   the compiled driver (see Driver), by source hash
//	lock                   held while one process fetches or compiles
//
// A JDK (11 or later) and mvn must be on the PATH. What is missing, or cannot be
// fetched, fails the test; nothing is skipped.
//
// A test starts a name server, one or more brokers, and a driver:
//
//	for _, v := range brokertest.Versions() {
//		ns := brokertest.StartNameServer(t, v)
//		b := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr})
//		d := brokertest.StartDriver(t, v, ns.Addr)
//		sent := d.Send(t, brokertest.SendSpec{Topic: "orders", Count: 100})
//		b.Kill()
//		b.Restart(t)
//		diff := brokertest.Diff(sent, d.PullN(t, "orders", 100))
//	}
//
// Everything is killed when the test ends, and dies with the test process; a
// goroutine that is locked to its thread, say to be in a network namespace, must
// not end while what it started is needed, unless it unlocks first. Ports
// lie below 32768, where no outgoing connection takes them, and are reserved
// against other tests of this and of other processes until the test ends.
//
// # Sizes
//
// Brokers keep segments of 1 MiB unless told otherwise. No message fits into a
// smaller segment than itself: messages of 4 MiB (Big4MiB) need segments of 16
// MiB, and a broker with such segments is also told to accept them
// (maxMessageSize).
//
// # IPv6
//
// The two host fields of a message have causes of their own. The born host is
// what the broker sees of the client, so it is IPv6 when the client connects
// over ::1 (SendSpec.Via, or Kind IPv6). The store host is the broker's own
// brokerIP1, so it is IPv6 with Properties{"brokerIP1": "::1"}; the broker then
// also registers as ::1, and every client that follows the route has an IPv6
// born host as well. Via "127.0.0.1" undoes that, which makes all four pairs.
// 4.5.2 knows no IPv6; the client of 5.1.4 connects to no IPv6 address, but its
// broker takes messages from a driver of another version.
//
// # Waiting producers
//
// Send waits 10 s unless told otherwise, which is longer than a broker waits
// for its slaves (3 s slaveTimeout, 5 s syncFlushTimeout). With the client's own
// default of 3 s no FLUSH_SLAVE_TIMEOUT would ever be seen. Nothing is sent
// twice: a send that failed is reported as it is.
package brokertest
