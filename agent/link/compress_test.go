package link_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// unpackFrame reads a frame as a replica does.
func unpackFrame(u *link.Unpacker, frame []byte) (wirelink.Packed, []byte, error) {
	typ, payload, err := wirelink.NewReader(bytes.NewReader(frame)).Next()
	if err != nil || typ != wirelink.TypePacked {
		return wirelink.Packed{}, nil, fmt.Errorf("%v: %w", typ, err)
	}
	p, err := wirelink.ParsePacked(payload)
	if err != nil {
		return p, nil, err
	}
	body, err := u.Unpack(&p)
	return p, body, err
}

// Whatever is packed is unpacked to the same, and never takes more bytes.
func TestPack_UnpackingUndoesIt(t *testing.T) {
	t.Parallel()
	var u link.Unpacker
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "unit")
		body := bytes.Repeat(unit, rapid.IntRange(1, max(1, int(wirelink.MaxTransfer)/len(unit)/rapid.IntRange(1, 5000).Draw(t, "part"))).Draw(t, "times"))
		at := wire.PhyOffset(rapid.Int64Range(0, 1<<60).Draw(t, "at"))
		frame, err := link.Pack(at, at+1, body)
		if err != nil {
			t.Fatal(err)
		}
		if frame == nil {
			return // nothing gained
		}
		if len(frame) >= wirelink.PackedHeadSize+len(body) {
			t.Fatalf("%d bytes are packed into %d", len(body), len(frame))
		}
		p, got, err := unpackFrame(&u, frame)
		if err != nil || !bytes.Equal(got, body) || p.At != at || p.Confirmed != at+1 || p.Sum != wirelink.Sum(body) {
			t.Fatalf("%v: %d bytes became %d at %d", err, len(body), len(got), p.At)
		}
	})
}

// Random bytes stay as they are.
func TestPack_WhatGainsNothingIsLeftAlone(t *testing.T) {
	t.Parallel()
	random := make([]byte, wire.MiB)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	for _, n := range []int{1, 2, 100, len(random)} {
		if frame, err := link.Pack(0, 0, random[:n]); frame != nil || err != nil {
			t.Errorf("%d random bytes became a frame of %d, %v", n, len(frame), err)
		}
	}
}

// packedOf is a frame's content that another encoder made, with what it says of it.
func packedOf(t testing.TB, body []byte, size wire.ByteSize, options ...zstd.EOption) *wirelink.Packed {
	t.Helper()
	e, err := zstd.NewWriter(nil, options...)
	if err != nil {
		t.Fatal(err)
	}
	return &wirelink.Packed{Size: size, Sum: wirelink.Sum(body), Data: e.EncodeAll(body, nil)}
}

// Frames that have more in them than they say, or that want more memory, are
// refused, and nothing is set aside for it.
func TestUnpack_RefusesBombs(t *testing.T) {
	t.Parallel()
	bomb := make([]byte, 256<<20)
	small := packedOf(t, bomb[:100_000], 100_000)
	for name, p := range map[string]*wirelink.Packed{
		"256 MiB in 4 KiB":             packedOf(t, bomb, 4096),
		"256 MiB in the largest frame": packedOf(t, bomb, wirelink.MaxTransfer),
		"256 MiB of unknown length":    packedOf(t, bomb, wirelink.MaxTransfer, zstd.WithSingleSegment(false), zstd.WithWindowSize(512<<20)),
		"a byte more":                  packedOf(t, bomb[:100_001], 100_000),
		"a byte less":                  packedOf(t, bomb[:99_999], 100_000),
		"two frames":                   {Size: 100_000, Sum: small.Sum, Data: append(bytes.Clone(small.Data), small.Data...)},
		"cut":                          {Size: 100_000, Sum: small.Sum, Data: small.Data[:len(small.Data)-1]},
		"no zstd":                      {Size: 100_000, Sum: small.Sum, Data: []byte("bytes of the log")},
	} {
		t.Run(name, func(t *testing.T) {
			var u link.Unpacker
			if _, err := u.Unpack(small); err != nil {
				t.Fatal(err) // whatever a first use needs
			}
			_, err := u.Unpack(p)
			if !errors.Is(err, wirelink.ErrFrame) || u.Held() > int(wirelink.MaxTransfer) {
				t.Errorf("%v, %d bytes are held", err, u.Held())
			}
			if got, err := u.Unpack(small); err != nil || len(got) != 100_000 {
				t.Errorf("the next good one: %v", err)
			}
		})
	}
	wrong := *small
	wrong.Sum++
	var u link.Unpacker
	if _, err := u.Unpack(&wrong); !errors.Is(err, wirelink.ErrChecksum) {
		t.Errorf("a wrong checksum: %v", err)
	}
}

// FuzzUnpack: whatever comes, what is taken is as long as was said and has the
// checksum that was said, everything else is a FrameError, and memory is bounded.
func FuzzUnpack(f *testing.F) {
	body := bytes.Repeat([]byte("orders\x00\x00\x00\x17"), 500)
	p := packedOf(f, body, wire.ByteSize(len(body)))
	f.Add(uint32(p.Size), p.Sum, p.Data)
	f.Fuzz(func(t *testing.T, size, sum uint32, data []byte) {
		p := wirelink.Packed{Size: wire.ByteSize(size), Sum: sum, Data: data}
		if p.Check() != nil {
			return // no frame
		}
		var u link.Unpacker
		body, err := u.Unpack(&p)
		if u.Held() > int(wirelink.MaxTransfer) {
			t.Fatalf("%d bytes are held", u.Held())
		}
		if err != nil {
			if !errors.Is(err, wirelink.ErrFrame) {
				t.Fatal(err)
			}
			return
		}
		if len(body) != int(size) || wirelink.Sum(body) != sum {
			t.Fatalf("%d bytes with %08x, said are %d with %08x", len(body), wirelink.Sum(body), size, sum)
		}
	})
}

