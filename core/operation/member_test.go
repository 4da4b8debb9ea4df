package operation_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/session"
)

// inTransaction returns a session of the runner that has started a transaction.
func inTransaction(
	t *testing.T, r *operation.Runner, opt session.TransactionOptions,
) *session.Client {
	t.Helper()
	s := started(t, r, session.Options{})
	if err := s.StartTransaction(opt); err != nil {
		t.Fatal(err)
	}
	return s
}

// committing returns the operation of a commit, and begins it in the session.
func committing(t *testing.T, s *session.Client) operation.Operation {
	t.Helper()
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	return operation.Operation{
		Database: "admin", Command: theirs("commitTransaction"), Kind: operation.Write, Session: s,
		Role: operation.Commit,
	}
}

func TestCommandsOfTransaction(t *testing.T) {
	r, f := retrying(21)
	s := inTransaction(t, r, session.TransactionOptions{ReadConcernLevel: new("snapshot")})
	s.AdvanceOperationTime(session.Timestamp{T: 5, I: 1})
	cursor := selection.Address("a:1") // of a cursor that was opened before
	for i, tt := range []struct {
		op   operation.Operation
		want string
	}{
		{operation.Operation{Command: theirs("getMore"), Selector: cursor}, "lsid"},
		{
			operation.Operation{Command: theirs("insert"), Kind: operation.Write, Retry: true},
			"readConcern(snapshot,5.1) lsid txnNumber:1 startTransaction autocommit",
		},
		{
			operation.Operation{Command: theirs("getMore"), Selector: cursor},
			"lsid txnNumber:1 autocommit",
		},
		{
			operation.Operation{
				Command: theirs("find"), ReadConcern: operation.ReadConcern{Level: "local"},
			},
			"lsid txnNumber:1 autocommit",
		},
	} {
		tt.op.Database, tt.op.Session = "db", s
		if _, err := r.Run(t.Context(), &tt.op); err != nil {
			t.Fatal(err)
		}
		if got := carried(f.sent[i]); got != tt.want {
			t.Errorf("command %d carries %q, want %q", i, got, tt.want)
		}
	}
	commit := committing(t, s)
	if _, err := r.Run(t.Context(), &commit); err != nil {
		t.Fatal(err)
	}
	if got := carried(f.sent[4]); got != "lsid txnNumber:1 autocommit" {
		t.Errorf("the commit carries %q", got)
	}
	// After the end, an operation has nothing to do with the transaction.
	op := retryableWrite()
	op.Session = s
	if _, err := r.Run(t.Context(), &op); err != nil {
		t.Fatal(err)
	}
	if got := carried(f.sent[5]); got != "lsid txnNumber:2" {
		t.Errorf("a write after the commit carries %q", got)
	}
}

func TestReadConcernOfTransaction(t *testing.T) {
	for _, tt := range []struct {
		level *string
		want  string
	}{
		{nil, "lsid txnNumber:1 startTransaction autocommit"},
		{new(""), "lsid txnNumber:1 startTransaction autocommit"},
		{new("majority"), "readConcern(majority) lsid txnNumber:1 startTransaction autocommit"},
	} {
		r, f := retrying(21)
		s := inTransaction(t, r, session.TransactionOptions{ReadConcernLevel: tt.level})
		op := operation.Operation{Database: "db", Command: theirs("find"), Session: s}
		if _, err := r.Run(t.Context(), &op); err != nil {
			t.Fatal(err)
		}
		if got := carried(f.sent[0]); got != tt.want {
			t.Errorf("the command carries %q, want %q", got, tt.want)
		}
	}
}

