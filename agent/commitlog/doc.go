// Package commitlog reads the commit log of a RocketMQ broker: the names of its
// segments, the records in them and where the valid data ends. It never writes,
// creates or deletes anything.
//
// # Segments
//
// The log is a directory of files, each named by the offset of its first byte
// in 20 decimal digits, each as long as every other one from the moment it is
// born, the next one or two created ahead and all zero:
//
//	commitlog/00000000000000000000   1 GiB  full, ends in a BLANK
//	commitlog/00000000001073741824   1 GiB  records, then zeros
//	commitlog/00000000002147483648   1 GiB  zeros
//
// # Records
//
// All numbers are big endian. Offsets on the left are for 8-byte hosts.
//
//	 0  TOTALSIZE                  int32  the whole record; 0: nothing here yet
//	 4  MAGIC                      uint32 0xdaa320a7 V1, 0xdaa320ab V2
//	 8  BODYCRC                    uint32 CRC-32 (IEEE) of BODY, top bit cleared
//	12  QUEUEID                    int32
//	16  FLAG                       int32
//	20  QUEUEOFFSET                int64
//	28  PHYSICALOFFSET             int64  the place of this record
//	36  SYSFLAG                    int32  0x10 born host, 0x20 store host is IPv6
//	40  BORNTIMESTAMP              int64  milliseconds
//	48  BORNHOST                   4+4 or 16+4: address, port
//	56  STORETIMESTAMP             int64  milliseconds
//	64  STOREHOST                  4+4 or 16+4
//	72  RECONSUMETIMES             int32
//	76  PREPAREDTRANSACTIONOFFSET  int64
//	84  BODY                       int32 n, n bytes
//	    TOPIC                      V1: int8 n, V2: int16 n; n bytes
//	    PROPERTIES                 int16 n, n bytes: name 0x01 value 0x02 ...
//
// Where the next record does not fit (a record needs its own size and 8 bytes
// more), the segment ends with a BLANK, behind which anything may lie:
//
//	0  TOTALSIZE                  int32  all that is left in the segment
//	4  MAGIC                      uint32 0xcbd43194
//
// Only BODYCRC guards the bytes of a record, and only its body; an empty body is
// not checked. Brokers from 5.2 on can be told (enabledAppendPropCRC) to end the
// properties with a CRC of everything before it, see [Record.PropertyCRC].
//
// Nothing in the format says that a record is complete: a broker stores it
// through a memory map, and another process may see it piece by piece. A
// [CorruptError] at the very tail of a log that is being written is therefore a
// reason to look again, anywhere else it is damage.
package commitlog
