package brokertest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// fetchVariable makes the test binary fetch one version and end, so that a test
// can watch two processes do so at once.
const fetchVariable = "BROKERTEST_FETCH"

func TestMain(m *testing.M) {
	if v := os.Getenv(fetchVariable); v != "" {
		os.Exit(fetchAndTell(Version(v)))
	}
	goleak.VerifyTestMain(m)
}

func fetchAndTell(v Version) int {
	c, err := openCache()
	if err == nil {
		var path string
		if path, err = c.driverPath(v); err == nil {
			fmt.Println(path)
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
