package transaction_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
	"github.com/mooringdb/mooring/service/transaction"
)

// disturb has a reply take the place of the first times commands of that name.
func (b *bank) disturb(name string, times int64, reply fakemongo.Reply) {
	var left atomic.Int64
	left.Store(times)
	b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == name && left.Add(-1) >= 0 {
			return reply
		}
		return next(cmd)
	})
}

func transient() fakemongo.Reply {
	return fakemongo.Error(112, "WriteConflict", "conflict", "TransientTransactionError")
}

// TestLabels: what a client may repeat, after errors of servers and of the network.
func TestLabels(t *testing.T) {
	for _, row := range []struct {
		name, command  string
		times          int64
		reply          fakemongo.Reply
		update, commit string
		there          string
	}{
		{
			"a conflict", "update", 1, transient(),
			"Aborted WriteConflict transaction", "Aborted NoSuchTransaction transaction", before,
		},
		{
			"a broken connection", "update", 1, fakemongo.Drop(),
			"Aborted WriteOutcomeUnknown transaction", "Aborted NoSuchTransaction transaction", before,
		},
		{"a commit that is retried", "commitTransaction", 1, fakemongo.Drop(), "OK", "OK", `{"_id":"a","n":11} {"_id":"b","n":10}`},
		{
			"a commit without an answer", "commitTransaction", 2, fakemongo.Drop(),
			"OK", "Unavailable UnknownTransactionCommitResult same-request", `{"_id":"a","n":11} {"_id":"b","n":10}`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
			b.disturb(row.command, row.times, row.reply)
			token := b.begin()
			if got := told(b.add(token, "a")); got != row.update {
				t.Errorf("UpdateOne = %s, want %s", got, row.update)
			}
			got := told(b.commit(token))
			if got != row.commit {
				t.Errorf("Commit = %s, want %s", got, row.commit)
			}
			if strings.HasSuffix(got, "same-request") {
				for what, err := range map[string]error{
					"UpdateOne": b.add(token, "b"), "Abort": b.abort(token),
				} {
					if got := told(err); got != "Aborted TransactionCommitted never" {
						t.Errorf("%s after a Commit without an answer = %s", what, got)
					}
				}
				if err := b.commit(token); err != nil {
					t.Errorf("Commit again = %v", err)
				}
			}
			if got := b.balances(); got != row.there {
				t.Errorf("there is %s, want %s", got, row.there)
			}
		})
	}
}

// TestRunTriesAgain: Run repeats what may be repeated, and nothing else.
func TestRunTriesAgain(t *testing.T) {
	for _, row := range []struct {
		name, command string
		times         int64
		reply         fakemongo.Reply
		want, there   string
	}{
		{"conflicts", "update", 3, transient(), "OK", `{"_id":"a","n":11} {"_id":"b","n":10}`},
		{"commits without an answer", "commitTransaction", 5, fakemongo.Drop(), "OK", `{"_id":"a","n":11} {"_id":"b","n":10}`},
		{
			"no commit with an answer", "commitTransaction", math.MaxInt64, fakemongo.Drop(),
			"Unavailable UnknownTransactionCommitResult never", before,
		},
		{"a refusal", "update", 1, fakemongo.Error(2, "BadValue", "no"), "InvalidArgument BadValue never", before},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
				b.disturb(row.command, row.times, row.reply)
				request := add("", "a", nil)
				request.Transaction = nil
				res, err := b.Transaction.Run(t.Context(), &mooringv1.TransactionServiceRunRequest{
					Operations: []*mooringv1.TransactionOperation{
						{Operation: &mooringv1.TransactionOperation_UpdateOne{UpdateOne: request}},
					},
				})
				if got := told(err); got != row.want {
					t.Errorf("Run = %s, want %s", got, row.want)
				}
				if err == nil &&
					(len(res.GetResults()) != 1 ||
						res.GetResults()[0].GetUpdateOne().GetMatchedCount() != 1) {
					t.Errorf("Run = %v", res)
				}
				if got := b.balances(); got != row.there {
					t.Errorf("there is %s, want %s", got, row.there)
				}
			})
		})
	}
}

