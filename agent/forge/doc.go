// Package forge writes stores in the format of real brokers, byte for byte, but
// without a broker: for demonstrations, and for every test that needs a log that
// no broker would write in time (a record that stays half visible, a segment that
// ends in garbage, a message of a version that is not installed).
//
// It grows a store as a broker does. Segments are full length from birth and the
// next one exists ahead; records are stored through a shared memory map, so that
// the kernel reports no write to anybody who watches the directory; a segment
// ends with a BLANK when the next record does not fit:
//
//	DIR/commitlog/00000000000000000000   record record ... BLANK (garbage)
//	DIR/commitlog/00000000000001048576   record record 0 0 0 ...
//	DIR/commitlog/00000000000002097152   0 0 0 ...
//	DIR/config/topics.json               WriteConfig
//	DIR/lock                             byte 0 locked while the Writer is open
//	DIR/abort                            exists while the Writer is open
//
// The layout of a record is drawn in package commitlog, which is the one that
// reads what this one writes.
package forge
