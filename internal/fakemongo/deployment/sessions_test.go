package deployment_test

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/unified/match"
)

// send sends a command to one host, without a driver: sessions are the test's own. A command that
// gets no answer has the reply {error: …}.
func send(t *testing.T, d *deployment.Deployment, host, command string) bson.Raw {
	t.Helper()
	nc, err := d.Dial(t.Context(), "tcp", host+":27017")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for name, id := range map[string]string{"S1": "1", "S2": "2", "S3": "3"} {
		command = strings.ReplaceAll(command, `"`+name+`"`,
			`{"id": {"$uuid": "00000000-0000-0000-0000-00000000000`+id+`"}}`)
	}
	body := doc(t, command)
	if !body.Has("$db") {
		body = bson.With(body, "$db", bson.StringValue("db"))
	}
	return exchange(t, nc, body)
}

func exchange(t *testing.T, nc net.Conn, body bson.Raw) bson.Raw {
	t.Helper()
	msg := append(wire.BeginMsg(nil, 0), body...)
	wire.EndMsg(msg)
	if _, err := nc.Write(msg); err != nil {
		t.Fatal(err)
	}
	b, err := wire.ReadFrom(bufio.NewReader(nc), 48_000_000)
	if err != nil {
		return bson.NewBuilder(nil).String("error", err.Error()).Finish()
	}
	_, m, err := wire.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return m.(*wire.Msg).Body
}

// at is a step on a host.
type at struct{ host, command, reply string }

// play runs steps on the hosts of a deployment.
func play(t *testing.T, topology deployment.Topology, version deployment.Version, steps []at) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, topology, version)
		for _, s := range steps {
			reply := bson.DocumentValue(send(t, d, s.host, s.command))
			if err := (match.Matcher{}).
				Root(bson.DocumentValue(doc(t, s.reply)), reply); err != nil {
				t.Errorf("%s is answered with %s: %v", s.command, match.Text(reply), err)
			}
		}
	})
}

// found is the reply to a find that brings these documents.
func found(docs string) string {
	return `{"cursor": {"firstBatch": [` + docs + `], "id": 0, "ns": "db.c"}}`
}

const fine, all = `{"ok": 1}`, `{"find": "c", "filter": {}}`

