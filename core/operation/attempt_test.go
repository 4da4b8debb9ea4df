package operation_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/core/wire"
)

// busy is the reply of a server that is overloaded and allows another attempt.
func busy() bson.Raw {
	return refusal(462, mongoerr.LabelSystemOverloaded, mongoerr.LabelRetryable)
}

// TestWhatIsRetried checks which operations have another attempt, by kind and by what the Runner
// allows, after an error that the rules of retryable reads and writes are for, and after one of an
// overloaded server.
func TestWhatIsRetried(t *testing.T) {
	const reads, writes = 1, 2
	for name, tt := range map[string]struct {
		op         operation.Operation
		allowed    int
		transient  int // attempts
		overloaded int
	}{
		"a read":                {operation.Operation{Retry: true}, reads | writes, 2, 2},
		"a read, reads only":    {operation.Operation{Retry: true}, reads, 2, 2},
		"a read, writes only":   {operation.Operation{Retry: true}, writes, 1, 1},
		"a getMore":             {operation.Operation{}, reads | writes, 1, 2},
		"a write":               {operation.Operation{Kind: operation.Write, Retry: true}, reads | writes, 2, 2},
		"a write, writes only":  {operation.Operation{Kind: operation.Write, Retry: true}, writes, 2, 2},
		"a write, reads only":   {operation.Operation{Kind: operation.Write, Retry: true}, reads, 1, 1},
		"a write of several":    {operation.Operation{Kind: operation.Write}, reads | writes, 1, 2},
		"a command":             {operation.Operation{Kind: operation.Generic, Retry: true}, reads | writes, 1, 2},
		"a command, reads only": {operation.Operation{Kind: operation.Generic}, reads, 1, 1},
		"an output":             {operation.Operation{Kind: operation.Output}, writes, 1, 2},
		"an output, reads only": {operation.Operation{Kind: operation.Output}, reads, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, row := range []struct {
				reply bson.Raw
				want  int
			}{
				{refusal(91, mongoerr.LabelRetryableWrite), tt.transient}, {busy(), tt.overloaded},
			} {
				r, f := retrying(21, row.reply)
				r.RetryReads, r.RetryWrites = tt.allowed&reads != 0, tt.allowed&writes != 0
				r.Jitter = func() float64 { return 0 }
				op := tt.op
				op.Database, op.Command = "db", command{}
				_, err := r.Run(t.Context(), &op)
				if len(f.sent) != row.want || (err == nil) != (row.want == 2) {
					t.Errorf("after %v: %d attempts, %v, want %d", row.reply, len(f.sent), err,
						row.want)
				}
			}
		})
	}
}

// TestOverloadOfExecutedWrite checks that a write which the server has carried out is sent again
// for an overload only with a number, by which the server knows it.
func TestOverloadOfExecutedWrite(t *testing.T) {
	reply := func(field string) bson.Raw {
		b := bson.NewBuilder(nil).Int32("ok", 1)
		if field == "writeErrors" {
			b.OpenArray(field).OpenDocument("").Int32("index", 1)
		} else {
			b.OpenDocument(field)
		}
		b.Int32("code", 462).Close()
		if field == "writeErrors" {
			b.Close()
		}
		return b.OpenArray("errorLabels").String("", mongoerr.LabelSystemOverloaded).
			String("", mongoerr.LabelRetryable).Close().Finish()
	}
	for name, tt := range map[string]struct {
		kind       operation.Kind
		retry      bool
		standalone bool
		want       int // attempts
	}{
		"numbered":               {operation.Write, true, false, 2},
		"of several documents":   {operation.Write, false, false, 1},
		"no retryable writes":    {operation.Write, true, true, 1},
		"an output's collection": {operation.Output, false, false, 1},
	} {
		for _, field := range []string{"writeErrors", "writeConcernError"} {
			r, f := retrying(21, reply(field))
			r.Jitter = func() float64 { return 0 }
			if tt.standalone {
				f.hello.Kind = description.ServerStandalone
			}
			_, _ = r.Run(t.Context(), &operation.Operation{
				Database: "db", Command: command{}, Kind: tt.kind, Retry: tt.retry,
			})
			if len(f.sent) != tt.want {
				t.Errorf("%s, %s: %d attempts, want %d", name, field, len(f.sent), tt.want)
			}
		}
	}
}

