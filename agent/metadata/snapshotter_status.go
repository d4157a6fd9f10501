package metadata

import (
	"slices"
	"time"

	"github.com/haagent/haagent/wire"
)

// SnapshotterStatus is what is to be said of a source's config files.
type SnapshotterStatus struct {
	// Generation, TakenAt and SourceEnd are those of the last snapshot; 0, zero and
	// wire.NoOffset before the first.
	Generation uint64
	TakenAt    time.Time
	SourceEnd  wire.PhyOffset
	// Age is the time since TakenAt, 0 or more, and negative before the first
	// snapshot.
	Age time.Duration
	// Files are all that were read since Run began, in the order of installation.
	// Age counts from the last snapshot that has the file; one that the last
	// snapshot lacks is Stale, and Reason says why.
	Files []FileStatus
	// Skipped are the files that the last attempt had to leave out.
	Skipped []Skipped
	// Tables is where the broker keeps its tables; 0 where that is not known.
	Tables Tables
	// Err is why the last attempt gave no snapshot, nil where it gave one. It
	// matches ErrDatabases where the broker would have to be asked and cannot be.
	Err error
}

// sourceFile is a file as the last snapshot that has it found it.
type sourceFile struct {
	FileStatus
	at time.Time
}

// note takes down the outcome of an attempt. Callers hold mu.
func (s *Snapshotter) note(next Snapshot, taken time.Time, skipped []Skipped, tables Tables, err error) {
	st := &s.status
	st.Skipped, st.Err = skipped, err
	if tables != 0 {
		st.Tables = tables
	}
	if err != nil {
		return
	}
	st.Generation, st.TakenAt, st.SourceEnd = next.Generation, taken, next.SourceEnd
	for name, f := range s.files {
		f.Stale, f.Reason = true, "is not there any more; replicas keep what they have"
		if k := slices.IndexFunc(skipped, func(k Skipped) bool { return k.Name == name }); k >= 0 {
			f.Reason = skipped[k].Err.Error()
		}
		s.files[name] = f
	}
	for _, f := range next.Files {
		s.files[f.Name] = sourceFile{at: taken, FileStatus: FileStatus{
			Name: f.Name, Size: wire.ByteSize(len(f.Content)), SHA256: f.SHA256, DataVersion: f.DataVersion, Waits: wire.NoOffset,
		}}
	}
}

// Status returns how the source's files are. It does not touch the disk.
func (s *Snapshotter) Status() SnapshotterStatus {
	now := s.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.status
	out.Age = -1
	if out.Generation > 0 {
		out.Age = max(now.Sub(out.TakenAt), 0)
	}
	out.Skipped = slices.Clone(out.Skipped)
	for _, k := range known {
		if f, ok := s.files[k.Name]; ok {
			f.Age = max(now.Sub(f.at), 0)
			out.Files = append(out.Files, f.FileStatus)
		}
	}
	return out
}
