package stock_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
)

// brokerOf is the configuration of a broker with some properties.
func brokerOf(t *testing.T, properties ...string) *stock.BrokerConfig {
	t.Helper()
	raw := map[string]string{"brokerName": "b", "listenPort": "10911", "mappedFileSizeCommitLog": "1048576", "brokerRole": "SYNC_MASTER"}
	for _, p := range properties {
		k, v, _ := strings.Cut(p, "=")
		maps.Copy(raw, map[string]string{k: v})
	}
	cfg, err := stock.ParseBrokerConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &cfg
}

// What is said about SEND_OK follows from the broker's configuration, from the
// relay and from what the replicas' acks mean.
func TestGuaranteeOf(t *testing.T) {
	connected := stock.RelayStatus{Links: 1, Connected: true}
	few := stock.RelayStatus{Links: 1, Reason: "0 of 1 replicas are in reach"}
	tooFew := stock.RelayStatus{Problem: &state.Problem{Code: "relay_too_few", Reason: "the local broker wants 2", Try: "give --relay-acks 2"}}
	for name, c := range map[string]struct {
		facts stock.GuaranteeFacts
		waits bool
		says  []string
		not   []string
	}{
		"never answered": {stock.GuaranteeFacts{RelayAcks: 1}, false, []string{"not told"}, nil},
		"controller mode": {stock.GuaranteeFacts{Broker: brokerOf(t, "enableControllerMode=true", "inSyncReplicas=2"), RelayAcks: 1, Relay: connected}, false,
			[]string{"controller mode", "not supported"}, nil},
		"dledger": {stock.GuaranteeFacts{Broker: brokerOf(t, "enableDLegerCommitLog=true")}, false, []string{"DLedger", "not supported"}, nil},
		"slave":   {stock.GuaranteeFacts{Broker: brokerOf(t, "brokerRole=SLAVE")}, false, []string{"SLAVE"}, nil},
		"asynchronous": {stock.GuaranteeFacts{Broker: brokerOf(t, "brokerRole=ASYNC_MASTER")}, false,
			[]string{"ASYNC_MASTER", "never waits"}, []string{"--relay-acks"}},
		"asynchronous with relay": {stock.GuaranteeFacts{Broker: brokerOf(t, "brokerRole=ASYNC_MASTER", "inSyncReplicas=2"), RelayAcks: 2}, false,
			[]string{"never waits", "--relay-acks 2 does nothing", "brokerRole=SYNC_MASTER"}, nil},
		"5.x by default": {stock.GuaranteeFacts{Broker: brokerOf(t, "inSyncReplicas=1")}, false,
			[]string{"inSyncReplicas=1", "does not wait"}, []string{"--relay-acks"}},
		"5.x by default with relay": {stock.GuaranteeFacts{Broker: brokerOf(t, "inSyncReplicas=1"), RelayAcks: 1}, false,
			[]string{"does not wait", "does nothing", "inSyncReplicas=2"}, nil},
		"5.x that lowers its demand": {stock.GuaranteeFacts{Broker: brokerOf(t, "inSyncReplicas=2", "enableSlaveActingMaster=true", "enableAutoInSyncReplicas=true", "minInSyncReplicas=1"), RelayAcks: 1, Relay: connected}, false,
			[]string{"enableAutoInSyncReplicas", "minInSyncReplicas=2"}, nil},
		"5.x that lowers it to one": {stock.GuaranteeFacts{Broker: brokerOf(t, "inSyncReplicas=2", "enableSlaveActingMaster=true", "enableAutoInSyncReplicas=true", "minInSyncReplicas=2"), RelayAcks: 1, Relay: connected}, true,
			[]string{"1 replica has"}, nil},
		"4.x without relay": {stock.GuaranteeFacts{Broker: brokerOf(t)}, true, []string{"1 slave of", "SLAVE_NOT_AVAILABLE", "--relay-acks is 0"}, nil},
		"5.x without relay": {stock.GuaranteeFacts{Broker: brokerOf(t, "inSyncReplicas=3")}, true, []string{"2 slaves of", "FLUSH_SLAVE_TIMEOUT"}, nil},
		"4.x, nobody there": {stock.GuaranteeFacts{Broker: brokerOf(t), RelayAcks: 1, Relay: few}, true,
			[]string{"SLAVE_NOT_AVAILABLE", "0 of 1 replicas are in reach"}, []string{"memory"}},
		"5.x, nobody there": {stock.GuaranteeFacts{Broker: brokerOf(t, "inSyncReplicas=2"), RelayAcks: 1, Relay: few}, true, []string{"FLUSH_SLAVE_TIMEOUT"}, nil},
		"5.x, too few asked for": {stock.GuaranteeFacts{Broker: brokerOf(t, "inSyncReplicas=3"), RelayAcks: 1, Relay: tooFew}, true,
			[]string{"Nothing is relayed", "wants 2", "Try: give --relay-acks 2"}, nil},
		"memory": {stock.GuaranteeFacts{Broker: brokerOf(t), RelayAcks: 1, Relay: connected, Memory: 1}, true,
			[]string{"1 replica has", "power cut", "may lose it"}, nil},
		"disk": {stock.GuaranteeFacts{Broker: brokerOf(t), RelayAcks: 2, Relay: connected, Disk: 3}, true,
			[]string{"2 replicas have", "on disk there", "survives a power cut"}, []string{"memory"}},
		"one of two on disk": {stock.GuaranteeFacts{Broker: brokerOf(t), RelayAcks: 2, Relay: connected, Memory: 1, Disk: 1}, true,
			[]string{"2 replicas have", "On 1 of them at least"}, []string{"may lose"}},
		"perhaps none on disk": {stock.GuaranteeFacts{Broker: brokerOf(t), RelayAcks: 1, Relay: connected, Memory: 1, Disk: 5}, true,
			[]string{"may lose it"}, []string{"at least"}},
		"others on the broker": {stock.GuaranteeFacts{Broker: brokerOf(t, "inSyncReplicas=2"), RelayAcks: 1, Disk: 1,
			Relay: stock.RelayStatus{Connected: true, Strangers: []string{"10.0.0.7:4000"}}}, true, []string{"1 slave sits", "10.0.0.7:4000", "may rest"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := stock.GuaranteeOf(c.facts)
			if g.Waits != c.waits {
				t.Errorf("waits %v: %s", g.Waits, g.Text)
			}
			for _, what := range c.says {
				if !strings.Contains(g.Text, what) {
					t.Errorf("%q does not say %q", g.Text, what)
				}
			}
			for _, what := range c.not {
				if strings.Contains(g.Text, what) {
					t.Errorf("%q says %q", g.Text, what)
				}
			}
			if !strings.HasSuffix(g.Text, ".") || strings.Contains(g.Text, "  ") || strings.Contains(g.Text, "..") {
				t.Errorf("%q", g.Text)
			}
		})
	}
}