// TestRetriesOfTransaction checks that a command of a transaction is repeated for an overloaded
// server only, and its end always, and when the end counts as repeated.
func TestRetriesOfTransaction(t *testing.T) {
	stepdown := refusal(91, mongoerr.LabelRetryableWrite)
	for name, tt := range map[string]struct {
		reply       bson.Raw
		commit      bool
		retryWrites bool
		attempts    int
		repeated    bool
	}{
		"a command":                     {stepdown, false, true, 1, false},
		"a command, overloaded":         {busy(), false, true, 2, false},
		"a commit":                      {stepdown, true, false, 2, true},
		"a commit, refused by overload": {busy(), true, true, 2, false},
	} {
		r, f := retrying(21)
		r.RetryWrites, r.Jitter = tt.retryWrites, func() float64 { return 0 }
		s := inTransaction(t, r, session.TransactionOptions{})
		repeated := &repeats{}
		op := operation.Operation{
			Database: "db", Command: repeated, Kind: operation.Write, Retry: true, Session: s,
		}
		if tt.commit {
			if _, err := r.Run(t.Context(), &op); err != nil {
				t.Fatal(err)
			}
			op = committing(t, s)
			op.Command = repeated
		}
		f.sent, f.replies, repeated.all = nil, []bson.Raw{tt.reply}, nil
		_, _ = r.Run(t.Context(), &op)
		if len(f.sent) != tt.attempts || slices.Contains(repeated.all, true) != tt.repeated {
			t.Errorf("%s: %d attempts, repeated %v", name, len(f.sent), repeated.all)
		}
	}
}

// repeats is a command that keeps what its attempts learn.
type repeats struct{ all []bool }

func (*repeats) Name() string { return "test" }

func (r *repeats) Append(b *bson.Builder, to operation.Target) error {
	r.all = append(r.all, to.Repeated)
	b.Int32("test", 1)
	return nil
}

// TestFailedSelection checks that there is no other attempt if no server was selected, and that one
// that was makes the check-out's error that of a retryable write.
func TestFailedSelection(t *testing.T) {
	cleared := &pool.PoolClearedError{Address: "a:1"}
	overload := &mongoerr.OverloadError{Err: &mongoerr.NetworkError{Op: "dial", Err: io.EOF}}
	for name, tt := range map[string]struct {
		selection, checkOut error
		attempts            int
	}{
		"no server":              {selection: &mongoerr.SelectionError{}},
		"no server for an error": {selection: overload},
		"the pool was cleared":   {checkOut: cleared, attempts: 1},
		"a refused connection":   {checkOut: overload, attempts: 1},
		"no connection in time":  {checkOut: &pool.WaitQueueTimeoutError{}},
	} {
		r, f := retrying(21)
		r.Jitter = func() float64 { return 0 }
		f.selectErrs, f.checkOutErrs = []error{tt.selection}, []error{tt.checkOut}
		op := retryableWrite()
		_, err := r.Run(t.Context(), &op)
		if len(f.sent) != tt.attempts || (err == nil) != (tt.attempts > 0) {
			t.Errorf("%s: Run() = %v after %d commands", name, err, len(f.sent))
		}
		if err != nil && mongoerr.Judge(err).Delivery != mongoerr.Unsent {
			t.Errorf("%s: %v is %v", name, err, mongoerr.Judge(err).Delivery)
		}
	}
}

// TestUnsentRetry checks that the error is that of the attempt that was sent, whatever ends the one
// after it.
func TestUnsentRetry(t *testing.T) {
	stepdown := refusal(91, mongoerr.LabelRetryableWrite)
	for name, end := range map[string]error{
		"no server": &mongoerr.SelectionError{}, "canceled": context.Canceled,
		"out of time": context.DeadlineExceeded,
	} {
		r, f := retrying(21, stepdown)
		op := retryableWrite()
		f.selectErrs = []error{nil, end}
		_, err := r.Run(t.Context(), &op)
		if mongoerr.Judge(err).Delivery != mongoerr.Refused || mongoerr.Code(err) != 91 {
			t.Errorf("%s: Run() = %v, which is %v", name, err, mongoerr.Judge(err).Delivery)
		}
		if name != "no server" && !errors.Is(err, end) {
			t.Errorf("%s: Run() = %v, want also %v", name, err, end)
		}
	}
}

