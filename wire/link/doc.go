// Package link is the codec of the protocol by which agents talk to each other:
// one has a log, the other a replica of it. It knows bytes only; who dials, in
// which order frames come and what they cause is decided by its users and
// written down in docs/protocol.md.
//
// All numbers are big endian. Offsets are int64; -1 stands for "none" where the
// comment says so, other negative values are refused. Every value has exactly
// one encoding: reserved bytes are zero, nothing stands behind the last field.
//
// A connection opens with one greeting from each end, of 48 bytes, in clear. Its
// layout is the same in all versions:
//
//	 0           8     10    12     13        16             48
//	+-----------+-----+-----+------+---------+--------------+
//	| magic     | min | max | mode | 0  0  0 | nonce        |
//	+-----------+-----+-----+------+---------+--------------+
//	 "haagent\n" u16   u16   u8               32 random bytes
//
// min and max are the versions that the sender speaks; the highest common one
// is used. mode is 0 none, 1 tls (TLS follows the greetings), 2 clear. Frames
// come behind:
//
//	 0       4      5       6       8       12         12+size
//	+-------+------+-------+-------+-------+----------+
//	| size  | type | flags | 0   0 | crc   | payload  |
//	+-------+------+-------+-------+-------+----------+
//	 u32     u8     u8 = 0          u32
//
// size counts the payload alone and is bounded by type, so that a reader refuses
// a frame from its header. crc is the CRC-32C of the header's first 8 bytes and
// the payload. A str is a length in one byte and that many bytes of UTF-8
// without control characters. The payloads:
//
//	1 Hello, replica to master, 50 to 3886 bytes
//	 0         1     2         4             12    20         28        36
//	+---------+-----+---------+-------------+-----+----------+---------+-------+
//	| channel | ack | accepts | segmentSize | min | verified | flushed | epoch |
//	+---------+-----+---------+-------------+-----+----------+---------+-------+
//	 u8        u8    u16       i64, 0 = none  -1    -1         -1        i64 >= 0
//	 1 log     1 memory  bits: 1 zstd;
//	 2 meta    2 disk    0 before version 2
//	 44
//	+---------+------------+------+---------+-----+--------------------------+
//	| cluster | brokerName | node | version | n   | n times at, size, sha256 |
//	+---------+------------+------+---------+-----+--------------------------+
//	 str       str          str    str       u16    i64  u32 1..1 MiB  32 bytes
//	 may be empty both      >= 1             <= 64
//
//	2 Welcome, master to replica, 90 to 1174 bytes
//	 0             8     16          24        32      40
//	+-------------+-----+-----------+---------+-------+---------+------------+
//	| segmentSize | min | confirmed | visible | epoch | cluster | brokerName |
//	+-------------+-----+-----------+---------+-------+---------+------------+
//	 i64, 0 = none  -1    -1          -1        i64     str       str
//	+------+---------+---------------------------+-----+------------+
//	| node | version | head: at, size, sha256    | n   | n verdicts |
//	+------+---------+---------------------------+-----+------------+
//	 str    str       i64 u32 32 bytes, all zero   u16   u8 each: 0 unknown,
//	 >= 1             where the log is empty       <= 64 1 equal, 2 differs
//
//	3 Refuse, 12 Goodbye, 4 to 516 bytes
//	 0      2        4
//	+------+--------+------+
//	| code | length | text |
//	+------+--------+------+
//	 u16    u16      UTF-8 without control characters, <= 512 bytes
//	 >= 1
//
//	4 Ask, replica to master, 12 bytes        5 Answer, master to replica, 44 bytes
//	 0    8      12                            0    8      12       44
//	+----+------+                             +----+------+--------+
//	| at | size |                             | at | size | sha256 |
//	+----+------+                             +----+------+--------+
//	 i64  u32 1..1 MiB                         i64  u32 <= 1 MiB; 0 = unknown, sha256 zero
//
//	6 Start, replica to master, 8 bytes       7 Transfer, master to replica, 17 to 16+1 MiB
//	 0      8                                  0    8           16
//	+------+                                  +----+-----------+------+
//	| from |                                  | at | confirmed | body |
//	+------+                                  +----+-----------+------+
//	 i64                                       i64  i64, -1     1..1 MiB of the log
//
//	8 Report, replica to master, 24 bytes     9 Heartbeat, 24 bytes
//	 0          8          16        24        0     8           16        24
//	+----------+----------+---------+         +-----+-----------+---------+
//	| received | verified | flushed |         | min | confirmed | visible |
//	+----------+----------+---------+         +-----+-----------+---------+
//	 i64, -1    i64, -1    i64, -1             i64, -1 each
//
//	10 Snapshot, master to replica, 26 to 18778 bytes
//	 0            8         16          24   26
//	+------------+---------+-----------+----+------------------------------------+
//	| generation | takenAt | sourceEnd | n  | n times name, size, sha256, follows |
//	+------------+---------+-----------+----+------------------------------------+
//	 u64          Unix ms   i64, -1     u16   str   u32 <= 64 MiB  32 bytes  u8 0/1
//	              >= 0                  <= 64  >= 1, no path, no name twice
//
//	11 File, master to replica, 7 to 6+64 KiB      13 Proof, 32 bytes
//	 0       2        6                             0             32
//	+-------+--------+------+                      +-------------+
//	| index | offset | data |                      | HMAC-SHA256 |
//	+-------+--------+------+                      +-------------+
//	 u16     u32      1..64 KiB
//	 < 64
//
//	14 Packed, master to replica, 25 to 24+1 MiB-1, from version 2 on
//	 0    8           16     20    24
//	+----+-----------+------+-----+------+
//	| at | confirmed | size | sum | data |
//	+----+-----------+------+-----+------+
//	 i64  i64, -1     u32    u32   one zstd frame, shorter than size
//	                  2..1 MiB  CRC-32C of the size bytes of the log in it
package link
