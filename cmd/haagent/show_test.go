package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/wire"
)

// The status of a master tells people what their producers can rely on.
func TestPrintStatus_Guarantee(t *testing.T) {
	for name, c := range map[string]struct {
		guarantee *control.Guarantee
		want      []string
		without   string
	}{
		"not known yet": {nil, nil, "guarantee"},
		"no relay":      {&control.Guarantee{Text: "Nobody waits."}, []string{"guarantee  Nobody waits."}, "relay "},
		"connected": {&control.Guarantee{Text: "SEND_OK says it.", Waits: true, RelayAcks: 2, RelayConnected: true, Relayed: 4711},
			[]string{"guarantee  SEND_OK says it.", "relay      acks of 2, reported 4711"}, "not connected"},
		"not connected": {&control.Guarantee{Text: "Producers get something.", Waits: true, RelayAcks: 1},
			[]string{"guarantee  Producers get something.", "relay      acks of 1, not connected to the broker"}, "reported"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := printStatus(&out, control.Status{Role: string(agent.RoleMaster), Guarantee: c.guarantee}, false); err != nil {
				t.Fatal(err)
			}
			for _, line := range c.want {
				if !strings.Contains(out.String(), line+"\n") {
					t.Errorf("%q is missing in\n%s", line, out.String())
				}
			}
			if strings.Contains(out.String(), c.without) {
				t.Errorf("%q in\n%s", c.without, out.String())
			}
		})
	}
}

// What is not known yet is not shown as a number, and one of something is no plural.
func TestPrintStatus_BeforeAnythingIsKnown(t *testing.T) {
	none := control.Offsets{Min: wire.NoOffset, Received: wire.NoOffset, Written: wire.NoOffset, Verified: wire.NoOffset, Flushed: wire.NoOffset, Acked: wire.NoOffset, Source: wire.NoOffset}
	for _, role := range []agent.Role{agent.RoleSlave, agent.RoleMaster} {
		var out strings.Builder
		s := control.Status{Role: string(role), Dir: "/store", Offsets: none, Rewound: &control.Rewound{At: 10, Bytes: 1, Salvage: "/salvage"},
			Metadata: control.Metadata{Files: make([]control.MetadataFile, 1)}, Replicas: []control.Replica{{Node: "r", Acked: wire.NoOffset, Ack: "disk"}}}
		if err := printStatus(&out, s, false); err != nil {
			t.Fatal(err)
		}
		for _, odd := range []string{"-1", "0B", "//", "files", "1 bytes"} {
			if strings.Contains(out.String(), odd) {
				t.Errorf("%s: %q in\n%s", role, odd, out.String())
			}
		}
	}
}

// A directory without an agent is described by what is on disk.
func TestPrintLeft(t *testing.T) {
	st := replica.State{Cluster: "c1", BrokerName: "b1", SegmentSize: wire.MiB, VerifiedEnd: 4711, HistoryFrom: 99}
	promoted := st
	promoted.Promoted, promoted.Epoch = true, 3
	held := fmt.Errorf("/store/lock: %w (process 77)", replica.ErrLocked)
	for name, c := range map[string]struct {
		left agent.Left
		code int
		want []string
	}{
		"replica":     {agent.Left{Replica: &st}, exitNotConnected, []string{"c1/b1", "up to 4711 and synced", "segments of 1MiB", "from 99 on", "free", "no agent works on the replica"}},
		"promoted":    {agent.Left{Replica: &promoted, Held: held}, exitDifferent, []string{"epoch 3", "up to 4711 when it was promoted", "its broker (process 77) has it open", "belongs to a broker"}},
		"in use":      {agent.Left{Replica: &st, Held: held}, exitNotConnected, []string{"another process (process 77) has it open", "fuser "}},
		"master's":    {agent.Left{Cluster: "c1", BrokerName: "b1"}, exitNotConnected, []string{"served", "c1/b1", "--role master"}},
		"unreadable":  {agent.Left{Unread: errors.New("CRC")}, exitNotConnected, []string{"cannot be read: CRC", "resync"}},
		"never asked": {agent.Left{Replica: &replica.State{VerifiedEnd: wire.NoOffset}}, exitNotConnected, []string{"?/?", "nothing yet"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.left.Dir, c.left.Written = t.TempDir(), time.Now()
			err := absent(c.left)
			code, try := explain(err)
			var out strings.Builder
			if err := printLeft(&out, c.left); err != nil {
				t.Fatal(err)
			}
			all := out.String() + err.Error() + "\n" + try
			for _, text := range c.want {
				if !strings.Contains(all, text) {
					t.Errorf("%q is missing in\n%s", text, all)
				}
			}
			if code != c.code || try == "" || strings.Contains(all, "-1") {
				t.Errorf("exit code %d:\n%s", code, all)
			}
		})
	}
	err := absent(agent.Left{Dir: t.TempDir()})
	if code, try := explain(err); code != exitNotConnected || try == "" || !errors.Is(err, control.ErrNoAgent) {
		t.Errorf("nothing is left: %d, %q, %v", code, try, err)
	}
}
