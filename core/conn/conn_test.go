package conn_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/conn/metadata"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/internal/timeoutms"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/fakemongo"
	fakewire "github.com/mooringdb/mooring/internal/fakemongo/wire"
)

var _ pool.Resource = (*conn.Conn)(nil)

func dial(t *testing.T, s *fakemongo.Server, cfg conn.Config) *conn.Conn {
	t.Helper()
	cfg.Dialer = s.Dial
	c, err := conn.Dial(t.Context(), s.Address(), cfg)
	if err != nil {
		t.Fatalf("Dial() = %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// message builds a command with one field, to database "db".
func message(name string, flags wire.Flags) []byte {
	b := bson.NewBuilder(wire.BeginMsg(nil, flags))
	b.Int32(name, 1).String("$db", "db")
	b.Finish()
	msg := b.Bytes()
	wire.EndMsg(msg)
	return msg
}

func answer(n int32) bson.Raw {
	return bson.NewBuilder(nil).Int32("n", n).Double("ok", 1).Finish()
}

func number(t *testing.T, reply bson.Raw) int32 {
	t.Helper()
	v, _ := reply.Lookup("n")
	n, ok := v.Int32()
	if !ok {
		t.Fatalf("reply %v has no n", reply)
	}
	return n
}

func TestDialSaysHelloOnceWithMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, fakemongo.Handlers{
			"isMaster": func(cmd *fakemongo.Command) fakemongo.Reply {
				return fakemongo.Hello(cmd, nil).After(3 * time.Millisecond)
			},
		})
		doc, err := metadata.Client{AppName: "app", Host: metadata.ThisHost()}.Document()
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, s, conn.Config{ID: 7, Metadata: func() bson.Raw { return doc }})
		if c.ID() != 7 || c.ServerConnectionID() != 1 || c.Address() != s.Address() || !c.Alive() ||
			c.Err() != nil {
			t.Errorf("ID, ServerConnectionID, Address, Alive, Err = %v, %v, %v, %v, %v", c.ID(),
				c.ServerConnectionID(), c.Address(), c.Alive(), c.Err())
		}
		d := c.Description()
		if d.Kind != description.ServerStandalone || !d.HelloOK ||
			d.AverageRTT != 3*time.Millisecond {
			t.Errorf("Description() = %v, HelloOK %v, RTT %v, want a standalone with helloOk "+
				"after 3ms", d, d.HelloOK, d.AverageRTT)
		}
		reply, err := c.Hello(t.Context())
		if err != nil {
			t.Fatalf("Hello() = %v", err)
		}
		if v, _ := reply.Lookup("isWritablePrimary"); !v.Truthy() {
			t.Errorf("Hello() = %v, want isWritablePrimary", reply)
		}

		cmds := s.Commands()
		if len(cmds) != 2 || cmds[0].Legacy || cmds[0].Name != "isMaster" || cmds[1].Legacy ||
			cmds[1].Name != "hello" {
			t.Fatalf("commands = %+v, want an isMaster and a hello, both over OP_MSG", cmds)
		}
		for _, path := range [][]string{
			{"client", "driver", "name"},
			{"client", "driver", "version"},
			{"client", "os", "type"},
			{"client", "os", "architecture"},
			{"client", "platform"},
			{"client", "application", "name"},
		} {
			if v, _ := cmds[0].Body.Lookup(path...); v.Type != bson.TypeString {
				t.Errorf("first hello: %v is missing", path)
			}
		}
		if v, _ := cmds[0].Body.Lookup("compression"); v.Type != bson.TypeArray {
			t.Error("first hello: compression is missing")
		}
		if cmds[1].Body.Has("client") || cmds[1].Body.Has("compression") {
			t.Errorf("second hello carries what belongs to the first: %v", cmds[1].Body)
		}
	})
}

