package session_test

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hello = `{"ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["db.test:27017"], "me": "db.test:27017",
	"minWireVersion": 0, "maxWireVersion": 25, "logicalSessionTimeoutMinutes": 30}`

func raw(t *testing.T, json string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var doc = servicetest.JSON

// start starts a gateway before a server that answers finds and inserts at the given times, and
// says that its finds read the snapshot of 77.
func start(t *testing.T, operationTime *int) *servicetest.Gateway {
	t.Helper()
	answer := func(rest string) fakemongo.Handler {
		return func(*fakemongo.Command) fakemongo.Reply {
			n := *operationTime
			return fakemongo.Document(raw(t, fmt.Sprintf(`{"ok": 1, %s, "operationTime": {"$timestamp": {"t": %d, "i": 1}},
				"$clusterTime": {"clusterTime": {"$timestamp": {"t": %d, "i": 1}}, "signature": {"hash": "x"}}}`, rest, n, n)))
		}
	}
	const cursor = `"cursor": {"id": 0, "ns": "d.c", "firstBatch": [{"_id": 1}, {"_id": 2}], "atClusterTime": {"$timestamp": {"t": 77, "i": 1}}}`
	return servicetest.Start(t, fakemongo.NewServer(t, fakemongo.Handlers{
		"hello":  fakemongo.Always(fakemongo.Document(raw(t, hello))),
		"find":   answer(cursor),
		"insert": answer(`"n": 1`),
		"endSessions": func(*fakemongo.Command) fakemongo.Reply {
			return fakemongo.OK(nil)
		},
	}), servicetest.Config{})
}

func startSession(
	t *testing.T, g *servicetest.Gateway, req *mooringv1.SessionServiceStartRequest,
) string {
	t.Helper()
	res, err := g.Session.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return res.GetSession()
}

// last is the last command of that name: its lsid and its read concern.
func last(t *testing.T, g *servicetest.Gateway, name string) (lsid, readConcern string) {
	t.Helper()
	commands := g.Server.Commands(name)
	if len(commands) == 0 {
		t.Fatalf("no %s was sent", name)
	}
	body := commands[len(commands)-1].Body
	id, _ := body.Lookup("lsid", "id")
	rc, _ := body.Lookup("readConcern")
	d, _ := rc.Document()
	text, err := extjson.Append(nil, d, extjson.Relaxed)
	if err != nil {
		text = nil
	}
	return string(id.Data), string(text)
}

// TestCausalConsistency: each call in a session asks to see what the one before it saw. All but
// retryable writes have one lsid, which no call without the session has.
func TestCausalConsistency(t *testing.T) {
	now := 10
	g := start(t, &now)
	ctx, token := t.Context(), startSession(t, g, &mooringv1.SessionServiceStartRequest{})

	in, err := g.Document.InsertOne(ctx, &mooringv1.InsertOneRequest{
		Database: "d", Collection: "c", Document: doc(`{}`), Session: &token,
	})
	if err != nil || in.GetSession() == "" || in.GetSession() == token {
		t.Fatalf("InsertOne = %v, %v, want a renewed token", in, err)
	}
	// Replicas cannot agree on the numbers of retryable writes, so these have an id of their own.
	written, _ := last(t, g, "insert")
	now = 20
	find, err := g.Document.FindOne(ctx,
		&mooringv1.FindOneRequest{Database: "d", Collection: "c", Session: in.Session})
	if err != nil {
		t.Fatal(err)
	}
	lsid, rc := last(t, g, "find")
	if lsid == written || rc != `{"afterClusterTime":{"$timestamp":{"t":10,"i":1}}}` {
		t.Errorf("the find has lsid %x and readConcern %s, want a time of 10", lsid, rc)
	}
	// The older token stays valid, but knows less.
	older, err := g.Document.FindOne(ctx,
		&mooringv1.FindOneRequest{Database: "d", Collection: "c", Session: &token})
	if err != nil || older.GetSession() == "" {
		t.Errorf("FindOne with an older token = %v, %v", older, err)
	}
	if id, rc := last(t, g, "find"); id != lsid || strings.Contains(rc, "after") {
		t.Errorf("a find with the first token has lsid %x and readConcern %s", id, rc)
	}
	// The token in the metadata.
	md := metadata.AppendToOutgoingContext(ctx, "mooring-session", find.GetSession())
	page, err := g.Document.Find(md, &mooringv1.FindRequest{Database: "d", Collection: "c"})
	if err != nil || page.GetSession() == "" {
		t.Errorf("Find = %v, %v, want a renewed token", page, err)
	}
	if id, rc := last(t, g, "find"); id != lsid ||
		rc != `{"afterClusterTime":{"$timestamp":{"t":20,"i":1}}}` {
		t.Errorf("the find has lsid %x and readConcern %s, want a time of 20", id, rc)
	}
	if _, err := g.Document.FindOne(ctx,
		&mooringv1.FindOneRequest{Database: "d", Collection: "c"}); err != nil {
		t.Fatal(err)
	}
	if id, rc := last(t, g, "find"); id == lsid || rc != "" && rc != "{}" {
		t.Errorf("a call without the session has its lsid, or readConcern %s", rc)
	}
	// Each message of a stream has a token.
	ss, err := g.Document.StreamFind(ctx,
		&mooringv1.StreamFindRequest{Database: "d", Collection: "c", Session: page.Session})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := ss.Recv(); err != nil || m.GetSession() == "" {
		t.Errorf("the stream's message = %v, %v, want a token", m, err)
	}
}

func TestSnapshot(t *testing.T) {
	now := 10
	g := start(t, &now)
	token := startSession(t, g, &mooringv1.SessionServiceStartRequest{Snapshot: proto.Bool(true)})
	for _, want := range []string{
		`{"level":"snapshot"}`, `{"level":"snapshot","atClusterTime":{"$timestamp":{"t":77,"i":1}}}`,
	} {
		res, err := g.Document.FindOne(t.Context(),
			&mooringv1.FindOneRequest{Database: "d", Collection: "c", Session: &token})
		if err != nil {
			t.Fatal(err)
		}
		if _, rc := last(t, g, "find"); rc != want {
			t.Errorf("readConcern is %s, want %s", rc, want)
		}
		token = res.GetSession()
	}
	at := &mooringv1.Value{
		Encoding: &mooringv1.Value_Json{Json: `{"$timestamp": {"t": 5, "i": 6}}`},
	}
	token = startSession(t, g,
		&mooringv1.SessionServiceStartRequest{Snapshot: proto.Bool(true), SnapshotTime: at})
	if _, err := g.Document.FindOne(t.Context(),
		&mooringv1.FindOneRequest{Database: "d", Collection: "c", Session: &token}); err != nil {
		t.Fatal(err)
	}
	if _, rc := last(t, g,
		"find"); rc != `{"level":"snapshot","atClusterTime":{"$timestamp":{"t":5,"i":6}}}` {
		t.Errorf("readConcern is %s, want the snapshot of 5", rc)
	}
}

func TestWithoutCausalConsistency(t *testing.T) {
	now := 10
	g := start(t, &now)
	token := startSession(t, g,
		&mooringv1.SessionServiceStartRequest{CausalConsistency: proto.Bool(false)})
	for range 2 {
		res, err := g.Document.FindOne(t.Context(),
			&mooringv1.FindOneRequest{Database: "d", Collection: "c", Session: &token})
		if err != nil {
			t.Fatal(err)
		}
		if _, rc := last(t, g, "find"); strings.Contains(rc, "after") {
			t.Errorf("readConcern is %s, want none", rc)
		}
		token = res.GetSession()
	}
}

func TestEnd(t *testing.T) {
	now := 10
	g := start(t, &now)
	token := startSession(t, g, &mooringv1.SessionServiceStartRequest{})
	if _, err := g.Document.FindOne(t.Context(),
		&mooringv1.FindOneRequest{Database: "d", Collection: "c", Session: &token}); err != nil {
		t.Fatal(err)
	}
	lsid, _ := last(t, g, "find")
	if _, err := g.Session.End(t.Context(),
		&mooringv1.SessionServiceEndRequest{Session: &token}); err != nil {
		t.Fatal(err)
	}
	commands := g.Server.Commands("endSessions")
	if len(commands) != 1 || !strings.Contains(string(commands[0].Body), lsid) {
		t.Errorf("sent %v, want the end of %x", commands, lsid)
	}
	// The metadata has the token, too.
	md := metadata.AppendToOutgoingContext(t.Context(), "mooring-session", token)
	if _, err := g.Session.End(md, &mooringv1.SessionServiceEndRequest{}); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	now := 10
	g := start(t, &now)
	token := startSession(t, g, &mooringv1.SessionServiceStartRequest{})
	ctx := t.Context()
	find := func(session string) error {
		_, err := g.Document.FindOne(ctx,
			&mooringv1.FindOneRequest{Database: "d", Collection: "c", Session: &session})
		return err
	}
	begin := func(req *mooringv1.SessionServiceStartRequest) error {
		_, err := g.Session.Start(ctx, req)
		return err
	}
	timestamp := func(json string) *mooringv1.Value {
		return &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: json}}
	}
	for name, test := range map[string]struct {
		err   error
		code  codes.Code
		field string
	}{
		"a wrong token": {find("x"), codes.NotFound, "session"},
		"another client's": {func() error {
			_, err := g.Document.FindOne(servicetest.As(ctx, "other"),
				&mooringv1.FindOneRequest{Database: "d", Collection: "c", Session: &token})
			return err
		}(), codes.NotFound, "session"},
		"two tokens": {func() error {
			md := metadata.AppendToOutgoingContext(ctx, "mooring-session", "x")
			_, err := g.Document.FindOne(md,
				&mooringv1.FindOneRequest{Database: "d", Collection: "c", Session: &token})
			return err
		}(), codes.InvalidArgument, "mooring-session"},
		"an unacknowledged write": {func() error {
			none := &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Nodes{Nodes: 0}}}
			_, err := g.Document.InsertOne(ctx, &mooringv1.InsertOneRequest{
				Database: "d", Collection: "c", Document: doc(`{}`), Session: &token,
				WriteConcern: none,
			})
			return err
		}(), codes.InvalidArgument, "session"},
		"both consistencies": {begin(&mooringv1.SessionServiceStartRequest{
			CausalConsistency: proto.Bool(true), Snapshot: proto.Bool(true),
		}), codes.InvalidArgument, "session"},
		"a time without a snapshot": {begin(&mooringv1.SessionServiceStartRequest{
			SnapshotTime: timestamp(`{"$timestamp": {"t": 1, "i": 1}}`),
		}), codes.InvalidArgument, "session"},
		"a time that is a number": {begin(&mooringv1.SessionServiceStartRequest{
			Snapshot: proto.Bool(true), SnapshotTime: timestamp(`1`),
		}), codes.InvalidArgument, "snapshotTime"},
		"the time 0": {begin(&mooringv1.SessionServiceStartRequest{
			Snapshot: proto.Bool(true), SnapshotTime: timestamp(`{"$timestamp": {"t": 0, "i": 0}}`),
		}), codes.InvalidArgument, "snapshotTime"},
		"the end of nothing": {func() error {
			_, err := g.Session.End(ctx, &mooringv1.SessionServiceEndRequest{})
			return err
		}(), codes.InvalidArgument, "session"},
	} {
		if test.err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if e := rpcerr.HTTP(test.err).Body.GetError(); status.Code(test.err) != test.code ||
			e.GetField() != test.field {
			t.Errorf("%s: %v, field %q: %v", name, status.Code(test.err), e.GetField(), test.err)
		}
	}
}

