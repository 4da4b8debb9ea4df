package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mooringdb/mooring/service/flood"
	"github.com/mooringdb/mooring/service/server"
)

// rawClient speaks HTTP/2 as no library would. Its reader records what the server sends.
type rawClient struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	done   chan struct{} // closed when the connection has ended
	// mayBeCut says that a write may fail, since the server may close the connection.
	mayBeCut bool
	timeout  string // of the calls, as their header has it; empty: none

	wmu    sync.Mutex // guards the framer's writing
	mu     sync.Mutex
	status map[uint32]string // grpc-status of the streams that have ended
	retry  map[uint32]string // of their details
	data   map[uint32]int    // bytes of a stream
}

// rawServer serves a unary method and a stream over connections in memory.
type rawServer struct {
	l      pipeListener
	server *grpc.Server
	served chan error
}

// newRawServer serves /test.Test/List, which returns its request, /test.Test/Unary, whose response
// is as large as its request says, /test.Test/Stream, which sends two such messages, and
// /test.Test/Import, which takes any number of them.
func newRawServer(cfg server.GRPCConfig) *rawServer {
	size := func(in []byte) int {
		if len(in) != 4 {
			return 0
		}
		return int(binary.BigEndian.Uint32(in))
	}
	if cfg.Unary == nil {
		cfg.Unary = func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler,
		) (any, error) {
			return h(ctx, req)
		}
	}
	cfg.Stream = func(
		srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler,
	) error {
		return h(srv, ss)
	}
	g, registrar := server.NewGRPC(cfg)
	registrar.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Test", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Unary",
			Handler: func(srv any, ctx context.Context, decode func(
				any,
			) error, interceptor grpc.UnaryServerInterceptor,
			) (any, error) {
				in := new(wrapperspb.BytesValue)
				if err := decode(in); err != nil {
					return nil, err
				}
				return interceptor(ctx, in,
					&grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Test/Unary"}, func(
						context.Context, any,
					) (any, error) {
						return wrapperspb.Bytes(make([]byte, size(in.Value))), nil
					})
			},
		}, {MethodName: "List", Handler: func(srv any, ctx context.Context, decode func(
			any,
		) error, interceptor grpc.UnaryServerInterceptor,
		) (any, error) {
			in := new(structpb.ListValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			return in, nil
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, Handler: func(
			_ any, ss grpc.ServerStream,
		) error {
			in := new(wrapperspb.BytesValue)
			if err := ss.RecvMsg(in); err != nil {
				return err
			}
			for range 2 {
				if err := ss.SendMsg(wrapperspb.Bytes(make([]byte, size(in.Value)))); err != nil {
					return err
				}
			}
			return nil
		}}, {StreamName: "Import", ClientStreams: true, Handler: func(
			_ any, ss grpc.ServerStream,
		) error {
			for {
				if err := ss.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
					return err
				}
			}
		}}},
	}, struct{}{})
	healthpb.RegisterHealthServer(registrar, health.NewServer())
	return serveRaw(g)
}

// serveRaw serves clients in memory, which a guard counts.
func serveRaw(g *grpc.Server) *rawServer {
	s := &rawServer{pipeListener{make(chan net.Conn), make(chan struct{})}, g, make(chan error, 1)}
	go func() {
		s.served <- g.Serve(server.Guarded(s.l,
			flood.New(0, 0, slog.New(slog.DiscardHandler), nil)))
	}()
	return s
}

func (s *rawServer) stop(t *testing.T) {
	s.server.Stop()
	if err := <-s.served; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

// dial connects a client that gives each stream a window of that size.
func (s *rawServer) dial(t *testing.T, window uint32) *rawClient {
	t.Helper()
	nc, err := s.l.dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	c := &rawClient{
		t: t, conn: nc, framer: http2.NewFramer(nc, nc), done: make(chan struct{}),
		status: map[uint32]string{}, retry: map[uint32]string{}, data: map[uint32]int{},
	}
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	go c.read()
	if _, err := nc.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	c.write(func(f *http2.Framer) error {
		return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	})
	return c
}

func (c *rawClient) write(send func(f *http2.Framer) error) {
	c.t.Helper()
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if err := send(c.framer); err != nil && !c.mayBeCut {
		c.t.Errorf("write: %v", err)
	}
}

// read records frames until the connection ends. It answers pings, on goroutines, since the server
// may not read before its own write has ended.
func (c *rawClient) read() {
	defer close(c.done)
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		c.mu.Lock()
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				switch field.Name {
				case "grpc-status":
					c.status[f.StreamID] = field.Value
				case "grpc-status-details-bin":
					c.retry[f.StreamID] = retryOf(field.Value)
				}
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				go func() {
					c.wmu.Lock()
					defer c.wmu.Unlock()
					_ = c.framer.WritePing(true, f.Data) // the connection may have ended
				}()
			}
		case *http2.DataFrame:
			c.data[f.StreamID] += len(f.Data())
		}
		c.mu.Unlock()
	}
}

