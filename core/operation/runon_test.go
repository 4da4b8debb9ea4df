package operation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/ctxwatch"
	"github.com/mooringdb/mooring/core/operation"
)

// awaitEnd are the two ways in which a connection can wait for the end of an exchange's context.
var awaitEnd = map[string]func(context.Context){
	"by its channel": func(ctx context.Context) { <-ctx.Done() },
	"by a watch": func(ctx context.Context) {
		interrupted := make(chan struct{})
		watch := ctxwatch.New(func() { close(interrupted) }).Start(ctx)
		<-interrupted
		watch.Stop()
	},
}

// TestRunOn checks when the exchange of an operation that runs on ends, if the caller's context
// ends after a second and the server never answers.
func TestRunOn(t *testing.T) {
	drained := errors.New("shutting down")
	for _, row := range []struct {
		name     string
		cause    error         // of the cancellation; nil: context.Canceled
		deadline time.Duration // of the caller; 0: none
		after    time.Duration
		err      error // nil: of the package's own
	}{
		{"the caller went away", nil, 0, time.Second + operation.RunOnLimit, nil},
		{"another cause", drained, 0, time.Second, drained},
		{"the deadline comes first", nil, 5 * time.Second, 5 * time.Second, context.DeadlineExceeded},
		{"the deadline comes later", nil, time.Hour, time.Second + operation.RunOnLimit, nil},
		{"the deadline alone", nil, time.Second / 2, time.Second / 2, context.DeadlineExceeded},
	} {
		for how, await := range awaitEnd {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if row.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
					defer cancel()
				}
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				time.AfterFunc(time.Second, func() { cancel(row.cause) })
				began := time.Now()
				var cause, err error
				f := &fake{before: func(ctx context.Context) {
					await(ctx)
					cause, err = context.Cause(ctx), ctx.Err()
				}}
				op := operation.Operation{Database: "db", Command: command{}, RunOn: true}
				_, _ = (&operation.Runner{Deployment: f}).Run(ctx, &op)
				if after := time.Since(began); after != row.after {
					t.Errorf("%s, %s: the exchange ended after %v, want %v", row.name, how, after,
						row.after)
				}
				if row.err != nil && !errors.Is(cause, row.err) ||
					row.err == nil && errors.Is(cause, context.Canceled) {
					t.Errorf("%s, %s: cause = %v, want %v", row.name, how, cause, row.err)
				}
				want := context.Canceled
				if errors.Is(row.err, context.DeadlineExceeded) {
					want = context.DeadlineExceeded
				}
				if !errors.Is(err, want) {
					t.Errorf("%s, %s: Err() = %v, want %v", row.name, how, err, want)
				}
			})
		}
	}
}

// leaving is a command whose caller goes away while the message is built.
type leaving struct {
	command
	leave func()
}

func (l leaving) Append(b *bson.Builder, to operation.Target) error {
	l.leave()
	return l.command.Append(b, to)
}

// TestRunOnBeginsWithItsCaller checks that the connection sees that the caller is gone before the
// exchange has begun: it sends nothing then, where an exchange under way goes on.
func TestRunOnBeginsWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	f := &fake{before: func(ctx context.Context) { err = ctx.Err() }}
	op := operation.Operation{
		Database: "db", Command: leaving{leave: cancel}, Kind: operation.Write, RunOn: true,
	}
	_, _ = (&operation.Runner{Deployment: f}).Run(ctx, &op)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Err() of the exchange's context = %v, want context.Canceled", err)
	}
}

// TestRunOnIsOver checks that the exchange's context ends with the operation, and that the
// caller's end after it changes nothing.
func TestRunOnIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var exchange context.Context
		f := &fake{before: func(ctx context.Context) { exchange = ctx }}
		op := operation.Operation{Database: "db", Command: command{}, RunOn: true}
		if _, err := (&operation.Runner{Deployment: f}).Run(ctx, &op); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(exchange.Err(), context.Canceled) {
			t.Errorf("Err() after the operation = %v, want context.Canceled", exchange.Err())
		}
		cancel()
		synctest.Wait()
		time.Sleep(2 * operation.RunOnLimit) //nolint:forbidigo // fake time
		if cause := context.Cause(exchange); !errors.Is(cause, context.Canceled) {
			t.Errorf("cause = %v, want context.Canceled", cause)
		}
	})
}

