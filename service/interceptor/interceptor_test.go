package interceptor_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// unary runs a handler through the chain.
func unary(
	ctx context.Context, x *interceptor.Chain, handler func(ctx context.Context) error,
) error {
	_, err := x.Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/s/M"}, func(
		ctx context.Context, _ any,
	) (any, error) {
		return "response", handler(ctx)
	})
	return err
}

type serverStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as grpc has it
}

func (s serverStream) Context() context.Context { return s.ctx }

func stream(
	ctx context.Context, x *interceptor.Chain, handler func(ctx context.Context) error,
) error {
	//nolint:contextcheck // the stream has it
	return x.Stream()(nil, serverStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/s/S"}, func(
		_ any, ss grpc.ServerStream,
	) error {
		return handler(ss.Context())
	})
}

func incoming(ctx context.Context, kv ...string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs(kv...))
}

func TestErrorsBecomeStatuses(t *testing.T) {
	x := interceptor.New(interceptor.Config{})
	for name, run := range map[string]func(context.Context, *interceptor.Chain,
		func(context.Context) error) error{"unary": unary, "stream": stream} {
		t.Run(name, func(t *testing.T) {
			ctx := incoming(t.Context(), interceptor.RequestIDKey, "abc-1")
			if err := run(ctx, x, func(context.Context) error { return nil }); err != nil {
				t.Errorf("no error: %v", err)
			}
			err := run(ctx, x, func(context.Context) error { return paging.ErrCursorNotFound })
			r := rpcerr.HTTP(err)
			if r.Code != 404 || r.Body.GetError().GetRequestId() != "abc-1" {
				t.Errorf("response %d %v", r.Code, r.Body)
			}
			for _, id := range []string{"", "ä", strings.Repeat("x", 65), "a b"} {
				err := run(incoming(t.Context(), interceptor.RequestIDKey, id), x, func(
					context.Context,
				) error {
					return paging.ErrCursorNotFound
				})
				if got := rpcerr.HTTP(err).Body.GetError().GetRequestId(); got == id || got == "" {
					t.Errorf("id %q becomes %q", id, got)
				}
			}
			err = run(ctx, x, func(context.Context) error { panic("the password") })
			if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "password") {
				t.Errorf("a panic: %v", err)
			}
		})
	}
}

