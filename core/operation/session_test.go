package operation_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/core/wire"
)

// theirs is a command of that name.
type theirs string

func (c theirs) Name() string { return string(c) }

func (c theirs) Append(b *bson.Builder, _ operation.Target) error {
	b.Int32(string(c), 1)
	return nil
}

// carried returns what a command carries besides its own elements: "lsid txnNumber:1 autocommit".
func carried(m *wire.Msg) string {
	var parts []string
	for key, v := range m.Body.All() {
		switch key {
		case "lsid", "startTransaction", "autocommit":
			parts = append(parts, key)
		case "txnNumber":
			n, _ := v.AsInt64()
			parts = append(parts, fmt.Sprint(key, ":", n))
		case "readConcern", "$readPreference", "$clusterTime":
			d, _ := v.Document()
			parts = append(parts, key+concernOf(d))
		}
	}
	return strings.Join(parts, " ")
}

// concernOf returns the values of a read concern, a read preference or a cluster time.
func concernOf(d bson.Raw) string {
	var parts []string
	for _, v := range d.All() {
		if text, ok := v.Str(); ok {
			parts = append(parts, text)
		} else if t, i, ok := v.Timestamp(); ok {
			parts = append(parts, fmt.Sprintf("%d.%d", t, i))
		}
	}
	return "(" + strings.Join(parts, ",") + ")"
}

// at returns a successful reply with a cluster time and an operation time.
func at(t uint32) *bson.Builder {
	b := bson.NewBuilder(nil).Int32("ok", 1).Timestamp("operationTime", t, 1)
	return b.OpenDocument("$clusterTime").Timestamp("clusterTime", t, 2).Close()
}

