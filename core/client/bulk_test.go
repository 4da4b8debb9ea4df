package client_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// writes are the statements that were sent, command by command: "insert 2", …
func writes(srv *fakemongo.Server) (all []string) {
	for _, cmd := range srv.Commands() {
		for _, sequence := range []string{"documents", "updates", "deletes"} {
			if docs := cmd.Sequences[sequence]; docs != nil {
				all = append(all, fmt.Sprintf("%s %d", cmd.Name, len(docs)))
			}
		}
	}
	return all
}

func mixed(t *testing.T) []client.WriteModel {
	one := doc(t, `{"_id":1}`)
	set := bson.DocumentValue(doc(t, `{"$set":{"a":1}}`))
	return []client.WriteModel{
		{Kind: client.InsertOne, Document: doc(t, `{"_id":7}`)},
		{Kind: client.InsertOne, Document: doc(t, `{"a":1}`)},
		{Kind: client.UpdateOne, Filter: one, Update: set, Upsert: new(true), Sort: one},
		{Kind: client.DeleteOne, Filter: one, Hint: bson.StringValue("_id_")},
		{Kind: client.UpdateMany, Update: set, ArrayFilters: bson.Array{5, 0, 0, 0, 0}},
		{Kind: client.ReplaceOne, Filter: one, Document: doc(t, `{"b":1}`), Collation: doc(t, `{"locale":"de"}`)},
		{Kind: client.DeleteMany},
	}
}

func TestBulkWrite(t *testing.T) {
	for name, test := range map[string]struct {
		hello   string
		opt     client.BulkWriteOptions
		replies map[string]string // by command; all others count one of one
		sent    string
		want    string // counts, ids, errors
	}{
		"in order": {
			sent: "insert 2, update 1, delete 1, update 2, delete 1",
			want: "2 inserted, 2 matched, 2 modified, 2 deleted, 0 upserted; inserted 0 1",
			replies: map[string]string{
				"insert": `{"n":2,"ok":1}`,
			},
		},
		"by command": {
			opt:  client.BulkWriteOptions{Ordered: new(false)},
			sent: "insert 2, update 3, delete 2",
			want: "2 inserted, 2 matched, 1 modified, 1 deleted, 1 upserted; inserted 0 1; upserted 4",
			replies: map[string]string{
				"insert": `{"n":2,"ok":1}`, "update": `{"n":3,"nModified":1,"upserted":[{"index":1,"_id":9}],"ok":1}`,
			},
		},
		"split by count": {
			hello: `{"maxWriteBatchSize":1,"maxWireVersion":21}`,
			opt:   client.BulkWriteOptions{Ordered: new(false)},
			sent:  "insert 1, insert 1, update 1, update 1, update 1, delete 1, delete 1",
			want:  "2 inserted, 3 matched, 3 modified, 2 deleted, 0 upserted; inserted 0 1",
		},
		"split by size": {
			hello: `{"maxMessageSizeBytes":230,"maxWireVersion":21}`,
			opt:   client.BulkWriteOptions{Ordered: new(false)},
			sent:  "insert 2, update 2, update 1, delete 2",
			want:  "1 inserted, 2 matched, 2 modified, 1 deleted, 0 upserted; inserted 0 1",
		},
		"an error ends what is in order": {
			sent: "insert 2",
			want: "1 inserted, 0 matched, 0 modified, 0 deleted, 0 upserted; inserted 0; failed 1",
			replies: map[string]string{
				"insert": `{"n":1,"writeErrors":[{"index":1,"code":11000,"errmsg":"dup"}],"ok":1}`,
			},
		},
		"and nothing else": {
			opt:  client.BulkWriteOptions{Ordered: new(false)},
			sent: "insert 2, update 3, delete 2",
			want: "1 inserted, 2 matched, 2 modified, 1 deleted, 0 upserted; inserted 1; failed 0 5; 1 concerns",
			replies: map[string]string{
				"insert": `{"n":1,"writeErrors":[{"index":0,"code":11000,"errmsg":"dup"}],"ok":1}`,
				"update": `{"n":2,"nModified":2,"writeErrors":[{"index":2,"code":11000,"errmsg":"dup"}],` +
					`"writeConcernError":{"code":64,"errmsg":"w"},"ok":1}`,
			},
		},
		"unacknowledged": {
			opt:  client.BulkWriteOptions{Common: client.Common{WriteConcern: unacknowledged}},
			sent: "insert 2, update 1, delete 1, update 2, delete 1",
			want: "0 inserted, 0 matched, 0 modified, 0 deleted, 0 upserted; inserted 0 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			handlers := fakemongo.Handlers{
				"insert": reply(t, `{"n":1,"ok":1}`),
				"update": reply(t, `{"n":1,"nModified":1,"ok":1}`),
				"delete": reply(t, `{"n":1,"ok":1}`),
			}
			for command, json := range test.replies {
				handlers[command] = reply(t, json)
			}
			if test.hello != "" {
				handlers["hello"] = helloWith(t, test.hello)
			}
			run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				res, err := c.BulkWrite(t.Context(), orders, mixed(t), test.opt)
				got := fmt.Sprintf("%d inserted, %d matched, %d modified, %d deleted, %d upserted",
					res.InsertedCount, res.MatchedCount, res.ModifiedCount, res.DeletedCount,
					res.UpsertedCount)
				add := func(what string, indexes []int) {
					if len(indexes) > 0 {
						got += "; " + what + " " + strings.Trim(fmt.Sprint(indexes), "[]")
					}
				}
				place := func(ids []client.IndexedID) (all []int) {
					for _, id := range ids {
						all = append(all, id.Index)
					}
					return all
				}
				add("inserted", place(res.InsertedIDs))
				add("upserted", place(res.UpsertedIDs))
				failed, _ := errors.AsType[*mongoerr.WriteException](err)
				if failed != nil {
					var indexes []int
					for _, we := range failed.WriteErrors {
						indexes = append(indexes, we.Index)
					}
					add("failed", indexes)
				} else if err != nil {
					t.Error(err)
				}
				if n := len(res.WriteConcernErrors); n > 0 {
					got += fmt.Sprintf("; %d concerns", n)
				}
				if got != test.want || res.Acknowledged != (test.opt.WriteConcern == nil) {
					t.Errorf("the result is %s, want %s", got, test.want)
				}
				// unacknowledged writes are read by then
				if err := c.Ping(t.Context()); err != nil {
					t.Error(err)
				}
				if sent := strings.Join(writes(srv), ", "); sent != test.sent {
					t.Errorf("sent %s, want %s", sent, test.sent)
				}
			})
		})
	}
}

