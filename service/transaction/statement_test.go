package transaction_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/servicetest"
)

// overloaded is the refusal of a server that has executed nothing.
func overloaded() fakemongo.Reply {
	return fakemongo.Error(462, "IngressRequestRateLimitExceeded", "rate",
		"SystemOverloadedError", "RetryableError")
}

const (
	full   = "Unavailable ConnectionPoolFull same-request"
	onlyA  = `{"_id":"a","n":11} {"_id":"b","n":10}`
	limits = "&maxPoolSize=1&waitQueueTimeoutMS=200"
)

// occupy has the only connection of the pool in use until the test calls release.
func (b *bank) occupy() (release func()) {
	held, taken, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "distinct" {
			close(taken)
			<-held
		}
		return next(cmd)
	})
	go func() {
		defer close(gone)
		_, _ = b.Document.Distinct(b.t.Context(), &mooringv1.DistinctRequest{
			Database: "bank", Collection: "accounts", FieldName: "n",
		})
	}()
	<-taken
	return func() {
		close(held)
		<-gone
	}
}

// TestStatementRunsAgain checks that a statement that was not executed runs under its number, when
// its client makes the call again, as it is told to.
func TestStatementRunsAgain(t *testing.T) {
	for _, row := range []struct {
		name string
		// fail has the statement fail, and returns what undoes that.
		fail func(b *bank, call func(context.Context) error) (undo func())
	}{
		{name: "a full pool", fail: func(b *bank, call func(context.Context) error) func() {
			release := b.occupy()
			if got := told(call(b.t.Context())); got != full {
				b.t.Errorf("the call that finds the pool full = %s, want %s", got, full)
			}
			return release
		}},
		{
			name: "an overloaded server",
			fail: func(b *bank, call func(context.Context) error) func() {
				b.disturb("update", 3, overloaded()) // two retries, each refused
				const want = "Unavailable IngressRequestRateLimitExceeded same-request"
				if got := told(call(b.t.Context())); got != want {
					b.t.Errorf("the call that is refused = %s, want %s", got, want)
				}
				return func() {}
			},
		},
		{
			name: "its client left the queue",
			fail: func(b *bank, call func(context.Context) error) func() {
				release := b.occupy()
				ctx, leave := context.WithTimeout(b.t.Context(), 50*time.Millisecond)
				defer leave()
				_ = call(ctx)
				settle() // the call has ended
				return release
			},
		},
	} {
		for _, first := range []bool{true, false} {
			name := row.name
			if first {
				name += ", the first of the transaction"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBank(t, deployment.ReplicaSet, servicetest.Config{URIOptions: limits})
					token, n := b.begin(), int32(1)
					if !first {
						if _, err := b.Document.UpdateOne(t.Context(),
							add(token, "b", &n)); err != nil {
							t.Fatal(err)
						}
						n++
					}
					call := func(ctx context.Context) error {
						_, err := b.Document.UpdateOne(ctx, add(token, "a", &n))
						return err
					}
					row.fail(b, call)()
					for range 2 { // it runs once
						if err := call(t.Context()); err != nil {
							t.Errorf("the statement again = %s", told(err))
						}
					}
					if err := b.commit(token); err != nil {
						t.Fatal(err)
					}
					want := onlyA
					if !first {
						want = after
					}
					if got := b.balances(); got != want {
						t.Errorf("there is %s, want %s", got, want)
					}
				})
			})
		}
	}
}

// TestStreamRunsAgain checks that a stream that was not executed runs under its number.
func TestStreamRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{URIOptions: limits})
		token := b.begin()
		stream := func() string {
			ss, err := b.Document.StreamFind(t.Context(), &mooringv1.StreamFindRequest{
				Database: "bank", Collection: "accounts", Transaction: &token,
				Statement: new(int32(1)),
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = ss.Recv()
			if err == nil {
				_, _ = ss.Recv() // the end
			}
			return told(err)
		}
		release := b.occupy()
		if got := stream(); got != full {
			t.Errorf("the stream that finds the pool full = %s, want %s", got, full)
		}
		release()
		if got := stream(); got != "OK" {
			t.Errorf("the stream again = %s", got)
		}
		if got := stream(); got != "Aborted StatementResultLost transaction" {
			t.Errorf("the stream a third time = %s", got)
		}
	})
}

