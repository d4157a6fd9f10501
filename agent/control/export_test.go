package control

import (
	"context"
	"net"
	"net/http"
)

// NewClient returns a client that asks over rt.
func NewClient(rt http.RoundTripper) *Client {
	return &Client{http: &http.Client{Transport: rt}, base: "http://agent", name: "test"}
}

// MaxConns bounds the connections to one port.
const MaxConns = maxConns

// ServeAtMost is ServeHTTP with another bound.
func (h Handlers) ServeAtMost(ctx context.Context, l net.Listener, most int) error {
	return serve(ctx, l, h.readMux(ctx), most)
}

// LocalNames reads a list of sockets.
var LocalNames = localNames
