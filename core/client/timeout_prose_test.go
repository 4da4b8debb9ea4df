package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// The prose tests of Client Side Operations Timeout. 2 and 3 need client-side encryption, 6 and 7
// need GridFS; TestTimeoutsProse11 is beside the other tests of ClientBulkWrite.

// TestTimeoutsProse1 is "Multi-batch writes": all commands of one operation share its time.
func TestTimeoutsProse1(t *testing.T) {
	hello := fakemongo.Handlers{
		"hello": helloWith(t, `{"maxWireVersion":21,"maxWriteBatchSize":1}`),
	}
	cfg := connstring.Config{Timeout: new(2 * time.Second)}
	runWith(t, hello, cfg, client.Options{}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		srv.Handle("insert",
			fakemongo.Always(fakemongo.Document(doc(t, `{"ok":1,"n":1}`)).
				After(1500*time.Millisecond)))
		began := time.Now()
		docs := []bson.Raw{doc(t, `{"_id":0}`), doc(t, `{"_id":1}`), doc(t, `{"_id":2}`)}
		res, err := c.InsertMany(t.Context(), orders, docs, client.InsertManyOptions{})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
			took != 2*time.Second {
			t.Errorf("InsertMany() = %v after %v, want DeadlineExceeded after 2s", err, took)
		}
		if len(res.InsertedIDs) != 1 || len(srv.Commands("insert")) != 2 {
			t.Errorf("%d ids, %d commands, want 1 and 2", len(res.InsertedIDs),
				len(srv.Commands("insert")))
		}
		if ms := maxTimeMS(t, srv, "insert"); ms != 500 {
			t.Errorf("the second command's maxTimeMS is %d, want the rest of 500", ms)
		}
	})
}

// slowLogin returns a server that requires logins and answers commands of these names late.
func slowLogin(t *testing.T, late time.Duration, names ...string) *fakemongo.Server {
	t.Helper()
	srv := fakemongo.NewServer(t, nil)
	srv.RequireAuth(pencil())
	srv.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if slices.Contains(names, cmd.Name) {
			return next(cmd).After(late)
		}
		return next(cmd)
	})
	return srv
}

// TestTimeoutsProse4 is "Background Connection Pooling": timeoutMS does not accumulate over the
// commands of a handshake. It does not bound each of them either, which docs/conformance.md says.
func TestTimeoutsProse4(t *testing.T) {
	for name, test := range map[string]struct {
		timeoutMS string
		slow      []string
	}{
		"timeoutMS used for handshake commands":             {"10", []string{"saslContinue"}},
		"timeoutMS is refreshed for each handshake command": {"20", []string{"hello", "isMaster", "saslContinue"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := slowLogin(t, 15*time.Millisecond, test.slow...)
				var h happened
				authenticating(t, srv, "app:pencil@",
					"directConnection=true&minPoolSize=1&timeoutMS="+test.timeoutMS,
					client.Options{Sink: h.sink()})
				pass(time.Second)
				h.want(t, "pool created", "pool ready", "created", "ready")
			})
		})
	}
}

