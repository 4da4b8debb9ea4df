package server_test

import (
	"context"
	"encoding/binary"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/server"
)

const (
	refused     = "8" // RESOURCE_EXHAUSTED
	unavailable = "14"
)

// charging returns what a server has that charges all calls to one client.
func charging(bytes int64) (*admission.Admission, server.GRPCConfig) {
	a := admission.New(admission.Config{Bytes: bytes})
	return a, server.GRPCConfig{OpenAccount: func(_ context.Context, c *admission.Account) {
		a.Open(c, admission.Principal{Name: "client"})
	}}
}

func checkHeld(t *testing.T, a *admission.Admission, when string, want int64) {
	t.Helper()
	synctest.Wait()
	if got := a.Bytes().Held; got != want {
		t.Errorf("%s: %d bytes are held, want %d", when, got, want)
	}
}

// TestRequestsAreCharged checks that a request is charged as its bytes arrive, however large it
// says that it is, and until the call has ended.
func TestRequestsAreCharged(t *testing.T) {
	a, cfg := charging(7 << 20)
	inBubble(t, cfg, func(t *testing.T, s *rawServer) {
		c := s.dial(t, 1<<20)
		for id := uint32(1); id <= 9; id += 2 {
			c.open(id, "/test.Test/Unary")
		}
		more := func(id uint32, n int) {
			for ; n > 0; n -= 32 << 10 {
				synctest.Wait()
				c.more(id, min(n, 32<<10))
			}
		}
		c.begin(1, 16<<10, 1)
		checkHeld(t, a, "a small request", 0)
		c.begin(3, 3<<20, 1)
		checkHeld(t, a, "a byte of 3 MiB", 128<<10)
		more(3, 256<<10)
		checkHeld(t, a, "a byte more than 256 KiB of 3 MiB", 1<<20)
		c.begin(5, 40<<10, 1)
		checkHeld(t, a, "a byte of 40 KiB, too", 1<<20+80<<10)
		c.begin(7, 4<<20, 1)
		if got := c.ended(7); got != "3" {
			t.Errorf("a request that never fits: status %q, want 3", got)
		}
		others := &admission.Account{}
		a.Open(others, admission.Principal{Name: "others"})
		others.Force(5 << 20)
		more(3, 256<<10)
		if got := c.ended(3); got != "14" {
			t.Errorf("the request that does not fit: status %q, want 14", got)
		}
		others.Close()
		checkHeld(t, a, "without it", 80<<10)
		_ = c.conn.Close()
		checkHeld(t, a, "without the client", 0)
	})
}

// TestRequestsAreReturned checks that a request is charged no more when its call has ended.
func TestRequestsAreReturned(t *testing.T) {
	a, cfg := charging(1 << 20)
	inBubble(t, cfg, func(t *testing.T, s *rawServer) {
		for _, method := range []string{"/test.Test/Unary", "/test.Test/Stream"} {
			c := s.dial(t, 1<<20)
			c.open(1, method)
			text := protowire.AppendTag(nil, 1, protowire.BytesType)
			text = protowire.AppendBytes(text, make([]byte, 40<<10))
			c.write(func(f *http2.Framer) error { return f.WriteData(1, false, prefix(len(text))) })
			for len(text) > 16<<10 {
				c.write(func(f *http2.Framer) error { return f.WriteData(1, false, text[:16<<10]) })
				text = text[16<<10:]
			}
			c.write(func(f *http2.Framer) error { return f.WriteData(1, true, text) })
			if got := c.ended(1); got != "0" {
				t.Errorf("%s: status %q", method, got)
			}
			checkHeld(t, a, method, 0)
			_ = c.conn.Close()
			<-c.done
		}
	})
}

// TestResponsesAreCharged checks that a large response is charged until the client has taken it or
// has gone, also after the end of the call.
func TestResponsesAreCharged(t *testing.T) {
	const size = 200 << 10 // in a buffer of 256 KiB
	a, cfg := charging(1 << 20)
	inBubble(t, cfg, func(t *testing.T, s *rawServer) {
		c := s.dial(t, 0)
		c.call(1, "/test.Test/Unary", 10<<10)
		checkHeld(t, a, "a small response", 0)
		c.call(3, "/test.Test/Unary", size)
		checkHeld(t, a, "a response", 256<<10)
		c.call(5, "/test.Test/Unary", size)
		checkHeld(t, a, "two responses", 512<<10)
		c.call(7, "/test.Test/Unary", 600<<10) // in a buffer of 1 MiB
		if got := c.ended(7); got != refused {
			t.Errorf("the response that does not fit: status %q, want %s", got, refused)
		}
		c.take(3, size+1024)
		checkHeld(t, a, "one of two responses", 256<<10)
		if got := c.ended(3); got != "0" {
			t.Errorf("the response that is taken: status %q", got)
		}
		_ = c.conn.Close()
		<-c.done
		pass(2 * time.Second)
		checkHeld(t, a, "without the client", 0)
	})
}

