package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// bulkServer answers the bulkWrite command: it counts each write as one that succeeded, has the
// documents of cursor in the first batch and those of rest in a second one.
type bulkServer struct {
	limits       string // in the hello
	fields       string // in each reply, in place of the counts
	cursor, rest []string
	getMore      fakemongo.Handler // in place of the second batch
	reply        string            // in place of all that
}

func (s *bulkServer) handlers(t *testing.T) fakemongo.Handlers {
	limits := s.limits
	if limits == "" {
		limits = `{"maxWireVersion":25,"logicalSessionTimeoutMinutes":30}`
	}
	handlers := fakemongo.Handlers{
		"hello": helloWith(t, limits), "bulkWrite": s.bulkWrite(t), "getMore": s.getMore,
	}
	if s.reply != "" {
		handlers["bulkWrite"] = reply(t, s.reply)
	}
	if s.getMore == nil {
		handlers["getMore"] = reply(t,
			`{"cursor":{"id":0,"ns":"admin.$cmd.bulkWrite","nextBatch":[`+strings.Join(s.rest, ",")+
				`]},"ok":1}`)
	}
	return handlers
}

func (s *bulkServer) bulkWrite(t *testing.T) fakemongo.Handler {
	return func(cmd *fakemongo.Command) fakemongo.Reply {
		var inserted, updated, deleted int32
		for _, op := range cmd.Sequences["ops"] {
			switch op.FirstKey() {
			case "insert":
				inserted++
			case "update":
				updated++
			case "delete":
				deleted++
			}
		}
		id := int64(0)
		if s.rest != nil || s.getMore != nil {
			id = 42
		}
		b := bson.NewBuilder(nil)
		b.OpenDocument("cursor").Int64("id", id).String("ns", "admin.$cmd.bulkWrite").
			OpenArray("firstBatch")
		for _, json := range s.cursor {
			b.Document("", doc(t, json))
		}
		b.Close().Close()
		if s.fields != "" {
			b.AppendElements(doc(t, s.fields))
		} else {
			b.Int32("nErrors", 0).Int32("nInserted", inserted).Int32("nMatched", updated).
				Int32("nModified", updated).
				Int32("nUpserted", 0).Int32("nDeleted", deleted)
		}
		return fakemongo.Document(b.Int32("ok", 1).Finish())
	}
}

func (s *bulkServer) run(
	t *testing.T, test func(t *testing.T, srv *fakemongo.Server, c *client.Client),
) {
	t.Helper()
	run(t, s.handlers(t), test)
}

// inserts are n models that insert a document into the namespace.
func inserts(t *testing.T, n int, ns client.Namespace, json string) []client.NamespacedWriteModel {
	models := make([]client.NamespacedWriteModel, n)
	d := doc(t, json)
	for i := range models {
		models[i] = client.NamespacedWriteModel{
			Namespace: ns, WriteModel: client.WriteModel{Kind: client.InsertOne, Document: d},
		}
	}
	return models
}

var invoices = client.Namespace{Database: "books", Collection: "in.voices"}

// everywhere are the models of mixed, by turns in two namespaces.
func everywhere(t *testing.T) []client.NamespacedWriteModel {
	var models []client.NamespacedWriteModel
	for i, m := range mixed(t) {
		models = append(models, client.NamespacedWriteModel{
			Namespace: []client.Namespace{orders, invoices}[i%2], WriteModel: m,
		})
	}
	return models
}

// bulks are the bulkWrite commands that came: the writes of each, and its namespaces.
func bulks(srv *fakemongo.Server) string {
	var all []string
	for _, cmd := range srv.Commands("bulkWrite") {
		var names []string
		for _, d := range cmd.Sequences["nsInfo"] {
			v, _ := d.Lookup("ns")
			name, _ := v.Str()
			names = append(names, name)
		}
		all = append(all, fmt.Sprintf("%d %s", len(cmd.Sequences["ops"]), strings.Join(names, " ")))
	}
	return strings.Join(all, ", ")
}

