package client_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// The prose tests of Driver Sessions and of Causal Consistency. TestPoolIsLIFO (session) is 2,
// TestRefusedSessions 1, 5 and 6; 7, 12, 13, 16 and 17 do not apply, and 15 is gone.

// refusedSession reports whether the options of a session are an argument error.
func refusedSession(c *client.Client, opt session.Options) bool {
	_, err := c.StartSession(opt)
	_, refused := errors.AsType[*client.ArgumentError](err)
	return refused
}

func TestSessionsProse1(t *testing.T) {
	run(t, nil, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		if !refusedSession(c, session.Options{Snapshot: true, CausalConsistency: new(true)}) {
			t.Error("a session is both causally consistent and reads from a snapshot")
		}
	})
}

// TestSessionsProse2 checks that the session that ended last is the next to begin.
func TestSessionsProse2(t *testing.T) {
	run(t, nil, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		a, b := startSession(t, c, session.Options{}), startSession(t, c, session.Options{})
		a.End(t.Context())
		b.End(t.Context())
		third, fourth := startSession(t, c, session.Options{}),
			startSession(t, c, session.Options{})
		if third.ID() != b.ID() || fourth.ID() != a.ID() {
			t.Errorf("ids %v and %v, want %v and %v", third.ID(), fourth.ID(), b.ID(), a.ID())
		}
	})
}

// TestSessionsProse3 checks that the newest cluster time goes with each command.
func TestSessionsProse3(t *testing.T) {
	handlers := fakemongo.Handlers{
		"ping":   timed(5, doc(t, `{"ok":1}`)),
		"insert": timed(5, doc(t, `{"n":1,"ok":1}`)),
	}
	opt := client.CountDocumentsOptions{}
	runs := map[string]func(*testing.T, *client.Client) error{
		"ping": func(t *testing.T, c *client.Client) error { return c.Ping(t.Context()) },
		"aggregate": func(t *testing.T, c *client.Client) error {
			_, err := c.CountDocuments(t.Context(), orders, opt)
			return err
		},
		"find":   findsOne,
		"insert": insertsOne,
	}
	for name, operate := range runs {
		run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
			if err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := operate(t, c); err != nil {
				t.Fatal(err)
			}
			cmds := srv.Commands(name)
			if _, has := cmds[len(cmds)-1].Body.Lookup("$clusterTime", "signature", "keyId"); !has {
				t.Errorf("%s has no cluster time: %s", name, text(t, cmds[0].Body))
			}
		})
	}
}

// TestSessionsProse4 checks that an explicit session goes with the command, and that an implicit
// one is another.
func TestSessionsProse4(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		s := startSession(t, c, session.Options{})
		for _, in := range []*client.Session{s, nil} {
			_, _, err := c.FindOne(t.Context(), orders,
				client.FindOptions{Common: client.Common{Session: in}})
			if err != nil {
				t.Fatal(err)
			}
		}
		cmds := srv.Commands("find")
		if id := lsidOf(cmds[1].Body); lsidOf(cmds[0].Body) != s.ID() || id == s.ID() ||
			id == (bson.UUID{}) {
			t.Errorf("lsids %v and %v, want %v and another", lsidOf(cmds[0].Body), id, s.ID())
		}
	})
}

// TestSessionsProse8To11 checks that the commands of a cursor have one session, which is free once
// the server has closed the cursor: with the first batch, with a getMore, or by killCursors.
func TestSessionsProse8To11(t *testing.T) {
	for name, test := range map[string]struct {
		batch int32
		calls int
		open  bool // after so many calls
	}{
		"8: with the first batch": {10, 1, false},
		"9: with a getMore":       {2, 2, false},
		"11: before":              {1, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				srv.SetDocuments("shop.orders", numbered(t, 3)...)
				cur, err := c.Find(t.Context(), orders, client.FindOptions{BatchSize: &test.batch})
				if err != nil {
					t.Fatal(err)
				}
				for range test.calls {
					if _, err := cur.Next(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				id := lsidOf(srv.Commands("find")[0].Body)
				next := startSession(t, c, session.Options{})
				if reused := next.ID() == id; reused == test.open {
					t.Errorf("the session is free: %v, want %v", reused, !test.open)
				}
				_ = cur.Close(t.Context())
				for _, cmd := range srv.Commands("getMore", "killCursors") {
					if lsidOf(cmd.Body) != id {
						t.Errorf("%s in session %v, want %v", cmd.Name, lsidOf(cmd.Body), id)
					}
				}
				if again := startSession(t, c, session.Options{}); test.open && again.ID() != id {
					t.Error("10: the session of a closed cursor is not in the pool")
				}
			})
		})
	}
}

