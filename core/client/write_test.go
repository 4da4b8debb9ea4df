package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

var unacknowledged = &client.WriteConcern{Nodes: new(int32(0))}

func TestInsertOne(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		res, err := c.InsertOne(t.Context(), orders, doc(t, `{"a":1}`),
			client.InsertOneOptions{Common: client.Common{Comment: bson.StringValue("x")}})
		id, ok := res.InsertedID.ObjectID()
		if err != nil || !res.Acknowledged || !ok {
			t.Fatalf("InsertOne() = %+v, %v, want a generated _id", res, err)
		}
		got := srv.Documents("shop.orders")
		if want := `{"_id":{"$oid":"` + id.Hex() + `"},"a":1}`; len(got) != 1 ||
			text(t, got[0]) != want {
			t.Errorf("stored %v, want %s", got, want)
		}
		if got, want := sent(t, srv, "insert"),
			`{"insert":"orders","ordered":true,"comment":"x"}`; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})
}

func TestInsertOneKeepsID(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		res, err := c.InsertOne(t.Context(), orders, doc(t, `{"a":1,"_id":null}`),
			client.InsertOneOptions{})
		if err != nil || !res.InsertedID.IsNull() {
			t.Errorf("InsertOne() = %+v, %v, want the _id null", res, err)
		}
		if got := text(t, srv.Documents("shop.orders")[0]); got != `{"a":1,"_id":null}` {
			t.Errorf("stored %s", got)
		}
	})
}

func TestInsertOneErrors(t *testing.T) {
	duplicate := `{"n":0,"writeErrors":[{"index":0,"code":11000,"errmsg":"dup","keyValue":{"_id":1}}],"ok":1}`
	handlers := fakemongo.Handlers{"insert": reply(t, duplicate)}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		res, err := c.InsertOne(t.Context(), orders, doc(t, `{"_id":1}`), client.InsertOneOptions{})
		failed, ok := errors.AsType[*mongoerr.WriteException](err)
		if !ok || failed.WriteErrors[0].Code != 11000 || !res.InsertedID.IsZero() {
			t.Errorf("InsertOne() = %+v, %v, want code 11000 and no id", res, err)
		}
		srv.Handle("insert",
			reply(t, `{"n":1,"writeConcernError":{"code":64,"errmsg":"waiting"},"ok":1}`))
		res, err = c.InsertOne(t.Context(), orders, doc(t, `{"_id":1}`), client.InsertOneOptions{})
		if err != nil || res.WriteConcernError == nil || res.WriteConcernError.Code != 64 ||
			res.InsertedID.IsZero() {
			t.Errorf("InsertOne() = %+v, %v, want an id and a write concern error beside it", res,
				err)
		}
	})
}

// numbered are n documents without _id, {"i": 0}, {"i": 1}, …
func numbered(t testing.TB, n int) []bson.Raw {
	docs := make([]bson.Raw, n)
	for i := range docs {
		docs[i] = doc(t, fmt.Sprintf(`{"_id":%d,"i":%d}`, 100+i, i))
	}
	return docs
}

// batchSizes are the numbers of documents of the inserts that came.
func batchSizes(srv *fakemongo.Server) string {
	var out []string
	for _, cmd := range srv.Commands("insert") {
		out = append(out, fmt.Sprint(len(cmd.Documents("documents"))))
	}
	return strings.Join(out, " ")
}

func ids(res client.InsertManyResult) string {
	var out []string
	for _, id := range res.InsertedIDs {
		n, _ := id.ID.AsInt64()
		out = append(out, fmt.Sprintf("%d:%d", id.Index, n))
	}
	return strings.Join(out, " ")
}

