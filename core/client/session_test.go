package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// lsidOf returns the id of a command's session, zero if it has none.
func lsidOf(cmd bson.Raw) (id bson.UUID) {
	v, _ := cmd.Lookup("lsid", "id")
	_, data, _ := v.Binary()
	copy(id[:], data)
	return id
}

func startSession(t *testing.T, c *client.Client, opt session.Options) *client.Session {
	t.Helper()
	s, err := c.StartSession(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// timed returns a handler whose replies have the cluster's times.
func timed(t uint32, rest bson.Raw) fakemongo.Handler {
	return fakemongo.Always(fakemongo.Document(rest).With(times(t)))
}

// times returns the fields of a reply with the cluster's times.
func times(t uint32) bson.Raw {
	return bson.NewBuilder(nil).Timestamp("operationTime", t, 1).OpenDocument("$clusterTime").
		Timestamp("clusterTime", t, 2).OpenDocument("signature").Int32("keyId", 1).Close().Close().
		Finish()
}

// In a causally consistent session a read and a write ask for what the session has seen. The
// cluster time goes with each command, after an error as well.
func TestCausalSession(t *testing.T) {
	handlers := fakemongo.Handlers{
		"insert": timed(5, doc(t, `{"n":1,"ok":1}`)),
		"find":   timed(6, doc(t, `{"ok":0,"code":1,"errmsg":"no"}`)),
	}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		s := startSession(t, c, session.Options{})
		in := client.Common{Session: s}
		if _, err := c.InsertOne(t.Context(), orders, doc(t, `{}`),
			client.InsertOneOptions{Common: in}); err != nil {
			t.Fatal(err)
		}
		in.ReadConcern = &client.ReadConcern{Level: "majority"}
		if _, _, err := c.FindOne(t.Context(), orders, client.FindOptions{Common: in}); err == nil {
			t.Error("FindOne() = nil, want an error")
		}
		in.ReadConcern = nil
		_, _ = c.CountDocuments(t.Context(), orders, client.CountDocumentsOptions{Common: in})
		if _, err := c.RunCommand(t.Context(), "shop", doc(t, `{"ping":1}`),
			client.RunCommandOptions{Common: in}); err != nil {
			t.Error(err)
		}
		for _, want := range []struct{ name, concern, time string }{
			{"insert", ``, ``},
			{"find", `{"level":"majority","afterClusterTime":{"$timestamp":{"t":5,"i":1}}}`, `{"$timestamp":{"t":5,"i":2}}`},
			{"aggregate", `{"afterClusterTime":{"$timestamp":{"t":6,"i":1}}}`, `{"$timestamp":{"t":6,"i":2}}`},
			{"ping", ``, `{"$timestamp":{"t":6,"i":2}}`},
		} {
			cmd := srv.Commands(want.name)[0].Body
			if lsidOf(cmd) != s.ID() {
				t.Errorf("%s in session %v, want %v", want.name, lsidOf(cmd), s.ID())
			}
			concern, _ := cmd.Lookup("readConcern")
			if got := valueText(t, concern); got != want.concern {
				t.Errorf("%s with read concern %s, want %s", want.name, got, want.concern)
			}
			at, _ := cmd.Lookup("$clusterTime", "clusterTime")
			if got := valueText(t, at); got != want.time {
				t.Errorf("%s with cluster time %s, want %s", want.name, got, want.time)
			}
		}
		if got := s.OperationTime(); got != (session.Timestamp{T: 6, I: 1}) {
			t.Errorf("OperationTime() = %v", got)
		}
	})
}

// valueText is a value as JSON, empty if there is none.
func valueText(t *testing.T, v bson.Value) string {
	t.Helper()
	if v.IsZero() {
		return ""
	}
	got := text(t, bson.NewBuilder(nil).Value("v", v).Finish())
	return got[len(`{"v":`) : len(got)-1]
}

// All commands of a session that reads from a snapshot carry it, once its time is known, but not
// those of a cursor.
func TestSnapshotSession(t *testing.T) {
	at := func(key string) bson.Raw {
		return bson.NewBuilder(nil).OpenDocument("cursor").OpenArray(key).Close().Int64("id", 7).
			String("ns", "shop.orders").Timestamp("atClusterTime", 9, 1).Close().Int32("ok", 1).
			Finish()
	}
	handlers := fakemongo.Handlers{
		"find":    fakemongo.Always(fakemongo.Document(at("firstBatch"))),
		"getMore": fakemongo.Always(fakemongo.Document(at("nextBatch"))),
	}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		s := startSession(t, c, session.Options{Snapshot: true})
		in := client.Common{Session: s}
		cur, err := c.Find(t.Context(), orders, client.FindOptions{Common: in})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := cur.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		_ = cur.Close(t.Context())
		_, _ = c.RunCommand(t.Context(), "shop", doc(t, `{"ping":1}`),
			client.RunCommandOptions{Common: in})
		for name, want := range map[string]string{
			"find": `{"level":"snapshot"}`, "getMore": ``, "killCursors": ``,
			"ping": `{"level":"snapshot","atClusterTime":{"$timestamp":{"t":9,"i":1}}}`,
		} {
			cmd := srv.Commands(name)[0].Body
			concern, _ := cmd.Lookup("readConcern")
			if got := valueText(t, concern); got != want || lsidOf(cmd) != s.ID() {
				t.Errorf("%s with read concern %s in %v, want %s in %v", name, got, lsidOf(cmd),
					want, s.ID())
			}
		}
	})
}