func TestRetryableWrites(t *testing.T) {
	one := `"lsid": "S1", "txnNumber": {"$numberLong": "1"}`
	refused := `{"ok": 0, "code": 72}`
	for name, steps := range map[string][]at{
		"a repeated insert": {
			{"a", `{"insert": "c", "documents": [{"_id": 1}], ` + one + `}`, `{"n": 1}`},
			{"a", `{"insert": "c", "documents": [{"_id": 1}], ` + one + `}`, `{"n": 1, "writeErrors": {"$$exists": false}}`},
			{"a", all, found(`{"_id": 1}`)},
		},
		"what was refused is run again": {
			{"a", `{"insert": "c", "documents": [{"_id": 1}]}`, fine},
			{"a", `{"insert": "c", "documents": [{"_id": 0}, {"_id": 1}, {"_id": 2}], "ordered": false, ` + one + `}`, `{"n": 2, "writeErrors": [{"index": 1, "code": 11000, "errmsg": {"$$exists": true}, "keyPattern": {"_id": 1}, "keyValue": {"_id": 1}}]}`},
			{"a", `{"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]}`, fine},
			{"a", `{"insert": "c", "documents": [{"_id": 0}, {"_id": 1}, {"_id": 2}], "ordered": false, ` + one + `}`, `{"n": 3, "writeErrors": {"$$exists": false}}`},
		},
		"a repeated update": {
			{"a", `{"insert": "c", "documents": [{"_id": 1, "a": 1}]}`, fine},
			{"a", `{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"a": 1}}}, {"q": {"_id": 2}, "u": {"$inc": {"a": 1}}, "upsert": true}], ` + one + `}`, `{"n": 2, "nModified": 1, "upserted": [{"index": 1, "_id": 2}]}`},
			{"a", `{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"a": 1}}}, {"q": {"_id": 2}, "u": {"$inc": {"a": 1}}, "upsert": true}], ` + one + `}`, `{"n": 2, "nModified": 1, "upserted": [{"index": 1, "_id": 2}]}`},
			{"a", all, found(`{"_id": 1, "a": 2}, {"_id": 2, "a": 1}`)},
		},
		"a repeated delete": {
			{"a", `{"insert": "c", "documents": [{"_id": 1}, {"_id": 2}]}`, fine},
			{"a", `{"delete": "c", "deletes": [{"q": {}, "limit": 1}], ` + one + `}`, `{"n": 1}`},
			{"a", `{"delete": "c", "deletes": [{"q": {}, "limit": 1}], ` + one + `}`, `{"n": 1}`},
			{"a", all, found(`{"_id": 2}`)},
		},
		"a repeated findAndModify": {
			{"a", `{"insert": "c", "documents": [{"_id": 1, "a": 1}]}`, fine},
			{"a", `{"findAndModify": "c", "query": {}, "update": {"$inc": {"a": 1}}, ` + one + `}`, `{"value": {"_id": 1, "a": 1}}`},
			{"a", `{"findAndModify": "c", "query": {}, "update": {"$inc": {"a": 1}}, ` + one + `}`, `{"value": {"_id": 1, "a": 1}}`},
			{"a", all, found(`{"_id": 1, "a": 2}`)},
		},
		"other numbers and sessions are other writes": {
			{"a", `{"insert": "c", "documents": [{"_id": 1}], ` + one + `}`, `{"n": 1}`},
			{"a", `{"insert": "c", "documents": [{"_id": 2}], "lsid": "S1", "txnNumber": {"$numberLong": "2"}}`, `{"n": 1}`},
			{"a", `{"insert": "c", "documents": [{"_id": 3}], "lsid": "S2", "txnNumber": {"$numberLong": "1"}}`, `{"n": 1}`},
			{"a", `{"insert": "c", "documents": [{"_id": 1}], ` + one + `}`, `{"ok": 0, "code": 225, "codeName": "TransactionTooOld"}`},
			{"a", all, found(`{"_id": 1}, {"_id": 2}, {"_id": 3}`)},
		},
		"refusals": {
			{"a", `{"insert": "c", "documents": [{"_id": 1}], "txnNumber": {"$numberLong": "1"}}`, refused},
			{"a", `{"find": "c", ` + one + `}`, refused},
			{"a", `{"find": "c", "lsid": "S1", "autocommit": false}`, refused},
			{"a", `{"update": "c", "updates": [{"q": {}, "u": {"$inc": {"a": 1}}, "multi": true}], ` + one + `}`, refused},
			{"a", `{"delete": "c", "deletes": [{"q": {}, "limit": 0}], ` + one + `}`, refused},
			{"a", `{"insert": "c", "documents": [{}], "lsid": "S2", "txnNumber": {"$numberLong": "1"}, "autocommit": false, "startTransaction": true}`, fine},
			{"a", `{"insert": "c", "documents": [{}], "lsid": "S2", "txnNumber": {"$numberLong": "1"}}`, `{"ok": 0, "code": 217}`},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, deployment.ReplicaSet, "7.0.0", steps) })
	}
	t.Run("on a standalone", func(t *testing.T) {
		play(t, deployment.Single, "7.0.0", []at{
			{"a", `{"insert": "c", "documents": [{}], ` + one + `}`, `{"ok": 0, "code": 20, "$clusterTime": {"$$exists": false}}`},
			{"a", `{"find": "c", "readConcern": {"level": "snapshot"}}`, `{"ok": 0, "code": 123}`},
		})
	})
}

