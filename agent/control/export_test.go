package control

import "net/http"

// NewClient returns a client that asks over rt.
func NewClient(rt http.RoundTripper) *Client {
	return &Client{http: &http.Client{Transport: rt}, base: "http://agent", name: "test"}
}