// retryOf returns whether a client may repeat a call, as the details of its status say.
func retryOf(details string) string {
	data, _ := base64.RawStdEncoding.DecodeString(details)
	st := &spb.Status{}
	_ = proto.Unmarshal(data, st)
	for _, d := range st.GetDetails() {
		info := &errdetails.ErrorInfo{}
		if d.UnmarshalTo(info) == nil {
			return info.GetMetadata()["retry"]
		}
	}
	return ""
}

// open sends the headers of a call.
func (c *rawClient) open(id uint32, method string) { c.openCoded(id, method, "") }

// openCoded sends the headers of a call whose messages are compressed, unless coding is empty.
func (c *rawClient) openCoded(id uint32, method, coding string) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"grpc-encoding", coding},
		{"grpc-timeout", c.timeout},
	} {
		if field[1] == "" {
			continue
		}
		_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	c.write(func(f *http2.Framer) error {
		return f.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true,
		})
	})
}

// call makes a call whose response has that size.
func (c *rawClient) call(id uint32, method string, size uint32) {
	c.callCoded(id, method, "", size)
}

// callCoded does what call does, with messages that are compressed, unless coding is empty.
func (c *rawClient) callCoded(id uint32, method, coding string, size uint32) {
	c.openCoded(id, method, coding)
	in, err := proto.Marshal(wrapperspb.Bytes(binary.BigEndian.AppendUint32(nil, size)))
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(func(f *http2.Framer) error {
		return f.WriteData(id, true, append(prefix(len(in)), in...))
	})
}

// begin sends the beginning of a message: its length and n bytes.
func (c *rawClient) begin(id uint32, length, n int) {
	c.write(func(f *http2.Framer) error { return f.WriteData(id, false, prefix(length)) })
	synctest.Wait() // the server widens the stream's window when it has read the length
	c.more(id, n)
}

// more sends more of a message.
func (c *rawClient) more(id uint32, n int) {
	for ; n > 0; n -= 16 << 10 {
		c.write(func(f *http2.Framer) error {
			return f.WriteData(id, false, make([]byte, min(n, 16<<10)))
		})
	}
}

func prefix(length int) []byte { return binary.BigEndian.AppendUint32([]byte{0}, uint32(length)) }

// take gives a stream room for n more bytes.
func (c *rawClient) take(id, n uint32) {
	c.write(func(f *http2.Framer) error { return f.WriteWindowUpdate(0, n) })
	c.write(func(f *http2.Framer) error { return f.WriteWindowUpdate(id, n) })
}

// ended returns the status of a stream; empty: it goes on.
func (c *rawClient) ended(id uint32) string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status[id]
}

// received returns the bytes of a stream.
func (c *rawClient) received(id uint32) int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.data[id]
}

// isCut reports whether the server has closed the connection.
func (c *rawClient) isCut() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }

// inBubble runs a test with a server, where time is fake.
func inBubble(t *testing.T, cfg server.GRPCConfig, run func(t *testing.T, s *rawServer)) {
	t.Helper()
	cfg.MaxRequestSize = 4 << 20
	synctest.Test(t, func(t *testing.T) {
		s := newRawServer(cfg)
		run(t, s)
		s.stop(t)
	})
}

