package stock_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire/remoting"
)

// office is a Registry with a clock of its own, and gossip that knows what it is
// told.
type office struct {
	t        *testing.T
	registry *stock.Registry
	answers  map[remoting.RequestCode]stock.RemotingHandler

	mu     sync.Mutex
	now    time.Time
	master stock.GroupMaster
	none   error
}

func newOffice(t *testing.T) *office {
	o := &office{t: t, now: time.Unix(1_700_000_000, 0), master: stock.GroupMaster{Node: "m", HA: "10.0.0.1:10922", Remoting: "10.0.0.1:10921"}}
	o.registry = stock.NewRegistry(stock.RegistryOptions{
		Find: func(string, string) (stock.GroupMaster, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.master, o.none
		},
		Now: func() time.Time {
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.now
		},
	})
	o.answers = o.registry.Handlers()
	return o
}

func (o *office) pass(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = o.now.Add(d)
}

// desk is where requests come from.
var desk = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 40000}

func (o *office) ask(code remoting.RequestCode, body string, fields ...string) remoting.Command {
	o.t.Helper()
	return o.askFrom(desk, code, body, fields...)
}

func (o *office) askFrom(from net.Addr, code remoting.RequestCode, body string, fields ...string) remoting.Command {
	o.t.Helper()
	ext := make(map[string]string)
	for i := 0; i+1 < len(fields); i += 2 {
		ext[fields[i]] = fields[i+1]
	}
	answer := o.answers[code](o.t.Context(), from, remoting.NewRequest(code, ext, []byte(body)))
	if !answer.Response() {
		o.t.Errorf("%v was answered by a request", code)
	}
	return answer
}

// wrapped is the body of a registration with topics of 4 queues.
func wrapped(topics ...string) string {
	entries := make([]string, len(topics))
	for i, name := range topics {
		entries[i] = fmt.Sprintf(`%q:{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":%q,"topicSysFlag":0,"writeQueueNums":4}`, name, name)
	}
	return `{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":7,"timestamp":9},"topicConfigTable":{` + strings.Join(entries, ",") + `}}}`
}

func (o *office) register(id int, addr string, topics ...string) remoting.Command {
	o.t.Helper()
	return o.ask(remoting.RegisterBroker, wrapped(topics...), "clusterName", "c", "brokerName", "b", "brokerAddr", addr, "brokerId", strconv.Itoa(id), "haServerAddr", "10.0.0.2:10912")
}

func (o *office) names() []string {
	var out []string
	for _, b := range o.registry.Brokers() {
		out = append(out, fmt.Sprintf("%s/%s/%d %s %d", b.Cluster, b.BrokerName, b.BrokerID, b.Addr, b.Topics))
	}
	return out
}

func decode(t *testing.T, answer remoting.Command) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(answer.Body, &v); err != nil {
		t.Fatalf("%v in %s (%v, %s)", err, answer.Body, answer.Answer(), answer.Remark)
	}
	return v
}

// A slave is told the master that gossip knows; a master is told nothing.
func TestRegistry_TellsSlavesTheirMaster(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	want := map[string]string{"haServerAddr": "10.0.0.1:10922", "masterAddr": "10.0.0.1:10921"}
	if got := o.register(1, "10.0.0.2:10911", "orders"); got.Answer() != remoting.Success || !maps.Equal(got.ExtFields, want) {
		t.Errorf("a slave was answered %v %v", got.Answer(), got.ExtFields)
	}
	if got := o.register(0, "10.0.0.3:10911"); got.Answer() != remoting.Success || len(got.ExtFields) != 0 {
		t.Errorf("a master was answered %v %v", got.Answer(), got.ExtFields)
	}
	o.none = errors.New("no master of c/b is known")
	if got := o.register(1, "10.0.0.2:10911", "orders"); got.Answer() != remoting.Success || len(got.ExtFields) != 0 {
		t.Errorf("without a master a slave was answered %v %v", got.Answer(), got.ExtFields)
	}
	o.none, o.master.HA = nil, ""
	if got := o.register(1, "10.0.0.2:10911", "orders"); !maps.Equal(got.ExtFields, map[string]string{"masterAddr": "10.0.0.1:10921"}) {
		t.Errorf("with a master that serves no stream a slave was answered %v", got.ExtFields)
	}
	if got := o.names(); !slices.Equal(got, []string{"c/b/0 10.0.0.3:10911 0", "c/b/1 10.0.0.2:10911 1"}) {
		t.Errorf("registered are %q", got)
	}
}

