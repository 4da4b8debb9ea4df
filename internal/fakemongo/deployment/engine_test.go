package deployment_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/unified/match"
)

// engine is a deployment.Engine that answers each command from a list, in the end {ok: 1}, and
// keeps the commands.
type engine struct {
	mu      sync.Mutex
	replies map[string][]string // by the command's name, in order
	seen    []string
	fails   bool
	t       *testing.T
}

func (e *engine) Run(body bson.Raw, sequences map[string][]bson.Raw) (bson.Raw, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := match.Text(bson.DocumentValue(body))
	for name, docs := range sequences {
		text += fmt.Sprintf(" %s: %d", name, len(docs))
	}
	e.seen = append(e.seen, text)
	if e.fails {
		return nil, errors.New("no engine")
	}
	name := body.FirstKey()
	if left := e.replies[name]; len(left) > 0 {
		e.replies[name] = left[1:]
		return doc(e.t, left[0]), nil
	}
	return doc(e.t, `{"ok": 1}`), nil
}

// ran counts the commands of that name which the engine has seen.
func (e *engine) ran(name string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, text := range e.seen {
		if d := doc(e.t, text); d.FirstKey() == name {
			n++
		}
	}
	return n
}

// onEngine runs f with a deployment whose engine has these replies.
func onEngine(
	t *testing.T, topology deployment.Topology, replies map[string][]string,
	f func(t *testing.T, d *deployment.Deployment, e *engine, c *client.Client),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, e := deployment.New(t, topology, "7.0.0"), &engine{replies: replies, t: t}
		d.UseEngine(e)
		f(t, d, e, connect(t, d, true, nil))
	})
}

const session = `"lsid": {"id": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAA==", "subType": "04"}}}`

// TestEngineIsPassed has the engine get a command without what is the deployment's.
func TestEngineIsPassed(t *testing.T) {
	onEngine(t, deployment.ReplicaSet, nil,
		func(t *testing.T, d *deployment.Deployment, e *engine, c *client.Client) {
			run(t, c,
				`{"find": "c", "readConcern": {"level": "majority"}, `+session+`, "maxTimeMS": 5}`)
			if want := []string{`{"find":"c","maxTimeMS":5,"$db":"db"}`}; !slices.Equal(e.seen,
				want) {
				t.Errorf("the engine got %v, want %v", e.seen, want)
			}
			for _, refused := range []string{
				`{"find": "c", "unknown": 1}`, `{"find": "c", "apiStrict": true}`,
				`{"update": "c", "updates": [{"q": {}, "u": {}, "unknown": 1}]}`,
				`{"getMore": 5, "collection": "c"}`, `{"killCursors": "c", "cursors": [5]}`,
			} {
				if reply := run(t, c, refused); !reply.Has("code") {
					t.Errorf("%s is answered with %v", refused, reply)
				}
			}
			run(t, c, `{"ping": 1}`)
			if len(e.seen) != 1 {
				t.Errorf("the engine got %v", e.seen[1:])
			}
			e.fails = true
			if reply := run(t, c, `{"find": "c"}`); !reply.Has("code") {
				t.Errorf("without an engine, find is answered with %v", reply)
			}
			secondary := client.RunCommandOptions{Common: client.Common{
				ReadPreference: &selection.ReadPreference{Mode: selection.Secondary},
			}}
			_, err := c.RunCommand(t.Context(), "db", doc(t, `{"drop": "c"}`), secondary)
			if code := mongoerr.Code(err); code != 10107 {
				t.Errorf("a secondary answers drop with %v", err)
			}
		})
}

