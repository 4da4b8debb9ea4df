package client_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// runTries runs a test with a client of a server, whose waits before further attempts are
// multiplied by jitter.
func runTries(
	t *testing.T, jitter float64, cfg connstring.Config,
	test func(t *testing.T, srv *fakemongo.Server, c *client.Client),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := fakemongo.NewServer(t, ends())
		cfg.Hosts = []address.Address{srv.Address()}
		c, err := client.New(cfg, client.Options{Dialer: srv.Dial, Jitter: func() float64 {
			return jitter
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		test(t, srv, c)
	})
}

// inserting is a callback that inserts a document in the session.
func inserting(c *client.Client, s *client.Session) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.InsertOne(ctx, orders, bson.NewBuilder(nil).Finish(),
			client.InsertOneOptions{Common: client.Common{Session: s}})
		return err
	}
}

func transient(code int32) fakemongo.Reply {
	return fakemongo.Error(code, "", "no", mongoerr.LabelTransientTransaction)
}

func counts(srv *fakemongo.Server) (inserts, commits, aborts int) {
	return len(srv.Commands("insert")), len(srv.Commands("commitTransaction")),
		len(srv.Commands("abortTransaction"))
}

// Convenient API, "Callback Raises a Custom Error".
func TestWithTransactionProse1CustomError(t *testing.T) {
	runTries(t, 1, connstring.Config{}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		s := startSession(t, c, session.Options{})
		custom := errors.New("of the callback")
		err := s.WithTransaction(t.Context(), client.WithTransactionOptions{}, func(
			ctx context.Context,
		) error {
			return errors.Join(inserting(c, s)(ctx), custom)
		})
		if !errors.Is(err, custom) {
			t.Errorf("WithTransaction() = %v, want the callback's error", err)
		}
		if inserts, commits, aborts := counts(srv); inserts != 1 || commits != 0 || aborts != 1 {
			t.Errorf("%d inserts, %d commits, %d aborts", inserts, commits, aborts)
		}
	})
}

// Convenient API, "Callback Returns a Value": in Go the callback sets a variable.
func TestWithTransactionProse2Value(t *testing.T) {
	runTries(t, 1, connstring.Config{}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		s := startSession(t, c, session.Options{})
		value := ""
		err := s.WithTransaction(t.Context(), client.WithTransactionOptions{}, func(
			ctx context.Context,
		) error {
			value = "Foo"
			return inserting(c, s)(ctx)
		})
		if err != nil || value != "Foo" {
			t.Errorf("WithTransaction() = %v, and %q", err, value)
		}
		if inserts, commits, aborts := counts(srv); inserts != 1 || commits != 1 || aborts != 0 {
			t.Errorf("%d inserts, %d commits, %d aborts", inserts, commits, aborts)
		}
	})
}

// Convenient API, "Retry Timeout is Enforced": 120 seconds, or timeoutMS.
func TestWithTransactionProse3RetryTimeout(t *testing.T) {
	const label = mongoerr.LabelUnknownTransactionCommitResult
	tests := []struct {
		name           string
		insert, commit fakemongo.Handler
		label          string
	}{
		{name: "transient error of the callback", insert: fakemongo.Always(transient(112)), label: mongoerr.LabelTransientTransaction},
		{name: "unknown result of the commit", commit: fakemongo.Always(fakemongo.Error(10107, "", "no", mongoerr.LabelRetryableWrite)), label: label},
		{name: "transient error of the commit", commit: fakemongo.Always(transient(251)), label: mongoerr.LabelTransientTransaction},
	}
	for _, limit := range []time.Duration{120 * time.Second, 3 * time.Second} {
		for _, tt := range tests {
			t.Run(tt.name+", "+limit.String(), func(t *testing.T) {
				var cfg connstring.Config
				if limit < 120*time.Second {
					cfg.Timeout = &limit
				}
				runTries(t, 1, cfg, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
					slow := func(h fakemongo.Handler) fakemongo.Handler {
						return func(cmd *fakemongo.Command) fakemongo.Reply {
							return h(cmd).After(100 * time.Millisecond)
						}
					}
					if tt.insert != nil {
						srv.Handle("insert", slow(tt.insert))
					}
					if tt.commit != nil {
						srv.Handle("commitTransaction", slow(tt.commit))
					}
					s := startSession(t, c, session.Options{})
					began := time.Now()
					err := s.WithTransaction(t.Context(), client.WithTransactionOptions{},
						inserting(c, s))
					// Under timeoutMS the time may also run out during the last commit.
					labeled := mongoerr.HasLabel(err, tt.label) ||
						cfg.Timeout != nil && mongoerr.HasLabel(err, label)
					if !errors.Is(err, context.DeadlineExceeded) || !labeled {
						t.Errorf("WithTransaction() = %v, labels %v, want a timeout with %s", err,
							mongoerr.Labels(err), tt.label)
					}
					if d := time.Since(began); d < limit-time.Second || d > limit+time.Second {
						t.Errorf("WithTransaction() took %v, want %v and one attempt at most", d,
							limit)
					}
				})
			})
		}
	}
}