// TestTimeoutsProse5 is "Blocking Iteration Methods". Each Next of a cursor sends at most one
// getMore, so it is a context that bounds the loop over several; the Next of a stream loops itself.
func TestTimeoutsProse5(t *testing.T) {
	const block, timeout = 150 * time.Millisecond, 250 * time.Millisecond
	open := func(first string) fakemongo.Handler {
		return reply(t,
			`{"cursor":{"id":{"$numberLong":"7"},"ns":"shop.orders","firstBatch":[`+first+
				`]},"ok":1}`)
	}
	empty := fakemongo.Document(doc(t,
		`{"cursor":{"id":{"$numberLong":"7"},"ns":"shop.orders","nextBatch":[]},"ok":1}`)).
		After(block)
	handlers := fakemongo.Handlers{
		"find": open(`{"x":1}`), "aggregate": open(``), "getMore": fakemongo.Always(empty),
		"killCursors": reply(t, `{"ok":1}`),
	}
	for name, test := range map[string]struct {
		open    string
		iterate func(ctx context.Context, t *testing.T, c *client.Client) error
	}{
		"tailable cursors": {"find", func(
			ctx context.Context, t *testing.T, c *client.Client,
		) error {
			cur, err := c.Find(ctx, orders, client.FindOptions{Tailable: new(true)})
			if err != nil {
				return err
			}
			defer func() { _ = cur.Close(ctx) }()
			if b, err := cur.Next(ctx); err != nil || len(b.Documents) != 1 {
				t.Fatalf("the first batch is %v, %v", b, err)
			}
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			for {
				if b, err := cur.Next(ctx); err != nil || len(b.Documents) > 0 {
					return err
				}
			}
		}},
		"change streams": {"aggregate", func(
			ctx context.Context, t *testing.T, c *client.Client,
		) error {
			s, err := c.Watch(ctx, orders,
				client.WatchOptions{Common: client.Common{Timeout: new(timeout)}})
			if err != nil {
				return err
			}
			defer func() { _ = s.Close(ctx) }()
			_, err = s.Next(ctx)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				began := time.Now()
				err := test.iterate(t.Context(), t, c)
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
					took != timeout {
					t.Errorf("the iteration ended with %v after %v, want that time ran "+
						"out after %v", err, took, timeout)
				}
				if opened, more := len(srv.Commands(test.open)),
					len(srv.Commands("getMore")); opened != 1 || more != 2 {
					t.Errorf("%d %s and %d getMore, want 1 and 2", opened, test.open, more)
				}
				if n := len(srv.Commands("killCursors")); n != 1 {
					t.Errorf("%d killCursors, want 1", n)
				}
			})
		})
	}
}

// TestTimeoutsProse8 is "Server Selection".
func TestTimeoutsProse8(t *testing.T) {
	ping := func(ctx context.Context, c *client.Client) error { return c.Ping(ctx) }
	inserts := func(ctx context.Context, c *client.Client) error {
		return insertWithin(ctx, c, client.Common{})
	}
	for _, test := range []struct {
		name, options string
		login         bool
		operate       func(context.Context, *client.Client) error
	}{
		{"serverSelectionTimeoutMS honored if timeoutMS is not set", "serverSelectionTimeoutMS=10", false, ping},
		{"timeoutMS honored for server selection if it's lower than serverSelectionTimeoutMS", "timeoutMS=10&serverSelectionTimeoutMS=20", false, ping},
		{"serverSelectionTimeoutMS honored for server selection if it's lower than timeoutMS", "timeoutMS=20&serverSelectionTimeoutMS=10", false, ping},
		{"serverSelectionTimeoutMS honored for server selection if timeoutMS=0", "timeoutMS=0&serverSelectionTimeoutMS=10", false, ping},
		{"timeoutMS honored for connection handshake commands if it's lower than serverSelectionTimeoutMS", "timeoutMS=10&serverSelectionTimeoutMS=20", true, inserts},
		{"serverSelectionTimeoutMS honored for connection handshake commands if it's lower than timeoutMS", "timeoutMS=20&serverSelectionTimeoutMS=10", true, inserts},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := slowLogin(t, 15*time.Millisecond, "saslContinue")
				var c *client.Client
				if test.login {
					c = authenticating(t, srv, "app:pencil@", "directConnection=true&"+test.options,
						client.Options{})
				} else {
					srv.SetDown(true)
					c = authenticating(t, srv, "", test.options, client.Options{})
				}
				synctest.Wait()
				began := time.Now()
				err := test.operate(t.Context(), c)
				took := time.Since(began)
				if test.login && !isA[*pool.WaitQueueTimeoutError](err) ||
					!test.login && !isA[*mongoerr.SelectionError](err) {
					t.Errorf("the error is %v, want a timeout", err)
				}
				if took != 10*time.Millisecond {
					t.Errorf("the operation took %v, want 10ms", took)
				}
			})
		})
	}
}

// Selection and check-out together take no longer than serverSelectionTimeoutMS.
func TestSelectionTimeoutIncludesCheckOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := slowLogin(t, 6*time.Millisecond, "hello", "isMaster", "saslContinue")
		c := authenticating(t, srv, "app:pencil@",
			"directConnection=true&timeoutMS=50&serverSelectionTimeoutMS=10", client.Options{})
		began := time.Now()
		err := insertWithin(t.Context(), c, client.Common{})
		if took := time.Since(began); !isA[*pool.WaitQueueTimeoutError](err) ||
			took != 10*time.Millisecond {
			t.Errorf("InsertOne() = %v after %v, want a timeout of the check-out after 10ms", err,
				took)
		}
	})
}