// TestFirstCallerLeaves checks what the call is told that repeats a read whose client has left: its
// result if the read went on to its end, and never that the client has left.
func TestFirstCallerLeaves(t *testing.T) {
	for name, row := range map[string]struct {
		takes time.Duration
		want  string
	}{
		"the read ends in time":   {time.Second, "OK"},
		"the read takes too long": {40 * time.Second, "Aborted StatementResultLost transaction"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
				token := b.begin()
				if err := b.add(token, "a"); err != nil {
					t.Fatal(err)
				}
				var finds atomic.Int64
				b.deployment.Disturb(func(
					cmd *fakemongo.Command, next fakemongo.Handler,
				) fakemongo.Reply {
					reply := next(cmd)
					if cmd.Name == "find" {
						finds.Add(1)
						reply = reply.After(row.takes)
					}
					return reply
				})
				find := func(ctx context.Context) error {
					_, err := b.Document.FindOne(ctx, &mooringv1.FindOneRequest{
						Database: "bank", Collection: "accounts", Transaction: &token,
						Statement: new(int32(1)),
					})
					return err
				}
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, leave)
				if got := told(find(ctx)); !strings.HasPrefix(got, "Canceled") {
					t.Errorf("the call whose client leaves = %s", got)
				}
				time.Sleep(row.takes) //nolint:forbidigo // time is fake
				synctest.Wait()
				for range 2 {
					if got := told(find(t.Context())); got != row.want || finds.Load() != 1 {
						t.Errorf("the call again = %s after %d reads", got, finds.Load())
					}
				}
			})
		})
	}
}

// TestStatementIsItsMethod checks that a statement is another one if its method is, though the
// requests have the same bytes.
func TestStatementIsItsMethod(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	token, n := b.begin(), new(int32(1))
	one := &mooringv1.DeleteOneRequest{
		Database: "bank", Collection: "accounts", Transaction: &token, Statement: n,
		Filter: doc(`{"n": 10}`),
	}
	bytes, err := proto.Marshal(one)
	if err != nil {
		t.Fatal(err)
	}
	many := &mooringv1.DeleteManyRequest{}
	if err := proto.Unmarshal(bytes, many); err != nil ||
		len(many.ProtoReflect().GetUnknown()) > 0 {
		t.Fatalf("the requests differ: %v", err)
	}
	if res, err := b.Document.DeleteOne(t.Context(), one); err != nil ||
		res.GetDeletedCount() != 1 {
		t.Errorf("DeleteOne = %v, %v", res, err)
	}
	if _, err := b.Document.DeleteMany(t.Context(),
		many); told(err) != "Aborted StatementOutOfOrder never" {
		t.Errorf("DeleteMany with the same number = %s", told(err))
	}
	if res, err := b.Document.DeleteOne(t.Context(), one); err != nil ||
		res.GetDeletedCount() != 1 {
		t.Errorf("DeleteOne again = %v, %v", res, err)
	}
}