// TestSessionsProse14 checks that operations that wait for the only connection do not have a
// session each.
func TestSessionsProse14(t *testing.T) {
	cfg := connstring.Config{MaxPoolSize: new(uint64(1))}
	runWith(t, nil, cfg, client.Options{}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { _ = findsOne(t, c) })
		}
		all.Wait()
		ids := map[bson.UUID]bool{}
		for _, cmd := range srv.Commands("find") {
			ids[lsidOf(cmd.Body)] = true
		}
		if len(ids) >= 8 || len(ids) == 0 {
			t.Errorf("8 operations had %d sessions", len(ids))
		}
	})
}

// TestSessionsProse18And19 checks that a server without sessions gets no lsid, and refuses an
// explicit session before anything is sent.
func TestSessionsProse18And19(t *testing.T) {
	hello := fakemongo.Handlers{"hello": helloWith(t, `{"maxWireVersion":21}`)}
	run(t, hello, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		if err := findsOne(t, c); err != nil {
			t.Error(err)
		}
		if err := insertsOne(t, c); err != nil {
			t.Error(err)
		}
		for _, cmd := range srv.Commands("find", "insert") {
			if cmd.Body.Has("lsid") || cmd.Body.Has("txnNumber") {
				t.Errorf("sent %s", text(t, cmd.Body))
			}
		}
		in := client.Common{Session: startSession(t, c, session.Options{})}
		_, _, err := c.FindOne(t.Context(), orders, client.FindOptions{Common: in})
		_, werr := c.InsertOne(t.Context(), orders, doc(t, `{}`),
			client.InsertOneOptions{Common: in})
		for _, err := range []error{err, werr} {
			if !errors.Is(err, operation.ErrSessionsNotSupported) {
				t.Errorf("with an explicit session: %v, want ErrSessionsNotSupported", err)
			}
		}
	})
}

// TestSessionsProse20 checks that neither monitors nor handshakes and logins send or learn the
// cluster time: the hellos and logins of this server tell a later one than its commands.
func TestSessionsProse20(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fakemongo.NewServer(t, fakemongo.Handlers{"ping": timed(5, doc(t, `{"ok":1}`))})
		srv.RequireAuth(pencil())
		outside := []string{"hello", "isMaster", "saslStart", "saslContinue"}
		srv.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if slices.Contains(outside, cmd.Name) {
				return next(cmd).With(times(9))
			}
			return next(cmd)
		})
		c := authenticating(t, srv, "app:pencil@", "directConnection=true&heartbeatFrequencyMS=500",
			client.Options{})
		for range 3 {
			if err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			srv.CutConnections() // so that the next ping has a new connection
			pass(2 * time.Second)
		}
		pings := srv.Commands("ping")
		if pings[0].Body.Has("$clusterTime") {
			t.Errorf("the first ping has the cluster time of a hello: %s", text(t, pings[0].Body))
		}
		for _, ping := range pings[1:] {
			if v, _ := ping.Body.Lookup("$clusterTime", "clusterTime"); valueText(t,
				v) != `{"$timestamp":{"t":5,"i":2}}` {
				t.Errorf("a ping has the cluster time %s, want that of the ping before",
					valueText(t, v))
			}
		}
		sent := srv.Commands(outside...)
		if len(sent) < 8 {
			t.Errorf("%d hellos and logins, want those of three connections and a monitor",
				len(sent))
		}
		for _, cmd := range sent {
			if cmd.Body.Has("$clusterTime") {
				t.Errorf("sent %s", text(t, cmd.Body))
			}
		}
	})
}