// TestServerIsPassed has an engine that knows sessions get what is of sessions, and learn of an
// election before the first command after it.
func TestServerIsPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, e := deployment.New(t, deployment.ReplicaSet, "7.0.0"), &engine{t: t}
		d.UseServer(e)
		c := connect(t, d, true, nil)
		inside := session + `, "txnNumber": {"$numberLong": "1"}, "autocommit": false`
		insert := `{"insert": "c", "documents": [{}], ` + inside + `}`
		run(t, c, insert)
		run(t, c, insert)
		d.Cluster().StepDown()
		commit := run(t, c, `{"commitTransaction": 1, `+inside+`}`)
		if !commit.Has("code") && !commit.Has("error") { // the client may know that there is none
			t.Errorf("without a primary, a commit is answered with %v",
				match.Text(bson.DocumentValue(commit)))
		}
		d.Cluster().Elect(d.Cluster().Host(0))
		run(t, c, `{"commitTransaction": 1, `+inside+`}`)
		d.FailOver()
		run(t, c, `{"find": "c"}`)
		run(t, c, `{"find": "c"}`)
		var names []string
		for _, text := range e.seen {
			names = append(names, doc(t, text).FirstKey())
		}
		if want := []string{
			"insert", "insert", "killAllSessions", "commitTransaction", "killAllSessions", "find", "find",
		}; !slices.Equal(names, want) {
			t.Errorf("the engine got %v, want %v", names, want)
		}
		if got := doc(t, e.seen[1]); !got.Has("lsid") || !got.Has("txnNumber") ||
			!got.Has("autocommit") {
			t.Errorf("the engine got %s", e.seen[1])
		}
	})
}

// TestEngineOnceOnly has a numbered write run once, and all other writes each time.
func TestEngineOnceOnly(t *testing.T) {
	numbered := func(number int, rest string) string {
		return fmt.Sprintf(`{"insert": "c", "documents": [{}], "txnNumber": {"$numberLong": "%d"}%s}`, number, rest)
	}
	for name, test := range map[string]struct {
		topology deployment.Topology
		replies  []string
		commands []string
		ran      int
		code     int64 // of the last reply
	}{
		"no number":          {deployment.ReplicaSet, nil, []string{`{"insert": "c", "documents": [{}]}`, `{"insert": "c", "documents": [{}]}`}, 2, 0},
		"the same number":    {deployment.ReplicaSet, nil, []string{numbered(1, ", "+session), numbered(1, ", "+session)}, 1, 0},
		"another number":     {deployment.Sharded, nil, []string{numbered(1, ", "+session), numbered(2, ", "+session)}, 2, 0},
		"an older number":    {deployment.ReplicaSet, nil, []string{numbered(2, ", "+session), numbered(1, ", "+session)}, 1, 225},
		"after a failure":    {deployment.ReplicaSet, []string{`{"ok": 0, "code": 8, "errmsg": "x"}`}, []string{numbered(1, ", "+session), numbered(1, ", "+session)}, 2, 0},
		"standalone":         {deployment.Single, nil, []string{numbered(1, ", "+session)}, 0, 20},
		"an update of many":  {deployment.ReplicaSet, nil, []string{`{"update": "c", "updates": [{"q": {}, "u": {}, "multi": true}], "txnNumber": {"$numberLong": "1"}, ` + session + `}`}, 0, 72},
		"a deletion of many": {deployment.ReplicaSet, nil, []string{`{"delete": "c", "deletes": [{"q": {}, "limit": 0}], "txnNumber": {"$numberLong": "1"}, ` + session + `}`}, 0, 72},
		"a deletion of one":  {deployment.ReplicaSet, nil, []string{`{"delete": "c", "deletes": [{"q": {}, "limit": 1}], "txnNumber": {"$numberLong": "1"}, ` + session + `}`}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onEngine(t, test.topology, map[string][]string{"insert": test.replies},
				func(t *testing.T, d *deployment.Deployment, e *engine, _ *client.Client) {
					var reply bson.Raw
					for _, command := range test.commands {
						reply = send(t, d, "a", command)
					}
					v, _ := reply.Lookup("code")
					if code, _ := v.AsInt64(); len(e.seen) != test.ran || code != test.code {
						t.Errorf("the engine ran %v, the last reply is %v", e.seen, reply)
					}
				})
		})
	}
}

