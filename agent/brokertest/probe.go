package brokertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

const (
	// startTimeout bounds a boot, recovery of a store included.
	startTimeout = 90 * time.Second
	// probeInterval is the pause between two looks at a starting process.
	probeInterval = 50 * time.Millisecond
	// registerTimeout bounds the wait for a broker's registration.
	registerTimeout = 30 * time.Second
	// requestTimeout bounds one request. What a broker of 5.3.3 tells about itself
	// takes it half a second, and many of them on a busy machine.
	requestTimeout = 20 * time.Second
	// maxAnswer bounds the answer to a request; real ones are a few KB.
	maxAnswer = 1 << 20
)

// The request codes that tell whether something serves.
const (
	updateBrokerConfig = 25  // UPDATE_BROKER_CONFIG
	runtimeInfo        = 28  // GET_BROKER_RUNTIME_INFO
	clusterInfo        = 106 // GET_BROKER_CLUSTER_INFO
)

// notReady is in the answer to runtimeInfo of a broker whose statistics have no
// first sample yet, which they take a second after its start.
const notReady = "java.util.NoSuchElementException"

// awaitServing waits until the process has printed the word that ends its start
// and answers the given request code on its port, with what was asked for or with
// a refusal.
func awaitServing(p *jvm, port dialer, code int, word string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-p.done:
			return errors.Join(fmt.Errorf("ended while starting, last words:\n%s", lastWords(p.output())), p.err)
		case <-ctx.Done():
			return fmt.Errorf("does not serve after %v (%w), last words:\n%s", startTimeout, last, lastWords(p.output()))
		case <-tick.C:
		}
		if !strings.Contains(p.output(), word) {
			last = fmt.Errorf("has not printed %q", word)
			continue
		}
		var answer []byte
		if answer, last = request(ctx, port, code, nil); last != nil {
			continue
		}
		if !bytes.Contains(answer, []byte(notReady)) {
			return nil
		}
		last = fmt.Errorf("answers request %d with %s", code, notReady)
	}
}

// awaitRegistered waits until the name server lists the broker's address. A 4.x
// broker is registered when it says that it has booted. A 5.x broker that boots
// quickly has no connection to its name server yet when its first registration
// is due, leaves it out, and comes back to it 10 s later; so it is given an
// update of its own permission, unchanged, at which brokers register anew. Where
// nothing listens on the name server's port there is nothing to wait for.
func awaitRegistered(p *jvm, nameServer, addr string, port dialer) error {
	ctx, cancel := context.WithTimeout(context.Background(), registerTimeout)
	defer cancel()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	var nudged error
	for i := 0; ; i++ {
		listed, err := request(ctx, plainly(nameServer), clusterInfo, nil)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil
		case err == nil && bytes.Contains(listed, []byte(`"`+addr+`"`)):
			return nil
		}
		if i == 1 {
			_, nudged = request(ctx, port, updateBrokerConfig, []byte("brokerPermission=6\n"))
		}
		select {
		case <-p.done:
			return errors.Join(fmt.Errorf("ended after its start, last words:\n%s", lastWords(p.output())), p.err)
		case <-ctx.Done():
			return fmt.Errorf("not registered at %s after %v: %w", nameServer, registerTimeout, errors.Join(err, nudged, ctx.Err()))
		case <-tick.C:
		}
	}
}

// A dialer opens a connection to one port.
type dialer func(context.Context) (net.Conn, error)

// plainly dials without TLS.
func plainly(addr string) dialer {
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", addr) }
}

// request sends one remoting request without fields and returns the answer,
// header and all. Any well-formed answer will do, an error code included.
func request(ctx context.Context, port dialer, code int, body []byte) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conn, err := port(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	header, err := json.Marshal(map[string]any{"code": code, "flag": 0, "language": "JAVA", "opaque": 1, "version": 0})
	if err != nil {
		return nil, err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	frame = append(append(frame, header...), body...)
	if _, err := conn.Write(frame); err != nil {
		return nil, err
	}
	var length uint32
	if err := binary.Read(conn, binary.BigEndian, &length); err != nil {
		return nil, err
	}
	if length < 4 || length > maxAnswer {
		return nil, fmt.Errorf("%s answers with a frame of %d bytes", conn.RemoteAddr(), length)
	}
	answer = make([]byte, length)
	_, err = io.ReadFull(conn, answer)
	return answer, err
}

// lastWords returns what a reader of a log wants to see of a failure: the first
// complaints, since a process that ends talks long about its shutdown, and the
// last lines.
func lastWords(text string) string {
	const complaints, last = 10, 40
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	cut := max(0, len(lines)-last)
	var first []string
	for _, line := range lines[:cut] {
		if len(first) < complaints && (strings.Contains(line, "Exception") || strings.Contains(line, "ERROR")) {
			first = append(first, line)
		}
	}
	return strings.Join(append(first, lines[cut:]...), "\n")
}
