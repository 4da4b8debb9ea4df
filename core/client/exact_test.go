package client_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestDerivedSessions: each numbered write of such a session has an id of its own, which its
// retries keep.
func TestDerivedSessions(t *testing.T) {
	const member = `{"ok":1,"isWritablePrimary":true,"setName":"rs","hosts":["db.test:27017"],"me":"db.test:27017",` +
		`"maxWireVersion":25,"maxWriteBatchSize":2,"logicalSessionTimeoutMinutes":30}`
	hello := fakemongo.Always(fakemongo.Document(doc(t, member)))
	late := fakemongo.Error(10107, "NotWritablePrimary", "not primary", "RetryableWriteError")
	insert := fakemongo.Times(1, fakemongo.Always(fakemongo.Document(doc(t, `{"ok":1,"n":2}`))),
		fakemongo.Times(1, fakemongo.Always(late),
			fakemongo.Always(fakemongo.Document(doc(t, `{"ok":1,"n":1}`)))))
	handlers := fakemongo.Handlers{"hello": hello, "insert": insert}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		s := derived(t, c)
		docs := []bson.Raw{doc(t, `{"_id":1}`), doc(t, `{"_id":2}`), doc(t, `{"_id":3}`)}
		opt := client.InsertManyOptions{Common: client.Common{Session: s}}
		if _, err := c.InsertMany(t.Context(), orders, docs, opt); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, cmd := range srv.Commands("insert") {
			id, _ := cmd.Body.Lookup("lsid", "id")
			n, _ := cmd.Body.Lookup("txnNumber")
			_, uuid, _ := id.Binary()
			number, _ := n.AsInt64()
			got = append(got, fmt.Sprint(uuid[0], " ", number))
		}
		if want := "[1 1 2 1 2 1]"; fmt.Sprint(got) != want {
			t.Errorf("the writes are %v, want %s", got, want)
		}
	})
}