// TestRunGivesResultsOnce checks that the results are those of the attempt that was committed, and
// not of those before it besides.
func TestRunGivesResultsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
		var updates atomic.Int64
		b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == "update" && updates.Add(1) == 2 {
				return transient()
			}
			return next(cmd)
		})
		var operations []*mooringv1.TransactionOperation
		for _, account := range []string{"a", "b"} {
			request := add("", account, nil)
			request.Transaction = nil
			operations = append(operations, &mooringv1.TransactionOperation{
				Operation: &mooringv1.TransactionOperation_UpdateOne{UpdateOne: request},
			})
		}
		res, err := b.Transaction.Run(t.Context(), &mooringv1.TransactionServiceRunRequest{
			Operations: operations,
		})
		if err != nil || len(res.GetResults()) != 2 || updates.Load() != 4 {
			t.Errorf("Run = %v, %v after %d updates, want 2 results", res, err, updates.Load())
		}
		if got := b.balances(); got != after {
			t.Errorf("there is %s, want %s", got, after)
		}
	})
}

// TestUnmetConcern checks that a transaction is known to be committed if the server says that no
// members can meet its write concern.
func TestUnmetConcern(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	concern := &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Nodes{Nodes: 8}}}
	request := add("", "a", nil)
	request.Transaction = nil
	run, err := b.Transaction.Run(t.Context(), &mooringv1.TransactionServiceRunRequest{
		WriteConcern: concern,
		Operations: []*mooringv1.TransactionOperation{{
			Operation: &mooringv1.TransactionOperation_UpdateOne{UpdateOne: request},
		}},
	})
	if err != nil || len(run.GetResults()) != 1 || run.GetWriteConcernError().GetCode() != 100 {
		t.Errorf("Run = %v, %s, want a result and the write concern's error", run, told(err))
	}
	begun, err := b.Transaction.Begin(t.Context(), &mooringv1.TransactionServiceBeginRequest{
		WriteConcern: concern,
	})
	if err != nil {
		t.Fatal(err)
	}
	token := begun.GetTransaction()
	if err := b.add(token, "b"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be repeated
		commit, err := b.Transaction.Commit(t.Context(),
			&mooringv1.TransactionServiceCommitRequest{Transaction: &token})
		if err != nil || commit.GetWriteConcernError().GetCode() != 100 {
			t.Errorf("Commit = %v, %s, want the write concern's error", commit, told(err))
		}
	}
	if got := told(b.abort(token)); got != "Aborted TransactionCommitted never" {
		t.Errorf("Abort after Commit = %s", got)
	}
	if got := b.balances(); got != after {
		t.Errorf("there is %s, want %s", got, after)
	}
}