// Routes and the cluster list who registered. Where there is no master nobody may
// write, and a slave answers in its place; the agent of a master is no broker for
// clients.
func TestRegistry_TellsClientsTheSlaves(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.register(2, "10.0.0.4:10911", "orders", "late")
	o.register(1, "10.0.0.2:10911", "orders")
	route := func(perm int) any {
		return map[string]any{
			"brokerDatas":       []any{map[string]any{"brokerAddrs": map[string]any{"0": "10.0.0.2:10911", "1": "10.0.0.2:10911", "2": "10.0.0.4:10911"}, "brokerName": "b", "cluster": "c", "enableActingMaster": false}},
			"queueDatas":        []any{map[string]any{"brokerName": "b", "perm": float64(perm), "readQueueNums": 4.0, "topicSysFlag": 0.0, "writeQueueNums": 4.0}},
			"filterServerTable": map[string]any{},
		}
	}
	for _, topic := range []string{"orders", "late"} {
		if diff := cmp.Diff(route(4), decode(t, o.ask(remoting.GetRouteInfoByTopic, "", "topic", topic))); diff != "" {
			t.Errorf("route of %s: %s", topic, diff)
		}
	}
	want := map[string]any{
		"brokerAddrTable":  map[string]any{"b": map[string]any{"brokerAddrs": map[string]any{"1": "10.0.0.2:10911", "2": "10.0.0.4:10911"}, "brokerName": "b", "cluster": "c", "enableActingMaster": false}},
		"clusterAddrTable": map[string]any{"c": []any{"b"}},
	}
	if diff := cmp.Diff(want, decode(t, o.ask(remoting.GetBrokerClusterInfo, ""))); diff != "" {
		t.Errorf("cluster: %s", diff)
	}
	got := o.ask(remoting.GetRouteInfoByTopic, "", "topic", "other")
	if got.Answer() != remoting.TopicNotExist || !strings.HasPrefix(got.Remark, "No topic route info in name server for the topic: other") {
		t.Errorf("an unknown topic was answered %v %q", got.Answer(), got.Remark)
	}
	o.register(0, "10.0.0.3:10911", "orders")
	body, ok := decode(t, o.ask(remoting.GetRouteInfoByTopic, "", "topic", "orders")).(map[string]any)
	if !ok || !strings.Contains(fmt.Sprint(body["queueDatas"]), "perm:6") || !strings.Contains(fmt.Sprint(body["brokerDatas"]), "0:10.0.0.3:10911") {
		t.Errorf("with a master the route is %v", body)
	}
	topics := decode(t, o.ask(remoting.GetAllTopicListFromNameServer, ""))
	if got := fmt.Sprint(topics); !strings.Contains(got, "orders") || !strings.Contains(got, "late") {
		t.Errorf("topics are %v", topics)
	}
}

