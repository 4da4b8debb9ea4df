package wire_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/registry"
)

// inNode has the operations of TestSameAttempts, by name, as callers of Node's driver write them.
var inNode = map[string]string{
	warm.name:    `await c.updateOne({}, {$set: {a: 9}})`,
	"insertOne":  `await c.insertOne({_id: 10, a: 1})`,
	"insertMany": `await c.insertMany([{_id: 10}, {_id: 11}])`,
	"updateOne":  `await c.updateOne({_id: 1}, {$set: {a: 9}})`,
	"updateMany": `await c.updateMany({a: {$gt: 1}}, {$set: {a: 9}})`,
	"deleteOne":  `await c.deleteOne({_id: 1})`,
	"findOneAndUpdate with options": `await c.findOneAndUpdate({_id: 40}, {$set: {a: 9}},
		{upsert: true, hint: '_id_', returnDocument: 'after', collation: {locale: 'en'}})`,
	"find in batches": `await c.find({}, {batchSize: 2}).toArray()`,
	"aggregate":       `await c.aggregate([{$match: {a: {$gt: 0}}}]).toArray()`,
	"countDocuments":  `await c.countDocuments({a: 1})`,
	"distinct":        `await c.distinct('a', {_id: {$gt: 0}}, {collation: {locale: 'en'}})`,
	"bulkWrite of single documents": `await c.bulkWrite([{insertOne: {document: {_id: 50}}},
		{updateOne: {filter: {_id: 1}, update: {$set: {a: 9}}}}, {deleteOne: {filter: {_id: 2}}}])`,
	"a transaction that is committed": `await inTransaction((s) => s.commitTransaction())`,
	"a transaction that is aborted":   `await inTransaction((s) => s.abortTransaction())`,
	"withTransaction":                 `await client.withSession((s) => s.withTransaction(transfer))`,
	"watch":                           `await follow({}, 70, 71)`,
	"watch, started after an event":   `await follow({startAfter: await follow({}, 80)}, 81, 82)`,
}

// installNode installs Node's driver in a directory, and returns how it is opened. It skips the
// test without node, npm, or a registry.
func installNode(t *testing.T, dir string) func(ctx context.Context, uri string) (driver, error) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "node"))); err != nil {
		t.Fatal(err)
	}
	registry.Fetch(t, dir, nil, "npm", "ci", "--ignore-scripts", "--no-progress", "--no-audit",
		"--no-fund")
	return func(_ context.Context, uri string) (driver, error) {
		return newScripted(func(op operation) string {
			name, _, _ := strings.Cut(op.name, ": ") // the rest is the run's plan
			return inNode[name]
		}, node, filepath.Join(dir, "node.mjs"), uri)
	}
}