// TestEngineStatements has each statement of a write run once, also if one of them fails.
func TestEngineStatements(t *testing.T) {
	replies := map[string][]string{
		"insert": {
			`{"n": 1, "ok": 1}`,
			`{"n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "x", "keyPattern": {"a": 1}}], "ok": 1}`,
			`{"n": 1, "ok": 1}`, `{"ok": 0, "code": 91, "errmsg": "x"}`, `{"n": 1, "ok": 1}`,
		},
		"update":        {`{"n": 1, "nModified": 1, "ok": 1}`, `{"n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 9}], "ok": 1}`},
		"findAndModify": {`{"value": {"_id": 1}, "ok": 1}`},
	}
	const numbered = `, "ordered": false, "txnNumber": {"$numberLong": "%d"}, ` + session + `}`
	insert := fmt.Sprintf(`{"insert": "c", "documents": [{"_id": 1}, {"_id": 2}, {"_id": 3}]`+
		numbered, 1)
	update := fmt.Sprintf(`{"update": "c", "updates": [{"q": {}, "u": {}}, {"q": {}, "u": {}}]`+
		numbered, 2)
	modify := `{"findAndModify": "c", "remove": true, "txnNumber": {"$numberLong": "3"}, ` +
		session + `}`
	onEngine(t, deployment.ReplicaSet, replies,
		func(t *testing.T, d *deployment.Deployment, e *engine, _ *client.Client) {
			for i, step := range []struct {
				command, want string
				ran           int // commands of the engine so far
			}{
				{insert, `{"n": 2, "writeErrors": [{"index": 1, "code": 11000, "errmsg": "x", "keyPattern": {"a": 1}}]}`, 3},
				{insert, `{"ok": 0, "code": 91}`, 4},
				{insert, `{"n": 3, "writeErrors": {"$$exists": false}}`, 5},
				{insert, `{"n": 3}`, 5},
				{update, `{"n": 2, "nModified": 1, "upserted": [{"index": 1, "_id": 9}]}`, 7},
				{update, `{"n": 2, "nModified": 1, "upserted": [{"index": 1, "_id": 9}]}`, 7},
				{modify, `{"value": {"_id": 1}}`, 8},
				{modify, `{"value": {"_id": 1}}`, 8},
				{`{"find": "c", "autocommit": false, "startTransaction": true, "txnNumber": {"$numberLong": "4"}, ` + session + `}`, `{"ok": 0, "code": 263}`, 8},
			} {
				reply := bson.DocumentValue(send(t, d, "a", step.command))
				if err := (match.Matcher{}).
					Root(bson.DocumentValue(doc(t, step.want)), reply); err != nil {
					t.Errorf("%d: %s is answered with %s: %v", i, step.command, match.Text(reply),
						err)
				}
				if len(e.seen) != step.ran {
					t.Errorf("%d: the engine ran %q, want %d", i, e.seen, step.ran)
				}
			}
		})
}

// TestEngineCursors has each host know the cursors that it has opened.
func TestEngineCursors(t *testing.T) {
	open := `{"cursor": {"id": 7, "ns": "db.c", "firstBatch": []}, "ok": 1}`
	onEngine(t, deployment.ReplicaSet, map[string][]string{
		"find":    {open, open},
		"getMore": {`{"cursor": {"id": 7, "ns": "db.c", "nextBatch": []}, "ok": 1}`, `{"cursor": {"id": 0, "ns": "db.c", "nextBatch": []}, "ok": 1}`},
	}, func(t *testing.T, _ *deployment.Deployment, e *engine, c *client.Client) {
		const getMore = `{"getMore": {"$numberLong": "7"}, "collection": "c"}`
		run(t, c, `{"find": "c"}`)
		secondary := client.RunCommandOptions{Common: client.Common{
			ReadPreference: &selection.ReadPreference{Mode: selection.Secondary},
		}}
		_, err := c.RunCommand(t.Context(), "db", doc(t, getMore), secondary)
		if code := mongoerr.Code(err); code != 43 {
			t.Errorf("getMore on a secondary: %v", err)
		}
		for i, want := range []bool{false, false, true} { // the second one ends the cursor
			if reply := run(t, c, getMore); reply.Has("code") != want {
				t.Errorf("getMore %d is answered with %v", i, reply)
			}
		}
		run(t, c, `{"find": "c"}`)
		for i, want := range []bool{false, true} {
			if reply := run(t, c,
				`{"killCursors": "c", "cursors": [{"$numberLong": "7"}]}`); reply.Has(
				"code") != want {
				t.Errorf("killCursors %d is answered with %v", i, reply)
			}
		}
	})
}

// TestEngineFailPoint has a write concern error come with what the engine did.
func TestEngineFailPoint(t *testing.T) {
	onEngine(t, deployment.ReplicaSet, map[string][]string{"insert": {`{"n": 1, "ok": 1}`}},
		func(t *testing.T, _ *deployment.Deployment, e *engine, c *client.Client) {
			if _, err := c.RunCommand(t.Context(), "admin", doc(t, `{"configureFailPoint": "failCommand",
				"mode": {"times": 1}, "data": {"failCommands": ["insert"], "writeConcernError": {"code": 91}}}`), client.RunCommandOptions{}); err != nil {
				t.Fatal(err)
			}
			reply := run(t, c, `{"insert": "c", "documents": [{}]}`)
			if !reply.Has("writeConcernError") || !reply.Has("n") || e.ran("insert") != 1 {
				t.Errorf("insert is answered with %v", reply)
			}
		})
}