func TestInsertManySplits(t *testing.T) {
	size := len(doc(t, `{"_id":100,"i":0}`))
	tests := []struct {
		name, hello, want string
	}{
		{"one message", `{"maxWriteBatchSize":100,"maxWireVersion":21}`, "5"},
		{"by number", `{"maxWriteBatchSize":2,"maxWireVersion":21}`, "2 2 1"},
		// A message with two documents: header, flags, body, and the sequence's head.
		{
			"by size",
			fmt.Sprintf(`{"maxWriteBatchSize":100,"maxWireVersion":21,"maxMessageSizeBytes":%d}`,
				16+4+1+len(doc(t, `{"insert":"orders","ordered":true,"$db":"shop"}`))+1+4+
					len("documents")+1+2*size), "2 2 1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// The added limit comes first, so that it counts.
			hello := fakemongo.Always(fakemongo.Document(bson.NewBuilder(nil).
				AppendElements(doc(t, tt.hello)).
				Bool("isWritablePrimary", true).Bool("helloOk", true).Int32("minWireVersion", 0).
				Int32("ok", 1).Finish()))
			run(t, fakemongo.Handlers{"hello": hello}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				res, err := c.InsertMany(t.Context(), orders, numbered(t, 5),
					client.InsertManyOptions{})
				if err != nil || ids(res) != "0:100 1:101 2:102 3:103 4:104" {
					t.Errorf("InsertMany() = %s, %v", ids(res), err)
				}
				if got := batchSizes(srv); got != tt.want {
					t.Errorf("batches of %s documents, want %s", got, tt.want)
				}
				if n := len(srv.Documents("shop.orders")); n != 5 {
					t.Errorf("%d documents stored, want 5", n)
				}
			})
		})
	}
}

// failing answers an insert with a duplicate key for the documents whose i is in bad, as an
// ordered or unordered server would.
func failing(bad ...int64) fakemongo.Handler {
	return func(cmd *fakemongo.Command) fakemongo.Reply {
		ordered, _ := cmd.Body.Lookup("ordered")
		b := bson.NewBuilder(nil).OpenArray("writeErrors")
		for at, d := range cmd.Documents("documents") {
			v, _ := d.Lookup("i")
			i, _ := v.AsInt64()
			for _, n := range bad {
				if i == n {
					b.OpenDocument("").Int32("index", int32(at)).Int32("code", 11000).
						String("errmsg", "dup").Close()
				}
			}
			if stop, _ := ordered.Bool(); stop && len(bad) > 0 && i == bad[0] {
				break
			}
		}
		return fakemongo.Document(b.Close().Int32("n", 0).Int32("ok", 1).Finish())
	}
}

func TestInsertManyWithErrors(t *testing.T) {
	tests := []struct {
		name    string
		ordered *bool
		sent    string
		ids     string
		errors  string
	}{
		{"ordered", nil, "2 2", "0:100 1:101 2:102", "[3]"},
		{"unordered", new(false), "2 2 2 1", "0:100 1:101 2:102 4:104 6:106", "[3 5]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			handlers := fakemongo.Handlers{
				"hello":  helloWith(t, `{"maxWriteBatchSize":2,"maxWireVersion":21}`),
				"insert": failing(3, 5),
			}
			run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				res, err := c.InsertMany(t.Context(), orders, numbered(t, 7),
					client.InsertManyOptions{Ordered: tt.ordered})
				failed, ok := errors.AsType[*mongoerr.WriteException](err)
				if !ok {
					t.Fatalf("InsertMany() = %v, want a WriteException", err)
				}
				var indexes []int
				for _, we := range failed.WriteErrors {
					indexes = append(indexes, we.Index)
				}
				if got := fmt.Sprint(indexes); got != tt.errors ||
					len(res.WriteErrors) != len(indexes) {
					t.Errorf("write errors at %s, want %s", got, tt.errors)
				}
				if ids(res) != tt.ids || batchSizes(srv) != tt.sent {
					t.Errorf("ids %s by batches of %s, want %s by %s", ids(res), batchSizes(srv),
						tt.ids, tt.sent)
				}
			})
		})
	}
}

