package link_test

import (
	"crypto/rand"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	wirelink "github.com/haagent/haagent/wire/link"
)

// TestAccept_ThousandHalfOpen lets 1,000 peers connect that say nothing, noise,
// or a greeting and then nothing or noise, and shows that goroutines and memory
// come back when their time is over, and that a good peer gets through meanwhile.
func TestAccept_ThousandHalfOpen(t *testing.T) {
	const peers = 1000
	for mode, keyBytes := range map[string]string{"clear": "a", "tls": "a"} {
		s, patient := securityWithin(t, mode, keyBytes, 2*time.Second), security(t, mode, keyBytes)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		goroutines, memory := runtime.NumGoroutine(), heap()
		var accepted, listeners sync.WaitGroup
		var entered sync.Mutex
		good := 0
		accepted.Go(func() {
			for i := range peers + 1 {
				conn, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				s := s
				if i == peers { // the good one, which comes last and may be slow on a busy machine
					s = patient
				}
				listeners.Go(func() {
					if e := listen(t.Context(), s, conn); e.err == nil {
						entered.Lock()
						good++
						entered.Unlock()
						e.session.Close()
					}
				})
			}
		})
		var conns []net.Conn
		for i := range peers {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			noise := make([]byte, 1+i)
			_, _ = rand.Read(noise)
			// Writes fail where the listener has closed already, which is fine.
			switch i % 5 {
			case 1:
				_, _ = conn.Write(noise)
			case 2:
				_, _ = conn.Write(greeting(s.Mode()))
			case 3:
				_, _ = conn.Write(append(greeting(s.Mode()), noise...))
			case 4:
				_, _ = conn.Write(append(greeting(s.Mode()), (&wirelink.Transfer{Body: noise}).Append(nil)...))
			}
		}
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if e := dial(t.Context(), patient, conn); e.err != nil {
			t.Errorf("%s: a good peer among bad ones: %v", mode, e.err)
		} else {
			e.session.Close()
		}
		accepted.Wait()
		listeners.Wait()
		if good != 1 {
			t.Errorf("%s: %d peers were accepted, want the one with the key", mode, good)
		}
		for _, c := range conns {
			c.Close()
		}
		l.Close()
		if left := runtime.NumGoroutine() - goroutines; left > 20 { // those of the runtime and of other tests
			t.Errorf("%s: %d goroutines are left", mode, left)
		}
		if grown := heap() - memory; grown > 4<<20 {
			t.Errorf("%s: %d bytes are left", mode, grown)
		}
	}
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
