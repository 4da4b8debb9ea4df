package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// pass lets fake time pass.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // fake time

// slowly answers as the server would, after a time.
func slowly(srv *fakemongo.Server, after time.Duration) fakemongo.Handler {
	return func(cmd *fakemongo.Command) fakemongo.Reply { return srv.Default(cmd).After(after) }
}

func findOneWithin(timeout *time.Duration) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		_, _, err := c.FindOne(ctx, orders,
			client.FindOptions{Common: client.Common{Timeout: timeout}})
		return err
	}
}

// Client Side Operations Timeout, "timeoutMS": the most specific one counts, and the context's
// deadline as well.
func TestTimeout(t *testing.T) {
	tests := []struct {
		name          string
		client, call  *time.Duration
		context, want time.Duration // 0: none, and a server that answers after an hour
	}{
		{name: "client's", client: new(time.Second), want: time.Second},
		{name: "operation's", call: new(time.Second), want: time.Second},
		{name: "operation's over client's", client: new(time.Second), call: new(time.Minute), want: time.Minute},
		{name: "0 over client's", client: new(time.Second), call: new(time.Duration(0))},
		{name: "a later context", client: new(time.Second), context: time.Minute, want: time.Second},
		{name: "an earlier context", client: new(time.Minute), context: time.Second, want: time.Second},
		{name: "0, and a context", call: new(time.Duration(0)), context: time.Second, want: time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := connstring.Config{Timeout: tt.client}
			runWith(t, nil, cfg, client.Options{}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				srv.Handle("find", slowly(srv, time.Hour))
				ctx := t.Context()
				if tt.context > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.context)
					defer cancel()
				}
				began := time.Now()
				err := findOneWithin(tt.call)(ctx, c)
				took := time.Since(began)
				if tt.want == 0 && (err != nil || took != time.Hour) {
					t.Errorf("FindOne() = %v after %v, want success after an hour", err, took)
				}
				if tt.want != 0 && (!errors.Is(err, context.DeadlineExceeded) || took != tt.want) {
					t.Errorf("FindOne() = %v after %v, want DeadlineExceeded after %v", err, took,
						tt.want)
				}
				if ms := maxTimeMS(t, srv, "find"); ms != tt.want.Milliseconds() {
					t.Errorf("maxTimeMS is %d, want %v", ms, tt.want)
				}
			})
		})
	}
}

// maxTimeMS returns that of the last command of the name, 0 for none.
func maxTimeMS(t *testing.T, srv *fakemongo.Server, name string) int64 {
	t.Helper()
	cmds := srv.Commands(name)
	if len(cmds) == 0 {
		t.Fatalf("no %s was sent", name)
	}
	v, _ := cmds[len(cmds)-1].Body.Lookup("maxTimeMS")
	ms, _ := v.AsInt64()
	return ms
}

// "Deprecations": socketTimeoutMS, waitQueueTimeoutMS and wTimeoutMS have no effect beside
// timeoutMS.
func TestOlderTimeouts(t *testing.T) {
	minute := new(time.Minute)
	for _, tt := range []struct {
		name         string
		client, call *time.Duration
	}{
		{"client's", minute, nil},
		{"operation's", nil, minute},
		{"0", nil, new(time.Duration(0))},
		{"none", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			acts := tt.client == nil && tt.call == nil
			cfg := connstring.Config{
				Timeout: tt.client, SocketTimeout: new(2 * time.Second),
				WaitQueueTimeout: new(time.Second),
				MaxPoolSize:      new(uint64(1)),
				WriteConcern:     connstring.WriteConcern{WTimeoutMS: new(int64(7))},
			}
			runWith(t, nil, cfg, client.Options{}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				srv.Handle("find", slowly(srv, 3*time.Second))
				if err := findOneWithin(tt.call)(t.Context(), c); (err != nil) != acts {
					t.Errorf("FindOne() of 3s = %v, want socketTimeoutMS to act: %v", err, acts)
				}
				srv.Handle("find", slowly(srv, 1500*time.Millisecond))
				first := make(chan error, 1)
				go func() { first <- findOneWithin(tt.call)(t.Context(), c) }()
				pass(time.Millisecond) // the other one has the connection
				if err := findOneWithin(tt.call)(t.Context(), c); (err != nil) != acts {
					t.Errorf("FindOne() behind one of 1.5s = %v, want waitQueueTimeoutMS "+
						"to act: %v", err, acts)
				}
				if err := <-first; err != nil {
					t.Errorf("FindOne() of 1.5s = %v", err)
				}
				for _, wc := range []*client.WriteConcern{nil, {WTimeoutMS: new(int64(8))}} {
					opt := client.InsertOneOptions{
						Common: client.Common{Timeout: tt.call, WriteConcern: wc},
					}
					if _, err := c.InsertOne(t.Context(), orders, doc(t, `{}`), opt); err != nil {
						t.Fatal(err)
					}
					cmds := srv.Commands("insert")
					if sent := cmds[len(cmds)-1].Body.Has("writeConcern"); sent != acts {
						t.Errorf("writeConcern %v: sent is %v, want %v", wc, sent, acts)
					}
				}
			})
		})
	}
}

