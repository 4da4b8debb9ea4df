package client_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func TestFindOne(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		srv.SetDocuments("shop.orders", doc(t, `{"_id": 1, "total": 5}`), doc(t, `{"_id": 2}`))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, found, err := c.FindOne(ctx, orders,
			client.FindOptions{Sort: doc(t, `{"total": -1}`), Skip: new(int64(0))})
		if err != nil || !found || text(t, got) != `{"_id":1,"total":5}` {
			t.Errorf("FindOne() = %s, %v, %v", text(t, got), found, err)
		}
		want := `{"find":"orders","filter":{},"sort":{"total":-1},"skip":0,"limit":1,"singleBatch":true,"maxTimeMS":1000}`
		if got := sent(t, srv, "find"); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})
}

func TestFindOneWithoutMatch(t *testing.T) {
	run(t, nil, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		got, found, err := c.FindOne(t.Context(), orders, client.FindOptions{})
		if err != nil || found || got != nil {
			t.Errorf("FindOne() = %v, %v, %v, want nothing", got, found, err)
		}
	})
}

func TestFindSends(t *testing.T) {
	tests := []struct {
		name string
		opt  client.FindOptions
		want string // after the filter
	}{
		{"nothing", client.FindOptions{}, `,"maxTimeMS":60000`},
		{"explicit zeros", client.FindOptions{
			Skip: new(int64(0)), Limit: new(int64(0)), BatchSize: new(int32(0)),
			SingleBatch: new(false), AllowDiskUse: new(false),
		}, `,"skip":0,"allowDiskUse":false,"maxTimeMS":60000`},
		{
			"everything",
			client.FindOptions{
				Common: client.Common{
					Comment: bson.Int32Value(7), ReadConcern: &client.ReadConcern{Level: "local"},
					Extra: doc(t, `{"new":true}`),
				},
				Sort: doc(t, `{"a":1}`), Projection: doc(t, `{"b":1}`), Hint: bson.StringValue("a_1"),
				Skip:  new(int64(2)),
				Limit: new(int64(9)), BatchSize: new(int32(3)), MaxTimeMS: new(int64(5)),
				Max: doc(t, `{"a":9}`),
				Min: doc(t, `{"a":0}`), ReturnKey: new(true), ShowRecordID: new(true),
				OplogReplay:     new(true),
				NoCursorTimeout: new(true), AllowPartialResults: new(true), AllowDiskUse: new(true),
				Collation: doc(t, `{"locale":"de"}`), Let: doc(t, `{"x":1}`),
			},
			`,"sort":{"a":1},"projection":{"b":1},"hint":"a_1","skip":2,"limit":9,"batchSize":3,"comment":7,"max":{"a":9},"min":{"a":0},` +
				`"returnKey":true,"showRecordId":true,"oplogReplay":true,"noCursorTimeout":true,"allowPartialResults":true,` +
				`"collation":{"locale":"de"},"allowDiskUse":true,"let":{"x":1},"new":true,"readConcern":{"level":"local"},"maxTimeMS":5`,
		},
		{"negative limit", client.FindOptions{Limit: new(int64(-4))}, `,"limit":4,"batchSize":4,"singleBatch":true,"maxTimeMS":60000`},
		{"negative batch", client.FindOptions{BatchSize: new(int32(-4))}, `,"batchSize":4,"singleBatch":true,"maxTimeMS":60000`},
		{"batch is limit", client.FindOptions{Limit: new(int64(4)), BatchSize: new(int32(4))}, `,"limit":4,"batchSize":5,"maxTimeMS":60000`},
		{
			"single batch",
			client.FindOptions{SingleBatch: new(true), Limit: new(int64(4)), BatchSize: new(int32(4))},
			`,"limit":4,"batchSize":4,"singleBatch":true,"maxTimeMS":60000`,
		},
		{"iteration", client.FindOptions{TimeoutMode: client.Iteration}, ``},
		{
			"iteration, single batch",
			client.FindOptions{TimeoutMode: client.Iteration, SingleBatch: new(true)},
			`,"singleBatch":true,"maxTimeMS":60000`,
		},
		{"tailable", client.FindOptions{Tailable: new(true)}, `,"tailable":true`},
		{
			"awaitData",
			client.FindOptions{Tailable: new(true), AwaitData: new(true), MaxAwaitTimeMS: new(int64(3))},
			`,"tailable":true,"awaitData":true,"maxTimeMS":60000`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := c.Find(ctx, orders, tt.opt); err != nil {
					t.Fatalf("Find() = %v", err)
				}
				if got, want := sent(t, srv, "find"),
					`{"find":"orders","filter":{}`+tt.want+`}`; got != want {
					t.Errorf("sent %s, want %s", got, want)
				}
			})
		})
	}
}

