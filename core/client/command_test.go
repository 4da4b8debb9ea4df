package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func TestRunCommandIsUnchanged(t *testing.T) {
	cfg := connstring.Config{
		ReadConcernLevel: "majority", ReadPreference: "nearest",
		WriteConcern: client.WriteConcern{Tag: "majority"},
	}
	answer := `{"n":0,"writeErrors":[{"index":0,"code":11000,"errmsg":"dup"}],"writeConcernError":{"code":64},"ok":1}`
	runWith(t, fakemongo.Handlers{"insert": reply(t, answer)}, cfg, client.Options{},
		func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := doc(t, `{"insert":"orders","documents":[{"a":1}],"maxTimeMS":5}`)
			got, err := c.RunCommand(ctx, "shop", cmd, client.RunCommandOptions{
				Common: client.Common{
					ReadPreference: &selection.ReadPreference{Mode: selection.Secondary},
				},
			})
			if err != nil || text(t, got) != answer {
				t.Errorf("RunCommand() = %s, %v, want the reply as it is", got, err)
			}
			if got := sent(t, srv, "insert"); got != text(t, cmd) {
				t.Errorf("sent %s, want %s", got, text(t, cmd))
			}
		})
}

// A command with a read concern of its own has no second one, whatever the session asks for.
func TestReadConcernOfCommand(t *testing.T) {
	const own = `{"level":"majority"}`
	for name, test := range map[string]struct {
		opt         session.Options
		transaction bool
		other       string // what a command without its own gets
	}{
		"snapshot session":        {session.Options{Snapshot: true, SnapshotTime: session.Timestamp{T: 9, I: 1}}, false, `{"level":"snapshot","atClusterTime":{"$timestamp":{"t":9,"i":1}}}`},
		"first of a transaction":  {session.Options{}, true, `{"level":"snapshot"}`},
		"causally consistent one": {session.Options{}, false, ``},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, ends(), func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				for _, want := range []string{own, test.other} {
					s := startSession(t, c, test.opt)
					if test.transaction {
						begin(t, s, client.TransactionOptions{ReadConcernLevel: new("snapshot")})
					}
					cmd := doc(t, `{"find":"orders"}`)
					if want == own {
						cmd = doc(t, `{"find":"orders","readConcern":`+own+`}`)
					}
					opt := client.RunCursorCommandOptions{Common: client.Common{Session: s}}
					if _, err := c.RunCursorCommand(t.Context(), "shop", cmd, opt); err != nil {
						t.Fatal(err)
					}
					finds := srv.Commands("find")
					var got []string
					for key, v := range finds[len(finds)-1].Body.All() {
						if key == "readConcern" {
							got = append(got, valueText(t, v))
						}
					}
					if strings.Join(got, ", ") != want {
						t.Errorf("%s was sent with the read concerns %q, want %q", text(t, cmd),
							got, want)
					}
					s.End(t.Context())
				}
			})
		})
	}
}

// The driver does not look for its own fields in a command (Run Command, "Driver Sessions").
func TestRunCommandDoesNotInspect(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		cmd := doc(t, `{"ping":1,"lsid":{"id":1},"txnNumber":7}`)
		if _, err := c.RunCommand(t.Context(), "admin", cmd,
			client.RunCommandOptions{}); err != nil {
			t.Fatal(err)
		}
		got := string(srv.Commands("ping")[0].Body)
		if !strings.Contains(got, string(cmd[4:len(cmd)-1])) {
			t.Errorf("sent %q, want it to begin with %q", got, cmd)
		}
	})
}