// The caller's own limit is sent if it is the shorter one.
func TestMaxTimeMSBesideDeadline(t *testing.T) {
	for _, tt := range []struct{ own, want int64 }{
		{500, 500}, {1000, 1000}, {5000, 1000}, {0, 1000},
	} {
		run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, _, err := c.FindOne(ctx, orders,
				client.FindOptions{MaxTimeMS: new(tt.own)}); err != nil {
				t.Fatal(err)
			}
			if ms := maxTimeMS(t, srv, "find"); ms != tt.want {
				t.Errorf("maxTimeMS %d before a deadline in 1s is sent as %d, want %d", tt.own, ms,
					tt.want)
			}
		})
	}
}

// Code 50 is the deadline's only where the deadline set maxTimeMS.
func TestCode50(t *testing.T) {
	expired := fakemongo.Always(fakemongo.Error(50, "MaxTimeMSExpired",
		"operation exceeded time limit"))
	own := client.FindOptions{MaxTimeMS: new(int64(5))}
	find := func(opt client.FindOptions) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			_, err := c.Find(ctx, orders, opt)
			return err
		}
	}
	command := func(json string) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			_, err := c.RunCommand(ctx, "shop", doc(t, json), client.RunCommandOptions{})
			return err
		}
	}
	for _, tt := range []struct {
		name     string
		call     func(context.Context, *client.Client) error
		deadline bool
	}{
		{"deadline", find(client.FindOptions{}), true},
		{"the caller's", find(own), false},
		{"the caller's, later than the deadline", find(client.FindOptions{MaxTimeMS: new(int64(1e6))}), true},
		{"iteration", find(client.FindOptions{TimeoutMode: client.Iteration}), false},
		{"a command", command(`{"find":"orders"}`), true},
		{"a command's own", command(`{"find":"orders","maxTimeMS":5}`), false},
	} {
		run(t, fakemongo.Handlers{"find": expired}, func(
			t *testing.T, _ *fakemongo.Server, c *client.Client,
		) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := tt.call(ctx, c)
			if errors.Is(err, context.DeadlineExceeded) != tt.deadline ||
				mongoerr.Code(err) != 50 || !mongoerr.IsTimeout(err) {
				t.Errorf("%s: error = %v, want the deadline's: %v", tt.name, err, tt.deadline)
			}
		})
	}
}

// "RunCommand" and "Cursors": where the deadline goes with the command.
func TestMaxTimeMSOfCommands(t *testing.T) {
	cursorCommand := func(kind client.CursorType, mode client.TimeoutMode) func(
		context.Context, *client.Client,
	) error {
		return func(ctx context.Context, c *client.Client) error {
			opt := client.RunCursorCommandOptions{CursorType: kind, TimeoutMode: mode}
			_, err := c.RunCursorCommand(ctx, "shop", doc(t, `{"listCollections":1}`), opt)
			return err
		}
	}
	command := func(json string) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			_, err := c.RunCommand(ctx, "shop", doc(t, json), client.RunCommandOptions{})
			return err
		}
	}
	for _, tt := range []struct {
		name, command string
		call          func(context.Context, *client.Client) error
		want          int64
	}{
		{"RunCommand", "ping", command(`{"ping":1}`), 1000},
		{"its own maxTimeMS", "ping", command(`{"ping":1,"maxTimeMS":{"$numberInt":"3"}}`), 3},
		{"getMore", "getMore", command(`{"getMore":{"$numberLong":"1"},"collection":"orders"}`), 0},
		{"Ping", "ping", func(ctx context.Context, c *client.Client) error { return c.Ping(ctx) }, 1000},
		{"cursor", "listCollections", cursorCommand(client.NonTailable, client.TimeoutModeUnset), 1000},
		{"lifetime", "listCollections", cursorCommand(client.NonTailable, client.CursorLifetime), 1000},
		{"iteration", "listCollections", cursorCommand(client.NonTailable, client.Iteration), 0},
		{"tailable", "listCollections", cursorCommand(client.Tailable, client.TimeoutModeUnset), 0},
		{"awaitData", "listCollections", cursorCommand(client.TailableAwait, client.Iteration), 1000},
	} {
		list := fakemongo.Always(fakemongo.CursorReply(0, "shop.$cmd.listCollections",
			"firstBatch"))
		handlers := fakemongo.Handlers{"listCollections": list, "getMore": reply(t, `{"ok":1}`)}
		run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := tt.call(ctx, c); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if ms := maxTimeMS(t, srv, tt.command); ms != tt.want {
				t.Errorf("%s: maxTimeMS is %d, want %d", tt.name, ms, tt.want)
			}
			if n := countKey(srv, tt.command, "maxTimeMS"); n > 1 {
				t.Errorf("%s: maxTimeMS is in the command %d times", tt.name, n)
			}
		})
	}
}

