package link

import "fmt"

// Reload takes other keys and certificates for the handshakes that begin from now
// on; connections that are open stay. How links are protected cannot change: that
// is an error that matches ErrSecurityOptions, and a file that cannot be used is a
// *state.Problem; what was in force then stays so.
func (s *Security) Reload(o SecurityOptions) error {
	next, err := NewSecurity(o)
	if err != nil {
		return err
	}
	if next.mode != s.mode || next.insecure != s.insecure {
		return fmt.Errorf("%w: whether and how links are protected changes with a restart only", ErrSecurityOptions)
	}
	s.latest.Store(next)
	return nil
}

// current is what new handshakes go by.
func (s *Security) current() *Security {
	if s.latest == nil { // the zero value
		return s
	}
	if latest := s.latest.Load(); latest != nil {
		return latest
	}
	return s
}
