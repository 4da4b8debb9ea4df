package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// The prose tests of crud about MongoClient.bulkWrite. Their formulas hold for the limits of any
// server; those of smallLimits keep the documents small.

const (
	smallLimits    = `{"maxWireVersion":25,"maxBsonObjectSize":16777,"maxMessageSizeBytes":48000,"maxWriteBatchSize":100}`
	maxBSONObject  = 16777
	maxMessage     = 48000
	maxWriteBatch  = 100
	noError        = `{"nErrors":0,"nInserted":1,"nMatched":0,"nModified":0,"nUpserted":0,"nDeleted":0}`
	duplicateFirst = `{"ok":0,"idx":0,"code":11000,"errmsg":"dup"}`
)

var dbColl = client.Namespace{Database: "db", Collection: "coll"}

// a is the document that has n letters b.
func a(n int) string { return `{"a":"` + strings.Repeat("b", n) + `"}` }

// TestCRUDProse3 is "MongoClient.bulkWrite batch splits a writeModels input with greater than
// maxWriteBatchSize operations".
func TestCRUDProse3(t *testing.T) {
	var operations []int64
	sink := &event.Sink{CommandStarted: func(e event.CommandStarted) {
		if e.Name == "bulkWrite" {
			operations = append(operations, e.OperationID)
		}
	}}
	runWith(t, (&bulkServer{limits: smallLimits}).handlers(t), connstring.Config{},
		client.Options{Sink: sink}, func(
			t *testing.T, srv *fakemongo.Server, c *client.Client,
		) {
			res, err := c.ClientBulkWrite(t.Context(), inserts(t, maxWriteBatch+1, dbColl, a(1)),
				client.NamespacedBulkWriteOptions{})
			if err != nil || res.InsertedCount != maxWriteBatch+1 {
				t.Fatalf("ClientBulkWrite() = %+v, %v", res, err)
			}
			if got, want := bulks(srv), "100 db.coll, 1 db.coll"; got != want {
				t.Errorf("sent %s, want %s", got, want)
			}
			if len(operations) != 2 || operations[0] != operations[1] {
				t.Errorf("operation ids are %v", operations)
			}
		})
}

// TestCRUDProse4 is "MongoClient.bulkWrite batch splits when an ops payload exceeds
// maxMessageSizeBytes".
func TestCRUDProse4(t *testing.T) {
	const n = maxMessage/maxBSONObject + 1
	(&bulkServer{limits: smallLimits}).run(t, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		res, err := c.ClientBulkWrite(t.Context(), inserts(t, n, dbColl, a(maxBSONObject-500)),
			client.NamespacedBulkWriteOptions{})
		if err != nil || res.InsertedCount != n {
			t.Fatalf("ClientBulkWrite() = %+v, %v", res, err)
		}
		if got, want := bulks(srv), fmt.Sprintf("%d db.coll, 1 db.coll", n-1); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})
}

// TestCRUDProse5 is "MongoClient.bulkWrite collects WriteConcernErrors across batches".
func TestCRUDProse5(t *testing.T) {
	fields := strings.TrimSuffix(noError, "}") +
		`,"writeConcernError":{"code":91,"errmsg":"Replication is being shut down"}}`
	(&bulkServer{limits: smallLimits, fields: fields}).run(t, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		res, err := c.ClientBulkWrite(t.Context(), inserts(t, maxWriteBatch+1, dbColl, a(1)),
			client.NamespacedBulkWriteOptions{})
		failed, _ := errors.AsType[*client.NamespacedBulkWriteError](err)
		if failed == nil || len(failed.WriteConcernErrors) != 2 || failed.Err != nil ||
			res.InsertedCount != 2 || !res.AnySucceeded {
			t.Fatalf("ClientBulkWrite() = %+v, %v", res, err)
		}
		if isA[*mongoerr.WriteConcernError](err) == false || len(srv.Commands("bulkWrite")) != 2 {
			t.Errorf("ClientBulkWrite() = %v after %d commands", err,
				len(srv.Commands("bulkWrite")))
		}
	})
}