func countKey(srv *fakemongo.Server, command, name string) (n int) {
	for key := range srv.Commands(command)[0].Body.All() {
		if key == name {
			n++
		}
	}
	return n
}

// batches has a find whose cursor needs three getMores, each of which takes a second.
func batches(t *testing.T, srv *fakemongo.Server) {
	t.Helper()
	srv.SetDocuments("shop.orders", doc(t, `{"_id":1}`), doc(t, `{"_id":2}`), doc(t, `{"_id":3}`),
		doc(t, `{"_id":4}`))
	srv.Handle("getMore", slowly(srv, time.Second))
}

// "Non-tailable Cursors": the deadline of the find is that of the getMores.
func TestCursorLifetime(t *testing.T) {
	tests := []struct {
		name    string
		client  time.Duration // timeoutMS
		context time.Duration // of Find
	}{
		{"timeoutMS", 1500 * time.Millisecond, 0},
		{"timeoutMS before the context", 1500 * time.Millisecond, time.Hour},
		{"context", 0, 1500 * time.Millisecond},
		{"context before timeoutMS", time.Hour, 1500 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// acts without timeoutMS only
			cfg := connstring.Config{SocketTimeout: new(time.Millisecond)}
			if tt.client > 0 {
				cfg.Timeout = &tt.client
			} else {
				cfg.SocketTimeout = nil
			}
			runWith(t, nil, cfg, client.Options{}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				batches(t, srv)
				ctx := t.Context()
				if tt.context > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.context)
					defer cancel()
				}
				cur, err := c.Find(ctx, orders, client.FindOptions{BatchSize: new(int32(1))})
				if err != nil {
					t.Fatal(err)
				}
				if ms := maxTimeMS(t, srv, "find"); ms != 1500 {
					t.Errorf("find's maxTimeMS is %d", ms)
				}
				began := time.Now()
				for i := range 2 { // the first batch, and that of a getMore in time
					if b, err := cur.Next(t.Context()); err != nil || len(b.Documents) != 1 {
						t.Fatalf("Next() %d = %d documents, %v", i, len(b.Documents), err)
					}
				}
				_, err = cur.Next(t.Context())
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
					took != 1500*time.Millisecond {
					t.Errorf("Next() = %v after %v, want DeadlineExceeded after 1.5s", err, took)
				}
				if ms := maxTimeMS(t, srv, "getMore"); ms != 0 {
					t.Errorf("getMore's maxTimeMS is %d, want none", ms)
				}
			})
		})
	}
}

// A batch that is here is returned after the deadline; a getMore is not sent any more.
func TestBufferedBatchAfterLifetime(t *testing.T) {
	cfg := connstring.Config{Timeout: new(time.Second)}
	runWith(t, nil, cfg, client.Options{}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		batches(t, srv)
		cur, err := c.Find(t.Context(), orders, client.FindOptions{BatchSize: new(int32(1))})
		if err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if b, err := cur.Next(t.Context()); err != nil || len(b.Documents) != 1 {
			t.Errorf("Next() = %d documents, %v, want the first batch", len(b.Documents), err)
		}
		_, err = cur.Next(t.Context())
		if _, ok := errors.AsType[*operation.TimeoutError](err); !ok ||
			len(srv.Commands("getMore")) != 0 {
			t.Errorf("Next() = %v with %d getMores, want a TimeoutError and none", err,
				len(srv.Commands("getMore")))
		}
		// "close": the time begins anew, so the cursor is killed on the server.
		if err := cur.Close(t.Context()); err != nil || srv.KilledCursors() != 1 {
			t.Errorf("Close() = %v, %d cursors killed, want 1", err, srv.KilledCursors())
		}
		if ms := maxTimeMS(t, srv, "killCursors"); ms != 1000 {
			t.Errorf("killCursors' maxTimeMS is %d, want 1000", ms)
		}
	})
}

