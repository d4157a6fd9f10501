// Package watch turns file system events into hints that are never the truth.
//
// An edge says no more than "look again": it carries no name, several events are
// one edge, and an edge comes now and then although nothing has happened. Every
// way in which events get lost (the kernel's queue overflows, a directory is
// removed and made anew, files appear before a new directory is watched, there
// are no inotify instances left) leads to the same edge as an event, and so does
// the passing of [Options.Rescan]. Who reads the directory after an edge, and
// compares contents instead of times and sizes, misses nothing for longer.
//
// Directories that do not exist are waited for by watching the nearest one above
// that does:
//
//	/store/config       watched for its files
//	/store              watched for config coming, going and being replaced
//	/                   watched only while /store is missing
//
// What brokers store through memory maps makes no event at all. Whoever wants
// to know that a log has grown must look at the log.
package watch
