package deployment_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/unified/match"
)

func refused(code string) string { return `{"ok": 0, "code": ` + code + `}` }

func TestValidators(t *testing.T) {
	const failed = `[{"index": 0, "code": 121, "errmsg": "Document failed validation",
		"errInfo": {"failingDocumentId": {"$$exists": true}, "details": {
			"operatorName": "$gt", "specifiedAs": {"a": {"$gt": 1}}, "reason": "comparison failed"}}}]`
	insert := func(doc, options string) string {
		return `{"insert": "c", "documents": [` + doc + `]` + options + `}`
	}
	set := func(options string) at { return at{"a", `{"collMod": "c", ` + options + `}`, fine} }
	update := `{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"b": 1}}}]}`
	for name, steps := range map[string][]at{
		"of create": {
			{"a", `{"create": "c", "validator": {"a": {"$gt": 1}}}`, fine},
			{"a", insert(`{"_id": 1, "a": 1}`, ``), `{"n": 0, "writeErrors": ` + failed + `}`},
			{"a", insert(`{"_id": 1, "a": 2}`, ``), `{"n": 1, "writeErrors": {"$$exists": false}}`},
			{"a", insert(`{"_id": 2, "a": 1}`, `, "bypassDocumentValidation": true`), `{"n": 1}`},
			{
				"a", `{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 0}}}]}`,
				`{"n": 0, "writeErrors": ` + failed + `}`,
			},
			{
				"a", `{"findAndModify": "c", "query": {"_id": 1}, "update": {"a": 0}}`,
				`{"ok": 0, "code": 121, "errInfo": {"$$exists": true}}`,
			},
			{
				"a", `{"findAndModify": "c", "query": {"_id": 1}, "update": {"a": 0},
					"bypassDocumentValidation": true}`,
				fine,
			},
			{
				"a", `{"update": "c", "updates": [{"q": {"_id": 9}, "u": {"a": 0}, "upsert": true}]}`,
				`{"n": 0, "writeErrors": ` + failed + `}`,
			},
			{
				"a", `{"aggregate": 1, "cursor": {},
					"pipeline": [{"$documents": [{"_id": 5}]}, {"$merge": {"into": "c"}}]}`,
				refused("121"),
			},
			{"a", all, found(`{"_id": 1, "a": 0}, {"_id": 2, "a": 1}`)},
		},
		"of collMod": {
			{"a", insert(`{"_id": 1, "a": 1}`, ``), `{"n": 1}`},
			set(`"validator": {"a": {"$gt": 1}}`),
			{"a", update, `{"n": 0, "writeErrors": ` + failed + `}`},
			set(`"validationLevel": "moderate"`),
			{"a", update, `{"n": 1}`},
			{"a", insert(`{"_id": 2, "a": 1}`, ``), `{"n": 0, "writeErrors": ` + failed + `}`},
			set(`"validationAction": "warn"`),
			{"a", insert(`{"_id": 2, "a": 1}`, ``), `{"n": 1}`},
			set(`"validationAction": "error", "validationLevel": "off"`),
			{"a", insert(`{"_id": 3, "a": 1}`, ``), `{"n": 1}`},
			{
				"a", `{"listCollections": 1, "filter": {"name": "c"}, "cursor": {}}`,
				`{"cursor": {"id": 0, "ns": "db.$cmd.listCollections", "firstBatch": [{
				"name": "c", "type": "collection", "info": {"$$exists": true},
				"options": {"validator": {"a": {"$gt": 1}}, "validationLevel": "off",
				"validationAction": "error"}}]}}`,
			},
		},
		"that are none": {
			{"a", `{"create": "c", "validator": {"$nope": 1}}`, refused("2")},
			{"a", `{"create": "c", "validationLevel": "nope"}`, refused("2")},
			{"a", insert(`{"_id": 1, "a": 1}`, ``), `{"n": 1}`},
			{"a", `{"collMod": "c", "validationAction": "nope"}`, refused("2")},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, deployment.ReplicaSet, "7.0.0", steps) })
	}
}

// TestDuplicates checks what errors say of a unique index.
func TestDuplicates(t *testing.T) {
	const keys = `"keyPattern": {"x": 1}, "keyValue": {"x": 1}`
	play(t, deployment.ReplicaSet, "7.0.0", []at{
		{
			"a", `{"createIndexes": "c", "indexes": [{"key": {"x": 1}, "name": "x_1", "unique": true}]}`,
			fine,
		},
		{"a", `{"insert": "c", "documents": [{"_id": 1, "x": 1}, {"_id": 2, "x": 2}]}`, `{"n": 2}`},
		{
			"a", `{"findAndModify": "c", "query": {"_id": 2}, "update": {"$set": {"x": 1}}}`,
			`{"ok": 0, "code": 11000, "codeName": "DuplicateKey", ` + keys + `}`,
		},
		{
			"a", `{"findAndModify": "c", "query": {"_id": 3}, "update": {"$set": {"x": 1}}, "upsert": true}`,
			`{"ok": 0, "code": 11000, ` + keys + `}`,
		},
		{
			"a", `{"findAndModify": "c", "query": {"x": 9}, "update": {"_id": 1}, "upsert": true}`,
			`{"ok": 0, "code": 11000, "keyPattern": {"_id": 1}, "keyValue": {"_id": 1}}`,
		},
		{
			"a", `{"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$inc": {"x": -1}}}]}`,
			`{"n": 0, "writeErrors": [
				{"index": 0, "code": 11000, "errmsg": {"$$exists": true}, ` + keys + `}]}`,
		},
		{"a", `{"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"y": 1}}}]}`, `{"n": 1}`},
	})
}

