// Package metadata owns a broker's config files on a replica: what they are
// called, whether they are whole, when it is safe to put them in place, and how
// to get an earlier state back. It never re-encodes: what is installed is, byte
// for byte, what the source said.
//
// Everything lives below the root of a store:
//
//	DIR/config/topics.json ...            what a broker reads at its start
//	DIR/.haagent/tmp/config-*             a file on its way, same file system
//	DIR/.haagent/metadata/objects/HASH    contents, named by their SHA-256
//	DIR/.haagent/metadata/generations/N   what stood in config/ after install N
//
// A generation is a text file of two lines, written once and never changed:
//
//	{"generation":7,"sourceGeneration":90,...,"files":[{"name":"topics.json",...}]}
//	<SHA-256 of the first line, 64 hexadecimal digits>
//
// It is the commit point of an install. In order: objects are written and
// synced, the generation is written and renamed in, then each file goes into
// config/ by write, fsync, rename and fsync of the directory. An install that
// dies on the way is finished by the next start, because the newest generation
// says what was meant and the objects hold it. A file in config/ that is neither
// what the newest generation names nor what the one before it named was written
// by somebody else.
//
// Files that hold consumer positions wait until the verified log covers the
// place where the source's log ended when they were read: a position beyond the
// log would make consumers skip what is written there later. Topics and groups
// do not wait, a topic without messages harms nobody. In one install they go
// first, so that no position ever stands there without its topic.
//
// On the source a [Snapshotter] reads what a broker has in config/ without
// disturbing it. An [Outbox] and an [Inbox] are the two ends of one connection:
// they know nothing of frames, only which contents have to be sent, and what must
// be true of those that arrive before an [Installer] is offered any.
//
// The accepted JSON is what fastjson writes, see [Complete].
package metadata