func TestRunCommandErrors(t *testing.T) {
	handlers := fakemongo.Handlers{
		"doIt":         fakemongo.Always(fakemongo.Error(13, "Unauthorized", "no")),
		"create":       fakemongo.Always(fakemongo.Drop()),
		"serverStatus": fakemongo.Always(fakemongo.Drop()),
	}
	run(t, handlers, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		_, err := c.RunCommand(t.Context(), "admin", doc(t, `{"doIt":1}`),
			client.RunCommandOptions{})
		failed, ok := errors.AsType[*mongoerr.CommandError](err)
		if !ok || failed.Code != 13 || failed.Name != "Unauthorized" {
			t.Errorf("RunCommand(doIt) = %v, want code 13", err)
		}
		_, err = c.RunCommand(t.Context(), "admin", doc(t, `{"create":"x"}`),
			client.RunCommandOptions{})
		if !isA[*operation.OutcomeUnknownError](err) {
			t.Errorf("RunCommand(create) without an answer = %v, want an OutcomeUnknownError", err)
		}
		_, err = c.RunCommand(t.Context(), "admin", doc(t, `{"serverStatus":1}`),
			client.RunCommandOptions{})
		if isA[*operation.OutcomeUnknownError](err) || !mongoerr.IsNetwork(err) {
			t.Errorf("RunCommand(serverStatus) without an answer = %v, want a network error", err)
		}
	})
}

func TestRunCursorCommand(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		srv.SetDocuments("shop.orders", doc(t, `{"_id":1}`), doc(t, `{"_id":2}`),
			doc(t, `{"_id":3}`))
		cur, err := c.RunCursorCommand(t.Context(), "shop",
			doc(t, `{"find":"orders","batchSize":1}`), client.RunCursorCommandOptions{
				Common:    client.Common{Comment: bson.StringValue("c")},
				BatchSize: new(int32(2)), MaxTimeMS: new(int64(7)),
				CursorType: client.TailableAwait,
			})
		if err != nil {
			t.Fatalf("RunCursorCommand() = %v", err)
		}
		n := 0
		for b, err := range cur.Batches(t.Context()) {
			if err != nil {
				t.Errorf("Batches() = %v", err)
			}
			n += len(b.Documents)
		}
		if n != 3 {
			t.Errorf("%d documents, want 3", n)
		}
		getMore := srv.Commands("getMore")[0].Body
		if got, want := text(t, bson.Without(getMore, "getMore", "lsid")),
			`{"collection":"orders","batchSize":2,"comment":"c","maxTimeMS":7,"$db":"shop"}`; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		_, err = c.RunCursorCommand(t.Context(), "shop", doc(t, `{"ping":1}`),
			client.RunCursorCommandOptions{})
		if !isA[*mongoerr.MalformedReplyError](err) {
			t.Errorf("RunCursorCommand(ping) = %v, want a MalformedReplyError", err)
		}
		_, err = c.RunCursorCommand(t.Context(), "shop", doc(t, `{"find":"a"}`),
			client.RunCursorCommandOptions{
				CursorType: client.Tailable, TimeoutMode: client.CursorLifetime,
			})
		if !isA[*client.ArgumentError](err) {
			t.Errorf("RunCursorCommand() of a tailable cursor's lifetime = %v, want an "+
				"ArgumentError", err)
		}
	})
}

// RUN-025.
func TestRunCursorCommandRefuses(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		for name, opt := range map[string]client.RunCursorCommandOptions{
			"batchSize": {BatchSize: new(int32(-1))},
			"maxTimeMS": {MaxTimeMS: new(int64(-1))},
		} {
			_, err := c.RunCursorCommand(t.Context(), "shop", doc(t, `{"find":"a"}`), opt)
			if refused, ok := errors.AsType[*client.ArgumentError](err); !ok ||
				refused.Argument != name || len(srv.Commands("find")) != 0 {
				t.Errorf("RunCursorCommand() = %v, want %s refused", err, name)
			}
		}
	})
}

func TestDeadlineInterruptsCommand(t *testing.T) {
	handlers := fakemongo.Handlers{"sleep": fakemongo.Always(fakemongo.OK(nil).After(time.Minute))}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := c.RunCommand(ctx, "admin", doc(t, `{"sleep":1}`), client.RunCommandOptions{})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 60*time.Millisecond {
			t.Errorf("RunCommand() = %v after %v, want DeadlineExceeded after 50ms", err,
				time.Since(began))
		}
		before := srv.AcceptedConnections()
		if err := c.Ping(t.Context()); err != nil || srv.AcceptedConnections() != before+1 {
			t.Errorf("Ping() = %v over connection %d, want a new one", err,
				srv.AcceptedConnections()-before)
		}
	})
}

