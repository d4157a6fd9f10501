package remoting

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"log/slog"
	"maps"
	"slices"
)

// Credentials are what a broker with access control asks for.
type Credentials struct {
	AccessKey string
	SecretKey string
	// SecurityToken goes with temporary credentials; mostly empty.
	SecurityToken string
}

// The fields that carry a signature, as brokers spell them.
const (
	fieldAccessKey     = "AccessKey"
	fieldSecurityToken = "SecurityToken"
	fieldSignature     = "Signature"
)

// Valid reports whether there is something to sign with.
func (c Credentials) Valid() bool { return c.AccessKey != "" && c.SecretKey != "" }

// String names the access key and hides the secret.
func (c Credentials) String() string { return "access key " + c.AccessKey }

// GoString hides the secret from %#v.
func (c Credentials) GoString() string { return "remoting.Credentials{" + c.AccessKey + "}" }

// LogValue hides the secret from logs.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.AccessKey) }

// Sign returns req with the fields that prove c: AccessKey, SecurityToken if
// there is one, and Signature. That is the Base64 of the HMAC-SHA1, keyed by
// SecretKey, of the values of all other fields in the order of their names,
// followed by the body. A signature that is there already is replaced. Code and
// opaque are not covered, so Opaque may still be set.
func (c Credentials) Sign(req Command) Command {
	fields := make(map[string]string, len(req.ExtFields)+3)
	maps.Copy(fields, req.ExtFields)
	delete(fields, fieldSignature)
	fields[fieldAccessKey] = c.AccessKey
	if c.SecurityToken != "" {
		fields[fieldSecurityToken] = c.SecurityToken
	}
	fields[fieldSignature] = c.signature(fields, req.Body)
	req.ExtFields = fields
	return req
}

// Verify reports whether req carries c's access key and a right signature.
func (c Credentials) Verify(req Command) bool {
	got := req.ExtFields[fieldSignature]
	want := c.signature(req.ExtFields, req.Body)
	return req.ExtFields[fieldAccessKey] == c.AccessKey && hmac.Equal([]byte(got), []byte(want))
}

func (c Credentials) signature(fields map[string]string, body []byte) string {
	mac := hmac.New(sha1.New, []byte(c.SecretKey))
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if k != fieldSignature {
			mac.Write([]byte(fields[k])) // a hash never fails
		}
	}
	mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