// TestSessionsProse21To23 is about the time of a snapshot: it needs a session that reads from one,
// which only such a session has, and it stays as it is.
func TestSessionsProse21To23(t *testing.T) {
	run(t, nil, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		at := session.Timestamp{T: 7}
		if !refusedSession(c, session.Options{SnapshotTime: at}) {
			t.Error("21: a session without a snapshot has a snapshot time")
		}
		if _, err := startSession(t, c, session.Options{}).
			SnapshotTime(); !isA[*client.ArgumentError](err) {
			t.Errorf("22: SnapshotTime() = %v, want an ArgumentError", err)
		}
		s := startSession(t, c, session.Options{Snapshot: true, SnapshotTime: at})
		if got, err := s.SnapshotTime(); err != nil || got != at {
			t.Errorf("23: SnapshotTime() = %v, %v, want %v", got, err, at)
		}
	})
}

// concernsOf runs reads in a session and returns their read concerns.
func concernsOf(
	t *testing.T, opt session.Options, level *client.ReadConcern, time uint32,
) (concerns []string, s *client.Session) {
	t.Helper()
	more := doc(t,
		`{"cursor":{"firstBatch":[],"id":{"$numberLong":"0"},"ns":"shop.orders"},"ok":1}`)
	find := fakemongo.Always(fakemongo.Document(more))
	if time > 0 {
		find = timed(time, more)
	}
	run(t, fakemongo.Handlers{"find": find}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		s = startSession(t, c, opt)
		for range 2 {
			in := client.Common{Session: s, ReadConcern: level}
			_, _, err := c.FindOne(t.Context(), orders, client.FindOptions{Common: in})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, cmd := range srv.Commands("find") {
			v, _ := cmd.Body.Lookup("readConcern")
			concerns = append(concerns, valueText(t, v))
		}
	})
	return concerns, s
}

// TestCausalConsistencyProse1To9 checks which reads ask for what their session has seen:
// TestCausalSession has 5, a write followed by a read.
func TestCausalConsistencyProse1To9(t *testing.T) {
	after := `{"afterClusterTime":{"$timestamp":{"t":6,"i":1}}}`
	majority := `{"level":"majority","afterClusterTime":{"$timestamp":{"t":6,"i":1}}}`
	for name, test := range map[string]struct {
		opt   session.Options
		level *client.ReadConcern
		time  uint32
		want  []string
	}{
		"2 to 4: the first read does not, and the second does": {session.Options{}, nil, 6, []string{"", after}},
		"6: not causally consistent":                           {session.Options{CausalConsistency: new(false)}, nil, 6, []string{"", ""}},
		"7, 11: no cluster time":                               {session.Options{}, nil, 0, []string{"", ""}},
		"8: the server's default level":                        {session.Options{}, &client.ReadConcern{}, 6, []string{"", after}},
		"9: a level": {
			session.Options{}, &client.ReadConcern{Level: "majority"}, 6, []string{`{"level":"majority"}`, majority},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, s := concernsOf(t, test.opt, test.level, test.time)
			if !slices.Equal(got, test.want) {
				t.Errorf("read concerns %q, want %q", got, test.want)
			}
			if want := (session.Timestamp{
				T: test.time,
				I: min(1, test.time),
			}); s.OperationTime() != want {
				t.Errorf("3: OperationTime() = %v, want %v", s.OperationTime(), want)
			}
		})
	}
	run(t, nil, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		if at := startSession(t, c, session.Options{}).OperationTime(); !at.IsZero() {
			t.Errorf("1: OperationTime() = %v before any command", at)
		}
	})
}

// TestCausalConsistencyProse12 checks that the cluster time goes with a read once it is known.
func TestCausalConsistencyProse12(t *testing.T) {
	run(t, fakemongo.Handlers{"ping": timed(5, doc(t, `{"ok":1}`))}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		for range 2 {
			if err := findsOne(t, c); err != nil {
				t.Fatal(err)
			}
			if err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		finds := srv.Commands("find")
		if finds[0].Body.Has("$clusterTime") || !finds[1].Body.Has("$clusterTime") {
			t.Errorf("sent %s and %s", text(t, finds[0].Body), text(t, finds[1].Body))
		}
	})
}
