package fakemongo_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// run sends one command, built by add, to database "db", with core/wire's framing.
func run(t *testing.T, c *conn.Conn, sequence []bson.Raw, add func(*bson.Builder)) bson.Raw {
	t.Helper()
	b := bson.NewBuilder(wire.BeginMsg(nil, 0))
	add(b)
	b.String("$db", "db")
	b.Finish()
	msg := b.Bytes()
	if sequence != nil {
		msg = wire.AppendSequence(msg, "documents", sequence)
	}
	wire.EndMsg(msg)
	reply, err := c.RoundTrip(t.Context(), msg)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func dial(t *testing.T, s *fakemongo.Server) *conn.Conn {
	t.Helper()
	c, err := conn.Dial(t.Context(), s.Address(), conn.Config{Dialer: s.Dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func number(t *testing.T, reply bson.Raw, path ...string) int64 {
	t.Helper()
	v, _ := reply.Lookup(path...)
	n, ok := v.AsInt64()
	if !ok {
		t.Fatalf("%v has no number %v", reply, path)
	}
	return n
}

func size(reply bson.Raw, batch string) int {
	v, _ := reply.Lookup("cursor", batch)
	a, _ := v.Array()
	return a.Len()
}

func TestCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		c := dial(t, s)
		var docs []bson.Raw
		for i := range int32(10) {
			docs = append(docs, bson.NewBuilder(nil).Int32("_id", i).Finish())
		}
		if n := number(t, run(t, c, docs, func(b *bson.Builder) {
			b.String("insert", "c")
		}), "n"); n != 10 {
			t.Errorf("insert: n = %d, want 10", n)
		}
		find := func() bson.Raw {
			return run(t, c, nil, func(b *bson.Builder) {
				b.String("find", "c").Int32("batchSize", 4)
			})
		}
		getMore := func(id int64) bson.Raw {
			return run(t, c, nil, func(b *bson.Builder) {
				b.Int64("getMore", id).String("collection", "c").Int32("batchSize", 4)
			})
		}
		reply := find()
		id := number(t, reply, "cursor", "id")
		if size(reply, "firstBatch") != 4 || id == 0 || s.OpenCursors() != 1 {
			t.Errorf("find = %v, %d open cursors", reply, s.OpenCursors())
		}
		if reply := getMore(id); size(reply, "nextBatch") != 4 ||
			number(t, reply, "cursor", "id") != id {
			t.Errorf("getMore = %v", reply)
		}
		if reply := getMore(id); size(reply, "nextBatch") != 2 ||
			number(t, reply, "cursor", "id") != 0 || s.OpenCursors() != 0 {
			t.Errorf("the last getMore = %v, %d open cursors", reply, s.OpenCursors())
		}
		if reply := getMore(id); number(t, reply, "code") != 43 {
			t.Errorf("getMore after the end = %v, want CursorNotFound", reply)
		}
		id = number(t, find(), "cursor", "id")
		run(t, c, nil, func(b *bson.Builder) {
			b.String("killCursors", "c").OpenArray("cursors").Int64("", id).Close()
		})
		if s.OpenCursors() != 0 || s.KilledCursors() != 1 {
			t.Errorf("after killCursors: %d open, %d killed", s.OpenCursors(), s.KilledCursors())
		}
		if n := len(s.Commands("find")); n != 2 {
			t.Errorf("%d finds were recorded, want 2", n)
		}
	})
}

func TestHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := fakemongo.Always(fakemongo.Error(189, "PrimarySteppedDown", "stepped down",
			"RetryableWriteError"))
		s := fakemongo.NewServer(t, fakemongo.Handlers{
			"slow": fakemongo.Always(fakemongo.OK(nil).After(time.Hour)),
		})
		s.Handle("ping", fakemongo.Times(2, broken, s.Default))
		c := dial(t, s)
		ping := func(b *bson.Builder) { b.Int32("ping", 1) }
		for i, want := range []bool{false, false, true} {
			reply := run(t, c, nil, ping)
			if ok, _ := reply.Lookup("ok"); ok.Truthy() != want {
				t.Errorf("ping %d = %v, want ok %v", i, reply, want)
			}
		}
		start := time.Now()
		run(t, c, nil, func(b *bson.Builder) { b.Int32("slow", 1) })
		if took := time.Since(start); took != time.Hour {
			t.Errorf("slow took %v, want an hour", took)
		}
		if reply := run(t, c, nil, func(b *bson.Builder) {
			b.Int32("unheardOf", 1)
		}); number(t, reply, "code") != 59 {
			t.Errorf("unknown command = %v", reply)
		}
	})
}

func TestDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		nc, err := s.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		s.SetDown(true)
		if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("Read from a server that went down = %v, want io.EOF", err)
		}
		if _, err := s.Dial(t.Context(), "", ""); err == nil {
			t.Error("Dial of a server that is down succeeded")
		}
		s.SetDown(false)
		dial(t, s)
		if n := s.AcceptedConnections(); n != 2 {
			t.Errorf("%d connections were accepted, want 2", n)
		}
	})
}

// A client that frames wrongly is cut off.
func TestMalformedRequests(t *testing.T) {
	for name, b := range map[string][]byte{
		"length":  {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"opcode":  {16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0},
		"no body": {20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := fakemongo.NewServer(t, nil)
			var nc net.Conn
			nc, err := s.Dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = nc.Write(b)
			if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("%s: Read = %v, want io.EOF", name, err)
			}
			if n := len(s.Commands()); n != 0 {
				t.Errorf("%s: %d commands were taken", name, n)
			}
		})
	}
}

func ExampleNewServer() {
	t := new(testing.T) // a test's own
	s := fakemongo.NewServer(t, fakemongo.Handlers{
		"find": func(cmd *fakemongo.Command) fakemongo.Reply {
			return fakemongo.CursorReply(0, cmd.Database+".c", "firstBatch",
				bson.NewBuilder(nil).Int32("n", 1).Finish())
		},
	})
	defer s.Close()
	fmt.Println(s.URI())
	// Output: mongodb://fakemongo:27017/?directConnection=true
}

func TestIntercept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		var seen []string
		s.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			seen = append(seen, cmd.Name)
			if cmd.Name == "ping" {
				return fakemongo.OK(func(b *bson.Builder) { b.Int32("intercepted", 1) })
			}
			return next(cmd)
		})
		c := dial(t, s)
		if n := number(t, run(t, c, nil, func(b *bson.Builder) {
			b.Int32("ping", 1)
		}), "intercepted"); n != 1 {
			t.Errorf("ping was not intercepted: %d", n)
		}
		reply := run(t, c, nil, func(b *bson.Builder) { b.String("find", "c") })
		if size(reply, "firstBatch") != 0 || len(seen) != 3 {
			t.Errorf("find answers %v; intercepted were %v, want hello, ping, find", reply, seen)
		}
	})
}

// TestZlib checks that a compressed command is answered with a compressed reply.
func TestZlib(t *testing.T) {
	s := fakemongo.NewServer(t, nil)
	s.Handle("hello", func(cmd *fakemongo.Command) fakemongo.Reply {
		return fakemongo.WithZlib(fakemongo.Hello(cmd, nil))
	})
	s.SetDocuments("db.c", fakemongo.Numbered(0, 3, 10)...)
	var mu sync.Mutex
	messages := map[bool]int{} // by Received
	c, err := conn.Dial(t.Context(), s.Address(), conn.Config{
		Dialer: s.Dial, Compressors: []string{"zlib"},
		Compressed: func(e event.MessageCompressed) {
			mu.Lock()
			defer mu.Unlock()
			messages[e.Received]++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	reply := run(t, c, nil, func(b *bson.Builder) { b.String("find", "c") })
	if n := size(reply, "firstBatch"); n != 3 {
		t.Errorf("%d documents, want 3", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if messages[false] != 1 || messages[true] != 1 || !s.Commands("find")[0].Compressed {
		t.Errorf("compressed messages sent and received: %v", messages)
	}
}

// TestNotZlib checks that a message that is not compressed as it says ends the connection.
func TestNotZlib(t *testing.T) {
	for name, body := range map[string]string{
		"short":              "\xdd\x07\x00\x00\x01",
		"another compressor": "\xdd\x07\x00\x00\x01\x00\x00\x00\x01x",
		"too large":          "\xdd\x07\x00\x00\xff\xff\xff\x7f\x02x",
		"no zlib":            "\xdd\x07\x00\x00\x01\x00\x00\x00\x02x",
	} {
		s := fakemongo.NewServer(t, nil)
		nc, err := s.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		message := "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xdc\x07\x00\x00" + body
		if _, err := io.WriteString(nc, string(rune(len(message)+1))+message); err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: Read = %v, want the end of the connection", name, err)
		}
		nc.Close()
	}
}
