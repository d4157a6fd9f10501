// Package replica is the one writer of a replica: a store directory on which an
// unmodified broker boots.
//
//	DIR/
//	├── lock                     byte 0 locked (OFD write lock) while replicating, as a broker does
//	├── abort                    present: makes every broker version rebuild its queues at boot
//	├── commitlog/               full-length, adjacent, numbered segments and nothing else (I6)
//	│   ├── 00000000000000000000
//	│   └── 00000000001073741824
//	├── config/                  installed by agent/metadata
//	└── .haagent/
//	    ├── state.json           who is followed, what is verified and synced; CRC, renamed in
//	    ├── verified             the verified end, should this process be killed (memory), with a digest
//	    ├── tmp/                 where files are born that cannot be born unnamed
//	    ├── salvage/             bytes that were cut back (I8)
//	    └── set-aside/           files of a broker that were in the way
//
// Three ends move along the log, each behind the one before it:
//
//	min          flushed      verified       written
//	 |--messages--|--messages---|--part of one--|···zeros to the segment's end
//	              |             |               |
//	              fdatasync     whole, checked  handed to the kernel
//	              covers it     messages        (never acked)
//
// verified and flushed are always message boundaries. An ack is verified
// (memory) or flushed (disk), never written (I3).
//
// One goroutine appends and verifies; Run flushes beside it. Everything else
// may read the ends at any time.
package replica