// derived returns a session whose n-th id begins with n+1.
func derived(t *testing.T, c *client.Client) *client.Session {
	t.Helper()
	s, err := c.ResumeSession(session.State{Derive: func(n int) bson.UUID {
		return bson.UUID{byte(n + 1)}
	}}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDerivedSessionsRefuse(t *testing.T) {
	member := `{"ok":1,"isWritablePrimary":true,"setName":"rs","hosts":["db.test:27017"],"me":"db.test:27017","maxWireVersion":25,"logicalSessionTimeoutMinutes":30}`
	set := bson.DocumentValue(doc(t, `{"$set":{"a":1}}`))
	off := false
	for name, test := range map[string]struct {
		hello string
		cfg   connstring.Config
		call  func(*testing.T, *client.Client, client.Common) error
	}{
		"many documents": {member, connstring.Config{}, func(
			t *testing.T, c *client.Client, o client.Common,
		) error {
			_, err := c.UpdateMany(t.Context(), orders, doc(t, `{}`), set,
				client.UpdateOptions{Common: o})
			return err
		}},
		"many documents in a bulk": {member, connstring.Config{}, func(
			t *testing.T, c *client.Client, o client.Common,
		) error {
			_, err := c.BulkWrite(t.Context(), orders,
				[]client.WriteModel{{Kind: client.DeleteMany}}, client.BulkWriteOptions{Common: o})
			return err
		}},
		"a read": {member, connstring.Config{}, func(
			t *testing.T, c *client.Client, o client.Common,
		) error {
			_, _, err := c.FindOne(t.Context(), orders, client.FindOptions{Common: o})
			return err
		}},
		"a standalone server": {`{"ok":1,"isWritablePrimary":true,"maxWireVersion":25,"logicalSessionTimeoutMinutes":30}`, connstring.Config{}, insertOne},
		"no sessions":         {`{"ok":1,"isWritablePrimary":true,"maxWireVersion":25}`, connstring.Config{}, insertOne},
		"no retries":          {member, connstring.Config{RetryWrites: &off}, insertOne},
	} {
		t.Run(name, func(t *testing.T) {
			handlers := fakemongo.Handlers{
				"hello": fakemongo.Always(fakemongo.Document(doc(t, test.hello))),
			}
			runWith(t, handlers, test.cfg, client.Options{}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				err := test.call(t, c, client.Common{Session: derived(t, c)})
				if !errors.Is(err, operation.ErrNotRetryable) {
					t.Errorf("the error is %v, want ErrNotRetryable", err)
				}
				if n := len(srv.Commands("insert", "update", "delete", "find")); n != 0 {
					t.Errorf("%d commands were sent", n)
				}
			})
		})
	}
}

func insertOne(t *testing.T, c *client.Client, o client.Common) error {
	_, err := c.InsertOne(t.Context(), orders, doc(t, `{}`), client.InsertOneOptions{Common: o})
	return err
}

// TestDerivedSessionsSplitAlike: what else is in a command does not change how many writes it has,
// so that the same call again has the same writes under the same ids.
func TestDerivedSessionsSplitAlike(t *testing.T) {
	const member = `{"ok":1,"isWritablePrimary":true,"setName":"rs","hosts":["db.test:27017"],"me":"db.test:27017",` +
		`"maxWireVersion":25,"maxMessageSizeBytes":3000,"logicalSessionTimeoutMinutes":30}`
	const done = `{"ok":1,"n":1,"nModified":1,"$clusterTime":{"clusterTime":{"$timestamp":{"t":5,"i":1}},"signature":{"keyId":1}}}`
	handlers := fakemongo.Handlers{
		"hello":  fakemongo.Always(fakemongo.Document(doc(t, member))),
		"update": fakemongo.Always(fakemongo.Document(doc(t, done))),
	}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		models := make([]client.WriteModel, 100)
		for i := range models {
			models[i] = client.WriteModel{
				Kind: client.UpdateOne, Filter: doc(t, `{}`),
				Update: bson.DocumentValue(doc(t, `{"$inc":{"a":1}}`)),
			}
		}
		var sizes [2][]int
		for i := range sizes {
			before := len(srv.Commands("update"))
			opt := client.BulkWriteOptions{Common: client.Common{Session: derived(t, c)}}
			if _, err := c.BulkWrite(t.Context(), orders, models, opt); err != nil {
				t.Fatal(err)
			}
			for _, cmd := range srv.Commands("update")[before:] {
				sizes[i] = append(sizes[i], len(cmd.Sequences["updates"]))
			}
		}
		if len(sizes[0]) < 2 || !slices.Equal(sizes[0], sizes[1]) {
			t.Errorf("the commands have %v writes, and %v when the call is repeated", sizes[0],
				sizes[1])
		}
	})
}

// TestDerivedSessionsSplitAlikeInClientBulkWrite repeats a call, first without and then with a
// deadline, which takes wtimeout out of the write concern.
func TestDerivedSessionsSplitAlikeInClientBulkWrite(t *testing.T) {
	const member = `{"ok":1,"isWritablePrimary":true,"setName":"rs","hosts":["db.test:27017"],"me":"db.test:27017",` +
		`"maxWireVersion":25,"maxMessageSizeBytes":48025,"logicalSessionTimeoutMinutes":30}`
	const done = `{"ok":1,"nErrors":0,"nInserted":0,"nMatched":1,"nModified":1,"nUpserted":0,"nDeleted":0,` +
		`"cursor":{"id":0,"ns":"admin.$cmd.bulkWrite","firstBatch":[]}}`
	handlers := fakemongo.Handlers{
		"hello":     fakemongo.Always(fakemongo.Document(doc(t, member))),
		"bulkWrite": fakemongo.Always(fakemongo.Document(doc(t, done))),
	}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		models := make([]client.NamespacedWriteModel, 2000)
		for i := range models {
			models[i] = client.NamespacedWriteModel{
				Namespace: orders,
				WriteModel: client.WriteModel{
					Kind: client.DeleteOne, Filter: doc(t, `{}`),
				},
			}
		}
		var sizes [2][]int
		for i, timeout := range []*time.Duration{nil, new(time.Minute)} {
			before := len(srv.Commands("bulkWrite"))
			_, err := c.ClientBulkWrite(t.Context(), models,
				client.NamespacedBulkWriteOptions{Common: client.Common{
					Session: derived(t, c), Timeout: timeout,
					WriteConcern: &client.WriteConcern{
						Nodes: new(int32(1)), WTimeoutMS: new(int64(1_000_000)),
					},
				}})
			if err != nil {
				t.Fatal(err)
			}
			for _, cmd := range srv.Commands("bulkWrite")[before:] {
				sizes[i] = append(sizes[i], len(cmd.Sequences["ops"]))
			}
		}
		if len(sizes[0]) < 2 || !slices.Equal(sizes[0], sizes[1]) {
			t.Errorf("the commands have %v writes, and %v when the call is repeated", sizes[0],
				sizes[1])
		}
	})
}

