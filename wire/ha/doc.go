// Package ha is the codec of the stream by which an unmodified RocketMQ slave
// follows its master: the port next to listenPort, "HA" in the broker's words.
// It knows bytes only; who dials, when to answer and what to acknowledge is
// decided by its users.
//
// Slave to master, a report, over and over. The first one is the request (the
// offset from which the slave wants the log) and the broker counts it as an
// acknowledgement like every later one:
//
//	 0               8
//	+---------------+
//	| maxPhyOffset  |  int64, big endian, >= 0
//	+---------------+
//
// Master to slave, frames:
//
//	 0               8       12                12+bodySize
//	+---------------+-------+------------------+
//	| phyOffset     | body  | body: raw bytes  |
//	|               | Size  | of the log       |
//	+---------------+-------+------------------+
//	  int64, >= 0     int32, >= 0
//
// A frame of bodySize 0 is a heartbeat: its phyOffset is the one that the next
// frame with a body will have, which is not always the end of the log. A body
// starts at phyOffset and cuts messages anywhere. A stock master sends at most
// haTransferBatchSize bytes a frame (StockBatch unless configured otherwise),
// and no frame of it crosses the end of a segment.
//
// The stream has no version, no identity and no checksum, and TCP glues and
// tears: readers of this package take bytes in whatever pieces they come.
//
// The layout is that of DefaultHAConnection and DefaultHAClient (5.x) and of
// HAConnection and HAService (4.x) in the broker's store module. The controller
// mode of 5.x (AutoSwitchHAConnection) speaks another protocol on the same port,
// which this package does not read.
package ha