// TestResponsesUseReserve checks that the response of a unary call has the room that the call has
// reserved for it, however little is left for others, and that the call learns at its end whether
// the response was sent. One that would be compressed needs no more.
func TestResponsesUseReserve(t *testing.T) {
	const budget, size = 1 << 20, 200 << 10 // in a buffer of 256 KiB
	var a *admission.Admission              // of the bubble, whose channels it must have
	var sent chan bool
	var reserve int64
	cfg := server.GRPCConfig{OpenAccount: func(_ context.Context, c *admission.Account) {
		a.Open(c, admission.Principal{Name: "client"})
	}}
	cfg.Unary = func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler,
	) (any, error) {
		account := call.LocalFrom(ctx).Account
		if err := account.Reserve(ctx, reserve); err != nil {
			return nil, err
		}
		account.AtEnd(func(was bool) { sent <- was })
		var others admission.Account
		a.Open(&others, admission.Principal{Name: "others"})
		others.Force(budget - a.Bytes().Held)
		time.AfterFunc(time.Minute, others.Close)
		return h(ctx, req)
	}
	inBubble(t, cfg, func(t *testing.T, s *rawServer) {
		a, _ = charging(budget)
		sent = make(chan bool, 1)
		for _, row := range []struct {
			coding  string
			reserve int64
			status  string
		}{
			{"", 256 << 10, "0"},
			{"", 0, unavailable},
			{"gzip", 256 << 10, "0"},
			{"gzip", 0, unavailable},
		} {
			reserve = row.reserve
			c := s.dial(t, 1<<20)
			c.callCoded(1, "/test.Test/Unary", row.coding, size)
			c.take(1, size+1024)
			if got := c.ended(1); got != row.status {
				t.Errorf("%+v: status %q", row, got)
			}
			select {
			case was := <-sent:
				if was != (row.status == "0") {
					t.Errorf("%+v: the call learns: sent %v", row, was)
				}
			default:
				t.Errorf("%+v: the account was not closed", row)
			}
			pass(time.Minute)
			checkHeld(t, a, "at the end", 0)
			_ = c.conn.Close()
		}
	})
}

// TestResponsesInTurns checks that a large response waits for its turn, also if it is compressed,
// and that a small one does not.
func TestResponsesInTurns(t *testing.T) {
	var a *admission.Admission // of the bubble, whose channels it must have
	cfg := server.GRPCConfig{OpenAccount: func(_ context.Context, c *admission.Account) {
		a.Open(c, admission.Principal{Name: "client"})
	}}
	inBubble(t, cfg, func(t *testing.T, s *rawServer) {
		a, _ = charging(1 << 20)
		others := make([]admission.Turn, max(1, runtime.GOMAXPROCS(0)-1)) // all that there are
		for i := range others {
			others[i] = a.Turn()
			others[i].Take()
		}
		c := s.dial(t, 1<<20)
		c.call(1, "/test.Test/Unary", 60<<10)
		c.call(3, "/test.Test/Unary", 64<<10)
		c.take(3, 1<<20)
		in, err := proto.Marshal(wrapperspb.Bytes(binary.BigEndian.AppendUint32(nil, 64<<10)))
		if err != nil {
			t.Fatal(err)
		}
		c.openCoded(5, "/test.Test/Unary", "gzip")
		c.send(5, append(prefix(len(in)), in...))
		for id, want := range map[uint32]string{1: "0", 3: "", 5: ""} {
			if got := c.ended(id); got != want {
				t.Errorf("call %d while others work: status %q, want %q", id, got, want)
			}
		}
		for i := range others {
			others[i].Leave()
		}
		for _, id := range []uint32{3, 5} {
			if got := c.ended(id); got != "0" {
				t.Errorf("the large response of call %d: status %q", id, got)
			}
		}
	})
}

// TestTurnOfACallThatEnds checks that a call that ends while its request waits for a turn keeps
// none.
func TestTurnOfACallThatEnds(t *testing.T) {
	var a *admission.Admission // of the bubble, whose channels it must have
	cfg := server.GRPCConfig{OpenAccount: func(_ context.Context, c *admission.Account) {
		a.Open(c, admission.Principal{Name: "client"})
	}}
	inBubble(t, cfg, func(t *testing.T, s *rawServer) {
		a, _ = charging(1 << 20)
		others := make([]admission.Turn, max(1, runtime.GOMAXPROCS(0)-1)) // all that there are
		for i := range others {
			others[i] = a.Turn()
			others[i].Take()
		}
		c := s.dial(t, 1<<20)
		for i := range others {
			id := uint32(2*i + 1)
			c.open(id, "/test.Test/Unary")
			c.begin(id, 40<<10, 40<<10)
			c.write(func(f *http2.Framer) error { return f.WriteData(id, true, nil) })
			synctest.Wait()
			c.write(func(f *http2.Framer) error {
				return f.WriteRSTStream(id, http2.ErrCodeCancel)
			})
			synctest.Wait()
		}
		for i := range others {
			others[i].Leave()
		}
		synctest.Wait()
		got := make(chan struct{})
		go func() {
			turn := a.Turn()
			turn.Take()
			turn.Leave()
			close(got)
		}()
		select {
		case <-got:
		case <-time.After(time.Hour): // fake time
			t.Fatal("no turn is left")
		}
	})
}

