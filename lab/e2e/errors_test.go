package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// problem is the body of every error.
type problem struct {
	Error struct {
		Status, Reason, Message, RequestID, Retry string
		Field                                     *string
		Offset                                    *int64
		Server                                    *struct {
			Code     int
			CodeName string
		}
		WriteErrors []struct {
			Index, Code int
			Message     string
		}
	}
}

func wantProblem(t testing.TB, got gatewaytest.Response, code int, status, reason string) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal(got.Body, &p); err != nil {
		t.Fatalf("status %d, %v in %s", got.Status, err, got.Body)
	}
	if got.Status != code || p.Error.Status != status || p.Error.Reason != reason {
		t.Errorf("%d %s, want %d %s %s", got.Status, got.Body, code, status, reason)
	}
	if p.Error.Message == "" || p.Error.RequestID == "" || p.Error.Retry == "" {
		t.Errorf("message, requestId and retry are always there: %s", got.Body)
	}
	return p
}

// wantStatus also gives the details that every error has.
func wantStatus(t testing.TB, err error, code codes.Code, reason string) *mooringv1.ServerError {
	t.Helper()
	s := status.Convert(err)
	var info *errdetails.ErrorInfo
	var server *mooringv1.ServerError
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *mooringv1.ServerError:
			server = d
		}
	}
	if s.Code() != code || info.GetReason() != reason {
		t.Errorf("%v (reason %q), want %v %s", err, info.GetReason(), code, reason)
	}
	return server
}

func TestDuplicateKey(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	path := gatewaytest.Documents(db, "things", "insertOne")
	if got := g.Post(t, path, `{"document": {"_id": 1}}`); got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}

	t.Run("REST, one", func(t *testing.T) {
		p := wantProblem(t, g.Post(t, path, `{"document": {"_id": 1}}`), 409, "ALREADY_EXISTS",
			"DuplicateKey")
		if p.Error.Server == nil || p.Error.Server.Code != 11000 || len(p.Error.WriteErrors) != 1 ||
			p.Error.WriteErrors[0].Index != 0 {
			t.Errorf("got %+v, want code 11000 at index 0", p.Error)
		}
	})
	t.Run("REST, many", func(t *testing.T) {
		got := g.Post(t, gatewaytest.Documents(db, "things", "insertMany"),
			`{"documents": [{"_id": 2}, {"_id": 1}, {"_id": 3}]}`)
		p := wantProblem(t, got, 409, "ALREADY_EXISTS", "DuplicateKey")
		if len(p.Error.WriteErrors) != 1 || p.Error.WriteErrors[0].Index != 1 ||
			p.Error.WriteErrors[0].Code != 11000 {
			t.Errorf("got %+v, want code 11000 at index 1", p.Error)
		}
		var result struct {
			Result *struct {
				InsertedCount int
				InsertedIDs   []struct{ Index int }
			}
		}
		if err := json.Unmarshal(got.Body, &result); err != nil || result.Result == nil ||
			result.Result.InsertedCount != 1 {
			t.Errorf("got %s, want a result with what was inserted", got.Body)
		}
	})
	t.Run("gRPC, many, unordered", func(t *testing.T) {
		_, err := g.Documents(t).InsertMany(t.Context(), &mooringv1.InsertManyRequest{
			Database: db, Collection: "things", Ordered: new(false),
			Documents: []*mooringv1.Document{
				document(t, fields("_id", int32(1))), document(t, fields("_id", int32(4))), document(t, fields("_id", int32(2))),
			},
		})
		server := wantStatus(t, err, codes.AlreadyExists, "DuplicateKey")
		if len(server.GetWriteErrors()) != 2 || server.GetWriteErrors()[0].GetIndex() != 0 ||
			server.GetWriteErrors()[1].GetIndex() != 2 ||
			server.GetWriteErrors()[1].GetCode() != 11000 {
			t.Errorf("got %v, want code 11000 at the indexes 0 and 2", server)
		}
	})
}

