package docdb_test

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/unified/match"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
)

// asked are the commands of TestBothAnswer, one after the other, by what the table calls them.
var asked = []struct{ name, command string }{
	{"insert", insert(`{"_id": 1, "n": 1}, {"_id": 2, "n": 2}`, "")},
	{"insert of a duplicate", insert(`{"_id": 3}, {"_id": 1}, {"_id": 4}`, "")},
	{"unordered insert of a duplicate", insert(`{"_id": 1}, {"_id": 5}`, `"ordered": false`)},
	{"update", add(1, 10, "")},
	{"update of nothing", add(99, 1, "")},
	{"update without a change", `{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"n": 11}}}]}`},
	{"upsert", `{"update": "c", "updates": [{"q": {"_id": 6}, "u": {"$set": {"n": 6}}, "upsert": true}]}`},
	{"update of many", `{"update": "c", "updates": [{"q": {"n": {"$gt": 1}}, "u": {"$inc": {"n": 1}}, "multi": true}]}`},
	{"replacement", `{"update": "c", "updates": [{"q": {"_id": 2}, "u": {"n": 2}}]}`},
	{"update of _id", `{"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"_id": 9}}}]}`},
	{"unknown update operator", `{"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$nonsense": {"n": 9}}}]}`},
	{"$inc of a text", `{"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"t": "x"}}}, {"q": {"_id": 2}, "u": {"$inc": {"t": 1}}}]}`},
	{"delete", `{"delete": "c", "deletes": [{"q": {"_id": 5}, "limit": 1}]}`},
	{"delete of nothing", `{"delete": "c", "deletes": [{"q": {"_id": 5}, "limit": 1}]}`},
	{"findAndModify", `{"findAndModify": "c", "query": {"_id": 2}, "update": {"$set": {"n": 3}}, "new": true}`},
	{"findAndModify of nothing", `{"findAndModify": "c", "query": {"_id": 99}, "update": {"$set": {"n": 3}}}`},
	{"findAndModify, an upsert", `{"findAndModify": "c", "query": {"_id": 7}, "update": {"$set": {"n": 7}}, "upsert": true}`},
	{"findAndModify, a removal", `{"findAndModify": "c", "query": {"_id": 7}, "remove": true}`},
	{"findAndModify, a removal of nothing", `{"findAndModify": "c", "query": {"_id": 7}, "remove": true}`},
	{"find", all},
	{"find in batches", `{"find": "c", "sort": {"_id": 1}, "batchSize": 1}`},
	{"find of one batch", `{"find": "c", "sort": {"_id": 1}, "batchSize": 1, "singleBatch": true}`},
	{"find of no collection", `{"find": "none"}`},
	{"unknown query operator", `{"find": "c", "filter": {"n": {"$nonsense": 1}}}`},
	{"find with a negative skip", `{"find": "c", "skip": -1}`},
	{"getMore of no cursor", `{"getMore": {"$numberLong": "4711"}, "collection": "c"}`},
	{"killCursors of no cursor", `{"killCursors": "c", "cursors": [{"$numberLong": "4711"}]}`},
	{"count", `{"count": "c", "query": {"n": {"$gt": 2}}}`},
	{"distinct", `{"distinct": "c", "key": "n", "query": {"_id": {"$lt": 3}}}`},
	{"aggregate", `{"aggregate": "c", "pipeline": [{"$match": {"_id": {"$lt": 3}}}, {"$sort": {"_id": 1}}], "cursor": {}}`},
	{"unknown stage", `{"aggregate": "c", "pipeline": [{"$nonsense": 1}], "cursor": {}}`},
	{"aggregate without cursor", `{"aggregate": "c", "pipeline": []}`},
	{"create", `{"create": "made"}`},
	{"create again", `{"create": "made"}`},
	{"create with a validator", `{"create": "valid", "validator": {"n": {"$gt": 0}}}`},
	{"insert that is not valid", `{"insert": "valid", "documents": [{"_id": 1, "n": 0}]}`},
	{"createIndexes", `{"createIndexes": "c", "indexes": [{"key": {"n": 1}, "name": "by n"}]}`},
	{"createIndexes again", `{"createIndexes": "c", "indexes": [{"key": {"n": 1}, "name": "by n"}]}`},
	{"createIndexes of another key", `{"createIndexes": "c", "indexes": [{"key": {"m": 1}, "name": "by n"}]}`},
	{"createIndexes of no collection", `{"createIndexes": "indexed", "indexes": [{"key": {"n": 1}, "name": "by n"}]}`},
	{"listIndexes", `{"listIndexes": "c"}`},
	{"listIndexes of no collection", `{"listIndexes": "none"}`},
	{"dropIndexes", `{"dropIndexes": "c", "index": "by n"}`},
	{"dropIndexes of no index", `{"dropIndexes": "c", "index": "by n"}`},
	{"listCollections", `{"listCollections": 1, "filter": {"name": "made"}, "nameOnly": true}`},
	{"drop", `{"drop": "made"}`},
	{"drop of no collection", `{"drop": "made"}`},
	{"renameCollection of no collection", `{"renameCollection": "both.none", "to": "both.more", "$db": "admin"}`},
	{"unknown command", `{"nonsense": 1}`},
	{"transaction: write", add(1, 1, begin(1, 1))},
	{"transaction: conflict", add(1, 1, begin(2, 1))},
	{"transaction: after a conflict", add(2, 1, inside(2, 1))},
	{"transaction: commit after a conflict", commit(2, 1)},
	{"transaction: commit", commit(1, 1)},
	{"transaction: commit again", commit(1, 1)},
	{"transaction: abort after commit", abort(1)},
	{"transaction: write after commit", add(1, 1, inside(1, 1))},
	{"transaction: begun twice", add(1, 1, begin(1, 1))},
	{"transaction: unknown number", add(1, 1, inside(1, 7))},
	{"transaction: count", `{"count": "c", ` + begin(1, 8) + `}`},
	{"transaction: after an older number", add(1, 1, begin(1, 2))},
	{"transaction: a change stream", `{"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}, ` + begin(1, 9) + `}`},
	{"retryable: insert", insert(`{"_id": 20}, {"_id": 21}`, retryable(0, 1))},
	{"retryable: insert again", insert(`{"_id": 20}, {"_id": 21}`, retryable(0, 1))},
	{"retryable: update", add(1, 1, retryable(0, 2))},
	{"retryable: update again", add(1, 1, retryable(0, 2))},
	{"retryable: older number", add(1, 1, retryable(0, 1))},
	{"retryable: update of many", `{"update": "c", "updates": [{"q": {}, "u": {"$set": {"m": 1}}, "multi": true}], ` + retryable(0, 3) + `}`},
	{"change stream: no token", `{"aggregate": "c", "pipeline": [{"$changeStream": {"resumeAfter": {"_data": "none"}}}], "cursor": {}}`},
	{"change stream: unknown option", `{"aggregate": "c", "pipeline": [{"$changeStream": {"nonsense": 1}}], "cursor": {}}`},
	{"change stream: a $group", `{"aggregate": "c", "pipeline": [{"$changeStream": {}}, {"$group": {"_id": 1}}], "cursor": {}}`},
	{"change stream: two starts", `{"aggregate": "c", "pipeline": [{"$changeStream": {"resumeAfter": {"_data": "0"}, "startAfter": {"_data": "0"}}}], "cursor": {}}`},
	{"dropDatabase", `{"dropDatabase": 1}`},
}