// TestComment checks that calls have the comment that Config makes, and none without it.
func TestComment(t *testing.T) {
	comment := bson.StringValue("of the gateway")
	for name, of := range map[string]func(context.Context) *bson.Value{
		"none": nil, "one": func(context.Context) *bson.Value { return &comment },
	} {
		x := interceptor.New(interceptor.Config{Comment: of})
		err := unary(t.Context(), x, func(ctx context.Context) error {
			if got := call.From(ctx).Comment; (got == &comment) != (of != nil) {
				t.Errorf("%s: the call has %v", name, got)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHandlersLearnOfTheCall checks that each handler finds the call in its context. It also checks
// that an unknown encoding is refused before a handler runs.
func TestHandlersLearnOfTheCall(t *testing.T) {
	x := interceptor.New(interceptor.Config{})
	for name, run := range map[string]func(context.Context, *interceptor.Chain,
		func(context.Context) error) error{"unary": unary, "stream": stream} {
		for text, want := range map[string]payload.Encoding{
			"": payload.BSON, "json": payload.JSON, "canonical-json": payload.CanonicalJSON,
		} {
			ctx := incoming(t.Context(), interceptor.RequestIDKey, "abc-1")
			if text != "" {
				ctx = incoming(t.Context(), interceptor.RequestIDKey, "abc-1", payload.EncodingKey,
					text)
			}
			err := run(ctx, x, func(ctx context.Context) error {
				if got := *call.From(ctx); got != (call.Call{
					Local: call.Local{RequestID: "abc-1"}, Encoding: want,
				}) {
					t.Errorf("%s, %q: %+v", name, text, got)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s, %q: %v", name, text, err)
			}
		}
		local := call.Local{RequestID: "abc-1", Casual: true, Text: true, Built: true}
		ctx := &call.LocalContext{
			Context: incoming(t.Context(), interceptor.RequestIDKey, "abc-2"), Local: local,
		}
		if err := run(ctx, x, func(ctx context.Context) error {
			if got := *call.From(ctx); got != (call.Call{Local: local}) {
				t.Errorf("%s, from REST: %+v", name, got)
			}
			return nil
		}); err != nil {
			t.Errorf("%s, from REST: %v", name, err)
		}
		err := run(incoming(t.Context(), payload.EncodingKey, "xml"), x, func(
			context.Context,
		) error {
			t.Errorf("%s: the handler runs", name)
			return nil
		})
		if e := rpcerr.HTTP(err).Body.GetError(); e.GetReason() != "InvalidArgument" ||
			e.GetField() != payload.EncodingKey || e.GetRequestId() == "" {
			t.Errorf("%s: an unknown encoding: %v", name, e)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a context without a call has one")
		}
	}()
	call.From(t.Context())
}

func TestLog(t *testing.T) {
	for _, test := range []struct {
		name  string
		level slog.Level
		run   func(context.Context) error
		want  []string // one a line
	}{
		{"debug", slog.LevelDebug, func(context.Context) error { return nil }, []string{"level=DEBUG msg=request method=/s/M request_id=r1 code=OK duration="}},
		{"info", slog.LevelInfo, func(context.Context) error { return paging.ErrCursorNotFound }, nil},
		{"debug, failed", slog.LevelDebug, func(context.Context) error { return paging.ErrCursorNotFound }, []string{"code=NotFound"}},
		{"our fault", slog.LevelInfo, func(context.Context) error { return errors.New("what?") }, []string{"level=ERROR msg=\"request failed\" method=/s/M request_id=r1 code=Internal reason=Internal duration="}},
		{"panic", slog.LevelInfo, func(context.Context) error { panic("oh") }, []string{"level=ERROR msg=panic method=/s/M request_id=r1 panic=oh stack=", "msg=\"request failed\""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			x := interceptor.New(interceptor.Config{
				Logger: slog.New(slog.NewTextHandler(&out,
					&slog.HandlerOptions{Level: test.level})),
			})
			_ = unary(incoming(t.Context(), interceptor.RequestIDKey, "r1"), x, test.run)
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if out.Len() == 0 {
				lines = nil
			}
			if len(lines) != len(test.want) {
				t.Fatalf("%d lines, want %d:\n%s", len(lines), len(test.want), out.String())
			}
			for i, want := range test.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("line %s, want %s", lines[i], want)
				}
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := interceptor.New(interceptor.Config{DefaultTimeout: time.Minute})
		limited := interceptor.New(interceptor.Config{MaxTimeout: time.Minute})
		within := func(run func(context.Context, *interceptor.Chain,
			func(context.Context) error) error) func(context.Context, *interceptor.Chain, func(
			context.Context,
		) error) error {
			return func(ctx context.Context, _ *interceptor.Chain, handler func(
				context.Context,
			) error,
			) error {
				return run(ctx, limited, handler)
			}
		}
		left := func(ctx context.Context, run func(context.Context, *interceptor.Chain, func(
			context.Context,
		) error) error,
		) (d time.Duration) {
			if err := run(ctx, x, func(ctx context.Context) error {
				if deadline, ok := ctx.Deadline(); ok {
					d = time.Until(deadline)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			return d
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		long, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, test := range []struct {
			name string
			got  time.Duration
			want time.Duration
		}{
			{"default", left(t.Context(), unary), time.Minute},
			{"no default for streams", left(t.Context(), stream), 0},
			{"the call's own, shorter", left(short, unary), time.Second},
			{"the call's own, longer", left(long, unary), time.Hour},
			{"metadata", left(incoming(t.Context(), interceptor.TimeoutKey, "5s"), unary), 5 * time.Second},
			{"the shortest counts", left(incoming(short, interceptor.TimeoutKey, "5s"), unary), time.Second},
			{"the longest, without a deadline", left(t.Context(), within(unary)), time.Minute},
			{"the longest, and a longer deadline", left(long, within(unary)), time.Minute},
			{"the longest, and longer metadata", left(incoming(t.Context(), interceptor.TimeoutKey, "5m"), within(unary)), time.Minute},
			{"the longest, and a shorter deadline", left(short, within(unary)), time.Second},
			{"the longest is not for streams", left(t.Context(), within(stream)), 0},
			{"metadata on a stream", left(incoming(long, interceptor.TimeoutKey, "90s"), stream), 90 * time.Second},
		} {
			if test.got != test.want {
				t.Errorf("%s: %v, want %v", test.name, test.got, test.want)
			}
		}
		for _, bad := range []string{"5", "-1s", "0s", "soon"} {
			err := unary(incoming(t.Context(), interceptor.TimeoutKey, bad), x, func(
				context.Context,
			) error {
				return nil
			})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("timeout %q: %v", bad, err)
			}
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := interceptor.NewGate()
		x := interceptor.New(interceptor.Config{Gate: gate})
		var wg sync.WaitGroup
		finished, cut := 0, 0
		var mu sync.Mutex
		for i := range 50 {
			wg.Go(func() {
				err := stream(t.Context(), x, func(ctx context.Context) error {
					select {
					case <-time.After(time.Duration(i+1) * time.Second):
						return nil
					case <-ctx.Done():
						time.Sleep(time.Second) //nolint:forbidigo // fake time; kills its cursor
						return ctx.Err()
					}
				})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					finished++
				case status.Code(err) == codes.Unavailable &&
					rpcerr.HTTP(err).Body.GetError().GetReason() == "ShuttingDown":
					cut++
				default:
					t.Errorf("a stream ended with %v", err)
				}
			})
		}
		synctest.Wait()
		if n := gate.InFlight(); n != 50 {
			t.Errorf("%d calls in flight", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second+time.Millisecond)
		defer cancel()
		go func() {
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			err := unary(t.Context(), x, func(context.Context) error { return nil })
			if r := rpcerr.HTTP(err); r.Code != 503 ||
				r.Body.GetError().GetRetry() != "same-request" || r.RetryAfter == 0 {
				t.Errorf("a new call: %v", r)
			}
		}()
		if err := gate.Drain(ctx); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if finished != 20 || cut != 30 || gate.Cut() != 30 || gate.InFlight() != 0 {
			t.Errorf("%d finished, %d cut, Cut() = %d, %d in flight", finished, cut, gate.Cut(),
				gate.InFlight())
		}
	})
}

// wire implements a stream whose client receives each message after a delay.
type wire struct {
	grpc.ServerStream
	ctx   context.Context //nolint:containedctx // as grpc has it
	takes time.Duration
	ended chan struct{} // closed when the handler has returned, as grpc ends its streams
}

func (w *wire) Context() context.Context { return w.ctx }

func (w *wire) SendMsg(any) error { return w.send(w.ended) }

func (w *wire) send(ended <-chan struct{}) error {
	select {
	case <-time.After(w.takes):
		return nil
	case <-ended:
		return status.Error(codes.Canceled, "the stream is over")
	}
}

// rendezvous implements a stream whose sends a context can end, as on REST.
type rendezvous struct{ *wire }

func (r rendezvous) SendMsgContext(ctx context.Context, _ any) error { return r.send(ctx.Done()) }
func (rendezvous) RecvMsgContext(context.Context, any) error         { return nil }

// TestStalledStream checks that the stream of a client that does not read ends after StallTimeout,
// and that the stream of a slow client does not.
func TestStalledStream(t *testing.T) {
	for _, row := range []struct {
		name    string
		stall   time.Duration
		takes   time.Duration
		stalled bool
		after   time.Duration
	}{
		{"takes nothing", time.Minute, 24 * time.Hour, true, time.Minute},
		{"takes nothing, the default", 0, 24 * time.Hour, true, interceptor.DefaultStallTimeout},
		{"is slow", time.Minute, 59 * time.Second, false, 10 * 59 * time.Second},
	} {
		for _, kind := range []string{"gRPC", "REST"} {
			t.Run(row.name+" over "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					x := interceptor.New(interceptor.Config{StallTimeout: row.stall})
					w := &wire{ctx: t.Context(), takes: row.takes, ended: make(chan struct{})}
					var ss grpc.ServerStream = w
					if kind == "REST" {
						ss = rendezvous{w}
					}
					begun := time.Now()
					err := x.Stream()(nil, ss, &grpc.StreamServerInfo{FullMethod: "/s/S"}, func(
						_ any, ss grpc.ServerStream,
					) error {
						for range 10 {
							if err := ss.SendMsg("message"); err != nil {
								return err
							}
						}
						return nil
					})
					close(w.ended)
					if took := time.Since(begun); took != row.after {
						t.Errorf("it ended after %s, want %s", took, row.after)
					}
					if !row.stalled && err != nil {
						t.Errorf("it ended with %v", err)
					}
					if row.stalled &&
						(err == nil ||
							rpcerr.HTTP(err).Body.GetError().GetReason() != "StreamStalled") {
						t.Errorf("it ended with %v, want StreamStalled", err)
					}
				})
			})
		}
	}
}

func TestDrainGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := interceptor.NewGate()
		x := interceptor.New(interceptor.Config{Gate: gate})
		done := make(chan error)
		go func() {
			done <- unary(t.Context(), x, func(context.Context) error {
				time.Sleep(time.Hour) //nolint:forbidigo // fake time
				return nil
			})
		}()
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := gate.Drain(ctx); err == nil || time.Since(start) != 6*time.Second {
			t.Errorf("Drain = %v after %v", err, time.Since(start))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// silent is a stream whose client sends nothing.
type silent struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as grpc has it
}

func (s silent) Context() context.Context { return s.ctx }

func (s silent) RecvMsg(any) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

// TestSilentClient checks that the handler of a client stream does not wait forever.
func TestSilentClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		x := interceptor.New(interceptor.Config{StallTimeout: time.Minute})
		begun := time.Now()
		info := &grpc.StreamServerInfo{FullMethod: "/s/S", IsClientStream: true}
		err := x.Stream()(nil, silent{ctx: ctx}, info, func(_ any, ss grpc.ServerStream) error {
			return ss.RecvMsg(nil)
		})
		end()
		synctest.Wait()
		if took := time.Since(begun); took != time.Minute || err == nil ||
			rpcerr.HTTP(err).Body.GetError().GetReason() != "StreamStalled" {
			t.Errorf("it ended after %s with %v, want StreamStalled after a minute", took, err)
		}
	})
}

// sealing implements call.Sessions, and counts the tokens that it seals.
type sealing struct {
	call.Sessions
	sealed int
}

func (s *sealing) Seal(string, *client.Session) string {
	s.sealed++
	return "token"
}

// TestSessionIsRenewedOnce checks that a response has the renewed token of the call's session,
// which is sealed once.
func TestSessionIsRenewedOnce(t *testing.T) {
	sessions := &sealing{}
	x := interceptor.New(interceptor.Config{Sessions: sessions})
	res, err := x.Unary()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/s/M"}, func(
		ctx context.Context, _ any,
	) (any, error) {
		call.From(ctx).Session = &client.Session{}
		return &mooringv1.FindOneResponse{}, nil
	})
	if m, _ := res.(*mooringv1.FindOneResponse); err != nil || m.GetSession() != "token" ||
		sessions.sealed != 1 {
		t.Errorf("%v, %v, and %d tokens were sealed, want one", res, err, sessions.sealed)
	}
}

func TestSetTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := interceptor.New(interceptor.Config{DefaultTimeout: time.Minute})
		left := func() (d time.Duration) {
			if err := unary(t.Context(), x, func(ctx context.Context) error {
				if deadline, ok := ctx.Deadline(); ok {
					d = time.Until(deadline)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			return d
		}
		for _, tt := range []struct {
			set  interceptor.Timeouts
			want time.Duration
		}{
			{interceptor.Timeouts{Default: time.Second}, time.Second},
			{interceptor.Timeouts{Default: time.Hour, Max: time.Second}, time.Second},
			{interceptor.Timeouts{}, 0},
		} {
			if x.SetTimeouts(tt.set); left() != tt.want {
				t.Errorf("%+v: %v, want %v", tt.set, left(), tt.want)
			}
		}
	})
}