// TestCRUDProse6 is "MongoClient.bulkWrite handles individual WriteErrors across batches".
func TestCRUDProse6(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		srv := &bulkServer{
			limits: smallLimits,
			fields: `{"nErrors":1,"nInserted":0,"nMatched":0,"nModified":0,"nUpserted":0,"nDeleted":0}`,
		}
		handlers := srv.handlers(t)
		handlers["bulkWrite"] = func(cmd *fakemongo.Command) fakemongo.Reply {
			one := *srv
			n := len(cmd.Sequences["ops"])
			if ordered {
				n = 1
			}
			for i := range n {
				one.cursor = append(one.cursor,
					strings.Replace(duplicateFirst, `"idx":0`, fmt.Sprintf(`"idx":%d`, i), 1))
			}
			one.fields = strings.Replace(one.fields, `"nErrors":1`, fmt.Sprintf(`"nErrors":%d`, n),
				1)
			return one.bulkWrite(t)(cmd)
		}
		run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
			res, err := c.ClientBulkWrite(t.Context(),
				inserts(t, maxWriteBatch+1, dbColl, `{"_id":1}`),
				client.NamespacedBulkWriteOptions{Ordered: &ordered})
			failed, _ := errors.AsType[*client.NamespacedBulkWriteError](err)
			want, commands := maxWriteBatch+1, 2
			if ordered {
				want, commands = 1, 1
			}
			if failed == nil || len(failed.WriteErrors) != want || res.AnySucceeded ||
				len(srv.Commands("bulkWrite")) != commands {
				t.Fatalf("ordered %v: ClientBulkWrite() = %+v, %v", ordered, res, err)
			}
			for i, we := range failed.WriteErrors {
				if we.Index != i {
					t.Errorf("error %d is that of write %d", i, we.Index)
				}
			}
		})
	}
}

// upserts answers two upserts, the second one with the second batch.
func upserts() *bulkServer {
	return &bulkServer{
		fields: `{"nErrors":0,"nInserted":0,"nMatched":0,"nModified":0,"nUpserted":2,"nDeleted":0}`,
		cursor: []string{`{"ok":1,"idx":0,"n":1,"nModified":0,"upserted":{"_id":"a"}}`},
		rest:   []string{`{"ok":1,"idx":1,"n":1,"nModified":0,"upserted":{"_id":"b"}}`},
	}
}

func twoUpserts(t *testing.T) []client.NamespacedWriteModel {
	var models []client.NamespacedWriteModel
	for _, id := range []string{"a", "b"} {
		models = append(models,
			client.NamespacedWriteModel{Namespace: dbColl, WriteModel: client.WriteModel{
				Kind: client.UpdateOne, Filter: doc(t, `{"_id":"`+id+`"}`),
				Update: bson.DocumentValue(doc(t, `{"$set":{"x":1}}`)), Upsert: new(true),
			}})
	}
	return models
}

// TestCRUDProse7 is "MongoClient.bulkWrite handles a cursor requiring a getMore".
func TestCRUDProse7(t *testing.T) {
	upserts().run(t, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		res, err := c.ClientBulkWrite(t.Context(), twoUpserts(t),
			client.NamespacedBulkWriteOptions{VerboseResults: new(true)})
		if err != nil || res.UpsertedCount != 2 || len(res.UpdateResults) != 2 ||
			len(srv.Commands("getMore")) != 1 {
			t.Errorf("ClientBulkWrite() = %+v, %v after %d getMores", res, err,
				len(srv.Commands("getMore")))
		}
		first, _ := srv.Commands("bulkWrite")[0].Body.Lookup("lsid")
		second, _ := srv.Commands("getMore")[0].Body.Lookup("lsid")
		if first.IsZero() || string(first.Data) != string(second.Data) {
			t.Errorf("the sessions are %v and %v, want the same", first, second)
		}
	})
}