// Convenient API, "Retry Backoff is Enforced": 13 further attempts wait 2.2 s more with the full
// jitter than with none.
func TestWithTransactionProse4Backoff(t *testing.T) {
	took := map[float64]time.Duration{}
	for _, jitter := range []float64{0, 1} {
		runTries(t, jitter, connstring.Config{}, func(
			t *testing.T, srv *fakemongo.Server, c *client.Client,
		) {
			srv.Handle("commitTransaction",
				fakemongo.Times(13, fakemongo.Always(transient(251)),
					fakemongo.Always(fakemongo.OK(nil))))
			s := startSession(t, c, session.Options{})
			began := time.Now()
			if err := s.WithTransaction(t.Context(), client.WithTransactionOptions{},
				inserting(c, s)); err != nil {
				t.Errorf("WithTransaction() = %v", err)
			}
			took[jitter] = time.Since(began)
			if inserts, commits, _ := counts(srv); inserts != 14 || commits != 14 {
				t.Errorf("%d inserts and %d commits, want 14", inserts, commits)
			}
		})
	}
	if more := (took[1] - took[0]).Round(time.Millisecond); more != 2282*time.Millisecond {
		t.Errorf("the waits are %v, want 2.282 s", more)
	}
}

// Client Side Operations Timeout, prose test 10: the time of the abort after the callback is its
// own.
func TestWithTransactionTimeoutMS(t *testing.T) {
	limit := 500 * time.Millisecond
	runTries(t, 1, connstring.Config{}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		late := func(r fakemongo.Reply) fakemongo.Handler {
			return fakemongo.Always(r.After(300 * time.Millisecond))
		}
		srv.Handle("insert", late(fakemongo.OK(nil)))
		srv.Handle("abortTransaction", late(fakemongo.OK(nil)))
		s := startSession(t, c, session.Options{DefaultTimeout: &limit})
		began, n := time.Now(), 0
		err := s.WithTransaction(t.Context(), client.WithTransactionOptions{}, func(
			ctx context.Context,
		) error {
			for range 2 {
				n++
				if err := inserting(c, s)(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || n != 2 {
			t.Errorf("WithTransaction() = %v after %d inserts, want a timeout of the second", err,
				n)
		}
		if d := time.Since(began); d != 800*time.Millisecond ||
			len(srv.Commands("abortTransaction")) != 1 {
			t.Errorf("it took %v, with %d aborts; want 500 ms, and 300 ms for the abort", d,
				len(srv.Commands("abortTransaction")))
		}
		err = s.WithTransaction(t.Context(), client.WithTransactionOptions{}, func(
			ctx context.Context,
		) error {
			return insertWithin(ctx, c, client.Common{Session: s, Timeout: &limit})
		})
		if !isA[*client.ArgumentError](err) || !strings.Contains(err.Error(), "timeoutMS") {
			t.Errorf("an operation with a timeoutMS of its own: %v", err)
		}
		if err := insertWithin(t.Context(), c,
			client.Common{Session: s, Timeout: &limit}); err != nil {
			t.Errorf("after the callback: %v", err)
		}
	})
	// The limit of WithTransaction holds in place of a shorter one of the client.
	runTries(t, 1, connstring.Config{Timeout: new(100 * time.Millisecond)}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		srv.Handle("insert", fakemongo.Always(fakemongo.OK(nil).After(300*time.Millisecond)))
		s := startSession(t, c, session.Options{})
		if err := s.WithTransaction(t.Context(), client.WithTransactionOptions{Timeout: &limit},
			inserting(c, s)); err != nil {
			t.Errorf("WithTransaction() = %v", err)
		}
	})
}

func insertWithin(ctx context.Context, c *client.Client, in client.Common) error {
	_, err := c.InsertOne(ctx, orders, bson.NewBuilder(nil).Finish(),
		client.InsertOneOptions{Common: in})
	return err
}

func TestWithTransaction(t *testing.T) {
	ok := fakemongo.Always(fakemongo.OK(nil))
	once := func(r fakemongo.Reply) fakemongo.Handler {
		return fakemongo.Times(1, fakemongo.Always(r), ok)
	}
	concern := func(code int32) fakemongo.Reply {
		return fakemongo.Document(doc(t,
			`{"ok":1,"writeConcernError":{"code":`+strconv.Itoa(int(code))+`,"errmsg":"no"}}`))
	}
	tests := []struct {
		name                     string
		insert, commit           fakemongo.Handler
		code                     int32 // of the error; 0: none
		inserts, commits, aborts int
	}{
		{"success", ok, ok, 0, 1, 1, 0},
		{"transient error of the callback", once(transient(112)), ok, 0, 2, 1, 1},
		{"other error of the callback", once(fakemongo.Error(11601, "", "no")), ok, 11601, 1, 0, 1},
		{"unknown result in the callback", once(fakemongo.Error(91, "", "no", mongoerr.LabelUnknownTransactionCommitResult)), ok, 91, 1, 0, 1},
		{"commit not confirmed", ok, once(concern(64)), 0, 1, 2, 0},
		{"commit without time", ok, once(concern(50)), 50, 1, 1, 0},
		{"commit that had no time", ok, once(fakemongo.Error(50, "", "no")), 50, 1, 1, 0},
		{"commit with a concern that cannot be", ok, once(concern(100)), 100, 1, 1, 0},
		{"commit with an unknown concern", ok, once(concern(79)), 79, 1, 1, 0},
		{"transient error of the commit", ok, once(transient(251)), 0, 2, 2, 0},
		{"other error of the commit", ok, once(fakemongo.Error(11601, "", "no")), 11601, 1, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runTries(t, 1, connstring.Config{}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				srv.Handle("insert", tt.insert)
				srv.Handle("commitTransaction", tt.commit)
				s := startSession(t, c, session.Options{})
				err := s.WithTransaction(t.Context(), client.WithTransactionOptions{},
					inserting(c, s))
				if got := mongoerr.Code(err); got != tt.code || (err == nil) != (tt.code == 0) {
					t.Errorf("WithTransaction() = %v, want code %d", err, tt.code)
				}
				inserts, commits, aborts := counts(srv)
				if inserts != tt.inserts || commits != tt.commits || aborts != tt.aborts {
					t.Errorf("%d inserts, %d commits, %d aborts; want %d, %d, %d", inserts, commits,
						aborts, tt.inserts, tt.commits, tt.aborts)
				}
			})
		})
	}
}