// TestStatementIsNotItsToken checks that a statement is the same one if its transaction is named in
// another way.
func TestStatementIsNotItsToken(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	token := b.begin()
	req := add(token, "a", new(int32(1)))
	if _, err := b.Document.UpdateOne(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	req.Transaction = nil
	ctx := metadata.AppendToOutgoingContext(t.Context(), "mooring-transaction", token)
	if _, err := b.Document.UpdateOne(ctx, req); err != nil {
		t.Errorf("UpdateOne again = %s", told(err))
	}
	if err := b.commit(token); err != nil {
		t.Fatal(err)
	}
	if got := b.balances(); got != onlyA {
		t.Errorf("there is %s, want %s", got, onlyA)
	}
}

// TestLargestResult checks that results of up to 1 MiB are remembered, and none that are larger.
func TestLargestResult(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	find := func(token *string, n *int32) (*mooringv1.FindOneResponse, error) {
		return b.Document.FindOne(t.Context(), &mooringv1.FindOneRequest{
			Database: "bank", Collection: "accounts", Transaction: token, Statement: n,
		})
	}
	put := func(length int) {
		text := strings.Repeat("x", length)
		b.deployment.SetDocuments(accounts,
			bson.NewBuilder(nil).Int32("_id", 1).String("x", text).Finish())
	}
	const most = 1 << 20
	put(most / 2)
	res, err := find(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	largest := most - (proto.Size(res) - most/2)
	for name, row := range map[string]struct {
		length int
		want   string
	}{
		"1 MiB":         {largest, "OK"},
		"one byte more": {largest + 1, "Aborted StatementResultLost transaction"},
	} {
		put(row.length)
		token := b.begin()
		res, err := find(&token, new(int32(1)))
		if err != nil || proto.Size(res) != most+row.length-largest {
			t.Fatalf("%s: the result has %d bytes: %v", name, proto.Size(res), err)
		}
		if _, err := find(&token, new(int32(1))); told(err) != row.want {
			t.Errorf("%s: the call again = %s, want %s", name, told(err), row.want)
		}
	}
}

// TestRememberedResultsAreCharged checks that the result of the last statement is charged until the
// next one or the end of the transaction, and that a large one is forgotten if there is no room.
func TestRememberedResultsAreCharged(t *testing.T) {
	const size = 900 << 10
	for _, row := range []struct {
		name   string
		budget int64
		again  string // what the statement with the large result is told when it is repeated
	}{
		{"room", 64 << 20, "OK"},
		{"room for the call only", 1950 << 10, "Aborted StatementResultLost transaction"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := admission.New(admission.Config{Bytes: row.budget})
				b := newBank(t, deployment.ReplicaSet, servicetest.Config{Admission: a})
				b.deployment.SetDocuments(accounts, bson.NewBuilder(nil).String("_id", "a").
					Int32("n", 10).String("x", strings.Repeat("x", size)).Finish())
				find := func(token string, n int32) string {
					_, err := b.Document.FindOne(t.Context(), &mooringv1.FindOneRequest{
						Database: "bank", Collection: "accounts",
						Transaction: &token, Statement: &n,
					})
					return told(err)
				}
				held := func(when string, least, most int64) {
					t.Helper()
					settle()
					if got := a.Bytes().Held; got < least || got > most {
						t.Errorf("%s: %d bytes are held, want %d to %d", when, got, least, most)
					}
				}
				for name, end := range map[string]func(token string) error{
					"commit": b.commit, "abort": b.abort,
				} {
					token := b.begin()
					if got := find(token, 1); got != "OK" {
						t.Fatalf("FindOne = %s", got)
					}
					if row.again == "OK" {
						held("a large result", size, size+1024)
					} else {
						held("a large result", 0, 0)
					}
					if got := find(token, 1); got != row.again {
						t.Errorf("FindOne again = %s, want %s", got, row.again)
					}
					for range 2 {
						_, err := b.Document.UpdateOne(t.Context(), add(token, "a", new(int32(2))))
						if err != nil {
							t.Errorf("UpdateOne = %s", told(err))
						}
						held("a small result", 1, 1024)
					}
					if got := find(token, 3); got != "OK" {
						t.Errorf("FindOne = %s", got)
					}
					if err := end(token); err != nil {
						t.Errorf("%s: %s", name, told(err))
					}
					held("after the transaction", 0, 0)
				}
			})
		})
	}
}

// TestAttemptsAreNotChargedTogether checks that an attempt of Run gives back what it was charged
// before the next one begins.
func TestAttemptsAreNotChargedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, attempts = 900 << 10, 8
		a := admission.New(admission.Config{Bytes: 4 << 20})
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{Admission: a})
		b.deployment.SetDocuments(accounts, bson.NewBuilder(nil).String("_id", "a").
			Int32("n", 10).String("x", strings.Repeat("x", size)).Finish())
		b.disturb("update", attempts, transient())
		request := add("", "a", nil)
		request.Transaction = nil
		res, err := b.Transaction.Run(t.Context(), &mooringv1.TransactionServiceRunRequest{
			Operations: []*mooringv1.TransactionOperation{
				{Operation: &mooringv1.TransactionOperation_FindOne{
					FindOne: &mooringv1.FindOneRequest{Database: "bank", Collection: "accounts"},
				}},
				{Operation: &mooringv1.TransactionOperation_UpdateOne{UpdateOne: request}},
			},
		})
		if err != nil || len(res.GetResults()) != 2 {
			t.Errorf("Run with %d attempts before the last = %s", attempts, told(err))
		}
		settle()
		if got := a.Bytes().Held; got != 0 {
			t.Errorf("%d bytes are held afterwards", got)
		}
	})
}

// TestRememberedErrorsAreShort checks that of an error no more is remembered than a status has.
func TestRememberedErrorsAreShort(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	b.disturb("update", 1, fakemongo.Error(14, "TypeMismatch", strings.Repeat("x", 2<<20)))
	body := `{"statement": 1, ` + addA[1:]
	token := b.begin()
	for _, most := range []int{3 << 20, 8 << 10} {
		code, got := b.post(updateOne, token, body)
		if code != 400 || !strings.Contains(got, `"reason":"TypeMismatch"`) || len(got) > most {
			t.Errorf("updateOne = %d %.200s… of %d bytes, want at most %d", code, got, len(got),
				most)
		}
	}
}