func TestReadPreferenceInTransaction(t *testing.T) {
	primary := &selection.ReadPreference{Mode: selection.Primary}
	secondary := &selection.ReadPreference{Mode: selection.Secondary}
	for name, tt := range map[string]struct {
		of      *selection.ReadPreference // of the transaction
		op      operation.Operation
		refused bool
	}{
		"none":                       {nil, operation.Operation{}, false},
		"that of the transaction":    {primary, operation.Operation{ReadPreference: secondary}, false},
		"a secondary's":              {secondary, operation.Operation{}, true},
		"a write has none":           {secondary, operation.Operation{Kind: operation.Write}, false},
		"a command that has its own": {primary, operation.Operation{Kind: operation.Generic, ReadPreference: secondary}, true},
		"a command that has none":    {secondary, operation.Operation{Kind: operation.Generic}, true},
		"a command that overrides":   {secondary, operation.Operation{Kind: operation.Generic, ReadPreference: primary}, false},
	} {
		r, f := retrying(21)
		s := inTransaction(t, r, session.TransactionOptions{ReadPreference: tt.of})
		tt.op.Database, tt.op.Command, tt.op.Session = "db", command{}, s
		_, err := r.Run(t.Context(), &tt.op)
		if errors.Is(err, operation.ErrTransactionReadPreference) != tt.refused ||
			(len(f.sent) == 0) != tt.refused || (err != nil) != tt.refused {
			t.Errorf("%s: Run() = %v after %d commands", name, err, len(f.sent))
		}
	}
}

// onMongos returns a runner on a mongos.
func onMongos(replies ...bson.Raw) (*operation.Runner, *fake) {
	r, f := retrying(21, replies...)
	f.kind = description.KindSharded
	f.description.Kind, f.hello.Kind = description.ServerMongos, description.ServerMongos
	f.description.Address = "m:1"
	return r, f
}

// TestMongosOfTransaction checks what binds a transaction to its mongos, and what ends that.
func TestMongosOfTransaction(t *testing.T) {
	const (
		transient = mongoerr.LabelTransientTransaction
		unknown   = mongoerr.LabelUnknownTransactionCommitResult
	)
	insert := func(_ *testing.T, s *session.Client) operation.Operation {
		return operation.Operation{
			Database: "db", Command: command{}, Kind: operation.Write, Session: s,
		}
	}
	abort := func(t *testing.T, s *session.Client) operation.Operation {
		if _, err := s.Abort(); err != nil {
			t.Fatal(err)
		}
		return operation.Operation{
			Database: "admin", Command: theirs("abortTransaction"), Kind: operation.Write,
			Session: s, Role: operation.Abort,
		}
	}
	for name, tt := range map[string]struct {
		next   func(*testing.T, *session.Client) operation.Operation
		reply  bson.Raw
		err    error
		pinned bool
		label  string
	}{
		"a command":                {next: insert, pinned: true},
		"a refused command":        {next: insert, reply: refusal(11601), pinned: true},
		"a transient error":        {next: insert, reply: refusal(112, transient), label: transient},
		"a lost reply":             {next: insert, err: &mongoerr.NetworkError{Sent: true}, label: transient},
		"a commit":                 {next: committing, pinned: true},
		"a commit that is refused": {next: committing, reply: refusal(11601), pinned: true},
		"a commit that is unknown": {next: committing, reply: refusal(50), label: unknown},
		"an abort":                 {next: abort},
		"an abort that is refused": {next: abort, reply: refusal(251)},
	} {
		t.Run(name, func(t *testing.T) {
			r, f := onMongos()
			s := inTransaction(t, r, session.TransactionOptions{})
			first := insert(t, s)
			if _, err := r.Run(t.Context(), &first); err != nil {
				t.Fatal(err)
			}
			if at, service, ok := operation.Pinned(s); !ok || at != "m:1" || !service.IsZero() {
				t.Errorf("Pinned() = %v, %v, %v after the first command", at, service, ok)
			}
			f.reply, f.err = tt.reply, tt.err
			op := tt.next(t, s)
			_, err := r.Run(t.Context(), &op)
			if f.selector != "commands to m:1" {
				t.Errorf("the second command was selected by %q", f.selector)
			}
			if _, _, ok := operation.Pinned(s); ok != tt.pinned {
				t.Errorf("Pinned() = %v after %v, want %v", ok, err, tt.pinned)
			}
			if op := insert(t, s); tt.label == transient { // which does not start it again
				f.reply, f.err = nil, nil
				_, _ = r.Run(t.Context(), &op)
				if _, _, ok := operation.Pinned(s); ok {
					t.Error("the next command has bound the transaction to another mongos")
				}
			}
			if tt.label != "" && !mongoerr.HasLabel(err, tt.label) {
				t.Errorf("%v has the labels %v, want %s", err, mongoerr.Labels(err), tt.label)
			}
		})
	}
}