// Slaves that may act as master see the one that gossip knows, so that they do
// not act beside it.
func TestRegistry_TellsSlavesTheirGroup(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.register(1, "10.0.0.2:10911", "orders")
	with := map[string]any{"0": "10.0.0.1:10921", "1": "10.0.0.2:10911"}
	group := func() any {
		body, ok := decode(t, o.ask(remoting.GetBrokerMemberGroup, "", "clusterName", "c", "brokerName", "b")).(map[string]any)
		if !ok {
			t.Fatal("no object")
		}
		g, ok := body["brokerMemberGroup"].(map[string]any)
		if !ok {
			t.Fatal("no group")
		}
		return g["brokerAddrs"]
	}
	if diff := cmp.Diff(any(with), group()); diff != "" {
		t.Error(diff)
	}
	old := decode(t, o.ask(remoting.GetRouteInfoByTopic, "", "topic", "rmq_sys_SYNC_BROKER_MEMBER_b"))
	if !strings.Contains(fmt.Sprint(old), "map[0:10.0.0.1:10921 1:10.0.0.2:10911]") {
		t.Errorf("by route the group is %v", old)
	}
	o.none = errors.New("gone")
	if diff := cmp.Diff(any(map[string]any{"1": "10.0.0.2:10911"}), group()); diff != "" {
		t.Error(diff)
	}
}

// Signs of life keep a broker registered for two minutes each, or for as long as
// it asked for.
func TestRegistry_ForgetsTheSilent(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.register(1, "10.0.0.2:10911", "orders")
	o.ask(remoting.RegisterBroker, wrapped("orders"), "clusterName", "c", "brokerName", "b2", "brokerAddr", "10.0.0.5:10911", "brokerId", "1", "heartbeatTimeoutMillis", "10000")
	key := []string{"clusterName", "c", "brokerAddr", "10.0.0.2:10911", "brokerName", "b"}
	o.pass(11 * time.Second)
	if got := o.names(); len(got) != 1 {
		t.Errorf("after 11 s there are %q", got)
	}
	o.pass(100 * time.Second)
	o.ask(remoting.BrokerHeartbeat, "", key...)
	o.pass(110 * time.Second)
	version := `{"counter":7,"stateVersion":0,"timestamp":9}`
	got := o.ask(remoting.QueryDataVersion, version, key...)
	if got.ExtFields["changed"] != "false" || string(got.Body) != version {
		t.Errorf("the version is answered with %v %s", got.ExtFields, got.Body)
	}
	if got := o.ask(remoting.QueryDataVersion, `{"counter":8,"timestamp":9}`, key...); got.ExtFields["changed"] != "true" {
		t.Errorf("another version is answered with %v", got.ExtFields)
	}
	o.pass(121 * time.Second)
	if got := o.names(); len(got) != 0 {
		t.Errorf("after two minutes of silence there are %q", got)
	}
	if got := o.ask(remoting.QueryDataVersion, version, key...); got.ExtFields["changed"] != "true" || got.Body != nil {
		t.Errorf("an unknown broker is answered with %v %s", got.ExtFields, got.Body)
	}
	if got := o.ask(remoting.GetRouteInfoByTopic, "", "topic", "orders"); got.Answer() != remoting.TopicNotExist {
		t.Errorf("its topic is answered with %v", got.Answer())
	}
}

// A broker that takes leave, or whose connection ends, is gone at once; one that
// comes under another address takes its own place.
func TestRegistry_ForgetsTheGone(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	other := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 50000}
	o.register(1, "10.0.0.2:10911", "orders")
	o.askFrom(other, remoting.RegisterBroker, wrapped("more"), "clusterName", "c", "brokerName", "b", "brokerAddr", "10.0.0.9:10911", "brokerId", "2")
	o.registry.Closed(other, nil)
	o.register(1, "10.0.0.7:10911", "orders")
	if got := o.names(); !slices.Equal(got, []string{"c/b/1 10.0.0.7:10911 1"}) {
		t.Errorf("registered are %q", got)
	}
	o.ask(remoting.RegisterBroker, wrapped("orders"), "clusterName", "c", "brokerName", "b", "brokerAddr", "10.0.0.7:10911", "brokerId", "3")
	if got := o.names(); !slices.Equal(got, []string{"c/b/3 10.0.0.7:10911 1"}) {
		t.Errorf("registered are %q", got)
	}
	if got := o.ask(remoting.UnregisterBroker, "", "clusterName", "c", "brokerName", "b", "brokerAddr", "10.0.0.7:10911", "brokerId", "3"); got.Answer() != remoting.Success {
		t.Errorf("leave is answered with %v", got.Answer())
	}
	if got := o.names(); len(got) != 0 {
		t.Errorf("registered are %q", got)
	}
}