func TestClientBulkWriteSends(t *testing.T) {
	(&bulkServer{}).run(t, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		_, err := c.ClientBulkWrite(t.Context(), everywhere(t), client.NamespacedBulkWriteOptions{
			Common: client.Common{
				Comment: bson.StringValue("c"), WriteConcern: &client.WriteConcern{Tag: "majority"},
				Extra: doc(t, `{"x":1}`),
			},
			Let: doc(t, `{"v":1}`), BypassDocumentValidation: new(false), VerboseResults: new(true),
		})
		if err != nil {
			t.Fatal(err)
		}
		want := `{"bulkWrite":1,"errorsOnly":false,"ordered":true,"bypassDocumentValidation":false,"comment":"c","let":{"v":1},` +
			`"writeConcern":{"w":"majority"},"x":1}`
		if got := sent(t, srv, "bulkWrite"); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		cmd := srv.Commands("bulkWrite")[0]
		var got []string
		for _, d := range cmd.Sequences["ops"] {
			if v, ok := d.Lookup("document", "_id"); ok && v.Type == bson.TypeObjectID {
				d = bson.NewBuilder(nil).String("generated", d.FirstKey()).Finish()
			}
			got = append(got, text(t, d))
		}
		wantOps := []string{
			`{"insert":0,"document":{"_id":7}}`,
			`{"generated":"insert"}`,
			`{"update":0,"filter":{"_id":1},"updateMods":{"$set":{"a":1}},"multi":false,"upsert":true,"sort":{"_id":1}}`,
			`{"delete":1,"filter":{"_id":1},"multi":false,"hint":"_id_"}`,
			`{"update":0,"filter":{},"updateMods":{"$set":{"a":1}},"multi":true,"arrayFilters":[]}`,
			`{"update":1,"filter":{"_id":1},"updateMods":{"b":1},"multi":false,"collation":{"locale":"de"}}`,
			`{"delete":0,"filter":{},"multi":true}`,
		}
		if !slices.Equal(got, wantOps) {
			t.Errorf("ops are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wantOps, "\n"))
		}
		if got, want := bulks(srv), "7 shop.orders books.in.voices"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})
}

// TestClientBulkWriteSizes checks the size that each kind of write is counted with: a message with
// room for exactly one write of its kind takes one, and a byte less takes none.
func TestClientBulkWriteSizes(t *testing.T) {
	models := everywhere(t)
	for i := range models {
		models[i].Collation = doc(t, `{"locale":"en"}`)
		if models[i].Kind == client.InsertOne {
			models[i].Collation = nil
		}
	}
	for i, m := range models {
		one := []client.NamespacedWriteModel{m}
		size := 0
		(&bulkServer{}).run(t, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
			if _, err := c.ClientBulkWrite(t.Context(), one,
				client.NamespacedBulkWriteOptions{}); err != nil {
				t.Fatal(err)
			}
			cmd := srv.Commands("bulkWrite")[0]
			size = len(cmd.Sequences["ops"][0]) + len(cmd.Sequences["nsInfo"][0])
		})
		for _, missing := range []int{0, 1} {
			limits := fmt.Sprintf(`{"maxWireVersion":25,"maxMessageSizeBytes":%d}`,
				1000+43+size-missing)
			(&bulkServer{limits: limits}).run(t, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				_, err := c.ClientBulkWrite(t.Context(), one, client.NamespacedBulkWriteOptions{})
				refused, _ := errors.AsType[*client.ArgumentError](err)
				if missing == 0 && err != nil ||
					missing == 1 &&
						(refused == nil || refused.Argument != "models.0" || !refused.TooLarge) {
					t.Errorf("model %d, %d bytes less: ClientBulkWrite() = %v", i, missing, err)
				}
			})
		}
	}
}