// TestRunOnsAreLimited checks that an operation beyond the limit ends with its caller, and that one
// that ends makes room.
func TestRunOnsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := operation.NewRunOns(2, nil)
		run := func(deadline time.Duration) (took time.Duration) {
			f := &fake{before: func(ctx context.Context) { <-ctx.Done() }} // for one goroutine
			r := operation.Runner{Deployment: f, RunOns: limit}
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			ctx, cancelCause := context.WithCancelCause(ctx)
			defer cancelCause(nil)
			time.AfterFunc(time.Second, func() { cancelCause(nil) })
			began := time.Now()
			op := operation.Operation{Database: "db", Command: command{}, RunOn: true}
			_, _ = r.Run(ctx, &op)
			return time.Since(began)
		}
		for round := range 2 {
			took := make(chan time.Duration, 5)
			for range 5 {
				go func() { took <- run(time.Hour) }()
			}
			counts := map[time.Duration]int{}
			for range 5 {
				counts[<-took]++
			}
			if counts[time.Second] != 3 || counts[time.Second+operation.RunOnLimit] != 2 {
				t.Errorf("round %d: the operations took %v, want 3 of 1s and 2 of 31s", round,
					counts)
			}
		}
		if took := run(time.Second / 2); took != time.Second/2 {
			t.Errorf("an operation with a deadline took %v", took)
		}
	})
}

// TestReadsGiveWay checks that the oldest read without a caller ends for a write whose caller goes,
// and that a write ends with its caller once all others are writes.
func TestReadsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := operation.NewRunOns(2, nil)
		// start runs an operation whose caller goes at once, and tells how long it goes on. It
		// returns a second after.
		start := func(kind operation.Kind) <-chan time.Duration {
			f := &fake{before: func(ctx context.Context) { <-ctx.Done() }}
			r := operation.Runner{Deployment: f, RunOns: limit}
			ctx, cancel := context.WithCancel(t.Context())
			went, took := time.Now(), make(chan time.Duration, 1)
			go func() {
				op := operation.Operation{
					Database: "db", Command: command{}, Kind: kind, RunOn: true,
				}
				_, _ = r.Run(ctx, &op)
				took <- time.Since(went)
			}()
			synctest.Wait()
			cancel()
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			return took
		}
		type operations []struct {
			kind operation.Kind
			took time.Duration
		}
		for round, all := range []operations{
			{
				{operation.Read, 2 * time.Second}, // gives way to the first write
				{operation.Read, 3 * time.Second}, // gives way to the second
				{operation.Write, operation.RunOnLimit},
				{operation.Read, 0}, // no read gives way to another
				{operation.Generic, operation.RunOnLimit},
				{operation.Write, 0}, // there is no read left
			},
			{ // all have left
				{operation.Read, operation.RunOnLimit},
				{operation.Read, operation.RunOnLimit},
				{operation.Read, 0},
			},
		} {
			var took []<-chan time.Duration
			for _, op := range all {
				took = append(took, start(op.kind))
			}
			for i, op := range all {
				if got := <-took[i]; got != op.took {
					t.Errorf("round %d: operation %d took %v, want %v", round, i, got, op.took)
				}
			}
		}
	})
}

// runOnCaller keys whose operation it is in the context of a test.
type runOnCaller struct{}

// TestRunOnShares checks that the operations of one caller that goes leave room for those of
// others: its writes take the places of its own reads only, and what is cut is counted.
func TestRunOnShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := operation.NewRunOns(10, func(ctx context.Context) any {
			return ctx.Value(runOnCaller{})
		})
		leave := func(who string, kind operation.Kind) <-chan time.Duration {
			f := &fake{before: func(ctx context.Context) { <-ctx.Done() }}
			r := operation.Runner{Deployment: f, RunOns: limit}
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), runOnCaller{}, who))
			went, took := time.Now(), make(chan time.Duration, 1)
			go func() {
				op := operation.Operation{
					Database: "db", Command: command{}, Kind: kind, RunOn: true,
				}
				_, _ = r.Run(ctx, &op)
				took <- time.Since(went)
			}()
			synctest.Wait()
			cancel()
			synctest.Wait()
			return took
		}
		var took []<-chan time.Duration
		var want []time.Duration
		row := func(times int, who string, kind operation.Kind, lasts time.Duration) {
			for range times {
				took, want = append(took, leave(who, kind)), append(want, lasts)
			}
		}
		row(1, "quiet", operation.Read, operation.RunOnLimit)
		row(1, "greedy", operation.Read, 0) // gives way to its caller's own write
		row(8, "greedy", operation.Write, operation.RunOnLimit)
		row(1, "greedy", operation.Read, 0)
		row(1, "greedy", operation.Write, 0)
		row(1, "quiet", operation.Write, operation.RunOnLimit)
		u, full := limit.Usage(), operation.RunOnUsage{Held: 10, Most: 10, Shares: 3}
		if u != full {
			t.Errorf("Usage() = %+v, want %+v", u, full)
		}
		for i := range took {
			if got := <-took[i]; got != want[i] {
				t.Errorf("operation %d went on for %v, want %v", i, got, want[i])
			}
		}
		if u = limit.Usage(); u.Held != 0 {
			t.Errorf("Usage() = %+v at the end", u)
		}
	})
}