// TestCursorOfASession: its getMores have the session's lsid, and renew the token that is given.
func TestCursorOfASession(t *testing.T) {
	now := 10
	g := start(t, &now)
	g.Server.Handle("find", fakemongo.Always(fakemongo.Document(raw(t,
		`{"ok": 1, "cursor": {"id": {"$numberLong": "9"}, "ns": "d.c", "firstBatch": [{"_id": 1}]}}`))))
	g.Server.Handle("getMore", fakemongo.Always(fakemongo.Document(raw(t,
		`{"ok": 1, "cursor": {"id": 0, "ns": "d.c", "nextBatch": [{"_id": 2}]}}`))))
	token := startSession(t, g, &mooringv1.SessionServiceStartRequest{})
	page, err := g.Document.Find(t.Context(),
		&mooringv1.FindRequest{Database: "d", Collection: "c", Session: &token})
	if err != nil {
		t.Fatal(err)
	}
	next, err := g.Cursor.NextPage(t.Context(),
		&mooringv1.NextPageRequest{Cursor: page.GetCursor(), Session: page.Session})
	if err != nil || len(next.GetDocuments()) != 1 || next.GetSession() == "" {
		t.Fatalf("NextPage = %v, %v", next, err)
	}
	first, _ := last(t, g, "find")
	if more, _ := last(t, g, "getMore"); more != first || first == "" {
		t.Errorf("the getMore has lsid %x, want %x", more, first)
	}
}
