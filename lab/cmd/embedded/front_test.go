package main

import (
	"context"
	"math"
	"net"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

// message makes an OP_MSG of a body and, if there are any, documents in a sequence.
func message(flags uint32, body bson.Raw, docs ...bson.Raw) wire.Message {
	sequences := map[string][]bson.Raw{}
	if len(docs) > 0 {
		sequences["documents"] = docs
	}
	return wire.Msg(wire.Header{ID: 77}, flags, body, sequences)
}

func decimal() bson.Raw {
	return bson.NewBuilder(nil).Value("d", bson.Value{Type: bson.TypeDecimal128, Data: make([]byte, 16)}).Finish()
}

func TestLacks(t *testing.T) {
	ping := bson.NewBuilder(nil).Int32("ping", 1).Finish()
	for _, c := range []struct {
		name, want string
		msg        wire.Message
	}{
		{"nothing", "", message(0, ping)},
		{"a sequence of nothing", "", message(0, ping, ping, ping)},
		{"in the body", "the BSON type Decimal128", message(0, decimal())},
		{"deep", "the BSON type Decimal128", message(0, bson.NewBuilder(nil).OpenArray("a").Document("", decimal()).Close().Finish())},
		{"in a sequence", "the BSON type Decimal128", message(0, ping, ping, decimal())},
		{"with a checksum", "the BSON type Decimal128", message(wire.ChecksumPresent, ping, decimal())},
		{"NaN", "NaN", message(0, bson.NewBuilder(nil).Double("a", math.NaN()).Finish())},
		{"MinKey", "the BSON type MinKey", message(0, bson.NewBuilder(nil).Value("a", bson.Value{Type: bson.TypeMinKey}).Finish())},
		{"malformed", "", message(0, bson.Raw{5, 0, 0, 0, 1})},
		{"cut", "", message(0, decimal())[:30]},
	} {
		if got := lacks(c.msg); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestFront has a command that the backend lacks answered, and another one passed on, on one
// connection.
func TestFront(t *testing.T) {
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backend.Close() }()
	echoed := make(chan struct{})
	go func() { // an echo
		defer close(echoed)
		conn, err := backend.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			msg, err := wire.Read(conn, nil)
			if err != nil {
				return
			}
			if _, err := conn.Write(msg); err != nil {
				return
			}
		}
	}()
	l, uri, err := listen("127.0.0.1:0", files{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- front(ctx, l, backend.Addr().String()) }()
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(uri, "mongodb://"), "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	send := func(msg wire.Message) wire.Message {
		t.Helper()
		if _, err := conn.Write(msg); err != nil {
			t.Fatal(err)
		}
		reply, err := wire.Read(conn, nil)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	ping := message(0, bson.NewBuilder(nil).Int32("ping", 1).Finish())
	for range 2 {
		if got := send(ping); string(got) != string(ping) {
			t.Errorf("passed on: %x", got)
		}
		got := send(message(0, decimal()))
		reply, err := got.Document()
		code, _ := reply.Lookup("code")
		if n, _ := code.Int32(); err != nil || reply.Validate() != nil || n != notImplemented || got.Header().ResponseTo != 77 {
			t.Errorf("refused: %x", got)
		}
	}
	if got := refusal(message(wire.MoreToCome, decimal()), "x"); got != nil {
		t.Errorf("a reply without a waiting client: %x", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-echoed
}