// TestNoPinOnReplicaSet checks that a transaction on a replica set is bound to nothing.
func TestNoPinOnReplicaSet(t *testing.T) {
	r, _ := retrying(21)
	s := inTransaction(t, r, session.TransactionOptions{})
	op := operation.Operation{Database: "db", Command: command{}, Session: s}
	if _, err := r.Run(t.Context(), &op); err != nil {
		t.Fatal(err)
	}
	if at, _, ok := operation.Pinned(s); ok {
		t.Errorf("the transaction is pinned to %v", at)
	}
}

// TestConnectionOfTransaction checks that a transaction behind a load balancer keeps its connection
// and shares it with its cursors.
func TestConnectionOfTransaction(t *testing.T) {
	r, f := retrying(21)
	f.kind, f.hello.ServiceID = description.KindLoadBalanced, bson.ObjectID{1}
	f.description.Address = "lb:1"
	s := inTransaction(t, r, session.TransactionOptions{})
	op := operation.Operation{Database: "db", Command: command{}, Session: s, Keep: true}
	res, err := r.Run(t.Context(), &op)
	if err != nil || res.Pin == nil || f.checkedOut != 1 {
		t.Fatalf("Run() = %v, pin %v, %d connections out", err, res.Pin, f.checkedOut)
	}
	if at, service, ok := operation.Pinned(s); !ok || at != "lb:1" || service != f.hello.ServiceID {
		t.Errorf("Pinned() = %v, %v, %v", at, service, ok)
	}
	f.pinErr = errors.New("limit")
	if err := res.Pin.HoldForCursor(); err != nil { // it counts as the transaction's
		t.Errorf("HoldForCursor() = %v", err)
	}
	f.selector, f.pinErr = "", nil
	commit := committing(t, s)
	if _, err := r.Run(t.Context(), &commit); err != nil || f.selector != "" || f.checkedOut != 1 {
		t.Errorf("the commit: %v, selected by %q, %d out", err, f.selector, f.checkedOut)
	}
	if s.End(); f.checkedOut != 1 {
		t.Errorf("%d connections are out while the cursor holds one", f.checkedOut)
	}
	if res.Pin.Release(); f.checkedOut != 0 {
		t.Errorf("%d connections are out at the end", f.checkedOut)
	}
	f.pinErr = errors.New("limit")
	s = inTransaction(t, r, session.TransactionOptions{})
	op.Session = s
	if _, err := r.Run(t.Context(), &op); !errors.Is(err, f.pinErr) || f.checkedOut != 0 {
		t.Errorf("Run() = %v beyond the limit, %d out", err, f.checkedOut)
	}
	if state, _ := s.Transaction(); state != session.TransactionStarting {
		t.Errorf("the transaction is %v, though nothing was sent", state)
	}
}

// TestRecoveryToken checks that the newest token of a transaction is kept, also that of a commit.
func TestRecoveryToken(t *testing.T) {
	token := func(n int32) bson.Raw {
		return bson.NewBuilder(nil).Int32("ok", 1).OpenDocument("recoveryToken").Int32("n", n).
			Close().Finish()
	}
	r, _ := onMongos(token(1), token(2))
	s := inTransaction(t, r, session.TransactionOptions{})
	op := operation.Operation{Database: "db", Command: command{}, Session: s}
	for want := range int32(2) {
		if want == 1 {
			op = committing(t, s)
		}
		if _, err := r.Run(t.Context(), &op); err != nil {
			t.Fatal(err)
		}
		v, _ := s.RecoveryToken().Lookup("n")
		if n, _ := v.AsInt64(); n != int64(want+1) {
			t.Errorf("the token is %v, want %d", s.RecoveryToken(), want+1)
		}
	}
}

