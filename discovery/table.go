package discovery

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// readerName is the name of a tableReader. It has a control character, so no
// member can have it.
const readerName = "\x01table"

// errReader turns away what a tableReader says of itself; the log bridge knows
// it by its text.
var errReader = errors.New("not a member but a reader of the table")

// errRead ends a reader's exchange once it has what it came for.
var errRead = errors.New("table read")

// tableReader reads memberlist's table: who is alive, suspect, dead and gone.
//
// memberlist itself tells its user of live nodes only, by pointers into a table
// that changes under them, without saying who is suspect, and of a node that
// went not whether it said good-bye. What it does tell all that, truly and in a
// copy, is another member that joins. So the reader is a memberlist of its own
// that never has a network: it joins through a pipe, takes what it is told, and
// breaks off before either side has merged anything.
type tableReader struct {
	mu   sync.Mutex // one reading at a time
	list *memberlist.Memberlist
	got  []memberlist.Node
}

// newTableReader returns a reader of the memberlist that t carries, which was
// made with conf.
func newTableReader(t *transport, conf *memberlist.Config) (*tableReader, error) {
	r := &tableReader{}
	list, err := memberlist.Create(&memberlist.Config{
		Name:                    readerName,
		Transport:               pipe{to: t},
		Label:                   conf.Label,
		Keyring:                 conf.Keyring,
		GossipVerifyIncoming:    conf.GossipVerifyIncoming,
		GossipVerifyOutgoing:    conf.GossipVerifyOutgoing,
		ProtocolVersion:         conf.ProtocolVersion,
		TCPTimeout:              conf.TCPTimeout,
		AwarenessMaxMultiplier:  1,
		RetransmitMult:          1,
		HandoffQueueDepth:       1,
		UDPBufferSize:           conf.UDPBufferSize,
		QueueCheckInterval:      24 * time.Hour, // there is no queue
		DelegateProtocolMin:     conf.DelegateProtocolMin,
		DelegateProtocolMax:     conf.DelegateProtocolMax,
		DelegateProtocolVersion: conf.DelegateProtocolVersion,
		Merge:                   r,
		LogOutput:               io.Discard,
	})
	if err != nil {
		return nil, fmt.Errorf("make a reader of the member table: %w", err)
	}
	r.list = list
	return r, nil
}

// read returns copies of all entries of the table, in no order. It takes some
// microseconds for each.
func (r *tableReader) read() ([]memberlist.Node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = nil
	_, err := r.list.Join([]string{"127.0.0.1:1"}) // pipe leads to the one table, whatever the address
	if r.got == nil {
		return nil, fmt.Errorf("read the member table: %w", err)
	}
	return r.got, nil
}

// NotifyMerge is called by memberlist within read.
func (r *tableReader) NotifyMerge(peers []*memberlist.Node) error {
	r.got = make([]memberlist.Node, 0, len(peers))
	for _, p := range peers {
		r.got = append(r.got, *p)
	}
	return errRead
}

func (r *tableReader) close() error { return r.list.Shutdown() }

// pipe is a transport that reaches one memberlist of this process and is
// reached by nobody.
type pipe struct{ to *transport }

var _ memberlist.NodeAwareTransport = pipe{}

func (p pipe) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.IPv4(127, 0, 0, 1).To4(), 1, nil
}
func (p pipe) PacketCh() <-chan *memberlist.Packet                     { return nil }
func (p pipe) StreamCh() <-chan net.Conn                               { return nil }
func (p pipe) WriteTo([]byte, string) (time.Time, error)               { return time.Now(), nil }
func (p pipe) Shutdown() error                                         { return nil }
func (p pipe) DialTimeout(_ string, d time.Duration) (net.Conn, error) { return p.to.open(d) }

func (p pipe) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return p.WriteTo(b, a.Addr)
}

func (p pipe) DialAddressTimeout(a memberlist.Address, d time.Duration) (net.Conn, error) {
	return p.DialTimeout(a.Addr, d)
}