func TestCount(t *testing.T) {
	count := func(of string) string {
		return `{"aggregate": "c", "cursor": {},
			"pipeline": [{"$match": {"_id": {"$gt": 1}}}, {"$count": ` + of + `}]}`
	}
	play(t, deployment.Single, "7.0.0", []at{
		{"a", count(`"n"`), found(``)},
		{"a", `{"insert": "c", "documents": [{"_id": 1}, {"_id": 2}, {"_id": 3}]}`, fine},
		{"a", count(`"n"`), found(`{"n": 2}`)},
		{"a", count(`""`), refused("40156")},
		{"a", count(`1`), refused("40156")},
		{"a", count(`"$n"`), refused("40158")},
		{"a", count(`"n.m"`), refused("40160")},
	})
}

func TestRawData(t *testing.T) {
	const list = `{"listCollections": 1, "cursor": {}, "rawData": true}`
	play(t, deployment.Single, "8.2.1", []at{{"a", list, fine}})
	play(t, deployment.Single, "8.0.0", []at{{"a", list, refused("40415")}})
}

func TestShardCollection(t *testing.T) {
	shard := func(rest string) string { return `{"shardCollection": ` + rest + `, "$db": "admin"}` }
	index := `{"v": 2, "key": {"x": 1}, "name": "x_1", "unique": true}`
	play(t, deployment.Sharded, "7.0.0", []at{
		{"a", `{"shardCollection": "db.c", "key": {"x": 1}}`, refused("13")},
		{"a", shard(`"db", "key": {"x": 1}`), refused("2")},
		{"a", shard(`"db.c", "key": {}`), refused("2")},
		{"a", shard(`"db.c", "key": {"x": 1}, "nope": 1`), refused("40415")},
		{"a", shard(`"db.c", "key": {"x": 1}, "unique": true`), `{"collectionsharded": "db.c"}`},
		{"b", shard(`"db.c", "key": {"x": 1}, "unique": true`), `{"collectionsharded": "db.c"}`},
		{"b", shard(`"db.c", "key": {"_id": "hashed"}`), refused("23")},
		{"b", shard(`"db.d", "key": {"_id": "hashed", "a": 1}`), fine},
		{
			"a", `{"listIndexes": "c"}`,
			`{"cursor": {"id": 0, "ns": "db.c",
				"firstBatch": [{"v": 2, "key": {"_id": 1}, "name": "_id_"}, ` + index + `]}}`,
		},
		{
			"a", `{"listIndexes": "d"}`,
			`{"cursor": {"id": 0, "ns": "db.d", "firstBatch": [
				{"v": 2, "key": {"_id": 1}, "name": "_id_"},
				{"v": 2, "key": {"_id": "hashed", "a": 1}, "name": "_id_hashed_a_1"}]}}`,
		},
	})
	unknown := at{"a", shard(`"db.c", "key": {"x": 1}`), refused("59")}
	play(t, deployment.ReplicaSet, "7.0.0", []at{unknown})
}

// TestCollectionUUID has commands run on a collection only if it has the UUID that they name.
func TestCollectionUUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		send(t, d, "a", `{"insert": "c", "documents": [{"_id": 1}]}`)
		send(t, d, "a", `{"createIndexes": "other", "indexes": [{"key": {"x": 1}, "name": "x_1"}]}`)
		list := send(t, d, "a", `{"listCollections": 1, "filter": {"name": "c"}, "cursor": {}}`)
		id, ok := list.Lookup("cursor", "firstBatch", "0", "info", "uuid")
		if !ok {
			t.Fatalf("listCollections says %v", list)
		}
		const mismatch = `{"ok": 0, "code": 361, "codeName": "CollectionUUIDMismatch", "db": "db",
			"collectionUUID": {"$$exists": true}, "expectedCollection": "%", "actualCollection": "c"}`
		instead := func(of string) string { return strings.Replace(mismatch, "%", of, 1) }
		const rename = `{"renameCollection": "db.other", "to": "db.x", "$db": "admin"`
		for _, row := range []struct{ command, want string }{
			{`{"find": "c"`, fine},
			{`{"find": "other"`, instead("other")},
			{`{"find": "none"`, instead("none")},
			{`{"aggregate": "c", "pipeline": [], "cursor": {}`, fine},
			{`{"insert": "c", "documents": [{}]`, `{"n": 1}`},
			{`{"update": "c", "updates": [{"q": {}, "u": {}}]`, `{"n": 1}`},
			{`{"delete": "c", "deletes": [{"q": {}, "limit": 1}]`, `{"n": 1}`},
			{`{"drop": "other"`, instead("other")},
			{rename, instead("other")},
		} {
			command := row.command + `, "collectionUUID": ` + match.Text(id) + `}`
			reply := bson.DocumentValue(send(t, d, "a", command))
			if err := (match.Matcher{}).
				Root(bson.DocumentValue(doc(t, row.want)), reply); err != nil {
				t.Errorf("%s is answered with %s: %v", command, match.Text(reply), err)
			}
		}
		reply := send(t, d, "a", `{"find": "c", "collectionUUID": 1}`)
		if code, _ := reply.Lookup("code"); !code.Equal(bson.Int32Value(14)) {
			t.Errorf("a number as UUID is answered with %v", reply)
		}
	})
}
