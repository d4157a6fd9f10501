package commitlog

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// LoadSize returns the TOTALSIZE that window starts with, at any alignment, and
// 0 where there are fewer than 4 bytes. It loads it in acquire order: what is read
// of the log afterwards is at least as new as what was there when the size was
// stored. So once the size of the next record is not 0, the record before it can
// be read whole, on processors too that reorder loads.
func LoadSize(window []byte) int32 {
	if len(window) < 4 {
		return 0
	}
	// Only aligned words can be loaded in order on every processor. The one or two
	// that hold the size reach at most 3 bytes beyond the window on either side,
	// which is the same page and the same allocation.
	first := unsafe.Pointer(unsafe.SliceData(window))
	skip := uintptr(first) % 4
	first = unsafe.Add(first, -int(skip))
	var words [8]byte
	binary.NativeEndian.PutUint32(words[:], atomic.LoadUint32((*uint32)(first)))
	if skip > 0 {
		binary.NativeEndian.PutUint32(words[4:], atomic.LoadUint32((*uint32)(unsafe.Add(first, 4))))
	}
	return int32(binary.BigEndian.Uint32(words[skip:]))
}