func TestArgumentsAreRefused(t *testing.T) {
	update := bson.DocumentValue(doc(t, `{"$set":{"a":1}}`))
	calls := map[string]struct {
		argument string
		call     func(context.Context, *client.Client) error
	}{
		"no collection": {"collection", func(ctx context.Context, c *client.Client) error {
			_, err := c.Find(ctx, client.Namespace{Database: "shop"}, client.FindOptions{})
			return err
		}},
		"no database": {"database", func(ctx context.Context, c *client.Client) error {
			_, err := c.Aggregate(ctx, client.Namespace{}, client.AggregateOptions{})
			return err
		}},
		"hint is a number": {"hint", func(ctx context.Context, c *client.Client) error {
			_, err := c.Find(ctx, orders, client.FindOptions{Hint: bson.Int32Value(1)})
			return err
		}},
		"extra has a field's name": {"options", func(ctx context.Context, c *client.Client) error {
			_, err := c.Find(ctx, orders,
				client.FindOptions{Common: client.Common{Extra: doc(t, `{"sort":{}}`)}})
			return err
		}},
		"extra has the driver's name": {"options", func(
			ctx context.Context, c *client.Client,
		) error {
			_, err := c.InsertOne(ctx, orders, doc(t, `{}`),
				client.InsertOneOptions{Common: client.Common{Extra: doc(t, `{"lsid":{}}`)}})
			return err
		}},
		"tailable with a lifetime": {"timeoutMode", func(
			ctx context.Context, c *client.Client,
		) error {
			_, err := c.Find(ctx, orders,
				client.FindOptions{Tailable: new(true), TimeoutMode: client.CursorLifetime})
			return err
		}},
		"primary with a maxStaleness": {"readPreference", func(
			ctx context.Context, c *client.Client,
		) error {
			_, err := c.Find(ctx, orders, client.FindOptions{
				Common: client.Common{
					ReadPreference: &selection.ReadPreference{MaxStalenessSeconds: new(int64(120))},
				},
			})
			return err
		}},
		"update without operator": {"update", func(ctx context.Context, c *client.Client) error {
			_, err := c.UpdateOne(ctx, orders, nil, bson.DocumentValue(doc(t, `{"a":1}`)),
				client.UpdateOptions{})
			return err
		}},
		"empty update": {"update", func(ctx context.Context, c *client.Client) error {
			_, err := c.UpdateMany(ctx, orders, nil, bson.DocumentValue(nil),
				client.UpdateOptions{})
			return err
		}},
		"no update": {"update", func(ctx context.Context, c *client.Client) error {
			_, err := c.FindOneAndUpdate(ctx, orders, nil, bson.Value{}, client.FindOneAndOptions{})
			return err
		}},
		"sort in updateMany": {"sort", func(ctx context.Context, c *client.Client) error {
			_, err := c.UpdateMany(ctx, orders, nil, update,
				client.UpdateOptions{Sort: doc(t, `{"a":1}`)})
			return err
		}},
		"operator in replacement": {"replacement", func(
			ctx context.Context, c *client.Client,
		) error {
			_, err := c.ReplaceOne(ctx, orders, nil, doc(t, `{"$set":{}}`), client.UpdateOptions{})
			return err
		}},
		"arrayFilters in a replacement": {"arrayFilters", func(
			ctx context.Context, c *client.Client,
		) error {
			_, err := c.ReplaceOne(ctx, orders, nil, doc(t, `{}`),
				client.UpdateOptions{ArrayFilters: array(t, `[]`)})
			return err
		}},
		"arrayFilters in FindOneAndReplace": {"arrayFilters", func(
			ctx context.Context, c *client.Client,
		) error {
			opt := client.FindOneAndOptions{ArrayFilters: array(t, `[]`)}
			_, err := c.FindOneAndReplace(ctx, orders, nil, doc(t, `{}`), opt)
			return err
		}},
		"no documents": {"documents", func(ctx context.Context, c *client.Client) error {
			_, err := c.InsertMany(ctx, orders, nil, client.InsertManyOptions{})
			return err
		}},
		"w: 0 with journal": {"writeConcern", func(ctx context.Context, c *client.Client) error {
			_, err := c.DeleteOne(ctx, orders, nil, client.DeleteOptions{
				Common: client.Common{
					WriteConcern: &client.WriteConcern{Nodes: new(int32(0)), Journal: new(true)},
				},
			})
			return err
		}},
		"empty command": {"command", func(ctx context.Context, c *client.Client) error {
			_, err := c.RunCommand(ctx, "admin", nil, client.RunCommandOptions{})
			return err
		}},
	}
	for name, tt := range calls {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				err := tt.call(t.Context(), c)
				refused, ok := errors.AsType[*client.ArgumentError](err)
				if !ok || refused.Argument != tt.argument {
					t.Errorf("error = %v, want an ArgumentError of %s", err, tt.argument)
				}
				if n := len(srv.Commands("find", "insert", "update", "delete", "aggregate",
					"findAndModify")); n != 0 {
					t.Errorf("%d commands were sent", n)
				}
			})
		})
	}
}

