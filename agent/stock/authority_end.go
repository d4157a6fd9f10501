package stock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// logEnd asks the broker where its log ends. Brokers of 5.x are asked for their
// HA status (907), which costs them 0.2 ms: for their runtime information (28)
// 5.3.3 goes through its whole timer wheel, and that takes hundreds. Brokers of 4.5
// leave what they do not know unanswered, so it is not just tried.
func (s *authoritySession) logEnd(ctx context.Context) (wire.PhyOffset, error) {
	b := s.a.opt.Broker
	if s.survey.Config.CountsInSync && !s.noHAStatus.Load() {
		end, peers, version, err := b.haStatusEnd(ctx)
		var refused *ResponseError
		switch {
		case err == nil:
			s.a.version(version)
			s.peers.Store(&peers)
			return sane(b, end)
		case errors.Is(err, ErrUnauthorized), errors.Is(err, ErrNotReady):
			return wire.NoOffset, BrokerProblem(b.Addr(), err)
		case errors.As(err, &refused), errors.Is(err, remoting.ErrBody):
			s.noHAStatus.Store(true)
		default:
			return wire.NoOffset, BrokerProblem(b.Addr(), err)
		}
	}
	info, err := b.RuntimeInfo(ctx)
	if err != nil {
		return wire.NoOffset, BrokerProblem(b.Addr(), err)
	}
	s.a.version(info.Version)
	return sane(b, max(info.MaxOffset, 0)) // -1 stands for a log without a segment
}

func sane(b *Broker, end wire.PhyOffset) (wire.PhyOffset, error) {
	if end < 0 || end > maxOffset {
		return wire.NoOffset, state.Problemf(state.ProtocolError, "absurd_offset", "restart the local broker if this lasts", nil,
			"%s says that its log ends at %d", b.Addr(), end)
	}
	return end, nil
}

// haStatusEnd asks for the end of the log by request 907. It also tells whom a
// master's HA port serves (host:port each), and the broker's release.
func (b *Broker) haStatusEnd(ctx context.Context) (end wire.PhyOffset, peers []string, version string, err error) {
	answer, err := b.Raw(ctx, remoting.GetBrokerHAStatus, nil, nil)
	if err != nil {
		return wire.NoOffset, nil, "", err
	}
	var status struct {
		Master *bool           `json:"master"`
		End    *wire.PhyOffset `json:"masterCommitLogMaxOffset"`
		Peers  []struct {
			Addr string `json:"addr"`
		} `json:"haConnectionInfo"`
		Client struct {
			End *wire.PhyOffset `json:"maxOffset"`
		} `json:"haClientRuntimeInfo"`
	}
	if err := json.Unmarshal(answer.Body, &status); err != nil {
		return wire.NoOffset, nil, "", fmt.Errorf("%w: HA status of broker %s: %w", remoting.ErrBody, b.addr, err)
	}
	told := status.End
	if status.Master != nil && !*status.Master {
		told = status.Client.End
	}
	if status.Master == nil || told == nil {
		return wire.NoOffset, nil, "", fmt.Errorf("%w: HA status of broker %s tells no end", remoting.ErrBody, b.addr)
	}
	for _, p := range status.Peers {
		peers = append(peers, p.Addr)
	}
	return *told, peers, releaseName(answer.Version), nil
}

// The numbers of 4.0.0-SNAPSHOT and 5.0.0-SNAPSHOT in each answer of a broker. From
// the former on each release has two, its snapshot's first.
const (
	release400 = 212
	release500 = release400 + 200
)

// releaseName is a release in a broker's own words, from the number that is in
// each of its answers.
func releaseName(n int) string {
	if n < release400 {
		return ""
	}
	release := (n - release400) / 2
	name := fmt.Sprintf("V%d_%d_%d", 4+release/100, release/10%10, release%10)
	if (n-release400)%2 == 0 {
		name += "_SNAPSHOT"
	}
	return name
}