func TestFuzzUnpack_CorpusIsThere(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(filepath.Join("testdata", "fuzz", "FuzzUnpack"))
	if err != nil || len(files) < 6 {
		t.Errorf("%d seeds, %v", len(files), err)
	}
}

// A slow network makes packing pay, a fast one does not; trials become rare where
// they are lost, and the choice changes when the network does.
func TestChoice_TakesTheCheaperWay(t *testing.T) {
	t.Parallel()
	c := link.NewChoice()
	move := func(total wire.ByteSize, plain, packed time.Duration) (share float64) {
		var in wire.ByteSize
		const n = 256 * wire.KiB
		for moved := wire.ByteSize(0); moved < total; moved += n {
			packing, _ := c.Packing()
			if packing {
				in += n
				c.Spent(n, packed)
			} else {
				c.Spent(n, plain)
			}
		}
		return float64(in) / float64(total)
	}
	if share := move(4*wire.GiB, 100*time.Microsecond, 500*time.Microsecond); share > 0.05 {
		t.Errorf("%.2f of it is packed where that takes five times as long", share)
	}
	if share := move(8*wire.GiB, 5*time.Millisecond, time.Millisecond); share < 0.4 {
		t.Errorf("only %.2f of it is packed after the network became slow", share)
	}
	if share := move(4*wire.GiB, 5*time.Millisecond, time.Millisecond); share < 0.95 {
		t.Errorf("only %.2f of it is packed where that takes a fifth of the time", share)
	}
	if share := move(4*wire.GiB, time.Millisecond, 950*time.Microsecond); share < 0.9 {
		t.Errorf("a choice that hardly matters changes: %.2f is packed", share)
	}
}

// Replicas that take packed frames get the same log, under all modes.
func TestCompress_LogsAreEqual(t *testing.T) {
	t.Parallel()
	for _, how := range []link.Compress{link.CompressZstd, link.CompressAuto, link.CompressOff} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			m := startMaster(t, masterOptions{compress: how, security: keySecurity(t, "tls", 1)})
			s := startSlave(t, m.addr, slaveOptions{security: keySecurity(t, "tls", 1)})
			for range 5 {
				m.grow(100)
				if _, err := m.w.Append(forge.Message{Topic: "t", Properties: "a\x01b\x02", Body: make([]byte, 30_000)}); err != nil {
					t.Fatal(err)
				}
				end := m.grow(1)
				m.acked("slave", end)
			}
			s.stop()
			s.same(m.opt.dir, m.w.End())
		})
	}
}

// Peers that do not know compressed frames get the log as it is.
func TestCompress_OlderPeersKeepWorking(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]struct{ master, slave uint16 }{"older replica": {2, 1}, "older master": {1, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMaster(t, masterOptions{compress: link.CompressZstd, security: keySecurity(t, "clear", 1).Speaking(1, versions.master)})
			end := m.grow(100)
			s := startSlave(t, m.addr, slaveOptions{security: keySecurity(t, "clear", 1).Speaking(1, versions.slave)})
			m.acked("slave", end)
			s.stop()
			s.same(m.opt.dir, end)
		})
	}
}

// An encoding in a version that has none ends the connection.
func TestCompress_EncodingsBelongToVersion2(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{compress: link.CompressZstd})
	h := emptyHello("n")
	h.Accepts = wirelink.EncodingZstd
	d, err := net.Dial("tcp", m.addr)
	if err != nil {
		t.Fatal(err)
	}
	peer := newRaw(t, d)
	peer.read(wirelink.GreetingSize)
	peer.send(greeting(wirelink.ModeNone), h.Append(nil))
	if r, ok := peer.frame().(*wirelink.Refuse); !ok || r.Code != wirelink.CodeProtocol {
		t.Errorf("%+v", r)
	}
}

// What travels is packed: a replica that says that it takes that gets it, once it
// has started.
func TestCompress_FramesArePacked(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{compress: link.CompressZstd})
	if _, err := m.w.Append(forge.Message{Topic: "t", Properties: "a\x01b\x02", Body: make([]byte, 30_000)}); err != nil {
		t.Fatal(err)
	}
	end := m.grow(1)
	h := emptyHello("n")
	h.Accepts = wirelink.EncodingZstd
	p := dialMaster(t, m, h)
	p.send(&wirelink.Start{From: 0})
	var u link.Unpacker
	for at := wire.PhyOffset(0); at < end; {
		typ, payload, err := p.session.Reader().Next()
		if err != nil {
			t.Fatal(err)
		}
		switch typ {
		case wirelink.TypePacked:
			packed, err := wirelink.ParsePacked(payload)
			if err != nil {
				t.Fatal(err)
			}
			body, err := u.Unpack(&packed)
			if err != nil || packed.At != at || len(payload) > len(body)/2 {
				t.Fatalf("%d bytes at %d in %d: %v", len(body), packed.At, len(payload), err)
			}
			at = at.Add(wire.ByteSize(len(body)))
		case wirelink.TypeTransfer:
			t.Fatal("it is not packed")
		}
	}
}
