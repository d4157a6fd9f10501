// Package source is the live tail of a broker's commit log: where the log ends,
// what of it is complete, and which files hold it. It only reads.
//
// A broker stores records through a memory map, so the kernel reports no write
// to anybody: the tail is polled through a map of its own, every fraction of a
// millisecond near traffic, and the less the longer nothing comes.
//
// # Ends
//
// A record becomes visible piece by piece (its size first, its properties last,
// or in any other order), and nothing in the format says that it is complete:
//
//	record record record | size ... body ... 0 0 0 0 | 0 0 0 0
//	                     ^ Confirmed        Visible ^
//
// Confirmed is behind the last record that is known to be complete: the next one
// has begun, or the broker's own end lies behind it ([Authority]). The one record
// behind Confirmed is settled once it stood unchanged for [Options.Settle]: it
// may be shipped, but is a guess, and taken back when its bytes change after all.
// Visible is the end of what can be parsed.
//
// A BLANK and what lies behind it are complete once the next segment's first
// record has begun, or the broker's end is at the segment's end; until then it
// is not visible, because no message is in it.
//
// # When the log is not what it was
//
// Files that are deleted at the beginning move Min. Anything else that happens to
// bytes below Confirmed (a recovering broker cut its log back, a file was cut
// short, another store lies in the directory) makes the Incarnation go up: what
// was read before is not to be continued, and whoever follows must ask anew.
// It is found by copies of the last bytes that were confirmed, now and some seconds
// ago, and by a broker that came back and keeps saying that its log ends earlier.
package source
