package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

func (g *gateway) UpdateMany(
	ctx context.Context, _ *mooringv1.UpdateManyRequest,
) (*mooringv1.UpdateManyResponse, error) {
	return &mooringv1.UpdateManyResponse{}, g.called(ctx, "UpdateMany")
}

func (g *gateway) Aggregate(
	ctx context.Context, _ *mooringv1.AggregateRequest,
) (*mooringv1.AggregateResponse, error) {
	return &mooringv1.AggregateResponse{WriteConcernError: g.unmet}, g.called(ctx, "Aggregate")
}

// transactions answers the calls of TransactionService.
type transactions struct {
	mooringv1.UnimplementedTransactionServiceServer
	g *gateway
}

func (s transactions) Commit(
	ctx context.Context, _ *mooringv1.TransactionServiceCommitRequest,
) (*mooringv1.TransactionServiceCommitResponse, error) {
	return &mooringv1.TransactionServiceCommitResponse{}, s.g.called(ctx, "Commit")
}

func (s transactions) Abort(
	ctx context.Context, _ *mooringv1.TransactionServiceAbortRequest,
) (*mooringv1.TransactionServiceAbortResponse, error) {
	return &mooringv1.TransactionServiceAbortResponse{}, s.g.called(ctx, "Abort")
}

func (s transactions) Run(
	ctx context.Context, _ *mooringv1.TransactionServiceRunRequest,
) (*mooringv1.TransactionServiceRunResponse, error) {
	return &mooringv1.TransactionServiceRunResponse{}, s.g.called(ctx, "Run")
}

// on is what calls are made on.
type on struct {
	client       *client.Client
	orders       *client.Collection[bson.Raw]
	transactions mooringv1.TransactionServiceClient
}

func newOn(t *testing.T, g *gateway, options client.Options) on {
	t.Helper()
	cc := connect(t, g)
	c := client.New(cc, options)
	return on{
		c, client.In[bson.Raw](c, "shop", "orders"), mooringv1.NewTransactionServiceClient(cc),
	}
}

var (
	empty     = bson.Raw{5, 0, 0, 0, 0}
	increment = client.JSON(`{"$inc": {"a": 1}}`)
	inOne     = proto.String("t") // a transaction
)

// The calls of the tests.

func insertOne(ctx context.Context, on on) error {
	_, err := on.orders.InsertOne(ctx, empty)
	return err
}

func insertWithKey(ctx context.Context, on on) error {
	return insertOne(client.WithIdempotencyKey(ctx, "key"), on)
}

func insertOnce(ctx context.Context, on on) error {
	return insertOne(client.WithExactlyOnce(ctx, true), on)
}

func insertPlain(ctx context.Context, on on) error {
	return insertOne(client.WithExactlyOnce(ctx, false), on)
}

func insertInTransaction(ctx context.Context, on on) error {
	_, err := on.orders.InsertOne(ctx, empty,
		func(r *mooringv1.InsertOneRequest) { r.Transaction = inOne })
	return err
}

func insertAsStatement(ctx context.Context, on on) error {
	_, err := on.orders.InsertOne(ctx, empty, func(r *mooringv1.InsertOneRequest) {
		r.Transaction, r.Statement = inOne, proto.Int32(1)
	})
	return err
}

func updateMany(ctx context.Context, on on) error {
	_, err := on.orders.UpdateMany(ctx, nil, increment)
	return err
}

func aggregate(ctx context.Context, on on) error {
	_, err := ids(on.orders.Aggregate(ctx, nil), 1)
	return err
}

func findOne(ctx context.Context, on on) error {
	_, err := on.orders.FindOne(ctx, nil)
	return err
}

func findOneInTransaction(ctx context.Context, on on) error {
	_, err := on.orders.FindOne(ctx, nil,
		func(r *mooringv1.FindOneRequest) { r.Transaction = inOne })
	return err
}

func findOneWithMetadata(ctx context.Context, on on) error {
	return findOne(metadata.AppendToOutgoingContext(ctx, "mooring-transaction", "t"), on)
}

func findOneAsStatement(ctx context.Context, on on) error {
	_, err := on.orders.FindOne(ctx, nil, func(r *mooringv1.FindOneRequest) {
		r.Transaction, r.Statement = inOne, proto.Int32(1)
	})
	return err
}

func runCommand(ctx context.Context, on on) error {
	_, err := client.RunCommand[bson.Raw](ctx, on.client, "shop", client.JSON(`{"ping": 1}`))
	return err
}

func commit(ctx context.Context, on on) error {
	request := &mooringv1.TransactionServiceCommitRequest{Transaction: inOne}
	_, err := client.Call(ctx, on.client, on.transactions.Commit, request)
	return err
}

func abort(ctx context.Context, on on) error {
	request := &mooringv1.TransactionServiceAbortRequest{Transaction: inOne}
	_, err := client.Call(ctx, on.client, on.transactions.Abort, request)
	return err
}

func run(ctx context.Context, on on) error {
	request := &mooringv1.TransactionServiceRunRequest{}
	_, err := client.Call(ctx, on.client, on.transactions.Run, request)
	return err
}