func TestClientBulkWriteResults(t *testing.T) {
	writes := []string{
		`{"ok":1,"idx":0,"n":1}`, `{"ok":1,"idx":1,"n":1}`, `{"ok":1,"idx":2,"n":1,"nModified":0,"upserted":{"_id":null}}`, `{"ok":1,"idx":3,"n":1}`,
		`{"ok":1,"idx":4,"n":3,"nModified":2}`, `{"ok":1.0,"idx":5,"n":0,"nModified":0}`, `{"ok":1,"idx":6,"n":9}`,
	}
	counts := `{"nErrors":0,"nInserted":2,"nMatched":3,"nModified":2,"nUpserted":1,"nDeleted":10}`
	for _, verbose := range []bool{true, false} {
		// Out of order, as an unordered bulk may be answered.
		s := bulkServer{
			fields: counts, cursor: []string{writes[6], writes[5], writes[4]},
			rest: []string{writes[3], writes[2], writes[1], writes[0]},
		}
		s.run(t, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
			res, err := c.ClientBulkWrite(t.Context(), everywhere(t),
				client.NamespacedBulkWriteOptions{VerboseResults: &verbose, Ordered: new(false)})
			if err != nil || !res.Acknowledged || !res.AnySucceeded || res.Verbose != verbose {
				t.Fatalf("ClientBulkWrite() = %+v, %v", res, err)
			}
			got := fmt.Sprint(res.InsertedCount, res.MatchedCount, res.ModifiedCount,
				res.UpsertedCount, res.DeletedCount)
			if got != "2 3 2 1 10" {
				t.Errorf("counts are %s", got)
			}
			if !verbose {
				if len(res.InsertResults)+len(res.UpdateResults)+len(res.DeleteResults) > 0 {
					t.Errorf("there are results: %+v", res)
				}
				return
			}
			if r := res.InsertResults; len(r) != 2 || r[0].Index != 0 || r[1].Index != 1 ||
				r[0].ID.Type != bson.TypeInt32 || r[1].ID.Type != bson.TypeObjectID {
				t.Errorf("insert results are %+v", r)
			}
			if r := res.UpdateResults; len(r) != 3 || !r[0].UpsertedID.IsNull() ||
				fmt.Sprint(r[0].Index, r[0].MatchedCount, r[0].ModifiedCount) != "2 1 0" ||
				fmt.Sprint(r[1].Index, r[1].MatchedCount, r[1].ModifiedCount,
					r[1].UpsertedID.IsZero()) != "4 3 2 true" || r[2].Index != 5 {
				t.Errorf("update results are %+v", r)
			}
			if got := fmt.Sprint(res.DeleteResults); got != "[{3 1} {6 9}]" {
				t.Errorf("delete results are %s", got)
			}
			if n := len(srv.Commands("killCursors")); n > 0 {
				t.Errorf("%d killCursors were sent", n)
			}
		})
	}
}

// TestClientBulkWriteErrors checks what is known after errors.
func TestClientBulkWriteErrors(t *testing.T) {
	const failed = `,"code":11000,"errmsg":"dup","errInfo":{"x":1}}`
	for name, test := range map[string]struct {
		server    bulkServer
		unordered bool
		succeeded bool
		writes    string           // the places of write errors
		kind      func(error) bool // of what ended the bulk
	}{
		"the first of an ordered one": {
			server: bulkServer{cursor: []string{`{"ok":0,"idx":0` + failed}, fields: `{"nErrors":1,"nInserted":0,"nMatched":0,"nModified":0,"nUpserted":0,"nDeleted":0}`},
			writes: "[0]",
		},
		"the second of an ordered one": {
			server:    bulkServer{cursor: []string{`{"ok":0,"idx":1` + failed}, fields: `{"nErrors":1,"nInserted":1,"nMatched":0,"nModified":0,"nUpserted":0,"nDeleted":0}`},
			succeeded: true, writes: "[1]",
		},
		"all of an unordered one": {
			server: bulkServer{
				cursor: []string{`{"ok":0,"idx":1` + failed},
				rest:   []string{`{"ok":0,"idx":0` + failed},
				fields: `{"nErrors":2,"nInserted":0,"nMatched":0,"nModified":0,"nUpserted":0,"nDeleted":0}`,
			},
			unordered: true, writes: "[0 1]",
		},
		"one of an unordered one": {
			server:    bulkServer{cursor: []string{`{"ok":0,"idx":0` + failed}, fields: `{"nErrors":1,"nInserted":1,"nMatched":0,"nModified":0,"nUpserted":0,"nDeleted":0}`},
			unordered: true, succeeded: true, writes: "[0]",
		},
		"the second of an ordered one, whose error is lost": {
			server: bulkServer{
				fields:  `{"nErrors":1,"nInserted":1,"nMatched":0,"nModified":0,"nUpserted":0,"nDeleted":0}`,
				getMore: reply(t, `{"ok":0,"code":43,"errmsg":"no cursor"}`),
			},
			succeeded: true, kind: isA[*client.NamespacedBulkWriteError],
		},
		"no index":        {server: bulkServer{cursor: []string{`{"ok":1,"n":1}`}}, succeeded: true, kind: isA[*mongoerr.MalformedReplyError]},
		"a foreign index": {server: bulkServer{cursor: []string{`{"ok":1,"idx":2,"n":1}`}}, succeeded: true, kind: isA[*operation.OutcomeUnknownError]},
		"no count":        {server: bulkServer{fields: `{"nErrors":0}`}, kind: isA[*mongoerr.MalformedReplyError]},
		"no cursor": {
			server: bulkServer{reply: `{"nErrors":0,"ok":1}`}, kind: isA[*operation.OutcomeUnknownError],
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.server.run(t, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
				models := inserts(t, 2, orders, `{"a":1}`)
				res, err := c.ClientBulkWrite(t.Context(), models,
					client.NamespacedBulkWriteOptions{Ordered: new(!test.unordered)})
				if res.AnySucceeded != test.succeeded {
					t.Errorf("AnySucceeded is %v, want %v", res.AnySucceeded, test.succeeded)
				}
				all, _ := errors.AsType[*client.NamespacedBulkWriteError](err)
				if test.kind != nil {
					if !test.kind(err) {
						t.Errorf("ClientBulkWrite() = %v", err)
					}
					return
				}
				var places []int
				for _, we := range all.WriteErrors {
					places = append(places, we.Index)
					if we.Code != 11000 || we.Message != "dup" || text(t, we.Details) != `{"x":1}` {
						t.Errorf("the write error is %+v", we)
					}
				}
				if got := fmt.Sprint(places); got != test.writes || all.Err != nil {
					t.Errorf("write errors at %s and %v, want %s", got, all.Err, test.writes)
				}
			})
		})
	}
}