// TestRequestsMustArrive checks that a call ends if its request does not make progress, that this
// ends no other call, and that a client that keeps the pace is served.
func TestRequestsMustArrive(t *testing.T) {
	const late, tooLarge = "4", "8"
	inBubble(t, server.GRPCConfig{MaxSizeOf: func(string) int { return 2 << 20 }}, func(
		t *testing.T, s *rawServer,
	) {
		c := s.dial(t, 1<<20)
		for i, method := range []string{"/test.Test/Unary", "/test.Test/Stream"} {
			first := uint32(100*i + 1)
			silent, begun, half, dripping, honest, open, large := first, first+2, first+4, first+6,
				first+8, first+10, first+12
			for id := first; id <= large; id += 2 {
				c.open(id, method)
			}
			c.write(func(f *http2.Framer) error { return f.WriteData(begun, false, []byte{0, 0}) })
			c.begin(half, 1<<20, 60<<10)
			c.begin(dripping, 1<<20, 1)
			c.begin(honest, 2<<20, 1)
			c.begin(large, 2<<20+1, 0)
			in, _ := proto.Marshal(wrapperspb.Bytes(nil))
			c.write(func(f *http2.Framer) error {
				return f.WriteData(open, false, append(prefix(len(in)), in...))
			})
			if got := c.ended(large); got != tooLarge {
				t.Errorf("%s of 2 MiB and a byte: status %q, want %s", method, got, tooLarge)
			}
			for range 29 {
				pass(time.Second)
				c.more(dripping, 1)
				c.more(honest, 16<<10)
			}
			for _, id := range []uint32{silent, begun, half, dripping, honest, open} {
				if got := c.ended(id); got != "" {
					t.Errorf("%s, stream %d ended early: status %q", method, id, got)
				}
			}
			pass(3 * time.Second)
			for _, id := range []uint32{silent, begun, half, dripping, open} {
				if got := c.ended(id); got != late {
					t.Errorf("%s, stream %d: status %q, want %s", method, id, got, late)
				}
			}
			c.more(honest, 48<<10)
			for range 20 {
				pass(time.Second)
				c.more(honest, 16<<10)
			}
			if got := c.ended(honest); got != "" {
				t.Errorf("%s of a client that keeps the pace: status %q", method, got)
			}
			// It keeps a slower pace from now on. Of that there is an end, too.
			for range 30 {
				c.more(honest, 16<<10)
				pass(6 * time.Second)
			}
			if got := c.ended(honest); got != late {
				t.Errorf("%s of a client that is slow: status %q, want %s", method, got, late)
			}
		}
		c.call(1001, "/test.Test/Unary", 10)
		if got := c.ended(1001); got != "0" {
			t.Errorf("a call over the same connection: status %q", got)
		}
		_ = c.conn.Close()
	})
}

// TestBrokenOff checks that a stream whose message does not arrive says that the call may be made
// again only if no message has arrived before.
func TestBrokenOff(t *testing.T) {
	inBubble(t, server.GRPCConfig{}, func(t *testing.T, s *rawServer) {
		c := s.dial(t, 1<<20)
		const none, one, unary = 1, 3, 5
		c.open(none, "/test.Test/Import")
		c.open(one, "/test.Test/Import")
		c.open(unary, "/test.Test/Unary")
		in, _ := proto.Marshal(wrapperspb.Bytes(nil))
		c.write(func(f *http2.Framer) error {
			return f.WriteData(one, false, append(prefix(len(in)), in...))
		})
		for _, id := range []uint32{none, one, unary} {
			c.begin(id, 1<<20, 1)
		}
		pass(32 * time.Second)
		for id, want := range map[uint32]string{
			none: "same-request", one: "never", unary: "same-request",
		} {
			if got := c.ended(id); got != "4" || c.retry[id] != want {
				t.Errorf("stream %d: status %q, retry %q, want %s", id, got, c.retry[id], want)
			}
		}
		_ = c.conn.Close()
	})
}

// TestManyWithoutRequest checks that calls whose request does not arrive make room for others.
func TestManyWithoutRequest(t *testing.T) {
	inBubble(t, server.GRPCConfig{}, func(t *testing.T, s *rawServer) {
		const connections, each = 25, 40
		var clients []*rawClient
		for range connections {
			c := s.dial(t, 1<<20)
			clients = append(clients, c)
			for i := range uint32(each) {
				c.open(2*i+1, "/test.Test/Unary")
			}
			synctest.Wait()
		}
		c := clients[0]
		if got := c.ended(1); got != "" {
			t.Errorf("the first call ended early: status %q", got)
		}
		pass(time.Second)
		c.begin(1, 1<<20, 64<<10) // it makes progress: the second one is the oldest now
		synctest.Wait()
		c.call(2*each+1, "/test.Test/Unary", 10)
		if first, last := c.ended(1), c.ended(2*each+1); first != "" || last != "0" {
			t.Errorf("status of the call with progress: %q; of the call with a request: %q",
				first, last)
		}
		ended := 0
		for _, c := range clients {
			ended += len(c.status)
			_ = c.conn.Close()
			<-c.done
		}
		if ended != 2 {
			t.Errorf("%d calls have ended, want that with a request and one without", ended)
		}
	})
}

