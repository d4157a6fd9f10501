package stock

import (
	"fmt"
	"strings"
)

// Guarantee says what a broker's SEND_OK means.
type Guarantee struct {
	// Text is one sentence or more, for people.
	Text string
	// Waits: SEND_OK says that at least one replica has the message.
	Waits bool
}

// GuaranteeFacts are what a guarantee follows from.
type GuaranteeFacts struct {
	// Broker is the broker's live configuration; nil where it never answered.
	Broker *BrokerConfig
	// RelayAcks is how many replicas a relay speaks for; 0: there is none.
	RelayAcks int
	// Relay is how it fares.
	Relay RelayStatus
	// Memory and Disk are the replicas in reach whose acks mean that they have a
	// message in memory, and on disk.
	Memory, Disk int
}

// GuaranteeOf tells what producers of a broker can rely on.
func GuaranteeOf(f GuaranteeFacts) Guarantee {
	b := f.Broker
	switch {
	case b == nil:
		return bare("The local broker has not told its configuration, so that nobody knows what its SEND_OK means.")
	case b.Controller:
		return bare("The local broker runs in controller mode (enableControllerMode=true), which is not supported: nothing is known of what its SEND_OK means, and nothing is relayed.")
	case b.DLedger:
		return bare("The local broker keeps a DLedger log (enableDLegerCommitLog=true), which is not supported: nothing is relayed.")
	case b.Role == "SLAVE":
		return bare("The local broker is a SLAVE: producers do not send to it.")
	case b.Role != "SYNC_MASTER":
		return bare(fmt.Sprintf("SEND_OK says that the local broker has the message, and nothing about replicas: as %s it never waits for them.", b.Role),
			useless(f, "set brokerRole=SYNC_MASTER"))
	case b.CountsInSync && b.InSyncReplicas <= 1:
		return bare("SEND_OK says that the local broker has the message, and nothing about replicas: SYNC_MASTER of 5.x with inSyncReplicas=1, which counts the broker itself, does not wait for them.",
			useless(f, "set inSyncReplicas=2"))
	case lowers(*b):
		return bare("SEND_OK says that the local broker has the message: with enableAutoInSyncReplicas=true and minInSyncReplicas=1 it waits for replicas only while there are some.",
			"Set minInSyncReplicas=2 to have it wait for one always.")
	}
	return waiting(f)
}

// bare is the guarantee of producers that wait for nobody.
func bare(sentences ...string) Guarantee { return Guarantee{Text: join(sentences)} }

func join(sentences []string) string {
	var all []string
	for _, s := range sentences {
		if s != "" {
			all = append(all, s)
		}
	}
	return strings.Join(all, " ")
}

// useless says that a relay does nothing, and what would make it of use.
func useless(f GuaranteeFacts, change string) string {
	if f.RelayAcks == 0 {
		return ""
	}
	return fmt.Sprintf("--relay-acks %d does nothing here: %s in broker.conf to have producers wait.", f.RelayAcks, change)
}

// lowers reports whether the broker takes fewer replicas, and in the end none,
// when there are no more.
func lowers(b BrokerConfig) bool {
	return b.CountsInSync && b.Raw["enableSlaveActingMaster"] == "true" && b.Raw["enableAutoInSyncReplicas"] == "true" &&
		(b.Raw["minInSyncReplicas"] == "" || b.Raw["minInSyncReplicas"] == "1")
}

// waiting is the guarantee of a SYNC_MASTER that waits for somebody.
func waiting(f GuaranteeFacts) Guarantee {
	b := f.Broker
	lacking := "SLAVE_NOT_AVAILABLE"
	if b.CountsInSync {
		lacking = "FLUSH_SLAVE_TIMEOUT"
	}
	own := 1
	if b.CountsInSync {
		own = b.InSyncReplicas - 1
	}
	switch {
	case f.RelayAcks == 0:
		return Guarantee{Waits: true, Text: fmt.Sprintf("SEND_OK says that %s of the local broker %s the message too; replicas of this agent do not count (--relay-acks is 0), and without such a slave producers get %s.",
			count(own, "slave"), have(own), lacking)}
	case f.Relay.Problem != nil:
		return Guarantee{Waits: true, Text: join([]string{
			fmt.Sprintf("Nothing is relayed, and producers get %s unless slaves sit on the local broker itself: %s.", lacking, f.Relay.Problem.Reason),
			"Try: " + f.Relay.Problem.Try + "."})}
	case !f.Relay.Connected:
		return Guarantee{Waits: true, Text: fmt.Sprintf("Producers get %s: %s. SEND_OK will say that %s %s the message.", lacking, orNobody(f.Relay.Reason), count(f.RelayAcks, "replica"), have(f.RelayAcks))}
	}
	return Guarantee{Waits: true, Text: join([]string{
		fmt.Sprintf("SEND_OK says that %s the message too.", count(f.RelayAcks, "replica")+" "+have(f.RelayAcks)), durability(f), strangers(f)})}
}

// orNobody is the reason why nothing is relayed.
func orNobody(reason string) string {
	if reason == "" {
		return "no replica is in reach"
	}
	return reason
}

// durability says what survives, by what the acks of those in reach mean.
func durability(f GuaranteeFacts) string {
	onDisk := min(f.RelayAcks, max(0, f.RelayAcks-f.Memory))
	switch {
	case f.Memory == 0 && f.Disk > 0:
		return fmt.Sprintf("It is on disk there (--ack disk), so that it survives a power cut of the broker and of all replicas, as long as one of these %d disks does.", f.RelayAcks)
	case onDisk > 0:
		return fmt.Sprintf("On %d of them at least it is on disk (--ack disk).", onDisk)
	}
	return "It may be in their memory only (--ack memory), so that a power cut of the broker and of these replicas together may lose it."
}

// strangers says that others count besides.
func strangers(f GuaranteeFacts) string {
	if len(f.Relay.Strangers) == 0 {
		return ""
	}
	return fmt.Sprintf("But %s on the local broker itself (%s), and each counts like the relay: SEND_OK may rest on them.",
		count(len(f.Relay.Strangers), "slave")+" "+sit(len(f.Relay.Strangers)), strings.Join(f.Relay.Strangers, ", "))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func have(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func sit(n int) string {
	if n == 1 {
		return "sits"
	}
	return "sit"
}
