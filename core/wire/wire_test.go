package wire_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/wire"
	fakewire "github.com/mooringdb/mooring/internal/fakemongo/wire"
)

func doc(n int32) bson.Raw { return bson.NewBuilder(nil).Int32("n", n).Finish() }

func messages() map[string]wire.Message {
	return map[string]wire.Message{
		"body only":        &wire.Msg{Body: doc(1)},
		"flags":            &wire.Msg{Flags: wire.MoreToCome | wire.ExhaustAllowed, Body: doc(1)},
		"unknown optional": &wire.Msg{Flags: 1 << 31, Body: doc(1)},
		"sequences": &wire.Msg{Body: doc(1), Sequences: []wire.Sequence{
			{"documents", []bson.Raw{doc(2), doc(3)}}, {"", []bson.Raw{}}, {"other", []bson.Raw{doc(4)}},
		}},
		"checksum":          &wire.Msg{Flags: wire.ChecksumPresent, Body: doc(1), Sequences: []wire.Sequence{{"d", []bson.Raw{doc(2)}}}},
		"query":             &wire.Query{Flags: wire.SecondaryOK, Collection: "admin.$cmd", Return: -1, Query: doc(1)},
		"query with fields": &wire.Query{Collection: "a.b", Skip: 1, Query: doc(1), Fields: doc(2)},
		"reply":             &wire.Reply{Flags: 8, CursorID: 1 << 40, StartingFrom: 2, Documents: []bson.Raw{doc(1), doc(2)}},
		"empty reply":       &wire.Reply{Flags: wire.CursorNotFound, Documents: []bson.Raw{}},
		"compressed":        &wire.Compressed{OriginalOpCode: wire.OpMsg, UncompressedSize: 100, Compressor: 2, Data: []byte("data")},
	}
}

func TestRoundTrip(t *testing.T) {
	for name, m := range messages() {
		t.Run(name, func(t *testing.T) {
			prefix := []byte("before")
			b := wire.Append(prefix, wire.Header{RequestID: 7, ResponseTo: 8}, m)[len(prefix):]
			h, got, err := wire.Parse(b)
			if err != nil {
				t.Fatalf("Parse(%x) = %v", b, err)
			}
			if want := (wire.Header{
				Length: int32(len(b)), RequestID: 7, ResponseTo: 8, OpCode: h.OpCode,
			}); h != want {
				t.Errorf("header = %+v, want %+v", h, want)
			}
			if !reflect.DeepEqual(got, m) {
				t.Errorf("Parse = %+v, want %+v", got, m)
			}
			for n := range b { // every shorter message, with its length put right
				short := bytes.Clone(b[:n])
				if n >= 4 {
					binary.LittleEndian.PutUint32(short, uint32(n))
				}
				if _, m, err := wire.Parse(short); err == nil &&
					!bytes.Equal(wire.Append(nil, h, m)[wire.HeaderSize:],
						short[wire.HeaderSize:]) {
					t.Errorf("Parse of the first %d bytes = %+v, want an error or what is in them",
						n, m)
				}
			}
		})
	}
}

func TestBuildInPlace(t *testing.T) {
	buf := make([]byte, 0, 256)
	for range 2 {
		msg := wire.BeginMsg(buf[:0], wire.MoreToCome)
		msg = append(msg, doc(1)...)
		msg = wire.AppendSequence(msg, "documents", []bson.Raw{doc(2), doc(3)})
		msg, start := wire.BeginSequence(msg, "more")
		msg = append(msg, doc(4)...)
		msg = wire.EndSequence(msg, start)
		wire.EndMsg(msg)
		wire.SetRequestID(msg, 42)
		if &msg[0] != &buf[:1][0] {
			t.Error("the message is not in the caller's buffer")
		}
		if f := wire.MsgFlags(msg); f != wire.MoreToCome {
			t.Errorf("MsgFlags = %v, want MoreToCome", f)
		}
		h, m, err := wire.Parse(msg)
		want := &wire.Msg{Flags: wire.MoreToCome, Body: doc(1), Sequences: []wire.Sequence{
			{"documents", []bson.Raw{doc(2), doc(3)}}, {"more", []bson.Raw{doc(4)}},
		}}
		if err != nil || h.RequestID != 42 || !reflect.DeepEqual(m, want) {
			t.Errorf("Parse = %+v, %+v, %v, want %+v", h, m, err, want)
		}
		sections := msg[wire.HeaderSize+5+len(doc(1)):]
		for _, s := range want.Sequences {
			var name string
			var docs []byte
			name, docs, sections = wire.CutSequence(sections)
			if name != s.Identifier || !bytes.Equal(docs, bytes.Join(raws(s.Documents), nil)) {
				t.Errorf("CutSequence() = %q, %x, want %v", name, docs, s)
			}
		}
		if len(sections) > 0 {
			t.Errorf("%x is left", sections)
		}
	}
}

