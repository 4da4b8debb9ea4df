package client_test

import (
	"errors"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestCRUDProse1 is "WriteConcernError.details exposes writeConcernError.errInfo".
func TestCRUDProse1(t *testing.T) {
	const info = `{"writeConcern":{"w":2,"wtimeout":0,"provenance":"clientSupplied"}}`
	answer := `{"n":1,"ok":1,"writeConcernError":{"code":100,"codeName":"UnsatisfiableWriteConcern","errmsg":"Not enough data-bearing nodes","errInfo":` + info + `}}`
	run(t, fakemongo.Handlers{"insert": reply(t, answer)}, func(
		t *testing.T, _ *fakemongo.Server, c *client.Client,
	) {
		models := []client.WriteModel{{Kind: client.InsertOne, Document: doc(t, `{"x":1}`)}}
		one, errOne := c.InsertOne(t.Context(), orders, doc(t, `{"x":1}`),
			client.InsertOneOptions{})
		bulk, errBulk := c.BulkWrite(t.Context(), orders, models, client.BulkWriteOptions{})
		if errOne != nil || errBulk != nil || len(bulk.WriteConcernErrors) != 1 {
			t.Fatalf("errors %v and %v, %+v", errOne, errBulk, bulk)
		}
		for _, wce := range []*mongoerr.WriteConcernError{
			one.WriteConcernError, bulk.WriteConcernErrors[0],
		} {
			if wce.Code != 100 || text(t, wce.Details) != info {
				t.Errorf("the write concern error is %+v, want the details %s", wce, info)
			}
		}
	})
}

// TestCRUDProse2 is "WriteError.details exposes writeErrors[].errInfo".
func TestCRUDProse2(t *testing.T) {
	const info = `{"failingDocumentId":1,"details":{"operatorName":"$type"}}`
	answer := `{"n":0,"ok":1,"writeErrors":[{"index":0,"code":121,"errmsg":"Document failed validation","errInfo":` + info + `}]}`
	run(t, fakemongo.Handlers{"insert": reply(t, answer)}, func(
		t *testing.T, _ *fakemongo.Server, c *client.Client,
	) {
		models := []client.WriteModel{{Kind: client.InsertOne, Document: doc(t, `{"x":1}`)}}
		_, errOne := c.InsertOne(t.Context(), orders, doc(t, `{"x":1}`), client.InsertOneOptions{})
		_, errBulk := c.BulkWrite(t.Context(), orders, models, client.BulkWriteOptions{})
		for _, err := range []error{errOne, errBulk} {
			failed, ok := errors.AsType[*mongoerr.WriteException](err)
			if !ok || failed.WriteErrors[0].Code != 121 ||
				text(t, failed.WriteErrors[0].Details) != info {
				t.Errorf("the error is %v, want the details %s", err, info)
			}
		}
	})
}

// TestCRUDProse14 is "explain helpers allow users to specify maxTimeMS".
func TestCRUDProse14(t *testing.T) {
	run(t, fakemongo.Handlers{"explain": reply(t, `{"ok":1}`)}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		find := doc(t, `{"find":"orders","filter":{"name":"john doe"}}`)
		if _, err := c.Explain(t.Context(), "shop", find,
			client.ExplainOptions{MaxTimeMS: new(int64(2000))}); err != nil {
			t.Fatal(err)
		}
		want := `{"explain":{"find":"orders","filter":{"name":"john doe"}},"maxTimeMS":2000}`
		if got := sent(t, srv, "explain"); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})
}

// TestCRUDProse16 is "generated document identifiers are the first field in their document".
func TestCRUDProse16(t *testing.T) {
	for name, insert := range map[string]func(*testing.T, *client.Client) error{
		"insertOne": func(t *testing.T, c *client.Client) error {
			_, err := c.InsertOne(t.Context(), orders, doc(t, `{"x":1}`), client.InsertOneOptions{})
			return err
		},
		"insertMany": func(t *testing.T, c *client.Client) error {
			_, err := c.InsertMany(t.Context(), orders, []bson.Raw{doc(t, `{"x":1}`)},
				client.InsertManyOptions{})
			return err
		},
		"bulkWrite": func(t *testing.T, c *client.Client) error {
			models := []client.WriteModel{{Kind: client.InsertOne, Document: doc(t, `{"x":1}`)}}
			_, err := c.BulkWrite(t.Context(), orders, models, client.BulkWriteOptions{})
			return err
		},
		"client bulkWrite": func(t *testing.T, c *client.Client) error {
			_, err := c.ClientBulkWrite(t.Context(), inserts(t, 1, orders, `{"x":1}`),
				client.NamespacedBulkWriteOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			(&bulkServer{}).run(t, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				if err := insert(t, c); err != nil {
					t.Fatal(err)
				}
				var sent bson.Raw
				if name == "client bulkWrite" {
					v, _ := srv.Commands("bulkWrite")[0].Documents("ops")[0].Lookup("document")
					sent, _ = v.Document()
				} else {
					sent = srv.Commands("insert")[0].Documents("documents")[0]
				}
				if sent.FirstKey() != "_id" {
					t.Errorf("sent %s, want _id first", text(t, sent))
				}
			})
		})
	}
}

func TestCommitQuorumOfOldServers(t *testing.T) {
	handlers := fakemongo.Handlers{"hello": helloWith(t, `{"maxWireVersion":8}`)}
	run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		models := []client.IndexModel{{Keys: doc(t, `{"a":1}`)}}
		_, err := c.CreateIndexes(t.Context(), orders, models,
			client.CreateIndexesOptions{CommitQuorum: bson.Int32Value(1)})
		if !isA[*client.ArgumentError](err) || len(srv.Commands("createIndexes")) > 0 {
			t.Errorf("CreateIndexes() = %v, want an error before anything is sent", err)
		}
	})
}
