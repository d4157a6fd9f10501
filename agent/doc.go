// Package agent runs one haagent: it takes a checked Config, picks the role,
// keeps it going through everything that can go wrong, and says how it is.
//
//	Agent.Run ─ control (HTTP, socket)
//	          └ role loop ─ session: one opening of the store
//	                         ├ follower   source's log -> replica (agent/stock)
//	                         ├ flusher    verified -> synced     (agent/replica)
//	                         ├ snapshots  source's config -> DIR (agent/metadata)
//	                         └ watchman   has somebody else written here?
//
// A session ends when its store has to be opened anew (a failed sync, somebody
// else's writes), at promotion and at the end; the loop then begins another one
// or returns. Everything stuck stays up and goes on when the cause is gone.
package agent