// TestHelloFields checks the fields of the hellos of each kind of connection: the first one alone
// has what belongs to the handshake, with the driver's version of backpressure (HS-101), and none
// has a $clusterTime, whatever the server sends (CM-104).
func TestHelloFields(t *testing.T) {
	api := &conn.ServerAPI{Version: "1", Strict: new(true), DeprecationErrors: new(true)}
	for name, tt := range map[string]struct {
		cfg          conn.Config
		first, later string
	}{
		"plain": {
			conn.Config{Compressors: []string{"zlib"}},
			"isMaster helloOk client compression backpressure $db", "hello helloOk $db",
		},
		"stable API": {
			conn.Config{ServerAPI: api},
			"hello client compression backpressure apiVersion apiStrict apiDeprecationErrors $db",
			"hello helloOk apiVersion apiStrict apiDeprecationErrors $db",
		},
		"load balancer": {
			conn.Config{LoadBalanced: true},
			"hello client compression backpressure loadBalanced $db", "hello helloOk $db",
		},
		"OP_QUERY": {conn.Config{Query: true}, "isMaster helloOk client compression backpressure", "hello helloOk $db"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakemongo.NewServer(t, fakemongo.Handlers{"hello": func(
					cmd *fakemongo.Command,
				) fakemongo.Reply {
					return fakemongo.Hello(cmd, func(b *bson.Builder) {
						b.ObjectID("serviceId", bson.ObjectID{1}).Int32("maxWireVersion", 21)
						b.OpenDocument("topologyVersion").ObjectID("processId", bson.ObjectID{1}).
							Int64("counter", 1).Close()
						b.OpenDocument("$clusterTime").Timestamp("clusterTime", 1, 1).Close()
					})
				}})
				c := dial(t, s, tt.cfg)
				for range 2 {
					if _, err := c.Hello(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := c.AwaitHello(t.Context(), c.Description().TopologyVersion,
					time.Second); err != nil {
					t.Fatal(err)
				}
				for i, cmd := range s.Commands() {
					want := tt.later
					switch i {
					case 0:
						want = tt.first
					case 3:
						want = strings.Replace(want, "helloOk",
							"helloOk topologyVersion maxAwaitTimeMS", 1)
					}
					var keys []string
					for key := range cmd.Body.All() {
						keys = append(keys, key)
					}
					if got := strings.Join(keys, " "); got != want ||
						cmd.Legacy != (tt.cfg.Query && i == 0) {
						t.Errorf("hello %d has the fields %s, legacy %v; want %s", i, got,
							cmd.Legacy, want)
					}
					if v, _ := cmd.Body.Lookup("backpressure"); i == 0 &&
						!v.Equal(bson.StringValue("2")) {
						t.Errorf(`backpressure = %v, want the string "2"`, v)
					}
				}
			})
		})
	}
}

// TestHelloToAServerWithoutOpMsg checks that a connection to a server that is too old goes on with
// OP_QUERY.
func TestHelloToAServerWithoutOpMsg(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		s.Intercept(func(cmd *fakemongo.Command, _ fakemongo.Handler) fakemongo.Reply {
			if !cmd.Legacy {
				return fakemongo.Drop()
			}
			return fakemongo.OK(func(b *bson.Builder) {
				b.Bool("ismaster", true).Int32("maxWireVersion", 5)
			})
		})
		c := dial(t, s, conn.Config{Query: true})
		for range 2 {
			if reply, err := c.Hello(t.Context()); err != nil || !reply.Has("ismaster") {
				t.Fatalf("Hello() = %v, %v", reply, err)
			}
		}
		if cmds := s.Commands(); cmds[1].Body.Has("client") || cmds[1].Body.Has("backpressure") {
			t.Errorf("second hello = %v", cmds[1].Body)
		}
		if _, err := conn.Dial(t.Context(), s.Address(),
			conn.Config{Dialer: s.Dial}); !mongoerr.IsNetwork(err) {
			t.Errorf("Dial() over OP_MSG = %v, want a network error", err)
		}
	})
}