// TestOptionsWithoutUse sets each option that an operation cannot use, one at a time.
func TestOptionsWithoutUse(t *testing.T) {
	common := map[string]client.Common{
		"comment":        {Comment: bson.Int32Value(1)},
		"readConcern":    {ReadConcern: &client.ReadConcern{}},
		"writeConcern":   {WriteConcern: &client.WriteConcern{}},
		"readPreference": {ReadPreference: &selection.ReadPreference{}},
		"options":        {Extra: doc(t, `{}`)},
	}
	type call func(context.Context, *client.Client, client.Common) error
	read := func(ctx context.Context, c *client.Client, o client.Common) error {
		_, err := c.Find(ctx, orders, client.FindOptions{Common: o})
		return err
	}
	written := func(ctx context.Context, c *client.Client, o client.Common) error {
		_, err := c.DeleteOne(ctx, orders, nil, client.DeleteOptions{Common: o})
		return err
	}
	command := func(ctx context.Context, c *client.Client, o client.Common) error {
		_, err := c.RunCommand(ctx, "admin", doc(t, `{"ping":1}`),
			client.RunCommandOptions{Common: o})
		return err
	}
	cursorCommand := func(ctx context.Context, c *client.Client, o client.Common) error {
		_, err := c.RunCursorCommand(ctx, "shop", doc(t, `{"find":"orders"}`),
			client.RunCursorCommandOptions{Common: o})
		return err
	}
	findOne := func(opt client.FindOptions) call {
		return func(ctx context.Context, c *client.Client, _ client.Common) error {
			_, _, err := c.FindOne(ctx, orders, opt)
			return err
		}
	}
	findOneAndDelete := func(opt client.FindOneAndOptions) call {
		return func(ctx context.Context, c *client.Client, _ client.Common) error {
			_, err := c.FindOneAndDelete(ctx, orders, nil, opt)
			return err
		}
	}
	tests := []struct {
		name, option string
		call         call
	}{
		{"Find", "writeConcern", read},
		{"DeleteOne", "readConcern", written},
		{"DeleteOne", "readPreference", written},
		{"RunCommand", "comment", command},
		{"RunCommand", "readConcern", command},
		{"RunCommand", "writeConcern", command},
		{"RunCommand", "options", command},
		{"RunCursorCommand", "readConcern", cursorCommand},
		{"RunCursorCommand", "writeConcern", cursorCommand},
		{"RunCursorCommand", "options", cursorCommand},
		{"FindOne", "limit", findOne(client.FindOptions{Limit: new(int64(1))})},
		{"FindOne", "batchSize", findOne(client.FindOptions{BatchSize: new(int32(1))})},
		{"FindOne", "singleBatch", findOne(client.FindOptions{SingleBatch: new(true)})},
		{"FindOne", "maxAwaitTimeMS", findOne(client.FindOptions{MaxAwaitTimeMS: new(int64(1))})},
		{"FindOne", "tailable", findOne(client.FindOptions{Tailable: new(true)})},
		{"FindOne", "awaitData", findOne(client.FindOptions{AwaitData: new(true)})},
		{"FindOne", "noCursorTimeout", findOne(client.FindOptions{NoCursorTimeout: new(true)})},
		{"FindOne", "timeoutMode", findOne(client.FindOptions{TimeoutMode: client.Iteration})},
		{"FindOneAndDelete", "arrayFilters", findOneAndDelete(client.FindOneAndOptions{ArrayFilters: array(t, `[]`)})},
		{
			"FindOneAndDelete", "bypassDocumentValidation",
			findOneAndDelete(client.FindOneAndOptions{BypassDocumentValidation: new(true)}),
		},
		{
			"FindOneAndDelete", "returnDocument",
			findOneAndDelete(client.FindOneAndOptions{ReturnDocument: client.ReturnAfter}),
		},
		{"FindOneAndDelete", "upsert", findOneAndDelete(client.FindOneAndOptions{Upsert: new(true)})},
	}
	run(t, nil, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		for _, tt := range tests {
			err := tt.call(t.Context(), c, common[tt.option])
			if e, ok := errors.AsType[*client.ArgumentError](err); !ok || e.Argument != tt.option {
				t.Errorf("%s() with %s = %v, want an ArgumentError of it", tt.name, tt.option, err)
			}
		}
	})
}

