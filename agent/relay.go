package agent

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// maxRelayAcks is more replicas than a broker group has.
const maxRelayAcks = 16

// checkRelay checks --relay-acks.
func (c Config) checkRelay() error {
	switch {
	case c.RelayAcks < 0 || c.RelayAcks > maxRelayAcks:
		return &ConfigError{"relay-acks", strconv.Itoa(c.RelayAcks), "must be between 0 and 16", "give the number of replicas that must have a message before its producer is told SEND_OK; 0 leaves that to the broker"}
	case c.RelayAcks > 0 && c.Role != RoleMaster:
		return &ConfigError{"relay-acks", strconv.Itoa(c.RelayAcks), "only a master agent has a broker to tell", "give it to the agent beside the broker"}
	}
	return nil
}

// newRelay returns what tells the local broker of the replicas' acks; nil where
// that was not asked for.
func (m *master) newRelay() *stock.Relay {
	if m.a.cfg.RelayAcks == 0 {
		return nil
	}
	return stock.NewRelay(stock.RelayOptions{Acks: m.acks, N: m.a.cfg.RelayAcks, Log: m.a.log, Recheck: m.recheck})
}

// recheckTime is how long a look at all that the log is known by may take.
const recheckTime = 2 * time.Second

// recheck is stock.RelayOptions.Recheck. A look that is not done in time may have
// seen nothing.
func (m *master) recheck(ctx context.Context) (same bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, recheckTime)
	defer cancel()
	before := m.source.Incarnation()
	same = m.source.Recheck(ctx) == before
	if err := ctx.Err(); err != nil && same {
		return false, fmt.Errorf("look at the log's last bytes: %w", err)
	}
	return same, nil
}

// facts are what the guarantee for producers follows from.
func (m *master) facts() stock.GuaranteeFacts {
	f := stock.GuaranteeFacts{RelayAcks: m.a.cfg.RelayAcks}
	if cfg, ok := m.authority.Config(); ok {
		f.Broker = &cfg
	}
	if m.relay != nil {
		f.Relay = m.relay.Status()
	}
	for _, node := range m.acks.Nodes() {
		if node.Level == acks.Memory {
			f.Memory++
		} else {
			f.Disk++
		}
	}
	return f
}

// guarantee adds to the status what the local broker's SEND_OK means. What keeps
// a relay from its work is the reason of an agent that serves otherwise.
func (m *master) guarantee(s *control.Status) {
	facts := m.facts()
	g := stock.GuaranteeOf(facts)
	s.Guarantee = &control.Guarantee{Text: g.Text, Waits: g.Waits, RelayAcks: facts.RelayAcks, RelayConnected: facts.Relay.Connected, Relayed: wire.NoOffset}
	if m.relay == nil {
		return
	}
	s.Guarantee.Relayed = facts.Relay.Reported
	if p := facts.Relay.Problem; p != nil {
		s.Guarantee.Code, s.Guarantee.Try = p.Code, p.Try
		if s.State.Ready() && s.Reason == "" {
			s.Reason, s.Try = p.Error(), p.Try
		}
	}
}

// guaranteeLook is how often a change of the guarantee is looked for.
const guaranteeLook = time.Second

// tellGuarantee logs what the local broker's SEND_OK means, and each change of
// that, until ctx ends. A broker gets some time to tell its configuration first.
func (m *master) tellGuarantee(ctx context.Context) {
	look := time.NewTicker(guaranteeLook)
	defer look.Stop()
	began, told := time.Now(), ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		facts := m.facts()
		if facts.Broker == nil && time.Since(began) < nameWait {
			continue
		}
		if g := stock.GuaranteeOf(facts); g.Text != told {
			told = g.Text
			m.a.log.Info("what producers can rely on: "+g.Text, "waits", g.Waits, "relayAcks", facts.RelayAcks)
		}
	}
}