// TestFloodWithoutRequests checks that a connection with many calls that wait for their requests is
// closed when there are too many of them, and that another one with few keeps its calls.
func TestFloodWithoutRequests(t *testing.T) {
	inBubble(t, server.GRPCConfig{}, func(t *testing.T, s *rawServer) {
		honest, flood := s.dial(t, 1<<20), s.dial(t, 1<<20)
		for i := range uint32(10) {
			honest.open(2*i+1, "/test.Test/Unary")
		}
		synctest.Wait()
		for i := range uint32(990) {
			flood.open(2*i+1, "/test.Test/Unary")
		}
		if flood.isCut() || len(honest.status) > 0 {
			t.Error("a call has ended although there are not too many")
		}
		pass(time.Second)
		for i := range uint32(10) {
			honest.begin(2*i+1, 1<<20, 32<<10) // they make progress
			synctest.Wait()
			honest.more(2*i+1, 32<<10)
			synctest.Wait()
		}
		flood.open(2001, "/test.Test/Unary")
		if honest.isCut() || !flood.isCut() {
			t.Errorf("cut: the honest client %v, the flood %v", honest.isCut(), flood.isCut())
		}
		if n := len(honest.status); n > 0 {
			t.Errorf("%d calls of the honest client have ended", n)
		}
		_ = honest.conn.Close()
	})
}

// TestFloodOnManyConnections checks that a flood of calls without requests ends soon if it comes on
// many connections, each of which has few of them: the gateway closes each connection of which
// many calls have ended because there were too many.
func TestFloodOnManyConnections(t *testing.T) {
	inBubble(t, server.GRPCConfig{}, func(t *testing.T, s *rawServer) {
		const connections, each, more = 40, 25, 60
		flood := make([]*rawClient, connections)
		for i := range flood {
			flood[i] = s.dial(t, 1<<20)
		}
		for i := range uint32(each + more) {
			for _, c := range flood {
				if !c.isCut() {
					c.open(2*i+1, "/test.Test/Unary")
					synctest.Wait()
				}
			}
			if i == each-1 && slices.ContainsFunc(flood, (*rawClient).isCut) {
				t.Error("a connection is cut although there are not too many calls")
			}
		}
		cut := 0
		for _, c := range flood {
			if c.isCut() {
				cut++
			}
			_ = c.conn.Close()
			<-c.done
		}
		if cut < connections/2 {
			t.Errorf("%d of %d connections are cut", cut, connections)
		}
	})
}

// TestCallsThatEndedAreForgotten checks that a connection whose calls end because there are too
// many is not closed if it had none in between.
func TestCallsThatEndedAreForgotten(t *testing.T) {
	inBubble(t, server.GRPCConfig{}, func(t *testing.T, s *rawServer) {
		const calls, connections, each = 30, 40, 25
		c := s.dial(t, 1<<20)
		var others []*rawClient
		for round := range uint32(2) {
			for i := range uint32(calls) {
				c.open(2*(round*calls+i)+1, "/test.Test/Unary")
			}
			synctest.Wait()
			for range connections {
				other := s.dial(t, 1<<20)
				others = append(others, other)
				for i := range uint32(each) {
					other.open(2*i+1, "/test.Test/Unary")
				}
				synctest.Wait()
			}
		}
		if len(c.status) != 2*calls || c.isCut() {
			t.Errorf("%d of %d calls have ended; the connection is cut: %v", len(c.status),
				2*calls, c.isCut())
		}
		for _, c := range append(others, c) {
			_ = c.conn.Close()
			<-c.done
		}
	})
}