func TestHelloStaysLegacyWithoutHelloOK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t,
			fakemongo.Handlers{"isMaster": fakemongo.Always(fakemongo.OK(func(
				b *bson.Builder,
			) {
				b.Bool("ismaster", true).Int32("maxWireVersion", 8)
			}))})
		c := dial(t, s, conn.Config{})
		if _, err := c.Hello(t.Context()); err != nil {
			t.Fatal(err)
		}
		if cmd := s.Commands()[1]; cmd.Name != "isMaster" || cmd.Legacy {
			t.Errorf("second hello is %q, legacy %v, want isMaster over OP_MSG", cmd.Name,
				cmd.Legacy)
		}
	})
}

func TestDialUnderAStableAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		c := dial(t, s, conn.Config{
			ServerAPI: &conn.ServerAPI{
				Version: "1", Strict: new(true), DeprecationErrors: new(false),
			},
		})
		if _, err := c.Hello(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, cmd := range s.Commands() {
			version, _ := cmd.Body.Lookup("apiVersion")
			strict, _ := cmd.Body.Lookup("apiStrict")
			deprecation, ok := cmd.Body.Lookup("apiDeprecationErrors")
			if v, _ := version.Str(); cmd.Name != "hello" || cmd.Legacy || v != "1" ||
				!strict.Truthy() || !ok || deprecation.Truthy() {
				t.Errorf("hello %d = %v, legacy %v", i, cmd.Body, cmd.Legacy)
			}
			if cmd.Body.Has("client") != (i == 0) || cmd.Body.Has("loadBalanced") {
				t.Errorf("hello %d = %v", i, cmd.Body)
			}
		}
	})
}

func TestDialLoadBalanced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, fakemongo.Handlers{"hello": func(
			cmd *fakemongo.Command,
		) fakemongo.Reply {
			return fakemongo.Hello(cmd, func(b *bson.Builder) {
				b.String("msg", "isdbgrid").ObjectID("serviceId", bson.ObjectID{1})
			})
		}})
		dial(t, s, conn.Config{LoadBalanced: true})
		if cmd := s.Commands()[0]; cmd.Name != "hello" || cmd.Legacy ||
			!cmd.Body.Has("loadBalanced") {
			t.Errorf("first hello = %+v, want hello over OP_MSG with loadBalanced", cmd)
		}
		s.Handle("hello", nil)
		const want = "Driver attempted to initialize in load balancing mode, but the server does " +
			"not support this mode."
		_, err := conn.Dial(t.Context(), s.Address(),
			conn.Config{LoadBalanced: true, Dialer: s.Dial})
		if err == nil || err.Error() != want {
			t.Errorf("Dial without a service id = %v, want %q", err, want)
		}
	})
}

func TestDialFails(t *testing.T) {
	tests := []struct {
		name    string
		hello   fakemongo.Reply
		is      error
		took    time.Duration
		network bool
	}{
		{"dropped", fakemongo.Drop(), io.ErrUnexpectedEOF, 0, true},
		{"dropped inside", fakemongo.DropInside(answer(1), 20), io.ErrUnexpectedEOF, 0, true},
		{"hung", fakemongo.Hang(), context.DeadlineExceeded, time.Second, true},
		{"refused", fakemongo.Error(59, "CommandNotFound", "no such command"), nil, 0, false},
		{"garbage", fakemongo.Garbage([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")), nil, 0, true},
		{"another's reply", fakemongo.ToAnother(answer(1), 12345), nil, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakemongo.NewServer(t,
					fakemongo.Handlers{"isMaster": fakemongo.Always(tt.hello)})
				start := time.Now()
				_, err := conn.Dial(t.Context(), s.Address(),
					conn.Config{Dialer: s.Dial, ConnectTimeout: time.Second})
				if err == nil {
					t.Fatal("Dial succeeded")
				}
				if tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("Dial() = %v, want %v", err, tt.is)
				}
				netErr, ok := errors.AsType[*mongoerr.NetworkError](err)
				if ok != tt.network || ok && netErr.Sent {
					t.Errorf("Dial() = %v, want a network error: %v, nothing sent", err, tt.network)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("Dial took %v, want %v", took, tt.took)
				}
				synctest.Wait()
				if n := s.OpenConnections(); n != 0 {
					t.Errorf("%d connections are open after a failed Dial", n)
				}
			})
		})
	}
}

