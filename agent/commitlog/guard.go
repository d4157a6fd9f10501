package commitlog

import (
	"runtime/debug"
)

// Guard runs f so that a fault in mapped memory (the file was cut short under
// the map, the disk failed) makes Guard return a *FaultError instead of ending
// the process. f must read or write the memory in the goroutine it was called
// in. Every other panic passes through. What f had begun is left half done.
//
// The setting it needs is the goroutine's own, and is put back before Guard
// returns, so guards may be nested.
func Guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { asFault(recover(), &err) }()
	return f()
}

// asFault turns the value of a recovered fault into *err and panics again with
// any other value. The run-time gives an address only to faults in memory that
// it does not own; a nil pointer has none.
func asFault(recovered any, err *error) {
	if recovered == nil {
		return
	}
	fault, ok := recovered.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		panic(recovered)
	}
	*err = &FaultError{Addr: fault.Addr(), Err: fault}
}
