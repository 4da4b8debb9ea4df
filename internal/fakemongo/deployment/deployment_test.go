package deployment_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/unified/match"
)

func doc(t testing.TB, json string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatalf("Parse(%s) = %v", json, err)
	}
	return d
}

// connect makes a client of the deployment.
func connect(
	t *testing.T, d *deployment.Deployment, several bool, options map[string][]string,
) *client.Client {
	t.Helper()
	cfg, err := connstring.ParseWith(d.URI(several, options), options)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, cfg, client.Options{Dialer: d.Dial})
}

// connectTCP makes a client of a deployment that listens.
func connectTCP(t *testing.T, d *deployment.Deployment) *client.Client {
	t.Helper()
	cfg, err := connstring.Parse(d.URI(false, nil))
	if err != nil {
		t.Fatal(err)
	}
	return start(t, cfg, client.Options{})
}

func start(t *testing.T, cfg connstring.Config, options client.Options) *client.Client {
	t.Helper()
	c, err := client.New(cfg, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// run is the reply to a command, also to one that failed. All commands run in one session, since
// cursors belong to the session that has opened them.
func run(t *testing.T, c *client.Client, command string) bson.Raw {
	t.Helper()
	cmd := doc(t, command)
	if !cmd.Has("lsid") {
		cmd = bson.With(cmd, "lsid",
			bson.DocumentValue(bson.NewBuilder(nil).Binary("id", 4, make([]byte, 16)).Finish()))
	}
	reply, err := c.RunCommand(t.Context(), "db", cmd, client.RunCommandOptions{})
	if e, ok := errors.AsType[*mongoerr.CommandError](err); ok {
		return e.Reply
	}
	if err != nil {
		return bson.NewBuilder(nil).String("error", err.Error()).Finish()
	}
	return reply
}

// step is a command and what is expected of the reply, in the terms of package match.
type step struct{ command, reply string }

func TestCommands(t *testing.T) {
	const docs = `{"insert": "c", "documents": [{"_id": 1, "a": 3}, {"_id": 2, "a": 1}, {"_id": 3, "a": 2, "b": {"x": "y"}}]}`
	three := step{docs, `{"n": 3, "ok": 1}`}
	for name, steps := range map[string][]step{
		"insert gives an _id": {
			{`{"insert": "c", "documents": [{"a": 1}]}`, `{"n": 1}`},
			{`{"find": "c"}`, `{"cursor": {"firstBatch": [{"_id": {"$$type": "objectId"}, "a": 1}], "id": 0, "ns": "db.c"}}`},
		},
		"duplicate keys end an ordered insert": {
			three, {
				`{"insert": "c", "documents": [{"_id": 1}, {"_id": 4}]}`,
				`{"n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": {"$$type": "string"}, "keyPattern": {"_id": 1}, "keyValue": {"_id": 1}}]}`,
			},
		},
		"and not one that is not ordered": {
			three, {
				`{"insert": "c", "ordered": false, "documents": [{"_id": 1.0}, {"_id": 4}]}`,
				`{"n": 1, "writeErrors": [{"index": 0, "code": 11000, "errmsg": {"$$type": "string"}, "keyPattern": {"_id": 1}, "keyValue": {"_id": 1}}]}`,
			},
		},
		"find filters, sorts, skips and limits": {
			three,
			{`{"find": "c", "filter": {"a": {"$gte": 2}}, "sort": {"a": 1}}`, `{"cursor": {"firstBatch": [{"_id": 3, "a": 2, "b": {"x": "y"}}, {"_id": 1, "a": 3}], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "sort": {"a": -1}, "skip": 1, "limit": 1}`, `{"cursor": {"firstBatch": [{"_id": 3, "a": 2, "b": {"x": "y"}}], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "filter": {"b.x": "y"}}`, `{"cursor": {"firstBatch": [{"_id": 3, "a": 2, "b": {"x": "y"}}], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "filter": {"$or": [{"_id": 1}, {"_id": {"$in": [2, 9]}}], "$comment": "x"}}`, `{"cursor": {"firstBatch": [{"_id": 1, "a": 3}, {"_id": 2, "a": 1}], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "filter": {"$and": [{"_id": {"$ne": 1}}, {"_id": {"$nin": [3]}}, {"b": {"$exists": false}}, {"b": null}]}}`, `{"cursor": {"firstBatch": [{"_id": 2, "a": 1}], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "filter": {"a": {"$gt": 1, "$lt": 3, "$lte": 2, "$eq": 2}}}`, `{"cursor": {"firstBatch": [{"_id": 3, "a": 2, "b": {"x": "y"}}], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "filter": {"a": {"$gt": "1"}}}`, `{"cursor": {"firstBatch": [], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "sort": {"b": -1, "_id": 1}}`, `{"cursor": {"firstBatch": [{"_id": 3, "a": 2, "b": {"x": "y"}}, {"_id": 1, "a": 3}, {"_id": 2, "a": 1}], "id": 0, "ns": "db.c"}}`},
		},
		"find projects, and keeps to bounds": {
			three,
			{`{"find": "c", "projection": {"a": 1}}`, `{"cursor": {"firstBatch": [{"_id": 1, "a": 3}, {"_id": 2, "a": 1}, {"_id": 3, "a": 2}], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "projection": {"_id": 0, "b": true}, "min": {"_id": 2}, "max": {"_id": 4}}`, `{"cursor": {"firstBatch": [{}, {"b": {"x": "y"}}], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "filter": {"_id": {"$gt": 1}}, "projection": {}, "max": {"_id": 3}}`, `{"cursor": {"firstBatch": [{"_id": 2, "a": 1}], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "sort": {"_id": -1}, "limit": 2, "returnKey": true, "showRecordId": true}`, `{"cursor": {"firstBatch": [{"_id": 3}, {"_id": 2}], "id": 0, "ns": "db.c"}}`},
		},
		"what is not known is refused": {
			{`{"find": "c", "filter": {"$nope": 1}}`, `{"ok": 0, "code": 2, "codeName": "BadValue"}`},
			{`{"find": "c", "filter": {"a": {"$nope": 1}}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "filter": {"$or": true}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "filter": {"$and": [1]}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "filter": {"$or": [{"$nope": 1}]}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "filter": {"$where": "1"}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "sort": {"a": "x"}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "nope": {}}`, `{"ok": 0, "code": 40415}`},
			{`{"find": "c", "projection": {"a": 0, "b": 1}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "projection": {"a.b": 1}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "projection": {"a": {"$slice": 1}}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "showRecordId": true}`, `{"ok": 0, "code": 2}`},
			{`{"aggregate": "c", "pipeline": [{"$nope": 1}], "cursor": {}}`, `{"ok": 0, "code": 40324}`},
			{`{"nope": "c"}`, `{"ok": 0, "code": 59}`},
			{`{"configureFailPoint": "nope", "mode": "off"}`, `{"ok": 0, "code": 2}`},
			{`{"configureFailPoint": "failCommand", "mode": "nope"}`, `{"ok": 0, "code": 2}`},
			{`{"configureFailPoint": "failCommand", "mode": {"nope": 1}}`, `{"ok": 0, "code": 2}`},
			{`{"configureFailPoint": "failCommand", "mode": {"times": -1}}`, `{"ok": 0, "code": 2}`},
			{`{"configureFailPoint": "failCommand", "mode": "off", "data": {"nope": 1}}`, `{"ok": 0, "code": 40415}`},
			{`{"configureFailPoint": "failCommand", "mode": "off", "data": {"failCommands": [1]}}`, `{"ok": 0, "code": 14}`},
			{`{"getMore": {"$numberLong": "7"}, "collection": "c"}`, `{"ok": 0, "code": 43}`},
			{`{"update": "c", "updates": [{"q": {"$nope": 1}, "u": {}}]}`, `{"n": 0, "writeErrors": [{"index": 0, "code": 2, "errmsg": {"$$type": "string"}}]}`},
			{`{"update": "c", "updates": [{"q": {}, "u": {"$nope": {"a": 1}}, "upsert": true}]}`, `{"writeErrors": [{"index": 0, "code": 9, "errmsg": {"$$type": "string"}}]}`},
			{`{"update": "c", "updates": [{"q": {}, "u": [], "upsert": true}]}`, `{"writeErrors": [{"index": 0, "code": 9, "errmsg": {"$$type": "string"}}]}`},
			{`{"update": "c", "updates": [{"q": {}, "u": {"$set": {"a.$[x]": 1}}, "upsert": true}]}`, `{"writeErrors": [{"index": 0, "code": 2, "errmsg": {"$$type": "string"}}]}`},
			{`{"update": "c", "updates": [{"q": {"a": 1}, "u": {"$set": {"a.b": 1}}, "upsert": true}]}`, `{"writeErrors": [{"index": 0, "code": 2, "errmsg": {"$$type": "string"}}]}`},
			{`{"update": "c", "updates": [{"q": {}, "u": [{"$nope": 1}]}]}`, `{"ok": 0, "code": 40324}`},
			{`{"findAndModify": "c", "update": [{"$nope": 1}]}`, `{"ok": 0, "code": 40324}`},
			{`{"update": "c", "updates": [{"q": {}, "u": [{"$replaceWith": 1}], "upsert": true}]}`, `{"writeErrors": [{"index": 0, "code": 2, "errmsg": {"$$type": "string"}}]}`},
			{`{"update": "c", "updates": [{"q": {}, "u": {}, "sort": {"a": 1}}]}`, `{"ok": 0, "code": 40415}`},
			{`{"delete": "c", "deletes": [{"q": {}, "limit": 1, "hint": "x_1"}]}`, `{"writeErrors": [{"index": 0, "code": 2, "errmsg": {"$$type": "string"}}]}`},
			{`{"delete": "c", "deletes": [{"q": {}, "limit": 1, "nope": 1}]}`, `{"ok": 0, "code": 40415}`},
			{`{"insert": "c", "documents": [{"_id": {"$a": 1}}]}`, `{"n": 0, "writeErrors": [{"index": 0, "code": 52, "errmsg": {"$$type": "string"}}]}`},
			{`{"find": "c", "collation": {"locale": "de", "backwards": true}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "filter": {"$expr": {"$nope": 1}}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "filter": {"$expr": {"$eq": [1]}}}`, `{"ok": 0, "code": 2}`},
			{`{"find": "c", "filter": {"$expr": "$$nope"}}`, `{"ok": 0, "code": 17276}`},
			{`{"find": "c", "let": {"x": "$$nope"}}`, `{"ok": 0, "code": 17276}`},
			{`{"find": "c", "projection": {"a": {"$setField": {"field": 1}}}}`, `{"ok": 0, "code": 2}`},
			{`{"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}, "readConcern": {"level": "linearizable"}}`, `{"ok": 0, "code": 72}`},
		},
		"an update keeps the _id": {
			three,
			{`{"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"_id": 9}}}]}`, `{"n": 0, "writeErrors": [{"index": 0, "code": 66, "errmsg": {"$$type": "string"}}]}`},
			{`{"findAndModify": "c", "query": {"_id": 2}, "update": {"_id": 9}}`, `{"ok": 0, "code": 66, "codeName": "ImmutableField"}`},
			{`{"find": "c", "filter": {"_id": 2}}`, `{"cursor": {"firstBatch": [{"_id": 2, "a": 1}], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "skip": -1}`, `{"ok": 0, "code": 51024}`},
		},
		"$inc is for numbers": {
			three,
			{`{"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$inc": {"b": 1}}}]}`, `{"n": 0, "writeErrors": [{"index": 0, "code": 14, "errmsg": {"$$type": "string"}}]}`},
			{`{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"z": "x"}}}]}`, `{"n": 0, "writeErrors": [{"index": 0, "code": 14, "errmsg": {"$$type": "string"}}]}`},
		},
		"findAndModify says what it did": {
			three,
			{`{"findAndModify": "c", "query": {"_id": 1}, "update": {"a": 4}}`, `{"lastErrorObject": {"n": 1, "updatedExisting": true}}`},
			{`{"findAndModify": "c", "query": {"_id": 9}, "update": {"a": 4}}`, `{"lastErrorObject": {"n": 0, "updatedExisting": false}, "value": null}`},
			{`{"findAndModify": "c", "query": {"_id": 9}, "update": {"a": 4}, "upsert": true}`, `{"lastErrorObject": {"n": 1, "updatedExisting": false, "upserted": 9}, "value": null}`},
			{`{"findAndModify": "c", "query": {"_id": 9}, "remove": true}`, `{"lastErrorObject": {"n": 1}, "value": {"_id": 9, "a": 4}}`},
			{`{"findAndModify": "c", "query": {"_id": 9}, "remove": true}`, `{"lastErrorObject": {"n": 0}, "value": null}`},
		},
		"what is not there is told": {
			three,
			{`{"killCursors": "c", "cursors": [{"$numberLong": "7"}]}`, `{"cursorsKilled": [], "cursorsNotFound": [7], "cursorsAlive": [], "cursorsUnknown": []}`},
			{`{"aggregate": "c", "pipeline": []}`, `{"ok": 0, "code": 9, "codeName": "FailedToParse"}`},
			{`{"drop": "c"}`, `{"nIndexesWas": 1, "ns": "db.c"}`},
		},
		"an index is made once": {
			{`{"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "x"}]}`, `{"numIndexesBefore": 1, "numIndexesAfter": 2, "createdCollectionAutomatically": true}`},
			{`{"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "x"}]}`, `{"numIndexesBefore": 2, "numIndexesAfter": 2, "note": {"$$type": "string"}}`},
			{`{"createIndexes": "c", "indexes": [{"key": {"b": 1}, "name": "x"}]}`, `{"ok": 0, "code": 86, "codeName": "IndexKeySpecsConflict"}`},
			{`{"dropIndexes": "c", "index": "x"}`, `{"nIndexesWas": 2}`},
		},
		"a cursor stays open behind a full batch": {
			three,
			{`{"find": "c", "batchSize": 3}`, `{"cursor": {"firstBatch": {"$$type": "array"}, "id": 1099511627777, "ns": "db.c"}}`},
			{`{"getMore": {"$numberLong": "1099511627777"}, "collection": "c"}`, `{"cursor": {"nextBatch": [], "id": 0, "ns": "db.c"}}`},
			{`{"getMore": {"$numberLong": "1099511627777"}, "collection": "c"}`, `{"ok": 0, "code": 43}`},
		},
		"but not behind the last of a limit, nor of a single batch": {
			three,
			{`{"find": "c", "batchSize": 1, "limit": 2}`, `{"cursor": {"firstBatch": [{"_id": 1, "a": 3}], "id": 1099511627777, "ns": "db.c"}}`},
			{`{"getMore": {"$numberLong": "1099511627777"}, "collection": "c", "batchSize": 1}`, `{"cursor": {"nextBatch": [{"_id": 2, "a": 1}], "id": 0, "ns": "db.c"}}`},
			{`{"find": "c", "batchSize": 1, "singleBatch": true}`, `{"cursor": {"firstBatch": [{"_id": 1, "a": 3}], "id": 0, "ns": "db.c"}}`},
		},
		"a cursor can be killed": {
			three,
			{`{"aggregate": "c", "pipeline": [], "cursor": {"batchSize": 0}}`, `{"cursor": {"firstBatch": [], "id": 1099511627777, "ns": "db.c"}}`},
			{`{"killCursors": "c", "cursors": [{"$numberLong": "1099511627777"}]}`, `{"cursorsKilled": [1099511627777]}`},
			{`{"getMore": {"$numberLong": "1099511627777"}, "collection": "c"}`, `{"ok": 0, "code": 43}`},
		},
		"a tailable cursor of a capped collection": {
			{`{"create": "c", "capped": true, "size": 4096, "max": 2}`, `{"ok": 1}`},
			{`{"create": "c"}`, `{"ok": 0, "code": 48}`},
			{`{"create": "c", "capped": true, "size": 4096, "max": 2}`, `{"ok": 1}`},
			three,
			{`{"find": "c", "tailable": true}`, `{"cursor": {"firstBatch": [{"_id": 2, "a": 1}, {"_id": 3, "a": 2, "b": {"x": "y"}}], "id": 1099511627777, "ns": "db.c"}}`},
			{`{"getMore": {"$numberLong": "1099511627777"}, "collection": "c"}`, `{"cursor": {"nextBatch": [], "id": 1099511627777, "ns": "db.c"}}`},
		},
		"aggregate": {
			three,
			{`{"aggregate": "c", "pipeline": [{"$match": {"a": {"$gt": 1}}}, {"$sort": {"a": 1}}, {"$limit": 1}], "cursor": {}}`, `{"cursor": {"firstBatch": [{"_id": 3, "a": 2, "b": {"x": "y"}}], "id": 0, "ns": "db.c"}}`},
			{`{"aggregate": "c", "pipeline": [{"$match": {"_id": 2}}, {"$out": "d"}], "cursor": {}}`, `{"cursor": {"firstBatch": [], "id": 0, "ns": "db.c"}}`},
			{`{"find": "d"}`, `{"cursor": {"firstBatch": [{"_id": 2, "a": 1}], "id": 0, "ns": "db.d"}}`},
			{`{"aggregate": "c", "pipeline": [{"$match": {"_id": {"$gt": 1}}}, {"$merge": {"into": "d"}}], "cursor": {}}`, `{"cursor": {"firstBatch": [], "id": 0, "ns": "db.c"}}`},
			{`{"find": "d"}`, `{"cursor": {"firstBatch": [{"_id": 2, "a": 1}, {"_id": 3, "a": 2, "b": {"x": "y"}}], "id": 0, "ns": "db.d"}}`},
			{`{"aggregate": "c", "pipeline": [{"$merge": {"into": "d", "on": "x"}}], "cursor": {}}`, `{"ok": 0, "code": 2}`},
			{`{"aggregate": 1, "pipeline": [{"$listLocalSessions": {}}, {"$limit": 1}], "cursor": {}}`, `{"cursor": {"firstBatch": [{"_id": {"id": 1}}], "id": 0, "ns": "db."}}`},
			{`{"aggregate": 1, "pipeline": [{"$documents": [{"_id": 2}]}, {"$merge": {"into": "d", "whenMatched": "fail"}}], "cursor": {}}`, `{"ok": 0, "code": 11000, "keyPattern": {"_id": 1}, "keyValue": {"_id": 2}}`},
			{`{"aggregate": 1, "pipeline": [{"$documents": [{"_id": 2, "a": 1}]}, {"$addFields": {"b": "$a"}}, {"$project": {"_id": 0, "b": 1}}], "cursor": {}}`, `{"cursor": {"firstBatch": [{"b": 1}], "id": 0, "ns": "db."}}`},
			{`{"aggregate": "c", "pipeline": [{"$match": {"$nope": 2}}], "cursor": {}}`, `{"ok": 0, "code": 2}`},
		},
		"update": {
			three,
			{`{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 9, "z": 1}}}, {"q": {}, "u": {"$inc": {"a": 1, "n": 1}}, "multi": true}]}`, `{"n": 4, "nModified": 4}`},
			{`{"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$unset": {"b": 1}}}, {"q": {"_id": 2}, "u": {"r": 1}}, {"q": {"_id": 2}, "u": {"$set": {"r": 1}}}]}`, `{"n": 3, "nModified": 2}`},
			{`{"update": "c", "updates": [{"q": {"_id": 4, "a": {"$gt": 3}}, "u": {"$set": {"a": 4}}, "upsert": true}]}`, `{"n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 4}]}`},
			{`{"update": "c", "updates": [{"q": {"a": 7}, "u": {"b": 7}, "upsert": true}]}`, `{"n": 1, "upserted": [{"index": 0, "_id": {"$$type": "objectId"}}]}`},
			{`{"find": "c", "filter": {"_id": {"$lte": 4}}}`, `{"cursor": {"firstBatch": [{"_id": 1, "a": 10, "z": 1, "n": 1}, {"_id": 2, "r": 1}, {"_id": 3, "a": 3, "n": 1}, {"_id": 4, "a": 4}], "id": 0, "ns": "db.c"}}`},
		},
		"update within documents": {
			{`{"insert": "c", "documents": [{"_id": 1, "a": {"b": 1}, "y": [{"b": 3}, {"b": 1}]}]}`, `{"n": 1}`},
			{`{"update": "c", "updates": [{"q": {}, "u": {"$set": {"a.c": 2, "y.$[i].b": 4, "n.m": 1}, "$unset": {"a.b": 1}}, "arrayFilters": [{"i.b": 3}]}]}`, `{"n": 1, "nModified": 1}`},
			{`{"find": "c"}`, `{"cursor": {"firstBatch": [{"_id": 1, "a": {"c": 2}, "y": [{"b": 4}, {"b": 1}], "n": {"m": 1}}], "id": 0, "ns": "db.c"}}`},
		},
		"update that appends to an array": {
			{`{"insert": "c", "documents": [{"_id": 1, "l": [1], "s": "x"}]}`, `{"n": 1}`},
			{`{"update": "c", "updates": [{"q": {}, "u": {"$push": {"l": 2, "n.l": {"a": 1}}}}]}`, `{"n": 1, "nModified": 1}`},
			{`{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$push": {"s": 1}}}]}`, `{"n": 0, "writeErrors": [{"index": 0, "code": 2, "errmsg": {"$$exists": true}}]}`},
			{`{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$push": {"l": {"$each": [1]}}}}]}`, `{"n": 0, "writeErrors": [{"index": 0, "code": 2, "errmsg": {"$$exists": true}}]}`},
			{`{"findAndModify": "c", "query": {"_id": 2}, "update": {"$push": {"l": 1}}, "upsert": true, "new": true}`, `{"value": {"_id": 2, "l": [1]}}`},
			{`{"find": "c", "filter": {"_id": 1}}`, `{"cursor": {"firstBatch": [{"_id": 1, "l": [1, 2], "s": "x", "n": {"l": [{"a": 1}]}}], "id": 0, "ns": "db.c"}}`},
		},
		"update by a pipeline": {
			three,
			{`{"update": "c", "updates": [{"q": {"$expr": {"$eq": ["$_id", "$$id"]}}, "u": [{"$set": {"x": "$$x", "y": "$a", "z": "$none"}}, {"$unset": ["a"]}]}], "let": {"id": 1, "x": {"$literal": "$y"}}}`, `{"n": 1, "nModified": 1}`},
			{`{"update": "c", "updates": [{"q": {"_id": 2}, "u": [{"$replaceRoot": {"newRoot": {"p": "$a", "q": {"$setField": {"field": {"$literal": "$k"}, "input": {}, "value": 1}}}}}]}]}`, `{"n": 1, "nModified": 1}`},
			{`{"update": "c", "updates": [{"q": {"_id": 3}, "u": [{"$replaceWith": "$b"}, {"$project": {"x": 1, "w": "$x"}}]}]}`, `{"n": 1, "nModified": 1}`},
			{`{"find": "c"}`, `{"cursor": {"firstBatch": [{"_id": 1, "x": "$y", "y": 3}, {"_id": 2, "p": 1, "q": {"$k": 1}}, {"_id": 3, "x": "y", "w": "y"}], "id": 0, "ns": "db.c"}}`},
		},
		"collation": {
			{`{"insert": "c", "documents": [{"_id": 1, "x": "ping"}, {"_id": 2, "x": "PING"}]}`, `{"n": 2}`},
			{`{"count": "c", "query": {"x": "Ping"}, "collation": {"locale": "en_US", "strength": 2}}`, `{"n": 2}`},
			{`{"count": "c", "query": {"x": "Ping"}, "collation": {"locale": "en_US", "strength": 3}}`, `{"n": 0}`},
			{`{"distinct": "c", "key": "x", "collation": {"locale": "en_US", "strength": 2}}`, `{"values": ["ping"]}`},
			{`{"count": "c", "query": {"x": {"$type": "string"}}, "skip": 1, "limit": 1}`, `{"n": 1}`},
		},
		"delete, drop": {
			three,
			{`{"delete": "c", "deletes": [{"q": {}, "limit": 1}]}`, `{"n": 1}`},
			{`{"delete": "c", "deletes": [{"q": {"_id": {"$gt": 1}}, "limit": 0}]}`, `{"n": 2}`},
			{`{"drop": "c"}`, `{"ok": 1}`},
			{`{"find": "c"}`, `{"cursor": {"firstBatch": [], "id": 0, "ns": "db.c"}}`},
		},
		"findAndModify": {
			three,
			{`{"findAndModify": "c", "query": {}, "sort": {"a": 1}, "update": {"$set": {"a": 5}}}`, `{"value": {"_id": 2, "a": 1}}`},
			{`{"findAndModify": "c", "query": {"_id": 2}, "update": {"$set": {"a": 6}}, "new": true}`, `{"value": {"_id": 2, "a": 6}}`},
			{`{"findAndModify": "c", "query": {"_id": 2}, "remove": true}`, `{"value": {"_id": 2, "a": 6}}`},
			{`{"findAndModify": "c", "query": {"_id": 2}, "remove": true}`, `{"value": null}`},
			{`{"findAndModify": "c", "query": {"_id": 2}, "update": {"a": 1}, "upsert": true, "new": true}`, `{"value": {"_id": 2, "a": 1}}`},
			{`{"findAndModify": "c", "query": {"_id": 5}, "update": {"a": 1}, "upsert": true}`, `{"value": null}`},
			{`{"findAndModify": "c", "query": {"_id": 2}, "update": {"$nope": 1}}`, `{"ok": 0, "code": 9}`},
			{`{"findAndModify": "c", "query": {"$nope": 2}, "update": {"a": 1}}`, `{"ok": 0, "code": 2}`},
		},
		"count, distinct": {
			three,
			{`{"count": "c", "query": {"a": {"$gt": 1}}}`, `{"n": 2}`},
			{`{"count": "c", "query": {"$nope": 1}}`, `{"ok": 0, "code": 2}`},
			{`{"aggregate": "c", "pipeline": [{"$skip": 1}, {"$group": {"_id": 1, "n": {"$sum": 1}}}], "cursor": {}}`, `{"cursor": {"firstBatch": [{"_id": 1, "n": 2}], "id": 0, "ns": "db.c"}}`},
			{`{"aggregate": "c", "pipeline": [{"$skip": 9}, {"$group": {"_id": 1, "n": {"$sum": 1}}}], "cursor": {}}`, `{"cursor": {"firstBatch": [], "id": 0, "ns": "db.c"}}`},
			{`{"aggregate": "c", "pipeline": [{"$group": {"_id": 1}}], "cursor": {}}`, `{"ok": 0, "code": 2}`},
			{`{"insert": "c", "documents": [{"_id": 4, "a": 1.0}]}`, `{"n": 1}`},
			{`{"distinct": "c", "key": "a", "query": {"_id": {"$ne": 3}}}`, `{"values": [3, 1]}`},
			{`{"distinct": "c", "key": "b.x"}`, `{"values": ["y"]}`},
			{`{"distinct": "c", "key": "a", "query": {"$nope": 1}}`, `{"ok": 0, "code": 2}`},
		},
		"the stable API": {
			{`{"ping": 1, "apiVersion": "1", "apiStrict": true}`, `{"ok": 1}`},
			{`{"ping": 1, "apiVersion": "3"}`, `{"ok": 0, "code": 322}`},
			{`{"ping": 1, "apiStrict": true}`, `{"ok": 0, "code": 322}`},
			{`{"testVersion2": 1, "apiVersion": "1"}`, `{"ok": 1}`},
			{`{"testVersion2": 1, "apiVersion": "1", "apiStrict": true}`, `{"ok": 0, "code": 323}`},
			{`{"aggregate": 1, "pipeline": [{"$listLocalSessions": {}}], "cursor": {}, "apiVersion": "1", "apiStrict": true}`, `{"ok": 0, "code": 323}`},
			{`{"testDeprecationInVersion2": 1, "apiVersion": "2"}`, `{"ok": 1}`},
			{`{"testDeprecationInVersion2": 1, "apiVersion": "2", "apiDeprecationErrors": true}`, `{"ok": 0, "code": 324}`},
		},
		"a capped collection": {
			{`{"create": "c", "capped": true, "size": 4096}`, `{"ok": 1}`},
			{`{"aggregate": "c", "pipeline": [{"$collStats": {"storageStats": {}}}], "cursor": {}}`, `{"cursor": {"firstBatch": [{"storageStats": {"capped": true, "maxSize": 4096}}], "id": 0, "ns": "db.c"}}`},
			{`{"aggregate": "c", "pipeline": [{"$collStats": {"count": {}}}], "cursor": {}}`, `{"ok": 0, "code": 2}`},
			{`{"insert": "c", "documents": [{"_id": 1}, {"_id": 2}]}`, `{"n": 2}`},
			{`{"find": "c", "filter": {"_id": {"$gt": 1}}, "tailable": true}`, `{"cursor": {"firstBatch": [{"_id": 2}], "id": 1099511627777, "ns": "db.c"}}`},
			{`{"insert": "c", "documents": [{"_id": 0}, {"_id": 3}]}`, `{"n": 2}`},
			{`{"getMore": {"$numberLong": "1099511627777"}, "collection": "c"}`, `{"cursor": {"nextBatch": [{"_id": 3}], "id": 1099511627777, "ns": "db.c"}}`},
		},
		"views": {
			three,
			{`{"create": "v", "viewOn": "c", "pipeline": [{"$match": {"_id": {"$gt": 1}}}]}`, `{"ok": 1}`},
			{`{"count": "v", "query": {"a": 1}}`, `{"n": 1}`},
			{`{"create": "w", "viewOn": "c", "pipeline": [{"$nope": 1}]}`, `{"ok": 1}`},
			{`{"count": "w"}`, `{"ok": 0, "code": 40324}`},
			{`{"listCollections": 1, "filter": {"type": "view"}, "nameOnly": true, "cursor": {"batchSize": 1}}`, `{"cursor": {"firstBatch": [{"name": "v", "type": "view"}], "id": 1099511627777, "ns": "db.$cmd.listCollections"}}`},
			{`{"listCollections": 1, "filter": {"$nope": 1}, "cursor": {}}`, `{"ok": 0, "code": 2}`},
		},
		"collections with options": {
			{`{"create": "ts", "timeseries": {"timeField": "t"}}`, `{"ok": 1}`},
			{`{"insert": "ts", "documents": [{"_id": 1}, {"_id": 1}]}`, `{"n": 2}`},
			{`{"create": "c", "clusteredIndex": {"key": {"_id": 1}, "unique": true, "name": "x"}, "changeStreamPreAndPostImages": {"enabled": false}}`, `{"ok": 1}`},
			{`{"listIndexes": "c", "cursor": {}}`, `{"cursor": {"firstBatch": [{"key": {"_id": 1}, "unique": true, "name": "x", "v": 2, "clustered": true}], "id": 0, "ns": "db.c"}}`},
			{`{"collMod": "c", "changeStreamPreAndPostImages": {"enabled": true}}`, `{"ok": 1}`},
			{`{"listCollections": 1, "filter": {"name": "c"}, "cursor": {}}`, `{"cursor": {"firstBatch": [{"name": "c", "type": "collection", "options": {"clusteredIndex": {"key": {"_id": 1}, "unique": true, "name": "x", "v": 2}, "changeStreamPreAndPostImages": {"enabled": true}}, "info": {"readOnly": false, "uuid": {"$$type": "binData"}}}], "id": 0, "ns": "db.$cmd.listCollections"}}`},
			{`{"collMod": "nope"}`, `{"ok": 0, "code": 26}`},
		},
		"indexes": {
			{`{"insert": "c", "documents": [{"_id": 1, "x": 1}, {"_id": 2, "x": 1}]}`, `{"n": 2}`},
			{`{"createIndexes": "c", "indexes": [{"key": {"x": 1}, "name": "x_1"}]}`, `{"numIndexesBefore": 1, "numIndexesAfter": 2}`},
			{`{"find": "c", "hint": {"x": 1}, "filter": {"_id": 1}}`, `{"cursor": {"firstBatch": [{"_id": 1, "x": 1}], "id": 0, "ns": "db.c"}}`},
			{`{"collMod": "c", "index": {"keyPattern": {"x": 1}, "unique": true}}`, `{"ok": 0, "code": 359, "violations": [{"ids": [1, 2]}]}`},
			{`{"collMod": "c", "index": {"keyPattern": {"x": 1}, "prepareUnique": true}}`, `{"ok": 1}`},
			{`{"insert": "c", "documents": [{"x": 1}]}`, `{"n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": {"$$type": "string"}, "keyPattern": {"x": 1}, "keyValue": {"x": 1}}]}`},
			{`{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"y": 1}}}]}`, `{"n": 1}`},
			{`{"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]}`, `{"n": 1}`},
			{`{"collMod": "c", "index": {"keyPattern": {"x": 1}, "unique": true}}`, `{"ok": 1}`},
			{`{"collMod": "c", "index": {"keyPattern": {"x": 1}, "nope": true}}`, `{"ok": 0, "code": 40415}`},
			{`{"collMod": "c", "index": {"keyPattern": {"y": 1}}}`, `{"ok": 0, "code": 27}`},
			{`{"createIndexes": "c", "indexes": [{"key": {"x": 1}}]}`, `{"ok": 0, "code": 2}`},
			{`{"createIndexes": "c", "indexes": [{"key": {"x": 1}, "name": "y", "nope": 1}]}`, `{"ok": 0, "code": 2}`},
			{`{"dropIndexes": "c", "index": "y_1"}`, `{"ok": 0, "code": 27}`},
			{`{"dropIndexes": "c", "index": "x_1"}`, `{"ok": 1}`},
			{`{"dropIndexes": "c", "index": "*"}`, `{"ok": 1}`},
			{`{"listIndexes": "c", "cursor": {}}`, `{"cursor": {"firstBatch": [{"v": 2, "key": {"_id": 1}, "name": "_id_"}], "id": 0, "ns": "db.c"}}`},
			{`{"dropIndexes": "nope", "index": "*"}`, `{"ok": 0, "code": 26}`},
			{`{"listIndexes": "nope", "cursor": {}}`, `{"ok": 0, "code": 26}`},
		},
		"listDatabases, getnonce": {
			three,
			{`{"listDatabases": 1, "filter": {"name": "db"}}`, `{"databases": [{"name": "db"}]}`},
			{`{"listDatabases": 1, "filter": {"name": "x"}}`, `{"databases": []}`},
			{`{"listDatabases": 1, "filter": {"$nope": 1}}`, `{"ok": 0, "code": 2}`},
			{`{"getnonce": 1}`, `{"nonce": {"$$type": "string"}}`},
			{`{"endSessions": []}`, `{"ok": 1}`},
			{`{"checkMetadataConsistency": 1}`, `{"ok": 0, "code": 59}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := connect(t, deployment.New(t, deployment.Single, "7.0.0"), false, nil)
				runSteps(t, c, steps)
			})
		})
	}
}

func runSteps(t *testing.T, c *client.Client, steps []step) {
	t.Helper()
	for _, s := range steps {
		reply := bson.DocumentValue(run(t, c, s.command))
		if err := (match.Matcher{}).Root(bson.DocumentValue(doc(t, s.reply)), reply); err != nil {
			t.Errorf("%s is answered with %s: %v", s.command, match.Text(reply), err)
		}
	}
}

func TestFailPoint(t *testing.T) {
	const ping, fine = `{"ping": 1}`, `{"ok": 1}`
	set := func(mode, data string) step {
		return step{
			`{"configureFailPoint": "failCommand", "mode": ` + mode + `, "data": ` + data + `}`,
			fine,
		}
	}
	refused := `{"ok": 0, "code": 11600, "codeName": "InterruptedAtShutdown", "errorLabels": {"$$exists": false}}`
	for name, steps := range map[string][]step{
		"times":             {set(`{"times": 2}`, `{"failCommands": ["ping"], "errorCode": 11600}`), {ping, refused}, {ping, refused}, {ping, fine}},
		"always, until off": {set(`"alwaysOn"`, `{"failCommands": ["ping"], "errorCode": 11600}`), {ping, refused}, {ping, refused}, set(`"off"`, `{}`), {ping, fine}},
		"skip":              {set(`{"skip": 1}`, `{"failCommands": ["ping"], "errorCode": 11600}`), {ping, fine}, {ping, refused}, {ping, refused}},
		"another command":   {set(`{"times": 1}`, `{"failCommands": ["find"], "errorCode": 11600}`), {ping, fine}},
		"another client":    {set(`{"times": 1}`, `{"failCommands": ["ping"], "appName": "other", "errorCode": 11600}`), {ping, fine}},
		"this client":       {set(`{"times": 1}`, `{"failCommands": ["ping"], "appName": "app", "errorCode": 11600}`), {ping, refused}},
		"all commands": {
			set(`{"times": 2}`, `{"failAllCommands": true, "errorCode": 1, "failInternalCommands": true, "failLocalClients": false}`),
			{ping, `{"ok": 0, "code": 1}`},
			{`{"find": "c"}`, `{"ok": 0, "code": 1}`},
			{ping, fine},
		},
		"a namespace": {
			set(`"alwaysOn"`, `{"failAllCommands": true, "namespace": "db.c", "errorCode": 11600}`),
			{ping, fine},
			{`{"find": "d"}`, fine},
			{`{"find": "c"}`, `{"ok": 0, "code": 11600}`},
			{`{"getMore": {"$numberLong": "1"}, "collection": "c"}`, `{"ok": 0, "code": 11600}`},
			{`{"getMore": {"$numberLong": "1"}, "collection": "d"}`, `{"ok": 0, "code": 43}`},
			{`{"renameCollection": "db.c", "to": "db.d"}`, `{"ok": 0, "code": 11600}`},
			set(`"alwaysOn"`, `{"failAllCommands": true, "namespace": "db.$cmd", "errorCode": 11600}`),
			{ping, refused},
		},
		"extra information": {
			set(`{"times": 1}`, `{"failCommands": ["ping"], "errorCode": 63, "errorExtraInfo": {"shard": "a", "n": 1}}`),
			{ping, `{"ok": 0, "code": 63, "shard": "a", "n": 1}`},
		},
		"never":          {set(`{"activationProbability": 0}`, `{"failCommands": ["ping"], "errorCode": 11600}`), {ping, fine}, {ping, fine}},
		"with certainty": {set(`{"activationProbability": 1.0}`, `{"failCommands": ["ping"], "errorCode": 11600}`), {ping, refused}, {ping, refused}},
		"by chance, the same in each run": {
			set(`{"activationProbability": 0.5}`, `{"failCommands": ["ping"], "errorCode": 1}`),
			{ping, fine},
			{ping, `{"ok": 0, "code": 1}`},
			{ping, fine},
			{ping, `{"ok": 0, "code": 1}`},
		},
		"a chance that there isn't": {{`{"configureFailPoint": "failCommand", "mode": {"activationProbability": 2}}`, `{"ok": 0, "code": 2}`}},
		"closeConnection":           {set(`{"times": 1}`, `{"failCommands": ["ping"], "closeConnection": true}`), {ping, `{"error": {"$$type": "string"}}`}, {ping, fine}},
		"errorLabels": {
			set(`{"times": 1}`, `{"failCommands": ["ping"], "errorCode": 1, "errorLabels": ["a", "b"]}`),
			{ping, `{"ok": 0, "code": 1, "errorLabels": ["a", "b"]}`},
		},
		"the label of a retryable write": {
			set(`{"times": 1}`, `{"failCommands": ["insert"], "errorCode": 91}`),
			{`{"insert": "c", "documents": [{}], "lsid": {"id": {"$uuid": "00000000-0000-0000-0000-000000000001"}}, "txnNumber": {"$numberLong": "1"}}`, `{"ok": 0, "errorLabels": ["RetryableWriteError"]}`},
		},
		"no label if the fail point says so": {
			set(`{"times": 1}`, `{"failCommands": ["insert"], "errorCode": 91, "errorLabels": []}`),
			{`{"insert": "c", "documents": [{}], "lsid": {"id": {"$uuid": "00000000-0000-0000-0000-000000000001"}}, "txnNumber": {"$numberLong": "1"}}`, `{"ok": 0, "errorLabels": {"$$exists": false}}`},
		},
		"writeConcernError": {
			set(`{"times": 3}`, `{"failCommands": ["insert", "ping"], "writeConcernError": {"code": 91, "errmsg": "x"}}`),
			{`{"insert": "c", "documents": [{"_id": 1}], "lsid": {"id": {"$uuid": "00000000-0000-0000-0000-000000000001"}}, "txnNumber": {"$numberLong": "1"}}`, `{"ok": 1, "n": 1, "writeConcernError": {"code": 91, "errmsg": "x"}, "errorLabels": ["RetryableWriteError"]}`},
			{`{"insert": "c", "nope": 1}`, `{"ok": 0, "code": 40415, "writeConcernError": {"$$exists": false}}`},
			{ping, `{"ok": 1, "writeConcernError": {"code": 91, "errmsg": "x"}}`},
			{`{"find": "c"}`, `{"cursor": {"firstBatch": [{"_id": 1}], "id": 0, "ns": "db.c"}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
				runSteps(t, connect(t, d, false, map[string][]string{"appName": {"app"}}), steps)
			})
		})
	}
}

// TestSlow measures what takes time.
func TestSlow(t *testing.T) {
	for name, test := range map[string]struct {
		before, command string
		want            time.Duration
	}{
		"blockConnection":     {`{"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": {"failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 300}}`, `{"ping": 1}`, 300 * time.Millisecond},
		"not blockConnection": {`{"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": {"failCommands": ["ping"], "blockConnection": false, "blockTimeMS": 300}}`, `{"ping": 1}`, 0},
		"find with sleep":     {`{"ping": 1}`, `{"find": "c", "filter": {"$where": "sleep(2000) || true"}}`, 2 * time.Second},
		"update with sleep":   {`{"ping": 1}`, `{"update": "c", "updates": [{"q": {"$where": "sleep(2000) || true"}, "u": {"$set": {"a": 1}}}]}`, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := connect(t, deployment.New(t, deployment.Single, "7.0.0"), false, nil)
				run(t, c, test.before)
				start := time.Now()
				run(t, c, test.command)
				if took := time.Since(start).Truncate(100 * time.Millisecond); took != test.want {
					t.Errorf("%s took %v, want %v", test.command, took, test.want)
				}
			})
		})
	}
}

