package interceptor_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// guarded returns a chain that authenticates, and a key of the principal shop that ends at a time.
func guarded(t testing.TB, expires time.Time, log *slog.Logger) (*interceptor.Chain, string) {
	t.Helper()
	key, line, err := caller.NewKey("shop", expires)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := caller.ParseKeys([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	callers := caller.New(caller.Config{Keys: keys, CertificateName: caller.CommonName})
	return interceptor.New(interceptor.Config{Callers: callers, Logger: log}), key
}

func TestAuthenticate(t *testing.T) {
	var log bytes.Buffer
	x, key := guarded(t, time.Time{},
		slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	leaf := certtest.Authority(t, certtest.ECDSA).Issue(t, "client").Certificate
	from := func(state tls.ConnectionState) *peer.Peer {
		return &peer.Peer{
			Addr:     &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1},
			AuthInfo: credentials.TLSInfo{State: state},
		}
	}
	for _, row := range []struct {
		name string
		md   []string
		peer *peer.Peer
		want string // the principal, or the message
	}{
		{"nothing", nil, nil, "needs credentials"},
		{"bearer", []string{"authorization", "Bearer " + key}, nil, "key:shop"},
		{"api-key", []string{"api-key", key}, nil, "key:shop"},
		{"apikey", []string{"apikey", key}, nil, "key:shop"},
		{"both", []string{"apikey", key, "api-key", key}, nil, "more than once"},
		{"wrong", []string{"api-key", "x"}, from(tls.ConnectionState{}), "is not valid"},
		{"a principal in metadata", []string{"principal", "key:shop", "mooring-principal", "key:shop"}, nil, "needs credentials"},
		{"certificate", nil, from(tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}), "cert:client"},
		{"a certificate that is not verified", nil, from(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}), "needs credentials"},
		{"plain text", nil, &peer.Peer{Addr: &net.UnixAddr{Name: "x"}}, "needs credentials"},
	} {
		ctx := incoming(t.Context(),
			append([]string{interceptor.RequestIDKey, "abc-1"}, row.md...)...)
		if row.peer != nil {
			ctx = peer.NewContext(ctx, row.peer)
		}
		log.Reset()
		ctx, err := x.Authenticate(ctx, "/s/M")
		if err != nil {
			r := rpcerr.HTTP(err)
			if e := r.Body.GetError(); status.Code(err) != codes.Unauthenticated ||
				e.GetRequestId() != "abc-1" || !strings.Contains(e.GetMessage(), row.want) {
				t.Errorf("%s: %v, want %s", row.name, r.Body, row.want)
			}
			if text := log.String(); !strings.Contains(text,
				"level=INFO msg=\"request refused\"") ||
				!strings.Contains(text, "reason=Unauthenticated") ||
				!strings.Contains(text, "method=/s/M") || strings.Contains(text, key) {
				t.Errorf("%s: log %s", row.name, text)
			}
			continue
		}
		err = unary(ctx, x, func(ctx context.Context) error {
			if c := call.From(ctx); c.Principal != row.want || c.RequestID != "abc-1" {
				t.Errorf("%s: the call is %+v, want the principal %s", row.name, c, row.want)
			}
			return nil
		})
		if text := log.String(); err != nil || !strings.Contains(text, "principal="+row.want) ||
			strings.Contains(text, key) {
			t.Errorf("%s: %v, log %s", row.name, err, text)
		}
	}
}

// TestWithoutCallers checks that nothing is asked of clients if there is no authentication.
func TestWithoutCallers(t *testing.T) {
	x := interceptor.New(interceptor.Config{})
	ctx := incoming(t.Context(), "authorization", "Bearer x")
	if got, err := x.Authenticate(ctx, "/s/M"); got != ctx || err != nil {
		t.Errorf("Authenticate = %v, %v, want the same context", got, err)
	}
}

// TestUnknownCallers checks that a call that no listener has authenticated reaches no handler,
// whatever its metadata say.
func TestUnknownCallers(t *testing.T) {
	x, key := guarded(t, time.Time{}, nil)
	ctx := incoming(t.Context(), "authorization", "Bearer "+key)
	for name, run := range map[string]func(context.Context, *interceptor.Chain,
		func(context.Context) error) error{"unary": unary, "stream": stream} {
		err := run(ctx, x, func(context.Context) error {
			t.Errorf("%s: the handler runs", name)
			return nil
		})
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v, want UNAUTHENTICATED", name, err)
		}
	}
}

