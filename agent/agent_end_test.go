package agent_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/link"
)

// TestEnd_AskedForWhileAnAttemptFails_IsNoError: whoever ends an agent sees no
// failure, also where its source breaks the connection at that very moment.
func TestEnd_AskedForWhileAnAttemptFails_IsNoError(t *testing.T) {
	for range 300 {
		l := listen(t)
		ctx, end := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- breakAtEnd(l, end) }()
		security, err := link.NewSecurity(link.SecurityOptions{Log: silent()})
		if err != nil {
			t.Fatal(err)
		}
		a, err := agent.New(agent.Config{Role: agent.RoleSlave, Dir: t.TempDir(), Master: l.Addr().String(), MetadataInterval: time.Second, Security: security}, silent())
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Run(ctx); err != nil {
			t.Errorf("it ended with %v", err)
		}
		end()
		if err := errors.Join(l.Close(), <-served); err != nil {
			t.Fatal(err)
		}
	}
}

// breakAtEnd is a source that ends the agent with the first question, and breaks
// the connection.
func breakAtEnd(l net.Listener, end func()) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	go end() // whichever comes first
	return errors.Join(err, conn.Close())
}