// TestReplicaSetCommands checks replSetFreeze and replSetStepDown: a frozen secondary is not
// elected.
func TestReplicaSetCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, deployment.Versions[0])
		c := connect(t, d, false, nil)
		code := func(c *client.Client, command string) int64 {
			v, _ := run(t, c, command).Lookup("code")
			n, _ := v.AsInt64()
			return n
		}
		direct := map[string]*client.Client{}
		for _, name := range []string{"a", "b", "c"} {
			cfg, err := connstring.Parse("mongodb://" + name + ":27017/?directConnection=true")
			if err != nil {
				t.Fatal(err)
			}
			if direct[name], err = client.New(cfg, client.Options{Dialer: d.Dial}); err != nil {
				t.Fatal(err)
			}
			if err := direct[name].Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = direct[name].Close(t.Context()) }()
		}
		primary := func() string {
			v, _ := run(t, c, `{"hello": 1}`).Lookup("me")
			name, _ := v.Str()
			return name
		}
		for i, step := range []struct {
			on, command string
			code        int64
			primary     string
		}{
			{"a", `{"replSetFreeze": 0}`, 95, "a:27017"}, // the primary
			{"b", `{"replSetStepDown": 10}`, 10107, "a:27017"},
			{"b", `{"replSetFreeze": 10}`, 0, "a:27017"},
			{"a", `{"replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 5, "force": false}`, 0, "c:27017"},
			{"b", `{"replSetFreeze": 0}`, 0, "c:27017"},
			{"a", `{"replSetFreeze": 1}`, 0, "c:27017"},
			{"c", `{"replSetStepDown": 10}`, 0, "b:27017"},
		} {
			if got := code(direct[step.on], step.command); got != step.code {
				t.Errorf("step %d: %s on %s: code %d, want %d", i, step.command, step.on, got,
					step.code)
			}
			time.Sleep(time.Minute) //nolint:forbidigo // fake time, in which the client notices
			if got := primary(); got != step.primary {
				t.Errorf("step %d: the primary is %s, want %s", i, got, step.primary)
			}
		}
		run(t, direct["c"], `{"replSetFreeze": 1}`)
		if got := code(direct["b"], `{"replSetStepDown": 10}`); got != 0 {
			t.Errorf("the last step down: code %d", got)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // fake time, in which the client notices
		if kind := c.Topology().Kind; kind != description.KindReplicaSetNoPrimary {
			t.Errorf("all others are frozen: the topology is %v", kind)
		}

		alone := connect(t, deployment.New(t, deployment.Single, deployment.Versions[0]), false,
			nil)
		for _, command := range []string{`{"replSetFreeze": 0}`, `{"replSetStepDown": 10}`} {
			if got := code(alone, command); got != 76 {
				t.Errorf("%s on a standalone: code %d, want 76", command, got)
			}
		}
	})
}

