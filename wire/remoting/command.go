package remoting

import (
	"fmt"
	"maps"
)

// Serialization is how a command's header is written.
type Serialization uint8

const (
	// JSON is the default of every broker and client.
	JSON Serialization = 0
	// Binary is what brokers call ROCKETMQ (rocketmq.serialize.type).
	Binary Serialization = 1
)

// String returns the broker's name of the serialization.
func (s Serialization) String() string {
	switch s {
	case JSON:
		return "JSON"
	case Binary:
		return "ROCKETMQ"
	}
	return fmt.Sprintf("serialization %d", uint8(s))
}

// The bits of Command.Flag.
const (
	// FlagResponse marks an answer.
	FlagResponse = 1 << 0
	// FlagOneWay marks a request that wants no answer.
	FlagOneWay = 1 << 1
)

// Command is one request or one answer.
type Command struct {
	// Code is a RequestCode in a request and a ResponseCode in an answer.
	Code int
	// Language is the sender's, as brokers spell it: "JAVA", "GO", "CPP", ...
	Language string
	// Version is the ordinal of the sender's release in the broker's MQVersion;
	// 0 stands for the oldest.
	Version int
	// Opaque ties an answer to its request on one connection.
	Opaque int32
	// Flag holds FlagResponse and FlagOneWay.
	Flag int
	// Remark is a text for people, mostly what went wrong.
	Remark string
	// ExtFields are the request's arguments or the answer's results; nil or
	// empty if there are none, which JSON tells apart.
	ExtFields map[string]string
	// Body is what follows the header; nil if there is nothing.
	Body []byte
	// Serialization is how the header is, or was, written.
	Serialization Serialization
}

// language is what the commands made here say about their sender.
const language = "GO"

// NewRequest returns a request with the given arguments and body, both of which
// may be nil. The arguments are copied, the body is not. Opaque is up to the
// connection.
func NewRequest(code RequestCode, ext map[string]string, body []byte) Command {
	return Command{Code: int(code), Language: language, ExtFields: maps.Clone(ext), Body: body}
}

// Reply returns an answer to the request c in the serialization of the request.
func (c Command) Reply(code ResponseCode, remark string) Command {
	return Command{
		Code: int(code), Language: language, Version: c.Version, Opaque: c.Opaque,
		Flag: FlagResponse, Remark: remark, Serialization: c.Serialization,
	}
}

// Response reports whether c is an answer.
func (c Command) Response() bool { return c.Flag&FlagResponse != 0 }

// OneWay reports whether c is a request that wants no answer.
func (c Command) OneWay() bool { return c.Flag&FlagOneWay != 0 && !c.Response() }

// Request returns the code of a request.
func (c Command) Request() RequestCode { return RequestCode(c.Code) }

// Answer returns the code of an answer.
func (c Command) Answer() ResponseCode { return ResponseCode(c.Code) }

// languages in the order of their numbers in the binary header (LanguageCode).
var languages = [...]string{
	"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY",
	"OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
}

// languageName returns the name of a language number. An unknown number, which
// a newer peer may send, is OTHER.
func languageName(n uint8) string {
	if int(n) < len(languages) {
		return languages[n]
	}
	return "OTHER"
}

// languageNumber is the inverse of languageName.
func languageNumber(name string) uint8 {
	for i, l := range languages {
		if l == name {
			return uint8(i)
		}
	}
	return 7 // OTHER
}