// TestMaxItems checks that a request with too many items is refused, and that items are charged.
func TestMaxItems(t *testing.T) {
	a, cfg := charging(1 << 20)
	cfg.MaxItems = 1500
	inBubble(t, cfg, func(t *testing.T, s *rawServer) {
		c := s.dial(t, 1<<20)
		for i, row := range []struct {
			items  int
			status string
		}{{1, "0"}, {1500, "0"}, {1501, refused}} {
			id := uint32(2*i + 1)
			text := []byte{}
			for range row.items {
				text = append(text, 0x0a, 0)
			}
			c.open(id, "/test.Test/List")
			c.write(func(f *http2.Framer) error {
				return f.WriteData(id, true, append(prefix(len(text)), text...))
			})
			if got := c.ended(id); got != row.status {
				t.Errorf("%d items: status %q, want %s", row.items, got, row.status)
			}
		}
		checkHeld(t, a, "at the end", 0)
		blocking := &admission.Account{}
		a.Open(blocking, admission.Principal{Name: "client"})
		blocking.Force(1 << 20)
		text := make([]byte, 0, 3000)
		for range 1500 {
			text = append(text, 0x0a, 0)
		}
		c.open(101, "/test.Test/List")
		c.write(func(f *http2.Framer) error {
			return f.WriteData(101, true, append(prefix(len(text)), text...))
		})
		if got := c.ended(101); got != refused {
			t.Errorf("1,500 items without memory: status %q, want %s", got, refused)
		}
		_ = c.conn.Close()
	})
}

// requests has requests with lists in lists, and how many items they have.
var requests = map[string]struct {
	message proto.Message
	items   int
}{
	"no list": {&mooringv1.FindRequest{Database: "d", Collection: "c"}, 0},
	"documents": {&mooringv1.InsertManyRequest{Documents: []*mooringv1.Document{
		payload.NewDocument([]byte{5, 0, 0, 0, 0}), {},
	}}, 2},
	"lists in lists": {&mooringv1.BulkWriteRequest{Models: []*mooringv1.WriteModel{
		{Kind: &mooringv1.WriteModel_UpdateOne{UpdateOne: &mooringv1.UpdateOneModel{
			ArrayFilters: []*mooringv1.Document{{}, {}, {}},
		}}},
		{},
	}}, 5},
}

func TestCountItems(t *testing.T) {
	for name, row := range requests {
		text, err := proto.Marshal(row.message)
		if err != nil {
			t.Fatal(err)
		}
		m := row.message.ProtoReflect().Descriptor()
		if got := coding.CountItems(m, text, 100); got != row.items {
			t.Errorf("%s: %d items, want %d", name, got, row.items)
		}
		if got := coding.CountItems(m, text, 1); got > 2 {
			t.Errorf("%s, at most 1: %d items are counted, want no more than 2", name, got)
		}
	}
}

// FuzzCountItems checks that no fewer items are counted than the decoder finds.
func FuzzCountItems(f *testing.F) {
	for _, row := range requests {
		text, err := proto.Marshal(row.message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, m := range []proto.Message{
			&mooringv1.BulkWriteRequest{}, &mooringv1.InsertManyRequest{},
			&mooringv1.CreateIndexesRequest{},
		} {
			counted := coding.CountItems(m.ProtoReflect().Descriptor(), text, math.MaxInt)
			if proto.Unmarshal(text, m) != nil {
				continue
			}
			if found := itemsOf(m.ProtoReflect()); counted < found {
				t.Errorf("%T: %d items are counted of %d", m, counted, found)
			}
		}
	})
}

// itemsOf returns the number of items of all lists and maps of a decoded message.
func itemsOf(m protoreflect.Message) (n int) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			n += v.Map().Len()
		case f.IsList():
			n += v.List().Len()
			for i := range v.List().Len() {
				if f.Message() != nil {
					n += itemsOf(v.List().Get(i).Message())
				}
			}
		case f.Message() != nil:
			n += itemsOf(v.Message())
		}
		return true
	})
	return n
}