// TestBulkWriteSends checks the statements and the options.
func TestBulkWriteSends(t *testing.T) {
	handlers := fakemongo.Handlers{
		"insert": reply(t, `{"n":2,"ok":1}`), "update": reply(t, `{"n":3,"nModified":3,"ok":1}`),
		"delete": reply(t, `{"n":2,"ok":1}`),
	}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		_, err := c.BulkWrite(t.Context(), orders, mixed(t), client.BulkWriteOptions{
			Common: client.Common{Comment: bson.StringValue("c")}, Ordered: new(false),
			BypassDocumentValidation: new(false), Let: doc(t, `{"x":1}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		for command, want := range map[string]string{
			"insert": `{"insert":"orders","ordered":false,"bypassDocumentValidation":false,"comment":"c"}`,
			"update": `{"update":"orders","ordered":false,"bypassDocumentValidation":false,"let":{"x":1},"comment":"c"}`,
			"delete": `{"delete":"orders","ordered":false,"let":{"x":1},"comment":"c"}`,
		} {
			if got := sent(t, srv, command); got != want {
				t.Errorf("sent %s, want %s", got, want)
			}
		}
		for sequence, want := range map[string][]string{
			"updates": {
				`{"q":{"_id":1},"u":{"$set":{"a":1}},"upsert":true,"sort":{"_id":1}}`,
				`{"q":{},"u":{"$set":{"a":1}},"multi":true,"arrayFilters":[]}`,
				`{"q":{"_id":1},"u":{"b":1},"collation":{"locale":"de"}}`,
			},
			"deletes": {`{"q":{"_id":1},"limit":1,"hint":"_id_"}`, `{"q":{},"limit":0}`},
		} {
			var got []string
			for _, d := range srv.Commands(strings.TrimSuffix(sequence,
				"s"))[0].Sequences[sequence] {
				got = append(got, text(t, d))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s are %q, want %q", sequence, got, want)
			}
		}
	})
}

func TestBulkWriteRefuses(t *testing.T) {
	one := doc(t, `{"_id":1}`)
	hint := client.WriteModel{Kind: client.DeleteOne, Hint: bson.StringValue("_id_")}
	insert := client.WriteModel{Kind: client.InsertOne, Document: one}
	for name, test := range map[string]struct {
		models []client.WriteModel
		opt    client.BulkWriteOptions
		want   string
	}{
		"nothing":             {nil, client.BulkWriteOptions{}, "requests"},
		"no kind":             {[]client.WriteModel{insert, {}}, client.BulkWriteOptions{}, "requests.1.kind"},
		"no document":         {[]client.WriteModel{{Kind: client.InsertOne}}, client.BulkWriteOptions{}, "requests.0.document"},
		"no replacement":      {[]client.WriteModel{{Kind: client.ReplaceOne}}, client.BulkWriteOptions{}, "requests.0.replacement"},
		"operators missing":   {[]client.WriteModel{{Kind: client.UpdateOne, Update: bson.DocumentValue(one)}}, client.BulkWriteOptions{}, "requests.0.update"},
		"a document too many": {[]client.WriteModel{{Kind: client.DeleteOne, Document: one}}, client.BulkWriteOptions{}, "requests.0.document"},
		"filter":              {[]client.WriteModel{{Kind: client.InsertOne, Document: one, Filter: one}}, client.BulkWriteOptions{}, "requests.0.filter"},
		"update":              {[]client.WriteModel{{Kind: client.DeleteOne, Update: bson.DocumentValue(one)}}, client.BulkWriteOptions{}, "requests.0.update"},
		"arrayFilters":        {[]client.WriteModel{{Kind: client.ReplaceOne, Document: one, ArrayFilters: bson.Array{5, 0, 0, 0, 0}}}, client.BulkWriteOptions{}, "requests.0.arrayFilters"},
		"collation":           {[]client.WriteModel{{Kind: client.InsertOne, Document: one, Collation: one}}, client.BulkWriteOptions{}, "requests.0.collation"},
		"hint":                {[]client.WriteModel{{Kind: client.InsertOne, Document: one, Hint: bson.StringValue("x")}}, client.BulkWriteOptions{}, "requests.0.hint"},
		"a number as hint":    {[]client.WriteModel{{Kind: client.DeleteOne, Hint: bson.Int32Value(1)}}, client.BulkWriteOptions{}, "requests.0.hint"},
		"sort":                {[]client.WriteModel{{Kind: client.DeleteOne, Sort: one}}, client.BulkWriteOptions{}, "requests.0.sort"},
		"upsert":              {[]client.WriteModel{{Kind: client.DeleteOne, Upsert: new(true)}}, client.BulkWriteOptions{}, "requests.0.upsert"},
		"a read concern":      {[]client.WriteModel{insert}, client.BulkWriteOptions{Common: client.Common{ReadConcern: &client.ReadConcern{}}}, "readConcern"},
		"a late document":     {[]client.WriteModel{hint, {Kind: client.InsertOne, Document: doc(t, `{"long":"`+strings.Repeat("x", 100)+`"}`)}}, client.BulkWriteOptions{}, "requests.1"},
		"a late hint":         {[]client.WriteModel{insert, hint}, client.BulkWriteOptions{Common: client.Common{WriteConcern: unacknowledged}}, "hint"},
	} {
		t.Run(name, func(t *testing.T) {
			handlers := fakemongo.Handlers{
				"hello": helloWith(t, `{"maxBsonObjectSize":100,"maxWireVersion":8}`),
			}
			run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				_, err := c.BulkWrite(t.Context(), orders, test.models, test.opt)
				if refused, ok := errors.AsType[*client.ArgumentError](err); !ok ||
					refused.Argument != test.want {
					t.Errorf("BulkWrite() = %v, want an error about %s", err, test.want)
				}
				if got := writes(srv); len(got) > 0 {
					t.Errorf("%v was sent before", got)
				}
			})
		})
	}
}

func TestBulkWriteMalformedReplies(t *testing.T) {
	for command, replies := range map[string][]string{
		"insert": {`{"ok":1}`, `{"n":0,"writeErrors":[{"index":5,"code":1,"errmsg":""}],"ok":1}`},
		"update": {
			`{"n":1,"ok":1}`, `{"n":1,"nModified":0,"upserted":1,"ok":1}`,
			`{"n":1,"nModified":0,"upserted":[{"index":4,"_id":1}],"ok":1}`, `{"n":1,"nModified":0,"upserted":[{"index":0}],"ok":1}`,
		},
	} {
		for _, json := range replies {
			run(t, fakemongo.Handlers{command: reply(t, json)}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				model := client.WriteModel{Kind: client.InsertOne, Document: doc(t, `{}`)}
				if command == "update" {
					model = client.WriteModel{Kind: client.ReplaceOne, Document: doc(t, `{}`)}
				}
				_, err := c.BulkWrite(t.Context(), orders, []client.WriteModel{model},
					client.BulkWriteOptions{})
				_, unknown := errors.AsType[*operation.OutcomeUnknownError](err)
				if _, malformed := errors.AsType[*mongoerr.MalformedReplyError](err); !unknown ||
					!malformed {
					t.Errorf("%s: BulkWrite() = %v, want an unknown outcome", json, err)
				}
			})
		}
	}
	run(t, fakemongo.Handlers{"insert": reply(t, `{"ok":0,"code":8,"errmsg":"x"}`)}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		res, err := c.BulkWrite(t.Context(), orders, mixed(t),
			client.BulkWriteOptions{Ordered: new(false)})
		if mongoerr.Code(err) != 8 || len(res.InsertedIDs) > 0 || len(writes(srv)) != 1 {
			t.Errorf("BulkWrite() = %+v, %v, want code 8 and the end", res, err)
		}
	})
}