// The server ends a cursor at the deadline that it got with the find: that is the deadline, too.
func TestServerEndsCursorAtDeadline(t *testing.T) {
	for _, tt := range []struct {
		opt  client.FindOptions
		want bool
	}{
		{client.FindOptions{}, true},
		{client.FindOptions{MaxTimeMS: new(int64(10))}, false},
	} {
		cfg := connstring.Config{Timeout: new(time.Minute)}
		runWith(t, nil, cfg, client.Options{}, func(
			t *testing.T, srv *fakemongo.Server, c *client.Client,
		) {
			batches(t, srv)
			srv.Handle("getMore",
				fakemongo.Always(fakemongo.Error(50, "MaxTimeMSExpired", "exceeded")))
			tt.opt.BatchSize = new(int32(1))
			cur, err := c.Find(t.Context(), orders, tt.opt)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = cur.Next(t.Context())
			_, err = cur.Next(t.Context())
			if errors.Is(err, context.DeadlineExceeded) != tt.want || mongoerr.Code(err) != 50 {
				t.Errorf("Next() = %v, want the deadline's: %v", err, tt.want)
			}
		})
	}
}

// In the mode ITERATION timeoutMS begins anew with each getMore, also that of a cursor that was
// continued, and what Find's context had is of no account.
func TestIteration(t *testing.T) {
	for _, tt := range []struct {
		name         string
		client, call *time.Duration
		next         func(*client.Client, *cursor.Cursor) *cursor.Cursor
		hang         time.Duration // how long a hanging getMore is waited for
	}{
		{name: "client's", client: new(1500 * time.Millisecond), hang: 1500 * time.Millisecond},
		{name: "operation's", client: new(time.Hour), call: new(1500 * time.Millisecond), hang: 1500 * time.Millisecond},
		{
			name: "continued", client: new(1500 * time.Millisecond), hang: 1500 * time.Millisecond,
			next: func(c *client.Client, cur *cursor.Cursor) *cursor.Cursor { return c.ContinueCursor(cur.State()) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := connstring.Config{Timeout: tt.client}
			runWith(t, nil, cfg, client.Options{}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				batches(t, srv)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				cur, err := c.Find(ctx, orders, client.FindOptions{
					Common: client.Common{Timeout: tt.call}, BatchSize: new(int32(1)),
					TimeoutMode: client.Iteration,
				})
				cancel()
				if err != nil || maxTimeMS(t, srv, "find") != 0 {
					t.Fatalf("Find() = %v with maxTimeMS %d, want none", err,
						maxTimeMS(t, srv, "find"))
				}
				_, _ = cur.Next(t.Context())
				if tt.next != nil {
					cur = tt.next(c, cur)
				}
				for range 2 {
					if b, err := cur.Next(t.Context()); err != nil || len(b.Documents) != 1 {
						t.Fatalf("Next() = %d documents, %v", len(b.Documents), err)
					}
				}
				srv.Handle("getMore", fakemongo.Always(fakemongo.Hang()))
				began := time.Now()
				_, err = cur.Next(t.Context())
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
					took != tt.hang {
					t.Errorf("Next() = %v after %v, want DeadlineExceeded after %v", err, took,
						tt.hang)
				}
			})
		})
	}
}

// killCursors has a maxTimeMS only where timeoutMS is set, and waits 3 seconds at most. Kill takes
// a timeoutMS of its own.
func TestTimeOfKillCursors(t *testing.T) {
	for _, tt := range []struct {
		timeout, kill *time.Duration // of the operation, and of Kill
		want          time.Duration
		sent          int64
	}{
		{nil, nil, 3 * time.Second, 0},
		{new(time.Duration(0)), nil, 3 * time.Second, 0},
		{new(time.Second), nil, time.Second, 1000},
		{new(time.Hour), nil, 3 * time.Second, 3000},
		{nil, new(time.Second), time.Second, 1000},
		{new(time.Hour), new(2 * time.Second), 2 * time.Second, 2000},
		{new(time.Second), new(time.Duration(0)), 3 * time.Second, 0},
	} {
		run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
			batches(t, srv)
			opt := client.FindOptions{
				Common: client.Common{Timeout: tt.timeout}, BatchSize: new(int32(1)),
			}
			cur, err := c.Find(t.Context(), orders, opt)
			if err != nil {
				t.Fatal(err)
			}
			srv.Handle("killCursors", fakemongo.Always(fakemongo.Hang()))
			began := time.Now()
			if tt.kill == nil {
				_ = cur.Close(t.Context())
			} else if err := cur.Kill(t.Context(), tt.kill); !errors.Is(err,
				context.DeadlineExceeded) {
				t.Errorf("Kill() = %v, want that time ran out", err)
			}
			if took := time.Since(began); took != tt.want ||
				maxTimeMS(t, srv, "killCursors") != tt.sent {
				t.Errorf("closing took %v with maxTimeMS %d, want %v and %d",
					took, maxTimeMS(t, srv, "killCursors"), tt.want, tt.sent)
			}
		})
	}
}