// TestCommitIsRemembered checks what a commit leaves to a commit that repeats it.
func TestCommitIsRemembered(t *testing.T) {
	lost := &mongoerr.NetworkError{Op: "read", Sent: true}
	concern := bson.NewBuilder(nil).Int32("ok", 1).OpenDocument("writeConcernError").
		Int32("code", 64).Close().Finish()
	for name, tt := range map[string]struct {
		reply bson.Raw
		err   error
		want  bool
	}{
		"done":          {},
		"lost":          {nil, lost, true},
		"not confirmed": {concern, nil, true},
		"no time":       {refusal(50), nil, true},
		"refused":       {refusal(10107, mongoerr.LabelRetryableWrite), nil, false},
		"not sent":      {nil, &mongoerr.NetworkError{Op: "write"}, false},
		"interrupted":   {refusal(11601), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, f := retrying(21)
			s := inTransaction(t, r, session.TransactionOptions{})
			op := operation.Operation{Database: "db", Command: command{}, Session: s}
			if _, err := r.Run(t.Context(), &op); err != nil {
				t.Fatal(err)
			}
			f.reply, f.err = tt.reply, tt.err
			commit := committing(t, s)
			_, err := r.Run(t.Context(), &commit)
			if s.IsCommitUnknown() != tt.want {
				t.Errorf("IsCommitUnknown() = %v after %v", s.IsCommitUnknown(), err)
			}
			f.reply, f.err = refusal(11601), nil
			commit = committing(t, s)
			_, err = r.Run(t.Context(), &commit)
			label := mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult)
			if label != tt.want || s.IsCommitUnknown() != tt.want {
				t.Errorf("the next commit: %v, labels %v, want unknown: %v", err,
					mongoerr.Labels(err), tt.want)
			}
			f.reply = nil
			commit = committing(t, s)
			if _, err = r.Run(t.Context(), &commit); err != nil || s.IsCommitUnknown() {
				t.Errorf("a commit that succeeds: %v, unknown %v", err, s.IsCommitUnknown())
			}
		})
	}
}

// TestResumedCommitIsUnknown checks that the commit of another process's transaction counts as one
// that was sent before.
func TestResumedCommitIsUnknown(t *testing.T) {
	r, f := retrying(21)
	s, err := r.Sessions.Resume(session.State{ID: bson.UUID{1}, TxnNumber: 7}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ResumeTransaction(session.TransactionOptions{}); err != nil {
		t.Fatal(err)
	}
	f.reply = refusal(462, mongoerr.LabelSystemOverloaded)
	commit := committing(t, s)
	_, err = r.Run(t.Context(), &commit)
	if !mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult) {
		t.Errorf("Run() = %v, labels %v", err, mongoerr.Labels(err))
	}
}

// TestEventsOfTransaction checks which operations have the number of a transaction.
func TestEventsOfTransaction(t *testing.T) {
	r, _ := retrying(21)
	var facts []string
	numbers := map[int64]bool{}
	note := func(fact string, number int64) {
		if number != 0 {
			fact += " in a transaction"
			numbers[number] = true
		}
		facts = append(facts, fact)
	}
	r.Sink = &event.Sink{
		OperationStarted: func(e event.OperationStarted) { note(e.Name, e.Transaction) },
		OperationEnded: func(e event.OperationEnded) {
			if e.Err != nil {
				note("failed "+e.Name, e.Transaction)
			}
		},
		TransactionStarted: func(e event.TransactionStarted) { note("start", e.ID) },
		TransactionEnded:   func(e event.TransactionEnded) { note("end", e.ID) },
	}
	s := inTransaction(t, r, session.TransactionOptions{})
	run := func(op operation.Operation) {
		t.Helper()
		op.Database, op.Session = "db", s
		_, _ = r.Run(context.WithoutCancel(t.Context()), &op)
	}
	run(operation.Operation{Command: theirs("getMore"), Selector: selection.Address("a:1")})
	run(operation.Operation{Command: theirs("insert"), Name: "insertMany"})
	run(operation.Operation{Command: theirs("find")})
	run(operation.Operation{Command: theirs("find"), ID: 77}) // whose caller emits the events
	run(operation.Operation{Command: command{err: errors.New("refused")}})
	run(committing(t, s))
	r.TransactionEnded(s)
	r.TransactionEnded(s)
	run(operation.Operation{Command: theirs("find")})
	want := []string{
		"getMore", "start in a transaction", "insertMany in a transaction",
		"find in a transaction", "test in a transaction", "failed test in a transaction",
		"commitTransaction in a transaction", "end in a transaction", "find",
	}
	if !slices.Equal(facts, want) || len(numbers) != 1 {
		t.Errorf("events are %q, want %q; %d numbers", facts, want, len(numbers))
	}
}