func TestInsertManyEndsInTheMiddle(t *testing.T) {
	handlers := fakemongo.Handlers{
		"hello": helloWith(t, `{"maxWriteBatchSize":2,"maxWireVersion":21}`),
		"insert": fakemongo.Times(1, reply(t, `{"n":2,"ok":1}`),
			fakemongo.Always(fakemongo.Drop())),
	}
	run(t, handlers, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		res, err := c.InsertMany(t.Context(), orders, numbered(t, 5), client.InsertManyOptions{})
		_, ok := errors.AsType[*operation.OutcomeUnknownError](err)
		if !ok || !mongoerr.IsNetwork(err) || ids(res) != "0:100 1:101" {
			t.Errorf("InsertMany() = %s, %v, want the first batch and an unknown outcome", ids(res),
				err)
		}
	})
}

func TestInsertManyLyingServer(t *testing.T) {
	handlers := fakemongo.Handlers{
		"insert": reply(t, `{"n":0,"writeErrors":[{"index":9,"code":1,"errmsg":"x"}],"ok":1}`),
	}
	run(t, handlers, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		_, err := c.InsertMany(t.Context(), orders, numbered(t, 2), client.InsertManyOptions{})
		_, ok := errors.AsType[*mongoerr.MalformedReplyError](err)
		if !ok {
			t.Errorf("InsertMany() = %v, want a MalformedReplyError", err)
		}
	})
}

func TestTooLargeDocumentIsRefused(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		// too large with an _id only
		large := bson.NewBuilder(nil).String("s", strings.Repeat("x", 16<<20-20)).Finish()
		_, err := c.InsertMany(t.Context(), orders, []bson.Raw{doc(t, `{}`), large},
			client.InsertManyOptions{Ordered: new(false)})
		refused, ok := errors.AsType[*client.ArgumentError](err)
		if !ok || refused.Argument != "documents.1" || !refused.TooLarge {
			t.Errorf("InsertMany() = %v, want documents.1 to be refused", err)
		}
		if n := len(srv.Commands("insert")); n != 0 {
			t.Errorf("%d inserts were sent", n)
		}
		if _, err := c.RunCommand(t.Context(), "shop",
			bson.NewBuilder(nil).String("ping", strings.Repeat("x", 48_000_000)).Finish(),
			client.RunCommandOptions{}); !isA[*operation.TooLargeError](err) {
			t.Errorf("RunCommand() = %v, want a TooLargeError", err)
		}
	})
}

func TestUnacknowledgedWrites(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		ctx := t.Context()
		if res, err := c.InsertOne(ctx, orders, doc(t, `{"_id":1}`), client.InsertOneOptions{
			Common: client.Common{WriteConcern: unacknowledged},
		}); err != nil || res.Acknowledged {
			t.Errorf("InsertOne() = %+v, %v", res, err)
		}
		if res, err := c.InsertMany(ctx, orders, numbered(t, 2), client.InsertManyOptions{
			Common: client.Common{WriteConcern: unacknowledged},
		}); err != nil || res.Acknowledged || len(res.InsertedIDs) != 2 {
			t.Errorf("InsertMany() = %+v, %v", res, err)
		}
		if res, err := c.UpdateOne(ctx, orders, nil, bson.ArrayValue(nil), client.UpdateOptions{
			Common: client.Common{WriteConcern: unacknowledged},
		}); err != nil || res.Acknowledged {
			t.Errorf("UpdateOne() = %+v, %v", res, err)
		}
		if res, err := c.DeleteOne(ctx, orders, nil, client.DeleteOptions{
			Common: client.Common{WriteConcern: unacknowledged},
		}); err != nil || res.Acknowledged {
			t.Errorf("DeleteOne() = %+v, %v", res, err)
		}
		if res, err := c.FindOneAndDelete(ctx, orders, nil, client.FindOneAndOptions{
			Common: client.Common{WriteConcern: unacknowledged},
		}); err != nil || res.Acknowledged {
			t.Errorf("FindOneAndDelete() = %+v, %v", res, err)
		}
		synctest.Wait()
		cmds := srv.Commands("insert", "update", "delete", "findAndModify")
		if len(cmds) != 5 {
			t.Errorf("%d commands came, want 5", len(cmds))
		}
		for _, cmd := range cmds {
			if wc, _ := cmd.Body.Lookup("writeConcern", "w"); !cmd.MoreToCome ||
				string(wc.Data) != "\x00\x00\x00\x00" {
				t.Errorf("%s came with moreToCome %v, w %v", cmd.Name, cmd.MoreToCome, wc)
			}
		}
		if err := c.Ping(ctx); err != nil {
			t.Errorf("Ping() = %v; the connection is out of step", err)
		}
	})
}

