package operation_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
)

func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(d time.Duration) time.Time { return time.Now().Add(d) }
		second, hour, zero := new(time.Second), new(time.Hour), new(time.Duration(0))
		tests := []struct {
			name             string
			runner, timeout  *time.Duration
			context, until   time.Duration // 0: none
			want             time.Duration // 0: no deadline
			wantLimitedByOwn bool
		}{
			{name: "nothing"},
			{name: "the runner's", runner: second, want: time.Second, wantLimitedByOwn: true},
			{name: "the operation's", runner: hour, timeout: second, want: time.Second, wantLimitedByOwn: true},
			{name: "0", runner: hour, timeout: zero},
			{name: "the context's", runner: hour, context: time.Minute, want: time.Minute, wantLimitedByOwn: true},
			{name: "until", runner: hour, until: time.Minute, want: time.Minute, wantLimitedByOwn: true},
			{name: "before until", runner: second, until: time.Minute, want: time.Second, wantLimitedByOwn: true},
			{name: "until only", until: time.Minute, want: time.Minute},
			{name: "0 and until", timeout: zero, until: time.Minute, want: time.Minute},
		}
		for _, tt := range tests {
			ctx := t.Context()
			if tt.context > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, at(tt.context))
				defer cancel()
			}
			var until time.Time
			if tt.until > 0 {
				until = at(tt.until)
			}
			r := operation.Runner{Timeout: tt.runner}
			ctx, done := r.Begin(ctx, tt.timeout, until)
			defer done()
			deadline, ok := ctx.Deadline()
			if ok != (tt.want > 0) || ok && !deadline.Equal(at(tt.want)) {
				t.Errorf("%s: deadline in %v (%v), want in %v", tt.name, time.Until(deadline), ok,
					tt.want)
			}
			if got := r.Limited(tt.timeout); got != tt.wantLimitedByOwn {
				t.Errorf("%s: Limited() = %v", tt.name, got)
			}
		}
	})
}

// Nothing is selected, checked out or sent for a context that has ended.
func TestEndedContext(t *testing.T) {
	gone := errors.New("gone")
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	late, done := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer done()
	for _, tt := range []struct {
		ctx  context.Context //nolint:containedctx // of one call
		want error
		kind mongoerr.Delivery
	}{{canceled, gone, mongoerr.Unsent}, {late, context.DeadlineExceeded, mongoerr.Unsent}} {
		f := &fake{}
		_, err := (&operation.Runner{Deployment: f}).
			Run(tt.ctx, &operation.Operation{Database: "db", Command: command{}})
		if !errors.Is(err, tt.want) || mongoerr.Judge(err).Delivery != tt.kind || f.selector != "" {
			t.Errorf("Run() = %v, selected by %q, want %v before that", err, f.selector, tt.want)
		}
	}
}

// Code 50 is a TimeoutError where the deadline was sent, and the server's error elsewhere.
func TestExpired(t *testing.T) {
	expired := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", 50).String("errmsg", "slow").
		Finish()
	other := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", 51).Finish()
	for _, tt := range []struct {
		name    string
		op      operation.Operation
		reply   bson.Raw
		timeout bool
		sent    int64
	}{
		{"deadline", operation.Operation{DeadlineAsMaxTime: true}, expired, true, 60_000},
		{"deadline, another code", operation.Operation{DeadlineAsMaxTime: true}, other, false, 60_000},
		{"own", operation.Operation{MaxTimeMS: new(int64(5))}, expired, false, 5},
		{"own before the deadline", operation.Operation{MaxTimeMS: new(int64(5)), DeadlineAsMaxTime: true}, expired, false, 5},
		{"own after it", operation.Operation{MaxTimeMS: new(int64(60_001)), DeadlineAsMaxTime: true}, expired, true, 60_000},
		{"neither", operation.Operation{}, expired, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			f := &fake{reply: tt.reply}
			tt.op.Database, tt.op.Command = "db", command{}
			res, err := (&operation.Runner{Deployment: f}).Run(ctx, &tt.op)
			timeout, ok := errors.AsType[*operation.TimeoutError](err)
			if ok != tt.timeout || mongoerr.Code(err) == 0 ||
				errors.Is(err, context.DeadlineExceeded) != tt.timeout {
				t.Errorf("%s: Run() = %v, want a TimeoutError: %v", tt.name, err, tt.timeout)
			}
			if ok && (!timeout.Timeout() || timeout.Error() != "timed out: "+timeout.Err.Error()) {
				t.Errorf("%s: Timeout() = %v, Error() = %q", tt.name, timeout.Timeout(), timeout)
			}
			v, _ := f.sent[0].Body.Lookup("maxTimeMS")
			if ms, _ := v.AsInt64(); ms != tt.sent || res.DeadlineSent != (tt.sent == 60_000) {
				t.Errorf("%s: maxTimeMS %d, the deadline's %v, want %d", tt.name, ms,
					res.DeadlineSent, tt.sent)
			}
		})
	}
}

