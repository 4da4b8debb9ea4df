package interceptor_test

import (
	"context"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/service/interceptor"
)

// created returns the number of goroutines that the process has started.
func created() uint64 {
	sample := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// prompt is a stream whose client neither keeps a message nor lets one wait.
type prompt struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as grpc has it
}

func (p prompt) Context() context.Context { return p.ctx }
func (prompt) SendMsg(any) error          { return nil }
func (prompt) RecvMsg(any) error          { return nil }

// endable is a prompt stream whose calls a context can end.
type endable struct{ prompt }

func (endable) SendMsgContext(context.Context, any) error { return nil }
func (endable) RecvMsgContext(context.Context, any) error { return nil }

// TestGoroutinesOfStreams checks that a stream of 1,000 messages starts no goroutine for each of
// them, in both directions, and that none is left at its end.
func TestGoroutinesOfStreams(t *testing.T) {
	const messages, most = 1000, 10 // the runtime starts some of its own
	for _, row := range []struct {
		name   string
		stream func(context.Context) grpc.ServerStream
	}{
		{"gRPC", func(ctx context.Context) grpc.ServerStream { return prompt{ctx: ctx} }},
		{"within the process", func(ctx context.Context) grpc.ServerStream { return endable{prompt{ctx: ctx}} }},
	} {
		for _, receives := range []bool{false, true} {
			x := interceptor.New(interceptor.Config{})
			info := &grpc.StreamServerInfo{
				FullMethod: "/s/S", IsClientStream: receives, IsServerStream: !receives,
			}
			synctest.Test(t, func(t *testing.T) {
				before := created()
				err := x.Stream()(nil, row.stream(t.Context()), info, func(
					_ any, ss grpc.ServerStream,
				) (err error) {
					for i := 0; i < messages && err == nil; i++ {
						if receives {
							err = ss.RecvMsg(nil)
						} else {
							err = ss.SendMsg("message")
						}
					}
					return err
				})
				if started := created() - before; err != nil || started > most {
					t.Errorf("%s, receives %t: %d goroutines for %d messages, want at most %d (%v)",
						row.name, receives, started, messages, most, err)
				}
			})
		}
	}
}

// stuck is a stream whose messages never get through while its context lives.
type stuck struct{ prompt }

func (s stuck) SendMsg(any) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

// TestStalledStreamStaysOver checks that a stream whose client has stalled sends nothing more, and
// that its goroutine ends when the transport ends the stream.
func TestStalledStreamStaysOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		x := interceptor.New(interceptor.Config{StallTimeout: time.Minute})
		begun := time.Now()
		_ = x.Stream()(nil, stuck{prompt{ctx: ctx}}, &grpc.StreamServerInfo{FullMethod: "/s/S"},
			func(
				_ any, ss grpc.ServerStream,
			) error {
				first, second := ss.SendMsg("first"), ss.SendMsg("second")
				if reasonOf(first) != "StreamStalled" || reasonOf(second) != "StreamStalled" {
					t.Errorf("the messages end with %v and %v, want StreamStalled", first, second)
				}
				return second
			})
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("it ended after %s, want a minute", took)
		}
		end() // synctest waits for the goroutine
	})
}