// TestUnanswered makes calls whose connection is cut after the request was sent, or whose caller
// ends them. A call is repeated only if it is a read, or if the gateway knows it again.
func TestUnanswered(t *testing.T) {
	for _, c := range []struct {
		name       string
		call       func(context.Context, on) error
		repeatable bool
	}{
		{"a read", findOne, true},
		{"a read in a transaction", findOneInTransaction, false},
		{"a read with a transaction's metadata", findOneWithMetadata, false},
		{"a read as a statement", findOneAsStatement, true},
		{"a write", insertOne, false},
		{"a write with a key", insertWithKey, true},
		{"an exactly-once write", insertOnce, true},
		{"a write in a transaction", insertInTransaction, false},
		{"a write as a statement", insertAsStatement, true},
		{"writes of many", updateMany, false},
		{"an aggregation, which may write", aggregate, false},
		{"a command", runCommand, false},
		{"Commit", commit, true},
		{"Abort", abort, true},
		{"Run", run, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &gateway{failures: []error{noAnswer}}
			on := newOn(t, g, client.Options{})
			want := 1
			if c.repeatable {
				want = 2
			}
			if err := c.call(t.Context(), on); len(g.calls) != want ||
				(err == nil) != c.repeatable {
				t.Errorf("cut: %d calls and %v, want %d", len(g.calls), err, want)
			}
			ctx, cancel := context.WithCancel(t.Context())
			g.calls, g.failures, g.meanwhile = nil, []error{noAnswer}, cancel
			if err := c.call(ctx, on); len(g.calls) != 1 || err == nil {
				t.Errorf("left: %d calls and %v, want one", len(g.calls), err)
			}
		})
	}
}

// later is an error of a gateway that allows a repetition after a time.
func later(t *testing.T, reason string, after time.Duration) error {
	t.Helper()
	s, err := status.New(codes.Unavailable, "later").WithDetails(
		&errdetails.ErrorInfo{
			Reason: reason, Metadata: map[string]string{"retry": "same-request"},
		},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(after)},
	)
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// TestNoPauseBeyondTheDeadline: a call that may be repeated only after its deadline fails at once.
func TestNoPauseBeyondTheDeadline(t *testing.T) {
	g := &gateway{failures: []error{later(t, "Overloaded", time.Hour)}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	err := findOne(ctx, newOn(t, g, client.Options{}))
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.RetryAfter != time.Hour || len(g.calls) != 1 {
		t.Errorf("%d calls and %v", len(g.calls), err)
	}
}

// TestNoPauseBeyondTheKey: a call with a key is not repeated when the gateway may not know the key
// any more.
func TestNoPauseBeyondTheKey(t *testing.T) {
	for _, c := range []struct {
		name  string
		keyed bool
		after time.Duration
		calls int
	}{
		{"the wait is too long", true, 31 * time.Minute, 1},
		{"two are too long", true, 16 * time.Minute, 2},
		{"all are short enough", true, 9 * time.Minute, 4},
		{"no key", false, 31 * time.Minute, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				insert := func(
					ctx context.Context, _ *mooringv1.InsertOneRequest, _ ...grpc.CallOption,
				) (*mooringv1.InsertOneResponse, error) {
					calls++
					return nil, later(t, "IdempotencyUnavailable", c.after)
				}
				on := client.New(nil, client.Options{ExactlyOnce: c.keyed})
				_, err := client.Call(t.Context(), on, insert, &mooringv1.InsertOneRequest{})
				e, ok := errors.AsType[*client.Error](err)
				if !ok || calls != c.calls || (e.IdempotencyKey != "") != c.keyed ||
					e.Retry != client.SameRequest {
					t.Errorf("%d calls and %+v, want %d", calls, err, c.calls)
				}
			})
		})
	}
}

// TestSuspendCountsForTheKey: a call with a key is not repeated when the gateway may have forgotten
// the key while the machine was suspended, and only one of the two clocks ran.
func TestSuspendCountsForTheKey(t *testing.T) {
	for _, c := range []struct {
		name        string
		keyed       bool
		when, after time.Duration // of the suspension, and until the repetition
		lasts       time.Duration
		calls       int
	}{
		{"during an attempt", true, 0, time.Minute, 31 * time.Minute, 1},
		{"during a pause", true, time.Second, time.Minute, 31 * time.Minute, 1},
		{"during the second pause", true, 90 * time.Second, time.Minute, 28 * time.Minute, 2},
		{"not for long", true, time.Second, time.Minute, 9 * time.Minute, 4},
		{"the clock is set back", true, time.Second, 16 * time.Minute, -time.Hour, 2},
		{"no key", false, time.Second, time.Minute, 31 * time.Minute, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, calls := time.Now(), 0
				insert := func(
					ctx context.Context, _ *mooringv1.InsertOneRequest, _ ...grpc.CallOption,
				) (*mooringv1.InsertOneResponse, error) {
					calls++
					time.Sleep(time.Millisecond) //nolint:forbidigo // the time is fake
					return nil, later(t, "IdempotencyUnavailable", c.after)
				}
				on := client.New(nil, client.Options{ExactlyOnce: c.keyed})
				on.SetWall(func() time.Time {
					now := time.Now().Round(0)
					if time.Since(begun) > c.when {
						now = now.Add(c.lasts)
					}
					return now
				})
				_, err := client.Call(t.Context(), on, insert, &mooringv1.InsertOneRequest{})
				e, ok := errors.AsType[*client.Error](err)
				if !ok || calls != c.calls || (e.IdempotencyKey != "") != c.keyed ||
					e.Retry != client.SameRequest {
					t.Errorf("%d calls and %+v, want %d", calls, err, c.calls)
				}
			})
		})
	}
}