// TestResponsesMustBeTaken checks that a client that takes no response, or too slowly, loses its
// connection.
func TestResponsesMustBeTaken(t *testing.T) {
	const size = 1 << 20
	inBubble(t, server.GRPCConfig{Stall: 10 * time.Minute}, func(t *testing.T, s *rawServer) {
		for _, row := range []struct {
			name, method string
			every        time.Duration // it takes 64 KiB; 0: nothing
			cut          time.Duration // 0: it gets all
		}{
			{"nothing", "/test.Test/Unary", 0, 32 * time.Second},
			{"too slow", "/test.Test/Unary", 31 * time.Second, 31 * time.Second},
			{"in pace", "/test.Test/Unary", 20 * time.Second, 0},
			{"nothing of a stream", "/test.Test/Stream", 0, 604 * time.Second},
		} {
			c := s.dial(t, 0)
			c.call(1, row.method, size)
			begun := time.Now()
			for !c.isCut() && c.received(1) < size && time.Since(begun) < time.Hour {
				if row.every == 0 {
					pass(time.Second)
					continue
				}
				pass(row.every)
				if !c.isCut() {
					c.take(1, 64<<10)
				}
			}
			took := time.Since(begun)
			if c.isCut() != (row.cut > 0) ||
				row.cut > 0 && (took > row.cut+row.every || took < row.cut-3*time.Second) {
				t.Errorf("%s: cut %v after %v, want %v", row.name, c.isCut(), took, row.cut)
			}
			_ = c.conn.Close()
			<-c.done
		}
	})
}

// TestResetResponses checks that a response that is not sent any more does not end the connection.
func TestResetResponses(t *testing.T) {
	inBubble(t, server.GRPCConfig{}, func(t *testing.T, s *rawServer) {
		c := s.dial(t, 0)
		c.call(1, "/test.Test/Unary", 1<<20)
		synctest.Wait()
		c.write(func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) })
		synctest.Wait()
		pass(time.Minute)
		if c.isCut() {
			t.Error("the connection was closed")
		}
		_ = c.conn.Close()
	})
}

// TestRoomForRequests checks that requests on their way do not have more memory than there is room
// for: an idle request ends first, else the request that needs more. A single one has all it needs.
func TestRoomForRequests(t *testing.T) {
	const size = 1 << 20
	inBubble(t, server.GRPCConfig{Room: size}, func(t *testing.T, s *rawServer) {
		c := s.dial(t, 1<<20)
		for id := uint32(1); id <= 5; id += 2 {
			c.open(id, "/test.Test/Unary")
		}
		c.begin(1, 3*size, 0)
		more := func(id uint32, pieces int) { // each as large as the window
			for range pieces {
				synctest.Wait()
				c.more(id, 32<<10)
			}
		}
		more(1, 80)
		if got := c.ended(1); got != "" {
			t.Errorf("the only request ended: status %q", got)
		}
		c.begin(3, size, 0)
		more(3, 2)
		if first, second := c.ended(1), c.ended(3); first != "" || second != "4" {
			t.Errorf("status of the first request %q, of one that does not fit %q", first, second)
		}
		pass(time.Second)
		c.begin(5, size, 0)
		more(5, 2)
		if first, third := c.ended(1), c.ended(5); first != "4" || third != "" {
			t.Errorf("status of the idle request %q, of the next one %q", first, third)
		}
		_ = c.conn.Close()
	})
}

// TestRoomForResponses checks that clients that take nothing lose their connections if there is no
// room, and that those that take something keep them.
func TestRoomForResponses(t *testing.T) {
	const size = 1 << 20
	inBubble(t, server.GRPCConfig{Room: 5 * size / 2}, func(t *testing.T, s *rawServer) {
		idle, slow, next := s.dial(t, 0), s.dial(t, 0), s.dial(t, 0)
		idle.call(1, "/test.Test/Unary", size)
		slow.call(1, "/test.Test/Unary", size)
		pass(2 * time.Second)
		slow.take(1, 1<<10)
		if idle.isCut() || slow.isCut() {
			t.Error("a connection was closed although there was room")
		}
		next.call(1, "/test.Test/Unary", size)
		pass(2 * hurry)
		slow.take(1, 1<<10)
		if !idle.isCut() {
			t.Error("the client that takes nothing keeps its connection")
		}
		if slow.isCut() || next.isCut() {
			t.Error("another client has lost its connection")
		}
		for _, c := range []*rawClient{idle, slow, next} {
			_ = c.conn.Close()
			<-c.done
		}
	})
}

// hurry is how long a client may take nothing if there is no room.
const hurry = 500 * time.Millisecond