func raws(docs []bson.Raw) (out [][]byte) {
	for _, d := range docs {
		out = append(out, d)
	}
	return out
}

// msg is an OP_MSG of the flags and whatever follows, with a right length.
func msg(flags uint32, rest ...[]byte) []byte {
	return message(2013, append([][]byte{u32(flags)}, rest...)...)
}

func message(opCode uint32, rest ...[]byte) []byte {
	m := fakewire.Header{ID: 1, OpCode: opCode}.Append(nil, bytes.Join(rest, nil)...)
	m.SetLength(0)
	return m
}

func u32(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestBodyMayComeLast(t *testing.T) {
	seq := join([]byte{1}, u32(uint32(4+2+len(doc(1)))), []byte("d\x00"), doc(1))
	_, m, err := wire.Parse(msg(0, seq, []byte{0}, doc(2)))
	got, ok := m.(*wire.Msg)
	if err != nil || !ok || !bytes.Equal(got.Body, doc(2)) || len(got.Sequences) != 1 {
		t.Errorf("Parse = %+v, %v, want the body after a sequence", m, err)
	}
}

func TestParseRefuses(t *testing.T) {
	body := join([]byte{0}, doc(1))
	sum := func(m []byte) []byte {
		binary.LittleEndian.PutUint32(m, uint32(len(m)+4))
		return append(m, u32(crc32.Checksum(m, crc32.MakeTable(crc32.Castagnoli))+1)...)
	}
	tests := []struct {
		name string
		b    []byte
		want string
	}{
		{"nothing", nil, "too few"},
		{"length", append(msg(0, body), 0), "length"},
		{"opcode", message(2011, doc(1)), "unknown opcode 2011"},
		{"no flags", message(2013), "truncated flags"},
		{"unknown required flag", msg(1<<15, body), "unknown required flag"},
		{"flag 2", msg(4, body), "unknown required flag"},
		{"wrong checksum", sum(msg(1, body)), "checksum does not match"},
		{"no room for a checksum", msg(1, []byte{0, 0}), "truncated checksum"},
		{"no sections", msg(0), "no body"},
		{"no body", msg(0, []byte{1}, u32(6), []byte("d\x00")), "no body"},
		{"two bodies", msg(0, body, body), "second body"},
		{"kind 2", msg(0, body, []byte{2}), "unknown section kind"},
		{"body cut", msg(0, []byte{0}, u32(100), []byte{0, 0}), "body"},
		{"body of size 4", msg(0, []byte{0}, u32(4), []byte{0, 0}), "body"},
		{"body of negative size", msg(0, []byte{0}, u32(0xffffffff), []byte{0, 0}), "body"},
		{"sequence of size 4", msg(0, body, []byte{1}, u32(4)), "size of a document sequence"},
		{"sequence of negative size", msg(0, body, []byte{1}, u32(0x80000000), []byte("d\x00")), "size of a document sequence"},
		{"sequence beyond the end", msg(0, body, []byte{1}, u32(7), []byte("d\x00")), "size of a document sequence"},
		{"sequence without size", msg(0, body, []byte{1, 0}), "truncated size"},
		{"identifier without end", msg(0, body, []byte{1}, u32(5), []byte("d"), []byte{1}), "terminating zero"},
		{"identifier beyond the sequence", msg(0, body, []byte{1}, u32(5), []byte("d\x00")), "terminating zero"},
		{"document beyond the sequence", msg(0, body, []byte{1}, u32(8), []byte("d\x00"), doc(1)), "document sequence"},
		{"same identifier", msg(0, body, []byte{1}, u32(6), []byte("d\x00"), []byte{1}, u32(6), []byte("d\x00")), "second document sequence"},
		{"bytes after a query", message(2004, u32(0), []byte("c\x00"), u32(0), u32(0), doc(1), doc(2), []byte{0}), "bytes after"},
		{"reply with fewer documents", message(1, u32(0), make([]byte, 8), u32(0), u32(2), doc(1)), "numberReturned"},
		{"reply with a huge number", message(1, u32(0), make([]byte, 8), u32(0), u32(0x7fffffff)), "numberReturned"},
		{"compressed twice", message(2012, u32(2012), u32(1), []byte{1}), "inside"},
		{"negative uncompressed size", message(2012, u32(2013), u32(0xffffffff), []byte{1}), "negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, m, err := wire.Parse(tt.b)
			if _, ok := errors.AsType[*wire.FormatError](err); !ok ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse(%x) = %+v, %v, want a format error with %q", tt.b, m, err, tt.want)
			}
		})
	}
}

