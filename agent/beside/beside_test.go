package beside_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/haagent/haagent/agent/beside"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is given is done in order and one at a time, and what the work touches is
// its giver's again after Wait (the race detector looks on).
func TestWorker_LendsAndGivesBack(t *testing.T) {
	t.Parallel()
	var done []int
	w := beside.New(func(n int) error {
		done = append(done, n)
		return nil
	}, func(error) { t.Error("nothing failed") })
	for i := range 100 {
		if err := w.Wait(); err != nil || len(done) != i || w.Busy() {
			t.Fatalf("after %d: %v, %v", i, done, err)
		}
		w.Give(i)
		if !w.Busy() {
			t.Fatal("not busy")
		}
	}
	w.End()
	if len(done) != 100 {
		t.Errorf("the end did not wait: %d are done", len(done))
	}
}

// An error is told at once, and returned once.
func TestWorker_Error(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	told := make(chan error, 1)
	w := beside.New(func(err error) error { return err }, func(err error) { told <- err })
	defer w.End()
	w.Give(bad)
	if err := <-told; !errors.Is(err, bad) {
		t.Errorf("told %v", err)
	}
	if err := w.Wait(); !errors.Is(err, bad) {
		t.Errorf("returned %v", err)
	}
	if err := w.Wait(); err != nil {
		t.Errorf("returned again: %v", err)
	}
	w.Give(nil)
	if err := w.Wait(); err != nil {
		t.Errorf("it goes on, with %v", err)
	}
}
