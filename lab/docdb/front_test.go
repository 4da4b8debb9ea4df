package docdb_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/internal/unified/match"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/docdb/engine"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
)

// step is a command and what its reply must have: documents match fields, values match exactly.
type step struct{ command, reply string }

const (
	fine     = `{"ok": 1}`
	conflict = `{"ok": 0, "code": 112, "codeName": "WriteConflict", "errorLabels": ["TransientTransactionError"]}`
	gone     = `{"ok": 0, "code": 251, "codeName": "NoSuchTransaction", "errorLabels": ["TransientTransactionError"]}`
	all      = `{"find": "c", "sort": {"_id": 1}}`
)

// inside are the fields of a command in a transaction.
func inside(session, number int) string {
	return fmt.Sprintf(`"lsid": {"id": {"$binary": {"base64": "%s", "subType": "04"}}}, `+
		`"txnNumber": {"$numberLong": "%d"}, "autocommit": false`, lsid(session), number)
}

func lsid(session int) string {
	return strings.Repeat("AAAA", 4) + fmt.Sprintf("AAA%cAA==", 'A'+session)
}

func begin(session, number int) string {
	return inside(session, number) + `, "startTransaction": true`
}

// retryable are the fields of a retryable write.
func retryable(session, number int) string {
	return strings.Replace(inside(session, number), `, "autocommit": false`, "", 1)
}

func commit(session, number int) string {
	return `{"commitTransaction": 1, "$db": "admin", ` + inside(session, number) + `}`
}

func abort(session int) string {
	return `{"abortTransaction": 1, "$db": "admin", ` + inside(session, 1) + `}`
}

// add is an update of one document.
func add(id, n int, more string) string {
	if more != "" {
		more = ", " + more
	}
	return fmt.Sprintf(
		`{"update": "c", "updates": [{"q": {"_id": %d}, "u": {"$inc": {"n": %d}}}]%s}`,
		id, n, more)
}

func insert(docs, more string) string {
	if more != "" {
		more = ", " + more
	}
	return `{"insert": "c", "documents": [` + docs + `]` + more + `}`
}

func read(more string) string { return `{"find": "c", "sort": {"_id": 1}, ` + more + `}` }

// found is a reply with exactly these documents.
func found(docs string) string { return `{"cursor": {"firstBatch": [` + docs + `]}}` }

