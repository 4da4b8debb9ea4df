package operation_test

import (
	"errors"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/session"
)

// LB-020: the connection is kept where the operation asks for that, behind a load balancer, and
// only if it succeeds.
func TestKeep(t *testing.T) {
	failed := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", 10107).Finish()
	tests := []struct {
		name  string
		kind  description.Kind
		keep  bool
		reply bson.Raw
		err   error
		want  bool
	}{
		{name: "load balancer", kind: description.KindLoadBalanced, keep: true, want: true},
		{name: "not asked for", kind: description.KindLoadBalanced},
		{name: "sharded", kind: description.KindSharded, keep: true},
		{name: "replica set", kind: description.KindReplicaSetWithPrimary, keep: true},
		{name: "command error", kind: description.KindLoadBalanced, keep: true, reply: failed},
		{name: "network error", kind: description.KindLoadBalanced, keep: true, err: &mongoerr.NetworkError{Op: "read"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{kind: tt.kind, reply: tt.reply, err: tt.err}
			res, err := (&operation.Runner{Deployment: f}).Run(t.Context(), &operation.Operation{
				Database: "db", Command: command{}, Keep: tt.keep,
			})
			if (err != nil) != (tt.reply != nil || tt.err != nil) {
				t.Errorf("Run() = %v", err)
			}
			if (res.Pin != nil) != tt.want || (f.checkedOut == 1) != tt.want {
				t.Errorf("Pin = %v with %d connections out, want it kept: %v", res.Pin,
					f.checkedOut, tt.want)
			}
			if len(f.lessons) != 1 || (f.lessons[0] != nil) != (err != nil) {
				t.Errorf("the topology learnt %v, want the outcome once", f.lessons)
			}
			if res.Pin != nil {
				res.Pin.Release()
			}
			if f.checkedOut != 0 {
				t.Errorf("%d connections out", f.checkedOut)
			}
		})
	}
}

// TestSessionOfKept checks that an operation which keeps the connection for another one keeps its
// implicit session, too, and only if it succeeds.
func TestSessionOfKept(t *testing.T) {
	for name, tt := range map[string]struct {
		replies []bson.Raw
		kept    bool
	}{
		"it succeeds": {nil, true},
		"it fails":    {[]bson.Raw{refusal(13)}, false},
	} {
		r, _ := retrying(21, tt.replies...)
		op := operation.Operation{Database: "db", Command: command{}, Keep: true}
		res, err := r.Run(t.Context(), &op)
		if (err == nil) != tt.kept || (res.Session != nil) != tt.kept {
			t.Errorf("%s: Run() = %v with the session %v, want it kept: %v", name, err, res.Session,
				tt.kept)
		}
		if n := r.Sessions.Len(); (n == 0) != tt.kept {
			t.Errorf("%s: %d sessions are in the pool", name, n)
		}
	}
}

