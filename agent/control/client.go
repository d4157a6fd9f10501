package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// ErrNoAgent says that nobody answers there.
var ErrNoAgent = errors.New("no agent answers")

// maxAnswer bounds what a client reads.
const maxAnswer = 16 << 20

// Client asks an agent. It is made by Dial or DialSocket.
type Client struct {
	http *http.Client
	base string
	name string // of the agent, for errors
}

// Dial returns a client of the agent whose --http is addr.
func Dial(addr string) *Client {
	return &Client{http: &http.Client{Timeout: statusTimeout}, base: "http://" + addr, name: addr}
}

// DialSocket returns a client of the agent that holds the store whose
// DIR/.haagent is agentDir.
func DialSocket(agentDir string) *Client {
	return unixClient(agentDir, func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, agentDir) })
}

func dialSocket(ctx context.Context, agentDir string) (net.Conn, error) {
	dir, err := os.Open(agentDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var d net.Dialer
	return d.DialContext(ctx, "unix", socketAddr(dir))
}

// statusTimeout is how long an agent may take to tell its status, which it has at hand.
const statusTimeout = 10 * time.Second

// Status asks for the status. The error matches ErrNoAgent where nobody answers.
func (c *Client) Status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var s Status
	err := c.do(ctx, http.MethodGet, "/v1/status", &s)
	return s, err
}

// Promote asks the agent to hand its replica over and to end.
func (c *Client) Promote(ctx context.Context) (Promotion, error) {
	var p Promotion
	err := c.do(ctx, http.MethodPost, "/v1/promote", &p)
	return p, err
}

func (c *Client) do(ctx context.Context, method, path string, out any) error {
	status, body, err := c.ask(ctx, c.http, method, path)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return c.refused(status, body)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("agent at %s does not answer as haagent: %w", c.name, err)
	}
	return nil
}

// ask returns an answer, whatever it says.
func (c *Client) ask(ctx context.Context, client *http.Client, method, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, http.NoBody)
	if err != nil {
		return 0, nil, fmt.Errorf("ask agent at %s: %w", c.name, err)
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("%w at %s: %w", ErrNoAgent, c.name, err)
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("read answer of agent at %s: %w", c.name, err)
	}
	return res.StatusCode, body, nil
}

// RefusedError is the answer of an agent that does not do what it was asked for.
type RefusedError struct {
	Agent   string // who answered
	Status  int    // of HTTP
	Failure Failure
}

// Error says who refused, and why.
func (e *RefusedError) Error() string { return "agent at " + e.Agent + ": " + e.Failure.Error }

// refused makes an error of an answer that is not what was asked for.
func (c *Client) refused(status int, body []byte) error {
	e := &RefusedError{Agent: c.name, Status: status}
	if json.Unmarshal(body, &e.Failure) != nil || e.Failure.Error == "" {
		e.Failure = Failure{Error: fmt.Sprintf("%d %s", status, http.StatusText(status))}
	}
	return e
}