// TestEndAfterWrite checks that a write that was applied is not an error if time runs out, or its
// caller goes away, in the wait before another attempt to satisfy its write concern.
func TestEndAfterWrite(t *testing.T) {
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		r, f := retrying(21, bson.NewBuilder(nil).Int32("ok", 1).
			OpenDocument("writeConcernError").Int32("code", 462).Close().
			OpenArray("errorLabels").String("", mongoerr.LabelSystemOverloaded).
			String("", mongoerr.LabelRetryable).Close().Finish())
		ctx, cancel := context.WithCancelCause(t.Context())
		f.before = func(context.Context) { cancel(end) }
		op := retryableWrite()
		res, err := r.Run(ctx, &op)
		if err != nil || res.WriteConcernError == nil || len(f.sent) != 1 {
			t.Errorf("%v: Run() = %v, %v after %d attempts, want the write concern error only", end,
				res.WriteConcernError, err, len(f.sent))
		}
	}
}

// TestOtherServer checks where the retry goes: in a sharded cluster to another mongos, and else
// where the selector says.
func TestOtherServer(t *testing.T) {
	for _, tt := range []struct {
		kind   description.Kind
		server description.ServerKind
		want   address.Address
	}{
		{description.KindSharded, description.ServerMongos, "b:1"},
		{description.KindReplicaSetWithPrimary, description.ServerRSPrimary, "a:1"},
	} {
		one := description.Server{Kind: tt.server, Address: "a:1", MaxWireVersion: 21}
		other := one
		other.Address = "b:1"
		d := &deployed{topology: description.Topology{
			Kind: tt.kind, Servers: []*description.Server{&one, &other},
		}}
		d.replies = []bson.Raw{refusal(6)}
		r := operation.Runner{Deployment: d, RetryReads: true}
		op := operation.Operation{Database: "db", Command: command{}, Retry: true}
		res, err := r.Run(t.Context(), &op)
		if err != nil || res.Server != tt.want {
			t.Errorf("%v: the retry went to %s, %v, want %s", tt.kind, res.Server, err, tt.want)
		}
	}
}

// TestEndOfTimeUnderTimeout checks that an operation that timeoutMS ends says so once, and what
// went wrong before.
func TestEndOfTimeUnderTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := retrying(21)
		f.reply = refusal(6)
		ctx, done := r.Begin(t.Context(), new(time.Second), time.Time{})
		defer done()
		op := operation.Operation{Database: "db", Command: command{}, Retry: true}
		_, err := r.Run(ctx, &op)
		over, _ := errors.AsType[*operation.TimeoutError](err)
		if over == nil || mongoerr.Code(over.Err) != 6 || isA[*operation.TimeoutError](over.Err) {
			t.Errorf("Run() = %v, want the end of its time around code 6", err)
		}
		if n := len(f.sent); n < 5 || n > 9 {
			t.Errorf("%d attempts in a second", n)
		}
	})
	r, f := retrying(21)
	late := &mongoerr.NetworkError{Op: "read", Sent: true, Err: context.DeadlineExceeded}
	f.err = late
	op := operation.Operation{Database: "db", Command: command{}, Retry: true}
	if _, err := r.Run(t.Context(), &op); !errors.Is(err, late) ||
		isA[*operation.TimeoutError](err) {
		t.Errorf("Run() = %v, want the network's error as it is", err)
	}
}

func TestInterrupted(t *testing.T) {
	lost := &operation.OutcomeUnknownError{Err: &mongoerr.NetworkError{Op: "read", Err: io.EOF}}
	err := operation.Interrupted(context.Canceled, lost)
	if !errors.Is(err, context.Canceled) || mongoerr.Judge(err).Delivery != mongoerr.Unanswered ||
		err.Error() != "context canceled, after: "+lost.Error() {
		t.Errorf("Interrupted() = %v, which is %v", err, mongoerr.Judge(err).Delivery)
	}
	gone := &mongoerr.NetworkError{Op: "read", Err: context.Canceled}
	if got := operation.Interrupted(context.Canceled, gone); got != error(gone) { //nolint:errorlint // identity
		t.Errorf("Interrupted(%v) = %v, want it as it is", gone, got)
	}
}

