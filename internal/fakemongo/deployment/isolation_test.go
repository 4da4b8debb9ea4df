package deployment_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/unified/match"
)

// The parts of commands in transactions, and what they are answered with.
const (
	conflict = `{"ok": 0, "code": 112, "codeName": "WriteConflict", "errorLabels": ["TransientTransactionError"]}`
	gone     = `{"ok": 0, "code": 251, "codeName": "NoSuchTransaction", "errorLabels": ["TransientTransactionError"]}`
)

func in(session, number string) string {
	return `"lsid": "` + session + `", "txnNumber": {"$numberLong": "` + number +
		`"}, "autocommit": false`
}

func begins(session, number string) string {
	return in(session, number) + `, "startTransaction": true`
}

func commits(session, number string) string {
	return `{"commitTransaction": 1, "$db": "admin", ` + in(session, number) + `}`
}

func aborts(session, number string) string {
	return `{"abortTransaction": 1, "$db": "admin", ` + in(session, number) + `}`
}

// adds is an update of one document, in a transaction or, with an empty text, in none.
func adds(id, n, transaction string) string {
	command := `{"update": "c", "updates": [{"q": {"_id": ` + id + `}, "u": {"$inc": {"n": ` + n +
		`}}}]`
	if transaction != "" {
		command += ", " + transaction
	}
	return command + "}"
}

func reads(transaction string) string { return `{"find": "c", "filter": {}, ` + transaction + `}` }

func TestIsolation(t *testing.T) {
	both := at{"a", `{"insert": "c", "documents": [{"_id": 1, "n": 1}, {"_id": 2, "n": 2}]}`, fine}
	for name, steps := range map[string][]at{
		"its own writes and no others": {
			both,
			{"a", adds("1", "10", begins("S1", "1")), `{"n": 1}`},
			{"a", adds("2", "20", ""), `{"n": 1}`},
			{"a", `{"insert": "c", "documents": [{"_id": 3}]}`, `{"n": 1}`},
			{"a", reads(in("S1", "1")), found(`{"_id": 1, "n": 11}, {"_id": 2, "n": 2}`)},
			{"a", reads(`"comment": "x"`), found(`{"_id": 1, "n": 1}, {"_id": 2, "n": 22}, {"_id": 3}`)},
			{"a", commits("S1", "1"), fine},
			{"a", all, found(`{"_id": 1, "n": 11}, {"_id": 2, "n": 22}, {"_id": 3}`)},
		},
		"a document that another transaction has changed": {
			both,
			{"a", adds("1", "10", begins("S1", "1")), `{"n": 1}`},
			{"a", adds("2", "10", begins("S2", "1")), `{"n": 1}`},
			{"a", adds("1", "10", in("S2", "1")), conflict},
			{"a", adds("2", "10", in("S2", "1")), gone},
			{"a", adds("2", "20", in("S1", "1")), `{"n": 1}`},
			{"a", commits("S1", "1"), fine},
			{"a", commits("S2", "1"), gone},
			{"a", all, found(`{"_id": 1, "n": 11}, {"_id": 2, "n": 22}`)},
		},
		"a document that has changed since": {
			both,
			{"a", reads(begins("S1", "1")), found(`{"_id": 1, "n": 1}, {"_id": 2, "n": 2}`)},
			{"a", adds("1", "10", ""), `{"n": 1}`},
			{"a", adds("2", "10", in("S1", "1")), `{"n": 1}`},
			{"a", reads(in("S1", "1")), found(`{"_id": 1, "n": 1}, {"_id": 2, "n": 12}`)},
			{"a", adds("1", "10", in("S1", "1")), conflict},
			{"a", all, found(`{"_id": 1, "n": 11}, {"_id": 2, "n": 2}`)},
		},
		"a document that changes before the commit": {
			both,
			{"a", adds("1", "10", begins("S1", "1")), `{"n": 1}`},
			{"a", adds("1", "100", ""), `{"n": 1}`},
			{"a", commits("S1", "1"), conflict},
			{"a", all, found(`{"_id": 1, "n": 101}, {"_id": 2, "n": 2}`)},
		},
		"a transaction that began after the change": {
			both,
			{"a", adds("1", "10", begins("S1", "1")), `{"n": 1}`},
			{"a", commits("S1", "1"), fine},
			{"a", adds("1", "10", begins("S2", "1")), `{"n": 1}`},
			{"a", commits("S2", "1"), fine},
			{"a", all, found(`{"_id": 1, "n": 21}, {"_id": 2, "n": 2}`)},
		},
		"what an aborted transaction has changed": {
			both,
			{"a", adds("1", "10", begins("S1", "1")), `{"n": 1}`},
			{"a", aborts("S1", "1"), fine},
			{"a", adds("1", "10", begins("S2", "1")), `{"n": 1}`},
			{"a", commits("S2", "1"), fine},
			{"a", all, found(`{"_id": 1, "n": 11}, {"_id": 2, "n": 2}`)},
		},
		"a later transaction of the session aborts it": {
			both,
			{"a", adds("1", "10", begins("S1", "1")), `{"n": 1}`},
			{"a", reads(begins("S1", "2")), found(`{"_id": 1, "n": 1}, {"_id": 2, "n": 2}`)},
			{"a", adds("1", "10", begins("S2", "1")), `{"n": 1}`},
			{"a", commits("S2", "1"), fine},
		},
		"an election aborts it": {
			both,
			{"a", adds("1", "10", begins("S1", "1")), `{"n": 1}`},
			{"a", adds("2", "10", begins("S2", "1")), `{"n": 1}`},
			{"a", `{"replSetStepDown": 1, "$db": "admin"}`, fine},
			{"a", commits("S1", "1"), `{"ok": 0, "code": 10107}`},
			{"b", commits("S1", "1"), gone},
			{"b", adds("1", "10", in("S2", "1")), gone},
			{"b", adds("1", "100", begins("S1", "2")), `{"n": 1}`},
			{"b", commits("S1", "2"), fine},
			{"b", all, found(`{"_id": 1, "n": 101}, {"_id": 2, "n": 2}`)},
		},
		"a commit outlives an election": {
			both,
			{"a", adds("1", "10", begins("S1", "1")), `{"n": 1}`},
			{"a", commits("S1", "1"), fine},
			{"a", `{"replSetStepDown": 1, "$db": "admin"}`, fine},
			{"b", commits("S1", "1"), fine},
			{"b", all, found(`{"_id": 1, "n": 11}, {"_id": 2, "n": 2}`)},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, deployment.ReplicaSet, "7.0.0", steps) })
	}
}