// TestMaxCommitTime checks that commits have the time that Begin or Run has given.
func TestMaxCommitTime(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	commits := b.watch("commitTransaction")
	begun, err := b.Transaction.Begin(t.Context(), &mooringv1.TransactionServiceBeginRequest{
		MaxCommitTimeMs: new(int64(1234)),
	})
	if err != nil {
		t.Fatal(err)
	}
	token := begun.GetTransaction()
	if err := errors.Join(b.add(token, "a"), b.commit(token)); err != nil {
		t.Fatal(err)
	}
	request := add("", "a", nil)
	request.Transaction = nil
	if _, err := b.Transaction.Run(t.Context(), &mooringv1.TransactionServiceRunRequest{
		MaxCommitTimeMs: new(int64(5678)),
		Operations: []*mooringv1.TransactionOperation{{
			Operation: &mooringv1.TransactionOperation_UpdateOne{UpdateOne: request},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{`{"maxTimeMS":1234}`, `{"maxTimeMS":5678}`}
	if got := commits.take(t, "maxTimeMS"); !slices.Equal(got, want) {
		t.Errorf("the commits have %s, want %s", got, want)
	}
}

// TestCursors: a cursor of a transaction continues in it, and nowhere else, and dies with it.
func TestCursors(t *testing.T) {
	for _, topology := range []deployment.Topology{deployment.ReplicaSet, deployment.LoadBalanced} {
		t.Run(string(topology), func(t *testing.T) {
			b, ctx := newBank(t, topology, servicetest.Config{}), t.Context()
			token, other := b.begin(), b.begin()
			open := func(transaction *string) string {
				page, err := b.Document.Find(ctx, &mooringv1.FindRequest{
					Database: "bank", Collection: "accounts", Transaction: transaction,
					BatchSize: proto.Int32(1),
				})
				if err != nil || page.GetCursor() == "" {
					t.Fatalf("Find = %v, %v, want a cursor", page, err)
				}
				return page.GetCursor()
			}
			next := func(cursor string, transaction *string) string {
				_, err := b.Cursor.NextPage(ctx,
					&mooringv1.NextPageRequest{Cursor: cursor, Transaction: transaction})
				return told(err)
			}
			within, outside := open(&token), open(nil)
			const invalid = "InvalidArgument InvalidArgument never"
			for _, row := range []struct {
				name, cursor string
				transaction  *string
				want         string
			}{
				{"a cursor without its transaction", within, nil, invalid},
				{"a cursor in another transaction", within, &other, invalid},
				{"a cursor of no transaction", outside, &token, invalid},
				{"a cursor in its transaction", within, &token, "OK"},
				{"another cursor", outside, nil, "OK"},
			} {
				if got := next(row.cursor, row.transaction); got != row.want {
					t.Errorf("%s: %s, want %s", row.name, got, row.want)
				}
			}
			if _, err := b.Cursor.CloseCursor(ctx,
				&mooringv1.CloseCursorRequest{Cursor: within}); err != nil {
				t.Fatal(err)
			}
			if got := next(within, &token); got != "NotFound CursorNotFound restart" {
				t.Errorf("a cursor that has ended before its transaction: %s", got)
			}
			within = open(&token)
			if err := b.commit(token); err != nil {
				t.Fatal(err)
			}
			if got := next(within, nil); got != "NotFound CursorNotFound restart" {
				t.Errorf("a cursor after the end of its transaction: %s", got)
			}
			if err := b.abort(other); err != nil {
				t.Error(err)
			}
			// It may have ended.
			_, _ = b.Cursor.CloseCursor(ctx, &mooringv1.CloseCursorRequest{Cursor: outside})
			b.idle()
		})
	}
}

// TestManyCursors: all cursors of a transaction end with it.
func TestManyCursors(t *testing.T) {
	b := newBank(t, deployment.LoadBalanced, servicetest.Config{})
	token := b.begin()
	for range 8 {
		page, err := b.Document.Find(t.Context(), &mooringv1.FindRequest{
			Database: "bank", Collection: "accounts", Transaction: &token,
			BatchSize: proto.Int32(1),
		})
		if err != nil || page.GetCursor() == "" {
			t.Fatalf("Find = %v, %v, want a cursor", page, err)
		}
	}
	if err := b.commit(token); err != nil {
		t.Fatal(err)
	}
	for _, p := range b.Client.Pools() {
		if p.InUse+p.Transactions+p.Cursors > 0 {
			t.Errorf("%d connections in use, %d by transactions, %d by cursors", p.InUse,
				p.Transactions, p.Cursors)
		}
	}
	if n := b.deployment.OpenCursors(); n > 0 {
		t.Errorf("the servers hold %d cursors", n)
	}
}

// idle waits until no connection is in use and no handle is open.
func (b *bank) idle() {
	b.t.Helper()
	servicetest.Eventually(b.t, "an idle gateway", func() bool {
		list, err := b.Deployment.ListHandles(b.t.Context(), &mooringv1.ListHandlesRequest{})
		if err != nil || len(list.GetHandles()) > 0 {
			return false
		}
		for _, p := range b.Client.Pools() {
			if p.Transactions+p.Cursors > 0 {
				return false
			}
		}
		return true
	})
}

// TestStreams runs streams in a transaction: one after the other, and not again.
func TestStreams(t *testing.T) {
	b, ctx := newBank(t, deployment.ReplicaSet, servicetest.Config{}), t.Context()
	token := b.begin()
	if err := b.add(token, "a"); err != nil {
		t.Fatal(err)
	}
	stream := func(statement int32) (string, string) {
		ss, err := b.Document.StreamFind(ctx, &mooringv1.StreamFindRequest{
			Database: "bank", Collection: "accounts", Transaction: &token, Statement: &statement,
			Filter: doc(`{"n": 11}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := ss.Recv()
		if err == nil {
			_, _ = ss.Recv() // the end
		}
		return told(err), string(m.GetDocuments()[:min(1, len(m.GetDocuments()))][0].GetBson())
	}
	if got, document := stream(1); got != "OK" || !strings.Contains(document, "a") {
		t.Errorf("StreamFind = %s, want what the transaction has changed", got)
	}
	ss, err := b.Document.StreamFind(ctx, &mooringv1.StreamFindRequest{
		Database: "bank", Collection: "accounts", Transaction: &token, Statement: proto.Int32(1),
		Filter: doc(`{"n": 11}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ss.Recv(); told(err) != "Aborted StatementResultLost transaction" {
		t.Errorf("StreamFind again = %s", told(err))
	}
	is, err := b.Document.Import(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = is.Send(&mooringv1.ImportRequest{
		Database: "bank", Collection: "accounts", Transaction: &token,
	})
	if _, err := is.CloseAndRecv(); told(err) != "InvalidArgument InvalidArgument never" {
		t.Errorf("Import in a transaction = %s", told(err))
	}
	if err := b.commit(token); err != nil {
		t.Error(err)
	}
	last, err := b.Document.StreamFind(ctx, &mooringv1.StreamFindRequest{
		Database: "bank", Collection: "accounts", Transaction: &token,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := last.Recv(); told(err) != "Aborted TransactionCommitted never" {
		t.Errorf("StreamFind after Commit = %s", told(err))
	}
}

// TestSession: a transaction sees what its session has seen, and the session sees the transaction.
func TestSession(t *testing.T) {
	b, ctx := newBank(t, deployment.ReplicaSet, servicetest.Config{}), t.Context()
	var times []string
	b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if rc, ok := cmd.Body.Lookup("readConcern", "afterClusterTime"); ok {
			times = append(times, cmd.Name+" "+string(rc.Data))
		}
		return next(cmd)
	})
	started, err := b.Session.Start(ctx, &mooringv1.SessionServiceStartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	read := func(session string) string {
		res, err := b.Document.FindOne(ctx,
			&mooringv1.FindOneRequest{Database: "bank", Collection: "accounts", Session: &session})
		if err != nil {
			t.Fatal(err)
		}
		return res.GetSession()
	}
	session := read(started.GetSession())
	begun, err := b.Transaction.Begin(ctx,
		&mooringv1.TransactionServiceBeginRequest{Session: &session})
	if err != nil || begun.GetSession() == "" {
		t.Fatalf("Begin = %v, %v, want a renewed session", begun, err)
	}
	if err := b.add(begun.GetTransaction(), "a"); err != nil {
		t.Fatal(err)
	}
	done, err := b.Transaction.Commit(ctx, &mooringv1.TransactionServiceCommitRequest{
		Transaction: proto.String(begun.GetTransaction()),
		Session:     proto.String(begun.GetSession()),
	})
	if err != nil || done.GetSession() == "" || done.GetSession() == begun.GetSession() {
		t.Fatalf("Commit = %v, %v, want a renewed session", done, err)
	}
	read(done.GetSession())
	if len(times) != 2 || !strings.HasPrefix(times[0], "update ") ||
		!strings.HasPrefix(times[1], "find ") || times[0][7:] == times[1][5:] {
		t.Errorf("afterClusterTime of %q, want that of the update and a later one of the find",
			times)
	}
	snapshot, err := b.Session.Start(ctx,
		&mooringv1.SessionServiceStartRequest{Snapshot: proto.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	token := snapshot.GetSession()
	if _, err := b.Transaction.Begin(ctx,
		&mooringv1.TransactionServiceBeginRequest{Session: &token}); told(
		err) != "InvalidArgument InvalidArgument never" {
		t.Errorf("Begin in a session that reads from a snapshot = %s", told(err))
	}
}

// settle lets fake time pass, and all that happens in it.
func settle() {
	time.Sleep(time.Second) //nolint:forbidigo // time is fake
	synctest.Wait()
}

// TestClientGoesAway: a write that was sent runs to its end, and its number brings its result.
func TestClientGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
		if _, err := b.Document.FindOne(t.Context(),
			&mooringv1.FindOneRequest{Database: "bank", Collection: "accounts"}); err != nil {
			t.Fatal(err) // the servers are known now
		}
		token, n := b.begin(), int32(1)
		held := make(chan struct{})
		var updates atomic.Int64
		b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == "update" {
				updates.Add(1)
				<-held
			}
			return next(cmd)
		})
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := b.Document.UpdateOne(ctx, add(token, "a", &n))
			gone <- err
		}()
		settle()
		leave()
		if err := <-gone; status.Code(err).String() != "Canceled" {
			t.Errorf("the client that goes away gets %v", err)
		}
		if _, err := b.Document.UpdateOne(t.Context(),
			add(token, "a", &n)); told(err) != "Aborted TransactionBusy same-request" {
			t.Errorf("the same call while the first runs = %s", told(err))
		}
		close(held)
		settle()
		res, err := b.Document.UpdateOne(t.Context(), add(token, "a", &n))
		if err != nil || res.GetMatchedCount() != 1 || updates.Load() != 1 {
			t.Errorf("the same call again = %v, %v after %d updates", res, err, updates.Load())
		}
		if err := b.commit(token); err != nil {
			t.Fatal(err)
		}
		if got := b.balances(); got != `{"_id":"a","n":11} {"_id":"b","n":10}` {
			t.Errorf("there is %s", got)
		}
	})
}

// TestLimit: a client has so many transactions and cursors.
func TestLimit(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet,
		servicetest.Config{Handles: paging.Config{MaxPerPrincipal: 2}})
	ctx := servicetest.As(t.Context(), "ann")
	begin := func() (string, string) {
		res, err := b.Transaction.Begin(ctx, &mooringv1.TransactionServiceBeginRequest{})
		return res.GetTransaction(), told(err)
	}
	first, _ := begin()
	begin()
	if _, got := begin(); got != "ResourceExhausted "+string(rpcerr.HandleLimitExceeded)+
		" same-request" {
		t.Errorf("a third transaction = %s", got)
	}
	if _, err := b.Transaction.Abort(ctx,
		&mooringv1.TransactionServiceAbortRequest{Transaction: &first}); err != nil {
		t.Fatal(err)
	}
	if _, got := begin(); got != "OK" {
		t.Errorf("a transaction after the end of another = %s", got)
	}
}

// TestLimitWithoutName checks that clients without names have the limit for each address.
func TestLimitWithoutName(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{
		Handles:   paging.Config{MaxPerPrincipal: 2},
		Admission: admission.New(admission.Config{}),
	})
	api := mooringv1.NewTransactionServiceClient(b.Local)
	begin := func(address string) string {
		ctx := inproc.WithIncoming(t.Context(), call.Local{Client: netip.MustParseAddr(address)},
			nil)
		_, err := api.Begin(ctx, &mooringv1.TransactionServiceBeginRequest{})
		return told(err)
	}
	limit := "ResourceExhausted " + string(rpcerr.HandleLimitExceeded) + " same-request"
	for n, row := range []struct{ address, want string }{
		{"192.0.2.1", "OK"},
		{"192.0.2.1", "OK"},
		{"192.0.2.1", limit},
		{"192.0.2.2", "OK"},
		{"2001:db8::1", "OK"},
		{"2001:db8::2", "OK"},
		{"2001:db8::3", limit},
	} {
		if got := begin(row.address); got != row.want {
			t.Errorf("Begin %d, from %s = %s, want %s", n+1, row.address, got, row.want)
		}
	}
}

// TestLimitAtOnce checks that clients that begin at once do not exceed the limit.
func TestLimitAtOnce(t *testing.T) {
	const limit, calls = 2, 16
	b := newBank(t, deployment.ReplicaSet,
		servicetest.Config{Handles: paging.Config{MaxPerPrincipal: limit}})
	for round := range 200 {
		principal := fmt.Sprint("ann", round)
		var begun atomic.Int64
		var all sync.WaitGroup
		start := make(chan struct{})
		for range calls {
			all.Go(func() {
				<-start
				_, _, err := b.Transactions.Start(t.Context(), principal,
					client.TransactionOptions{}, nil)
				if err == nil {
					begun.Add(1)
				} else if _, ok := errors.AsType[*handle.LimitError](err); !ok {
					t.Errorf("Start = %v", err)
				}
			})
		}
		close(start)
		all.Wait()
		if begun.Load() != limit {
			t.Fatalf("%d transactions began at once, want %d", begun.Load(), limit)
		}
	}
}

// panicking is a connection that panics when a command of that name is sent, once.
type panicking struct {
	net.Conn
	command *atomic.Pointer[string]
}

func (c panicking) Write(b []byte) (int, error) {
	if name := c.command.Load(); name != nil && bytes.Contains(b, []byte(*name)) &&
		c.command.CompareAndSwap(name, nil) {
		panic("the connection panics at " + *name)
	}
	return c.Conn.Write(b)
}

// TestPanicOfOperation checks that a transaction does not stay busy after a panic in an operation,
// and that the operation counts as run: its client cannot know how far it got.
func TestPanicOfOperation(t *testing.T) {
	d := newDeployment(t, deployment.ReplicaSet)
	var command atomic.Pointer[string]
	b := newBranchOn(t, d, func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d.Dial(ctx, network, addr)
		return panicking{c, &command}, err
	}, servicetest.Config{})
	token := b.begin()
	call := func() string {
		_, err := b.Document.UpdateOne(t.Context(), add(token, "a", new(int32(1))))
		return told(err)
	}
	command.Store(new("update"))
	if got := call(); !strings.HasPrefix(got, "Internal ") {
		t.Errorf("the call that panics = %s", got)
	}
	if got := call(); got != "Aborted StatementResultLost transaction" {
		t.Errorf("the call again = %s", got)
	}
	if err := b.abort(token); err != nil {
		t.Errorf("Abort = %s", told(err))
	}
	if got := b.balances(); got != before {
		t.Errorf("there is %s, want %s", got, before)
	}
}

// TestPanic checks that a transaction does not stay busy after a panic of Commit or Abort.
func TestPanic(t *testing.T) {
	for _, row := range []struct {
		command string
		end     func(*bank, string) error
		there   string
	}{
		{"commitTransaction", (*bank).commit, `{"_id":"a","n":11} {"_id":"b","n":10}`},
		{"abortTransaction", (*bank).abort, before},
	} {
		t.Run(row.command, func(t *testing.T) {
			d := newDeployment(t, deployment.ReplicaSet)
			var command atomic.Pointer[string]
			b := newBranchOn(t, d, func(
				ctx context.Context, network, addr string,
			) (net.Conn, error) {
				c, err := d.Dial(ctx, network, addr)
				return panicking{c, &command}, err
			}, servicetest.Config{})
			token := b.begin()
			if err := b.add(token, "a"); err != nil {
				t.Fatal(err)
			}
			command.Store(&row.command)
			if got := told(row.end(b, token)); !strings.HasPrefix(got, "Internal ") {
				t.Errorf("the call that panics = %s", got)
			}
			if err := row.end(b, token); err != nil {
				t.Errorf("the call again = %s", told(err))
			}
			if got := b.balances(); got != row.there {
				t.Errorf("there is %s, want %s", got, row.there)
			}
		})
	}
}

// TestOverlappingEnd ends transactions while an operation of each fails, so that the race detector
// sees what both calls use.
func TestOverlappingEnd(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	b.disturb("update", math.MaxInt64, fakemongo.Error(2, "BadValue", "no"))
	for range 50 {
		token := b.begin()
		var both sync.WaitGroup
		both.Go(func() {
			if got := told(b.add(token, "a")); !strings.HasPrefix(got, "InvalidArgument ") &&
				!strings.HasPrefix(got, "Aborted ") {
				t.Errorf("UpdateOne = %s", got)
			}
		})
		both.Go(func() {
			got := "TransactionBusy"
			for strings.Contains(got, "TransactionBusy") {
				got = told(b.abort(token))
			}
			if got != "OK" {
				t.Errorf("Abort = %s", got)
			}
		})
		both.Wait()
	}
}

// TestKilledCommit kills transactions while they are committed. What the last Commit says is true,
// whichever call was first.
func TestKilledCommit(t *testing.T) {
	b, ctx := newBank(t, deployment.ReplicaSet, servicetest.Config{}), t.Context()
	committed := 0
	for range 50 {
		token := b.begin()
		if err := b.add(token, "a"); err != nil {
			t.Fatal(err)
		}
		list, err := b.Deployment.ListHandles(ctx, &mooringv1.ListHandlesRequest{})
		if err != nil || len(list.GetHandles()) != 1 {
			t.Fatalf("ListHandles = %v, %v, want the transaction", list, err)
		}
		var both sync.WaitGroup
		both.Go(func() { _ = b.commit(token) })
		both.Go(func() { // it may be gone
			_, _ = b.Deployment.KillHandle(ctx,
				&mooringv1.KillHandleRequest{Id: list.GetHandles()[0].GetId()})
		})
		both.Wait()
		switch err := b.commit(token); {
		case err == nil:
			committed++
		case !strings.HasPrefix(told(err), "Aborted "):
			t.Errorf("the last Commit = %s", told(err))
		}
	}
	if got, want := b.balances(),
		fmt.Sprintf(`{"_id":"a","n":%d} {"_id":"b","n":10}`, 10+committed); got != want {
		t.Errorf("there is %s, want %s", got, want)
	}
}

// TestAbortTooLate checks that Abort ends the transaction on the server, also if the time of the
// call is over before it is asked.
func TestAbortTooLate(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	var aborts atomic.Int64
	b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "abortTransaction" {
			aborts.Add(1)
		}
		return next(cmd)
	})
	token := b.begin()
	if err := b.add(token, "a"); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	server := transaction.NewServer(transaction.ServerConfig{Transactions: b.Transactions})
	_, err := server.Abort(&call.Context{Context: over},
		&mooringv1.TransactionServiceAbortRequest{Transaction: &token})
	if err != nil || aborts.Load() != 1 {
		t.Errorf("Abort = %v, and the server got %d, want 1", err, aborts.Load())
	}
}

// TestLargeBeginning checks that a transaction whose options are large, which it would keep, does
// not begin.
func TestLargeBeginning(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	begin := func(tags int) string {
		set := &mooringv1.TagSet{Tags: map[string]string{}}
		for i := range tags {
			set.Tags[fmt.Sprint("dc", i)] = strings.Repeat("x", 100)
		}
		_, err := b.Transaction.Begin(t.Context(), &mooringv1.TransactionServiceBeginRequest{
			ReadPreference: &mooringv1.ReadPreference{
				Mode: new("nearest"), Tags: []*mooringv1.TagSet{set},
			},
		})
		return status.Convert(err).Message()
	}
	if got := begin(10); strings.Contains(got, "16 KiB") {
		t.Errorf("small options: %s", got)
	}
	if got := begin(200); !strings.Contains(got, "16 KiB") {
		t.Errorf("large options: %s", got)
	}
}
