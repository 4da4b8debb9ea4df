package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/server"
)

// countedConn counts what a client reads.
type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// client connects a client of grpc, and returns how many bytes it has read.
func (s *rawServer) client(t *testing.T) (*grpc.ClientConn, *atomic.Int64) {
	t.Helper()
	read := &atomic.Int64{}
	cc, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := s.l.dial(ctx, "")
			return countedConn{conn, read}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	return cc, read
}

// TestCompression makes compressed calls with grpc's own client: small and large messages, and
// streams.
func TestCompression(t *testing.T) {
	for _, name := range []string{"gzip", "zstd"} {
		inBubble(t, server.GRPCConfig{}, func(t *testing.T, s *rawServer) {
			cc, read := s.client(t)
			defer func() { _ = cc.Close() }()
			use := grpc.UseCompressor(name)
			size := wrapperspb.Bytes(binary.BigEndian.AppendUint32(nil, 2<<20))
			out := &wrapperspb.BytesValue{}
			if err := cc.Invoke(t.Context(), "/test.Test/Unary", size, out, use); err != nil ||
				len(out.Value) != 2<<20 {
				t.Fatalf("%s: %d bytes, %v", name, len(out.Value), err)
			}
			if n := read.Load(); n > 64<<10 {
				t.Errorf("%s: %d bytes for a response of 2 MiB of zeros", name, n)
			}
			text := make([]byte, 1<<20)
			for i := range text {
				text[i] = "0123456789abcdef"[rand.IntN(16)]
			}
			for _, value := range []string{
				"", "small", strings.Repeat("mooring", 100_000), string(text),
			} {
				in := &structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue(value)}}
				out := &structpb.ListValue{}
				if err := cc.Invoke(t.Context(), "/test.Test/List", in, out, use); err != nil ||
					!proto.Equal(in, out) {
					t.Errorf("%s of %d bytes: %v", name, len(value), err)
				}
			}
			stream, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true},
				"/test.Test/Stream", use)
			if err != nil || stream.SendMsg(size) != nil || stream.CloseSend() != nil {
				t.Fatalf("%s: no stream: %v", name, err)
			}
			for range 2 {
				if err := stream.RecvMsg(out); err != nil || len(out.Value) != 2<<20 {
					t.Errorf("%s: a message of the stream: %d bytes, %v", name, len(out.Value), err)
				}
			}
		})
	}
}

// TestMinCompressed checks from which size a response is compressed.
func TestMinCompressed(t *testing.T) {
	for _, least := range []int{0, 8 << 10} {
		inBubble(t, server.GRPCConfig{MinCompressed: least}, func(t *testing.T, s *rawServer) {
			cc, read := s.client(t)
			defer func() { _ = cc.Close() }()
			for _, size := range []uint32{1900, 2100, 8000, 8200} {
				before := read.Load()
				in := wrapperspb.Bytes(binary.BigEndian.AppendUint32(nil, size))
				if err := cc.Invoke(t.Context(), "/test.Test/Unary", in, &wrapperspb.BytesValue{},
					grpc.UseCompressor("gzip")); err != nil {
					t.Fatal(err)
				}
				want := int(size) >= cmp.Or(least, 2<<10)
				if got := read.Load()-before < 1000; got != want {
					t.Errorf("from %d bytes: one of %d is compressed: %t", least, size, got)
				}
			}
		})
	}
}

// TestCompressionBombs checks that a request is bounded by what it becomes, before it is that.
func TestCompressionBombs(t *testing.T) {
	for _, name := range []string{"gzip", "zstd"} {
		call := func(cfg server.GRPCConfig, size int) (err error) {
			inBubble(t, cfg, func(t *testing.T, s *rawServer) {
				cc, _ := s.client(t)
				defer func() { _ = cc.Close() }()
				err = cc.Invoke(t.Context(), "/test.Test/Unary",
					wrapperspb.Bytes(make([]byte, size)), &wrapperspb.BytesValue{},
					grpc.UseCompressor(name))
			})
			return err
		}
		if err := call(server.GRPCConfig{}, 3<<20); err != nil {
			t.Errorf("%s: 3 MiB of zeros: %v", name, err)
		}
		err := call(server.GRPCConfig{}, 40<<20)
		if status.Code(err) != codes.ResourceExhausted ||
			rpcerr.HTTP(err).Body.GetError().GetReason() != "MessageTooLarge" {
			t.Errorf("%s: 40 MiB of zeros: %v", name, err)
		}
		a, cfg := charging(1 << 20)
		if err := call(cfg, 3<<20); err == nil || a.Bytes().Held != 0 {
			t.Errorf("%s: 3 MiB of zeros, of a budget of 1 MiB: %v, %d are held", name, err,
				a.Bytes().Held)
		}
	}
}