func TestRefusals(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)

	t.Run("an unknown command", func(t *testing.T) {
		p := wantProblem(t,
			g.Post(t, "/v1/databases/"+db+":runCommand", `{"command": {"frobnicate": 1}}`), 501,
			"UNIMPLEMENTED", "CommandNotFound")
		if p.Error.Server == nil || p.Error.Server.Code != 59 {
			t.Errorf("got %+v, want the server's code 59", p.Error)
		}
	})
	t.Run("malformed JSON", func(t *testing.T) {
		for body, want := range map[string]struct {
			field  string
			offset int64
		}{
			`{"document": {"a": {"b": [1, 2, {"$oid": "x"}]}}}`: {"document.a.b.2", int64(strings.Index(`{"document": {"a": {"b": [1, 2, {"$oid": "x"}]}}}`, `"x"`))},
			`{"document": {"a": }}`:                             {"document.a", int64(strings.Index(`{"document": {"a": }}`, `}`))},
			`{"document": {"a": 1}`:                             {"", int64(len(`{"document": {"a": 1}`))},
		} {
			got := g.Post(t, gatewaytest.Documents(db, "things", "insertOne"), body)
			var p problem
			if err := json.Unmarshal(got.Body, &p); err != nil {
				t.Fatalf("%v in %s", err, got.Body)
			}
			if got.Status != 400 || p.Error.Status != "INVALID_ARGUMENT" {
				t.Errorf("%s: %d %s, want 400", body, got.Status, got.Body)
			}
			if p.Error.Offset == nil ||
				want.field != "" &&
					(p.Error.Field == nil || !strings.HasPrefix(*p.Error.Field, want.field)) {
				t.Errorf("%s: %s, want the field %q and an offset", body, got.Body, want.field)
				continue
			}
			if d := *p.Error.Offset - want.offset; d < -10 || d > 10 {
				t.Errorf("%s: offset %d, want about %d", body, *p.Error.Offset, want.offset)
			}
		}
	})
	t.Run("malformed BSON", func(t *testing.T) {
		bad := raw(t, fields("a", fields("b", "text")))
		bad[len(bad)-3] = 'x' // the NUL of the text
		_, err := g.Documents(t).InsertOne(t.Context(), &mooringv1.InsertOneRequest{
			Database: db, Collection: "things",
			Document: &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: bad}},
		})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "a.b") {
			t.Errorf("got %v, want INVALID_ARGUMENT that names document.a.b", err)
		}
	})
	t.Run("an unknown field", func(t *testing.T) {
		got := g.Post(t, gatewaytest.Documents(db, "things", "find"), `{"filtre": {}}`)
		if got.Status != 400 || !bytes.Contains(got.Body, []byte("filtre")) {
			t.Errorf("%d %s, want 400 that names filtre", got.Status, got.Body)
		}
	})
	t.Run("routing", func(t *testing.T) {
		for _, row := range []struct {
			method, path string
			code         int
		}{
			{"POST", "/v1/nothing", 404},
			{"POST", "/v1/databases/" + db + "/collections/things/documents:frobnicate", 404},
			{"DELETE", gatewaytest.Documents(db, "things", "find"), 405},
		} {
			got := g.Do(t, row.method, row.path, "")
			var p problem
			if err := json.Unmarshal(got.Body, &p); err != nil || got.Status != row.code ||
				p.Error.RequestID == "" {
				t.Errorf("%s %s: %d %s, want %d in the shape of all errors", row.method, row.path,
					got.Status, got.Body, row.code)
			}
			if row.code == 405 && got.Header.Get("Allow") == "" {
				t.Errorf("%s %s: 405 without Allow", row.method, row.path)
			}
		}
	})
	t.Run("negotiation", func(t *testing.T) {
		path := gatewaytest.Documents(db, "things", "find")
		if got := g.Post(t, path, `{}`,
			gatewaytest.Header{Name: "Accept", Value: "image/png"}); got.Status != 406 {
			t.Errorf("Accept: image/png: %d %s, want 406", got.Status, got.Body)
		}
		if got := g.Post(t, path, `{}`,
			gatewaytest.Header{Name: "Content-Type", Value: "text/csv"}); got.Status != 415 {
			t.Errorf("Content-Type: text/csv: %d %s, want 415", got.Status, got.Body)
		}
	})
}

// page is the answer to a find or a next.
type page struct {
	Documents []json.RawMessage
	Cursor    string
}

func readPage(t testing.TB, got gatewaytest.Response) page {
	t.Helper()
	var p page
	if err := json.Unmarshal(got.Body, &p); err != nil || got.Status != 200 {
		t.Fatalf("%d %s, %v", got.Status, got.Body, err)
	}
	return p
}

func nextBody(cursor string) string {
	b, err := json.Marshal(map[string]any{"cursor": cursor, "batchSize": 10})
	if err != nil {
		panic("bug: " + err.Error())
	}
	return string(b)
}