func TestReadFrom(t *testing.T) {
	one, two := msg(0, []byte{0}, doc(1)),
		msg(0, []byte{0}, bson.NewBuilder(nil).String("s", strings.Repeat("x", 9000)).Finish())
	stream := join(one, two, one[:10])
	for name, r := range map[string]io.Reader{
		"at once": bytes.NewReader(stream), "byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
	} {
		t.Run(name, func(t *testing.T) {
			br := bufio.NewReaderSize(r, 4096)
			for _, want := range [][]byte{one, two} {
				if got, err := wire.ReadFrom(br, 0); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("ReadFrom = %d bytes, %v, want %d", len(got), err, len(want))
				}
			}
			if _, err := wire.ReadFrom(br, 0); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("ReadFrom of a cut message = %v, want io.ErrUnexpectedEOF", err)
			}
		})
	}
	if _, err := wire.ReadFrom(bufio.NewReader(bytes.NewReader(nil)), 0); !errors.Is(err, io.EOF) {
		t.Errorf("ReadFrom of nothing = %v, want io.EOF", err)
	}
	if _, err := wire.ReadFrom(bufio.NewReader(bytes.NewReader([]byte{16, 0})), 0); !errors.Is(err,
		io.ErrUnexpectedEOF) {
		t.Errorf("ReadFrom of half a length = %v, want io.ErrUnexpectedEOF", err)
	}
}

// A length that is out of bounds must cost nothing, whatever it says.
func TestHostileLengthsCostNothing(t *testing.T) {
	for _, length := range []uint32{0, 15, 48_000_001, 0x7fffffff, 0x80000000, 0xffffffff} {
		r := bufio.NewReader(bytes.NewReader(join(u32(length), make([]byte, 12))))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := wire.ReadFrom(r, 0)
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; err == nil || cost > 1<<16 {
			t.Errorf("length %d: %v, %d bytes allocated", length, err, cost)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range messages() {
		f.Add(wire.Append(nil, wire.Header{}, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 {
			binary.LittleEndian.PutUint32(b, uint32(len(b)))
		}
		h, m, err := wire.Parse(b)
		if err != nil {
			return
		}
		again := wire.Append(nil, h, m)
		_, m2, err := wire.Parse(again)
		if err != nil || !reflect.DeepEqual(m, m2) {
			t.Errorf("Parse(%x) = %+v, and again %+v, %v", b, m, m2, err)
		}
	})
}

func FuzzReadFrom(f *testing.F) {
	f.Add(wire.Append(nil, wire.Header{}, &wire.Msg{Body: doc(1)}))
	f.Add([]byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		const most = 1 << 16
		r := bufio.NewReader(bytes.NewReader(b))
		for {
			m, err := wire.ReadFrom(r, most)
			if err != nil {
				return
			}
			if len(m) < wire.HeaderSize || len(m) > most {
				t.Fatalf("ReadFrom = %d bytes", len(m))
			}
		}
	})
}

func BenchmarkParseMsg(b *testing.B) {
	m := wire.Append(nil, wire.Header{}, &wire.Msg{Body: doc(1)})
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := wire.Parse(m); err != nil {
			b.Fatal(err)
		}
	}
}

// TestParseInto checks that a message that the caller holds is decoded without an allocation.
func TestParseInto(t *testing.T) {
	built := wire.Append(nil, wire.Header{RequestID: 7},
		&wire.Msg{Flags: wire.MoreToCome, Body: doc(1)})
	var m wire.Msg
	h, got, err := wire.ParseInto(&m, built)
	if err != nil || h.RequestID != 7 || got != wire.Message(&m) || !bytes.Equal(m.Body, doc(1)) ||
		m.Flags != wire.MoreToCome {
		t.Errorf("ParseInto = %v, %v, %v; the message is %v", h, got, err, m)
	}
	if _, got, err := wire.ParseInto(&wire.Msg{}, built[:len(built)-1]); err == nil || got != nil {
		t.Errorf("ParseInto of a message that is cut = %v, %v", got, err)
	}
	if n := testing.AllocsPerRun(100, func() {
		var m wire.Msg
		if _, _, err := wire.ParseInto(&m, built); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