// TestDerivedSessionsReadResults: the results of a bulkWrite that do not fit one reply are read in
// the session of the write, without a number of their own. What is left of them is killed there.
func TestDerivedSessionsReadResults(t *testing.T) {
	const member = `{"ok":1,"isWritablePrimary":true,"setName":"rs","hosts":["db.test:27017"],"me":"db.test:27017",` +
		`"maxWireVersion":25,"logicalSessionTimeoutMinutes":30}`
	const first = `{"ok":1,"nErrors":0,"nInserted":2,"nMatched":0,"nModified":0,"nUpserted":0,"nDeleted":0,` +
		`"cursor":{"id":42,"ns":"admin.$cmd.bulkWrite","firstBatch":[{"ok":1,"idx":0,"n":1}]}}`
	const second = `{"ok":1,"cursor":{"id":0,"ns":"admin.$cmd.bulkWrite","nextBatch":[{"ok":1,"idx":1,"n":1}]}}`
	for name, test := range map[string]struct {
		more fakemongo.Reply
		want string // the commands with the first byte of their session, and their number
	}{
		"read":   {fakemongo.Document(doc(t, second)), "[bulkWrite 1 1 getMore 1 -]"},
		"killed": {fakemongo.Error(1, "InternalError", "no more"), "[bulkWrite 1 1 getMore 1 - killCursors 1 -]"},
	} {
		t.Run(name, func(t *testing.T) {
			handlers := fakemongo.Handlers{
				"hello":       fakemongo.Always(fakemongo.Document(doc(t, member))),
				"bulkWrite":   fakemongo.Always(fakemongo.Document(doc(t, first))),
				"getMore":     fakemongo.Always(test.more),
				"killCursors": fakemongo.Always(fakemongo.Document(doc(t, `{"ok":1}`))),
			}
			run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				models := make([]client.NamespacedWriteModel, 2)
				for i := range models {
					models[i] = client.NamespacedWriteModel{
						Namespace:  orders,
						WriteModel: client.WriteModel{Kind: client.InsertOne, Document: doc(t, `{}`)},
					}
				}
				opt := client.NamespacedBulkWriteOptions{
					Common: client.Common{Session: derived(t, c)}, VerboseResults: new(true),
				}
				res, err := c.ClientBulkWrite(t.Context(), models, opt)
				if name == "read" && (err != nil || len(res.InsertResults) != 2) {
					t.Errorf("%d results and the error %v, want 2", len(res.InsertResults), err)
				}
				killed := name == "killed"
				if killed && (err == nil || errors.Is(err, operation.ErrNotRetryable)) {
					t.Errorf("the error is %v, want that of getMore", err)
				}
				var got []string
				for _, cmd := range srv.Commands("bulkWrite", "getMore", "killCursors") {
					id, _ := cmd.Body.Lookup("lsid", "id")
					_, uuid, _ := id.Binary()
					number := "-"
					if v, ok := cmd.Body.Lookup("txnNumber"); ok {
						n, _ := v.AsInt64()
						number = fmt.Sprint(n)
					}
					got = append(got, fmt.Sprint(cmd.Name, " ", uuid[0], " ", number))
				}
				if fmt.Sprint(got) != test.want {
					t.Errorf("the commands are %v, want %s", got, test.want)
				}
			})
		})
	}
}
