package source

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// Authority is the local broker's own word on where its log ends.
type Authority interface {
	// End returns the end of the broker's log, wire.NoOffset where it is not known
	// (now). It is called on every look and must be cheap. It must not be an end
	// that the broker has gone back from.
	End() wire.PhyOffset
	// Listen returns a channel that gets a value after every move of End, and a
	// function that ends it.
	Listen() (moved <-chan struct{}, stop func())
	// Want says whether a last record waits for being confirmed, so that asking
	// the broker is worth it. It is called on each change and must not block.
	Want(unconfirmed bool)
	// Tells says whether End moves by itself as soon as something was stored, so
	// that looking for it meanwhile is of little use. It must be cheap.
	Tells() bool
}

// Options say where the log lies and who knows more about it.
type Options struct {
	// Dir is the store root (storePathRootDir).
	Dir string
	// CommitLogDir holds the segments (storePathCommitLog); default Dir/commitlog.
	// A comma list is refused.
	CommitLogDir string
	// SegmentSize is mappedFileSizeCommitLog; 0 takes it from the files that there
	// are, and nothing is served until there are some. A single file is believed when
	// it has not grown for a tenth of a second, and its length is whole pages.
	SegmentSize wire.ByteSize
	// Settle is how long the last record must stand unchanged to be settled;
	// default 1 s, never if negative.
	Settle time.Duration
	// Authority is the broker itself; nil where it cannot be asked.
	Authority Authority
	// Hints gets a value when segments may have come or gone. They are looked for
	// every Rescan as well.
	Hints <-chan struct{}
	// Rescan is how often the directory is listed; default 2 s.
	Rescan time.Duration
	// Log gets what OnState has no room for; default none.
	Log *slog.Logger
	// OnState is told, on each change, why the tail stands: a *state.Problem, or
	// nil when all is well. It is called by the goroutine of Run.
	OnState func(error)
}

// The defaults of Options.
const (
	defaultSettle = time.Second
	defaultRescan = 2 * time.Second
)

func (o Options) withDefaults() Options {
	if o.CommitLogDir == "" && o.Dir != "" {
		o.CommitLogDir = filepath.Join(o.Dir, "commitlog")
	}
	if o.Settle == 0 {
		o.Settle = defaultSettle
	}
	if o.Rescan <= 0 {
		o.Rescan = defaultRescan
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnState == nil {
		o.OnState = func(error) {}
	}
	return o
}

// check returns what makes o unusable whatever the files are.
func (o *Options) check() error {
	switch {
	case o.CommitLogDir == "":
		return errors.New("tail commit log: no directory given")
	case strings.Contains(o.CommitLogDir, ","):
		return state.Problemf(state.Incompatible, "source_several_dirs",
			"let the broker write into one directory (storePathCommitLog), and give that as --commitlog-dir", nil,
			"the commit log is spread over several directories: %s", o.CommitLogDir)
	case o.SegmentSize < 0:
		return fmt.Errorf("tail commit log: segment size %d is negative", o.SegmentSize)
	}
	return nil
}
