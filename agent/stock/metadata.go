package stock

import (
	"context"
	"errors"

	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// CollectMetadata takes one snapshot of the broker's topics, groups and
// positions over its remoting port, as the files that the broker itself would
// persist. What the broker does not answer stands in the list.
func CollectMetadata(ctx context.Context, b *Broker) (metadata.Snapshot, []metadata.Missing, error) {
	ask := func(ctx context.Context, code remoting.RequestCode) (remoting.Command, error) {
		answer, err := b.ask(ctx, code, nil, nil)
		var refused *ResponseError
		if errors.As(err, &refused) && !errors.Is(err, ErrUnauthorized) {
			return remoting.NewRequest(code, nil, nil).Reply(refused.Code, refused.Remark), nil
		}
		return answer, err
	}
	end := func(ctx context.Context) (wire.PhyOffset, error) {
		info, err := b.RuntimeInfo(ctx)
		return max(info.MaxOffset, 0), err
	}
	s, missing, err := metadata.Collect(ctx, ask, end)
	return s, missing, BrokerProblem(b.Addr(), err)
}
