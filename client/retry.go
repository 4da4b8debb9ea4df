package client

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
)

// The metadata that decides whether a call can be repeated.
const (
	idempotencyKey = "idempotency-key"
	transactionKey = "mooring-transaction"
)

// keyLife is how long the gateway knows a key.
const keyLife = 30 * time.Minute

// WithIdempotencyKey returns a context for a write that is executed once, however often it is
// repeated with the key.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, idempotencyKey, key)
}

// WithExactlyOnce returns a context that overrides Options.ExactlyOnce for the calls made with it.
func WithExactlyOnce(ctx context.Context, exactlyOnce bool) context.Context {
	return context.WithValue(ctx, exactlyOnceKey{}, exactlyOnce)
}

type exactlyOnceKey struct{}

// withKey returns the context of a call with its idempotency key: that of the caller, a new one if
// the call is to be exactly-once, or none. In a transaction a statement's number has its place.
func (c *Client) withKey(ctx context.Context, request any) (context.Context, string) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	if keys := sent.Get(idempotencyKey); len(keys) > 0 {
		return ctx, keys[0]
	}
	exactlyOnce, ok := ctx.Value(exactlyOnceKey{}).(bool)
	if !ok {
		exactlyOnce = c.options.ExactlyOnce
	}
	// Some writes, such as updateMany, take no key: the gateway refuses them with one.
	if !exactlyOnce || repeatOf(request) != mooringv1.Method_REPEAT_KEY ||
		inTransaction(sent, request) {
		return ctx, ""
	}
	key := rand.Text()
	return WithIdempotencyKey(ctx, key), key
}

func inTransaction(sent metadata.MD, request any) bool {
	r, ok := request.(interface{ GetTransaction() string })
	return ok && r.GetTransaction() != "" || len(sent.Get(transactionKey)) > 0
}

// repeatOf returns whether a call may be repeated if no answer comes, as the options of its method
// say. An aggregation is not a read, since $out and $merge write.
func repeatOf(request any) mooringv1.Method_Repeat {
	if r, ok := request.(proto.Message); ok {
		if m := method.OfRequest(r.ProtoReflect().Descriptor().FullName()); m != nil {
			return m.Repeat
		}
	}
	return mooringv1.Method_REPEAT_NEVER
}

// isKnown reports whether the gateway knows a call again without an idempotency key: by its token,
// or by its number in a transaction.
func isKnown(ctx context.Context, request any) bool {
	if repeatOf(request) == mooringv1.Method_REPEAT_TOKEN {
		return true
	}
	sent, _ := metadata.FromOutgoingContext(ctx)
	r, ok := request.(interface{ GetStatement() int32 })
	return ok && r.GetStatement() > 0 && inTransaction(sent, request)
}

// isRead reports whether a call is a read outside transactions.
func isRead(ctx context.Context, request any) bool {
	sent, _ := metadata.FromOutgoingContext(ctx)
	return repeatOf(request) == mooringv1.Method_REPEAT_READ && !inTransaction(sent, request)
}

// Call makes any unary call of a generated client with the token of c, and repeats it if its error
// allows that, up to Options.Retries times and with a pause before each. It does not repeat a call
// with an idempotency key after 30 minutes, when it would be a new write. Its error is an *Error.
//
//	transactions := mooringv1.NewTransactionServiceClient(cc)
//	done, err := client.Call(ctx, c, transactions.Run, &mooringv1.TransactionServiceRunRequest{…})
func Call[Q, R any](
	ctx context.Context, c *Client, rpc func(context.Context, Q, ...grpc.CallOption) (R, error),
	request Q,
) (R, error) {
	ctx, key := c.withKey(c.outgoing(ctx), request)
	known := key != "" || isKnown(ctx, request)
	repeatable := known || isRead(ctx, request)
	begun, begunWall := time.Now(), c.wall()
	isForgotten := func(after time.Duration) bool {
		elapsed := max(time.Since(begun), c.wall().Sub(begunWall))
		return key != "" && elapsed+after >= keyLife
	}
	for attempt := 0; ; attempt++ {
		response, err := rpc(ctx, request, largest)
		if err == nil {
			return response, nil
		}
		failed := Explain(err)
		failed.IdempotencyKey = key
		if failed.isUnanswered() && repeatable || failed.isGivenUp() && known {
			failed.Retry = SameRequest
		}
		if failed.Retry != SameRequest || attempt >= c.options.Retries {
			return response, failed
		}
		after := backoff(attempt, failed.RetryAfter)
		// Again after the pause: the machine may have been suspended meanwhile.
		if isForgotten(after) || pause(ctx, after) != nil || isForgotten(0) {
			return response, failed
		}
	}
}

// backoff returns how long to wait before a call is repeated: as long as the gateway says, or a
// random time that becomes longer.
func backoff(attempt int, after time.Duration) time.Duration {
	if after > 0 {
		return after
	}
	return mathrand.N(min(100*time.Millisecond<<min(attempt, 6), 5*time.Second))
}

// pause blocks for a time. It fails if the context ends before.
func pause(ctx context.Context, after time.Duration) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < after {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
