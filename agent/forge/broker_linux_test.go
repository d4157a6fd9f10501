package forge_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// forgedMessage is what a consumer must see of a forged message.
type forgedMessage struct {
	QueueID     int
	QueueOffset int64
	PhyOffset   wire.PhyOffset
	StoreSize   wire.ByteSize
	Body        string // SHA-256
	BornHost    string
	StoreHost   string
}

// Unmodified brokers boot on a forged store, serve every message of it, and write
// on where it ends.
func TestFault61_BrokersServeForgedStores(t *testing.T) {
	for _, v := range brokertest.Versions() {
		t.Run(string(v), func(t *testing.T) {
			dir := t.TempDir()
			want, end := forgeForBroker(t, v, dir)
			ns := brokertest.StartNameServer(t, v)
			broker := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, Dir: dir, NameServer: ns.Addr, SegmentSize: wire.MiB})
			driver := brokertest.StartDriver(t, v, ns.Addr)
			for topic, messages := range want {
				got := make(map[string]forgedMessage)
				for _, m := range driver.PullN(t, topic, len(messages)) {
					got[fmt.Sprintf("%d/%d", m.QueueID, m.QueueOffset)] = forgedMessage{
						m.QueueID, m.QueueOffset, m.PhyOffset, m.StoreSize, m.BodySHA256, m.BornHost, m.StoreHost,
					}
				}
				if diff := cmp.Diff(messages, got); diff != "" {
					t.Errorf("topic %s: %s", topic, diff)
				}
			}
			sent := driver.Send(t, brokertest.SendSpec{Topic: "t-0", Count: 20})
			for _, s := range sent {
				if s.Status != brokertest.StatusOK || s.PhyOffset < end {
					t.Errorf("sent %s at %d; the forged log ends at %d", s.Status, s.PhyOffset, end)
				}
			}
			broker.Kill()
			w := open(t, forge.Options{Dir: dir, SegmentSize: wire.MiB})
			if w.End() <= end || count(t, w, wire.MiB) < 300+20 {
				t.Errorf("the log ends at %d", w.End())
			}
		})
	}
}

// forgeForBroker forges a store that a broker of that version reads, killed while
// it ran, and returns what its consumers must see by topic, and its end.
func forgeForBroker(t *testing.T, v brokertest.Version, dir string) (map[string]map[string]forgedMessage, wire.PhyOffset) {
	t.Helper()
	v5 := strings.HasPrefix(string(v), "5")
	w := open(t, forge.Options{Dir: dir, SegmentSize: wire.MiB, Start: 7 << 20, Garbage: newRand(1), Running: true})
	r := newRand(2)
	want := make(map[string]map[string]forgedMessage)
	for i := range 300 {
		m := forge.RandomMessage(r, forge.Variety{MaxSize: 32 * wire.KiB, IPv6: v.AtLeast("4.9.0"), PropertyCRC: v5})
		m.Properties = forge.AppendProperty(m.Properties, "number", strconv.Itoa(i)) // clients always set some
		if v5 && i%3 == 0 {
			m.Magic = commitlog.MagicV2
		}
		end, err := w.Append(m)
		if err != nil {
			t.Fatal(err)
		}
		if want[m.Topic] == nil {
			want[m.Topic] = make(map[string]forgedMessage)
		}
		offset := int64(0)
		for {
			if _, taken := want[m.Topic][fmt.Sprintf("%d/%d", m.QueueID, offset)]; !taken {
				break
			}
			offset++
		}
		sum := sha256.Sum256(m.Body)
		want[m.Topic][fmt.Sprintf("%d/%d", m.QueueID, offset)] = forgedMessage{
			int(m.QueueID), offset, end.Add(-m.Size()), m.Size(), hex.EncodeToString(sum[:]), javaHost(m.BornHost), javaHost(m.StoreHost),
		}
	}
	style := forge.Style4x
	if v5 {
		style = forge.Style5x
	}
	if err := forge.WriteConfig(dir, "topics.json", topicsJSON(t, want), style, nil); err != nil {
		t.Fatal(err)
	}
	end := w.End()
	if err := w.Abandon(); err != nil {
		t.Fatal(err)
	}
	return want, end
}

func topicsJSON(t *testing.T, topics map[string]map[string]forgedMessage) []byte {
	t.Helper()
	table := make(map[string]any)
	for topic := range topics {
		table[topic] = map[string]any{
			"topicName": topic, "perm": 6, "readQueueNums": 4, "writeQueueNums": 4,
			"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": false,
		}
	}
	b, err := json.Marshal(map[string]any{
		"dataVersion":      map[string]any{"counter": 1, "timestamp": int64(1_700_000_000_000)},
		"topicConfigTable": table,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// javaHost prints an address as Java does.
func javaHost(host netip.AddrPort) string {
	if addr := host.Addr(); addr.Is6() {
		b := addr.As16()
		var groups []string
		for i := 0; i < 16; i += 2 {
			groups = append(groups, strconv.FormatUint(uint64(b[i])<<8|uint64(b[i+1]), 16))
		}
		return fmt.Sprintf("/[%s]:%d", strings.Join(groups, ":"), host.Port())
	}
	return "/" + host.String()
}