func TestServersTimeoutIsDeadlineExceeded(t *testing.T) {
	handlers := fakemongo.Handlers{
		"find": fakemongo.Always(fakemongo.Error(50, "MaxTimeMSExpired",
			"operation exceeded time limit")),
	}
	run(t, handlers, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _, err := c.FindOne(ctx, orders, client.FindOptions{})
		failed, ok := errors.AsType[*mongoerr.CommandError](err)
		if !errors.Is(err, context.DeadlineExceeded) || !ok || failed.Code != 50 {
			t.Errorf("FindOne() = %v, want DeadlineExceeded around the server's error", err)
		}
		_, _, err = c.FindOne(t.Context(), orders, client.FindOptions{})
		if errors.Is(err, context.DeadlineExceeded) || mongoerr.Code(err) != 50 {
			t.Errorf("FindOne() without a deadline = %v, want the server's error as it is", err)
		}
	})
}

func TestTimeoutOfConnectionString(t *testing.T) {
	cfg := connstring.Config{Timeout: new(40 * time.Millisecond)}
	handlers := fakemongo.Handlers{"find": fakemongo.Always(fakemongo.Hang())}
	runWith(t, handlers, cfg, client.Options{}, func(
		t *testing.T, _ *fakemongo.Server, c *client.Client,
	) {
		began := time.Now()
		_, _, err := c.FindOne(t.Context(), orders, client.FindOptions{})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 40*time.Millisecond {
			t.Errorf("FindOne() = %v after %v, want DeadlineExceeded after 40ms", err,
				time.Since(began))
		}
	})
}

func TestRunOn(t *testing.T) {
	slow := fakemongo.Handlers{
		"find": fakemongo.Always(fakemongo.CursorReply(0, "shop.orders", "firstBatch").
			After(time.Second)),
	}
	t.Run("the client goes away", func(t *testing.T) {
		run(t, slow, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if _, err := c.Find(ctx, orders,
				client.FindOptions{Common: client.Common{RunOn: true}}); err != nil {
				t.Errorf("Find() = %v, want it to run on", err)
			}
		})
	})
	t.Run("another cause", func(t *testing.T) {
		run(t, slow, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
			drained := errors.New("shutting down")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(100*time.Millisecond, func() { cancel(drained) })
			if _, err := c.Find(ctx, orders,
				client.FindOptions{Common: client.Common{RunOn: true}}); !errors.Is(err, drained) {
				t.Errorf("Find() = %v, want the cause", err)
			}
		})
	})
	t.Run("the deadline passes", func(t *testing.T) {
		run(t, slow, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			time.AfterFunc(100*time.Millisecond, cancel)
			began := time.Now()
			_, err := c.Find(ctx, orders, client.FindOptions{Common: client.Common{RunOn: true}})
			if !errors.Is(err, context.DeadlineExceeded) ||
				time.Since(began) != 500*time.Millisecond {
				t.Errorf("Find() = %v after %v, want DeadlineExceeded after 500ms", err,
					time.Since(began))
			}
		})
	})
	t.Run("the limit", func(t *testing.T) {
		hang := fakemongo.Handlers{"find": fakemongo.Always(fakemongo.Hang())}
		run(t, hang, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := c.Find(ctx, orders,
				client.FindOptions{Common: client.Common{RunOn: true}}); !errors.Is(err,
				context.Canceled) {
				t.Errorf("Find() = %v, want nothing to be begun", err)
			}
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			began := time.Now()
			_, err := c.Find(ctx, orders, client.FindOptions{Common: client.Common{RunOn: true}})
			if err == nil || time.Since(began) != time.Second+operation.RunOnLimit {
				t.Errorf("Find() = %v after %v, want an error after 31s", err, time.Since(began))
			}
		})
	})
}

