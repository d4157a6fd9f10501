package link_test

import (
	"bytes"
	"testing"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/link"
)

// What is announced is never less than what comes, nor more than a Transfer holds.
func TestPacked_Limits(t *testing.T) {
	for name, p := range map[string]link.Packed{
		"no data":        {Size: 64},
		"no smaller":     {Size: 4, Data: []byte("abcd")},
		"larger":         {Size: 3, Data: []byte("abcd")},
		"nothing in it":  {Size: 0, Data: []byte("a")},
		"too much in it": {Size: link.MaxTransfer + 1, Data: []byte("a")},
		"at -1":          {At: wire.NoOffset, Size: 2, Data: []byte("a")},
		"beyond the end": {At: 1<<63 - 10, Size: 64, Data: []byte("a")},
		"confirmed -2":   {Confirmed: -2, Size: 2, Data: []byte("a")},
	} {
		wantKind(t, p.Check(), link.ErrFrame)
		payload := link.AppendUnchecked(nil, &p)[link.HeaderSize:]
		if _, err := link.ParsePacked(payload); err == nil {
			t.Errorf("%s: is taken", name)
		}
		if _, err := link.Decode(link.TypePacked, payload); err == nil {
			t.Errorf("%s: is decoded", name)
		}
	}
}

// What was unpacked has the length and the checksum that were announced.
func TestPacked_Unpacked(t *testing.T) {
	body := bytes.Repeat([]byte("a"), 64)
	p := link.Packed{Size: 64, Sum: link.Sum(body), Data: []byte("?")}
	if err := p.Unpacked(body); err != nil {
		t.Error(err)
	}
	wantKind(t, p.Unpacked(body[1:]), link.ErrFrame)
	wantKind(t, p.Unpacked(append(body, 'a')), link.ErrFrame)
	body[63] = 'b'
	wantKind(t, p.Unpacked(body), link.ErrChecksum)
}

func TestParsePacked_AllocatesNothing(t *testing.T) {
	payload := golden(t, "packed")[link.HeaderSize:]
	if n := testing.AllocsPerRun(100, func() {
		if _, err := link.ParsePacked(payload); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