// stories are what several clients do one after the other, each in a database of its own.
var stories = map[string][]step{
	"a command at a time": {
		{insert(`{"_id": 1, "n": 1}, {"_id": 2, "n": 2}`, ""), `{"n": 2}`},
		{add(1, 10, ""), `{"n": 1, "nModified": 1}`},
		{all, found(`{"_id": 1, "n": 11}, {"_id": 2, "n": 2}`)},
		{insert(`{"_id": 1}, {"_id": 3}`, ""), `{"n": 0, "writeErrors": [{"index": 0, "code": 11000}]}`},
		{insert(`{"_id": 1}, {"_id": 3}`, `"ordered": false`), `{"n": 1, "writeErrors": [{"index": 0, "code": 11000}]}`},
		{`{"delete": "c", "deletes": [{"q": {"_id": 3}, "limit": 1}, {"q": {}, "limit": 0}]}`, `{"n": 3}`},
		{all, found("")},
		{`{"nonsense": 1}`, `{"ok": 0, "code": 59, "codeName": "CommandNotFound"}`},
		{`{"find": "c", "filter": {"$nonsense": 1}}`, `{"ok": 0, "code": 2, "codeName": "BadValue"}`},
		{`{"findAndModify": "c", "query": {"_id": 7}, "update": {"$set": {"a": 1}}, "upsert": true, "new": true}`, `{"value": {"_id": 7, "a": 1}}`},
		{`{"explain": {"find": "c", "filter": {"a": 1}}}`, `{"ok": 1, "command": {"find": "c"}}`},
		{`{"explain": {"aggregate": "c", "pipeline": [{"$count": "n"}], "cursor": {}}}`, fine},
		{`{"explain": {"insert": "c"}}`, `{"ok": 0, "code": 59}`},
	},
	"no dirty read": {
		{insert(`{"_id": 1, "n": 1}, {"_id": 2, "n": 2}`, ""), `{"n": 2}`},
		{add(1, 10, begin(1, 1)), `{"n": 1}`},
		{insert(`{"_id": 3}`, inside(1, 1)), `{"n": 1}`},
		{add(2, 20, ""), `{"n": 1}`},
		{insert(`{"_id": 4}`, ""), `{"n": 1}`},
		{read(inside(1, 1)), found(`{"_id": 1, "n": 11}, {"_id": 2, "n": 2}, {"_id": 3}`)},
		{all, found(`{"_id": 1, "n": 1}, {"_id": 2, "n": 22}, {"_id": 4}`)},
		{commit(1, 1), fine},
		{commit(1, 1), fine},
		{abort(1), `{"ok": 0, "code": 256, "codeName": "TransactionCommitted"}`},
		{all, found(`{"_id": 1, "n": 11}, {"_id": 2, "n": 22}, {"_id": 3}, {"_id": 4}`)},
	},
	"a write conflict": {
		{insert(`{"_id": 1, "n": 1}, {"_id": 2, "n": 2}`, ""), `{"n": 2}`},
		{add(1, 10, begin(1, 1)), `{"n": 1}`},
		{add(2, 10, begin(2, 1)), `{"n": 1}`},
		{add(1, 10, inside(2, 1)), conflict},
		{add(2, 10, inside(2, 1)), gone},
		{add(2, 20, inside(1, 1)), `{"n": 1}`},
		{commit(1, 1), fine},
		{commit(2, 1), gone},
		{all, found(`{"_id": 1, "n": 11}, {"_id": 2, "n": 22}`)},
	},
	"a document that has changed since": {
		{insert(`{"_id": 1, "n": 1}`, ""), `{"n": 1}`},
		{read(begin(1, 1)), found(`{"_id": 1, "n": 1}`)},
		{add(1, 10, ""), `{"n": 1}`},
		{read(inside(1, 1)), found(`{"_id": 1, "n": 1}`)},
		{add(1, 10, inside(1, 1)), conflict},
		{all, found(`{"_id": 1, "n": 11}`)},
	},
	"two inserts of one document": {
		{`{"create": "c"}`, fine},
		{insert(`{"_id": 1, "n": 1}`, begin(1, 1)), `{"n": 1}`},
		{insert(`{"_id": 1, "n": 2}`, begin(2, 1)), conflict},
		{commit(1, 1), fine},
		{all, found(`{"_id": 1, "n": 1}`)},
	},
	"an abort leaves nothing": {
		{insert(`{"_id": 1, "n": 1}`, begin(1, 1)), `{"n": 1}`}, // it creates the collection
		{insert(`{"_id": 2, "n": 1}`, inside(1, 1)), `{"n": 1}`},
		{abort(1), fine},
		{all, found("")},
		{`{"listCollections": 1, "nameOnly": true}`, found("")},
		{commit(1, 1), gone},
		{abort(1), gone},
		{insert(`{"_id": 1, "n": 1}`, inside(1, 1)), gone},
	},
	"an error ends a transaction": {
		{insert(`{"_id": 1, "n": 1}`, ""), `{"n": 1}`},
		{add(1, 10, begin(1, 1)), `{"n": 1}`},
		{insert(`{"_id": 1}`, inside(1, 1)), `{"n": 0, "writeErrors": [{"index": 0, "code": 11000}]}`},
		{commit(1, 1), gone},
		{all, found(`{"_id": 1, "n": 1}`)},
		{add(1, 10, begin(1, 2)), `{"n": 1}`},
		{`{"drop": "c", ` + inside(1, 2) + `}`, `{"ok": 0, "code": 263, "codeName": "OperationNotSupportedInTransaction"}`},
		{commit(1, 2), gone},
	},
	"transactions that are not known": {
		{read(inside(1, 5)), gone},
		{commit(1, 5), gone},
		{read(begin(1, 5)), found("")},
		{read(begin(1, 5)), `{"ok": 0, "code": 117}`},
		{read(begin(1, 4)), `{"ok": 0, "code": 225}`},
		{insert(`{"_id": 1}`, inside(1, 5)), `{"n": 1}`},
		{read(begin(1, 6)), found("")}, // which aborts the one before
		{all, found("")},
		{commit(1, 6), fine},
	},
	"retried statements": {
		{insert(`{"_id": 1, "n": 1}, {"_id": 2, "n": 2}`, retryable(1, 1)), `{"n": 2}`},
		{insert(`{"_id": 1, "n": 1}, {"_id": 2, "n": 2}`, retryable(1, 1)), `{"n": 2, "retriedStmtIds": [0, 1]}`},
		{add(1, 10, retryable(1, 2)), `{"n": 1, "nModified": 1}`},
		{add(1, 10, retryable(1, 2)), `{"n": 1, "nModified": 1, "retriedStmtIds": [0]}`},
		{add(1, 10, retryable(2, 2)), `{"n": 1, "nModified": 1}`}, // of another session
		{add(1, 10, retryable(1, 1)), `{"ok": 0, "code": 225}`},
		{`{"findAndModify": "c", "query": {"_id": 2}, "update": {"$inc": {"n": 1}}, "new": true, ` + retryable(1, 3) + `}`, `{"value": {"_id": 2, "n": 3}}`},
		{`{"findAndModify": "c", "query": {"_id": 2}, "update": {"$inc": {"n": 1}}, "new": true, ` + retryable(1, 3) + `}`, `{"value": {"_id": 2, "n": 3}, "retriedStmtId": 0}`},
		{`{"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}, {"q": {"_id": 9}, "limit": 1}], ` + retryable(1, 4) + `}`, `{"n": 1}`},
		{insert(`{"_id": 2}`, ""), `{"n": 1}`},
		{`{"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}, {"q": {"_id": 9}, "limit": 1}], ` + retryable(1, 4) + `}`, `{"n": 1}`},
		{`{"delete": "c", "deletes": [{"q": {}, "limit": 0}], ` + retryable(1, 5) + `}`, `{"ok": 0, "code": 72}`},
		{all, found(`{"_id": 1, "n": 21}, {"_id": 2}`)},
	},
	"a failed statement is run again": {
		{insert(`{"_id": 1}`, ""), `{"n": 1}`},
		{insert(`{"_id": 0}, {"_id": 1}, {"_id": 2}`, retryable(1, 1)), `{"n": 1, "writeErrors": [{"index": 1, "code": 11000}]}`},
		{`{"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]}`, `{"n": 1}`},
		{insert(`{"_id": 0}, {"_id": 1}, {"_id": 2}`, retryable(1, 1)), `{"n": 3, "retriedStmtIds": [0]}`},
		{all, found(`{"_id": 0}, {"_id": 1}, {"_id": 2}`)},
	},
}