func TestUpdates(t *testing.T) {
	all := client.UpdateOptions{
		Common: client.Common{
			Comment: bson.StringValue("c"), WriteConcern: &client.WriteConcern{
				Nodes: new(int32(1)), Journal: new(false), WTimeoutMS: new(int64(5)),
			}, Extra: doc(t, `{"more":1}`),
		},
		ArrayFilters: array(t, `[{"x":1}]`), BypassDocumentValidation: new(true),
		Collation: doc(t, `{"locale":"de"}`),
		Hint:      bson.DocumentValue(doc(t, `{"a":1}`)), Let: doc(t, `{"v":1}`),
		Sort:   doc(t, `{"a":1}`),
		Upsert: new(true),
	}
	set := bson.DocumentValue(doc(t, `{"$set":{"a":1}}`))
	tests := []struct {
		name  string
		reply string
		call  func(context.Context, *client.Client) (client.UpdateResult, error)
		sent  string
		want  string
	}{
		{
			"updateOne", `{"n":1,"nModified":1,"ok":1}`,
			func(ctx context.Context, c *client.Client) (client.UpdateResult, error) {
				return c.UpdateOne(ctx, orders, doc(t, `{"_id":1}`), set, all)
			},
			`{"update":"orders","ordered":true,"updates":[{"q":{"_id":1},"u":{"$set":{"a":1}},"upsert":true,"arrayFilters":[{"x":1}],` +
				`"collation":{"locale":"de"},"hint":{"a":1},"sort":{"a":1}}],"bypassDocumentValidation":true,"let":{"v":1},"comment":"c",` +
				`"writeConcern":{"w":1,"j":false,"wtimeout":5},"more":1}`,
			"matched 1 modified 1 upserted 0",
		},
		{
			"updateMany", `{"n":3,"nModified":2,"ok":1}`,
			func(ctx context.Context, c *client.Client) (client.UpdateResult, error) {
				return c.UpdateMany(ctx, orders, nil,
					bson.ArrayValue(array(t, `[{"$set":{"a":1}}]`)), client.UpdateOptions{})
			},
			`{"update":"orders","ordered":true,"updates":[{"q":{},"u":[{"$set":{"a":1}}],"multi":true}]}`,
			"matched 3 modified 2 upserted 0",
		},
		{
			"replaceOne, upsert", `{"n":1,"nModified":0,"upserted":[{"index":0,"_id":null}],"ok":1}`,
			func(ctx context.Context, c *client.Client) (client.UpdateResult, error) {
				return c.ReplaceOne(ctx, orders, nil, doc(t, `{}`),
					client.UpdateOptions{Upsert: new(true)})
			},
			`{"update":"orders","ordered":true,"updates":[{"q":{},"u":{},"upsert":true}]}`,
			"matched 0 modified 0 upserted 1 null",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, fakemongo.Handlers{"update": reply(t, tt.reply)}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				res, err := tt.call(t.Context(), c)
				got := fmt.Sprintf("matched %d modified %d upserted %d", res.MatchedCount,
					res.ModifiedCount, res.UpsertedCount)
				if !res.UpsertedID.IsZero() {
					got += " " + res.UpsertedID.Type.String()
				}
				if err != nil || got != tt.want || !res.Acknowledged {
					t.Errorf("result %s, %v, want %s", got, err, tt.want)
				}
				if got := sent(t, srv, "update"); got != tt.sent {
					t.Errorf("sent %s, want %s", got, tt.sent)
				}
			})
		})
	}
}