// TestCursorsAtOnce checks that a getMore of a tailable cursor and an aggregate that opens a cursor
// do not block each other.
func TestCursorsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, deployment.New(t, deployment.Single, deployment.Versions[0]), false, nil)
		run(t, c, `{"create": "c", "capped": true, "size": 1000, "max": 9}`)
		reply := run(t, c, `{"find": "c", "tailable": true, `+session+`}`)
		id, _ := reply.Lookup("cursor", "id")
		n, _ := id.AsInt64()
		var readers sync.WaitGroup
		for _, command := range []string{
			fmt.Sprintf(`{"getMore": {"$numberLong": "%d"}, "collection": "c", %s}`, n, session),
			`{"aggregate": "c", "pipeline": [], "cursor": {"batchSize": 0}}`,
		} {
			readers.Go(func() {
				for range 5000 {
					if reply := run(t, c, command); !reply.Has("cursor") {
						t.Errorf("%s: %v", command, reply)
					}
				}
			})
		}
		readers.Wait()
	})
}

func TestTopologies(t *testing.T) {
	for name, test := range map[string]struct {
		topology deployment.Topology
		several  bool
		options  map[string][]string
		want     description.Kind
		servers  int
	}{
		"single":                {deployment.Single, false, nil, description.KindSingle, 1},
		"replica set":           {deployment.ReplicaSet, false, nil, description.KindReplicaSetWithPrimary, 3},
		"a member of it":        {deployment.ReplicaSet, false, map[string][]string{"directConnection": {"true"}}, description.KindSingle, 1},
		"one mongos":            {deployment.Sharded, false, nil, description.KindSharded, 1},
		"several mongoses":      {deployment.Sharded, true, nil, description.KindSharded, 2},
		"one behind a balancer": {deployment.LoadBalanced, false, nil, description.KindLoadBalanced, 1},
		"several behind one":    {deployment.LoadBalanced, true, nil, description.KindLoadBalanced, 1},
		"not as balanced":       {deployment.LoadBalanced, false, map[string][]string{"LOADBALANCED": {"false"}}, description.KindSharded, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := deployment.New(t, test.topology, "4.2.0")
				c := connect(t, d, test.several, test.options)
				runSteps(t, c,
					[]step{{`{"insert": "c", "documents": [{"_id": 2}, {"_id": 1}]}`, `{"n": 2}`}})
				now := c.Topology()
				if now.Kind != test.want || len(now.Servers) != test.servers {
					t.Errorf("the topology is %v", now)
				}
				if sorted := d.Sorted("db.c"); len(sorted) != 2 ||
					match.Text(bson.DocumentValue(sorted[0])) != `{"_id":1}` {
					t.Errorf("Sorted() = %v", sorted)
				}
				if docs, exists := d.Documents("db.c"); len(docs) != 2 || !exists {
					t.Errorf("Documents() = %v, %v", docs, exists)
				}
				if _, exists := d.Documents("db.d"); exists {
					t.Error("db.d exists")
				}
			})
		})
	}
}