// Load Balancer Support, "Connection Pinning": one check-out, whatever the operations on the
// connection come to; the topology learns from each (LB-052).
func TestRunOnPin(t *testing.T) {
	f := &fake{kind: description.KindLoadBalanced}
	r := operation.Runner{Deployment: f}
	res, err := r.Run(t.Context(),
		&operation.Operation{Database: "db", Command: command{}, Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	f.selector = ""
	refused, cut := errors.New("refused"), &mongoerr.NetworkError{Op: "read", Sent: true}
	for _, tt := range []struct {
		cmd     operation.Command
		err     error // of the network
		want    error
		learned error
	}{
		{cmd: command{}},
		{cmd: command{err: refused}, want: refused},
		{cmd: command{}, err: cut, want: cut, learned: cut},
		{cmd: command{}},
	} {
		f.err, f.lessons = tt.err, nil
		again, err := r.Run(t.Context(),
			&operation.Operation{Database: "db", Command: tt.cmd, On: res.Pin, Keep: true})
		if !errors.Is(err, tt.want) || again.Pin != nil {
			t.Errorf("Run() = %v, pin %v, want %v", err, again.Pin, tt.want)
		}
		if f.checkedOut != 1 || f.selector != "" || len(f.lessons) != 1 ||
			!errors.Is(f.lessons[0], tt.learned) {
			t.Errorf("%d connections out, selected by %q, learnt %v, want the pinned one and %v",
				f.checkedOut, f.selector, f.lessons, tt.learned)
		}
	}
	limit := errors.New("limit")
	f.pinErr = limit
	if err := res.Pin.HoldForCursor(); !errors.Is(err, limit) || f.checkedOut != 1 {
		t.Errorf("HoldForCursor() = %v, %d connections out, want the limit, and the connection "+
			"still ours", err, f.checkedOut)
	}
	if res.Pin.Release(); f.checkedOut != 0 {
		t.Errorf("%d connections out", f.checkedOut)
	}
	f.err, f.sent = nil, nil
	if _, err := r.Run(t.Context(), &operation.Operation{
		Database: "db", Command: command{}, On: res.Pin,
	}); err == nil || len(f.sent) != 0 {
		t.Errorf("Run() on a released connection = %v, and %d messages were sent", err, len(f.sent))
	}
}

// TestPanicAfterSendingReturnsConnection checks that a sink that panics costs the pool no
// connection, and that the holder of a pinned connection still gives it back.
func TestPanicAfterSendingReturnsConnection(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		f := &fake{kind: description.KindLoadBalanced}
		r := operation.Runner{Deployment: f}
		op := operation.Operation{Database: "db", Command: command{}, Keep: true}
		want := 0
		if pinned {
			res, err := r.Run(t.Context(), &op)
			if err != nil {
				t.Fatal(err)
			}
			op.On, want = res.Pin, 1
		}
		r.Sink = &event.Sink{CommandSucceeded: func(event.CommandSucceeded) {
			panic("bug: in a test")
		}}
		func() {
			defer func() {
				if p := recover(); p == nil || f.checkedOut != want {
					t.Errorf("panic(%v), %d connections out, want %d", p, f.checkedOut, want)
				}
			}()
			_, _ = r.Run(t.Context(), &op)
		}()
	}
}

// A sink that panics inside a check-in: the connection has been given back, and is not given back
// again.
func TestPanicInCheckIn(t *testing.T) {
	for _, err := range []error{nil, &mongoerr.NetworkError{Op: "read"}} {
		f := &fake{err: err, panics: true}
		func() {
			defer func() {
				if p := recover(); p == nil || f.checkedOut != 0 || len(f.lessons) != 1 {
					t.Errorf("panic(%v), %d connections out, learnt %v, want one check-in", p,
						f.checkedOut, f.lessons)
				}
			}()
			_, _ = (&operation.Runner{Deployment: f}).
				Run(t.Context(), &operation.Operation{Database: "db", Command: command{}})
		}()
	}
}

// An attempt that wrote nothing is not the operation's outcome, and its connection goes back.
func TestConnectionOfDroppedOutcome(t *testing.T) {
	failed := func(labels ...string) bson.Raw {
		b := bson.NewBuilder(nil).Int32("ok", 1).OpenDocument("writeConcernError").
			Int32("code", 91).Close().OpenArray("errorLabels")
		for _, label := range labels {
			b.String("", label)
		}
		return b.Close().Finish()
	}
	f := &fake{
		kind: description.KindLoadBalanced, hello: description.Server{MaxWireVersion: 25},
		replies: []bson.Raw{
			failed(mongoerr.LabelRetryableWrite),
			failed(mongoerr.LabelRetryableWrite, mongoerr.LabelNoWritesPerformed),
		},
	}
	r := operation.Runner{Deployment: f, RetryWrites: true, Sessions: &session.Pool{}}
	res, err := r.Run(t.Context(), &operation.Operation{
		Database: "db", Command: command{}, Kind: operation.Write, Retry: true, Keep: true,
	})
	if err != nil || len(f.sent) != 2 || res.WriteConcernError == nil {
		t.Fatalf("Run() = %v, %v after %d attempts", res.WriteConcernError, err, len(f.sent))
	}
	if res.Pin != nil || f.checkedOut != 0 {
		t.Errorf("Pin = %v, %d connections out", res.Pin, f.checkedOut)
	}
}
