package control

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// FuzzWaitQuery: whatever stands in a query, what is accepted is within its
// limits, and means the same when it is written out again.
func FuzzWaitQuery(f *testing.F) {
	corpus, err := os.ReadDir(filepath.Join("testdata", "fuzz", "FuzzWaitQuery"))
	if err != nil || len(corpus) == 0 {
		f.Fatalf("no corpus: %v", err)
	}
	f.Fuzz(func(t *testing.T, query string) {
		parse := func(query string) (WaitRequest, error) {
			return parseWait(&http.Request{URL: &url.URL{RawQuery: query}})
		}
		r, err := parse(query)
		if err != nil {
			if len(err.Error()) > 200+len(query) {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if err := r.Check(); err != nil {
			t.Errorf("%q was accepted: %v", query, err)
		}
		if again, err := parse(r.query()); err != nil || again != r {
			t.Errorf("%q means %+v, and %q means %+v, %v", query, r, r.query(), again, err)
		}
	})
}