func TestDeletes(t *testing.T) {
	run(t, fakemongo.Handlers{"delete": reply(t, `{"n":4,"ok":1}`)}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		res, err := c.DeleteMany(t.Context(), orders, doc(t, `{"a":1}`),
			client.DeleteOptions{Hint: bson.StringValue("a_1"), Let: doc(t, `{}`)})
		if err != nil || res.DeletedCount != 4 {
			t.Errorf("DeleteMany() = %+v, %v, want 4", res, err)
		}
		want := `{"delete":"orders","ordered":true,"deletes":[{"q":{"a":1},"limit":0,"hint":"a_1"}],"let":{}}`
		if got := sent(t, srv, "delete"); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		if _, err := c.DeleteOne(t.Context(), orders, nil, client.DeleteOptions{}); err != nil {
			t.Errorf("DeleteOne() = %v", err)
		}
		if got := text(t,
			bson.Without(srv.Commands("delete")[1].Body,
				"lsid")); got != `{"delete":"orders","ordered":true,"deletes":[{"q":{},"limit":1}],"$db":"shop"}` {
			t.Errorf("sent %s", got)
		}
	})
}

func TestFindOneAnd(t *testing.T) {
	set := bson.DocumentValue(doc(t, `{"$set":{"a":1}}`))
	tests := []struct {
		name, reply string
		call        func(context.Context, *client.Client) (client.FindOneAndResult, error)
		sent, want  string
	}{
		{
			"update", `{"value":{"_id":1},"ok":1}`,
			func(ctx context.Context, c *client.Client) (client.FindOneAndResult, error) {
				return c.FindOneAndUpdate(ctx, orders, nil, set, client.FindOneAndOptions{
					ReturnDocument: client.ReturnAfter, Projection: doc(t, `{"_id":1}`),
					ArrayFilters: array(t, `[{"x":1}]`), Upsert: new(false),
				})
			},
			`{"findAndModify":"orders","query":{},"update":{"$set":{"a":1}},"new":true,"upsert":false,"fields":{"_id":1},` +
				`"arrayFilters":[{"x":1}]}`,
			`{"_id":1}`,
		},
		{
			"replace", `{"value":null,"ok":1}`,
			func(ctx context.Context, c *client.Client) (client.FindOneAndResult, error) {
				return c.FindOneAndReplace(ctx, orders, nil, doc(t, `{}`),
					client.FindOneAndOptions{ReturnDocument: client.ReturnBefore})
			},
			`{"findAndModify":"orders","query":{},"update":{},"new":false}`, ``,
		},
		{
			"delete", `{"ok":1}`,
			func(ctx context.Context, c *client.Client) (client.FindOneAndResult, error) {
				return c.FindOneAndDelete(ctx, orders, doc(t, `{"a":1}`),
					client.FindOneAndOptions{Sort: doc(t, `{"a":1}`), MaxTimeMS: new(int64(9))})
			},
			`{"findAndModify":"orders","query":{"a":1},"sort":{"a":1},"remove":true,"maxTimeMS":9}`, ``,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, fakemongo.Handlers{"findAndModify": reply(t, tt.reply)}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				res, err := tt.call(t.Context(), c)
				if err != nil || res.Document == nil != (tt.want == "") ||
					res.Document != nil && text(t, res.Document) != tt.want {
					t.Errorf("result %v, %v, want %s", res.Document, err, tt.want)
				}
				if got := sent(t, srv, "findAndModify"); got != tt.sent {
					t.Errorf("sent %s, want %s", got, tt.sent)
				}
			})
		})
	}
}

