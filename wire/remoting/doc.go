// Package remoting is the codec of RocketMQ's request and answer protocol, the
// one on a broker's listenPort: RemotingCommand and the few bodies that a
// replica needs. It knows bytes only; connections belong to its users.
//
// A command travels as one frame, all numbers big endian:
//
//	 0       4       8                    8+headerLength     4+total
//	+-------+-------+--------------------+------------------+
//	| total | type  | header             | body             |
//	|       | +len  |                    |                  |
//	+-------+-------+--------------------+------------------+
//
// total (uint32) counts everything behind itself. The second word holds the
// serialization of the header in its top byte and headerLength in the other 24
// bits. Serialization 0 is a JSON object with the members code, language,
// version, opaque, flag, remark, extFields (string to string) and
// serializeTypeCurrentRPC. Serialization 1 ("ROCKETMQ") is
//
//	 0      2      3         5        9      13
//	+------+------+---------+--------+------+-----------+--------+--------+-----------+
//	| code | lang | version | opaque | flag | remarkLen | remark | extLen | extFields |
//	+------+------+---------+--------+------+-----------+--------+--------+-----------+
//	 int16  uint8  int16     int32    int32  int32                int32
//
// where extFields repeats: keyLen (int16), key, valueLen (int32), value; all
// texts UTF-8. Answers carry their request's opaque and bit 0 of flag. Bit 1
// marks a request that wants no answer.
//
// The layout is that of RemotingCommand and RocketMQSerializable in the broker's
// remoting module; the codes are those of its RequestCode and ResponseCode.
package remoting
