package agent

import (
	"errors"
	"log/slog"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// PromoteDir promotes a replica that no agent works on. One that was promoted
// already is left as it is, and described again.
func PromoteDir(dir string) (control.Promotion, error) {
	st, err := replica.ReadState(dir)
	if errors.Is(err, replica.ErrNoState) {
		return control.Promotion{}, &state.Problem{State: state.Incompatible, Code: "no_replica", Reason: dir + " is no replica of haagent",
			Try: "give the --dir that haagent --role slave works on", Err: err}
	}
	if err != nil {
		return control.Promotion{}, replica.Problem(dir, err)
	}
	if st.Promoted { // the answer may have been lost
		return promotionOf(dir, st, st.Start, st.VerifiedEnd), nil
	}
	lock, err := replica.AcquireLock(dir)
	if err != nil {
		return control.Promotion{}, replica.Problem(dir, err)
	}
	store, err := replica.Open(replica.Options{Dir: dir, SegmentSize: st.SegmentSize, Cluster: st.Cluster, BrokerName: st.BrokerName}, lock)
	if err != nil {
		return control.Promotion{}, errors.Join(replica.Problem(dir, err), lock.Release())
	}
	p, err := promoteRecovered(dir, store)
	if err != nil {
		return p, errors.Join(err, store.Abandon(), lock.Release())
	}
	return p, nil
}

// promoteRecovered promotes a store that was just opened: its log may end before
// the positions that were installed.
func promoteRecovered(dir string, store *replica.Store) (control.Promotion, error) {
	installer, err := metadata.NewInstaller(dir, metadata.Options{})
	if err == nil {
		err = rewindConfig(installer, store, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		return control.Promotion{}, replica.Problem(dir, err)
	}
	return promoteStore(dir, store)
}

// promoteStore hands an open store to a broker. After an error the store and
// its lock are still held.
func promoteStore(dir string, store *replica.Store) (control.Promotion, error) {
	if store.Empty() {
		return control.Promotion{}, &state.Problem{State: state.Incompatible, Code: "empty_replica", Reason: "the replica at " + dir + " holds no message",
			Try: "let it reach its master first; haagent status tells what keeps it"}
	}
	ends := store.Ends()
	st, err := store.Promote()
	if err != nil {
		return control.Promotion{}, replica.Problem(dir, err)
	}
	return promotionOf(dir, st, ends.Min, ends.Verified), nil
}

func promotionOf(dir string, st replica.State, start, end wire.PhyOffset) control.Promotion {
	return control.Promotion{Dir: dir, CommitLogDir: st.LogDir(dir), Cluster: st.Cluster, BrokerName: st.BrokerName,
		SegmentSize: st.SegmentSize, Min: start, End: end, Epoch: st.Epoch}
}