// A cursor that goes on in another client keeps its session, whose id neither of them uses for
// anything else.
func TestSessionOfContinuedCursor(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		srv.SetDocuments("shop.orders", doc(t, `{"_id":1}`), doc(t, `{"_id":2}`))
		cur, err := c.Find(t.Context(), orders, client.FindOptions{BatchSize: new(int32(1))})
		if err != nil {
			t.Fatal(err)
		}
		again := c.ContinueCursor(cur.State())
		for _, err := range again.Batches(t.Context()) {
			if err != nil {
				t.Error(err)
			}
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		find, more, ping := srv.Commands("find")[0].Body, srv.Commands("getMore")[0].Body,
			srv.Commands("ping")[0].Body
		if id := lsidOf(find); id == (bson.UUID{}) || lsidOf(more) != id || lsidOf(ping) == id {
			t.Errorf("find in %v, getMore in %v, ping in %v", id, lsidOf(more), lsidOf(ping))
		}
	})
}

// What a session cannot do is refused before anything is sent.
func TestRefusedSessions(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		other, err := client.New(connstring.Config{Hosts: []address.Address{"other:27017"}},
			client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ended := startSession(t, c, session.Options{})
		ended.End(t.Context())
		good := startSession(t, c, session.Options{})
		tests := map[string]client.Common{
			"belongs to another client": {Session: startSession(t, other, session.Options{})},
			"ended":                     {Session: ended},
			"unacknowledged":            {Session: good, WriteConcern: unacknowledged},
		}
		for name, in := range tests {
			_, err := c.InsertOne(t.Context(), orders, doc(t, `{}`),
				client.InsertOneOptions{Common: in})
			if e, ok := errors.AsType[*client.ArgumentError](err); !ok || e.Argument != "session" {
				t.Errorf("%s: InsertOne() = %v, want an ArgumentError", name, err)
			}
		}
		if _, err := c.StartSession(session.Options{
			Snapshot: true, CausalConsistency: new(true),
		}); !isA[*client.ArgumentError](err) {
			t.Errorf("StartSession() = %v, want an ArgumentError", err)
		}
		if _, err := good.SnapshotTime(); !isA[*client.ArgumentError](err) {
			t.Errorf("SnapshotTime() = %v, want an ArgumentError", err)
		}
		if n := len(srv.Commands("insert")); n != 0 {
			t.Errorf("%d inserts were sent", n)
		}
	})
}

// Close ends the sessions of the pool on the server, and waits only shortly for that.
func TestCloseEndsSessions(t *testing.T) {
	for name, handler := range map[string]fakemongo.Handler{
		"answered": fakemongo.Always(fakemongo.Document(doc(t, `{"ok":1}`))),
		"hanging":  fakemongo.Always(fakemongo.Hang()),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, fakemongo.Handlers{"endSessions": handler}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				if err := c.Ping(t.Context()); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if err := c.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("Close() took %v", took)
				}
				end := srv.Commands("endSessions")[0].Body
				v, _ := end.Lookup("endSessions", "0")
				named, _ := v.Document()
				id := lsidOf(bson.NewBuilder(nil).Document("lsid", named).Finish())
				if used := lsidOf(srv.Commands("ping")[0].Body); id != used ||
					used == (bson.UUID{}) || end.Has("lsid") {
					t.Errorf("sent %s, want session %v", text(t, end), used)
				}
			})
		})
	}
}

// A session that ends while an operation runs in it gets no other user: a server takes two writes
// with one lsid and one txnNumber for the same write.
func TestEndDuringOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		host := cluster.Hosts()[0]
		free := make(chan struct{})
		host.Handle("ping", func(*fakemongo.Command) fakemongo.Reply {
			<-free
			return fakemongo.OK(nil)
		})
		c := connect(t, cluster, "&maxPoolSize=1", client.Options{})
		s, other := startSession(t, c, session.Options{}), startSession(t, c, session.Options{})
		var all sync.WaitGroup
		all.Go(func() {
			opt := client.RunCommandOptions{Common: client.Common{Session: other}}
			_, _ = c.RunCommand(t.Context(), "admin", doc(t, `{"ping":1}`), opt)
		})
		synctest.Wait()
		for _, in := range []client.Common{{Session: s}, {}} {
			all.Go(func() {
				if err := insert(t, c, in); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // both wait for the connection
			s.End(t.Context())
		}
		close(free)
		all.Wait()
		sent := host.Commands("insert")
		if len(sent) != 2 || lsidOf(sent[0].Body) == lsidOf(sent[1].Body) {
			t.Errorf("%d inserts, both in session %v", len(sent), lsidOf(sent[0].Body))
		}
	})
}