// TestNumberOfCommands checks that each command has a number of its own in events, and the number
// of the operation.
func TestNumberOfCommands(t *testing.T) {
	r, _ := retrying(21, refusal(91, mongoerr.LabelRetryableWrite))
	var h heard
	r.Sink = h.sink()
	op := retryableWrite()
	if _, err := r.Run(t.Context(), &op); err != nil || len(h.started) != 2 {
		t.Fatalf("Run() = %v, %d commands", err, len(h.started))
	}
	one, two := h.started[0], h.started[1]
	if one.RequestID == two.RequestID || one.OperationID != two.OperationID {
		t.Errorf("the commands are %d and %d of the operations %d and %d", one.RequestID,
			two.RequestID, one.OperationID, two.OperationID)
	}
}

// TestLabelsOfDriver checks which errors the driver labels as those of a retryable write.
func TestLabelsOfDriver(t *testing.T) {
	lost := &mongoerr.NetworkError{Op: "read", Sent: true, Err: io.EOF}
	left := &mongoerr.NetworkError{Op: "read", Sent: true, Err: context.Canceled}
	for name, tt := range map[string]struct {
		err  error
		op   operation.Operation
		want bool
	}{
		"a lost reply":                {lost, retryableWrite(), true},
		"the caller has left":         {left, retryableWrite(), false},
		"a read":                      {lost, operation.Operation{Retry: true}, false},
		"a write of many documents":   {lost, operation.Operation{Kind: operation.Write}, false},
		"a command that a user wrote": {lost, operation.Operation{Kind: operation.Generic}, false},
	} {
		r, f := retrying(21)
		f.err = tt.err
		tt.op.Database, tt.op.Command = "db", command{}
		_, err := r.Run(t.Context(), &tt.op)
		if got := mongoerr.HasLabel(err, mongoerr.LabelRetryableWrite); got != tt.want {
			t.Errorf("%s: %v is labeled: %v, want %v", name, err, got, tt.want)
		}
	}
}

// TestWriteConcernErrorsOfOldServers checks that the driver labels those of servers before 4.4, and
// not those of a mongos.
func TestWriteConcernErrorsOfOldServers(t *testing.T) {
	concern := func(code int32, writeErrors bool) bson.Raw {
		b := bson.NewBuilder(nil).Int32("ok", 1)
		if writeErrors {
			b.OpenArray("writeErrors").OpenDocument("").Int32("index", 0).Int32("code", 11000).
				String("errmsg", "").Close().Close()
		}
		return b.OpenDocument("writeConcernError").Int32("code", code).Close().Finish()
	}
	for name, tt := range map[string]struct {
		wire     int32
		kind     description.ServerKind
		reply    bson.Raw
		attempts int
	}{
		"a step-down":                  {8, description.ServerRSPrimary, concern(91, false), 2},
		"a step-down, by a new server": {9, description.ServerRSPrimary, concern(91, false), 1},
		"a step-down, by a mongos":     {8, description.ServerMongos, concern(91, false), 1},
		"not in time":                  {8, description.ServerRSPrimary, concern(64, false), 1},
		"with a write error":           {8, description.ServerRSPrimary, concern(91, true), 2},
	} {
		r, f := retrying(tt.wire, tt.reply)
		f.hello.Kind = tt.kind
		op := retryableWrite()
		_, _ = r.Run(t.Context(), &op)
		if len(f.sent) != tt.attempts {
			t.Errorf("%s: %d attempts, want %d", name, len(f.sent), tt.attempts)
		}
	}
}

// TestStorageEngineWithoutRetryableWrites checks for which error the driver has better words.
func TestStorageEngineWithoutRetryableWrites(t *testing.T) {
	const theirs = "Transaction numbers are only allowed on a replica set member or mongos"
	for _, tt := range []struct {
		code   int32
		text   string
		better bool
	}{{20, theirs, true}, {20, "other", false}, {21, theirs, false}} {
		r, _ := retrying(21, bson.NewBuilder(nil).Int32("ok", 0).Int32("code", tt.code).
			String("errmsg", tt.text).Finish())
		op := retryableWrite()
		_, err := r.Run(t.Context(), &op)
		failed, ok := errors.AsType[*mongoerr.CommandError](err)
		if !ok || failed.Code != tt.code || (failed.Message != tt.text) != tt.better {
			t.Errorf("code %d, %q: Run() = %v", tt.code, tt.text, err)
		}
	}
}

// TestServerThatLosesRetryableWrites checks that a write is not repeated without its number.
func TestServerThatLosesRetryableWrites(t *testing.T) {
	r, f := retrying(21, refusal(91, mongoerr.LabelRetryableWrite))
	f.before = func(context.Context) { f.hello.LogicalSessionTimeoutMinutes = nil }
	op := retryableWrite()
	if _, err := r.Run(t.Context(), &op); mongoerr.Code(err) != 91 || len(f.sent) != 1 {
		t.Errorf("Run() = %v after %d commands, want the first error", err, len(f.sent))
	}
}

