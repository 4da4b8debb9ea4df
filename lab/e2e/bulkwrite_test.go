package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// TestBulkWrite runs writes of several kinds over REST, and looks at the collection afterwards.
func TestBulkWrite(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	got := g.Post(t, gatewaytest.Documents(db, "things", "bulkWrite"), `{"models": [
		{"insertOne": {"document": {"_id": 1, "n": 1}}},
		{"insertOne": {"document": {"_id": 2, "n": 2}}},
		{"insertOne": {"document": {"_id": 3, "n": 3}}},
		{"updateOne": {"filter": {"_id": 1}, "update": {"$set": {"n": 10}}}},
		{"replaceOne": {"filter": {"_id": 2}, "replacement": {"m": 2}}},
		{"updateOne": {"filter": {"_id": 4}, "update": {"$set": {"n": 4}}, "upsert": true}},
		{"deleteOne": {"filter": {"_id": 3}}}
	]}`)
	want := `{"index": 5, "id": 4}`
	if !suite.IsEmbedded() && !bytes.Contains(got.Body, []byte(`{"index":5`)) {
		want = `{"index": 0, "id": 4}` // FerretDB numbers upserts wrongly
	}
	wantJSON(t, got.Body, `{"acknowledged": true, "insertedCount": 3, "upsertedIds": [`+want+`],
		"matchedCount": 2, "modifiedCount": 2, "deletedCount": 1, "upsertedCount": 1,
		"insertedIds": [{"index": 0, "id": 1}, {"index": 1, "id": 2}, {"index": 2, "id": 3}]}`)
	all := g.Post(t, gatewaytest.Documents(db, "things", "find"), `{"sort": {"_id": 1}}`)
	wantJSON(t, all.Body,
		`{"documents": [{"_id": 1, "n": 10}, {"_id": 2, "m": 2}, {"_id": 4, "n": 4}]}`)

	const partly = `{"ordered": false, "models": [{"insertOne": {"document": {"_id": 1}}}, {"insertOne": {"document": {"_id": 5}}}]`
	got = g.Post(t, gatewaytest.Documents(db, "things", "bulkWrite"), partly+`}`)
	if got.Status != 409 || !bytes.Contains(got.Body, []byte(`"writeErrors":[{"index":0`)) ||
		!bytes.Contains(got.Body, []byte(`"insertedCount":1`)) {
		t.Errorf("a duplicate key is %d %s", got.Status, got.Body)
	}
	g.Post(t, gatewaytest.Documents(db, "things", "deleteOne"), `{"filter": {"_id": 5}}`)
	got = g.Post(t, gatewaytest.Documents(db, "things", "bulkWrite"),
		partly+`, "returnPartialSuccess": true}`)
	if got.Status != 207 || !bytes.Contains(got.Body, []byte(`"writeErrors":[{"index":0`)) {
		t.Errorf("a partial success is %d %s", got.Status, got.Body)
	}
}

// TestExplain: every server explains, each in its own words.
func TestExplain(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	g.Post(t, gatewaytest.Documents(db, "things", "insertOne"), `{"document": {"_id": 1}}`)
	for verb, body := range map[string]string{
		"explainFind":      `{"filter": {"_id": 1}, "verbosity": "queryPlanner"}`,
		"explainAggregate": `{"pipeline": [{"$match": {"_id": 1}}], "verbosity": "queryPlanner"}`,
	} {
		got := g.Post(t, gatewaytest.Documents(db, "things", verb), body)
		if got.Status != 200 || !bytes.Contains(got.Body, []byte(`"queryPlanner"`)) {
			t.Errorf("%s: %d %s", verb, got.Status, got.Body)
		}
	}
}

// TestImport imports 20,000 documents as lines and as BSON, and then some that are there already.
func TestImport(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	const n = 10_000
	var lines, docs bytes.Buffer
	for i := range n {
		fmt.Fprintf(&lines, "{\"_id\": %d, \"pad\": \"%0200d\"}\n", i, i)
		docs.Write(raw(t, fields("_id", int32(n+i), "pad", strings.Repeat("x", 200))))
	}
	path := gatewaytest.Documents(db, "things", "import")
	as := func(kind string) gatewaytest.Header {
		return gatewaytest.Header{Name: "Content-Type", Value: kind}
	}
	got := g.Do(t, "POST", path, lines.String(), as("application/x-ndjson"))
	wantJSON(t, got.Body, `{"acknowledged": true, "insertedCount": 10000, "failedCount": 0}`)
	got = g.Do(t, "POST", path, docs.String(), as("application/bson"))
	wantJSON(t, got.Body, `{"acknowledged": true, "insertedCount": 10000, "failedCount": 0}`)
	all := g.Post(t, gatewaytest.Documents(db, "things", "countDocuments"), `{}`)
	wantJSON(t, all.Body, `{"count": 20000}`)

	const some = "{\"_id\": 1}\n{\"_id\": \"new\"}\n{\"_id\": 2}\n"
	got = g.Do(t, "POST", path+"?ordered=false&returnPartialSuccess=true", some,
		as("application/x-ndjson"))
	if got.Status != 207 || !bytes.Contains(got.Body, []byte(`"insertedCount":1`)) ||
		!bytes.Contains(got.Body, []byte(`"failedCount":2`)) {
		t.Errorf("duplicate keys: %d %s", got.Status, got.Body)
	}
	got = g.Do(t, "POST", path, "{\"_id\": \"newer\"}\nnonsense\n", as("application/x-ndjson"))
	if got.Status != 400 || !bytes.Contains(got.Body, []byte(`"documents.1"`)) ||
		!bytes.Contains(got.Body, []byte(`"insertedCount":1`)) {
		t.Errorf("a malformed line: %d %s", got.Status, got.Body)
	}
}
