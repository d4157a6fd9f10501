package agent

import (
	"errors"
	"fmt"
	"testing"

	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
)

// A sync that failed is not forgotten because the disk is still away when the store
// is to be opened again (31, I3): what the page cache shows may never get to it.
func TestSession_FailedSyncOutlivesFailedOpens(t *testing.T) {
	t.Parallel()
	var s session
	s.ended(&state.Problem{State: state.IOError, Err: errors.New("no such directory")})
	if s.doubted {
		t.Error("doubted although no sync has failed")
	}
	s.ended(replica.Problem("dir", fmt.Errorf("segment at 0: %w", replica.ErrFlush)))
	s.ended(&state.Problem{State: state.IOError, Err: errors.New("input/output error")})
	if !s.doubted {
		t.Error("the failed sync is forgotten")
	}
}