// TestEngineCollections asks the engine for what tests expect of collections.
func TestEngineCollections(t *testing.T) {
	batch := func(docs string) string {
		return `{"cursor": {"firstBatch": [` + docs + `]}, "ok": 1}`
	}
	notFound := `{"ok": 0, "code": 26, "errmsg": "ns not found"}`
	onEngine(t, deployment.ReplicaSet, map[string][]string{
		"drop":            {notFound},
		"find":            {batch(`{"_id": 1}`)},
		"listCollections": {batch(`{"name": "c"}`), batch("")},
		"listIndexes":     {batch(`{"name": "x_1"}`), notFound},
		"insert":          {`{"n": 1, "ok": 1}`, `{"n": 0, "ok": 1, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "x"}]}`},
	}, func(t *testing.T, d *deployment.Deployment, e *engine, _ *client.Client) {
		if err := d.Prepare("b", "a", "b"); err != nil || e.ran("dropDatabase") != 2 {
			t.Errorf("Prepare() = %v after %v", err, e.seen)
		}
		for range 2 { // the second insert has a write error
			e.seen = nil
			err := d.SetCollection("db", "c", doc(t, `{"capped": true}`),
				[]bson.Raw{doc(t, `{"_id": 1}`)})
			want := []string{
				`{"drop":"c","$db":"db"}`, `{"create":"c","capped":true,"$db":"db"}`,
				`{"insert":"c","documents":[{"_id":1}],"$db":"db"}`,
			}
			failed := len(e.replies["insert"]) == 0
			if (err != nil) != failed || !slices.Equal(e.seen, want) {
				t.Errorf("SetCollection() = %v after %v", err, e.seen)
			}
		}
		if docs, err := d.Contents("db", "c"); len(docs) != 1 || err != nil {
			t.Errorf("Contents() = %v, %v", docs, err)
		}
		for _, want := range []bool{true, false} {
			if has, err := d.HasCollection("db", "c"); has != want || err != nil {
				t.Errorf("HasCollection() = %v, %v", has, err)
			}
			if has, err := d.HasIndex("db", "c", "x_1"); has != want || err != nil {
				t.Errorf("HasIndex() = %v, %v", has, err)
			}
		}
		e.fails = true
		if err := errors.Join(d.Prepare("a")); err == nil {
			t.Error("Prepare() without an engine succeeds")
		}
		if err := d.SetCollection("db", "c", nil, nil); err == nil {
			t.Error("SetCollection() without an engine succeeds")
		}
	})
}

// TestDisturb has commands answered otherwise, and connections dropped behind a reply.
func TestDisturb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.Single, "7.0.0")
		c := connect(t, d, false, nil)
		d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			switch cmd.Name {
			case "ping":
				return next(cmd).ThenDrop()
			case "find":
				return fakemongo.Error(8, "UnknownError", "disturbed")
			}
			return next(cmd)
		})
		if reply := run(t, c, `{"find": "c"}`); !reply.Has("code") {
			t.Errorf("find is answered with %v", reply)
		}
		synctest.Wait()
		before := d.Cluster().Host(0).OpenConnections()
		if reply := run(t, c, `{"ping": 1}`); reply.Has("error") {
			t.Errorf("ping is answered with %v", reply)
		}
		synctest.Wait()
		if n := d.Cluster().Host(0).OpenConnections(); n != before-1 {
			t.Errorf("%d connections are open, were %d", n, before)
		}
	})
}

// TestListen has clients that know no net.Pipe reach the hosts.
func TestListen(t *testing.T) {
	d := deployment.Listen(t, deployment.ReplicaSet, "7.0.0")
	c := connectTCP(t, d)
	if reply := run(t, c, `{"ping": 1}`); reply.Has("error") {
		t.Errorf("ping is answered with %v", reply)
	}
	if recorded := d.Cluster().Host(0).Commands("ping"); len(recorded) != 1 {
		t.Errorf("recorded are %v", recorded)
	}
}
