package commitlog_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// A scan beside a running broker finds every message where its producer was told
// that it is, takes no half stored one for damage, and has found the same when
// the broker is killed.
func TestScanner_BesideABroker(t *testing.T) {
	for _, v := range brokertest.Versions() {
		t.Run(string(v), func(t *testing.T) {
			crc := v.AtLeast("5.2.0") // the first that knows checksums over whole records
			o := brokertest.BrokerOptions{Version: v, SegmentSize: wire.MiB}
			if crc {
				o.Properties = map[string]string{"enabledAppendPropCRC": "true"}
			}
			ns := brokertest.StartNameServer(t, v)
			o.NameServer = ns.Addr
			broker := brokertest.StartBroker(t, o)
			driver := brokertest.StartDriver(t, v, ns.Addr)
			s, err := commitlog.NewScanner(filepath.Join(broker.Dir(), "commitlog"), wire.MiB, wire.NoOffset)
			if err != nil {
				t.Fatal(err)
			}
			places := make(map[wire.PhyOffset]bool)
			torn := 0
			read := func() {
				for s.Next() {
					places[s.Record().PhyOffset] = true
					if !s.Record().WellFormed() {
						torn++
					}
				}
				if !errors.Is(s.Err(), commitlog.ErrNotYet) {
					t.Fatalf("after %d records, at %d: %v", s.Records(), s.Offset(), s.Err())
				}
			}
			const rate, messages = 2000, 4000
			stop := driver.StartSending(t, brokertest.SendSpec{Topic: "beside", Count: messages, Threads: 4, BodySize: 1500, Rate: rate})
			for s.Records() < messages {
				read()
			}
			sent := stop()
			for _, kind := range []brokertest.Kind{brokertest.Keyed, brokertest.Batch, brokertest.Compressed, brokertest.Transactional} {
				sent = append(sent, driver.Send(t, brokertest.SendSpec{Topic: "beside", Count: 32, Kind: kind, KeyPrefix: string(kind)})...)
			}
			broker.Kill()
			read()
			t.Logf("%d of %d records were seen before their properties were there", torn, s.Records())
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			keys := replay(t, filepath.Join(broker.Dir(), "commitlog"), crc)
			for _, m := range sent {
				if !m.Placed() {
					continue
				}
				if key, ok := keys[m.PhyOffset]; !ok || key != m.Key || !places[m.PhyOffset] {
					t.Fatalf("%s message %s at %d: found %q, %t, live %t", m.Kind, m.Key, m.PhyOffset, key, ok, places[m.PhyOffset])
				}
			}
			if len(keys) != len(places) {
				t.Errorf("%d records live, %d afterwards", len(places), len(keys))
			}
		})
	}
}

// replay scans a log that nobody writes any more, returns the KEYS of each record,
// and checks that each has a checksum over all of it, or none has.
func replay(t *testing.T, dir string, wantCRC bool) map[wire.PhyOffset]string {
	t.Helper()
	s, err := commitlog.NewScanner(dir, wire.MiB, wire.NoOffset)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[wire.PhyOffset]string)
	for s.Next() {
		r := s.Record()
		keys, _ := r.Property("KEYS")
		all[r.PhyOffset] = string(keys)
		if match := r.PropertyCRC() == commitlog.CRCMatch; match != wantCRC {
			t.Errorf("record at %d: the checksum of the whole record is there and right: %t", r.PhyOffset, match)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}