// sends is send with a check of the reply.
func sends(t *testing.T, d *deployment.Deployment, step at) {
	t.Helper()
	reply := bson.DocumentValue(send(t, d, step.host, step.command))
	if err := (match.Matcher{}).Root(bson.DocumentValue(doc(t, step.reply)), reply); err != nil {
		t.Errorf("%s is answered with %s: %v", step.command, match.Text(reply), err)
	}
}

func TestTransactionLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		sends(t, d, at{"a", `{"insert": "c", "documents": [{"_id": 1, "n": 1}]}`, fine})
		sends(t, d, at{"a", adds("1", "10", begins("S1", "1")), `{"n": 1}`})
		time.Sleep(59 * time.Second) //nolint:forbidigo // fake time
		sends(t, d, at{"a", reads(in("S1", "1")), found(`{"_id": 1, "n": 11}`)})
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		sends(t, d, at{"a", adds("1", "100", begins("S2", "1")), `{"n": 1}`})
		sends(t, d, at{"a", commits("S1", "1"), gone})
		sends(t, d, at{"a", commits("S2", "1"), fine})
		sends(t, d, at{"a", all, found(`{"_id": 1, "n": 101}`)})
	})
}

func TestMoveShard(t *testing.T) {
	moved := `{"ok": 0, "code": 246, "codeName": "SnapshotUnavailable", "errorLabels": ["TransientTransactionError"]}`
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.Sharded, "7.0.0")
		sends(t, d, at{"a", reads(begins("S1", "1")), found(``)})
		sends(t, d, at{"a", reads(begins("S2", "1")), found(``)})
		d.MoveShard("db.c")
		sends(t, d, at{"a", reads(in("S1", "1")), moved})
		sends(t, d, at{"a", commits("S1", "1"), gone})
		sends(t, d, at{"a", `{"find": "other", ` + in("S2", "1") + `}`, fine})
		sends(t, d, at{"a", adds("1", "1", begins("S1", "2")), `{"n": 0}`})
		sends(t, d, at{"a", commits("S1", "2"), fine})
	})
}

func TestFailOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.Sharded, "7.0.0")
		sends(t, d, at{"a", `{"insert": "c", "documents": [{"_id": 1, "n": 1}]}`, fine})
		sends(t, d, at{"a", adds("1", "10", begins("S1", "1")), `{"n": 1}`})
		d.FailOver()
		sends(t, d, at{"a", commits("S1", "1"), gone})
		sends(t, d, at{"a", adds("1", "100", begins("S1", "2")), `{"n": 1}`})
		sends(t, d, at{"a", commits("S1", "2"), fine})
		sends(t, d, at{"a", all, found(`{"_id": 1, "n": 101}`)})
	})
}

// snapshot returns the fields of a reply to a find of all documents as they were at that time, or
// now.
func snapshot(t *testing.T, d *deployment.Deployment, time string) bson.Raw {
	t.Helper()
	if time != "" {
		time = `, "atClusterTime": ` + time
	}
	reply := send(t, d, "a", `{"find": "c", "readConcern": {"level": "snapshot"`+time+`}}`)
	cursor, _ := reply.Lookup("cursor")
	doc, _ := cursor.Document()
	if doc == nil {
		t.Fatalf("find is answered with %v", reply)
	}
	return doc
}

// TestCommitIsOneMoment reads the data of each time around a commit: all of its changes are there,
// or none.
func TestCommitIsOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		sends(t, d,
			at{"a", `{"insert": "c", "documents": [{"_id": 1, "n": 5}, {"_id": 2, "n": 5}]}`, fine})
		sends(t, d, at{"a", adds("1", "-3", begins("S1", "1")), `{"n": 1}`})
		sends(t, d, at{"a", adds("2", "3", in("S1", "1")), `{"n": 1}`})
		before, _ := snapshot(t, d, "").Lookup("atClusterTime")
		sends(t, d, at{"a", commits("S1", "1"), fine})
		after, _ := snapshot(t, d, "").Lookup("atClusterTime")
		second, first, _ := before.Timestamp()
		_, last, _ := after.Timestamp()
		if first >= last {
			t.Fatalf("the commit took no time: %d, %d", first, last)
		}
		for i := first; i <= last; i++ {
			batch, _ := snapshot(t, d, match.Text(bson.TimestampValue(second, i))).
				Lookup("firstBatch")
			array, _ := batch.Array()
			var sum int64
			for doc := range array.Documents() {
				n, _ := doc.Lookup("n")
				value, _ := n.AsInt64()
				sum += value
			}
			if sum != 10 {
				t.Errorf("a snapshot inside the commit: %s", match.Text(batch))
			}
		}
	})
}

// TestOldSnapshot reads data of a time that more changes follow than the store keeps without
// versions.
func TestOldSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		sends(t, d, at{"a", `{"insert": "c", "documents": [{"_id": 1, "n": 0}]}`, fine})
		many := adds("1", "1", "")
		statement := many[strings.Index(many, "[")+1 : strings.Index(many, "]")]
		many = strings.Replace(many, statement, strings.Repeat(statement+", ", 599)+statement, 1)
		times := map[string]string{}
		for n := 0; n <= 1800; n += 600 {
			time, _ := snapshot(t, d, "").Lookup("atClusterTime")
			times[match.Text(time)] = strconv.Itoa(n)
			sends(t, d, at{"a", many, `{"n": 600}`})
		}
		for time, n := range times {
			batch, _ := snapshot(t, d, time).Lookup("firstBatch")
			if got, want := match.Text(batch),
				`"n":`+n+`}`; !strings.Contains(strings.ReplaceAll(got, " ", ""), want) {
				t.Errorf("at %s there is %s, want n to be %s", time, got, n)
			}
		}
	})
}