// differences.md has the table of TestBothAnswer.
//
//go:embed differences.md
var differing string

// TestBothAnswer gives the scripted deployment and the engine the same commands, and compares their
// replies field by field: all but the texts of errors, times, and the ids of cursors. Each
// difference is a row of differences.md, and each row is one.
func TestBothAnswer(t *testing.T) {
	f := docdb.Start(t, docdb.Config{})
	scripted := deployment.Listen(t, deployment.ReplicaSet, "7.0.0")
	engines := []*rawconn.Engine{
		rawconn.NewEngine(string(scripted.Cluster().Host(0).Address())), rawconn.NewEngine(f.Address()),
	}
	for _, e := range engines {
		t.Cleanup(e.Close)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(differing) {
		cells := strings.Split(line, "|")
		if len(cells) == 8 && !strings.Contains(line, "---") &&
			!strings.Contains(line, "| scripted |") {
			rows[difference(cells[1], cells[2], cells[3], cells[4])] = false
		}
	}
	for _, a := range asked {
		command := parse(t, a.command)
		if !command.Has("$db") {
			command = bson.With(command, "$db", bson.StringValue("both"))
		}
		var replies [2]map[string]string
		for i, e := range engines {
			reply, err := e.Run(command, nil)
			if err != nil {
				t.Fatalf("%s: %v", a.name, err)
			}
			replies[i] = map[string]string{}
			flatten(replies[i], "", reply)
		}
		paths := slices.Collect(maps.Keys(replies[0]))
		paths = slices.Sorted(slices.Values(slices.AppendSeq(paths, maps.Keys(replies[1]))))
		for _, path := range slices.Compact(paths) {
			is := difference(a.name, path, orNone(replies[0], path), orNone(replies[1], path))
			if orNone(replies[0], path) == orNone(replies[1], path) {
				continue
			}
			if _, known := rows[is]; !known {
				t.Errorf("not in the table: %s", is)
			}
			rows[is] = true
		}
	}
	for row, occurs := range rows {
		if !occurs {
			t.Errorf("does not occur: %s", row)
		}
	}
}

// difference returns the beginning of a row.
func difference(cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.TrimSpace(c)
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

func orNone(fields map[string]string, path string) string {
	if v, ok := fields[path]; ok {
		return v
	}
	return "—"
}

// flatten adds the fields of a reply by their paths.
func flatten(fields map[string]string, prefix string, doc bson.Raw) {
	for key, v := range doc.All() {
		switch key {
		case "$clusterTime", "operationTime", "errmsg", "topologyVersion", "postBatchResumeToken":
			continue
		}
		array, isArray := v.Array()
		inner, isDocument := v.Document()
		switch {
		case isArray && array.Len() > 0:
			flatten(fields, prefix+key+".", bson.Raw(array))
		case isDocument && !inner.IsEmpty():
			flatten(fields, prefix+key+".", inner)
		case key == "id" && prefix == "cursor." && !v.Equal(bson.Int64Value(0)):
			fields[prefix+key] = "open"
		default:
			fields[prefix+key] = match.Text(v)
		}
	}
}