// TestServerWithoutRetryableWrites checks that a write on a server that takes no numbers has none,
// one attempt, and no label of the driver. What an overloaded server refuses is repeated, also
// without a number.
func TestServerWithoutRetryableWrites(t *testing.T) {
	for name, change := range map[string]func(*description.Server){
		"a standalone": func(s *description.Server) { s.Kind = description.ServerStandalone },
		"no sessions":  func(s *description.Server) { s.LogicalSessionTimeoutMinutes = nil },
	} {
		for _, tt := range []struct {
			reply    bson.Raw
			err      error
			attempts int
		}{
			{reply: refusal(91, mongoerr.LabelRetryableWrite), attempts: 1},
			{err: &mongoerr.NetworkError{Op: "read", Sent: true, Err: io.EOF}, attempts: 1},
			{reply: busy(), attempts: 3},
		} {
			r, f := retrying(21)
			r.Jitter = func() float64 { return 0 }
			f.reply, f.err = tt.reply, tt.err
			change(&f.hello)
			op := retryableWrite()
			_, err := r.Run(t.Context(), &op)
			if err == nil || len(f.sent) != tt.attempts {
				t.Errorf("%s: Run() = %v after %d attempts, want %d", name, err, len(f.sent),
					tt.attempts)
			}
			if tt.err != nil && mongoerr.HasLabel(err, mongoerr.LabelRetryableWrite) {
				t.Errorf("%s: %v is labeled", name, err)
			}
			for _, sent := range f.sent {
				if _, numbered := sent.Body.Lookup("txnNumber"); numbered {
					t.Errorf("%s: the command carries %s", name, carried(sent))
				}
			}
		}
	}
}

// TestUnacknowledgedFlag checks that the server is told whether a reply is awaited.
func TestUnacknowledgedFlag(t *testing.T) {
	for _, unacknowledged := range []bool{false, true} {
		f := &fake{}
		op := operation.Operation{
			Database: "db", Command: command{}, Kind: operation.Write,
			Unacknowledged: unacknowledged,
		}
		if _, err := (&operation.Runner{Deployment: f}).Run(t.Context(), &op); err != nil {
			t.Fatal(err)
		}
		if got := f.sent[0].Flags&wire.MoreToCome != 0; got != unacknowledged {
			t.Errorf("unacknowledged %v: moreToCome is %v", unacknowledged, got)
		}
	}
}

// TestTurnOnPin checks that an operation waits for its turn on a pinned connection, and sends
// nothing if its context ends before.
func TestTurnOnPin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{kind: description.KindLoadBalanced}
		r := operation.Runner{Deployment: f}
		op := operation.Operation{Database: "db", Command: command{}, Keep: true}
		res, err := r.Run(t.Context(), &op)
		if err != nil {
			t.Fatal(err)
		}
		wait := make(chan struct{})
		f.before = func(context.Context) { <-wait }
		op.On = res.Pin
		ends := make(chan error, 2)
		run := func(ctx context.Context) {
			_, err := r.Run(ctx, &op)
			ends <- err
		}
		go run(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go run(ctx)
		synctest.Wait()
		cancel()
		if err := <-ends; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that waited: %v, want canceled", err)
		}
		close(wait)
		if err := <-ends; err != nil || len(f.sent) != 2 {
			t.Errorf("the one before: %v, %d commands", err, len(f.sent))
		}
		if res.Pin.Release(); f.checkedOut != 0 {
			t.Errorf("%d connections out", f.checkedOut)
		}
	})
}

// TestRetriedFactsCount checks that OperationRetried counts all attempts.
func TestRetriedFactsCount(t *testing.T) {
	r, _ := retrying(21, busy(), refusal(91, mongoerr.LabelRetryableWrite))
	r.Jitter = func() float64 { return 0 }
	var attempts []int
	r.Sink = &event.Sink{OperationRetried: func(e event.OperationRetried) {
		attempts = append(attempts, e.Attempt)
	}}
	op := retryableWrite()
	if _, err := r.Run(t.Context(), &op); err != nil || !slices.Equal(attempts, []int{2, 3}) {
		t.Errorf("Run() = %v, attempts %v", err, attempts)
	}
}
