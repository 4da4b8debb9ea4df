package operation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/session"
)

// refusal returns a reply with ok: 0.
func refusal(code int32, labels ...string) bson.Raw {
	b := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", code).OpenArray("errorLabels")
	for _, label := range labels {
		b.String("", label)
	}
	return b.Close().Finish()
}

// retrying returns a runner on a replica set's member of that wire version.
func retrying(wire int32, replies ...bson.Raw) (*operation.Runner, *fake) {
	member := description.Server{
		Kind: description.ServerRSPrimary, MaxWireVersion: wire,
		LogicalSessionTimeoutMinutes: new(int64(30)),
	}
	f := &fake{
		kind: description.KindReplicaSetWithPrimary, description: member, hello: member,
		replies: replies,
	}
	return &operation.Runner{
		Deployment: f, RetryReads: true, RetryWrites: true, MaxAdaptiveRetries: 2,
		Sessions: &session.Pool{}, Clock: &session.Clock{},
		Jitter: func() float64 { return 1 },
	}, f
}

func retryableWrite() operation.Operation {
	return operation.Operation{
		Database: "db", Command: command{}, Kind: operation.Write, Retry: true,
	}
}

// TestOldServersGetLabels checks that the driver labels the errors of servers before 4.4 only.
func TestOldServersGetLabels(t *testing.T) {
	for _, tt := range []struct {
		wire, code int32
		want       int // attempts
	}{{8, 91, 2}, {9, 91, 1}, {8, 134, 1}, {8, 11000, 1}} {
		r, f := retrying(tt.wire, refusal(tt.code))
		op := retryableWrite()
		_, err := r.Run(t.Context(), &op)
		if len(f.sent) != tt.want || (err == nil) != (tt.want == 2) {
			t.Errorf("wire version %d, code %d: %d attempts, %v, want %d", tt.wire, tt.code,
				len(f.sent), err, tt.want)
		}
	}
}

// TestRetryKeepsTheNumber checks that both attempts have one session and one number.
func TestRetryKeepsTheNumber(t *testing.T) {
	r, f := retrying(21, refusal(91, mongoerr.LabelRetryableWrite))
	op := retryableWrite()
	if _, err := r.Run(t.Context(), &op); err != nil || len(f.sent) != 2 {
		t.Fatalf("Run() = %v after %d attempts", err, len(f.sent))
	}
	for _, key := range []string{"lsid", "txnNumber"} {
		first, _ := f.sent[0].Body.Lookup(key)
		second, _ := f.sent[1].Body.Lookup(key)
		if first.IsZero() || string(first.Data) != string(second.Data) {
			t.Errorf("%s is %v and then %v", key, first, second)
		}
	}
}

// TestSharedSession checks that a retryable write of a session whose id other processes use has
// another id, since they cannot agree on numbers.
func TestSharedSession(t *testing.T) {
	r, f := retrying(21)
	s, err := r.Sessions.Resume(session.State{ID: bson.UUID{1}, Shared: true}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	write, read := retryableWrite(), operation.Operation{Database: "db", Command: command{}}
	for _, op := range []*operation.Operation{&write, &read} {
		op.Session = s
		if _, err := r.Run(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	for i, same := range []bool{false, true} {
		v, _ := f.sent[i].Body.Lookup("lsid", "id")
		_, id, _ := v.Binary()
		if (bson.UUID(id) == s.ID()) != same {
			t.Errorf("command %d has the lsid %x; the session's own: want %v", i, id, same)
		}
	}
}

// TestWaitHoldsNothing checks that an operation holds no connection while it waits, and that the
// wait ends with its context. The error tells of both.
func TestWaitHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := refusal(462, mongoerr.LabelSystemOverloaded, mongoerr.LabelRetryable)
		r, f := retrying(21, busy)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			op := retryableWrite()
			_, err := r.Run(ctx, &op)
			done <- err
		}()
		synctest.Wait()
		if f.checkedOut != 0 || len(f.sent) != 1 {
			t.Errorf("%d connections are checked out after %d attempts", f.checkedOut, len(f.sent))
		}
		cancel()
		err := <-done
		if !errors.Is(err, context.Canceled) || mongoerr.Code(err) != 462 || len(f.sent) != 1 {
			t.Errorf("Run() = %v after %d attempts, want Canceled and code 462", err, len(f.sent))
		}
	})
}

// TestRetriesAreAnnounced checks the fact of each attempt after the first, with its backoff.
func TestRetriesAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := refusal(462, mongoerr.LabelSystemOverloaded, mongoerr.LabelRetryable)
		r, f := retrying(21, busy, busy)
		var facts []event.OperationRetried
		r.Sink = &event.Sink{OperationRetried: func(e event.OperationRetried) {
			facts = append(facts, e)
		}}
		op := retryableWrite()
		op.Caller = "request-1"
		if _, err := r.Run(t.Context(), &op); err != nil || len(f.sent) != 3 {
			t.Fatalf("Run() = %v after %d attempts", err, len(f.sent))
		}
		if len(facts) != 2 {
			t.Fatalf("%d facts, want 2", len(facts))
		}
		for i, e := range facts {
			if e.Attempt != i+2 || e.Wait <= 0 || e.Caller != "request-1" || e.Database != "db" ||
				mongoerr.Code(e.Err) != 462 {
				t.Errorf("fact %d: %+v", i, e)
			}
		}
	})
}