func TestHintGates(t *testing.T) {
	old := fakemongo.Handlers{"hello": helloWith(t, `{"maxWireVersion":7}`)}
	run(t, old, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		hint := bson.StringValue("a_1")
		_, err := c.UpdateOne(t.Context(), orders, nil, bson.ArrayValue(nil),
			client.UpdateOptions{Common: client.Common{WriteConcern: unacknowledged}, Hint: hint})
		if !isA[*client.ArgumentError](err) {
			t.Errorf("UpdateOne() = %v, want the hint to be refused", err)
		}
		_, err = c.DeleteOne(t.Context(), orders, nil,
			client.DeleteOptions{Common: client.Common{WriteConcern: unacknowledged}, Hint: hint})
		if !isA[*client.ArgumentError](err) {
			t.Errorf("DeleteOne() = %v, want the hint to be refused", err)
		}
		_, err = c.FindOneAndDelete(t.Context(), orders, nil, client.FindOneAndOptions{Hint: hint})
		if !isA[*client.ArgumentError](err) {
			t.Errorf("FindOneAndDelete() = %v, want the hint to be refused", err)
		}
		if n := len(srv.Commands("update", "delete", "findAndModify")); n != 0 {
			t.Errorf("%d commands were sent", n)
		}
	})
}

func TestDeadlineOfWrite(t *testing.T) {
	handlers := fakemongo.Handlers{"insert": fakemongo.Always(fakemongo.Hang())}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := c.InsertOne(ctx, orders, doc(t, `{}`), client.InsertOneOptions{})
		_, ok := errors.AsType[*operation.OutcomeUnknownError](err)
		if !ok || !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) > 60*time.Millisecond {
			t.Errorf("InsertOne() = %v after %v, want an unknown outcome by the deadline", err,
				time.Since(began))
		}
		srv.Handle("insert", nil)
		before := srv.AcceptedConnections()
		if _, err := c.InsertOne(t.Context(), orders, doc(t, `{}`),
			client.InsertOneOptions{}); err != nil {
			t.Errorf("InsertOne() afterwards = %v", err)
		}
		if srv.AcceptedConnections() != before+1 {
			t.Errorf("the broken connection was used again")
		}
	})
}

func TestWriteThatWasNotSent(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		srv.SetDown(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		// The first one meets the cut connection, perhaps when it has been sent.
		_, _ = c.InsertOne(ctx, orders, doc(t, `{}`), client.InsertOneOptions{})
		_, err := c.InsertOne(ctx, orders, doc(t, `{}`), client.InsertOneOptions{})
		if isA[*operation.OutcomeUnknownError](err) || !isA[*mongoerr.SelectionError](err) {
			t.Errorf("InsertOne() = %v, want a SelectionError", err)
		}
	})
}

// The split is made for the server that each command goes to, not for the first one's.
func TestInsertManyChecksEachServersLimits(t *testing.T) {
	limit := func(n int32) fakemongo.Handler { // comes first, so that it counts
		return func(cmd *fakemongo.Command) fakemongo.Reply {
			return fakemongo.Document(bson.NewBuilder(nil).Int32("maxBsonObjectSize", n).
				Int32("maxWriteBatchSize", 1).
				Int32("maxWireVersion", 21).Bool("isWritablePrimary", true).Bool("helloOk", true).
				Int32("minWireVersion", 0).
				Int32("ok", 1).Finish())
		}
	}
	for _, tt := range []struct {
		name    string
		later   int32
		sent    int
		refused bool
	}{{"less", 100, 1, true}, {"more", 10_000, 2, false}} {
		run(t, fakemongo.Handlers{"hello": limit(1000)}, func(
			t *testing.T, srv *fakemongo.Server, c *client.Client,
		) {
			srv.Handle("insert", func(*fakemongo.Command) fakemongo.Reply {
				srv.Handle("hello", limit(tt.later))
				return fakemongo.Document(doc(t,
					`{"n":1,"ok":1,"writeConcernError":{"code":91,"errmsg":"going"}}`))
			})
			large := bson.NewBuilder(nil).Int32("_id", 1).String("s", strings.Repeat("x", 200)).
				Finish()
			docs := []bson.Raw{doc(t, `{"_id":0}`), large}
			res, err := c.InsertMany(t.Context(), orders, docs, client.InsertManyOptions{})
			e, refused := errors.AsType[*client.ArgumentError](err)
			if refused != tt.refused || refused && (e.Argument != "documents.1" || !e.TooLarge) ||
				!refused && err != nil {
				t.Errorf("%s: InsertMany() = %v, want documents.1 refused: %v", tt.name, err,
					tt.refused)
			}
			if len(res.InsertedIDs) != tt.sent || len(srv.Commands("insert")) != tt.sent {
				t.Errorf("%s: %d ids, %d commands, want %d", tt.name, len(res.InsertedIDs),
					len(srv.Commands("insert")), tt.sent)
			}
		})
	}
}

