package control

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // of the page
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"
)

// pageHTML is the whole page: style and script are in it, and it loads nothing but
// /v1/status. Names of peers get into it as text alone.
//
//go:embed page.html
var pageHTML []byte

// pagePolicy lets a browser run what is in the page and nothing else.
var pagePolicy = sync.OnceValue(func() string {
	return fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		hashOf("style"), hashOf("script"))
})

// hashOf is how a policy names the one element of that name in the page.
func hashOf(element string) string {
	_, rest, _ := bytes.Cut(pageHTML, []byte("<"+element+">"))
	text, _, _ := bytes.Cut(rest, []byte("</"+element+">"))
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// page answers GET /.
func page(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy())
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	say(w, http.StatusOK, "text/html; charset=utf-8", pageHTML)
}