func TestClientBulkWriteRefuses(t *testing.T) {
	one := inserts(t, 1, orders, `{}`)
	long := inserts(t, 1, orders, `{"long":"`+strings.Repeat("x", 100)+`"}`)
	bad := inserts(t, 2, orders, `{}`)
	bad[1].Kind = client.UpdateOne
	none := inserts(t, 1, client.Namespace{Database: "shop"}, `{}`)
	for name, test := range map[string]struct {
		models []client.NamespacedWriteModel
		opt    client.NamespacedBulkWriteOptions
		hello  string
		want   string
	}{
		"nothing":                        {nil, client.NamespacedBulkWriteOptions{}, "", "models"},
		"a bad model":                    {bad, client.NamespacedBulkWriteOptions{}, "", "models.1.update"},
		"no collection":                  {none, client.NamespacedBulkWriteOptions{}, "", "models.0.collection"},
		"verbose and unacknowledged":     {one, client.NamespacedBulkWriteOptions{Common: client.Common{WriteConcern: unacknowledged}, Ordered: new(false), VerboseResults: new(true)}, "", "verboseResults"},
		"ordered and unacknowledged":     {one, client.NamespacedBulkWriteOptions{Common: client.Common{WriteConcern: unacknowledged}}, "", "ordered"},
		"an option that is not in Extra": {one, client.NamespacedBulkWriteOptions{Common: client.Common{Extra: doc(t, `{"errorsOnly":false}`)}}, "", "options"},
		"a read concern":                 {one, client.NamespacedBulkWriteOptions{Common: client.Common{ReadConcern: &client.ReadConcern{}}}, "", "readConcern"},
		"an old server":                  {one, client.NamespacedBulkWriteOptions{}, `{"maxWireVersion":24}`, "bulkWrite"},
		"too large, unacknowledged":      {append(one, long...), client.NamespacedBulkWriteOptions{Common: client.Common{WriteConcern: unacknowledged}, Ordered: new(false)}, `{"maxBsonObjectSize":100,"maxWireVersion":25}`, "models.1"},
		"too large for any message":      {long, client.NamespacedBulkWriteOptions{}, `{"maxMessageSizeBytes":1100,"maxWireVersion":25}`, "models.0"},
		"a namespace that is too long":   {inserts(t, 1, client.Namespace{Database: "shop", Collection: strings.Repeat("c", 100)}, `{}`), client.NamespacedBulkWriteOptions{}, `{"maxMessageSizeBytes":1150,"maxWireVersion":25}`, "models.0"},
	} {
		t.Run(name, func(t *testing.T) {
			(&bulkServer{limits: test.hello}).run(t, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				res, err := c.ClientBulkWrite(t.Context(), test.models, test.opt)
				refused, ok := err.(*client.ArgumentError) //nolint:errorlint // not wrapped
				if !ok || refused.Argument != test.want || res.AnySucceeded {
					t.Errorf("ClientBulkWrite() = %+v, %v, want an error about %s", res, err,
						test.want)
				}
				if n := len(srv.Commands("bulkWrite")); n > 0 {
					t.Errorf("%d commands were sent before", n)
				}
			})
		})
	}
}