// TestCompressedCopiesAreCharged checks that a response is charged with its copies while it is
// compressed, and only then. Without memory for them it is sent as it is.
func TestCompressedCopiesAreCharged(t *testing.T) {
	const size = 3 << 20
	for _, row := range []struct {
		coding string
		budget int64
		want   string // grpc-status
		coded  bool
	}{
		{"gzip", 2 << 20, "3", true}, // it never fits
		{"gzip", 8 << 20, "0", false},
		{"gzip", 10 << 20, "0", false}, // the rest is for others
		{"gzip", 12 << 20, "0", true},
		{"zstd", 8 << 20, "0", false},
		{"zstd", 12 << 20, "0", true},
	} {
		a, cfg := charging(row.budget)
		inBubble(t, cfg, func(t *testing.T, s *rawServer) {
			c := s.dial(t, 4<<20)
			c.callCoded(1, "/test.Test/Unary", row.coding, size)
			c.take(1, 4<<20)
			got, n := c.ended(1), c.received(1)
			if got != row.want || n < size == !row.coded {
				t.Errorf("%+v: status %q, %d bytes", row, got, n)
			}
			checkHeld(t, a, "after the call", 0)
			_ = c.conn.Close()
		})
	}
}

// TestCompressionWindow checks that the window which a few bytes of zstd announce is charged, and
// released.
func TestCompressionWindow(t *testing.T) {
	// A frame with a window of 8 MiB and no text, which is an empty message.
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3, 1, 0, 0}
	for budget, want := range map[int64]string{4 << 20: "3", 16 << 20: "0"} {
		a, cfg := charging(budget)
		inBubble(t, cfg, func(t *testing.T, s *rawServer) {
			raw := s.dial(t, 1<<20)
			raw.openCoded(1, "/test.Test/Unary", "zstd")
			message := append(prefix(len(frame)), frame...)
			message[0] = 1
			raw.send(1, message)
			if got := raw.ended(1); got != want {
				t.Errorf("with %d bytes: status %q, want %s", budget, got, want)
			}
			checkHeld(t, a, "after the call", 0)
			_ = raw.conn.Close()
		})
	}
}

// TestMalformedCompression checks requests that cannot be inflated.
func TestMalformedCompression(t *testing.T) {
	for _, c := range []struct {
		name, coding string
		flags        byte
		want         string // grpc-status
	}{
		{"no gzip", "gzip", 1, "3"},
		{"no zstd", "zstd", 1, "3"},
		{"no coding", "", 1, "12"},
		{"an unknown coding", "br", 1, "12"},
		{"unknown flags", "gzip", 2, "3"},
	} {
		inBubble(t, server.GRPCConfig{}, func(t *testing.T, s *rawServer) {
			raw := s.dial(t, 1<<20)
			raw.openCoded(1, "/test.Test/Unary", c.coding)
			message := append(prefix(3), "abc"...)
			message[0] = c.flags
			raw.send(1, message)
			if got := raw.ended(1); got != c.want {
				t.Errorf("%s: status %q, want %s", c.name, got, c.want)
			}
			_ = raw.conn.Close()
		})
	}
}

// TestCompressedResponsesAreWatched checks that a compressed response is charged until the client
// takes it, and that a client which does not take it is cut.
func TestCompressedResponsesAreWatched(t *testing.T) {
	const size = 3 << 20
	a, cfg := charging(16 << 20)
	whole := int64(proto.Size(wrapperspb.Bytes(make([]byte, size))))
	inBubble(t, cfg, func(t *testing.T, s *rawServer) {
		in, err := proto.Marshal(wrapperspb.Bytes(binary.BigEndian.AppendUint32(nil, size)))
		if err != nil {
			t.Fatal(err)
		}
		message := append(prefix(len(in)), in...)
		taker := s.dial(t, 1<<20)
		taker.openCoded(1, "/test.Test/Unary", "gzip")
		taker.send(1, message)
		if got := taker.ended(1); got != "0" || taker.received(1) > 100<<10 {
			t.Errorf("status %q, %d bytes", got, taker.received(1))
		}
		checkHeld(t, a, "a response that is taken", 0)
		small, err := proto.Marshal(wrapperspb.Bytes(binary.BigEndian.AppendUint32(nil, 200<<10)))
		if err != nil {
			t.Fatal(err)
		}
		taker.openCoded(3, "/test.Test/Unary", "gzip")
		taker.send(3, append(prefix(len(small)), small...))
		if got := taker.ended(3); got != "0" || taker.received(3) > 10<<10 {
			t.Errorf("status %q, %d bytes", got, taker.received(3))
		}
		checkHeld(t, a, "a response that becomes small", 0)
		_ = taker.conn.Close()
		c := s.dial(t, 0)
		c.openCoded(1, "/test.Test/Unary", "gzip")
		c.send(1, message)
		checkHeld(t, a, "a response that is not taken", whole)
		pass(2 * time.Minute)
		if !c.isCut() {
			t.Error("the client that takes nothing is still there")
		}
		checkHeld(t, a, "without the client", 0)
	})
}

// send sends the whole of a request.
func (c *rawClient) send(id uint32, message []byte) {
	c.write(func(f *http2.Framer) error { return f.WriteData(id, true, bytes.Clone(message)) })
}