func TestCursorTokens(t *testing.T) {
	server := startCanned(t)
	g := suite.Start(t, server.URI())
	const next = "/v1/cursors:next"
	find := gatewaytest.Documents("lab", "docs_1000_100", "find")

	t.Run("the same token twice gives the same page", func(t *testing.T) {
		first := readPage(t, g.Post(t, find, `{"batchSize": 10}`))
		a := g.Post(t, next, nextBody(first.Cursor))
		b := g.Post(t, next, nextBody(first.Cursor))
		pa, pb := readPage(t, a), readPage(t, b)
		if len(pa.Documents) != 10 ||
			!bytes.Equal(bytes.Join(rawSlices(pa.Documents), nil),
				bytes.Join(rawSlices(pb.Documents), nil)) {
			t.Errorf("the pages differ: %s and %s", a.Body, b.Body)
		}
		// Whichever of the two answers the client has seen, it goes on with the page after.
		third := readPage(t, g.Post(t, next, nextBody(pb.Cursor)))
		if !bytes.Contains(third.Documents[0], []byte(`"_id":20`)) {
			t.Errorf("the page after that begins with %s, want 20", third.Documents[0])
		}
	})
	t.Run("a changed token", func(t *testing.T) {
		token := readPage(t, g.Post(t, find, `{"batchSize": 10}`)).Cursor
		for _, at := range []int{0, len(token) / 2, len(token) - 1} {
			changed := []byte(token)
			changed[at] = map[bool]byte{true: 'B', false: 'A'}[changed[at] == 'A']
			wantProblem(t, g.Post(t, next, nextBody(string(changed))), 404, "NOT_FOUND",
				"CursorNotFound")
		}
		for _, other := range []string{"", "x", "not base64 !", token + token} {
			if got := g.Post(t, next, nextBody(other)); got.Status != 404 && got.Status != 400 {
				t.Errorf("the token %q: %d %s", other, got.Status, got.Body)
			}
		}
		// The real one still works.
		if p := readPage(t, g.Post(t, next, nextBody(token))); len(p.Documents) != 10 {
			t.Errorf("%d documents, want 10", len(p.Documents))
		}
	})
	t.Run("a foreign token", func(t *testing.T) {
		other := suite.Start(t, server.URI())
		token := readPage(t, other.Post(t, find, `{"batchSize": 10}`)).Cursor
		wantProblem(t, g.Post(t, next, nextBody(token)), 404, "NOT_FOUND", "CursorNotFound")
	})
	t.Run("a page that is no longer held", func(t *testing.T) {
		small := suite.Start(t, server.URI(), "--cursors-page-memory", "32KiB")
		first := readPage(t, small.Post(t, find, `{"batchSize": 10}`))
		readPage(t, small.Post(t, next, nextBody(first.Cursor)))
		// Pages of other cursors push the remembered one out.
		for range 50 {
			p := readPage(t, small.Post(t, find, `{"batchSize": 10}`))
			readPage(t, small.Post(t, next, nextBody(p.Cursor)))
		}
		wantProblem(t, small.Post(t, next, nextBody(first.Cursor)), 409, "ABORTED",
			"CursorTokenReused")
	})
	t.Run("an idle cursor", func(t *testing.T) {
		brief := suite.Start(t, server.URI(), "--cursors-idle", "1s")
		before := server.Stats()
		token := readPage(t, brief.Post(t, find, `{"batchSize": 10}`)).Cursor
		gatewaytest.Eventually(t, 10*time.Second, func() error {
			if s := server.Stats(); s.CursorsKilled == before.CursorsKilled {
				return fmt.Errorf("the server's cursor is still open")
			}
			return nil
		})
		wantProblem(t, brief.Post(t, next, nextBody(token)), 404, "NOT_FOUND", "CursorNotFound")
	})
}

func rawSlices(docs []json.RawMessage) [][]byte {
	out := make([][]byte, len(docs))
	for i, d := range docs {
		out[i] = d
	}
	return out
}

func TestServerDown(t *testing.T) {
	// A port on which no process listens.
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	uri := "mongodb://" + l.Addr().String() + "/?serverSelectionTimeoutMS=500"
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	g := suite.Start(t, uri)

	start := time.Now()
	got := g.Post(t, gatewaytest.Documents("lab", "things", "find"), `{}`)
	elapsed := time.Since(start)
	if got.Status != 503 || got.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s, want 503 with Retry-After", got.Status, got.Header, got.Body)
	}
	if elapsed < 400*time.Millisecond || elapsed > 5*time.Second {
		t.Errorf("it took %v, want about serverSelectionTimeoutMS, 500 ms", elapsed)
	}
	if got := g.Do(t, "GET", "/readyz", ""); got.Status != 503 {
		t.Errorf("/readyz = %d, want 503", got.Status)
	}
	if got := g.Do(t, "GET", "/healthz", ""); got.Status != 200 {
		t.Errorf("/healthz = %d, want 200", got.Status)
	}
}