func TestClientBulkWriteErrorText(t *testing.T) {
	for want, err := range map[string]*client.NamespacedBulkWriteError{
		"bulk write: cut": {Err: errors.New("cut")},
		"bulk write: cut; write 3: a (FailedToParse, code 9) (and 1 more); write concern not " +
			"satisfied on h: c (code 64)": {
			Err:                errors.New("cut"),
			WriteErrors:        []mongoerr.WriteError{{Index: 3, Code: 9, Message: "a"}, {}},
			WriteConcernErrors: []*mongoerr.WriteConcernError{{Code: 64, Message: "c", Address: "h"}},
		},
	} {
		if err.Error() != want {
			t.Errorf("Error() = %q, want %q", err.Error(), want)
		}
	}
	secret := &client.NamespacedBulkWriteError{
		Err:         &mongoerr.CommandError{Code: 8, Message: "hunter2", Address: "h"},
		WriteErrors: []mongoerr.WriteError{{Index: 3, Code: 9, Message: "hunter2"}},
		WriteConcernErrors: []*mongoerr.WriteConcernError{
			{Code: 64, Message: "hunter2", Address: "h"},
		},
	}
	const outline = "bulk write: command failed on h: error (code 8); write 3: error " +
		"(FailedToParse, code 9); " +
		"write concern not satisfied on h: error (code 64)"
	if got := mongoerr.Outline(fmt.Errorf("x: %w", secret)); got != "x: "+outline {
		t.Errorf("Outline() = %q, want %q", got, "x: "+outline)
	}
}

// TestRetriedBatches checks that a retry of a batch has the same writes, ids and transaction number
// as the first attempt, and is not sent to a server that does not take as much.
func TestRetriedBatches(t *testing.T) {
	docs := []bson.Raw{doc(t, `{"a":1}`), doc(t, `{"a":2}`), doc(t, `{"a":3}`)}
	for name, write := range map[string]struct {
		command, sequence string
		run               func(context.Context, *client.Client) error
	}{
		"InsertMany": {"insert", "documents", func(ctx context.Context, c *client.Client) error {
			_, err := c.InsertMany(ctx, orders, docs, client.InsertManyOptions{})
			return err
		}},
		"ClientBulkWrite": {"bulkWrite", "ops", func(ctx context.Context, c *client.Client) error {
			_, err := c.ClientBulkWrite(ctx, inserts(t, 3, orders, `{"a":1}`),
				client.NamespacedBulkWriteOptions{})
			return err
		}},
	} {
		for _, smaller := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, smaller %v", name, smaller), func(t *testing.T) {
				// Later connections than the broken one have other limits.
				var broken atomic.Bool
				hello := func(cmd *fakemongo.Command) fakemongo.Reply {
					limit := 3
					if broken.Load() && smaller {
						limit = 2
					}
					return helloWith(t,
						fmt.Sprintf(`{"setName":"r","hosts":["fakemongo:27017"],"me":"fakemongo:27017",`+
							`"logicalSessionTimeoutMinutes":30,"maxWireVersion":25,"maxWriteBatchSize":%d}`, limit))(cmd)
				}
				handlers := (&bulkServer{}).handlers(t)
				answer := handlers[write.command]
				if answer == nil {
					answer = reply(t, `{"n":3,"ok":1}`)
				}
				handlers["hello"] = hello
				handlers[write.command] = func(cmd *fakemongo.Command) fakemongo.Reply {
					if broken.CompareAndSwap(false, true) {
						return fakemongo.Drop()
					}
					return answer(cmd)
				}
				run(t, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
					err := write.run(t.Context(), c)
					sent := srv.Commands(write.command)
					if smaller {
						if len(sent) != 1 || !mongoerr.IsNetwork(err) {
							t.Errorf("%d commands were sent, and the error is %v; want 1, and "+
								"that of the first", len(sent), err)
						}
						return
					}
					if err != nil || len(sent) != 2 {
						t.Fatalf("%d commands were sent, and the error is %v; want 2 and none",
							len(sent), err)
					}
					first, second := sent[0], sent[1]
					if !slices.EqualFunc(first.Sequences[write.sequence],
						second.Sequences[write.sequence], slices.Equal[bson.Raw]) ||
						len(first.Sequences[write.sequence]) != 3 {
						t.Errorf("sent %v, and then %v", first.Sequences, second.Sequences)
					}
					one, _ := first.Body.Lookup("txnNumber")
					two, _ := second.Body.Lookup("txnNumber")
					if one.IsZero() || !bytes.Equal(one.Data, two.Data) {
						t.Errorf("transaction numbers are %v and %v", one, two)
					}
				})
			})
		}
	}
}
