package link

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"

	"github.com/haagent/haagent/agent/state"
)

const (
	// KeySize is the length of a shared key in bytes.
	KeySize = 32

	// MaxKeys is how many keys a file may hold. A rotation needs two.
	MaxKeys = 16

	maxKeyFile = 64 << 10
)

// Keys are the shared keys of a group of agents, in the order of their file:
// the first one is used to speak, all are accepted. They are never printed: no
// verb of fmt, no logger and no encoder shows them. The zero value has none.
type Keys struct {
	// reveal returns the keys. They are behind a function, because fmt shows what
	// it meets deeper inside of structs without asking for methods, and follows
	// pointers where a verb does not fit.
	reveal func() [][KeySize]byte
}

// NewKey returns a new random key as a line of a key file.
func NewKey() string {
	var key [KeySize]byte
	_, _ = rand.Read(key[:]) // never fails: it ends the process instead
	return base64.StdEncoding.EncodeToString(key[:])
}

// ReadKeys reads a key file: base64 of 32 bytes, one a line; empty lines and
// lines that begin with '#' are skipped. Every error is a *state.Problem in
// state Unauthorized that names the file, and the line where there is one, and
// never shows a key. A file that others than its owner may read or write is
// refused, because a key that is known to others protects nothing; but the group of
// a file of root may read it.
func ReadKeys(path string) (Keys, error) {
	text, err := ReadSecret(path, maxKeyFile)
	if err != nil {
		return Keys{}, keyProblem(path, err)
	}
	keys, err := ParseKeys(text)
	if err != nil {
		return Keys{}, keyProblem(path, err)
	}
	return keys, nil
}

func keyProblem(path string, err error) error {
	p := &state.Problem{
		State: state.Unauthorized, Code: "key_file", Reason: "the keys in " + path + " cannot be used", Err: err,
		Try: "write one with haagent keygen and give the same file to all agents of the group, as --key-file",
	}
	if errors.Is(err, errKeyMode) {
		p.Try = "chmod 600 " + path
	}
	return p
}

// errKeyMode is about the permissions of a key file.
var errKeyMode = errors.New("others than its owner may use it")

// ReadSecret reads a regular file of at most limit bytes that others than its
// owner, and for a file of root its group, may not use.
func ReadSecret(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path) // before it is opened: opening a pipe waits for its other end
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return nil, errors.New("it is no regular file")
	case mode.Perm()&0o077 != 0 && (mode.Perm()&0o037 != 0 || !ownedByRoot(info)):
		return nil, fmt.Errorf("%w: mode %#o, want %#o", errKeyMode, mode.Perm(), mode.Perm()&0o700)
	}
	return readSmall(path, limit)
}

// ownedByRoot reports whether a file is root's. Such a one may be read by a group,
// because that is how a service is given a secret: root:haagent 0640, or a
// credential of systemd, whose mode shows who its access list names.
func ownedByRoot(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == 0
}

// readSmall reads a file of at most limit bytes.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("it is longer than %d bytes", limit)
	}
	return text, err
}

// ParseKeys returns the keys in the text of a key file. Errors name the line and
// never show what stands in it.
func ParseKeys(text []byte) (Keys, error) {
	var list [][KeySize]byte
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var key [KeySize]byte
		raw, err := base64.StdEncoding.Strict().DecodeString(string(line))
		switch {
		case err != nil:
			return Keys{}, fmt.Errorf("line %d is not base64", number)
		case len(raw) != KeySize:
			return Keys{}, fmt.Errorf("line %d holds %d bytes, a key has %d", number, len(raw), KeySize)
		case len(list) == MaxKeys:
			return Keys{}, fmt.Errorf("line %d: more than %d keys", number, MaxKeys)
		}
		copy(key[:], raw)
		for i, other := range list {
			if key == other {
				return Keys{}, fmt.Errorf("line %d repeats key %d", number, i+1)
			}
		}
		list = append(list, key)
	}
	if len(list) == 0 {
		return Keys{}, errors.New("it holds no key")
	}
	return Keys{reveal: func() [][KeySize]byte { return list }}, nil
}

func (k Keys) all() [][KeySize]byte {
	if k.reveal == nil {
		return nil
	}
	return k.reveal()
}

// Len returns how many keys there are.
func (k Keys) Len() int { return len(k.all()) }

// Bytes returns copies of the keys, the one to speak with first.
func (k Keys) Bytes() [][]byte {
	var list [][]byte
	for _, key := range k.all() {
		list = append(list, bytes.Clone(key[:]))
	}
	return list
}

// String tells how many keys there are, and nothing else.
func (k Keys) String() string { return fmt.Sprintf("%d keys", k.Len()) }

// Format hides the keys from every verb.
func (k Keys) Format(f fmt.State, _ rune) { fmt.Fprint(f, k.String()) }

// LogValue hides the keys from logs.
func (k Keys) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText hides the keys from encoders.
func (k Keys) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