// TestStreamsExpire checks that a stream ends when its credential does, and that a unary call and
// an error of the handler's own are not touched.
func TestStreamsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, key := guarded(t, time.Now().Add(time.Minute), nil)
		authenticated := func() context.Context {
			ctx, err := x.Authenticate(metadata.NewIncomingContext(t.Context(),
				metadata.Pairs("api-key", key)), "/s/S")
			if err != nil {
				t.Fatal(err)
			}
			return ctx
		}
		begin := time.Now()
		err := stream(authenticated(), x, func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); ok {
				t.Error("the stream has a deadline, which would limit the server's work")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if status.Code(err) != codes.Unauthenticated ||
			time.Since(begin) > time.Minute+2*time.Second {
			t.Errorf("the stream ended with %v after %s", err, time.Since(begin))
		}
		x, key = guarded(t, time.Now().Add(time.Minute), nil)
		ctx := authenticated()
		if err := stream(ctx, x, func(context.Context) error {
			return status.Error(codes.NotFound, "x")
		}); status.Code(err) != codes.NotFound {
			t.Errorf("a handler's own error: %v", err)
		}
		err = unary(ctx, x, func(ctx context.Context) error {
			time.Sleep(time.Hour) //nolint:forbidigo // fake time
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("a unary call beyond the time: %v", err)
		}
	})
}

// taking accepts the messages of a stream.
type taking struct{ serverStream }

func (taking) SendMsg(any) error { return nil }
func (taking) RecvMsg(any) error { return nil }

// TestRemovedKeysEndStreams checks that a stream ends with its next message after its client's API
// key was removed, and not if the same key was read again.
func TestRemovedKeysEndStreams(t *testing.T) {
	key, line, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := caller.NewKey("other", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	table := func(lines ...string) *caller.KeyTable {
		keys, err := caller.ParseKeys([]byte(strings.Join(lines, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	callers := caller.New(caller.Config{Keys: table(line)})
	x := interceptor.New(interceptor.Config{Callers: callers})
	ctx, err := x.Authenticate(incoming(t.Context(), "api-key", key), "/s/S")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		keys *caller.KeyTable
		want codes.Code
	}{
		{"the same key", table(other, line), codes.OK},
		{"the key of another principal", table(strings.Replace(line, "shop", "shops", 1)), codes.Unauthenticated},
		{"no such key", table(other), codes.Unauthenticated},
	} {
		for _, receives := range []bool{false, true} {
			callers.Replace(table(line))
			err := x.Stream()(nil, taking{serverStream{ctx: ctx}},
				&grpc.StreamServerInfo{FullMethod: "/s/S", IsClientStream: receives}, func(
					_ any, ss grpc.ServerStream,
				) error {
					if err := ss.RecvMsg(nil); err != nil {
						return err
					}
					callers.Replace(row.keys)
					if receives {
						return ss.RecvMsg(nil)
					}
					return ss.SendMsg(nil)
				})
			if status.Code(err) != row.want {
				t.Errorf("%s, receives %v: %v, want %s", row.name, receives, err, row.want)
			}
		}
	}
}

// TestKeysRemovedBeforeStreamIsOpen checks that a stream does not begin if its client's API key was
// removed, or ends sooner, after the client was authenticated and before the stream is one of the
// open streams, which the next change of the keys would end.
func TestKeysRemovedBeforeStreamIsOpen(t *testing.T) {
	key, line, err := caller.NewKey("shop", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := caller.NewKey("other", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	later, sooner := line, strings.Replace(line, "expires=20", "expires=19", 1)
	table := func(line string) *caller.KeyTable {
		keys, err := caller.ParseKeys([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	for _, row := range []struct {
		name string
		line string
		want codes.Code
	}{
		{"the same key", later, codes.OK},
		{"the same key in a group", later + " groups=a", codes.OK},
		{"the same key, which ends sooner", sooner, codes.Unauthenticated},
		{"no such key", other, codes.Unauthenticated},
		{"the key of another principal", strings.Replace(line, "shop", "shops", 1), codes.Unauthenticated},
	} {
		callers := caller.New(caller.Config{Keys: table(line)})
		x := interceptor.New(interceptor.Config{Callers: callers})
		x.Trace(func(step string) {
			if step == "gate" {
				callers.Replace(table(row.line))
			}
		})
		ctx, err := x.Authenticate(incoming(t.Context(), "api-key", key), "/s/S")
		if err != nil {
			t.Fatal(err)
		}
		err = stream(ctx, x, func(context.Context) error { return nil })
		if status.Code(err) != row.want {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
		}
	}
}