func TestReadConcernAndPreferenceAreInherited(t *testing.T) {
	cfg := connstring.Config{
		ReadConcernLevel: "majority", ReadPreference: "secondary", DirectConnection: new(true),
	}
	handlers := fakemongo.Handlers{
		"hello": helloWith(t,
			`{"setName":"rs","secondary":true,"isWritablePrimary":false,"maxWireVersion":21}`),
	}
	runWith(t, handlers, cfg, client.Options{}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		if _, err := c.EstimatedDocumentCount(t.Context(), orders,
			client.EstimatedDocumentCountOptions{}); mongoerr.Code(err) != 59 {
			t.Fatalf("EstimatedDocumentCount() = %v, want what the server answers", err)
		}
		_, _, err := c.FindOne(t.Context(), orders,
			client.FindOptions{Common: client.Common{ReadConcern: &client.ReadConcern{}}})
		if err != nil {
			t.Fatalf("FindOne() = %v", err)
		}
		if _, err := c.RunCommand(t.Context(), "admin", doc(t, `{"ping":1}`),
			client.RunCommandOptions{}); err != nil {
			t.Fatalf("RunCommand() = %v", err)
		}
		wants := map[string]string{
			"count": `{"count":"orders","readConcern":{"level":"majority"},"$readPreference":{"mode":"secondary"}}`,
			"find": `{"find":"orders","filter":{},"limit":1,"singleBatch":true,"readConcern":{},` +
				`"$readPreference":{"mode":"secondary"}}`,
			"ping": `{"ping":1,"$readPreference":{"mode":"primaryPreferred"}}`,
		}
		for name, want := range wants {
			if got := sent(t, srv, name); got != want {
				t.Errorf("sent %s, want %s", got, want)
			}
		}
	})
}

