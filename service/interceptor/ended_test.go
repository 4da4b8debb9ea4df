package interceptor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestEndedCalls has the gateway end calls that have written: what their clients are told hides
// nothing that the calls have done, or may have done, and never advises to repeat that.
func TestEndedCalls(t *testing.T) {
	broken := func(ctx context.Context) error {
		return &mongoerr.NetworkError{
			Op: "read", Sent: true, Err: errors.Join(context.Cause(ctx), ctx.Err()),
		}
	}
	one := int64(1)
	fails := map[string]struct {
		with          func(ctx context.Context) error
		reason, retry string // reason "" is that of the end
		inserted      bool
	}{
		"nothing": {with: func(ctx context.Context) error { return ctx.Err() }},
		"a write of unknown outcome": {
			with: func(ctx context.Context) error {
				return &operation.OutcomeUnknownError{Err: broken(ctx)}
			},
			reason: "WriteOutcomeUnknown", retry: "never",
		},
		"commands without an acknowledgment": {
			with: func(ctx context.Context) error {
				return mongoerr.WithDelivery(broken(ctx), mongoerr.Executed)
			},
			reason: "WriteOutcomeUnknown", retry: "never",
		},
		"a commit": {
			with: func(ctx context.Context) error {
				return mongoerr.WithLabel(broken(ctx), mongoerr.LabelUnknownTransactionCommitResult)
			},
			reason: "UnknownTransactionCommitResult", retry: "same-request",
		},
		"a part": {
			with: func(ctx context.Context) error {
				done := rpcerr.Result{InsertedCount: &one}
				return &rpcerr.PartialError{Result: done, Err: ctx.Err()}
			},
			retry: "never", inserted: true,
		},
	}
	for end, begin := range map[string]func(t *testing.T, f func(context.Context) error) error{
		"ShuttingDown": func(t *testing.T, f func(context.Context) error) (err error) {
			t.Helper()
			gate := interceptor.NewGate()
			x := interceptor.New(interceptor.Config{Gate: gate})
			done := make(chan error)
			go func() {
				info := &grpc.UnaryServerInfo{FullMethod: "/mooring.v1.DocumentService/InsertMany"}
				_, err := x.Unary()(t.Context(), nil, info, func(
					ctx context.Context, _ any,
				) (any, error) {
					return nil, f(ctx)
				})
				done <- err
			}()
			synctest.Wait()
			over, cancel := context.WithCancel(t.Context())
			cancel()
			go func() { _ = gate.Drain(over) }()
			return <-done
		},
		"Unauthenticated": func(t *testing.T, f func(context.Context) error) error {
			t.Helper()
			x, key := guarded(t, time.Now().Add(time.Minute), nil)
			ctx := incoming(t.Context(), "authorization", "Bearer "+key)
			const method = "/mooring.v1.DocumentService/Import"
			ctx, err := x.Authenticate(ctx, method)
			if err != nil {
				t.Fatal(err)
			}
			info := &grpc.StreamServerInfo{FullMethod: method}
			//nolint:contextcheck // the stream has it
			return x.Stream()(nil, serverStream{ctx: ctx}, info, func(
				_ any, ss grpc.ServerStream,
			) error {
				return f(ss.Context())
			})
		},
	} {
		for name, row := range fails {
			synctest.Test(t, func(t *testing.T) {
				err := begin(t, func(ctx context.Context) error {
					<-ctx.Done()
					cause := context.Cause(ctx)
					if end == "Unauthenticated" && !errors.Is(cause, context.Canceled) {
						t.Errorf("the cause %v is no cancellation", cause)
					}
					return row.with(ctx)
				})
				body, reason := rpcerr.HTTP(err).Body, row.reason
				got := body.GetError()
				if reason == "" {
					reason = end
				}
				if got.GetReason() != reason || row.retry != "" && got.GetRetry() != row.retry ||
					(body.GetResult().GetInsertedCount() == 1) != row.inserted {
					t.Errorf("%s, %s: %v", end, name, got)
				}
			})
		}
	}
}
