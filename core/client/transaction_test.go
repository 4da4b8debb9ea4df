package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// ends are the handlers of a server that ends all transactions as it is told.
func ends() fakemongo.Handlers {
	ok := fakemongo.Always(fakemongo.OK(nil))
	return fakemongo.Handlers{"commitTransaction": ok, "abortTransaction": ok}
}

func secondary() *selection.ReadPreference {
	return &selection.ReadPreference{Mode: selection.Secondary}
}

// commandsOf returns the commands of these names, each without what differs between runs.
func commandsOf(t *testing.T, srv *fakemongo.Server, names ...string) []string {
	t.Helper()
	var all []string
	for _, cmd := range srv.Commands(names...) {
		all = append(all,
			text(t,
				bson.Without(cmd.Body, "lsid", "$clusterTime", "$db", "ordered", "cursor",
					"pipeline", "singleBatch", "limit", "filter")))
	}
	return all
}

func begin(t *testing.T, s *client.Session, opt client.TransactionOptions) {
	t.Helper()
	if err := s.StartTransaction(opt); err != nil {
		t.Fatalf("StartTransaction() = %v", err)
	}
}

func insert(t *testing.T, c *client.Client, in client.Common) error {
	t.Helper()
	_, err := c.InsertOne(t.Context(), orders, doc(t, `{"_id":1}`),
		client.InsertOneOptions{Common: in})
	return err
}

func wantState(t *testing.T, s *client.Session, want string) {
	t.Helper()
	if got := s.TransactionState().String(); got != want {
		t.Errorf("the transaction is %s, want %s", got, want)
	}
}

// What the commands of a transaction carry (Transactions, "Constructing Commands").
func TestTransactionCommands(t *testing.T) {
	handlers := ends()
	handlers["insert"] = timed(5, doc(t, `{"n":1,"ok":1}`))
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		s := startSession(t, c, session.Options{})
		in := client.Common{Session: s}
		if err := insert(t, c, in); err != nil { // so that there is an operation time
			t.Fatal(err)
		}
		begin(t, s, client.TransactionOptions{
			ReadConcernLevel: new("snapshot"),
			WriteConcern:     &client.WriteConcern{Tag: "majority", WTimeoutMS: new(int64(7))},
			MaxCommitTimeMS:  new(int64(60)),
		})
		wantState(t, s, "starting")
		if err := insert(t, c, in); err != nil {
			t.Fatal(err)
		}
		wantState(t, s, "in_progress")
		if _, _, err := c.FindOne(t.Context(), orders, client.FindOptions{Common: in}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.RunCommand(t.Context(), "shop", doc(t, `{"ping":1}`),
			client.RunCommandOptions{Common: in}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.CommitTransaction(t.Context(), client.EndTransactionOptions{}); err != nil {
				t.Fatal(err)
			}
			wantState(t, s, "committed")
		}
		begin(t, s, client.TransactionOptions{})
		if err := insert(t, c, in); err != nil {
			t.Fatal(err)
		}
		if err := s.AbortTransaction(t.Context(), client.EndTransactionOptions{}); err != nil {
			t.Fatal(err)
		}
		wantState(t, s, "aborted")
		if _, _, err := c.FindOne(t.Context(), orders, client.FindOptions{Common: in}); err != nil {
			t.Fatal(err)
		}
		wantState(t, s, "none")
		got := commandsOf(t, srv, "insert", "find", "ping", "commitTransaction",
			"abortTransaction")[1:]
		const after = `{"$timestamp":{"t":5,"i":1}}`
		want := []string{
			`{"insert":"orders","readConcern":{"level":"snapshot","afterClusterTime":` + after + `},"txnNumber":1,"startTransaction":true,"autocommit":false}`,
			`{"find":"orders","txnNumber":1,"autocommit":false}`,
			`{"ping":1,"txnNumber":1,"autocommit":false}`,
			`{"commitTransaction":1,"writeConcern":{"w":"majority","wtimeout":7},"maxTimeMS":60,"txnNumber":1,"autocommit":false}`,
			`{"commitTransaction":1,"writeConcern":{"w":"majority","wtimeout":7},"maxTimeMS":60,"txnNumber":1,"autocommit":false}`,
			`{"insert":"orders","readConcern":{"afterClusterTime":` + after + `},"txnNumber":2,"startTransaction":true,"autocommit":false}`,
			`{"abortTransaction":1,"txnNumber":2,"autocommit":false}`,
			`{"find":"orders","readConcern":{"afterClusterTime":` + after + `}}`,
		}
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("command %d: sent\n%s, want\n%s", i, strings.Join(got, "\n"),
					strings.Join(want, "\n"))
			}
		}
	})
}

