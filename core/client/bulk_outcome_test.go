package client_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestInsertedIDs checks that a bulk names the documents that were inserted, and no others: after
// an error, an ordered command does not come to the rest.
func TestInsertedIDs(t *testing.T) {
	for name, tt := range map[string]struct {
		ordered bool
		reply   string
		want    []int
	}{
		"all": {true, `{"n":4,"ok":1}`, []int{0, 1, 2, 3}},
		"ordered": {
			true, `{"n":1,"writeErrors":[{"index":1,"code":11000,"errmsg":"dup"}],"ok":1}`,
			[]int{0},
		},
		"ordered, the first": {
			true, `{"n":0,"writeErrors":[{"index":0,"code":11000,"errmsg":"dup"}],"ok":1}`, nil,
		},
		"unordered": {
			false, `{"n":2,"writeErrors":[{"index":2,"code":11000,"errmsg":"dup"},
				{"index":0,"code":11000,"errmsg":"dup"}],"ok":1}`, []int{1, 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var docs []bson.Raw
			var models []client.WriteModel
			for range 4 {
				docs = append(docs, doc(t, `{}`))
				models = append(models,
					client.WriteModel{Kind: client.InsertOne, Document: docs[0]})
			}
			handlers := fakemongo.Handlers{"insert": reply(t, tt.reply)}
			run(t, handlers, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
				many, err := c.InsertMany(t.Context(), orders, docs,
					client.InsertManyOptions{Ordered: &tt.ordered})
				wantInserted(t, "InsertMany", many.InsertedIDs, err, tt.want)
				bulk, err := c.BulkWrite(t.Context(), orders, models,
					client.BulkWriteOptions{Ordered: &tt.ordered})
				wantInserted(t, "BulkWrite", bulk.InsertedIDs, err, tt.want)
			})
		})
	}
}

func wantInserted(t *testing.T, call string, ids []client.IndexedID, err error, want []int) {
	t.Helper()
	var got []int
	for _, id := range ids {
		got = append(got, id.Index)
	}
	if !slices.Equal(got, want) || (err == nil) != (len(want) == 4) {
		t.Errorf("%s: inserted %v, want %v; %v", call, got, want, err)
	}
}

// TestBulkWriteLabels checks that the error has the labels of all replies with write errors.
func TestBulkWriteLabels(t *testing.T) {
	failed := func(label string) string {
		return `{"n":0,"nModified":0,"writeErrors":[{"index":0,"code":1,"errmsg":"no"}],
			"errorLabels":["` + label + `"],"ok":1}`
	}
	handlers := fakemongo.Handlers{
		"insert": reply(t, failed("of the insert")), "update": reply(t, failed("of the update")),
		"delete": reply(t, `{"n":2,"ok":1}`),
	}
	run(t, handlers, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		_, err := c.BulkWrite(t.Context(), orders, mixed(t),
			client.BulkWriteOptions{Ordered: new(false)})
		want := []string{"of the insert", "of the update"}
		if got := mongoerr.Labels(err); !slices.Equal(got, want) {
			t.Errorf("BulkWrite() = %v with the labels %q, want %q", err, got, want)
		}
	})
}

// TestBulkOfSeveralCommands checks that the error of a later command does not say that nothing was
// done, since an earlier one was executed.
func TestBulkOfSeveralCommands(t *testing.T) {
	refused := fakemongo.Error(10107, "NotWritablePrimary", "no")
	for name, tt := range map[string]struct {
		second fakemongo.Reply
		want   mongoerr.Delivery
	}{
		"refused": {refused, mongoerr.Executed},
		"lost":    {fakemongo.Drop(), mongoerr.Unanswered},
	} {
		var inserts, bulks int
		second := func(n *int, first fakemongo.Reply) fakemongo.Handler {
			return func(*fakemongo.Command) fakemongo.Reply {
				if *n++; *n%2 == 0 {
					return tt.second
				}
				return first
			}
		}
		bulk := fakemongo.Document(doc(t, `{"cursor":{"id":0,"ns":"admin.$cmd.bulkWrite",
			"firstBatch":[]},"nErrors":0,"nInserted":1,"nMatched":0,"nModified":0,"nUpserted":0,
			"nDeleted":0,"ok":1}`))
		handlers := fakemongo.Handlers{
			"hello":     helloWith(t, `{"maxWriteBatchSize":1,"maxWireVersion":25}`),
			"insert":    second(&inserts, fakemongo.Document(doc(t, `{"n":1,"ok":1}`))),
			"bulkWrite": second(&bulks, bulk),
		}
		run(t, handlers, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
			one := client.WriteModel{Kind: client.InsertOne, Document: doc(t, `{}`)}
			res, err := c.BulkWrite(t.Context(), orders, []client.WriteModel{one, one, one},
				client.BulkWriteOptions{})
			if got := mongoerr.Judge(err).Delivery; got != tt.want || res.InsertedCount != 1 {
				t.Errorf("%s: BulkWrite() = %+v, %v, which is %v, want %v", name, res, err, got,
					tt.want)
			}
			several := []client.NamespacedWriteModel{
				{Namespace: orders, WriteModel: one}, {Namespace: orders, WriteModel: one},
			}
			all, err := c.ClientBulkWrite(t.Context(), several, client.NamespacedBulkWriteOptions{})
			if got := mongoerr.Judge(err).Delivery; got != tt.want || all.InsertedCount != 1 {
				t.Errorf("%s: ClientBulkWrite() = %+v, %v, which is %v, want %v", name, all, err,
					got, tt.want)
			}
		})
	}
	run(t, fakemongo.Handlers{"insert": fakemongo.Always(refused)},
		func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
			_, err := c.BulkWrite(t.Context(), orders, mixed(t), client.BulkWriteOptions{})
			if got := mongoerr.Judge(err).Delivery; got != mongoerr.Refused {
				t.Errorf("the first command: %v, which is %v, want refused", err, got)
			}
			if _, ok := errors.AsType[*mongoerr.CommandError](err); !ok {
				t.Errorf("BulkWrite() = %T", err)
			}
		})
}