// TestRetryableWriteFailPoint checks the fail point that fails retryable writes before or after
// they are done.
func TestRetryableWriteFailPoint(t *testing.T) {
	const insert = `{"insert": "c", "documents": [{"_id": 1}], "lsid": "S1", "txnNumber": {"$numberLong": "1"}}`
	const gone = `{"error": {"$$exists": true}}`
	three := func(number string) string {
		return `{"insert": "c", "documents": [{"_id": 11}, {"_id": 12}, {"_id": 13}], "lsid": "S1", "txnNumber": {"$numberLong": "` + number + `"}}`
	}
	set := func(data string) at {
		return at{
			"a",
			`{"configureFailPoint": "onPrimaryTransactionalWrite", "$db": "admin", "mode": {"times": 1}` + data + `}`, fine,
		}
	}
	for name, steps := range map[string][]at{
		"after":  {set(``), {"a", insert, gone}, {"a", all, found(`{"_id": 1}`)}, {"a", insert, `{"n": 1}`}},
		"before": {set(`, "data": {"failBeforeCommitExceptionCode": 1}`), {"a", insert, gone}, {"a", all, found(``)}, {"a", insert, `{"n": 1}`}},
		"before, and the connection stays": {
			set(`, "data": {"failBeforeCommitExceptionCode": 91, "closeConnection": false}`),
			{"a", insert, `{"ok": 0, "code": 91, "errorLabels": ["RetryableWriteError"]}`},
			{"a", all, found(``)},
		},
		"other commands": {set(``), {"a", `{"insert": "c", "documents": [{"_id": 2}]}`, `{"n": 1}`}, {"a", insert, gone}},
		"not when they are repeated": {
			{"a", insert, `{"n": 1}`},
			set(``),
			{"a", insert, `{"n": 1}`},
			{"a", insert, `{"n": 1}`},
			{"a", three("2"), gone},
			{"a", three("2"), `{"n": 3}`},
		},
		"behind the second statement": {
			{"a", `{"configureFailPoint": "onPrimaryTransactionalWrite", "$db": "admin", "mode": {"skip": 1}}`, fine},
			{"a", three("2"), gone},
			{"a", all, found(`{"_id": 11}, {"_id": 12}`)},
			{"a", three("2"), gone},
			{"a", three("2"), `{"n": 3}`},
			{"a", all, found(`{"_id": 11}, {"_id": 12}, {"_id": 13}`)},
		},
		"before the second statement": {
			{"a", `{"configureFailPoint": "onPrimaryTransactionalWrite", "$db": "admin", "mode": {"skip": 1},
				"data": {"failBeforeCommitExceptionCode": 91, "closeConnection": false}}`, fine},
			{"a", three("2"), `{"ok": 0, "code": 91}`},
			{"a", all, found(`{"_id": 11}`)},
			{"a", `{"configureFailPoint": "onPrimaryTransactionalWrite", "$db": "admin", "mode": "off"}`, fine},
			{"a", three("2"), `{"n": 3}`},
			{"a", all, found(`{"_id": 11}, {"_id": 12}, {"_id": 13}`)},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, deployment.ReplicaSet, "7.0.0", steps) })
	}
}

// TestSessions checks how many sessions a deployment keeps, and for how long.
func TestSessions(t *testing.T) {
	const tooMany = `{"ok": 0, "code": 261, "codeName": "TooManyLogicalSessions"}`
	ping := func(session string) string { return `{"ping": 1, "lsid": "` + session + `"}` }
	insert := `{"insert": "c", "documents": [{"_id": 1}], "lsid": "S1", "txnNumber": {"$numberLong": "1"}}`
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		d.LimitSessions(2)
		for i, step := range []struct {
			command, want string
			sessions      int
			after         time.Duration
		}{
			{command: insert, want: `{"n": 1}`, sessions: 1},
			{command: ping("S2"), want: fine, sessions: 2},
			{command: ping("S3"), want: tooMany, sessions: 2},
			{command: ping("S1"), want: fine, sessions: 2},
			{command: `{"ping": 1}`, want: fine, sessions: 2},
			{command: `{"endSessions": ["S1"]}`, want: fine, sessions: 1},
			{command: insert, want: `{"n": 1, "writeErrors": {"$$exists": false}}`, sessions: 2},
			{command: ping("S3"), want: tooMany, sessions: 2},
			{command: ping("S1"), want: fine, sessions: 2, after: 20 * time.Minute},
			{command: ping("S3"), want: fine, sessions: 2, after: 20 * time.Minute},
			{command: insert, want: `{"n": 0}`, sessions: 1, after: 31 * time.Minute},
		} {
			time.Sleep(step.after) //nolint:forbidigo // time is fake
			reply := bson.DocumentValue(send(t, d, "a", step.command))
			if err := (match.Matcher{}).
				Root(bson.DocumentValue(doc(t, step.want)), reply); err != nil {
				t.Errorf("%d: %s is answered with %s: %v", i, step.command, match.Text(reply), err)
			}
			if n := d.Sessions(); n != step.sessions {
				t.Errorf("%d: %d sessions behind %s, want %d", i, n, step.command, step.sessions)
			}
		}
	})
}

