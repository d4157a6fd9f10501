// Package beside does one thing at a time beside the goroutine that brings it: a
// replica that catches up reads from the socket while what came before is written
// and checked, so that both keep busy.
package beside

import "sync"

// Worker does what it is given, one thing after the other. All its methods belong
// to one goroutine, which lends to the worker what the work touches from Give until
// Wait returns.
type Worker[T any] struct {
	work chan T
	done chan error // one value for each thing
	busy bool
	own  sync.WaitGroup
}

// New starts a worker. failed is called, by the worker, with each error of do, so
// that it can interrupt the one who brings things.
func New[T any](do func(T) error, failed func(error)) *Worker[T] {
	w := &Worker[T]{work: make(chan T), done: make(chan error, 1)}
	w.own.Go(func() {
		for v := range w.work {
			err := do(v)
			if err != nil {
				failed(err)
			}
			w.done <- err
		}
	})
	return w
}

// Give lets the worker begin with v. Wait must have been called since the last Give.
func (w *Worker[T]) Give(v T) {
	w.busy = true
	w.work <- v
}

// Busy reports whether something was given that was not waited for.
func (w *Worker[T]) Busy() bool { return w.busy }

// Wait waits until what was given is done, and returns its error. It returns nil
// at once where nothing was given since the last Wait.
func (w *Worker[T]) Wait() error {
	if !w.busy {
		return nil
	}
	w.busy = false
	return <-w.done
}

// End waits until the worker has ended. Nothing may be given any more.
func (w *Worker[T]) End() {
	close(w.work)
	w.own.Wait()
}
