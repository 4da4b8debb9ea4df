package docdb_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/unified/match"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
)

func connect(t *testing.T, uri string) *client.Client {
	t.Helper()
	cfg, err := connstring.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	return c
}

func watch(
	t *testing.T, c *client.Client, ns client.Namespace, opt client.WatchOptions,
) *changestream.Stream {
	t.Helper()
	s, err := c.Watch(t.Context(), ns, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
	return s
}

// events has a stream's next events match these, and returns them.
func events(t *testing.T, s *changestream.Stream, wants ...string) (seen []bson.Raw) {
	t.Helper()
	for _, want := range wants {
		event, err := s.Next(t.Context())
		if err != nil {
			t.Fatalf("%v; want %s", err, want)
		}
		if diff := differs("", parse(t, want), event); diff != "" {
			t.Fatalf("%s\nevent %s\nwant  %s", diff, match.Text(bson.DocumentValue(event)), want)
		}
		seen = append(seen, event.Clone())
	}
	return seen
}

// TestEvents: what streams of a collection, a database and the deployment say of each change.
func TestEvents(t *testing.T) {
	f := docdb.Start(t, docdb.Config{})
	e := rawconn.NewEngine(f.Address())
	t.Cleanup(e.Close)
	c := connect(t, f.URI())
	do := func(steps ...step) {
		t.Helper()
		for _, s := range steps {
			if reply, diff := run(t, e, "shop", 0, s); diff != "" {
				t.Fatalf("%s\n%s\nreply %s", s.command, diff, match.Text(bson.DocumentValue(reply)))
			}
		}
	}
	ns := client.Namespace{Database: "shop", Collection: "c"}
	do(
		step{
			`{"create": "c", "changeStreamPreAndPostImages": {}}`,
			`{"ok": 0, "errmsg": "changeStreamPreAndPostImages is currently unsupported"}`,
		},
		step{`{"create": "c", "changeStreamPreAndPostImages": {"enabled": true}}`, fine},
	)
	s := watch(t, c, ns, client.WatchOptions{
		FullDocument: "whenAvailable", FullDocumentBeforeChange: "whenAvailable",
	})
	database := watch(t, c, client.Namespace{Database: "shop"},
		client.WatchOptions{FullDocument: "updateLookup"})
	deployment := watch(t, c, client.Namespace{}, client.WatchOptions{
		Pipeline: bson.Array(bson.NewBuilder(nil).OpenDocument("0").OpenDocument("$match").
			OpenDocument("operationType").OpenArray("$in").String("", "delete").
			String("", "invalidate").
			String("", "dropDatabase").Close().Close().Close().Close().Finish()),
	})
	do(
		step{insert(`{"_id": 1, "n": 1, "a": {"b": [1, 2, 3]}, "text": "$x"}`, ""), fine},
		step{add(1, 1, ""), fine},
		step{add(1, 0, ""), fine}, // it changes nothing
		step{
			`{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a.b": [1], "x.y": 1}, "$unset": {"text": 1}}}]}`, fine,
		},
		step{
			`{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"n": 5}}, {"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]}`, fine,
		},
		step{`{"findAndModify": "c", "query": {"_id": 1}, "update": {"n": 7}}`, fine},
		step{`{"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]}`, fine},
	)
	events(t, s,
		`{"operationType": "insert", "ns": {"db": "shop", "coll": "c"}, "documentKey": {"_id": 1}, "fullDocument": {"_id": 1, "text": "$x"}}`,
		`{"operationType": "update", "updateDescription": {"updatedFields": {"n": 2}, "removedFields": [], "truncatedArrays": []}, "fullDocument": {"n": 2}, "fullDocumentBeforeChange": {"n": 1}}`,
		`{"operationType": "update", "updateDescription": {"updatedFields": {"x": {"y": 1}}, "removedFields": ["text"], "truncatedArrays": [{"field": "a.b", "newSize": 1}]}}`,
		`{"operationType": "replace", "fullDocument": {"n": 5}}`,
		`{"operationType": "update", "updateDescription": {"updatedFields": {"n": 6}}}`,
		`{"operationType": "replace", "fullDocument": {"n": 7}, "fullDocumentBeforeChange": {"n": 6}}`,
		`{"operationType": "delete", "documentKey": {"_id": 1}, "fullDocumentBeforeChange": {"n": 7}}`,
	)
	events(t, deployment, `{"operationType": "delete", "ns": {"db": "shop", "coll": "c"}}`)

	// Transactions come as a whole, in the order of their commits, and not at all if they abort.
	do(
		step{insert(`{"_id": 10, "n": 1}`, begin(1, 7)), fine},
		step{insert(`{"_id": 20}`, begin(2, 1)), fine},
		step{insert(`{"_id": 30}`, ""), fine},
		step{add(10, 1, inside(1, 7)), fine},
		step{insert(`{"_id": 40}`, begin(0, 1)), fine},
		step{abort(0), fine},
		step{commit(2, 1), fine},
		step{commit(1, 7), fine},
		step{
			`{"update": "other", "updates": [{"q": {"_id": 1}, "u": {"n": 1}, "upsert": true}]}`,
			fine,
		},
	)
	seen := events(t, s,
		`{"operationType": "insert", "documentKey": {"_id": 30}}`,
		`{"operationType": "insert", "documentKey": {"_id": 20}, "txnNumber": 1}`,
		`{"operationType": "insert", "documentKey": {"_id": 10}, "txnNumber": 7}`,
		`{"operationType": "update", "documentKey": {"_id": 10}, "txnNumber": 7}`,
	)
	first, _ := seen[2].Lookup("clusterTime")
	second, _ := seen[3].Lookup("clusterTime")
	if !first.Equal(second) || !seen[2].Has("lsid", "id") || seen[0].Has("txnNumber") {
		t.Errorf("events of a transaction: %s", match.Text(bson.DocumentValue(seen[2])))
	}

	do(step{`{"renameCollection": "shop.c", "to": "shop.d", "$db": "admin"}`, fine})
	events(t, s,
		`{"operationType": "rename", "ns": {"coll": "c"}, "to": {"db": "shop", "coll": "d"}}`,
		`{"operationType": "invalidate"}`)
	if _, err := s.Next(t.Context()); err == nil {
		t.Error("the stream goes on behind an invalidate event")
	}
	do(step{`{"drop": "d"}`, fine}, step{`{"dropDatabase": 1}`, fine})
	for range 7 + 4 { // what the first stream has seen
		if _, err := database.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	events(t, database,
		`{"operationType": "insert", "ns": {"coll": "other"}, "fullDocument": {"_id": 1, "n": 1}}`,
		`{"operationType": "rename"}`, `{"operationType": "drop", "ns": {"coll": "d"}}`,
		`{"operationType": "drop", "ns": {"coll": "other"}}`,
		`{"operationType": "dropDatabase", "ns": {"db": "shop"}}`,
		`{"operationType": "invalidate"}`,
	)
	events(t, deployment, `{"operationType": "dropDatabase"}`)
}

// TestRefusedStreams: what a stream cannot be, or cannot resume from, is an error.
func TestRefusedStreams(t *testing.T) {
	f := docdb.Start(t, docdb.Config{History: 10 << 10})
	e := rawconn.NewEngine(f.Address())
	t.Cleanup(e.Close)
	open := func(options, stages string) string {
		return `{"aggregate": "c", "cursor": {}, "pipeline": [{"$changeStream": {` + options +
			`}}` + stages + `]}`
	}
	steps := []step{
		{open("", ""), fine},
		{open("", `, {"$group": {"_id": 1}}`), `{"ok": 0, "code": 40324}`},
		{open("", `, {"$match": {"$nonsense": 1}}`), `{"ok": 0}`},
		{open("", `, {"$unset": "_id"}`), `{"ok": 0, "code": 280}`},
		{open(`"resumeAfter": {"_data": "none"}`, ""), `{"ok": 0, "code": 260}`},
		{open(`"resumeAfter": {"_data": "000000000000000100000002"}`, ""), `{"ok": 0, "code": 260}`},
		{open(`"nonsense": 1`, ""), `{"ok": 0, "code": 40415}`},
		{open(`"fullDocument": "always"`, ""), `{"ok": 0, "code": 2}`},
		{strings.TrimSuffix(open("", ""), "}") + ", " + begin(1, 1) + "}", `{"ok": 0, "code": 263}`},
	}
	for range 40 { // more than the history keeps
		steps = append(steps,
			step{insert(`{"text": "`+strings.Repeat("x", 1000)+`"}`, ""), `{"n": 1}`})
	}
	for _, s := range steps {
		if reply, diff := run(t, e, "refused", 0, s); diff != "" {
			t.Errorf("%s\n%s\nreply %s", s.command, diff, match.Text(bson.DocumentValue(reply)))
		}
	}
	lost := step{
		open(`"resumeAfter": {"_data": "000000000000000100000000"}`, ""),
		`{"ok": 0, "code": 286, "errorLabels": ["NonResumableChangeStreamError"]}`,
	}
	s := watch(t, connect(t, f.URI()), client.Namespace{Database: "refused"}, client.WatchOptions{})
	if reply, diff := run(t, e, "refused", 0, step{insert(`{"_id": 1}`, ""), fine}); diff != "" {
		t.Fatalf("%s: %s", diff, match.Text(bson.DocumentValue(reply)))
	}
	events(t, s, `{"operationType": "insert"}`) // so the log has been read
	if reply, diff := run(t, e, "refused", 0, lost); diff != "" {
		t.Errorf("%s\n%s\nreply %s", lost.command, diff, match.Text(bson.DocumentValue(reply)))
	}
}

// TestIdleTokens: streams that wait come to the same token, wherever they were opened.
func TestIdleTokens(t *testing.T) {
	c := connect(t, docdb.Start(t, docdb.Config{}).URI())
	ns := client.Namespace{Database: "idle", Collection: "c"}
	first := watch(t, c, ns, client.WatchOptions{})
	if err := writeRounds(t.Context(), c, ns, 0, 1); err != nil {
		t.Fatal(err)
	}
	events(t, first, `{"operationType": "insert"}`)
	old := watch(t, c, ns, client.WatchOptions{ResumeAfter: first.ResumeToken().Clone()})
	now := watch(t, c, ns, client.WatchOptions{})
	for _, s := range []*changestream.Stream{old, now} {
		for found := true; found; {
			var err error
			if _, found, err = s.TryNext(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a, b := old.ResumeToken(), now.ResumeToken(); !bytes.Equal(a, b) {
		t.Errorf("the tokens are %s and %s", match.Text(bson.DocumentValue(a)),
			match.Text(bson.DocumentValue(b)))
	}
}

// TestResume: writers insert by single writes and in transactions, some of which abort. A stream
// that is opened again behind random events sees each committed document once, transactions as a
// whole, and everything in the same order as a stream that was never interrupted.
func TestResume(t *testing.T) {
	f := docdb.Start(t, docdb.Config{})
	c := connect(t, f.URI())
	ns := client.Namespace{Database: "resume", Collection: "c"}
	s := watch(t, c, ns, client.WatchOptions{})
	steady := watch(t, c, ns, client.WatchOptions{})
	const writers, rounds = 4, 25
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			if err := writeRounds(t.Context(), c, ns, w, rounds); err != nil {
				t.Error(err)
			}
		})
	}
	want := writers * rounds * 3 // of four documents of a round, one is aborted
	var seen []string
	for i := 0; i < want; i++ {
		event, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id, _ := event.Lookup("documentKey", "_id")
		name, _ := id.Str()
		if slices.Contains(seen, name) {
			t.Fatalf("%s comes twice", name)
		}
		seen = append(seen, name)
		if i%7 == 3 { // also between the events of a transaction
			token := s.ResumeToken().Clone()
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			s = watch(t, c, ns,
				client.WatchOptions{ResumeAfter: token, BatchSize: new(int32(i%3 + 1))})
		}
	}
	writing.Wait()
	for i, name := range seen {
		event, err := steady.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id, _ := event.Lookup("documentKey", "_id")
		if other, _ := id.Str(); other != name {
			t.Fatalf("event %d is %s for one stream, %s for another", i, name, other)
		}
	}
	for i, name := range seen {
		if strings.HasSuffix(name, "/aborted") {
			t.Errorf("%s was aborted", name)
		}
		if pair, ok := strings.CutSuffix(name, "/first"); ok &&
			(i+1 == len(seen) || seen[i+1] != pair+"/second") {
			t.Errorf("the transaction of %s is not together", name)
		}
	}
}

func writeRounds(ctx context.Context, c *client.Client, ns client.Namespace, w, rounds int) error {
	put := func(s *client.Session, round int, name string) error {
		doc := bson.NewBuilder(nil).String("_id", fmt.Sprintf("%d/%d/%s", w, round, name)).Finish()
		opt := client.InsertOneOptions{}
		opt.Session = s
		_, err := c.InsertOne(ctx, ns, doc, opt)
		return err
	}
	s, err := c.StartSession(session.Options{})
	if err != nil {
		return err
	}
	defer s.End(ctx)
	for round := range rounds {
		if err := put(nil, round, "single"); err != nil {
			return err
		}
		for _, names := range [][]string{{"aborted"}, {"first", "second"}} {
			if err := s.StartTransaction(client.TransactionOptions{}); err != nil {
				return err
			}
			for _, name := range names {
				if err := put(s, round, name); err != nil {
					return err
				}
			}
			end := s.CommitTransaction
			if len(names) == 1 {
				end = s.AbortTransaction
			}
			if err := end(ctx, client.EndTransactionOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}