// TestServerGoesAway loses the server in the middle, and gets another one on the same port.
func TestServerGoesAway(t *testing.T) {
	server := startCannedAt(t, "127.0.0.1:0")
	address := server.Addr()
	g := suite.Start(t, server.URI()+"?serverSelectionTimeoutMS=1000&heartbeatFrequencyMS=500")
	find := gatewaytest.Documents("lab", "docs_10_100", "find")
	if got := g.Post(t, find, `{}`); got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if got := g.Post(t, find, `{}`); got.Status != 503 {
		t.Errorf("without the server: %d %s, want 503", got.Status, got.Body)
	}
	again := startCannedAt(t, address)
	defer func() { _ = again.Close() }()
	gatewaytest.Eventually(t, 10*time.Second, func() error {
		if got := g.Post(t, find, `{}`); got.Status != 200 {
			return fmt.Errorf("%d %s", got.Status, got.Body)
		}
		return nil
	})
}

// deadlineOnce makes a call that times out, says how long it took, and checks that its connection
// is not used again. It returns 0 if the try does not count.
func deadlineOnce(t *testing.T, g *gatewaytest.Gateway, server *canned.Server,
	call func() error,
) time.Duration {
	t.Helper()
	quick := gatewaytest.Documents("lab", "docs_10_100", "find")
	if got := g.Post(t, quick, `{}`); got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	before := server.Stats()
	start := time.Now()
	if err := call(); err != nil {
		t.Error(err)
	}
	took := time.Since(start)
	// The server still sleeps over the old connection; only a new one can answer at once.
	start = time.Now()
	if got := g.Post(t, quick, `{}`); got.Status != 200 {
		t.Errorf("after it: %d %s", got.Status, got.Body)
	}
	elapsed := time.Since(start)
	switch after := server.Stats(); after.Connected {
	case before.Connected + 1:
	case before.Connected:
		return 0 // on a busy machine the deadline can pass before the command is sent
	default:
		t.Errorf("%d new connections, want 1", after.Connected-before.Connected)
	}
	if elapsed > time.Second { // of a busy machine, or it waited for the connection that timed out
		t.Logf("the next request took %v", elapsed)
		return 0
	}
	return took
}

// TestDeadline gives a slow command 50 ms, on a pool of one connection.
func TestDeadline(t *testing.T) {
	server := startCanned(t)
	g := suite.Start(t, server.URI()+"?maxPoolSize=1")
	slow := gatewaytest.Documents("lab", "slow_1500", "find")
	for name, call := range map[string]func() error{
		"REST": func() error {
			got := g.Post(t, slow, `{}`, gatewaytest.Header{Name: "Request-Timeout", Value: "50ms"})
			if got.Status != 504 {
				return fmt.Errorf("%d %s, want 504", got.Status, got.Body)
			}
			return nil
		},
		"gRPC": func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := g.Documents(t).
				Find(ctx, &mooringv1.FindRequest{Database: "lab", Collection: "slow_1500"})
			if status.Code(err) != codes.DeadlineExceeded {
				return fmt.Errorf("%w, want DEADLINE_EXCEEDED", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			// On a busy machine two tries can be late.
			var all []time.Duration
			late := 0
			for range 10 {
				took := deadlineOnce(t, g, server, call)
				all = append(all, took)
				switch {
				case took == 0, took > 100*time.Millisecond:
					late++
				case took < 45*time.Millisecond:
					t.Errorf("it took %v, want 50 to 100 ms", took)
				}
			}
			if late > 2 {
				t.Errorf("the tries took %v, want 50 to 100 ms; %d did not", all, late)
			}
		})
	}
}

// TestTypesThatTheEmbeddedDatabaseLacks has such a type refused, and the connection left open.
func TestTypesThatTheEmbeddedDatabaseLacks(t *testing.T) {
	if !suite.IsEmbedded() {
		t.Skip("MOORING_TEST_URI names a server that has them")
	}
	g := suite.Start(t, suite.URI(t))
	path := gatewaytest.Documents(suite.Database(t), "prices", "insertOne")
	got := g.Post(t, path, `{"document": {"_id": 1, "price": {"$numberDecimal": "1.5"}}}`)
	p := wantProblem(t, got, 422, "FAILED_PRECONDITION", "NotImplemented")
	if !strings.Contains(p.Error.Message, "Decimal128") {
		t.Errorf("message %q", p.Error.Message)
	}
	if got := g.Post(t, path, `{"document": {"_id": 1}}`); got.Status != 200 {
		t.Errorf("afterwards: %d %s", got.Status, got.Body)
	}
}
