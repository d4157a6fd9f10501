package stock

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/haagent/haagent/wire/remoting"
)

// Handlers returns what answers as a name server does: registration, signs of
// life, members of a group, routes and the cluster.
func (r *Registry) Handlers() map[remoting.RequestCode]RemotingHandler {
	return map[remoting.RequestCode]RemotingHandler{
		remoting.RegisterBroker:                r.register,
		remoting.UnregisterBroker:              r.unregister,
		remoting.BrokerHeartbeat:               r.heartbeat,
		remoting.QueryDataVersion:              r.dataVersion,
		remoting.GetBrokerMemberGroup:          r.memberGroup,
		remoting.GetRouteInfoByTopic:           r.route,
		remoting.GetBrokerClusterInfo:          r.clusterInfo,
		remoting.GetAllTopicListFromNameServer: r.topicList,
		remoting.GetKVConfig:                   noKVConfig,
		remoting.GetKVListByNamespace:          noKVConfig,
	}
}

// registrant reads who a request is about.
func registrant(req remoting.Command) (registered, error) {
	f := req.ExtFields
	b := registered{registryKey: registryKey{cluster: f["clusterName"], addr: f["brokerAddr"]}, name: f["brokerName"]}
	for name, text := range map[string]string{"clusterName": b.cluster, "brokerAddr": b.addr, "brokerName": b.name} {
		if text == "" || len(text) > maxRegisteredText {
			return b, fmt.Errorf("the field %s has %d bytes", name, len(text))
		}
	}
	if _, port, err := net.SplitHostPort(b.addr); err != nil || port == "" {
		return b, fmt.Errorf("the field brokerAddr is %q", b.addr)
	}
	return b, nil
}

// register answers request 103 with the addresses of the master.
func (r *Registry) register(ctx context.Context, from net.Addr, req remoting.Command) remoting.Command {
	b, err := registrant(req)
	if err == nil {
		b.id, err = strconv.ParseInt(req.ExtFields["brokerId"], 10, 64)
	}
	if err != nil || b.id < 0 {
		return req.Reply(remoting.SystemError, fmt.Sprintf("register broker failed: brokerId %q: %v", req.ExtFields["brokerId"], err))
	}
	table, err := r.read(ctx, req)
	if err != nil {
		return req.Reply(remoting.SystemError, "register broker failed: "+err.Error())
	}
	b.version, b.seen, b.life, b.remote = table.version, r.opt.Now(), registrationLife, from.String()
	if ms, err := strconv.ParseInt(req.ExtFields["heartbeatTimeoutMillis"], 10, 64); err == nil && ms > 0 {
		b.life = min(max(time.Duration(min(ms, 1<<32))*time.Millisecond, minRegistrationLife), maxRegistrationLife)
	}
	if err := r.put(b, table.topics); err != nil {
		r.opt.Log.Warn("a broker was not registered", "broker", b.String(), "cause", err)
		return req.Reply(remoting.SystemError, "register broker failed: "+err.Error())
	}
	answer := req.Reply(remoting.Success, "")
	answer.ExtFields = map[string]string{}
	if b.id == 0 {
		return answer
	}
	master, err := r.opt.Find(b.cluster, b.name)
	if err == nil {
		err = r.vet(ctx, from, b, master)
	}
	if err != nil {
		r.say(b, told{why: err.Error()})
		return answer
	}
	r.say(b, told{master: master})
	for name, addr := range map[string]string{"haServerAddr": master.HA, "masterAddr": master.Remoting} {
		if addr != "" {
			answer.ExtFields[name] = addr
		}
	}
	return answer
}

// read takes the body of a registration apart, one at a time: that takes several
// times its length.
func (r *Registry) read(ctx context.Context, req remoting.Command) (topicTable, error) {
	sum, err := strconv.ParseUint(firstWord(req.ExtFields["bodyCrc32"], "0"), 10, 32)
	if err != nil {
		return topicTable{}, fmt.Errorf("%w: the field bodyCrc32 is %q", errRegistration, req.ExtFields["bodyCrc32"])
	}
	select {
	case r.decoding <- struct{}{}:
		defer func() { <-r.decoding }()
	case <-ctx.Done():
		return topicTable{}, ctx.Err()
	}
	return readRegistration(req.Body, req.ExtFields["compressed"] == "true", uint32(sum))
}