// The callback may end the transaction itself, and may panic.
func TestWithTransactionCallback(t *testing.T) {
	runTries(t, 1, connstring.Config{}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		s := startSession(t, c, session.Options{})
		for name, end := range map[string]func(context.Context, client.EndTransactionOptions) error{
			"commit": s.CommitTransaction, "abort": s.AbortTransaction,
		} {
			err := s.WithTransaction(t.Context(), client.WithTransactionOptions{}, func(
				ctx context.Context,
			) error {
				return errors.Join(inserting(c, s)(ctx), end(ctx, client.EndTransactionOptions{}))
			})
			if err != nil {
				t.Errorf("%s: WithTransaction() = %v", name, err)
			}
		}
		if _, commits, aborts := counts(srv); commits != 1 || aborts != 1 {
			t.Errorf("%d commits, %d aborts, want one of the callback each", commits, aborts)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			_ = s.WithTransaction(t.Context(), client.WithTransactionOptions{}, func(
				ctx context.Context,
			) error {
				_ = inserting(c, s)(ctx)
				panic("in the callback")
			})
		}()
		wantState(t, s, "aborted")

		begin(t, s, client.TransactionOptions{})
		if err := s.WithTransaction(t.Context(), client.WithTransactionOptions{},
			nil); !errors.Is(err, session.ErrTransactionInProgress) {
			t.Errorf("WithTransaction() in a transaction = %v", err)
		}
	})
}

// A caller that gives up ends the wait, and the transaction is aborted.
func TestWithTransactionCanceled(t *testing.T) {
	runTries(t, 1, connstring.Config{}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		srv.Handle("insert", fakemongo.Always(transient(112)))
		s := startSession(t, c, session.Options{})
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if err := s.WithTransaction(ctx, client.WithTransactionOptions{},
			inserting(c, s)); !errors.Is(err, gone) {
			t.Errorf("WithTransaction() = %v, want the cause", err)
		}
		wantState(t, s, "aborted")
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		began := time.Now()
		err := s.WithTransaction(ctx, client.WithTransactionOptions{}, inserting(c, s))
		if !isA[*client.TransactionTimeoutError](err) || mongoerr.Code(err) != 112 ||
			time.Since(began) > 100*time.Millisecond {
			t.Errorf("WithTransaction() = %v after %v, want a timeout before the deadline", err,
				time.Since(began))
		}
	})
}