// A server may be in no state to run a legacy hello, and says why.
func TestDialKeepsTheReasonOfAQueryFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, fakemongo.Handlers{"isMaster": func(
			cmd *fakemongo.Command,
		) fakemongo.Reply {
			return fakemongo.Garbage(wire.Append(nil, wire.Header{ResponseTo: cmd.RequestID},
				&wire.Reply{
					Flags: wire.QueryFailure,
					Documents: []bson.Raw{
						bson.NewBuilder(nil).String("$err", "out of tickets").Int32("code", 146).Finish(),
					},
				}))
		}})
		_, err := conn.Dial(t.Context(), s.Address(), conn.Config{Dialer: s.Dial})
		if !mongoerr.IsNetwork(err) ||
			!strings.Contains(err.Error(), `"out of tickets" (code 146)`) {
			t.Errorf("Dial() = %v, want the server's words", err)
		}
	})
}

func TestDialTransportFails(t *testing.T) {
	refused := errors.New("refused")
	_, err := conn.Dial(t.Context(), "a:1", conn.Config{Dialer: func(
		context.Context, string, string,
	) (net.Conn, error) {
		return nil, refused
	}})
	if netErr, ok := errors.AsType[*mongoerr.NetworkError](err); !ok || !errors.Is(err, refused) ||
		netErr.Op != "dial" || netErr.Address != "a:1" {
		t.Errorf("Dial() = %#v, want a network error of dial that wraps %v", err, refused)
	}
}

func TestRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := int32(0)
		s := fakemongo.NewServer(t, fakemongo.Handlers{"count": func(
			*fakemongo.Command,
		) fakemongo.Reply {
			n++
			return fakemongo.Document(answer(n))
		}})
		c := dial(t, s, conn.Config{})
		msg := message("count", 0)
		var ids []int32
		for i := int32(1); i <= 3; i++ {
			reply, err := c.RoundTrip(t.Context(), msg)
			if err != nil || number(t, reply) != i {
				t.Fatalf("RoundTrip %d = %v, %v", i, reply, err)
			}
			ids = append(ids, c.RequestID())
		}
		for i, cmd := range s.Commands("count") {
			if cmd.RequestID != ids[i] || i > 0 && ids[i] == ids[i-1] {
				t.Errorf("request %d has the id %d, want %d, and all different", i, cmd.RequestID,
					ids[i])
			}
		}
	})
}

func TestRoundTripInterrupted(t *testing.T) {
	cause := errors.New("shutting down")
	tests := []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		is   []error
		took time.Duration
	}{
		{"deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		}, []error{context.DeadlineExceeded}, 50 * time.Millisecond},
		{"cancelled with a cause", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			timer := time.AfterFunc(time.Second, func() { cancel(cause) })
			return ctx, func() { timer.Stop(); cancel(nil) }
		}, []error{context.Canceled, cause}, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakemongo.NewServer(t,
					fakemongo.Handlers{"slow": fakemongo.Always(fakemongo.Hang())})
				c := dial(t, s, conn.Config{})
				ctx, cancel := tt.ctx(t.Context())
				defer cancel()
				start := time.Now()
				_, err := c.RoundTrip(ctx, message("slow", 0))
				for _, want := range tt.is {
					if !errors.Is(err, want) {
						t.Errorf("RoundTrip() = %v, want %v", err, want)
					}
				}
				if netErr, ok := errors.AsType[*mongoerr.NetworkError](err); !ok || !netErr.Sent {
					t.Errorf("RoundTrip() = %#v, want a network error with Sent", err)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("RoundTrip took %v, want %v", took, tt.took)
				}
				if c.Alive() || c.Err() == nil {
					t.Error("connection is alive after an interruption")
				}
				_, err = c.RoundTrip(t.Context(), message("ping", 0))
				if netErr, ok := errors.AsType[*mongoerr.NetworkError](err); !ok || netErr.Sent {
					t.Errorf("RoundTrip on a broken connection = %v, want a network error "+
						"without Sent", err)
				}
			})
		})
	}
}

func TestRoundTripWriteIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, fakemongo.Handlers{"stuck": func(
			*fakemongo.Command,
		) fakemongo.Reply {
			return fakemongo.Silent().After(time.Hour) // the server reads nothing meanwhile
		}})
		c := dial(t, s, conn.Config{})
		if err := c.Write(t.Context(), message("stuck", wire.MoreToCome)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.RoundTrip(ctx, message("ping", 0))
		if netErr, ok := errors.AsType[*mongoerr.NetworkError](err); !ok || netErr.Op != "write" ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("RoundTrip() = %v, want a write that ran into its deadline", err)
		}
	})
}

func TestContextThatEndedBeforeBreaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		c := dial(t, s, conn.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.RoundTrip(ctx, message("ping", 0))
		if _, ok := errors.AsType[*mongoerr.NetworkError](err); ok ||
			!errors.Is(err, context.Canceled) {
			t.Errorf("RoundTrip() = %v, want context.Canceled and no network error", err)
		}
		if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil ||
			len(s.Commands("ping")) != 1 {
			t.Errorf("RoundTrip afterwards = %v, want one ping", err)
		}
	})
}

func TestInterruptFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, fakemongo.Handlers{"slow": fakemongo.Always(fakemongo.Hang())})
		c := dial(t, s, conn.Config{})
		cause := errors.New("cleared")
		time.AfterFunc(time.Second, func() { c.Interrupt(cause) })
		if _, err := c.RoundTrip(t.Context(), message("slow", 0)); !errors.Is(err, cause) {
			t.Errorf("RoundTrip() = %v, want %v", err, cause)
		}
		if c.Alive() {
			t.Error("connection is alive after Interrupt")
		}
	})
}

func TestSocketTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, fakemongo.Handlers{"slow": fakemongo.Always(fakemongo.Hang())})
		c := dial(t, s, conn.Config{SocketTimeout: time.Minute})
		for range 2 {
			time.Sleep(time.Hour) //nolint:forbidigo // fake time
			if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		_, err := c.RoundTrip(t.Context(), message("slow", 0))
		if netErr, ok := errors.AsType[*mongoerr.NetworkError](err); !ok || !netErr.Timeout() ||
			time.Since(start) != time.Minute {
			t.Errorf("RoundTrip() = %v after %v, want a timeout after a minute", err,
				time.Since(start))
		}
	})
}

// TestSocketTimeoutOfAnEarlierRequest checks that a request under timeoutMS has no socket timeout,
// nor the deadline that the request before it has left on the connection.
func TestSocketTimeoutOfAnEarlierRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		c := dial(t, s, conn.Config{SocketTimeout: time.Minute})
		for _, ctx := range []context.Context{t.Context(), timeoutms.Mark(t.Context())} {
			if _, err := c.RoundTrip(ctx, message("ping", 0)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour) //nolint:forbidigo // fake time
		}
	})
}