// TestNoSelectionTimeout checks that the check-out gets no more time from
// serverSelectionTimeoutMS=0 than from 1: only a connection that is idle is in time.
func TestNoSelectionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := slowLogin(t, 6*time.Millisecond, "saslContinue")
		c := authenticating(t, srv, "app:pencil@",
			"directConnection=true&timeoutMS=50&serverSelectionTimeoutMS=0", client.Options{})
		time.Sleep(time.Second) //nolint:forbidigo // fake time, until the server is known
		err := insertWithin(t.Context(), c, client.Common{})
		if !isA[*pool.WaitQueueTimeoutError](err) {
			t.Errorf("InsertOne() without a connection = %v, want a timeout of the check-out", err)
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time, until it has logged in
		if err := insertWithin(t.Context(), c, client.Common{}); err != nil {
			t.Errorf("InsertOne() with an idle connection = %v", err)
		}
	})
}

// TestTimeoutsProse9 is "endSession". End returns no error, and has no timeoutMS of its own: a
// caller that wants to bound the abort so calls AbortTransaction first.
func TestTimeoutsProse9(t *testing.T) {
	limit := new(150 * time.Millisecond)
	for name, test := range map[string]struct {
		client, session, call *time.Duration
	}{
		"timeoutMS of the client":         {client: limit},
		"defaultTimeoutMS of the session": {session: limit},
		"timeoutMS of the operation":      {call: limit},
	} {
		t.Run(name, func(t *testing.T) {
			handlers := ends()
			handlers["abortTransaction"] = fakemongo.Always(fakemongo.OK(nil).
				After(200 * time.Millisecond))
			cfg := connstring.Config{Timeout: test.client}
			runWith(t, handlers, cfg, client.Options{}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				s := startSession(t, c, session.Options{DefaultTimeout: test.session})
				begin(t, s, client.TransactionOptions{})
				if err := insert(t, c, client.Common{Session: s}); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if test.call != nil {
					if err := s.AbortTransaction(t.Context(),
						client.EndTransactionOptions{Timeout: test.call}); err != nil {
						t.Errorf("AbortTransaction() = %v", err)
					}
				}
				s.End(t.Context())
				if took := time.Since(began); took != *limit {
					t.Errorf("End() took %v, want %v", took, *limit)
				}
				if n := len(srv.Commands("abortTransaction")); n != 1 {
					t.Errorf("%d aborts, want 1", n)
				}
			})
		})
	}
}

// TestTimeoutsProse10 is "Convenient Transactions".
func TestTimeoutsProse10(t *testing.T) {
	t.Run("timeoutMS is refreshed for abortTransaction if the callback fails", func(t *testing.T) {
		limit := 150 * time.Millisecond
		runTries(t, 0, connstring.Config{Timeout: &limit}, func(
			t *testing.T, srv *fakemongo.Server, c *client.Client,
		) {
			late := fakemongo.Always(fakemongo.OK(nil).After(200 * time.Millisecond))
			srv.Handle("insert", late)
			srv.Handle("abortTransaction", late)
			s := startSession(t, c, session.Options{})
			began := time.Now()
			err := s.WithTransaction(t.Context(), client.WithTransactionOptions{}, inserting(c, s))
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
				took != 2*limit {
				t.Errorf("WithTransaction() = %v after %v, want a timeout after twice %v", err,
					took, limit)
			}
			if inserts, _, aborts := counts(srv); inserts != 1 || aborts != 1 {
				t.Errorf("%d inserts and %d aborts, want 1 and 1", inserts, aborts)
			}
		})
	})
	t.Run("withTransaction applies a single timeout across retries due to transient errors", func(
		t *testing.T,
	) {
		limit := 200 * time.Millisecond
		runTries(t, 0, connstring.Config{}, func(
			t *testing.T, srv *fakemongo.Server, c *client.Client,
		) {
			srv.Handle("insert", fakemongo.Always(transient(24).After(25*time.Millisecond)))
			s := startSession(t, c, session.Options{DefaultTimeout: &limit})
			began := time.Now()
			err := s.WithTransaction(t.Context(), client.WithTransactionOptions{}, inserting(c, s))
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
				took != limit {
				t.Errorf("WithTransaction() = %v after %v, want a timeout after %v", err, took,
					limit)
			}
			if inserts, _, _ := counts(srv); inserts < 2 {
				t.Errorf("%d attempts, want more than one", inserts)
			}
		})
	})
}