func TestBatchesAreOneOperation(t *testing.T) {
	operations, requests := map[int64]bool{}, map[int32]bool{}
	sink := &event.Sink{CommandStarted: func(e event.CommandStarted) {
		operations[e.OperationID], requests[e.RequestID] = true, true
	}}
	handlers := fakemongo.Handlers{
		"hello": helloWith(t, `{"maxWriteBatchSize":2,"maxWireVersion":21}`),
	}
	runWith(t, handlers, connstring.Config{}, client.Options{Sink: sink}, func(
		t *testing.T, _ *fakemongo.Server, c *client.Client,
	) {
		if _, err := c.InsertMany(t.Context(), orders, numbered(t, 5),
			client.InsertManyOptions{}); err != nil {
			t.Fatalf("InsertMany() = %v", err)
		}
		if len(operations) != 1 || len(requests) != 3 {
			t.Errorf("%d operations, %d requests, want 1 of 3", len(operations), len(requests))
		}
	})
}

func TestCommandEvents(t *testing.T) {
	var got []string
	show := func(d bson.Raw) string {
		d = bson.Without(d, "$db", "cursor", "lsid")
		return text(t, d)
	}
	requests := map[int32]bool{}
	sink := &event.Sink{
		CommandStarted: func(e event.CommandStarted) {
			requests[e.RequestID] = true
			got = append(got, fmt.Sprintf("started %s.%s %s", e.Database, e.Name, show(e.Body)))
			if e.Address != "fakemongo:27017" || e.ConnectionID == 0 || e.ServerConnectionID == 0 ||
				e.OperationID == 0 {
				t.Errorf("CommandStarted = %+v, want the connection's names", e.Command)
			}
		},
		CommandSucceeded: func(e event.CommandSucceeded) {
			got = append(got,
				fmt.Sprintf("succeeded %s %s %v", e.Name, show(e.Reply), requests[e.RequestID]))
		},
		CommandFailed: func(e event.CommandFailed) {
			got = append(got,
				fmt.Sprintf("failed %s %v %v %v", e.Name, mongoerr.Code(e.Err),
					mongoerr.IsNetwork(e.Err), requests[e.RequestID]))
			if strings.Contains(e.Err.Error(), "secret") {
				t.Errorf("CommandFailed has %v", e.Err)
			}
		},
	}
	handlers := fakemongo.Handlers{
		"insert": reply(t,
			`{"n":0,"writeErrors":[{"index":0,"code":11000,"errmsg":"dup"}],"ok":1}`),
		"update":     fakemongo.Always(fakemongo.Drop()),
		"createUser": fakemongo.Always(fakemongo.Error(51003, "UserExists", "secret")),
		"saslStart":  reply(t, `{"payload":"secret","ok":1}`),
	}
	runWith(t, handlers, connstring.Config{}, client.Options{Sink: sink}, func(
		t *testing.T, _ *fakemongo.Server, c *client.Client,
	) {
		ctx := t.Context()
		_, _ = c.InsertMany(ctx, orders, []bson.Raw{doc(t, `{"_id":1}`), doc(t, `{"_id":2}`)},
			client.InsertManyOptions{})
		_, _ = c.InsertOne(ctx, orders, doc(t, `{"_id":1}`),
			client.InsertOneOptions{Common: client.Common{WriteConcern: unacknowledged}})
		_, _ = c.RunCommand(ctx, "admin", doc(t, `{"createUser":"u","pwd":"secret"}`),
			client.RunCommandOptions{})
		_, _ = c.RunCommand(ctx, "admin", doc(t, `{"saslStart":1,"payload":"secret"}`),
			client.RunCommandOptions{})
		_, _ = c.UpdateOne(ctx, orders, nil, bson.ArrayValue(nil), client.UpdateOptions{})
		want := []string{
			`started shop.insert {"insert":"orders","ordered":true,"documents":[{"_id":1},{"_id":2}]}`,
			`succeeded insert {"n":0,"writeErrors":[{"index":0,"code":11000,"errmsg":"dup"}],"ok":1} true`,
			`started shop.insert {"insert":"orders","ordered":true,"writeConcern":{"w":0},"documents":[{"_id":1}]}`,
			`succeeded insert {"ok":1} true`,
			`started admin.createUser {}`,
			`failed createUser 51003 false true`,
			`started admin.saslStart {}`,
			`succeeded saslStart {} true`,
			`started shop.update {"update":"orders","ordered":true,"updates":[{"q":{},"u":[]}]}`,
			`failed update 0 true true`,
		}
		if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
			t.Errorf("events:\n%s\nwant:\n%s", a, b)
		}
	})
}