// started returns a session of the runner.
func started(t *testing.T, r *operation.Runner, opt session.Options) *session.Client {
	t.Helper()
	s, err := r.Sessions.Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSessionsAreCausallyConsistent(t *testing.T) {
	r, f := retrying(21, at(5).Finish(), at(4).Finish(), at(9).Finish())
	s := started(t, r, session.Options{})
	majority := operation.ReadConcern{Level: "majority", Sent: true}
	for i, tt := range []struct {
		op   operation.Operation
		want string
	}{
		{operation.Operation{Command: theirs("find")}, "lsid"},
		{operation.Operation{Command: theirs("find")}, "readConcern(5.1) $clusterTime(5.2) lsid"},
		{
			operation.Operation{Command: theirs("insert"), Kind: operation.Write},
			"readConcern(5.1) $clusterTime(5.2) lsid",
		},
		{
			operation.Operation{Command: theirs("find"), ReadConcern: majority},
			"readConcern(majority,9.1) $clusterTime(9.2) lsid",
		},
		{
			operation.Operation{Command: theirs("find"), OwnReadConcern: true},
			"$clusterTime(9.2) lsid",
		},
		{
			operation.Operation{Command: theirs("find"), Kind: operation.Generic},
			"$clusterTime(9.2) lsid",
		},
		{operation.Operation{Command: theirs("ping")}, "$clusterTime(9.2) lsid"},
	} {
		tt.op.Database, tt.op.Session = "db", s
		if _, err := r.Run(t.Context(), &tt.op); err != nil {
			t.Fatal(err)
		}
		if got := inOrder(carried(f.sent[i])); got != inOrder(tt.want) {
			t.Errorf("command %d carries %s, want %s", i, got, tt.want)
		}
	}
	// Another session of the client has the cluster time of all, and the session's own if that is
	// newer.
	other := started(t, r, session.Options{})
	other.AdvanceClusterTime(session.NewClusterTime(bson.NewBuilder(nil).
		Timestamp("clusterTime", 11, 0).Finish()))
	op := operation.Operation{Database: "db", Command: theirs("find"), Session: other}
	if _, err := r.Run(t.Context(), &op); err != nil {
		t.Fatal(err)
	}
	if got := inOrder(carried(f.sent[7])); got != inOrder("$clusterTime(11.0) lsid") {
		t.Errorf("the other session's command carries %s", got)
	}
	if cluster := s.ClusterTime(); cluster.IsZero() || s.OperationTime().T != 9 {
		t.Errorf("the session is at %v, %v", cluster, s.OperationTime())
	}
}

// inOrder returns the words of a text in the alphabet's order.
func inOrder(text string) string {
	words := strings.Fields(text)
	slices.Sort(words)
	return strings.Join(words, " ")
}

func TestSnapshotSession(t *testing.T) {
	reply := bson.NewBuilder(nil).Int32("ok", 1).Timestamp("atClusterTime", 7, 3).Finish()
	r, f := retrying(21, reply, reply)
	s := started(t, r, session.Options{Snapshot: true})
	for i, tt := range []struct{ command, want string }{
		{"count", "lsid readConcern(snapshot)"}, // which does not tell the time
		{"find", "lsid readConcern(snapshot)"},
		{"distinct", "lsid readConcern(snapshot,7.3)"},
		{"getMore", "lsid"},
		{"insert", "lsid readConcern(snapshot,7.3)"}, // so that the server refuses it
	} {
		op := operation.Operation{Database: "db", Command: theirs(tt.command), Session: s}
		if _, err := r.Run(t.Context(), &op); err != nil {
			t.Fatal(err)
		}
		if got := inOrder(carried(f.sent[i])); got != inOrder(tt.want) {
			t.Errorf("%s carries %s, want %s", tt.command, got, tt.want)
		}
	}
}

// TestSnapshotIsThatOfTheFirstRead checks which commands tell a session the time of its snapshot.
func TestSnapshotIsThatOfTheFirstRead(t *testing.T) {
	reply := bson.NewBuilder(nil).Int32("ok", 1).Timestamp("atClusterTime", 7, 3).Finish()
	for command, want := range map[string]session.Timestamp{
		"find": {T: 7, I: 3}, "aggregate": {T: 7, I: 3}, "distinct": {T: 7, I: 3}, "count": {},
	} {
		r, _ := retrying(21, reply)
		s := started(t, r, session.Options{Snapshot: true})
		op := operation.Operation{Database: "db", Command: theirs(command), Session: s}
		if _, err := r.Run(t.Context(), &op); err != nil {
			t.Fatal(err)
		}
		if got := s.SnapshotTime(); got != want {
			t.Errorf("after %s the snapshot is of %v, want %v", command, got, want)
		}
	}
}

// TestUnsupportedSessions checks what servers that are too old get.
func TestUnsupportedSessions(t *testing.T) {
	start := func(t *testing.T, s *session.Client) {
		t.Helper()
		if err := s.StartTransaction(session.TransactionOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	primary, mongos := description.ServerRSPrimary, description.ServerMongos
	for name, tt := range map[string]struct {
		kind        description.ServerKind
		wire        int32
		without     bool // logicalSessionTimeoutMinutes
		transaction bool
		snapshot    bool
		want        error
	}{
		"a session":                        {kind: primary, wire: 6},
		"no sessions":                      {kind: primary, wire: 21, without: true, want: operation.ErrSessionsNotSupported},
		"a transaction":                    {kind: primary, wire: 7, transaction: true},
		"a transaction on an old server":   {kind: primary, wire: 6, transaction: true, want: operation.ErrTransactionsNotSupported},
		"a transaction on a mongos":        {kind: mongos, wire: 8, transaction: true},
		"a transaction on an old mongos":   {kind: mongos, wire: 7, transaction: true, want: operation.ErrTransactionsNotSupported},
		"a snapshot":                       {kind: primary, wire: 13, snapshot: true},
		"a snapshot on an old server":      {kind: primary, wire: 12, snapshot: true, want: operation.ErrSnapshotNotSupported},
		"a snapshot, and sessions are old": {kind: primary, wire: 13, without: true, snapshot: true, want: operation.ErrSessionsNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			r, f := retrying(tt.wire)
			f.description.Kind = tt.kind
			if tt.without {
				f.hello.LogicalSessionTimeoutMinutes = nil
			}
			s := started(t, r, session.Options{Snapshot: tt.snapshot})
			if tt.transaction {
				start(t, s)
			}
			op := operation.Operation{Database: "db", Command: theirs("find"), Session: s}
			_, err := r.Run(t.Context(), &op)
			if !errors.Is(err, tt.want) || (len(f.sent) == 0) != (tt.want != nil) {
				t.Errorf("Run() = %v after %d commands, want %v", err, len(f.sent), tt.want)
			}
			if want := mongoerr.Unsent; err != nil && mongoerr.Judge(err).Delivery != want {
				t.Errorf("%v is %v, want %v", err, mongoerr.Judge(err).Delivery, want)
			}
		})
	}
}

// TestImplicitSessions checks which commands of no session have one of their own.
func TestImplicitSessions(t *testing.T) {
	for name, tt := range map[string]struct {
		without, unacknowledged bool
		kind                    description.Kind
		want                    string
	}{
		"a server with sessions": {kind: description.KindReplicaSetWithPrimary, want: "lsid"},
		"without":                {without: true, kind: description.KindReplicaSetWithPrimary},
		"behind a load balancer": {without: true, kind: description.KindLoadBalanced, want: "lsid"},
		"unacknowledged":         {unacknowledged: true, kind: description.KindReplicaSetWithPrimary},
	} {
		r, f := retrying(21)
		if f.kind = tt.kind; tt.without {
			f.hello.LogicalSessionTimeoutMinutes = nil
		}
		op := operation.Operation{
			Database: "db", Command: command{}, Kind: operation.Write,
			Unacknowledged: tt.unacknowledged,
		}
		for range 2 {
			if _, err := r.Run(t.Context(), &op); err != nil {
				t.Fatal(err)
			}
		}
		if got := carried(f.sent[0]); got != tt.want {
			t.Errorf("%s: the command carries %q, want %q", name, got, tt.want)
		}
		if n := r.Sessions.Len(); (n == 1) != (tt.want != "") {
			t.Errorf("%s: %d sessions are in the pool", name, n)
		}
	}
}

// TestBrokenSessions checks that a network error makes the session dirty, and no other error does.
func TestBrokenSessions(t *testing.T) {
	for _, tt := range []struct {
		err   error
		dirty bool
	}{
		{&mongoerr.NetworkError{Op: "read", Sent: true}, true},
		{errors.New("other"), false},
	} {
		r, f := retrying(21)
		f.err = tt.err
		s := started(t, r, session.Options{})
		op := operation.Operation{Database: "db", Command: command{}, Session: s}
		if _, err := r.Run(t.Context(), &op); !errors.Is(err, tt.err) || s.IsDirty() != tt.dirty {
			t.Errorf("Run() = %v, the session is dirty: %v, want %v", err, s.IsDirty(), tt.dirty)
		}
	}
}

// TestEndedSession checks that nothing is selected or sent in a session that has ended.
func TestEndedSession(t *testing.T) {
	r, f := retrying(21)
	s := started(t, r, session.Options{})
	s.End()
	op := operation.Operation{Database: "db", Command: command{}, Session: s}
	_, err := r.Run(t.Context(), &op)
	if !errors.Is(err, session.ErrEnded) || f.selector != "" || len(f.sent) != 0 {
		t.Errorf("Run() = %v, selected by %q", err, f.selector)
	}
}

// TestRunningSession checks that a session that ends while an operation runs in it does not return
// to the pool, and that it does afterwards.
func TestRunningSession(t *testing.T) {
	r, _ := retrying(21)
	s := started(t, r, session.Options{})
	op := operation.Operation{Database: "db", Command: command{}, Session: s}
	if _, err := r.Run(t.Context(), &op); err != nil {
		t.Fatal(err)
	}
	if s.End(); r.Sessions.Len() != 1 {
		t.Errorf("%d sessions are in the pool, want 1", r.Sessions.Len())
	}
	busy := started(t, r, session.Options{})
	op = operation.Operation{Database: "db", Command: ending{busy}, Session: busy}
	if _, err := r.Run(t.Context(), &op); err != nil {
		t.Fatal(err)
	}
	if r.Sessions.Len() != 0 {
		t.Errorf("%d sessions are in the pool, want none", r.Sessions.Len())
	}
}

// ending ends the session while its command is made.
type ending struct{ session *session.Client }

func (ending) Name() string { return "test" }

func (e ending) Append(b *bson.Builder, _ operation.Target) error {
	b.Int32("test", 1)
	e.session.End()
	return nil
}

// TestExactSession checks that a write of a session that derives its ids is numbered, or is not
// sent.
func TestExactSession(t *testing.T) {
	for name, tt := range map[string]struct {
		retryWrites, retry, without bool
		want                        error
	}{
		"a write":           {retryWrites: true, retry: true},
		"retries are off":   {retry: true, want: operation.ErrNotRetryable},
		"several documents": {retryWrites: true, want: operation.ErrNotRetryable},
		"an old server":     {retryWrites: true, retry: true, without: true, want: operation.ErrNotRetryable},
	} {
		r, f := retrying(21)
		r.RetryWrites = tt.retryWrites
		if tt.without {
			f.hello.LogicalSessionTimeoutMinutes = nil
		}
		s, err := r.Sessions.Resume(session.State{
			Derive: func(n int) bson.UUID { return bson.UUID{byte(n + 1)} },
		}, session.Options{})
		if err != nil {
			t.Fatal(err)
		}
		op := operation.Operation{
			Database: "db", Command: command{}, Kind: operation.Write, Retry: tt.retry, Session: s,
		}
		if _, err := r.Run(t.Context(), &op); !errors.Is(err, tt.want) {
			t.Errorf("%s: Run() = %v, want %v", name, err, tt.want)
		}
		if s.WasSent() != (tt.want == nil) || len(f.sent) > 0 != (tt.want == nil) {
			t.Errorf("%s: sent %v, %d commands", name, s.WasSent(), len(f.sent))
		}
		if tt.want == nil && carried(f.sent[0]) != "lsid txnNumber:1" {
			t.Errorf("%s: the command carries %s", name, carried(f.sent[0]))
		}
	}
}

// mixed is a command of several writes.
type mixed struct {
	command
	retryable, single bool
}

func (m mixed) Retryable() bool { return m.retryable }
func (m mixed) Single() bool    { return m.single }

// TestMixedCommand checks that a command which turns out not to be repeatable has no number and one
// attempt, and what its interruption leaves open.
func TestMixedCommand(t *testing.T) {
	interrupted := refusal(11602, mongoerr.LabelRetryableWrite)
	for name, tt := range map[string]struct {
		command  mixed
		carries  string
		attempts int
		unknown  bool
	}{
		"one write":            {mixed{retryable: true, single: true}, "lsid txnNumber:1", 2, false},
		"several writes":       {mixed{retryable: true}, "lsid txnNumber:1", 2, true},
		"of several documents": {mixed{single: true}, "lsid", 1, true},
	} {
		r, f := retrying(21, interrupted, interrupted)
		op := retryableWrite()
		op.Command = tt.command
		_, err := r.Run(t.Context(), &op)
		if len(f.sent) != tt.attempts || carried(f.sent[0]) != tt.carries {
			t.Errorf("%s: %d attempts, which carry %s", name, len(f.sent), carried(f.sent[0]))
		}
		if isA[*operation.OutcomeUnknownError](err) != tt.unknown || mongoerr.Code(err) != 11602 {
			t.Errorf("%s: Run() = %v, want an unknown outcome: %v", name, err, tt.unknown)
		}
	}
	r, f := retrying(21)
	s, err := r.Sessions.Resume(session.State{
		Derive: func(int) bson.UUID { return bson.UUID{1} },
	}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	op := retryableWrite()
	op.Command, op.Session = mixed{single: true}, s
	if _, err := r.Run(t.Context(), &op); !errors.Is(err, operation.ErrNotRetryable) ||
		f.sent != nil {
		t.Errorf("in an exact session: Run() = %v", err)
	}
}

// TestReadPreferenceOfCommands checks that writes carry none, and neither does what goes to a named
// server.
func TestReadPreferenceOfCommands(t *testing.T) {
	secondary := &selection.ReadPreference{Mode: selection.Secondary}
	for name, tt := range map[string]struct {
		op   operation.Operation
		want string
	}{
		"a read":  {operation.Operation{ReadPreference: secondary}, "$readPreference(secondary)"},
		"a write": {operation.Operation{ReadPreference: secondary, Kind: operation.Write}, ""},
		"a cursor's": {operation.Operation{
			ReadPreference: secondary, Selector: selection.Address("a:1"),
		}, ""},
	} {
		f := &fake{kind: description.KindReplicaSetWithPrimary}
		tt.op.Database, tt.op.Command = "db", command{}
		if _, err := (&operation.Runner{Deployment: f}).Run(t.Context(), &tt.op); err != nil {
			t.Fatal(err)
		}
		if got := carried(f.sent[0]); got != tt.want {
			t.Errorf("%s carries %q, want %q", name, got, tt.want)
		}
	}
}