// A context that never ends is the exchange's own, and so is that of an operation that does not
// run on.
func TestRunOnNeedsNothing(t *testing.T) {
	ending, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, tt := range []struct {
		ctx   context.Context //nolint:containedctx // of one call
		runOn bool
	}{{context.Background(), true}, {ending, false}} { //nolint:usetesting // one without an end
		f := &fake{before: func(got context.Context) {
			if got != tt.ctx {
				t.Errorf("the exchange has the context %v", got)
			}
		}}
		op := operation.Operation{Database: "db", Command: command{}, RunOn: tt.runOn}
		if _, err := (&operation.Runner{Deployment: f}).Run(tt.ctx, &op); err != nil {
			t.Error(err)
		}
	}
}

// A reply that cannot be read leaves it open what a write did.
func TestMalformedReply(t *testing.T) {
	for kind, unknown := range map[operation.Kind]bool{
		operation.Read: false, operation.Write: true, operation.Generic: true, operation.Output: true,
	} {
		f := &fake{reply: bson.NewBuilder(nil).Int32("n", 1).Finish()} // no ok
		_, err := (&operation.Runner{Deployment: f}).Run(t.Context(), &operation.Operation{
			Database: "db", Command: command{}, Kind: kind,
		})
		if _, ok := errors.AsType[*operation.OutcomeUnknownError](err); ok != unknown {
			t.Errorf("kind %d: Run() = %v, want an unknown outcome: %v", kind, err, unknown)
		}
		if _, ok := errors.AsType[*mongoerr.MalformedReplyError](err); !ok || len(f.lessons) != 1 ||
			f.lessons[0] == nil {
			t.Errorf("kind %d: Run() = %v, learnt %v, want a MalformedReplyError", kind, err,
				f.lessons)
		}
	}
}

// In events document sequences are arrays at the end of their command.
func TestSequenceInEvents(t *testing.T) {
	docs := []bson.Raw{bson.NewBuilder(nil).Int32("a", 1).Finish(), bson.NewBuilder(nil).Finish()}
	var shown []string
	r := operation.Runner{Deployment: &fake{}, Sink: &event.Sink{CommandStarted: func(
		e event.CommandStarted,
	) {
		shown = keys(e.Body)
		v, _ := e.Body.Lookup("documents")
		a, _ := v.Array()
		var got []bson.Raw
		for d := range a.Documents() {
			got = append(got, d)
		}
		if len(got) != 2 || string(got[0]) != string(docs[0]) || string(got[1]) != string(docs[1]) {
			t.Errorf("documents %v, want %v", got, docs)
		}
	}}}
	op := operation.Operation{
		Database: "db", Command: sequence{command{docs: docs}}, Kind: operation.Write,
	}
	if _, err := r.Run(t.Context(), &op); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(shown, []string{"test", "$db", "documents", "counts"}) {
		t.Errorf("the command has the keys %v", shown)
	}
}

func TestErrorTexts(t *testing.T) {
	inner := errors.New("cut")
	for want, err := range map[string]error{
		"outcome of the write is unknown: cut": &operation.OutcomeUnknownError{Err: inner},
		"timed out: cut":                       &operation.TimeoutError{Err: inner},
		"the command of 9 bytes is larger than the server's limit of 5 bytes": &operation.TooLargeError{Size: 9, Limit: 5},
	} {
		if err.Error() != want {
			t.Errorf("Error() = %q, want %q", err, want)
		}
	}
}

func TestNewID(t *testing.T) {
	if a, b := operation.NewID(), operation.NewID(); a <= 0 || a == b {
		t.Errorf("NewID() = %d, then %d", a, b)
	}
}