// TestClusterTime checks that the time is in all replies, goes on with writes, and that reads of
// the future are refused.
func TestClusterTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		times := func(command string) (operation, cluster bson.Value) {
			reply := send(t, d, "a", command)
			operation, _ = reply.Lookup("operationTime")
			cluster, _ = reply.Lookup("$clusterTime", "clusterTime")
			return operation, cluster
		}
		first, cluster := times(`{"ping": 1}`)
		if first.Type != bson.TypeTimestamp || !first.Equal(cluster) {
			t.Errorf("operationTime %v, clusterTime %v", first, cluster)
		}
		if again, _ := times(`{"nope": 1}`); !again.Equal(first) {
			t.Errorf("operationTime of an error is %v, want %v", again, first)
		}
		written, _ := times(`{"insert": "c", "documents": [{"_id": 1}]}`)
		x, i, _ := first.Timestamp()
		y, j, _ := written.Timestamp()
		if x > y || x == y && i >= j {
			t.Errorf("operationTime %v after a write, %v before", written, first)
		}
		for _, concern := range []string{
			`{"afterClusterTime": {"$timestamp": {"t": 4000000000, "i": 1}}}`,
			`{"level": "snapshot", "atClusterTime": {"$timestamp": {"t": 4000000000, "i": 1}}}`,
			`{"atClusterTime": {"$timestamp": {"t": 1, "i": 1}}}`,
		} {
			if reply := send(t, d, "a",
				`{"find": "c", "readConcern": `+concern+`}`); !reply.Has("errmsg") {
				t.Errorf("%s is answered with %v", concern, reply)
			}
		}
	})
}

func TestSnapshotReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.Sharded, "7.0.0")
		send(t, d, "a", `{"insert": "c", "documents": [{"_id": 1, "a": 1}]}`)
		reply := send(t, d, "a", `{"find": "c", "readConcern": {"level": "snapshot"}}`)
		time, _ := reply.Lookup("cursor", "atClusterTime")
		past := `"readConcern": {"level": "snapshot", "atClusterTime": ` + match.Text(time) + `}}`
		send(t, d, "b", `{"insert": "c", "documents": [{"_id": 2, "a": 2}]}`)
		send(t, d, "b", `{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"a": 5}}}]}`)
		send(t, d, "b", `{"drop": "other"}`)
		for command, want := range map[string]string{
			`{"find": "c", ` + past: `{"cursor": {"firstBatch": [{"_id": 1, "a": 1}], "id": 0, "ns": "db.c", "atClusterTime": ` + match.Text(time) + `}}`,
			`{"aggregate": "c", "pipeline": [], "cursor": {}, ` + past: `{"cursor": {"firstBatch": [{"_id": 1, "a": 1}], "id": 0, "ns": "db.c", "atClusterTime": {"$$exists": true}}}`,
			`{"distinct": "c", "key": "a", ` + past:                    `{"values": [1], "atClusterTime": ` + match.Text(time) + `}`,
			`{"find": "c", "readConcern": {"level": "snapshot"}}`:      `{"cursor": {"firstBatch": [{"_id": 1, "a": 6}, {"_id": 2, "a": 2}], "id": 0, "ns": "db.c", "atClusterTime": {"$$exists": true}}}`,
			`{"find": "c"}`:          found(`{"_id": 1, "a": 6}, {"_id": 2, "a": 2}`),
			`{"count": "c", ` + past: `{"ok": 0, "code": 72}`,
		} {
			reply := bson.DocumentValue(send(t, d, "a", command))
			if err := (match.Matcher{}).Root(bson.DocumentValue(doc(t, want)), reply); err != nil {
				t.Errorf("%s is answered with %s: %v", command, match.Text(reply), err)
			}
		}
	})
}