func TestAggregateSends(t *testing.T) {
	out := array(t, `[{"$match":{}},{"$out":"other"}]`)
	tests := []struct {
		name string
		ns   client.Namespace
		opt  client.AggregateOptions
		want string
	}{
		{
			"collection", orders,
			client.AggregateOptions{
				Common:   client.Common{WriteConcern: &client.WriteConcern{Tag: "majority"}},
				Pipeline: array(t, `[{"$match":{}}]`), BatchSize: new(int32(0)), Let: doc(t, `{"x":1}`),
				AllowDiskUse: new(true), BypassDocumentValidation: new(false),
			},
			`{"aggregate":"orders","pipeline":[{"$match":{}}],"cursor":{"batchSize":0},"allowDiskUse":true,` +
				`"bypassDocumentValidation":false,"let":{"x":1},"maxTimeMS":60000}`,
		},
		{
			"database",
			client.Namespace{Database: "shop"},
			client.AggregateOptions{TimeoutMode: client.Iteration},
			`{"aggregate":1,"pipeline":[],"cursor":{}}`,
		},
		{
			"output", orders,
			client.AggregateOptions{
				Common:   client.Common{WriteConcern: &client.WriteConcern{Tag: "majority"}},
				Pipeline: out, BatchSize: new(int32(5)), TimeoutMode: client.Iteration,
			},
			`{"aggregate":"orders","pipeline":[{"$match":{}},{"$out":"other"}],"cursor":{},"writeConcern":{"w":"majority"},"maxTimeMS":60000}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			empty := reply(t,
				`{"cursor":{"id":0,"ns":"shop.$cmd.aggregate","firstBatch":[]},"ok":1}`)
			run(t, fakemongo.Handlers{"aggregate": empty}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cur, err := c.Aggregate(ctx, tt.ns, tt.opt)
				if err != nil {
					t.Fatalf("Aggregate() = %v", err)
				}
				if b, err := cur.Next(ctx); err != nil || len(b.Documents) != 0 || !cur.Done() {
					t.Errorf("Next() = %v, %v, done %v, want an empty batch and the end", b, err,
						cur.Done())
				}
				if _, err := cur.Next(ctx); !errors.Is(err, io.EOF) {
					t.Errorf("Next() = %v, want EOF", err)
				}
				if got := sent(t, srv, "aggregate"); got != tt.want {
					t.Errorf("sent %s, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestAggregateReportsWriteConcernError(t *testing.T) {
	handlers := fakemongo.Handlers{"aggregate": reply(t,
		`{"cursor":{"id":0,"ns":"shop.orders","firstBatch":[]},"writeConcernError":{"code":64,"errmsg":"waiting"},"ok":1}`)}
	run(t, handlers, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		cur, err := c.Aggregate(t.Context(), orders,
			client.AggregateOptions{Pipeline: array(t, `[{"$merge":"other"}]`)})
		if err != nil || cur.WriteConcernError() == nil || cur.WriteConcernError().Code != 64 {
			t.Fatalf("Aggregate() = %v, want a cursor with the write concern error", err)
		}
		if b, err := cur.Next(t.Context()); err != nil || len(b.Documents) != 0 {
			t.Errorf("Next() = %d documents, %v", len(b.Documents), err)
		}
		cur, err = c.Aggregate(t.Context(), orders, client.AggregateOptions{})
		if err != nil || cur.WriteConcernError() != nil {
			t.Errorf("Aggregate() of a pipeline that reads = %v, want no write concern error", err)
		}
	})
}

func TestCountsAndDistinct(t *testing.T) {
	handlers := fakemongo.Handlers{
		"aggregate": reply(t,
			`{"cursor":{"id":0,"ns":"shop.orders","firstBatch":[{"_id":1,"n":{"$numberLong":"7"}}]},"ok":1}`),
		"count":    reply(t, `{"n":8.0,"ok":1}`),
		"distinct": reply(t, `{"values":["a",null],"ok":1}`),
	}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		n, err := c.CountDocuments(t.Context(), orders, client.CountDocumentsOptions{
			Filter: doc(t, `{"a":1}`), Skip: new(int64(1)), Limit: new(int64(9)),
			MaxTimeMS: new(int64(3)),
		})
		if n != 7 || err != nil {
			t.Errorf("CountDocuments() = %v, %v, want 7", n, err)
		}
		if n, err := c.EstimatedDocumentCount(t.Context(), orders,
			client.EstimatedDocumentCountOptions{}); n != 8 || err != nil {
			t.Errorf("EstimatedDocumentCount() = %v, %v, want 8", n, err)
		}
		values, err := c.Distinct(t.Context(), orders, "a",
			client.DistinctOptions{Common: client.Common{Comment: bson.NullValue()}})
		if err != nil || values.Len() != 2 {
			t.Errorf("Distinct() = %v, %v, want 2 values", values, err)
		}
		wants := map[string]string{
			"aggregate": `{"aggregate":"orders","pipeline":[{"$match":{"a":1}},{"$skip":1},{"$limit":9},` +
				`{"$group":{"_id":1,"n":{"$sum":1}}}],"cursor":{},"maxTimeMS":3}`,
			"count":    `{"count":"orders"}`,
			"distinct": `{"distinct":"orders","key":"a","query":{},"comment":null}`,
		}
		for name, want := range wants {
			if got := sent(t, srv, name); got != want {
				t.Errorf("sent %s, want %s", got, want)
			}
		}

		srv.Handle("aggregate",
			reply(t, `{"cursor":{"id":0,"ns":"shop.orders","firstBatch":[]},"ok":1}`))
		if n, err := c.CountDocuments(t.Context(), orders,
			client.CountDocumentsOptions{}); n != 0 || err != nil {
			t.Errorf("CountDocuments() of nothing = %v, %v, want 0", n, err)
		}
		srv.Handle("count",
			fakemongo.Always(fakemongo.Error(26, "NamespaceNotFound", "ns not found")))
		if n, err := c.EstimatedDocumentCount(t.Context(), orders,
			client.EstimatedDocumentCountOptions{}); n != 0 || err != nil {
			t.Errorf("EstimatedDocumentCount() without a collection = %v, %v, want 0", n, err)
		}
	})
}

func TestMalformedReplies(t *testing.T) {
	find := func(ctx context.Context, c *client.Client) error {
		_, err := c.Find(ctx, orders, client.FindOptions{})
		return err
	}
	findOne := func(ctx context.Context, c *client.Client) error {
		_, _, err := c.FindOne(ctx, orders, client.FindOptions{})
		return err
	}
	count := func(ctx context.Context, c *client.Client) error {
		_, err := c.EstimatedDocumentCount(ctx, orders, client.EstimatedDocumentCountOptions{})
		return err
	}
	distinct := func(ctx context.Context, c *client.Client) error {
		_, err := c.Distinct(ctx, orders, "a", client.DistinctOptions{})
		return err
	}
	update := func(ctx context.Context, c *client.Client) error {
		_, err := c.UpdateOne(ctx, orders, nil, bson.ArrayValue(nil), client.UpdateOptions{})
		return err
	}
	deleteOne := func(ctx context.Context, c *client.Client) error {
		_, err := c.DeleteOne(ctx, orders, nil, client.DeleteOptions{})
		return err
	}
	findAndDelete := func(ctx context.Context, c *client.Client) error {
		_, err := c.FindOneAndDelete(ctx, orders, nil, client.FindOneAndOptions{})
		return err
	}
	tests := []struct {
		command, reply, field string
		call                  func(context.Context, *client.Client) error
	}{
		{"find", `{"ok":1}`, "cursor", find},
		{"find", `{"cursor":1,"ok":1}`, "cursor", find},
		{"find", `{"cursor":{},"ok":1}`, "cursor.id", find},
		{"find", `{"cursor":{"id":"1"},"ok":1}`, "cursor.id", find},
		{"find", `{"cursor":{"id":0},"ok":1}`, "cursor.firstBatch", find},
		{"find", `{"cursor":{"id":0,"nextBatch":[]},"ok":1}`, "cursor.firstBatch", find},
		{"find", `{"cursor":{"id":0,"firstBatch":{}},"ok":1}`, "cursor.firstBatch", find},
		{"find", `{"cursor":{"id":0,"firstBatch":[{},2]},"ok":1}`, "cursor.firstBatch.1", find},
		{"find", `{"cursor":{"id":5,"firstBatch":[]},"ok":1}`, "cursor.ns", find},
		{"find", `{"cursor":{"id":5,"ns":"shop","firstBatch":[]},"ok":1}`, "cursor.ns", find},
		{"find", `{"cursor":{"id":5,"ns":7,"firstBatch":[]},"ok":1}`, "cursor.ns", find},
		{"find", `{"cursor":{"id":0,"firstBatch":[2]},"ok":1}`, "cursor.firstBatch.0", findOne},
		{"find", `{"cursor":{"id":0},"ok":1}`, "cursor.firstBatch", findOne},
		{"count", `{"ok":1}`, "n", count},
		{"count", `{"n":"1","ok":1}`, "n", count},
		{"distinct", `{"ok":1}`, "values", distinct},
		{"distinct", `{"values":{},"ok":1}`, "values", distinct},
		{"update", `{"ok":1}`, "n", update},
		{"update", `{"n":1,"upserted":[1],"ok":1}`, "upserted.0", update},
		{"update", `{"n":1,"upserted":[{}],"ok":1}`, "upserted.0._id", update},
		{"delete", `{"n":null,"ok":1}`, "n", deleteOne},
		{"findAndModify", `{"value":1,"ok":1}`, "value", findAndDelete},
	}
	for _, tt := range tests {
		t.Run(tt.command+" "+tt.reply, func(t *testing.T) {
			run(t, fakemongo.Handlers{tt.command: reply(t, tt.reply)}, func(
				t *testing.T, _ *fakemongo.Server, c *client.Client,
			) {
				err := tt.call(t.Context(), c)
				malformed, ok := errors.AsType[*mongoerr.MalformedReplyError](err)
				if !ok || malformed.Field != tt.field {
					t.Errorf("error = %v, want a MalformedReplyError of %s", err, tt.field)
				}
			})
		})
	}
}