// Brokers of 5.x tell single topics as they change: the others stay.
func TestRegistry_AddsSingleTopics(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.register(1, "10.0.0.2:10911", "orders", "bills")
	o.register(1, "10.0.0.2:10911", "news")
	if got := o.names(); !slices.Equal(got, []string{"c/b/1 10.0.0.2:10911 3"}) {
		t.Errorf("registered are %q", got)
	}
}

// What is registered has bounds, and what makes no sense is refused with a word.
func TestRegistry_Bounds(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for i := range stock.MaxRegistered {
		o.ask(remoting.RegisterBroker, wrapped("orders"), "clusterName", "c", "brokerName", "b"+strconv.Itoa(i), "brokerAddr", "10.0.0.2:"+strconv.Itoa(10000+i), "brokerId", "1")
	}
	refused := func(why string, body string, fields ...string) {
		t.Helper()
		base := map[string]string{"clusterName": "c", "brokerName": "b0", "brokerAddr": "10.0.0.2:10000", "brokerId": "1"}
		for i := 0; i+1 < len(fields); i += 2 {
			base[fields[i]] = fields[i+1]
		}
		var all []string
		for k, v := range base {
			all = append(all, k, v)
		}
		got := o.ask(remoting.RegisterBroker, body, all...)
		if got.Answer() != remoting.SystemError || !strings.Contains(got.Remark, why) {
			t.Errorf("answered %v %q, want a refusal for %s", got.Answer(), got.Remark, why)
		}
		if n := len(o.registry.Brokers()); n != stock.MaxRegistered {
			t.Errorf("%d brokers are registered", n)
		}
	}
	refused("all that fit", wrapped("orders"), "brokerName", "one-more", "brokerAddr", "10.0.0.3:10911")
	refused("brokerName", wrapped("orders"), "brokerName", strings.Repeat("x", 300))
	refused("clusterName", wrapped("orders"), "clusterName", "")
	refused("brokerAddr", wrapped("orders"), "brokerAddr", "nowhere")
	refused("brokerId", wrapped("orders"), "brokerId", "one")
	refused("brokerId", wrapped("orders"), "brokerId", "-1")
	refused("crc32", wrapped("orders"), "bodyCrc32", "12345")
	refused("bodyCrc32", wrapped("orders"), "bodyCrc32", "much")
	refused("JSON", `{"topicConfigSerializeWrapper":`)
	refused("zlib", "plain", "compressed", "true")
	refused("queues", strings.Replace(wrapped("orders"), `"readQueueNums":4`, `"readQueueNums":4000000`, 1))
	many := make([]string, stock.MaxBrokerTopics)
	for i := range many {
		many[i] = "t" + strconv.Itoa(i)
	}
	refused("more than fit", wrapped(many...))
	if got := o.names()[0]; !strings.HasSuffix(got, " 1") {
		t.Errorf("a refused registration changed %s", got)
	}
}

// Nothing is configured here, in a name server's words.
func TestRegistry_HasNoKVConfig(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for _, code := range []remoting.RequestCode{remoting.GetKVConfig, remoting.GetKVListByNamespace} {
		got := o.ask(code, "", "namespace", "ORDER_TOPIC_CONFIG", "key", "orders")
		if got.Answer() != remoting.QueryNotFound || !strings.HasPrefix(got.Remark, "No config item, Namespace: ORDER_TOPIC_CONFIG") {
			t.Errorf("%v is answered %v %q", code, got.Answer(), got.Remark)
		}
	}
}