// TestExactlyOnce: each exactly-once write has a key of its own, with which it is repeated.
func TestExactlyOnce(t *testing.T) {
	never, always := client.Options{}, client.Options{ExactlyOnce: true}
	for _, c := range []struct {
		name    string
		options client.Options
		call    func(context.Context, on) error
		own     bool // key
	}{
		{"a client's write", always, insertOne, true},
		{"a write of a client that is not", never, insertOne, false},
		{"a call", never, insertOnce, true},
		{"not this call", always, insertPlain, false},
		{"in a transaction", always, insertInTransaction, false},
		{"a statement", always, insertAsStatement, false},
		{"a write that the gateway refuses then", always, updateMany, true},
		{"a read", always, findOne, false},
		{"a command", always, runCommand, false},
		{"Run", always, run, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &gateway{failures: []error{unavailable}}
			on := newOn(t, g, c.options)
			for range 2 {
				if err := c.call(t.Context(), on); err != nil {
					t.Fatal(err)
				}
			}
			if len(g.keys) != 3 || g.keys[0] != g.keys[1] {
				t.Fatalf("the keys are %q, want the same for the repetition", g.keys)
			}
			if own := g.keys[0] != ""; own != c.own || own && g.keys[1] == g.keys[2] {
				t.Errorf("the keys are %q", g.keys)
			}
		})
	}
	g := &gateway{}
	if err := insertWithKey(t.Context(), newOn(t, g, always)); err != nil || g.keys[0] != "key" {
		t.Errorf("a key of the caller's: %q, %v", g.keys, err)
	}
}

// TestErrorHasKey: who knows the key can repeat an exactly-once write that has got no answer.
func TestErrorHasKey(t *testing.T) {
	late := status.Error(codes.DeadlineExceeded, "late")
	for name, failures := range map[string][]error{
		"the connection was cut": {noAnswer, noAnswer},
		"the deadline passed":    {late, late},
	} {
		g := &gateway{failures: failures}
		on := newOn(t, g, client.Options{ExactlyOnce: true, Retries: 1})
		err := insertOne(t.Context(), on)
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.IdempotencyKey != g.keys[0] || e.Retry != client.SameRequest {
			t.Errorf("%s: the error is %+v, want the key %q", name, err, g.keys)
		}
	}
	// A number or a token does what a key does.
	for _, c := range []struct {
		name string
		call func(context.Context, on) error
		want client.Retry
	}{
		{"a write with a key", insertWithKey, client.SameRequest},
		{"a write as a statement", insertAsStatement, client.SameRequest},
		{"a read as a statement", findOneAsStatement, client.SameRequest},
		{"Commit", commit, client.SameRequest},
		{"Abort", abort, client.SameRequest},
		{"a write without a key", insertOne, client.Never},
		{"a write without a number", insertInTransaction, client.Never},
		{"a read without a number", findOneInTransaction, client.Never},
		{"a read", findOne, client.Never},
		{"a command", runCommand, client.Never},
		{"Run", run, client.Never},
	} {
		for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Canceled} {
			g := &gateway{failures: []error{status.Error(code, "given up")}}
			err := c.call(t.Context(), newOn(t, g, client.Options{Retries: -1}))
			if e, ok := errors.AsType[*client.Error](err); !ok || e.Retry != c.want {
				t.Errorf("%s, %v: the error is %+v, want retry: %s", c.name, code, err, c.want)
			}
		}
	}
}

// TestCursorIsClosed: a cursor whose next page does not come is closed, unless it is gone.
func TestCursorIsClosed(t *testing.T) {
	gone := failed(codes.NotFound, "CursorNotFound", "restart", "404")
	lost := failed(codes.Aborted, "CursorPositionUnknown", "restart", "409")
	for _, c := range []struct {
		name    string
		failure error
		left    bool // the context ends after the first page
		closed  bool
	}{
		{"the context ends", nil, true, true},
		{"the page fails", lost, false, true},
		{"the cursor is gone", gone, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &gateway{failures: []error{nil, c.failure}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var last error
			for _, err := range newOn(t, g, client.Options{}).orders.Find(ctx, nil) {
				if last = err; c.left {
					cancel()
				}
			}
			if closed := slices.Contains(g.calls, "CloseCursor second"); closed != c.closed ||
				last == nil {
				t.Errorf("the calls are %q and the error is %v", g.calls, last)
			}
		})
	}
}