func TestTransactions(t *testing.T) {
	txn := func(session string) string {
		return `"lsid": "` + session + `", "txnNumber": {"$numberLong": "1"}, "autocommit": false`
	}
	start := func(session string) string { return txn(session) + `, "startTransaction": true` }
	commit := func(session string) string {
		return `{"commitTransaction": 1, "$db": "admin", ` + txn(session) + `}`
	}
	none := `{"ok": 0, "code": 251, "codeName": "NoSuchTransaction", "errorLabels": ["TransientTransactionError"]}`
	insert := func(id, session string) string {
		return `{"insert": "c", "documents": [{"_id": ` + id + `}], ` + session + `}`
	}
	for name, steps := range map[string][]at{
		"committed": {
			{"a", insert("1", start("S1")), `{"n": 1}`},
			{"a", insert("2", txn("S1")), `{"n": 1}`},
			{"a", all, found(``)},
			{"a", `{"find": "c", ` + txn("S1") + `}`, found(`{"_id": 1}, {"_id": 2}`)},
			{"a", commit("S1"), fine},
			{"a", all, found(`{"_id": 1}, {"_id": 2}`)},
			{"a", commit("S1"), fine},
			{"a", all, found(`{"_id": 1}, {"_id": 2}`)},
		},
		"what a transaction cannot be": {
			{"a", `{"insert": "c", "documents": [{"_id": 1}], "lsid": "S1", "txnNumber": {"$numberLong": "2"}}`, fine},
			{"a", insert("2", start("S1")), `{"ok": 0, "code": 225, "codeName": "TransactionTooOld"}`},
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}, ` + start("S2") + `}`, `{"ok": 0, "code": 263}`},
			{"a", `{"aggregate": "c", "pipeline": [{"$changeStream": {}}, {"$sort": {"_id": 1}}], "cursor": {}}`, `{"ok": 0, "code": 20, "codeName": "IllegalOperation"}`},
		},
		"everything that changes data": {
			{"a", `{"insert": "c", "documents": [{"_id": 1, "a": 1}, {"_id": 2}, {"_id": 3}]}`, fine},
			{"a", `{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"a": 1}}}], ` + start("S1") + `}`, `{"n": 1}`},
			{"a", `{"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}], ` + txn("S1") + `}`, `{"n": 1}`},
			{"a", `{"findAndModify": "c", "query": {"_id": 3}, "update": {"b": 1}, ` + txn("S1") + `}`, `{"value": {"_id": 3}}`},
			{"a", `{"create": "new", ` + txn("S1") + `}`, fine},
			{"a", `{"createIndexes": "new", "indexes": [{"name": "x", "key": {"x": 1}}], ` + txn("S1") + `}`, fine},
			{"a", `{"listIndexes": "new"}`, `{"ok": 0, "code": 26}`},
			{"a", commit("S1"), fine},
			{"a", all, found(`{"_id": 1, "a": 2}, {"_id": 3, "b": 1}`)},
			{"a", `{"listIndexes": "new"}`, `{"cursor": {"firstBatch": [{"v": 2, "name": "_id_", "key": {"_id": 1}}, {"v": 2, "name": "x", "key": {"x": 1}}], "id": 0, "ns": "db.new"}}`},
		},
		"aborted": {
			{"a", insert("1", start("S1")), `{"n": 1}`},
			{"a", `{"abortTransaction": 1, "$db": "admin", ` + txn("S1") + `}`, fine},
			{"a", `{"abortTransaction": 1, "$db": "admin", ` + txn("S1") + `}`, none},
			{"a", commit("S1"), none},
			{"a", all, found(``)},
		},
		"isolated": {
			{"a", insert("1", start("S1")), `{"n": 1}`},
			{"a", `{"find": "c", ` + start("S2") + `}`, found(``)},
			{"a", commit("S1"), fine},
			{"a", `{"find": "c", ` + txn("S2") + `}`, found(``)},
			{"a", commit("S2"), fine},
		},
		"in conflict": {
			{"a", insert("1", start("S1")), `{"n": 1}`},
			{"a", insert("1", ``+start("S2")), `{"ok": 0, "code": 112, "codeName": "WriteConflict", "errorLabels": ["TransientTransactionError"]}`},
			{"a", commit("S1"), fine},
			{"a", commit("S2"), none},
			{"a", all, found(`{"_id": 1}`)},
		},
		"an error aborts": {
			{"a", insert("1", start("S1")), `{"n": 1}`},
			{"a", insert("1", txn("S1")), `{"writeErrors": {"$$exists": true}}`},
			{"a", insert("2", txn("S1")), none},
			{"a", commit("S1"), none},
		},
		"what no transaction may do": {
			{"a", insert("1", txn("S1")), none},
			{"a", insert("1", `"lsid": "S1", "txnNumber": {"$numberLong": "1"}, "autocommit": true`), `{"ok": 0, "code": 72}`},
			{"a", `{"find": "c", "readConcern": {"level": "snapshot"}, ` + start("S1") + `}`, found(``)},
			{"a", `{"count": "c", ` + txn("S1") + `}`, `{"ok": 0, "code": 263, "codeName": "OperationNotSupportedInTransaction", "errorLabels": {"$$exists": false}}`},
			{"a", `{"find": "c", "readConcern": {}, ` + txn("S1") + `}`, `{"ok": 0, "code": 72}`},
			{"a", insert("1", `"writeConcern": {}, `+txn("S1")), `{"ok": 0, "code": 72}`},
			{"a", insert("1", start("S1")), `{"ok": 0, "code": 117}`},
			{"a", commit("S2"), none},
			{"a", `{"commitTransaction": 1, "$db": "admin"}`, `{"ok": 0, "code": 72}`},
		},
		"labels of errors": {
			{"a", `{"configureFailPoint": "failCommand", "$db": "admin", "mode": {"times": 3}, "data": {"failCommands": ["insert", "commitTransaction"], "errorCode": 91}}`, fine},
			{"a", insert("1", start("S1")), `{"ok": 0, "errorLabels": ["TransientTransactionError"]}`},
			{"a", commit("S1"), `{"ok": 0, "errorLabels": ["RetryableWriteError"]}`},
			{"a", insert("1", `"lsid": "S1"`), `{"ok": 0, "errorLabels": {"$$exists": false}}`},
			{"a", insert("1", start("S1")), `{"n": 1}`},
			{"a", `{"configureFailPoint": "failCommand", "$db": "admin", "mode": {"times": 1}, "data": {"failCommands": ["commitTransaction"], "writeConcernError": {"code": 251}}}`, fine},
			{"a", commit("S1"), `{"ok": 1, "writeConcernError": {"code": 251}, "errorLabels": {"$$exists": false}}`},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, deployment.ReplicaSet, "7.0.0", steps) })
	}
	token := `"recoveryToken": {"recoveryShardId": "x"}, `
	for name, steps := range map[string][]at{
		"recovered by another mongos": {
			{"a", insert("1", start("S1")), `{"n": 1, "recoveryToken": {"recoveryShardId": {"$$exists": true}}}`},
			{"a", commit("S1"), fine},
			{"b", `{"commitTransaction": 1, ` + token + `"$db": "admin", ` + txn("S1") + `}`, fine},
			{"b", commit("S1"), none},
		},
		"not known to another mongos": {
			{"a", insert("1", start("S1")), `{"n": 1}`},
			{"b", insert("2", txn("S1")), none},
			{"b", `{"find": "c", ` + txn("S1") + `}`, none},
			{"b", commit("S1"), none},
			{"b", `{"abortTransaction": 1, ` + token + `"$db": "admin", ` + txn("S1") + `}`, none},
			{"a", insert("3", txn("S1")), `{"n": 1}`},
			{"a", commit("S1"), fine},
			{"a", all, found(`{"_id": 1}, {"_id": 3}`)},
		},
		"not committed, for another mongos": {
			{"a", insert("1", start("S1")), `{"n": 1}`},
			{"b", `{"commitTransaction": 1, ` + token + `"$db": "admin", ` + txn("S1") + `}`, none},
			{"a", commit("S1"), none},
			{"a", all, found(``)},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, deployment.Sharded, "7.0.0", steps) })
	}
}

