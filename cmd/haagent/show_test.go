package main

import (
	"strings"
	"testing"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
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
