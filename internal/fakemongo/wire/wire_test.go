package wire_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	core "github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

func doc(n int32) bson.Raw { return bson.NewBuilder(nil).Int32("n", n).Finish() }

// TestBothFramings reads with each framing what the other one has written.
func TestBothFramings(t *testing.T) {
	h := wire.Header{ID: 7, ResponseTo: 3}
	docs := map[string][]bson.Raw{"a": {doc(2), doc(3)}, "b": {}}
	ours := &core.Msg{Flags: core.ExhaustAllowed, Body: doc(1), Sequences: []core.Sequence{
		{Identifier: "a", Documents: docs["a"]}, {Identifier: "b", Documents: docs["b"]},
	}}
	head := core.Header{RequestID: 7, ResponseTo: 3}
	legacy := &core.Query{
		Flags: core.SecondaryOK, Collection: "admin.$cmd", Return: -1, Query: doc(1),
	}
	for name, pair := range map[string][2][]byte{
		"OP_MSG":   {wire.Msg(h, wire.ExhaustAllowed, doc(1), docs), core.Append(nil, head, ours)},
		"OP_QUERY": {wire.Query(7, doc(1)), core.Append(nil, core.Header{RequestID: 7}, legacy)},
		"OP_REPLY": {
			wire.Reply(h, doc(1)),
			core.Append(nil, head, &core.Reply{Flags: 8, Documents: []bson.Raw{doc(1)}}),
		},
	} {
		if !bytes.Equal(pair[0], pair[1]) {
			t.Errorf("%s is %x, core/wire's is %x", name, pair[0], pair[1])
		}
		m, err := wire.Read(bytes.NewReader(pair[1]), make([]byte, 3, 5))
		if err != nil || !bytes.Equal(m, pair[1]) || m.Header().ID != 7 {
			t.Errorf("Read(%s) = %x, %v", name, m, err)
		}
		if _, _, err := core.Parse(m.Compress()); err != nil {
			t.Errorf("%s, compressed: %v", name, err)
		}
		if plain, err := m.Compress().Decompress(); err != nil || !bytes.Equal(plain, m) {
			t.Errorf("%s, compressed and not: %x, %v", name, plain, err)
		}
	}
}

func TestSections(t *testing.T) {
	for _, flags := range []uint32{0, wire.MoreToCome, wire.ChecksumPresent} {
		m := wire.Msg(wire.Header{}, flags, doc(1), map[string][]bson.Raw{"s": {doc(2), doc(3)}})
		var names []string
		var docs []bson.Raw
		for s, err := range m.Sections() {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, string(s.Name))
			for d, err := range wire.Documents(s.Documents) {
				if err != nil {
					t.Fatal(err)
				}
				docs = append(docs, d)
			}
		}
		if !slices.Equal(names, []string{"", "s"}) || len(docs) != 3 ||
			!bytes.Equal(docs[2], doc(3)) || m.Flags() != flags {
			t.Errorf("flags %d: sections %q of documents %v", flags, names, docs)
		}
	}
}

func TestMalformed(t *testing.T) {
	msg := func(rest ...byte) wire.Message {
		m := wire.Header{OpCode: wire.OpMsg}.Append(nil, rest...)
		m.SetLength(0)
		return m
	}
	for name, m := range map[string]wire.Message{
		"no flags":                msg(0, 0, 0),
		"unknown flags":           msg(4, 0, 0, 0),
		"no checksum":             msg(1, 0, 0, 0, 9, 9),
		"a kind":                  msg(0, 0, 0, 0, 2, 5, 0, 0, 0, 0),
		"a short section":         msg(0, 0, 0, 0, 0, 5, 0),
		"a large body":            msg(0, 0, 0, 0, 0, 6, 0, 0, 0, 0),
		"a sequence without name": msg(0, 0, 0, 0, 1, 5, 0, 0, 0, 'a'),
	} {
		var failed error
		for _, err := range m.Sections() {
			failed = err
		}
		if failed == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, b := range [][]byte{{5, 0, 0, 0}, {4, 0, 0, 0, 0}, {6, 0, 0, 0, 0}} {
		for d, err := range wire.Documents(b) {
			if err == nil {
				t.Errorf("Documents(%v) = %v", b, d)
			}
		}
	}
	for _, rest := range []string{"", "\x00\x00\x00\x00x", "\x00\x00\x00\x00x\x00\x00\x00"} {
		m := wire.Header{OpCode: wire.OpQuery}.Append(nil, []byte(rest)...)
		if _, _, err := m.Query(); err == nil {
			t.Errorf("Query of %q succeeds", m)
		}
	}
	long := append(wire.Query(1, doc(1)), 1)
	if _, _, err := long.Query(); err == nil {
		t.Error("Query with a byte too many succeeds")
	}
	for _, m := range []wire.Message{msg(0, 0, 0, 0), wire.Header{OpCode: 9}.Append(nil)} {
		if d, err := m.Document(); err == nil {
			t.Errorf("Document() of %x is %x", m, d)
		}
	}
}

func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		sent string
		want error
	}{
		"nothing":   {"", io.EOF},
		"too short": {"\x0f\x00\x00\x00            ", nil},
		"too long":  {"\x00\x00\x00\x7f            ", nil},
		"cut off":   {"\x28\x00\x00\x00            x", io.ErrUnexpectedEOF},
	} {
		m, err := wire.Read(bytes.NewReader([]byte(test.sent)), nil)
		if err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: Read() = %x, %v", name, m, err)
		}
	}
}

// TestAnswer exchanges a request and a prepared reply, built by hand piece by piece.
func TestAnswer(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		defer server.Close()
		m, err := wire.Read(bufio.NewReader(server), nil)
		if err != nil {
			return
		}
		reply := wire.Begin(nil, wire.Header{OpCode: wire.OpMsg}, 0)
		whole := doc(5)
		reply = append(reply, whole[:4]...)
		reply.SetLength(len(whole) - 4)
		reply.Answer(m.Header().ID)
		_, _ = server.Write(append(reply, whole[4:]...))
	}()
	reply, err := wire.RoundTrip(client, wire.Query(9, doc(1)))
	if err != nil || reply.Header().ResponseTo != 9 {
		t.Fatalf("RoundTrip() = %x, %v", reply, err)
	}
	if d, err := reply.Document(); err != nil || !bytes.Equal(d, doc(5)) {
		t.Errorf("Document() = %x, %v", d, err)
	}
}
