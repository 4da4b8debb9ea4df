package deployment_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/unified/match"
)

const cursorID = `{"$numberLong": "1099511627777"}`

// watch opens a stream on db.c.
func watch(options string) at {
	return at{
		"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {` + options + `}}], "cursor": {}}`,
		`{"cursor": {"id": {"$$type": "long"}, "ns": "db.c", "firstBatch": [], "postBatchResumeToken": {"_data": {"$$type": "string"}}}}`,
	}
}

// events is a getMore of the first cursor that brings these events, and leaves it open.
func events(docs string) at { return more(cursorID, docs) }

func more(id, docs string) at {
	return at{
		"a", `{"getMore": ` + cursorID + `, "collection": "c"}`,
		`{"cursor": {"id": ` + id + `, "ns": {"$$exists": true}, "nextBatch": [` + docs +
			`], "postBatchResumeToken": {"$$exists": true}}}`,
	}
}

// event is one on db.c, of a server of version 7.
func event(kind, more string) string {
	return `{"_id": {"_data": {"$$type": "string"}}, "operationType": "` + kind +
		`", "clusterTime": {"$$type": "timestamp"}, "wallTime": {"$$type": "date"}, "ns": {"db": "db", "coll": "c"}` + more + `}`
}

func TestChangeStreams(t *testing.T) {
	insert := func(id string) at {
		return at{"a", `{"insert": "c", "documents": [{"_id": ` + id + `}]}`, fine}
	}
	inserted := func(id string) string {
		return event("insert", `, "documentKey": {"_id": `+id+`}, "fullDocument": {"_id": `+id+`}`)
	}
	update := func(change string) at {
		return at{"a", `{"update": "c", "updates": [{"q": {}, "u": ` + change + `}]}`, `{"n": 1}`}
	}
	updated := func(description string) string {
		return event("update", `, "documentKey": {"_id": 1}, "updateDescription": `+description)
	}
	invalidate := `{"_id": {"$$exists": true}, "operationType": "invalidate", "clusterTime": {"$$exists": true}}`
	for name, steps := range map[string][]at{
		"all kinds": {
			insert("0"), watch(""), insert("1"),
			{"a", `{"insert": "other", "documents": [{}]}`, fine},
			{"a", `{"delete": "c", "deletes": [{"q": {"_id": 0}, "limit": 1}]}`, fine},
			update(`{"$set": {"a": 1}}`), update(`{"b": 2}`),
			events(inserted("1") + `, ` + event("delete", `, "documentKey": {"_id": 0}`) + `, ` +
				updated(`{"updatedFields": {"a": 1}, "removedFields": [], "truncatedArrays": []}`) +
				`, ` +
				event("replace",
					`, "documentKey": {"_id": 1}, "fullDocument": {"_id": 1, "b": 2}`)),
			events(``),
			{"a", `{"drop": "c"}`, fine},
			more("0", event("drop", "")+`, `+invalidate),
			{"a", `{"getMore": ` + cursorID + `, "collection": "c"}`, `{"ok": 0, "code": 43}`},
		},
		"differences": {
			{"a", `{"insert": "c", "documents": [{"_id": 1, "d": {"x": 1, "y": 2}, "l": [1, {"0": 1}, 3]}]}`, fine},
			watch(`"showExpandedEvents": true`),
			update(`{"$set": {"d.x": 5, "d.0": 1}, "$unset": {"d.y": 1}}`), update(`[{"$set": {"l": [1, {"0": 2}]}}]`), update(`{"$set": {"l.0": 7}}`),
			events(updated(`{"updatedFields": {"d.x": 5, "d.0": 1}, "removedFields": ["d.y"], "truncatedArrays": [], "disambiguatedPaths": {"d.0": ["d", "0"]}}`) + `, ` +
				updated(`{"updatedFields": {"l.1.0": 2}, "removedFields": [], "truncatedArrays": [{"field": "l", "newSize": 2}], "disambiguatedPaths": {"l.1.0": ["l", {"$$type": "int"}, "0"]}}`) + `, ` +
				updated(`{"updatedFields": {"l.0": 7}, "removedFields": [], "truncatedArrays": [], "disambiguatedPaths": {}}`)),
		},
		"expanded": {
			watch(`"showExpandedEvents": true`),
			{"a", `{"create": "c"}`, fine},
			{"a", `{"createIndexes": "c", "indexes": [{"name": "x", "key": {"x": 1}}]}`, fine},
			{"a", `{"dropIndexes": "c", "index": "x"}`, fine},
			events(event("create", "") + `, ` + event("createIndexes", "") + `, ` + event("dropIndexes", "")),
		},
		"renamed": {
			insert("1"), watch(""),
			{"a", `{"renameCollection": "db.c", "to": "db.d", "$db": "admin"}`, fine},
			more("0", event("rename", `, "to": {"db": "db", "coll": "d"}`)+`, `+invalidate),
		},
		"looked up": {
			insert("1"), watch(`"fullDocument": "updateLookup"`), update(`{"$set": {"a": 1}}`), update(`{"$set": {"a": 2}}`),
			{
				"a", `{"getMore": ` + cursorID + `, "collection": "c", "batchSize": 1}`,
				`{"cursor": {"id": ` + cursorID +
					`, "ns": "db.c", "postBatchResumeToken": {"$$exists": true}, "nextBatch": [` +
					event("update",
						`, "documentKey": {"_id": 1}, "fullDocument": {"_id": 1, "a": 2}, "updateDescription": {"$$exists": true}`) + `]}}`,
			},
			{"a", `{"delete": "c", "deletes": [{"q": {}, "limit": 1}]}`, fine},
			events(event("update", `, "documentKey": {"_id": 1}, "fullDocument": {"_id": 1, "a": 2}, "updateDescription": {"$$exists": true}`) + `, ` + event("delete", `, "documentKey": {"_id": 1}`)),
		},
		"images": {
			{"a", `{"create": "c", "changeStreamPreAndPostImages": {"enabled": true}}`, fine},
			insert("1"),
			watch(`"fullDocument": "required", "fullDocumentBeforeChange": "required"`),
			insert("0"), update(`{"$set": {"a": 1}}`),
			{"a", `{"delete": "c", "deletes": [{"q": {"_id": 0}, "limit": 1}]}`, fine},
			events(inserted("0") + `, ` +
				event("update",
					`, "documentKey": {"_id": 1}, "fullDocument": {"_id": 1, "a": 1}, "updateDescription": {"$$exists": true}, "fullDocumentBeforeChange": {"_id": 1}`) + `, ` +
				event("delete",
					`, "documentKey": {"_id": 0}, "fullDocumentBeforeChange": {"_id": 0}`)),
		},
		"images that are not there": {
			insert("1"), watch(`"fullDocument": "whenAvailable", "fullDocumentBeforeChange": "whenAvailable"`),
			update(`{"$set": {"a": 1}}`), update(`{"_id": 1}`),
			events(event("update",
				`, "documentKey": {"_id": 1}, "fullDocument": null, "updateDescription": {"$$exists": true}, "fullDocumentBeforeChange": null`) + `, ` +
				event("replace",
					`, "documentKey": {"_id": 1}, "fullDocument": {"_id": 1}, "fullDocumentBeforeChange": null`)),
		},
		"a post-image that is required": {
			insert("1"), watch(`"fullDocument": "required", "fullDocumentBeforeChange": "off"`), update(`{"$set": {"a": 1}}`),
			{"a", `{"getMore": ` + cursorID + `, "collection": "c"}`, `{"ok": 0, "code": 47, "codeName": "NoMatchingDocument"}`},
		},
		"a pre-image that is required": {
			insert("1"), watch(`"fullDocumentBeforeChange": "required"`),
			{"a", `{"delete": "c", "deletes": [{"q": {}, "limit": 1}]}`, fine},
			{"a", `{"getMore": ` + cursorID + `, "collection": "c"}`, `{"ok": 0, "code": 47}`},
		},
		"a database that is dropped": {
			{"a", `{"dropDatabase": 1}`, `{"ok": 1, "dropped": {"$$exists": false}}`},
			insert("1"),
			{"a", `{"create": "b"}`, fine},
			{"a", `{"insert": "c", "documents": [{}], "$db": "db2"}`, fine},
			{"a", `{"aggregate": 1, "pipeline": [{"$changeStream": {}}, {"$project": {"operationType": 1, "ns": 1}}], "cursor": {}}`, fine},
			{"a", `{"aggregate": 1, "pipeline": [{"$changeStream": {"allChangesForCluster": true}}, {"$project": {"operationType": 1}}], "cursor": {}, "$db": "admin"}`, fine},
			{"a", `{"dropDatabase": 1}`, `{"ok": 1, "dropped": "db"}`},
			more("0", `{"_id": {"$$exists": true}, "operationType": "drop", "ns": {"db": "db", "coll": "b"}}, {"_id": {"$$exists": true}, "operationType": "drop", "ns": {"db": "db", "coll": "c"}},
				{"_id": {"$$exists": true}, "operationType": "dropDatabase", "ns": {"db": "db"}}, {"_id": {"$$exists": true}, "operationType": "invalidate"}`),
			{"a", `{"getMore": {"$numberLong": "1099511627778"}, "collection": "$cmd.aggregate", "$db": "admin"}`, `{"cursor": {"id": {"$numberLong": "1099511627778"}, "ns": {"$$exists": true}, "postBatchResumeToken": {"$$exists": true}, "nextBatch": [
				{"_id": {"$$exists": true}, "operationType": "drop"}, {"_id": {"$$exists": true}, "operationType": "drop"}, {"_id": {"$$exists": true}, "operationType": "dropDatabase"}]}}`},
			{"a", `{"find": "c", "$db": "db2"}`, `{"cursor": {"id": 0, "ns": "db2.c", "firstBatch": [{"_id": {"$$exists": true}}]}}`},
		},
		"of a database and a cluster": {
			{"a", `{"aggregate": 1, "pipeline": [{"$changeStream": {}}, {"$project": {"operationType": 1, "ns.viewOn": "x"}}], "cursor": {}}`, `{"cursor": {"id": ` + cursorID + `, "ns": "db.$cmd.aggregate", "firstBatch": [], "postBatchResumeToken": {"$$exists": true}}}`},
			{"a", `{"aggregate": 1, "pipeline": [{"$changeStream": {"allChangesForCluster": true}}, {"$match": {"operationType": "insert"}}], "cursor": {}, "$db": "admin"}`, fine},
			{"a", `{"insert": "d", "documents": [{"_id": 1}], "$db": "x"}`, fine},
			insert("1"),
			{"a", `{"drop": "c"}`, fine},
			events(`{"_id": {"$$exists": true}, "operationType": "insert", "ns": {"viewOn": "x"}}, {"_id": {"$$exists": true}, "operationType": "drop", "ns": {"viewOn": "x"}}`),
			{"a", `{"getMore": {"$numberLong": "1099511627778"}, "collection": "c", "$db": "admin"}`, `{"cursor": {"id": {"$$exists": true}, "ns": "admin.$cmd.aggregate", "postBatchResumeToken": {"$$exists": true}, "nextBatch": [{"$$matchAsRoot": {"ns": {"db": "x", "coll": "d"}}}, {"$$matchAsRoot": {"ns": {"db": "db", "coll": "c"}}}]}}`},
		},
		"transactions come when they are committed": {
			watch(""),
			{"a", `{"insert": "c", "documents": [{"_id": 1}], "lsid": "S1", "txnNumber": {"$numberLong": "1"}, "autocommit": false, "startTransaction": true}`, fine},
			events(``),
			{"a", `{"commitTransaction": 1, "lsid": "S1", "txnNumber": {"$numberLong": "1"}, "autocommit": false, "$db": "admin"}`, fine},
			events(inserted("1")),
		},
		"without tokens": {
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {}}, {"$project": {"_id": 0}}], "cursor": {}}`, fine},
			insert("1"),
			{"a", `{"getMore": ` + cursorID + `, "collection": "c"}`, `{"ok": 0, "code": 280, "codeName": "ChangeStreamFatalError", "errorLabels": ["NonResumableChangeStreamError"]}`},
		},
		"labels of errors": {
			{"a", `{"configureFailPoint": "failGetMoreAfterCursorCheckout", "mode": {"times": 2}, "data": {"errorCode": 6}, "$db": "admin"}`, fine},
			watch(""),
			{"a", `{"getMore": ` + cursorID + `, "collection": "c"}`, `{"ok": 0, "code": 6, "errorLabels": ["ResumableChangeStreamError"]}`},
			{"a", `{"getMore": {"$numberLong": "5"}, "collection": "c"}`, `{"ok": 0, "code": 6, "errorLabels": {"$$exists": false}}`},
		},
		"refusals": {
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {}}, {"$nope": 1}], "cursor": {}}`, `{"ok": 0, "code": 40324}`},
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {"nope": 1}}], "cursor": {}}`, `{"ok": 0, "code": 40415}`},
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {"resumeAfter": {"_data": "zz"}}}], "cursor": {}}`, `{"ok": 0, "code": 260}`},
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {"fullDocument": "x"}}], "cursor": {}}`, `{"ok": 0, "code": 2}`},
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {"fullDocumentBeforeChange": "updateLookup"}}], "cursor": {}}`, `{"ok": 0, "code": 2}`},
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {"startAtOperationTime": {"$timestamp": {"t": 1, "i": 1}}, "startAfter": {"_data": "0"}}}], "cursor": {}}`, `{"ok": 0, "code": 72}`},
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {}}], "collation": {"nope": 1}, "cursor": {}}`, `{"ok": 0, "code": 2}`},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, deployment.ReplicaSet, "7.0.0", steps) })
	}
	t.Run("of a standalone", func(t *testing.T) {
		play(t, deployment.Single, "7.0.0", []at{
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}}`, `{"ok": 0, "code": 40573}`},
		})
	})
	t.Run("images of an old server", func(t *testing.T) {
		play(t, deployment.ReplicaSet, "4.2.0", []at{
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {"fullDocumentBeforeChange": "off"}}], "cursor": {}}`, `{"ok": 0, "code": 40415}`},
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {"fullDocument": "required"}}], "cursor": {}}`, `{"ok": 0, "code": 2}`},
		})
	})
	t.Run("of a new server", func(t *testing.T) {
		play(t, deployment.ReplicaSet, "8.2.1", []at{
			watch(`"showExpandedEvents": true`), {"a", `{"create": "c", "viewOn": "x"}`, fine}, events(event("create", `, "nsType": "view"`)),
		})
	})
}

// TestResume opens streams from the tokens of others: of an event, of a batch, of an invalidate
// event, and at a time.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		open := func(options string) bson.Raw {
			return send(t, d, "a",
				`{"aggregate": "c", "pipeline": [{"$changeStream": {`+options+`}}], "cursor": {}}`)
		}
		value := func(doc bson.Raw, path ...string) string {
			v, _ := doc.Lookup(path...)
			return match.Text(v)
		}
		started := value(open(""), "cursor", "postBatchResumeToken")
		first := send(t, d, "a", `{"insert": "c", "documents": [{"_id": 1}]}`)
		send(t, d, "a", `{"insert": "c", "documents": [{"_id": 2}]}`)
		send(t, d, "a", `{"drop": "c"}`)
		all := open(`"resumeAfter": ` + started)
		kinds := func(reply bson.Raw) string {
			v, _ := reply.Lookup("cursor", "firstBatch")
			batch, _ := v.Array()
			text := ""
			for event := range batch.Documents() {
				text += value(event, "operationType") + value(event, "documentKey", "_id") + " "
			}
			return text
		}
		const dropped = `"drop"nothing "invalidate"nothing `
		for options, want := range map[string]string{
			`"resumeAfter": ` + started:                                         `"insert"1 "insert"2 ` + dropped,
			`"resumeAfter": ` + value(all, "cursor", "firstBatch", "0", "_id"):  `"insert"2 ` + dropped,
			`"resumeAfter": ` + value(all, "cursor", "firstBatch", "2", "_id"):  `"invalidate"nothing `,
			`"startAfter": ` + value(all, "cursor", "firstBatch", "3", "_id"):   ``,
			`"startAtOperationTime": ` + value(first, "operationTime"):          `"insert"1 "insert"2 ` + dropped,
			`"startAtOperationTime": {"$timestamp": {"t": 4000000000, "i": 1}}`: ``,
			`"startAfter": ` + value(all, "cursor", "postBatchResumeToken"):     ``,
		} {
			reply := open(options)
			if got := kinds(reply); got != want || !reply.Has("cursor") {
				t.Errorf("a stream with %s begins with %s, want %s: %s", options, got, want,
					match.Text(bson.DocumentValue(reply)))
			}
		}
		reply := open(`"resumeAfter": ` + value(all, "cursor", "firstBatch", "3", "_id"))
		if code := value(reply, "code"); code != "260" {
			t.Errorf("a stream that resumes after an invalidate event is answered with code %s",
				code)
		}
	})
}

// TestAwait: a getMore of a change stream, or of a tailable cursor that awaits data, blocks until
// there is something, for maxTimeMS or a second at most.
func TestAwait(t *testing.T) {
	const stream = `{"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}}`
	const getMore = `{"getMore": ` + cursorID + `, "collection": "c"`
	for name, test := range map[string]struct {
		open, more string
		want       time.Duration
		events     int
	}{
		"an event":                {stream, getMore + `, "maxTimeMS": 900}`, 400 * time.Millisecond, 1},
		"until maxTimeMS":         {stream, getMore + `, "maxTimeMS": 300}`, 300 * time.Millisecond, 0},
		"another collection":      {`{"aggregate": "d", "pipeline": [{"$changeStream": {}}], "cursor": {}}`, getMore + `}`, time.Second, 0},
		"awaitData":               {`{"find": "c", "tailable": true, "awaitData": true}`, getMore + `}`, 400 * time.Millisecond, 1},
		"tailable only":           {`{"find": "c", "tailable": true}`, getMore + `}`, 0, 0},
		"a cursor that is killed": {stream, getMore + `, "maxTimeMS": 2000, "comment": "killed"}`, 600 * time.Millisecond, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
				send(t, d, "a", `{"create": "c", "capped": true, "size": 1000}`)
				send(t, d, "a", test.open)
				var all sync.WaitGroup
				defer all.Wait()
				all.Go(func() {
					time.Sleep(400 * time.Millisecond) //nolint:forbidigo // fake time
					if test.events < 0 {
						send(t, d, "a", `{"killCursors": "c", "cursors": [`+cursorID+`]}`)
						time.Sleep(200 * time.Millisecond) //nolint:forbidigo // fake time
					}
					send(t, d, "a", `{"insert": "c", "documents": [{"_id": 1}]}`)
				})
				began := time.Now()
				reply := send(t, d, "a", test.more)
				if took := time.Since(began).Truncate(100 * time.Millisecond); took != test.want {
					t.Errorf("it took %v, want %v", took, test.want)
				}
				v, _ := reply.Lookup("cursor", "nextBatch")
				batch, open := v.Array()
				n := -1
				if open {
					n = len(slices.Collect(batch.Documents()))
				}
				if n != test.events {
					t.Errorf("the reply has %d documents, want %d: %s", n, test.events,
						match.Text(bson.DocumentValue(reply)))
				}
			})
		})
	}
}