func TestBulkWrite(t *testing.T) {
	const three = `"nsInfo": [{"ns": "db.c"}, {"ns": "db.d"}], "$db": "admin"`
	const none = `"nErrors": 0, "nInserted": 0, "nMatched": 0, "nModified": 0, "nUpserted": 0, "nDeleted": 0`
	one := func(op string) string { return `{"bulkWrite": 1, "ops": [` + op + `], ` + three + `}` }
	refused := func(code string) string { return `{"ok": 0, "code": ` + code + `}` }
	for name, steps := range map[string][]at{
		"all kinds": {
			{
				"a", `{"bulkWrite": 1, "errorsOnly": false, "ordered": true, "ops": [{"insert": 0, "document": {"_id": 1, "a": 1}}, {"insert": 1, "document": {"_id": 1}},
				{"update": 0, "filter": {"_id": 1}, "updateMods": {"$inc": {"a": 1}}}, {"update": 0, "filter": {"_id": 2}, "updateMods": {"b": 1}, "upsert": true, "multi": false},
				{"update": 0, "filter": {}, "updateMods": [{"$set": {"c": 1}}], "multi": true}, {"delete": 1, "filter": {}}], ` + three + `}`,
				`{"nErrors": 0, "nInserted": 2, "nMatched": 3, "nModified": 3, "nUpserted": 1, "nDeleted": 1, "cursor": {"id": 0, "ns": "admin.$cmd.bulkWrite", "firstBatch": [
				{"ok": 1, "idx": 0, "n": 1}, {"ok": 1, "idx": 1, "n": 1}, {"ok": 1, "idx": 2, "n": 1, "nModified": 1}, {"ok": 1, "idx": 3, "n": 1, "nModified": 0, "upserted": {"_id": 2}},
				{"ok": 1, "idx": 4, "n": 2, "nModified": 2}, {"ok": 1, "idx": 5, "n": 1}]}}`,
			},
			{"a", all, found(`{"_id": 1, "a": 2, "c": 1}, {"_id": 2, "b": 1, "c": 1}`)},
		},
		"errors end an ordered one": {
			{
				"a", `{"bulkWrite": 1, "errorsOnly": true, "ops": [{"insert": 0, "document": {"_id": 1}}, {"insert": 0, "document": {"_id": 1}}, {"insert": 0, "document": {"_id": 2}}], ` + three + `}`,
				`{"nErrors": 1, "nInserted": 1, "cursor": {"id": 0, "ns": "admin.$cmd.bulkWrite", "firstBatch": [{"ok": 0, "idx": 1, "n": 0, "code": 11000, "errmsg": {"$$exists": true}, "keyPattern": {"_id": 1}, "keyValue": {"_id": 1}}]}}`,
			},
			{"a", all, found(`{"_id": 1}`)},
		},
		"an unordered one goes on": {
			{"a", `{"bulkWrite": 1, "errorsOnly": true, "ordered": false, "ops": [{"insert": 0, "document": {"_id": 1}}, {"insert": 0, "document": {"_id": 1}}, {"insert": 0, "document": {"_id": 2}}], ` + three + `}`, `{"nErrors": 1, "nInserted": 2}`},
		},
		"results by several batches": {
			{
				"a", `{"bulkWrite": 1, "cursor": {"batchSize": 1}, "ops": [{"insert": 0, "document": {"_id": 1}}, {"insert": 0, "document": {"_id": 2}}], ` + three + `}`,
				`{"nInserted": 2, "cursor": {"id": {"$$type": "long"}, "ns": "admin.$cmd.bulkWrite", "firstBatch": [{"ok": 1, "idx": 0, "n": 1}]}}`,
			},
			{"a", `{"getMore": {"$numberLong": "1099511627777"}, "collection": "$cmd.bulkWrite", "$db": "admin"}`, `{"cursor": {"id": 0, "ns": "admin.$cmd.bulkWrite", "nextBatch": [{"ok": 1, "idx": 1, "n": 1}]}}`},
		},
		"repeated": {
			{"a", `{"bulkWrite": 1, "lsid": "S1", "txnNumber": {"$numberLong": "1"}, "ops": [{"update": 0, "filter": {"_id": 1}, "updateMods": {"$inc": {"a": 1}}, "upsert": true}], ` + three + `}`, `{"nUpserted": 1}`},
			{"a", `{"bulkWrite": 1, "lsid": "S1", "txnNumber": {"$numberLong": "1"}, "ops": [{"update": 0, "filter": {"_id": 1}, "updateMods": {"$inc": {"a": 1}}, "upsert": true}], ` + three + `}`, `{"nUpserted": 1}`},
			{"a", `{"bulkWrite": 1, "lsid": "S1", "txnNumber": {"$numberLong": "2"}, "ops": [{"delete": 0, "filter": {}, "multi": true}], ` + three + `}`, refused("72")},
			{"a", all, found(`{"_id": 1, "a": 1}`)},
		},
		"nothing": {{"a", one(`{"delete": 0, "filter": {}}`), `{` + none + `}`}},
		"refusals": {
			{"a", `{"bulkWrite": 1, "ops": [{"insert": 0, "document": {}}], "nsInfo": []}`, refused("13")},
			{"a", one(``), refused("16")},
			{"a", one(`{"nope": 0}`), refused("40415")},
			{"a", one(`{"insert": 2, "document": {}}`), refused("2")},
			{"a", one(`{"insert": 0, "document": {}, "nope": 1}`), refused("40415")},
			{"a", one(`{"update": 0, "filter": {}, "updateMods": [{"$nope": 1}]}`), refused("40324")},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, deployment.ReplicaSet, "8.2.1", steps) })
	}
	t.Run("an old server", func(t *testing.T) {
		play(t, deployment.ReplicaSet, "7.0.0",
			[]at{{"a", one(`{"insert": 0, "document": {}}`), refused("59")}})
	})
}