// Over TCP, since net.Pipe has no buffer for a reply that is not read.
func TestUnansweredWritesThatAreAnsweredNevertheless(t *testing.T) {
	s := fakemongo.NewTCPServer(t, fakemongo.Handlers{
		"quiet": fakemongo.Always(fakemongo.EvenUnasked(answer(0))),
		"count": fakemongo.Always(fakemongo.Document(answer(5))),
	})
	c, err := conn.Dial(t.Context(), s.Address(), conn.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for range 2 {
		for range 3 {
			if err := c.Write(t.Context(), message("quiet", wire.MoreToCome)); err != nil {
				t.Fatal(err)
			}
		}
		reply, err := c.RoundTrip(t.Context(), message("count", 0))
		if err != nil || number(t, reply) != 5 {
			t.Fatalf("RoundTrip() = %v, %v, want the reply to itself", reply, err)
		}
	}
}

func TestServerThatLies(t *testing.T) {
	bare := func(length uint32, responseTo int32, opCode uint32, rest ...byte) fakemongo.Reply {
		h := fakewire.Header{Length: length, ID: 1, ResponseTo: responseTo, OpCode: opCode}
		return fakemongo.Garbage(h.Append(nil, rest...))
	}
	tests := []struct {
		name  string
		reply func(id int32) fakemongo.Reply
	}{
		{"length 0", func(id int32) fakemongo.Reply { return bare(0, id, fakewire.OpMsg) }},
		{"huge length", func(id int32) fakemongo.Reply { return bare(0x7fffffff, id, fakewire.OpMsg) }},
		{"opcode", func(id int32) fakemongo.Reply { return bare(16, id, 99) }},
		{"no body", func(id int32) fakemongo.Reply { return bare(20, id, fakewire.OpMsg, 0, 0, 0, 0) }},
		{"a request", func(id int32) fakemongo.Reply {
			msg := wire.Append(nil, wire.Header{ResponseTo: id},
				&wire.Query{Collection: "c", Query: answer(1)})
			return fakemongo.Garbage(msg)
		}},
		{"another's", func(id int32) fakemongo.Reply { return fakemongo.ToAnother(answer(1), id+1) }},
		{"one of the past", func(id int32) fakemongo.Reply { return fakemongo.ToAnother(answer(1), id-1) }},
		{"more to come", func(id int32) fakemongo.Reply {
			return fakemongo.Garbage(wire.Append(nil, wire.Header{ResponseTo: id},
				&wire.Msg{Flags: wire.MoreToCome, Body: answer(1)}))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakemongo.NewServer(t, fakemongo.Handlers{"lie": func(
					cmd *fakemongo.Command,
				) fakemongo.Reply {
					return tt.reply(cmd.RequestID)
				}})
				c := dial(t, s, conn.Config{})
				_, err := c.RoundTrip(t.Context(), message("lie", 0))
				_, isFormat := errors.AsType[*wire.FormatError](err)
				netErr, ok := errors.AsType[*mongoerr.NetworkError](err)
				if !ok || !netErr.Sent || !isFormat || c.Alive() {
					t.Errorf("RoundTrip() = %v, alive %v, want a network error that wraps a "+
						"format error", err, c.Alive())
				}
			})
		})
	}
}

func TestTooLargeBreaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t,
			fakemongo.Handlers{"isMaster": fakemongo.Always(fakemongo.OK(func(
				b *bson.Builder,
			) {
				b.Bool("ismaster", true).Int32("maxWireVersion", 21).
					Int32("maxMessageSizeBytes", 100)
			}))})
		c := dial(t, s, conn.Config{})
		msg := append(message("ping", 0), bytes.Repeat([]byte{0}, 100)...)
		_, err := c.RoundTrip(t.Context(), msg)
		if tooLarge, ok := errors.AsType[*conn.TooLargeError](err); !ok || tooLarge.Max != 100 {
			t.Errorf("RoundTrip() = %v, want a *TooLargeError", err)
		}
		if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil {
			t.Errorf("RoundTrip afterwards = %v", err)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		c := dial(t, s, conn.Config{})
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if _, err := c.RoundTrip(t.Context(), message("ping", 0)); !errors.Is(err, conn.ErrClosed) {
			t.Errorf("RoundTrip after Close = %v, want ErrClosed", err)
		}
		synctest.Wait()
		if n := s.OpenConnections(); n != 0 {
			t.Errorf("%d connections are open after Close", n)
		}
	})
}