// TestErrorsAgain checks that the call that repeats a statement gets the error of the first one as
// its own client may see it, and in its own encoding, also by way of another replica.
func TestErrorsAgain(t *testing.T) {
	d, between := newDeployment(t, deployment.ReplicaSet), links{}
	cfg := servicetest.Config{Operators: []string{"key:operator"}}
	owner := newReplicaWith(t, d, "a:1", between, cfg)
	other := newReplicaWith(t, d, "b:1", between, cfg)
	here := between["a:1"].answer
	between["a:1"].answer = func(ctx context.Context, f *call.Forwarding) (call.Reply, error) {
		reply, err := here(ctx, f)
		return reply, status.Convert(err).Err() // as it is on the network
	}
	for _, row := range []struct {
		name, as    string
		by          *bank
		first, then string // the encodings of the calls
	}{
		{"BSON", "key:operator", owner, "", ""},
		{"JSON", "key:operator", owner, "json", "json"},
		{"BSON, then JSON", "key:operator", owner, "", "json"},
		{"JSON, then BSON", "key:operator", owner, "json", ""},
		{"forwarded", "key:operator", other, "json", "json"},
		{"forwarded, in two encodings", "key:operator", other, "canonical-json", ""},
		{"no operator", "key:client", owner, "json", "json"},
		{"no operator, forwarded", "key:client", other, "", "json"},
	} {
		ctx := servicetest.As(t.Context(), row.as)
		begin := func() *string {
			begun, err := owner.Transaction.Begin(ctx, &mooringv1.TransactionServiceBeginRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return &begun.Transaction
		}
		insert := func(by *bank, token *string, encoding string) string {
			ctx := ctx
			if encoding != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, payload.EncodingKey, encoding)
			}
			_, err := by.Document.InsertMany(ctx, &mooringv1.InsertManyRequest{
				Database: "bank", Collection: "accounts", Transaction: token,
				Statement: new(int32(1)),
				Documents: []*mooringv1.Document{doc(`{"_id": "c"}`), doc(`{"_id": "a"}`)},
			})
			p := status.Convert(err).Proto()
			p.Details = slices.DeleteFunc(p.GetDetails(), func(detail *anypb.Any) bool {
				return detail.MessageIs(&errdetails.RequestInfo{})
			})
			return prototext.Format(p)
		}
		again := begin()
		for i, encoding := range []string{row.first, row.then} {
			got, want := insert(row.by, again, encoding), insert(owner, begin(), encoding)
			if got != want {
				t.Errorf("%s: the error of call %d is\n%s\nwant\n%s", row.name, i+1, got, want)
			}
			isShown := strings.Contains(want, "E11000") && strings.Contains(want, "key_value")
			if isShown != (row.as == "key:operator") ||
				!strings.Contains(want, "write_errors") || !strings.Contains(want, "inserted_ids") {
				t.Errorf("%s: the error of a first call is\n%s", row.name, want)
			}
		}
	}
}

// TestErrorsAgainAreTerse checks that a repeated statement does not tell the server's words to a
// client that is no operator any more.
func TestErrorsAgainAreTerse(t *testing.T) {
	const operator = `permit (principal, action in Action::"operate", resource);`
	parse := func(more string) *policy.Policy {
		p, err := policy.Parse([]byte(
			`permit (principal, action in Action::"write", resource);` + more))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	e := policy.NewEnforcer(policy.Config{Policy: parse(operator)})
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{Policy: e, Operators: []string{}})
	ctx := servicetest.As(t.Context(), "key:operator")
	begun, err := b.Transaction.Begin(ctx, &mooringv1.TransactionServiceBeginRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []bool{true, false} {
		_, err := b.Document.InsertOne(ctx, &mooringv1.InsertOneRequest{
			Database: "bank", Collection: "accounts", Transaction: &begun.Transaction,
			Statement: new(int32(1)), Document: doc(`{"_id": "a"}`),
		})
		said := prototext.Format(status.Convert(err).Proto())
		if !strings.Contains(said, "DuplicateKey") ||
			strings.Contains(said, "E11000") != shown ||
			strings.Contains(said, "key_value") != shown {
			t.Errorf("InsertOne = %s, want the server's words: %t", said, shown)
		}
		e.Replace(parse(""))
	}
}