func TestStories(t *testing.T) {
	f := docdb.Start(t, docdb.Config{})
	e := rawconn.NewEngine(f.Address())
	t.Cleanup(e.Close)
	n := 0
	for name, steps := range stories {
		n++
		db, session := fmt.Sprintf("story%d", n), n*4
		t.Run(name, func(t *testing.T) {
			for i, s := range steps {
				if reply, diff := run(t, e, db, session, s); diff != "" {
					t.Fatalf("step %d: %s\n%s\nreply %s", i, s.command, diff,
						match.Text(bson.DocumentValue(reply)))
				}
			}
		})
	}
}

// TestLifetime: a transaction ends by itself, and what it has changed can be changed again.
func TestLifetime(t *testing.T) {
	f := docdb.Start(t, docdb.Config{TransactionLife: 2 * time.Second})
	e := rawconn.NewEngine(f.Address())
	t.Cleanup(e.Close)
	for i, s := range []step{
		{insert(`{"_id": 1, "n": 1}`, ""), `{"n": 1}`},
		{add(1, 10, begin(1, 1)), `{"n": 1}`},
		{add(1, 20, ""), `{"n": 1}`}, // it waits for the transaction's end
		{commit(1, 1), gone},
		{all, found(`{"_id": 1, "n": 21}`)},
	} {
		if reply, diff := run(t, e, "lifetime", 0, s); diff != "" {
			t.Fatalf("step %d: %s\n%s\nreply %s", i, s.command, diff,
				match.Text(bson.DocumentValue(reply)))
		}
	}
}