// "Tailable awaitData Cursors": a getMore asks for no longer wait than there is time.
func TestAwaitTime(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		batches(t, srv)
		opt := client.FindOptions{
			BatchSize: new(int32(1)), Tailable: new(true), AwaitData: new(true),
			MaxAwaitTimeMS: new(int64(500)),
			Common:         client.Common{Timeout: new(5 * time.Second)},
		}
		cur, err := c.Find(t.Context(), orders, opt)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = cur.Next(t.Context())
		if _, err := cur.Next(t.Context()); err != nil || maxTimeMS(t, srv, "getMore") != 500 {
			t.Errorf("Next() = %v, maxTimeMS %d, want 500", err, maxTimeMS(t, srv, "getMore"))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		srv.Handle("getMore", nil)
		if _, err := cur.Next(ctx); err != nil || maxTimeMS(t, srv, "getMore") != 300 {
			t.Errorf("Next() = %v, maxTimeMS %d, want 300", err, maxTimeMS(t, srv, "getMore"))
		}
	})
	for _, timeout := range []*time.Duration{
		new(500 * time.Millisecond), new(400 * time.Millisecond),
	} {
		cfg := connstring.Config{Timeout: timeout}
		runWith(t, nil, cfg, client.Options{}, func(
			t *testing.T, _ *fakemongo.Server, c *client.Client,
		) {
			_, err := c.Find(t.Context(), orders,
				client.FindOptions{MaxAwaitTimeMS: new(int64(500))})
			wantRefused(t, err, "maxAwaitTimeMS")
			_, err = c.Aggregate(t.Context(), orders,
				client.AggregateOptions{MaxAwaitTimeMS: new(int64(500))})
			wantRefused(t, err, "maxAwaitTimeMS")
			_, err = c.RunCursorCommand(t.Context(), "shop", doc(t, `{"find":"orders"}`),
				client.RunCursorCommandOptions{MaxTimeMS: new(int64(500))})
			wantRefused(t, err, "maxTimeMS")
			_, _, err = c.FindOne(t.Context(), orders,
				client.FindOptions{Common: client.Common{Timeout: new(-time.Second)}})
			wantRefused(t, err, "timeoutMS")
		})
	}
}

func wantRefused(t *testing.T, err error, argument string) {
	t.Helper()
	if e, ok := errors.AsType[*client.ArgumentError](err); !ok || e.Argument != argument {
		t.Errorf("error = %v, want an ArgumentError of %s", err, argument)
	}
}

// TestWaitLimit changes the time that a wait for a connection may take. It has no effect beside
// waitQueueTimeoutMS.
func TestWaitLimit(t *testing.T) {
	for _, tt := range []struct {
		name string
		own  *time.Duration
		want []time.Duration
	}{
		{"no waitQueueTimeoutMS", nil, []time.Duration{2 * time.Second, time.Second}},
		{"another", new(3 * time.Second), []time.Duration{3 * time.Second, 3 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var limit atomic.Int64
			cfg := connstring.Config{WaitQueueTimeout: tt.own, MaxPoolSize: new(uint64(1))}
			opt := client.Options{
				WaitLimit: func() time.Duration { return time.Duration(limit.Load()) },
			}
			runWith(t, nil, cfg, opt, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				srv.Handle("find", slowly(srv, time.Minute))
				first := make(chan error, 1)
				go func() { first <- findOneWithin(nil)(t.Context(), c) }()
				pass(time.Millisecond) // the other one has the connection
				for i, now := range []time.Duration{2 * time.Second, time.Second} {
					limit.Store(int64(now))
					began := time.Now()
					err := findOneWithin(nil)(t.Context(), c)
					if took := time.Since(began); took != tt.want[i] ||
						!isA[*pool.WaitQueueTimeoutError](err) {
						t.Errorf("FindOne() = %v after %v, want it after %v", err, took, tt.want[i])
					}
				}
				if err := <-first; err != nil {
					t.Errorf("FindOne() of a minute = %v", err)
				}
			})
		})
	}
}