func TestCursorOfASession(t *testing.T) {
	play(t, deployment.Single, "7.0.0", []at{
		{"a", `{"insert": "c", "documents": [{"_id": 1}, {"_id": 2}]}`, fine},
		{"a", `{"find": "c", "batchSize": 1, "lsid": "S1"}`, fine},
		{"a", `{"getMore": {"$numberLong": "1099511627777"}, "collection": "c"}`, `{"ok": 0, "code": 13}`},
		{"a", `{"getMore": {"$numberLong": "1099511627777"}, "collection": "c", "lsid": "S2"}`, `{"ok": 0, "code": 13}`},
		{"a", `{"getMore": {"$numberLong": "1099511627777"}, "collection": "c", "lsid": "S1"}`, `{"cursor": {"id": 0, "ns": "db.c", "nextBatch": [{"_id": 2}]}}`},
	})
}

func TestGetMoreFailPoint(t *testing.T) {
	play(t, deployment.Single, "7.0.0", []at{
		{"a", `{"insert": "c", "documents": [{"_id": 1}, {"_id": 2}]}`, fine},
		{"a", `{"configureFailPoint": "failGetMoreAfterCursorCheckout", "$db": "admin", "mode": {"times": 1}, "data": {"errorCode": 6}}`, fine},
		{"a", `{"find": "c", "batchSize": 1}`, fine},
		{"a", `{"getMore": {"$numberLong": "1099511627777"}, "collection": "c"}`, `{"ok": 0, "code": 6}`},
		{"a", `{"getMore": {"$numberLong": "1099511627777"}, "collection": "c"}`, fine},
		{"a", `{"configureFailPoint": "nope", "$db": "admin", "mode": "off"}`, `{"ok": 0, "code": 2}`},
	})
}

func TestRename(t *testing.T) {
	refused := func(code string) string { return `{"ok": 0, "code": ` + code + `}` }
	play(t, deployment.Single, "7.0.0", []at{
		{"a", `{"insert": "b", "documents": [{"_id": 1}]}`, fine},
		{"a", `{"renameCollection": "db.b", "to": "db.c"}`, refused("13")},
		{"a", `{"renameCollection": "db.x", "to": "db.c", "$db": "admin"}`, refused("26")},
		{"a", `{"renameCollection": "db.b", "to": "db.c", "$db": "admin"}`, fine},
		{"a", all, found(`{"_id": 1}`)},
		{"a", `{"insert": "b", "documents": [{"_id": 2}]}`, fine},
		{"a", `{"renameCollection": "db.b", "to": "db.c", "$db": "admin"}`, refused("48")},
		{"a", `{"renameCollection": "db.b", "to": "db.c", "dropTarget": true, "$db": "admin"}`, fine},
		{"a", all, found(`{"_id": 2}`)},
	})
}