// The result has what is known of the first command, whatever ends the second.
func TestInsertManyInPart(t *testing.T) {
	const first = `{"n":1,"ok":1,"writeErrors":[{"index":1,"code":11000,"errmsg":"dup"}],` +
		`"writeConcernError":{"code":64,"errmsg":"late"}}`
	for name, second := range map[string]fakemongo.Reply{
		"no answer":     fakemongo.Drop(),
		"command error": fakemongo.Error(13, "Unauthorized", "no"),
		"malformed":     fakemongo.Document(doc(t, `{"n":1}`)),
	} {
		handlers := fakemongo.Handlers{
			"hello":  helloWith(t, `{"maxWireVersion":21,"maxWriteBatchSize":2}`),
			"insert": fakemongo.Times(1, reply(t, first), fakemongo.Always(second)),
		}
		run(t, handlers, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
			res, err := c.InsertMany(t.Context(), orders, numbered(t, 4),
				client.InsertManyOptions{Ordered: new(false)})
			if _, ok := errors.AsType[*mongoerr.WriteException](err); ok || err == nil {
				t.Errorf("%s: InsertMany() = %v, want what ended it", name, err)
			}
			if ids(res) != "0:100" || len(res.WriteErrors) != 1 || res.WriteErrors[0].Index != 1 ||
				len(res.WriteConcernErrors) != 1 {
				t.Errorf("%s: InsertMany() = %s, %v, %v, want the first command's outcome", name,
					ids(res), res.WriteErrors, res.WriteConcernErrors)
			}
		})
	}
}

// A reply with ok: 1 that cannot be read: the write was done, and what it did is not known.
func TestMalformedReplyToWrite(t *testing.T) {
	set := bson.DocumentValue(doc(t, `{"$set":{"a":1}}`))
	for name, call := range map[string]func(context.Context, *client.Client) error{
		"update": func(ctx context.Context, c *client.Client) error {
			_, err := c.UpdateOne(ctx, orders, nil, set, client.UpdateOptions{})
			return err
		},
		"delete": func(ctx context.Context, c *client.Client) error {
			_, err := c.DeleteOne(ctx, orders, nil, client.DeleteOptions{})
			return err
		},
		"findAndModify": func(ctx context.Context, c *client.Client) error {
			_, err := c.FindOneAndDelete(ctx, orders, nil, client.FindOneAndOptions{})
			return err
		},
		"insert": func(ctx context.Context, c *client.Client) error {
			_, err := c.InsertMany(ctx, orders, numbered(t, 1), client.InsertManyOptions{})
			return err
		},
		"aggregate": func(ctx context.Context, c *client.Client) error {
			_, err := c.Aggregate(ctx, orders,
				client.AggregateOptions{Pipeline: array(t, `[{"$out":"o"}]`)})
			return err
		},
	} {
		// Nothing of what the commands' replies must have is right in this one.
		answer := reply(t, `{"n":"?","value":1,"cursor":1,"writeErrors":[{"index":9}],"ok":1}`)
		if name != "insert" {
			answer = reply(t, `{"n":"?","value":1,"cursor":1,"ok":1}`)
		}
		run(t, fakemongo.Handlers{name: answer}, func(
			t *testing.T, _ *fakemongo.Server, c *client.Client,
		) {
			err := call(t.Context(), c)
			_, unknown := errors.AsType[*operation.OutcomeUnknownError](err)
			if _, ok := errors.AsType[*mongoerr.MalformedReplyError](err); !ok || !unknown {
				t.Errorf("%s: error = %v, want an unknown outcome of a malformed reply", name, err)
			}
		})
	}
}
