package changestream_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func TestCommands(t *testing.T) {
	all := client.WatchOptions{
		Common: client.Common{
			ReadConcern: &client.ReadConcern{Level: "majority"}, Comment: bson.StringValue("c"),
		},
		FullDocument: "x", FullDocumentBeforeChange: "y", ShowExpandedEvents: new(true),
		ResumeAfter: doc(t, tokenA), StartAfter: doc(t, tokenB),
		StartAtOperationTime: bson.TimestampValue(1, 2),
		BatchSize:            new(int32(3)), MaxAwaitTimeMS: new(int64(50)),
		Collation: doc(t, `{"locale":"fr"}`),
	}
	tests := []struct {
		name    string
		ns      client.Namespace
		opt     client.WatchOptions
		command string
		getMore string
	}{
		{"collection", orders, client.WatchOptions{}, `{"aggregate":"orders","pipeline":[{"$changeStream":{}}],"cursor":{},"$db":"shop"}`, `{"collection":"orders","$db":"shop"}`},
		{
			"database",
			client.Namespace{Database: "shop"},
			client.WatchOptions{},
			`{"aggregate":1,"pipeline":[{"$changeStream":{}}],"cursor":{},"$db":"shop"}`, `{"collection":"orders","$db":"shop"}`,
		},
		{
			"deployment",
			client.Namespace{},
			client.WatchOptions{},
			`{"aggregate":1,"pipeline":[{"$changeStream":{"allChangesForCluster":true}}],"cursor":{},"$db":"admin"}`, `{"collection":"orders","$db":"shop"}`,
		},
		{
			"all options", orders, all,
			`{"aggregate":"orders","pipeline":[{"$changeStream":{"fullDocument":"x","fullDocumentBeforeChange":"y","showExpandedEvents":true,` +
				`"resumeAfter":{"_data":"a"},"startAfter":{"_data":"b"},"startAtOperationTime":{"$timestamp":{"t":1,"i":2}}}}],` +
				`"cursor":{"batchSize":3},"comment":"c","collation":{"locale":"fr"},"readConcern":{"level":"majority"},"$db":"shop"}`,
			`{"collection":"orders","batchSize":3,"comment":"c","maxTimeMS":50,"$db":"shop"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, 21, []step{aggregate(first(t, 1, "")), getMore(next(t, 0, ""))}, func(
				t *testing.T, srv *script, c *client.Client,
			) {
				s, err := c.Watch(t.Context(), tt.ns, tt.opt)
				if err != nil {
					t.Fatalf("Watch() = %v", err)
				}
				if _, found, err := s.TryNext(t.Context()); found || err != nil {
					t.Errorf("TryNext() = %v, %v", found, err)
				}
				commands := srv.Commands("aggregate", "getMore")
				if got := text(t, bson.Without(commands[0].Body, "lsid")); got != tt.command {
					t.Errorf("sent\n%s, want\n%s", got, tt.command)
				}
				if got := text(t,
					bson.Without(commands[1].Body, "lsid", "getMore")); got != tt.getMore {
					t.Errorf("sent\n%s, want\n%s", got, tt.getMore)
				}
			})
		})
	}
}

func TestRefused(t *testing.T) {
	tests := []struct {
		name string
		ns   client.Namespace
		opt  client.WatchOptions
	}{
		{"a collection without a database", client.Namespace{Collection: "orders"}, client.WatchOptions{}},
		{"write concern", orders, client.WatchOptions{Common: client.Common{WriteConcern: &client.WriteConcern{}}}},
		{"time of a wrong type", orders, client.WatchOptions{StartAtOperationTime: bson.StringValue("now")}},
		{"a wait as long as timeoutMS", orders, client.WatchOptions{Common: client.Common{Timeout: new(time.Second)}, MaxAwaitTimeMS: new(int64(1000))}},
		{"an option in Extra", orders, client.WatchOptions{Common: client.Common{Extra: doc(t, `{"pipeline":[]}`)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, 21, nil, func(t *testing.T, _ *script, c *client.Client) {
				if _, err := c.Watch(t.Context(), tt.ns, tt.opt); !isA[*client.ArgumentError](err) {
					t.Errorf("Watch() = %v, want an ArgumentError", err)
				}
			})
		})
	}
}

// The server closes the cursor after an invalidate event.
func TestEnd(t *testing.T) {
	run(t, 21, []step{aggregate(first(t, 1, "")), getMore(next(t, 0, tokenP, tokenA, tokenB))},
		func(
			t *testing.T, srv *script, c *client.Client,
		) {
			s := watch(t, c, client.WatchOptions{})
			expect(t, s, tokenA)
			if n := s.Buffered(); n != 1 {
				t.Errorf("Buffered() = %d, want 1", n)
			}
			if doc, found, err := s.TryNext(t.Context()); !found || err != nil || doc == nil {
				t.Errorf("TryNext() = %v, %v, %v, want an event", doc, found, err)
			}
			for range 2 {
				if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
					t.Errorf("Next() = %v, want io.EOF", err)
				}
			}
			expectToken(t, s, tokenP)
			_ = s.Close(t.Context())
			if got := srv.sent(); got != "aggregate getMore" {
				t.Errorf("sent %s", got)
			}
		})
}

// The end of the stream is final in a call whose context has ended, too: no other cursor is opened.
func TestEndOutOfTime(t *testing.T) {
	run(t, 21, []step{aggregate(first(t, 0, "", tokenA))}, func(
		t *testing.T, _ *script, c *client.Client,
	) {
		s := watch(t, c, client.WatchOptions{})
		expect(t, s, tokenA)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{ended, t.Context()} {
			if _, err := s.Next(ctx); !errors.Is(err, io.EOF) {
				t.Errorf("Next() = %v, want io.EOF", err)
			}
		}
	})
}

func TestClose(t *testing.T) {
	run(t, 21, []step{aggregate(first(t, 1, tokenP, tokenA, tokenB))}, func(
		t *testing.T, srv *script, c *client.Client,
	) {
		s := watch(t, c, client.WatchOptions{})
		expect(t, s, tokenA)
		for range 2 {
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("Close() = %v", err)
			}
		}
		if _, err := s.Next(t.Context()); !errors.Is(err, cursor.ErrClosed) || s.Buffered() != 0 {
			t.Errorf("Next() after Close = %v, want ErrClosed", err)
		}
		if got := srv.sent(); got != "aggregate killCursors" {
			t.Errorf("sent %s", got)
		}
		expectToken(t, s, tokenA)
	})
}

// Each error may be followed by one resume, however often (Change Streams, "Resume Process").
func TestResumesAgainAndAgain(t *testing.T) {
	steps := []step{aggregate(first(t, 1, ""))}
	for range 20 {
		steps = append(steps, getMore(resumableError()), aggregate(first(t, 1, "")))
	}
	steps = append(steps, getMore(next(t, 0, "", tokenA)))
	run(t, 21, steps, func(t *testing.T, _ *script, c *client.Client) {
		expect(t, watch(t, c, client.WatchOptions{}), tokenA)
	})
}

// All commands of a stream run in one session, which it does not keep.
func TestSession(t *testing.T) {
	for name, steps := range map[string][]step{
		"resumed": {aggregate(first(t, 1, "")), getMore(resumableError()), aggregate(first(t, 2, "")), getMore(next(t, 2, "", tokenA))},
		"cursor gone": {
			aggregate(first(t, 1, "")), getMore(fakemongo.Error(43, "CursorNotFound", "gone")), aggregate(first(t, 0, "", tokenA)),
		},
		"not resumed": {aggregate(first(t, 1, "")), getMore(resumableError()), aggregate(resumableError())},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 21, steps, func(t *testing.T, srv *script, c *client.Client) {
				s := watch(t, c, client.WatchOptions{})
				_, _ = s.Next(t.Context())
				_ = s.Close(t.Context())
				if err := c.Ping(t.Context()); err != nil { // in the same session again
					t.Fatal(err)
				}
				ids := map[string]bool{}
				for _, cmd := range srv.Commands("aggregate", "getMore", "killCursors", "ping") {
					v, _ := cmd.Body.Lookup("lsid")
					id, _ := v.Document()
					ids[text(t, id)] = true
				}
				if len(ids) != 1 || ids[""] {
					t.Errorf("the sessions are %v, want one", ids)
				}
			})
		})
	}
}

// TryNext runs one getMore at most, also where it opens another cursor.
func TestTryNext(t *testing.T) {
	run(t, 21, []step{
		aggregate(first(t, 1, "")), getMore(resumableError()), aggregate(first(t, 2, "")), getMore(next(t, 0, "", tokenA)),
	}, func(t *testing.T, srv *script, c *client.Client) {
		s := watch(t, c, client.WatchOptions{})
		if _, found, err := s.TryNext(t.Context()); found || err != nil {
			t.Errorf("TryNext() = %v, %v, want nothing", found, err)
		}
		if got := srv.sent(); got != "aggregate getMore killCursors aggregate" {
			t.Errorf("sent %s", got)
		}
		if _, found, err := s.TryNext(t.Context()); !found || err != nil {
			t.Errorf("TryNext() = %v, %v, want an event", found, err)
		}
	})
}

// An error that is not resumable ends the stream, and kills its cursor.
func TestNotResumable(t *testing.T) {
	run(t, 21, []step{
		aggregate(first(t, 1, tokenP)), getMore(fakemongo.Error(286, "ChangeStreamHistoryLost", "gone")),
	},
		func(t *testing.T, srv *script, c *client.Client) {
			s := watch(t, c, client.WatchOptions{})
			for range 2 {
				if _, _, err := s.TryNext(t.Context()); err == nil ||
					errors.Is(err, cursor.ErrClosed) {
					t.Errorf("TryNext() = %v, want the server's error", err)
				}
			}
			if got := srv.sent(); got != "aggregate getMore killCursors" {
				t.Errorf("sent %s", got)
			}
			expectToken(t, s, tokenP)
		})
}

// Client Side Operations Timeout, "Change Streams": a call that runs out of time leaves the stream
// valid, and the next one begins with another aggregate.
func TestTimeout(t *testing.T) {
	opt := client.WatchOptions{Common: client.Common{Timeout: new(200 * time.Millisecond)}}
	again := func(t *testing.T, srv *script, s interface {
		TryNext(context.Context) (bson.Raw, bool, error)
	}, want string,
	) {
		t.Helper()
		if _, found, err := s.TryNext(t.Context()); !found || err != nil {
			t.Errorf("TryNext() = %v, %v, want an event", found, err)
		}
		if got := srv.sent(); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	}
	t.Run("getMore", func(t *testing.T) {
		run(t, 21, []step{
			aggregate(first(t, 1, "")), getMore(fakemongo.Hang()), aggregate(first(t, 2, "")), getMore(next(t, 0, "", tokenA)),
		}, func(t *testing.T, srv *script, c *client.Client) {
			s, began := watch(t, c, opt), time.Now()
			if _, err := s.Next(t.Context()); !errors.Is(err, context.DeadlineExceeded) ||
				time.Since(began) != 200*time.Millisecond {
				t.Errorf("Next() = %v after %v, want a timeout", err, time.Since(began))
			}
			again(t, srv, s, "aggregate getMore killCursors aggregate getMore")
		})
	})
	t.Run("getMores of one call", func(t *testing.T) {
		run(t, 21, []step{
			aggregate(first(t, 1, "")), getMore(next(t, 1, "").After(150 * time.Millisecond)), getMore(next(t, 1, "").After(time.Second)),
		}, func(t *testing.T, _ *script, c *client.Client) {
			s, began := watch(t, c, opt), time.Now()
			if _, err := s.Next(t.Context()); !errors.Is(err, context.DeadlineExceeded) ||
				time.Since(began) != 200*time.Millisecond {
				t.Errorf("Next() = %v after %v, want a timeout", err, time.Since(began))
			}
			_ = s.Close(t.Context())
		})
	})
	t.Run("full resume", func(t *testing.T) {
		run(t, 21, []step{
			aggregate(first(t, 1, "")), getMore(resumableError().After(120 * time.Millisecond)),
			aggregate(first(t, 2, "").After(120 * time.Millisecond)),
			aggregate(first(t, 0, "", tokenA)),
		}, func(t *testing.T, srv *script, c *client.Client) {
			s, began := watch(t, c, opt), time.Now()
			if _, err := s.Next(t.Context()); !errors.Is(err, context.DeadlineExceeded) ||
				time.Since(began) != 200*time.Millisecond {
				t.Errorf("Next() = %v after %v, want a timeout", err, time.Since(began))
			}
			again(t, srv, s, "aggregate getMore killCursors aggregate aggregate")
		})
	})
	t.Run("canceled", func(t *testing.T) {
		run(t, 21, []step{
			aggregate(first(t, 1, "")), getMore(fakemongo.Hang()), aggregate(first(t, 0, "", tokenA)),
		}, func(t *testing.T, srv *script, c *client.Client) {
			s := watch(t, c, client.WatchOptions{})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Next() = %v, want Canceled", err)
			}
			again(t, srv, s, "aggregate getMore killCursors aggregate")
		})
	})
	t.Run("resumed with an ended context", func(t *testing.T) {
		run(t, 21, []step{
			aggregate(first(t, 1, "")), getMore(fakemongo.Hang()), aggregate(first(t, 0, "", tokenA)),
		}, func(t *testing.T, srv *script, c *client.Client) {
			s := watch(t, c, client.WatchOptions{})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			for range 2 { // the second call has a cursor to resume, and no time
				if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("Next() = %v, want Canceled", err)
				}
			}
			again(t, srv, s, "aggregate getMore killCursors aggregate")
		})
	})
	t.Run("expired before", func(t *testing.T) {
		run(t, 21, []step{aggregate(first(t, 1, "")), aggregate(first(t, 0, "", tokenA))}, func(
			t *testing.T, srv *script, c *client.Client,
		) {
			s := watch(t, c, client.WatchOptions{})
			ctx, cancel := context.WithTimeout(t.Context(), 0)
			defer cancel()
			if _, err := s.Next(ctx); !isA[*operation.TimeoutError](err) {
				t.Errorf("Next() = %v, want a TimeoutError", err)
			}
			again(t, srv, s, "aggregate killCursors aggregate")
		})
	})
}

// A server that is gone is not waited for before the stream goes on, nor is its cursor killed.
func TestServerGone(t *testing.T) {
	run(t, 21, []step{
		aggregate(first(t, 1, "")),
		getMore(fakemongo.Error(91, "ShutdownInProgress", "bye", "ResumableChangeStreamError")),
		aggregate(first(t, 0, "", tokenA)),
	}, func(t *testing.T, srv *script, c *client.Client) {
		expect(t, watch(t, c, client.WatchOptions{}), tokenA)
		if got := srv.sent(); got != "aggregate getMore aggregate" {
			t.Errorf("sent %s", got)
		}
	})
}

// A reply without a cursor opens no stream.
func TestMalformedReply(t *testing.T) {
	run(t, 21, []step{aggregate(fakemongo.OK(nil))}, func(
		t *testing.T, _ *script, c *client.Client,
	) {
		if s, err := c.Watch(t.Context(), orders, client.WatchOptions{}); err == nil {
			t.Errorf("Watch() = %v, want an error", s)
		}
	})
}

// Documents that servers may send in future are returned as they are.
func TestUnknownEvents(t *testing.T) {
	events := []bson.Raw{
		doc(t, `{"_id":{"_data":"a"},"operationType":"addedInTheFutureMongoDBVersion","ns":{"db":"d","coll":"c","view":1}}`),
		doc(t, `{"_id":{"_data":"b"},"operationType":"create","nsType":"collection","newField":"x"}`),
	}
	run(t, 21, []step{aggregate(fakemongo.CursorReply(0, "shop.orders", "firstBatch", events...))},
		func(
			t *testing.T, _ *script, c *client.Client,
		) {
			s := watch(t, c, client.WatchOptions{})
			var got []bson.Raw
			for range events {
				event, err := s.Next(t.Context())
				if err != nil {
					t.Fatalf("Next() = %v", err)
				}
				got = append(got, event)
			}
			if !slices.EqualFunc(got, events, func(a, b bson.Raw) bool {
				return slices.Equal(a, b)
			}) {
				t.Errorf("events %v, want %v", got, events)
			}
		})
}

// A resume whose aggregate fails in TryNext ends the stream there.
func TestFailedResumeAfterTimeout(t *testing.T) {
	run(t, 21, []step{
		aggregate(first(t, 1, "")), getMore(fakemongo.Hang()), aggregate(resumableError()),
	}, func(
		t *testing.T, _ *script, c *client.Client,
	) {
		s := watch(t, c, client.WatchOptions{Common: client.Common{Timeout: new(time.Second)}})
		if _, _, err := s.TryNext(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryNext() = %v, want a timeout", err)
		}
		for range 2 {
			if _, _, err := s.TryNext(t.Context()); mongoerr.Code(err) != 280280 {
				t.Errorf("TryNext() = %v, want the error of the aggregate", err)
			}
		}
	})
}

// A cursor that cannot be opened ends the implicit session. If the call is out of time then, the
// next one opens a cursor in another session, and all are free in the end.
func TestFailedResumeAtTheDeadline(t *testing.T) {
	malformed := fakemongo.Document(doc(t,
		`{"cursor":{"id":{"$numberLong":"2"},"ns":"shop.orders","firstBatch":[1]},"ok":1}`))
	run(t, 21, []step{
		aggregate(first(t, 1, "")), getMore(resumableError()), aggregate(malformed.After(600 * time.Millisecond)), aggregate(first(t, 3, "", tokenA)),
	}, func(t *testing.T, srv *script, c *client.Client) {
		s := watch(t, c, client.WatchOptions{Common: client.Common{Timeout: new(time.Second)}})
		kills := 0
		srv.Handle("killCursors", func(*fakemongo.Command) fakemongo.Reply {
			if kills++; kills == 2 { // that of the malformed cursor
				return fakemongo.OK(nil).After(600 * time.Millisecond)
			}
			return fakemongo.OK(nil)
		})
		if _, _, err := s.TryNext(t.Context()); !mongoerr.IsMalformed(err) {
			t.Errorf("TryNext() = %v, want that the reply is malformed", err)
		}
		expect(t, s, tokenA)
		_ = s.Close(t.Context())
		var sessions []string
		for range 2 {
			free, err := c.StartSession(session.Options{})
			if err != nil {
				t.Fatal(err)
			}
			sessions = append(sessions, free.ID().String())
		}
		for _, cmd := range srv.Commands("aggregate", "getMore", "killCursors") {
			if id := sessionOf(cmd.Body).String(); !slices.Contains(sessions, id) {
				t.Errorf("the session %s of %s is not free; %q are", id, cmd.Name, sessions)
			}
		}
	})
}

// sessionOf returns the id of a command's session.
func sessionOf(cmd bson.Raw) (id bson.UUID) {
	v, _ := cmd.Lookup("lsid", "id")
	_, data, _ := v.Binary()
	copy(id[:], data)
	return id
}