func firstWord(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// unregister answers request 104.
func (r *Registry) unregister(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
	b, err := registrant(req)
	if err != nil {
		return req.Reply(remoting.SystemError, err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.brokers[b.registryKey]; known != nil && known.name == b.name {
		r.forget(b.registryKey, "it took leave")
	}
	return req.Reply(remoting.Success, "")
}

// heartbeat answers request 904.
func (r *Registry) heartbeat(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
	r.touch(registryKey{cluster: req.ExtFields["clusterName"], addr: req.ExtFields["brokerAddr"]})
	return req.Reply(remoting.Success, "")
}

// dataVersion answers request 322: whether the topics are others than the ones
// that were registered.
func (r *Registry) dataVersion(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
	var theirs remoting.DataVersion
	if err := json.Unmarshal(trimGuard(req.Body), &theirs); err != nil {
		return req.Reply(remoting.SystemError, err.Error())
	}
	ours, known := r.touch(registryKey{cluster: req.ExtFields["clusterName"], addr: req.ExtFields["brokerAddr"]})
	answer := req.Reply(remoting.Success, "")
	answer.ExtFields = map[string]string{"changed": strconv.FormatBool(!known || !ours.Equal(theirs))}
	if known {
		return withJSON(req, answer, ours)
	}
	return answer
}

// trimGuard takes off the zeros that requests without a body may end with.
func trimGuard(body []byte) []byte {
	return []byte(strings.TrimRight(string(body), "\x00"))
}

// withJSON puts a value into the body of an answer.
func withJSON(req, answer remoting.Command, v any) remoting.Command {
	body, err := json.Marshal(v)
	if err != nil {
		return req.Reply(remoting.SystemError, err.Error())
	}
	answer.Body = body
	return answer
}

// jsonGroup is a BrokerData, and a BrokerMemberGroup.
type jsonGroup struct {
	Addrs        map[string]string `json:"brokerAddrs"` // by brokerId
	BrokerName   string            `json:"brokerName"`
	Cluster      string            `json:"cluster"`
	ActingMaster bool              `json:"enableActingMaster"`
}

// jsonQueues is a QueueData.
type jsonQueues struct {
	BrokerName string `json:"brokerName"`
	Perm       int    `json:"perm"`
	Read       int    `json:"readQueueNums"`
	SysFlag    int    `json:"topicSysFlag"`
	Write      int    `json:"writeQueueNums"`
}

// jsonRoute is a TopicRouteData.
type jsonRoute struct {
	Brokers       []jsonGroup         `json:"brokerDatas"`
	FilterServers map[string][]string `json:"filterServerTable"`
	Queues        []jsonQueues        `json:"queueDatas"`
}

// groups returns the registered brokers by group. mu is held.
func (r *Registry) groups() []jsonGroup {
	r.expire()
	var out []jsonGroup
	for _, b := range r.sorted() {
		if n := len(out); n == 0 || out[n-1].Cluster != b.cluster || out[n-1].BrokerName != b.name {
			out = append(out, jsonGroup{Addrs: map[string]string{}, BrokerName: b.name, Cluster: b.cluster})
		}
		out[len(out)-1].Addrs[strconv.FormatInt(b.id, 10)] = b.addr
	}
	return out
}

// masterID is how the master's brokerId stands in JSON.
const masterID = "0"

// complete adds the master that gossip knows to a group, for its slaves only:
// clients cannot talk to an agent.
func (r *Registry) complete(g *jsonGroup) {
	if master, err := r.opt.Find(g.Cluster, g.BrokerName); err == nil && master.Remoting != "" && g.Addrs[masterID] == "" {
		g.Addrs[masterID] = master.Remoting
	}
}

// memberGroup answers request 901.
func (r *Registry) memberGroup(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
	group := jsonGroup{Addrs: map[string]string{}, BrokerName: req.ExtFields["brokerName"], Cluster: req.ExtFields["clusterName"]}
	r.mu.Lock()
	for _, g := range r.groups() {
		if g.BrokerName == group.BrokerName && g.Cluster == group.Cluster {
			group = g
		}
	}
	r.mu.Unlock()
	r.complete(&group)
	return withJSON(req, req.Reply(remoting.Success, ""), map[string]jsonGroup{"brokerMemberGroup": group})
}

// syncMemberPrefix begins the topic by whose route slaves of 5.x ask for their
// group.
const syncMemberPrefix = "rmq_sys_SYNC_BROKER_MEMBER_"

// permWrite is the bit of a topic's permission that lets producers send.
const permWrite = 2

// route answers request 105. Where no master is registered nobody may write, and
// the slave with the lowest id stands in its place as well, as name servers do it
// for acting masters: clients ask only a master where queues begin and end.
func (r *Registry) route(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
	topic := req.ExtFields["topic"]
	route := jsonRoute{Brokers: []jsonGroup{}, Queues: []jsonQueues{}, FilterServers: map[string][]string{}}
	group, ofGroup := strings.CutPrefix(topic, syncMemberPrefix)
	r.mu.Lock()
	for _, g := range r.groups() {
		if ofGroup && g.BrokerName == group {
			route.Brokers = append(route.Brokers, g)
			continue
		}
		c, ok := r.topicOf(g, topic)
		if !ok {
			continue
		}
		if _, master := g.Addrs[masterID]; !master {
			c.perm &^= permWrite
			g.Addrs[masterID] = r.lowest(g)
		}
		route.Brokers = append(route.Brokers, g)
		route.Queues = append(route.Queues, jsonQueues{BrokerName: g.BrokerName, Perm: c.perm, Read: c.read, SysFlag: c.sysFlag, Write: c.write})
	}
	r.mu.Unlock()
	if len(route.Brokers) == 0 {
		return req.Reply(remoting.TopicNotExist, fmt.Sprintf("No topic route info in name server for the topic: %.*s (haagent knows the topics of the slaves that registered here; producers need the cluster's name servers)", maxRegisteredText, topic))
	}
	if ofGroup {
		for i := range route.Brokers {
			r.complete(&route.Brokers[i])
		}
	}
	return withJSON(req, req.Reply(remoting.Success, ""), route)
}

// topicOf returns a topic as the member of a group with the lowest id has it. mu
// is held.
func (r *Registry) topicOf(g jsonGroup, topic string) (registeredTopic, bool) {
	lowest, found := int64(-1), registeredTopic{}
	for _, addr := range g.Addrs {
		b := r.brokers[registryKey{cluster: g.Cluster, addr: addr}]
		if c, ok := b.topics[topic]; ok && (lowest < 0 || b.id < lowest) {
			lowest, found = b.id, c
		}
	}
	return found, lowest >= 0
}

// lowest returns the address of the member of a group with the lowest id. mu is
// held.
func (r *Registry) lowest(g jsonGroup) string {
	for _, b := range r.sorted() {
		if b.cluster == g.Cluster && b.name == g.BrokerName {
			return b.addr
		}
	}
	return ""
}

// clusterInfo answers request 106.
func (r *Registry) clusterInfo(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
	info := struct {
		Brokers  map[string]jsonGroup `json:"brokerAddrTable"`
		Clusters map[string][]string  `json:"clusterAddrTable"`
	}{map[string]jsonGroup{}, map[string][]string{}}
	r.mu.Lock()
	for _, g := range r.groups() {
		info.Brokers[g.BrokerName] = g
		info.Clusters[g.Cluster] = append(info.Clusters[g.Cluster], g.BrokerName)
	}
	r.mu.Unlock()
	return withJSON(req, req.Reply(remoting.Success, ""), info)
}

// topicList answers request 206.
func (r *Registry) topicList(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
	seen := map[string]struct{}{}
	list := []string{}
	r.mu.Lock()
	r.expire()
	for _, b := range r.sorted() {
		for name := range b.topics {
			if _, known := seen[name]; !known {
				seen[name] = struct{}{}
				list = append(list, name)
			}
		}
	}
	r.mu.Unlock()
	return withJSON(req, req.Reply(remoting.Success, ""), map[string][]string{"topicList": list})
}

// noKVConfig answers requests 101 and 219: nothing is configured here.
func noKVConfig(_ context.Context, _ net.Addr, req remoting.Command) remoting.Command {
	return req.Reply(remoting.QueryNotFound, fmt.Sprintf("No config item, Namespace: %.*s Key: %.*s",
		maxRegisteredText, req.ExtFields["namespace"], maxRegisteredText, req.ExtFields["key"]))
}