// TestCRUDProse8 is "MongoClient.bulkWrite handles a cursor requiring getMore within a
// transaction".
func TestCRUDProse8(t *testing.T) {
	upserts().run(t, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		srv.Handle("abortTransaction", fakemongo.Always(fakemongo.OK(nil)))
		s := startSession(t, c, session.Options{})
		begin(t, s, client.TransactionOptions{})
		opt := client.NamespacedBulkWriteOptions{
			Common: client.Common{Session: s}, VerboseResults: new(true),
		}
		res, err := c.ClientBulkWrite(t.Context(), twoUpserts(t), opt)
		if err != nil || res.UpsertedCount != 2 || len(res.UpdateResults) != 2 {
			t.Errorf("ClientBulkWrite() = %+v, %v", res, err)
		}
		var got []string
		for _, cmd := range srv.Commands("bulkWrite", "getMore") {
			if lsidOf(cmd.Body) != s.ID() {
				t.Errorf("%s has the session %v, want %v", cmd.Name, lsidOf(cmd.Body), s.ID())
			}
			got = append(got,
				text(t,
					bson.Without(cmd.Body, "lsid", "$db", "ops", "nsInfo", "errorsOnly", "ordered",
						"collection")))
		}
		want := []string{
			`{"bulkWrite":1,"txnNumber":1,"startTransaction":true,"autocommit":false}`,
			`{"getMore":42,"txnNumber":1,"autocommit":false}`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
		wantState(t, s, "in_progress")
		if err := s.AbortTransaction(t.Context(), client.EndTransactionOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// TestCRUDProse9 is "MongoClient.bulkWrite handles a getMore error". The error of killCursors is
// not ignored either.
func TestCRUDProse9(t *testing.T) {
	for _, kill := range []string{`{"ok":1}`, `{"ok":0,"code":13,"errmsg":"not you"}`} {
		s := upserts()
		s.getMore = reply(t, `{"ok":0,"code":8,"errmsg":"unknown"}`)
		s.run(t, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
			srv.Handle("killCursors", reply(t, kill))
			res, err := c.ClientBulkWrite(t.Context(), twoUpserts(t),
				client.NamespacedBulkWriteOptions{VerboseResults: new(true)})
			failed, _ := errors.AsType[*client.NamespacedBulkWriteError](err)
			if failed == nil || mongoerr.Code(failed.Err) != 8 || res.UpsertedCount != 2 ||
				len(res.UpdateResults) != 1 {
				t.Fatalf("ClientBulkWrite() = %+v, %v", res, err)
			}
			if len(srv.Commands("getMore")) != 1 || len(srv.Commands("killCursors")) != 1 {
				t.Errorf("%d getMores and %d killCursors", len(srv.Commands("getMore")),
					len(srv.Commands("killCursors")))
			}
			if told := strings.Contains(err.Error(), "not you"); told != strings.Contains(kill,
				"not you") {
				t.Errorf("the error is %q, the reply of killCursors %s", err, kill)
			}
		})
	}
}

// TestCRUDProse10 is "MongoClient.bulkWrite returns error for unacknowledged too-large insert".
func TestCRUDProse10(t *testing.T) {
	large := doc(t, a(maxBSONObject))
	for _, m := range []client.WriteModel{
		{Kind: client.InsertOne, Document: large}, {Kind: client.ReplaceOne, Document: large},
	} {
		(&bulkServer{limits: smallLimits}).run(t, func(
			t *testing.T, srv *fakemongo.Server, c *client.Client,
		) {
			_, err := c.ClientBulkWrite(t.Context(),
				[]client.NamespacedWriteModel{{Namespace: dbColl, WriteModel: m}},
				client.NamespacedBulkWriteOptions{
					Common: client.Common{WriteConcern: unacknowledged}, Ordered: new(false),
				})
			if refused, ok := errors.AsType[*client.ArgumentError](err); !ok || !refused.TooLarge ||
				len(srv.Commands("bulkWrite")) > 0 {
				t.Errorf("ClientBulkWrite() = %v, want that it is too large", err)
			}
		})
	}
}

// TestCRUDProse11 is "MongoClient.bulkWrite batch splits when the addition of a new namespace
// exceeds the maximum message size".
func TestCRUDProse11(t *testing.T) {
	const opsBytes = maxMessage - 1122
	const n, remainder = opsBytes / maxBSONObject, opsBytes % maxBSONObject
	long := client.Namespace{Database: "db", Collection: strings.Repeat("c", 200)}
	for _, test := range []struct {
		last client.Namespace
		want string
	}{
		{dbColl, fmt.Sprintf("%d db.coll", n+2)},
		{long, fmt.Sprintf("%d db.coll, 1 %s", n+1, long)},
	} {
		(&bulkServer{limits: smallLimits}).run(t, func(
			t *testing.T, srv *fakemongo.Server, c *client.Client,
		) {
			models := inserts(t, n, dbColl, a(maxBSONObject-57))
			models = append(models, inserts(t, 1, dbColl, a(remainder-57))...)
			models = append(models, inserts(t, 1, test.last, a(1))...)
			res, err := c.ClientBulkWrite(t.Context(), models, client.NamespacedBulkWriteOptions{})
			if err != nil || res.InsertedCount != n+2 {
				t.Fatalf("ClientBulkWrite() = %+v, %v", res, err)
			}
			if got := bulks(srv); got != test.want {
				t.Errorf("sent %s, want %s", got, test.want)
			}
		})
	}
}

// TestCRUDProse12 is "MongoClient.bulkWrite returns an error if no operations can be added to ops".
func TestCRUDProse12(t *testing.T) {
	long := client.Namespace{Database: "db", Collection: strings.Repeat("c", maxMessage)}
	for name, models := range map[string][]client.NamespacedWriteModel{
		"document": inserts(t, 1, dbColl, a(maxMessage)), "namespace": inserts(t, 1, long, a(1)),
	} {
		(&bulkServer{limits: smallLimits}).run(t, func(
			t *testing.T, srv *fakemongo.Server, c *client.Client,
		) {
			_, err := c.ClientBulkWrite(t.Context(), models, client.NamespacedBulkWriteOptions{})
			if !isA[*client.ArgumentError](err) || len(srv.Commands("bulkWrite")) > 0 {
				t.Errorf("%s too large: ClientBulkWrite() = %v, want an error before "+
					"anything is sent", name, err)
			}
		})
	}
}

// TestCRUDProse15 is "MongoClient.bulkWrite with unacknowledged write concern uses w:0 for all
// batches".
func TestCRUDProse15(t *testing.T) {
	const n = maxMessage/maxBSONObject + 1
	(&bulkServer{limits: smallLimits}).run(t, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		res, err := c.ClientBulkWrite(t.Context(), inserts(t, n, dbColl, a(maxBSONObject-500)),
			client.NamespacedBulkWriteOptions{
				Common: client.Common{WriteConcern: unacknowledged}, Ordered: new(false),
			})
		if err != nil || res.Acknowledged || res.AnySucceeded {
			t.Fatalf("ClientBulkWrite() = %+v, %v", res, err)
		}
		if err := c.Ping(t.Context()); err != nil { // the writes are read by then
			t.Fatal(err)
		}
		if got, want := bulks(srv), fmt.Sprintf("%d db.coll, 1 db.coll", n-1); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		for _, cmd := range srv.Commands("bulkWrite") {
			v, _ := cmd.Body.Lookup("writeConcern", "w")
			if w, ok := v.AsInt64(); !ok || w != 0 || !cmd.MoreToCome {
				t.Errorf("sent %s, more to come %v", text(t, cmd.Body), cmd.MoreToCome)
			}
		}
	})
}

// TestTimeoutsProse11 is "Multi-batch bulkWrites" of client-side-operations-timeout.
func TestTimeoutsProse11(t *testing.T) {
	s := &bulkServer{limits: smallLimits}
	handlers := s.handlers(t)
	slow := s.bulkWrite(t)
	handlers["bulkWrite"] = func(cmd *fakemongo.Command) fakemongo.Reply {
		return slow(cmd).After(1010 * time.Millisecond)
	}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		models := inserts(t, maxMessage/maxBSONObject*3, dbColl, a(maxBSONObject-500))
		res, err := c.ClientBulkWrite(t.Context(), models,
			client.NamespacedBulkWriteOptions{Common: client.Common{Timeout: new(2 * time.Second)}})
		if !errors.Is(err, context.DeadlineExceeded) || !res.AnySucceeded {
			t.Errorf("ClientBulkWrite() = %+v, %v, want that time ran out", res, err)
		}
		if n := len(srv.Commands("bulkWrite")); n != 2 {
			t.Errorf("%d commands, want 2", n)
		}
	})
}