// TestBalancer has each of two mongoses know its own cursors only.
func TestBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.LoadBalanced, "7.0.0")
		d.SetDocuments("db.c", doc(t, `{"_id": 1}`), doc(t, `{"_id": 2}`))
		c := connect(t, d, true, nil)
		find := client.FindOptions{BatchSize: new(int32(1))}
		var ids []int64
		for range 2 {
			found, err := c.Find(t.Context(), client.Namespace{Database: "db", Collection: "c"},
				find)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, found.ID())
			defer func() { _ = found.Close(t.Context()) }()
		}
		if ids[0]>>40 == ids[1]>>40 {
			t.Errorf("both connections lead to the same mongos: cursors %v", ids)
		}
	})
}

// TestNoBalancer has a mongos that is not a load balancer's say so.
func TestNoBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.Sharded, "7.0.0")
		c := connect(t, d, false, map[string][]string{"loadBalanced": {"true"}})
		if err := c.Ping(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "does not support this mode") {
			t.Errorf("Ping() = %v", err)
		}
	})
}

// TestRoles has a secondary refuse what is for the primary, and answer reads that may go to it
// only.
func TestRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		c := connect(t, d, false, nil)
		secondary := client.RunCommandOptions{
			Common: client.Common{
				ReadPreference: &selection.ReadPreference{Mode: selection.Secondary},
			},
		}
		for command, want := range map[string]int32{
			`{"insert": "c", "documents": [{}]}`: 10107, `{"find": "c"}`: 0,
		} {
			_, err := c.RunCommand(t.Context(), "db", doc(t, command), secondary)
			if code := mongoerr.Code(err); code != want {
				t.Errorf("a secondary answers %s with %v, want the code %d", command, err, want)
			}
		}
	})
}
