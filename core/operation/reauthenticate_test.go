package operation_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/session"
)

// Whatever the operation is, it is sent once more after the connection has authenticated again.
func TestReauthentication(t *testing.T) {
	expired := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", 391).Finish()
	refused := errors.New("refused")
	docs := []bson.Raw{bson.NewBuilder(nil).Int32("a", 1).Finish()}
	tests := []struct {
		name    string
		replies []bson.Raw
		err     error // of the reauthentication
		sent    int
		events  []string
		fails   func(error) bool
	}{
		{"once", []bson.Raw{expired}, nil, 2, []string{"started", "failed", "started", "succeeded"}, nil},
		{
			"twice",
			[]bson.Raw{expired, expired},
			nil, 2,
			[]string{"started", "failed", "started", "failed"},
			func(err error) bool { return mongoerr.Code(err) == 391 },
		},
		{
			"refused",
			[]bson.Raw{expired},
			refused, 1,
			[]string{"started", "failed"},
			func(err error) bool { return errors.Is(err, refused) },
		},
	}
	for _, tt := range tests {
		for _, kind := range []operation.Kind{
			operation.Read, operation.Write, operation.Generic, operation.Output,
		} {
			t.Run(tt.name, func(t *testing.T) {
				f := &fake{replies: slices.Clone(tt.replies), reauthErr: tt.err}
				var events []string
				requests, operations := map[int32]bool{}, map[int64]bool{}
				r := operation.Runner{Deployment: f, Sink: &event.Sink{
					CommandStarted: func(e event.CommandStarted) {
						events = append(events, "started")
						requests[e.RequestID], operations[e.OperationID] = true, true
					},
					CommandSucceeded: func(event.CommandSucceeded) {
						events = append(events, "succeeded")
					},
					CommandFailed: func(event.CommandFailed) { events = append(events, "failed") },
				}}
				_, err := r.Run(t.Context(), &operation.Operation{
					Database: "db", Command: sequence{command{docs: docs}}, Kind: kind,
				})
				if tt.fails == nil && err != nil || tt.fails != nil && !tt.fails(err) {
					t.Errorf("Run() = %v", err)
				}
				if len(f.sent) != tt.sent || len(f.reauths) != 1 ||
					mongoerr.Code(f.reauths[0]) != 391 || f.checkedOut != 0 {
					t.Errorf("%d commands, reauthentications for %v, %d connections out",
						len(f.sent), f.reauths, f.checkedOut)
				}
				for _, m := range f.sent {
					if len(m.Sequences) != 2 || len(m.Sequences[0].Documents) != 1 {
						t.Errorf("sequences are %v", m.Sequences)
					}
				}
				if len(requests) != tt.sent || len(operations) != 1 {
					t.Errorf("request ids %v, operation ids %v", requests, operations)
				}
				if !slices.Equal(events, tt.events) {
					t.Errorf("events are %v, want %v", events, tt.events)
				}
			})
		}
	}
}

// TestReauthenticationOfFirst: a transaction whose first command did not begin it, since the
// connection could not authenticate again, begins with the next one.
func TestReauthenticationOfFirst(t *testing.T) {
	expired := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", 391).Finish()
	r, f := retrying(21, expired)
	f.reauthErr = errors.New("the provider is down")
	s := inTransaction(t, r, session.TransactionOptions{})
	op := operation.Operation{
		Database: "db", Command: theirs("insert"), Kind: operation.Write, Session: s,
	}
	if _, err := r.Run(t.Context(), &op); !errors.Is(err, f.reauthErr) {
		t.Errorf("Run() = %v, want that of the reauthentication", err)
	}
	if _, err := r.Run(t.Context(), &op); err != nil {
		t.Fatal(err)
	}
	const want = "lsid txnNumber:1 startTransaction autocommit"
	if got := carried(f.sent[len(f.sent)-1]); got != want {
		t.Errorf("the next command carries %q, want %q", got, want)
	}
}
