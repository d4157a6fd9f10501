package remoting

import "strconv"

// RequestCode says what a request asks for.
type RequestCode int

// The requests that a replica, an observer or their tests meet. The names are
// those of the broker's RequestCode, in Go's spelling.
const (
	SendMessage                   RequestCode = 10
	PullMessage                   RequestCode = 11
	QueryConsumerOffset           RequestCode = 14
	UpdateConsumerOffset          RequestCode = 15
	UpdateAndCreateTopic          RequestCode = 17
	GetAllTopicConfig             RequestCode = 21
	UpdateBrokerConfig            RequestCode = 25
	GetBrokerConfig               RequestCode = 26
	GetBrokerRuntimeInfo          RequestCode = 28
	GetMaxOffset                  RequestCode = 30
	GetMinOffset                  RequestCode = 31
	ViewMessageByID               RequestCode = 33
	HeartBeat                     RequestCode = 34
	UnregisterClient              RequestCode = 35
	GetAllConsumerOffset          RequestCode = 43
	GetAllDelayOffset             RequestCode = 45
	GetTimerCheckPoint            RequestCode = 60
	GetTimerMetrics               RequestCode = 61
	GetKVConfig                   RequestCode = 101
	RegisterBroker                RequestCode = 103
	UnregisterBroker              RequestCode = 104
	GetRouteInfoByTopic           RequestCode = 105
	GetBrokerClusterInfo          RequestCode = 106
	UpdateAndCreateSubscription   RequestCode = 200
	GetAllSubscriptionGroupConfig RequestCode = 201
	GetAllTopicListFromNameServer RequestCode = 206
	GetKVListByNamespace          RequestCode = 219
	GetSystemTopicListFromNameSrv RequestCode = 304
	GetSystemTopicListFromBroker  RequestCode = 305
	SendMessageV2                 RequestCode = 310
	QueryDataVersion              RequestCode = 322
	QueryAssignment               RequestCode = 400
	GetAllMessageRequestMode      RequestCode = 402
	GetBrokerMemberGroup          RequestCode = 901
	BrokerHeartbeat               RequestCode = 904
	NotifyMinBrokerIDChange       RequestCode = 905
	ExchangeBrokerHAInfo          RequestCode = 906
	GetBrokerHAStatus             RequestCode = 907
	ResetMasterFlushOffset        RequestCode = 908
)

// String returns the broker's own name of the request with its number, as an
// operator would look it up; only the number where the request is not listed
// above.
func (c RequestCode) String() string {
	n := strconv.Itoa(int(c))
	if name, ok := requestNames[c]; ok {
		return name + "(" + n + ")"
	}
	return "request " + n
}