// A transaction of which nothing was sent ends without a command.
func TestEmptyTransaction(t *testing.T) {
	run(t, ends(), func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		s := startSession(t, c, session.Options{})
		begin(t, s, client.TransactionOptions{})
		for range 2 {
			if err := s.CommitTransaction(t.Context(), client.EndTransactionOptions{}); err != nil {
				t.Error(err)
			}
		}
		begin(t, s, client.TransactionOptions{})
		if err := s.AbortTransaction(t.Context(), client.EndTransactionOptions{}); err != nil {
			t.Error(err)
		}
		begin(t, s, client.TransactionOptions{})
		s.End(t.Context())
		if got := srv.Commands("commitTransaction", "abortTransaction"); len(got) != 0 {
			t.Errorf("sent %v", got)
		}
	})
}

// The write concern of a commit that is sent again.
func TestRepeatedCommit(t *testing.T) {
	for _, tt := range []struct {
		name    string
		given   client.WriteConcern
		timeout *time.Duration
		first   string
		again   string
	}{
		{"none", client.WriteConcern{}, nil, ``, `{"w":"majority","wtimeout":10000}`},
		{
			"number",
			client.WriteConcern{Nodes: new(int32(2)), Journal: new(true), WTimeoutMS: new(int64(5000))},
			nil,
			`{"w":2,"j":true,"wtimeout":5000}`, `{"w":"majority","j":true,"wtimeout":5000}`,
		},
		{"timeoutMS", client.WriteConcern{Nodes: new(int32(2)), WTimeoutMS: new(int64(5000))}, new(time.Minute), `{"w":2}`, `{"w":"majority"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, ends(), func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				s := startSession(t, c,
					session.Options{DefaultTransaction: client.TransactionOptions{
						WriteConcern: &tt.given, MaxCommitTimeMS: new(int64(5)),
					}})
				begin(t, s, client.TransactionOptions{})
				if err := insert(t, c, client.Common{Session: s}); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := s.CommitTransaction(t.Context(),
						client.EndTransactionOptions{Timeout: tt.timeout}); err != nil {
						t.Fatal(err)
					}
				}
				for i, want := range []string{tt.first, tt.again} {
					cmd := srv.Commands("commitTransaction")[i].Body
					wc, _ := cmd.Lookup("writeConcern")
					if got := valueText(t, wc); got != want {
						t.Errorf("commit %d has the write concern %s, want %s", i, got, want)
					}
					limit, _ := cmd.Lookup("maxTimeMS")
					if ms, _ := limit.AsInt64(); (ms == 5) != (tt.timeout == nil) {
						t.Errorf("commit %d has maxTimeMS %d", i, ms)
					}
				}
			})
		})
	}
}

func TestTransactionRefuses(t *testing.T) {
	w0 := client.WriteConcern{Nodes: new(int32(0))}
	starts := []struct {
		name string
		opt  client.TransactionOptions
		want string
	}{
		{"unacknowledged", client.TransactionOptions{WriteConcern: &w0}, "transactions do not support unacknowledged write concerns"},
		{"contradicting write concern", client.TransactionOptions{WriteConcern: &client.WriteConcern{Nodes: new(int32(1)), Tag: "x"}}, "writeConcern"},
		{"read preference", client.TransactionOptions{ReadPreference: &selection.ReadPreference{Mode: selection.Primary, MaxStalenessSeconds: new(int64(100))}}, "readPreference"},
		{"maxCommitTimeMS", client.TransactionOptions{MaxCommitTimeMS: new(int64(-1))}, "maxCommitTimeMS"},
	}
	run(t, ends(), func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		for _, tt := range starts {
			s := startSession(t, c, session.Options{})
			if err := s.StartTransaction(tt.opt); !isA[*client.ArgumentError](err) ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: StartTransaction() = %v, want %s", tt.name, err, tt.want)
			}
			wantState(t, s, "none")
		}
		s := startSession(t, c,
			session.Options{DefaultTransaction: client.TransactionOptions{WriteConcern: &w0}})
		if err := s.StartTransaction(
			client.TransactionOptions{}); !isA[*client.ArgumentError](err) {
			t.Errorf("StartTransaction() = %v, want the session's write concern refused", err)
		}
		snapshot := startSession(t, c, session.Options{Snapshot: true})
		if err := snapshot.StartTransaction(client.TransactionOptions{}); !errors.Is(err,
			session.ErrSnapshotTransaction) {
			t.Errorf("StartTransaction() of a snapshot session = %v", err)
		}

		s = startSession(t, c, session.Options{})
		begin(t, s, client.TransactionOptions{})
		for name, in := range map[string]client.Common{
			"write concern": {Session: s, WriteConcern: &client.WriteConcern{}},
		} {
			if err := insert(t, c, in); !isA[*client.ArgumentError](err) ||
				!strings.Contains(err.Error(), "cannot set "+name+" after starting a transaction") {
				t.Errorf("%s: insert = %v", name, err)
			}
		}
		_, err := c.Find(t.Context(), orders, client.FindOptions{
			Common: client.Common{Session: s, ReadConcern: &client.ReadConcern{}},
		})
		if !isA[*client.ArgumentError](err) ||
			!strings.Contains(err.Error(), "cannot set read concern after starting a transaction") {
			t.Errorf("Find() = %v", err)
		}
		wantState(t, s, "starting") // an error of the client changes nothing
		if err := s.StartTransaction(client.TransactionOptions{}); !errors.Is(err,
			session.ErrTransactionInProgress) {
			t.Errorf("StartTransaction() = %v", err)
		}
		s.End(t.Context())
		for name, err := range map[string]error{
			"start":  s.StartTransaction(client.TransactionOptions{}),
			"commit": s.CommitTransaction(t.Context(), client.EndTransactionOptions{}),
			"abort":  s.AbortTransaction(t.Context(), client.EndTransactionOptions{}),
		} {
			if !errors.Is(err, session.ErrEnded) {
				t.Errorf("%s after the end of the session = %v, want ErrEnded", name, err)
			}
		}
		if got := srv.Commands("insert", "find", "commitTransaction",
			"abortTransaction"); len(got) != 0 {
			t.Errorf("sent %v", got)
		}
	})
}

// A read whose read preference is not primary is refused; writes are not.
func TestTransactionReadPreference(t *testing.T) {
	reads := map[string]func(*client.Client, client.Common) error{
		"find": func(c *client.Client, in client.Common) error {
			_, _, err := c.FindOne(context.Background(), orders, client.FindOptions{Common: in})
			return err
		},
		"aggregate with $out": func(c *client.Client, in client.Common) error {
			_, err := c.Aggregate(context.Background(), orders, client.AggregateOptions{
				Common: in,
				Pipeline: bson.Array(bson.NewBuilder(nil).OpenDocument("0").String("$out", "x").
					Close().Finish()),
			})
			return err
		},
		"listCollections": func(c *client.Client, in client.Common) error {
			_, err := c.ListCollectionNames(context.Background(), "shop",
				client.ListCollectionsOptions{ListOptions: client.ListOptions{Common: in}})
			return err
		},
		"command": func(c *client.Client, in client.Common) error {
			_, err := c.RunCommand(context.Background(), "shop",
				bson.NewBuilder(nil).Int32("ping", 1).Finish(),
				client.RunCommandOptions{Common: in})
			return err
		},
	}
	run(t, ends(), func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		for name, read := range reads {
			s := startSession(t, c, session.Options{})
			begin(t, s, client.TransactionOptions{ReadPreference: secondary()})
			in := client.Common{Session: s}
			if err := read(c, in); !errors.Is(err, operation.ErrTransactionReadPreference) {
				t.Errorf("%s = %v, want it refused", name, err)
			}
			wantState(t, s, "starting")
			if err := insert(t, c, in); err != nil {
				t.Errorf("insert = %v", err)
			}
			_ = s.AbortTransaction(t.Context(), client.EndTransactionOptions{})
		}
		s := startSession(t, c, session.Options{})
		begin(t, s, client.TransactionOptions{ReadPreference: secondary()})
		in := client.Common{Session: s, ReadPreference: &selection.ReadPreference{}}
		if err := reads["command"](c, in); err != nil {
			t.Errorf("command with a read preference of its own = %v", err)
		}
		_ = s.AbortTransaction(t.Context(), client.EndTransactionOptions{})
		begin(t, s, client.TransactionOptions{})
		in.ReadPreference = secondary()
		if err := reads["command"](c, in); !errors.Is(err, operation.ErrTransactionReadPreference) {
			t.Errorf("command with a read preference of its own = %v, want it refused", err)
		}
		_ = srv
	})
}

// A server that is too old, or has no sessions, runs no transaction.
func TestTransactionsNotSupported(t *testing.T) {
	for _, tt := range []struct {
		name    string
		role    fakemongo.Role
		version int32
		want    error
	}{
		{"3.6", fakemongo.Primary, 6, operation.ErrTransactionsNotSupported},
		{"4.0", fakemongo.Primary, 7, nil},
		{"mongos of 4.0", fakemongo.Mongos, 7, operation.ErrTransactionsNotSupported},
		{"mongos of 4.2", fakemongo.Mongos, 8, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{WireVersion: tt.version},
					tt.role)
				c := connect(t, cluster, "", client.Options{})
				s := startSession(t, c, session.Options{})
				begin(t, s, client.TransactionOptions{})
				if err := insert(t, c, client.Common{Session: s}); !errors.Is(err, tt.want) {
					t.Errorf("insert = %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// An operation whose check-out a cleared pool refuses has the label TransientTransactionError.
func TestTransactionsProse3PoolClearedError(t *testing.T) {
	cfg := connstring.Config{MaxPoolSize: new(uint64(1)), RetryReads: new(false)}
	runWith(t, ends(), cfg, client.Options{}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		srv.Handle("find",
			fakemongo.Always(fakemongo.Error(91, "ShutdownInProgress", "bye").After(time.Second)))
		var other sync.WaitGroup
		defer other.Wait()
		other.Go(func() {
			if err := findsOne(t, c); mongoerr.Code(err) != 91 {
				t.Errorf("FindOne() = %v, want the error 91, which clears the pool", err)
			}
		})
		synctest.Wait() // the find has the only connection
		s := startSession(t, c, session.Options{})
		begin(t, s, client.TransactionOptions{})
		err := insert(t, c, client.Common{Session: s})
		if !isA[*pool.PoolClearedError](err) ||
			!mongoerr.HasLabel(err, mongoerr.LabelTransientTransaction) {
			t.Errorf("insert = %v with the labels %v, want a transient PoolClearedError", err,
				mongoerr.Labels(err))
		}
		wantState(t, s, "starting")
		if n := len(srv.Commands("insert")); n != 0 {
			t.Errorf("%d inserts were sent, want none", n)
		}
	})
}

// The end of a session aborts its transaction, even if the caller has no time left.
func TestEndAborts(t *testing.T) {
	handlers := ends()
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		s := startSession(t, c, session.Options{})
		begin(t, s, client.TransactionOptions{})
		if err := insert(t, c, client.Common{Session: s}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		srv.Handle("abortTransaction", fakemongo.Always(fakemongo.Hang()))
		began := time.Now()
		for range 2 {
			s.End(ctx)
		}
		if n := len(srv.Commands("abortTransaction")); n == 0 ||
			time.Since(began) > 10*time.Second {
			t.Errorf("%d aborts within %v", n, time.Since(began))
		}
	})
}

// A write in a transaction is acknowledged, whatever the client's write concern is (prose test 1.0
// of transactions).
func TestTransactionsProseWriteConcernIsNotInherited(t *testing.T) {
	run(t, ends(), func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		s := startSession(t, c, session.Options{})
		begin(t, s,
			client.TransactionOptions{WriteConcern: &client.WriteConcern{Nodes: new(int32(1))}})
		res, err := c.InsertOne(t.Context(), orders, doc(t, `{"n":1}`),
			client.InsertOneOptions{Common: client.Common{Session: s}})
		if err != nil || !res.Acknowledged {
			t.Errorf("InsertOne() = %+v, %v, want it acknowledged", res, err)
		}
		cmd := srv.Commands("insert")[0]
		if cmd.MoreToCome || cmd.Body.Has("writeConcern") {
			t.Errorf("sent %s", fmt.Sprint(text(t, cmd.Body)))
		}
		_ = s.AbortTransaction(t.Context(), client.EndTransactionOptions{})
	})
}

// The commands of a cursor do not make the session forget a transaction that has ended: its commit
// may be repeated after them.
func TestCursorAfterCommit(t *testing.T) {
	run(t, ends(), func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		srv.SetDocuments("shop.orders", fakemongo.Numbered(0, 9, 0)...)
		s := startSession(t, c, session.Options{})
		begin(t, s, client.TransactionOptions{})
		cur, err := c.Find(t.Context(), orders, client.FindOptions{
			Common: client.Common{Session: s}, BatchSize: new(int32(2)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CommitTransaction(t.Context(), client.EndTransactionOptions{}); err != nil {
			t.Fatal(err)
		}
		_ = cur.Close(t.Context())
		wantState(t, s, "committed")
		if err := s.CommitTransaction(t.Context(), client.EndTransactionOptions{}); err != nil {
			t.Errorf("CommitTransaction() = %v after the end of a cursor", err)
		}
		if n := len(srv.Commands("commitTransaction")); n != 2 {
			t.Errorf("%d commits, want 2", n)
		}
		for _, kill := range srv.Commands("killCursors") {
			if kill.Body.Has("txnNumber") {
				t.Errorf("killCursors belongs to the transaction: %v", text(t, kill.Body))
			}
		}
	})
}
