package stock

import (
	"errors"

	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire/ha"
	"github.com/haagent/haagent/wire/remoting"
)

// streamProblem names the state that an error while reading a source's stream
// leads to. Plain connection errors are no Problem: they are tried again.
func streamProblem(addr string, err error) error {
	if err == nil || state.AsProblem(err) != nil {
		return err
	}
	if errors.Is(err, ha.ErrFrame) {
		return state.Problemf(state.ProtocolError, "bad_frame", "check that "+addr+" is the HA port (haListenPort, default listenPort+1) of a broker that is not in controller mode", err, "%s does not speak the stock HA protocol", addr)
	}
	if p := replica.SourceProblem(err); p != nil {
		return p
	}
	return err
}

// BrokerProblem names the state that an error of a Broker leads to, a refused or
// garbled request for example. Errors that go away by themselves are returned as
// they are.
func BrokerProblem(addr string, err error) error {
	if err == nil || state.AsProblem(err) != nil {
		return err
	}
	switch {
	case errors.Is(err, ErrUnauthorized):
		return state.Problemf(state.Unauthorized, "broker_acl", "give --broker-acl-file with an accessKey that may read, or add this host to the globalWhiteRemoteAddresses of plain_acl.yml", err, "the broker at %s refuses us", addr)
	case errors.Is(err, remoting.ErrFrame), errors.Is(err, remoting.ErrTooLarge):
		return state.Problemf(state.ProtocolError, "not_remoting", "give the broker's listenPort (default 10911) as --master", err, "%s does not answer as a broker", addr)
	}
	return err
}