var requestNames = map[RequestCode]string{
	SendMessage:                   "SEND_MESSAGE",
	PullMessage:                   "PULL_MESSAGE",
	QueryConsumerOffset:           "QUERY_CONSUMER_OFFSET",
	UpdateConsumerOffset:          "UPDATE_CONSUMER_OFFSET",
	UpdateAndCreateTopic:          "UPDATE_AND_CREATE_TOPIC",
	GetAllTopicConfig:             "GET_ALL_TOPIC_CONFIG",
	UpdateBrokerConfig:            "UPDATE_BROKER_CONFIG",
	GetBrokerConfig:               "GET_BROKER_CONFIG",
	GetBrokerRuntimeInfo:          "GET_BROKER_RUNTIME_INFO",
	GetMaxOffset:                  "GET_MAX_OFFSET",
	GetMinOffset:                  "GET_MIN_OFFSET",
	ViewMessageByID:               "VIEW_MESSAGE_BY_ID",
	HeartBeat:                     "HEART_BEAT",
	UnregisterClient:              "UNREGISTER_CLIENT",
	GetAllConsumerOffset:          "GET_ALL_CONSUMER_OFFSET",
	GetAllDelayOffset:             "GET_ALL_DELAY_OFFSET",
	GetTimerCheckPoint:            "GET_TIMER_CHECK_POINT",
	GetTimerMetrics:               "GET_TIMER_METRICS",
	GetKVConfig:                   "GET_KV_CONFIG",
	RegisterBroker:                "REGISTER_BROKER",
	UnregisterBroker:              "UNREGISTER_BROKER",
	GetRouteInfoByTopic:           "GET_ROUTEINFO_BY_TOPIC",
	GetBrokerClusterInfo:          "GET_BROKER_CLUSTER_INFO",
	UpdateAndCreateSubscription:   "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
	GetAllSubscriptionGroupConfig: "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
	GetAllTopicListFromNameServer: "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
	GetKVListByNamespace:          "GET_KVLIST_BY_NAMESPACE",
	GetSystemTopicListFromNameSrv: "GET_SYSTEM_TOPIC_LIST_FROM_NS",
	GetSystemTopicListFromBroker:  "GET_SYSTEM_TOPIC_LIST_FROM_BROKER",
	SendMessageV2:                 "SEND_MESSAGE_V2",
	QueryDataVersion:              "QUERY_DATA_VERSION",
	QueryAssignment:               "QUERY_ASSIGNMENT",
	GetAllMessageRequestMode:      "GET_ALL_MESSAGE_REQUEST_MODE",
	GetBrokerMemberGroup:          "GET_BROKER_MEMBER_GROUP",
	BrokerHeartbeat:               "BROKER_HEARTBEAT",
	NotifyMinBrokerIDChange:       "NOTIFY_MIN_BROKER_ID_CHANGE",
	ExchangeBrokerHAInfo:          "EXCHANGE_BROKER_HA_INFO",
	GetBrokerHAStatus:             "GET_BROKER_HA_STATUS",
	ResetMasterFlushOffset:        "RESET_MASTER_FLUSH_OFFSET",
}

// ResponseCode says how a request went.
type ResponseCode int

// The answers that a replica, an observer or their tests meet. The names are
// those of the broker's ResponseCode, in Go's spelling.
const (
	Success                   ResponseCode = 0
	SystemError               ResponseCode = 1
	SystemBusy                ResponseCode = 2
	RequestCodeNotSupported   ResponseCode = 3
	FlushDiskTimeout          ResponseCode = 10
	SlaveNotAvailable         ResponseCode = 11
	FlushSlaveTimeout         ResponseCode = 12
	MessageIllegal            ResponseCode = 13
	ServiceNotAvailable       ResponseCode = 14
	VersionNotSupported       ResponseCode = 15
	NoPermission              ResponseCode = 16
	TopicNotExist             ResponseCode = 17
	PullNotFound              ResponseCode = 19
	QueryNotFound             ResponseCode = 22
	SubscriptionGroupNotExist ResponseCode = 26
	InvalidParameter          ResponseCode = 29
	NoMessage                 ResponseCode = 208
	GoAway                    ResponseCode = 1500
)

// String returns the broker's own name of the answer with its number; only the
// number where the answer is not listed above.
func (c ResponseCode) String() string {
	n := strconv.Itoa(int(c))
	if name, ok := responseNames[c]; ok {
		return name + "(" + n + ")"
	}
	return "code " + n
}

var responseNames = map[ResponseCode]string{
	Success:                   "SUCCESS",
	SystemError:               "SYSTEM_ERROR",
	SystemBusy:                "SYSTEM_BUSY",
	RequestCodeNotSupported:   "REQUEST_CODE_NOT_SUPPORTED",
	FlushDiskTimeout:          "FLUSH_DISK_TIMEOUT",
	SlaveNotAvailable:         "SLAVE_NOT_AVAILABLE",
	FlushSlaveTimeout:         "FLUSH_SLAVE_TIMEOUT",
	MessageIllegal:            "MESSAGE_ILLEGAL",
	ServiceNotAvailable:       "SERVICE_NOT_AVAILABLE",
	VersionNotSupported:       "VERSION_NOT_SUPPORTED",
	NoPermission:              "NO_PERMISSION",
	TopicNotExist:             "TOPIC_NOT_EXIST",
	PullNotFound:              "PULL_NOT_FOUND",
	QueryNotFound:             "QUERY_NOT_FOUND",
	SubscriptionGroupNotExist: "SUBSCRIPTION_GROUP_NOT_EXIST",
	InvalidParameter:          "INVALID_PARAMETER",
	NoMessage:                 "NO_MESSAGE",
	GoAway:                    "GO_AWAY",
}