// run runs a step in a database, with sessions of its own, and returns how its reply differs.
func run(
	t *testing.T, e *rawconn.Engine, db string, sessions int, s step,
) (reply bson.Raw, diff string) {
	t.Helper()
	for i := range 3 {
		own := strings.Replace(lsid(i), "AAAA", fmt.Sprintf("A%cAA", 'A'+sessions/4), 1)
		s.command = strings.ReplaceAll(s.command, lsid(i), own)
	}
	command := parse(t, s.command)
	if !command.Has("$db") {
		command = bson.With(command, "$db", bson.StringValue(db))
	}
	reply, err := e.Run(command, nil)
	if err != nil {
		t.Fatal(err)
	}
	return reply, differs("", parse(t, s.reply), reply)
}

func parse(t *testing.T, text string) bson.Raw {
	t.Helper()
	doc, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return doc
}

// differs returns the first field that a reply has not as wanted; what want has not may be there.
// The documents of a batch must be all.
func differs(path string, want, got bson.Raw) string {
	for key, w := range want.All() {
		at := path + "." + key
		g, ok := got.Lookup(key)
		if !ok {
			return at + " is missing"
		}
		wa, isArray := w.Array()
		wd, isDoc := w.Document()
		ga, _ := g.Array()
		gd, _ := g.Document()
		wn, isNumber := w.AsDouble()
		gn, _ := g.AsDouble()
		diff := ""
		switch {
		case isArray && wa.Len() != ga.Len():
			diff = fmt.Sprintf("%s has %d elements, want %d", at, ga.Len(), wa.Len())
		case isArray:
			diff = differs(at, bson.Raw(wa), bson.Raw(ga))
		case isDoc:
			diff = differs(at, wd, gd)
		case isNumber && wn != gn, !isNumber && !w.Equal(g):
			diff = fmt.Sprintf("%s is %s, want %s", at, match.Text(g), match.Text(w))
		}
		if diff != "" {
			return diff
		}
	}
	return ""
}

// TestWriteBehindTransaction has writes wait for a transaction that changes their document: each
// applies to what the transaction has left.
func TestWriteBehindTransaction(t *testing.T) {
	postgres, err := engine.Start(t.Context(), engine.Directory(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(postgres.Stop)
	f, err := docdb.Listen(t.Context(), postgres.DSN(), docdb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	sql, err := pgx.Connect(t.Context(), postgres.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sql.Close(context.Background()) })
	e := rawconn.NewEngine(f.Address())
	t.Cleanup(e.Close)
	perform := func(number int, s step) {
		if reply, diff := run(t, e, "behind", 0, s); diff != "" {
			t.Errorf("%d: %s\n%s\nreply %s", number, s.command, diff,
				match.Text(bson.DocumentValue(reply)))
		}
	}
	for number, waiting := range []step{
		{`{"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]}`, `{"n": 1}`},
		{add(1, 10, ""), `{"n": 1, "nModified": 1}`},
		{`{"findAndModify": "c", "query": {"_id": 1}, "remove": true}`, `{"value": {"n": 11}}`},
		{`{"update": "c", "updates": [{"q": {"n": 1}, "u": {"$set": {"n": 0}}}]}`, `{"n": 0}`},
	} {
		perform(number, step{`{"delete": "c", "deletes": [{"q": {}, "limit": 0}]}`, fine})
		perform(number, step{insert(`{"_id": 1, "n": 1}`, ""), `{"n": 1}`})
		perform(number, step{add(1, 10, begin(1, number)), `{"n": 1}`})
		var done sync.WaitGroup
		done.Go(func() { perform(number, waiting) })
		for waits := 0; waits == 0; {
			if err := sql.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE wait_event_type = 'Lock'`).Scan(&waits); err != nil {
				t.Fatal(err)
			}
		}
		perform(number, step{commit(1, number), fine})
		done.Wait()
	}
}
