package e2e

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// TestSession runs calls in a session over REST: each response has a token for the next call.
func TestSession(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	token := func(got gatewaytest.Response) gatewaytest.Header {
		t.Helper()
		var body struct {
			Session string `json:"session"`
		}
		if err := json.Unmarshal(got.Body, &body); err != nil || body.Session == "" ||
			got.Header.Get("Mooring-Session") != body.Session {
			t.Fatalf("%d %s has no token, or another one in the header", got.Status, got.Body)
		}
		return gatewaytest.Header{Name: "Mooring-Session", Value: body.Session}
	}
	session := token(g.Post(t, "/v1/sessions:start", `{}`))
	session = token(g.Post(t, gatewaytest.Documents(db, "things", "insertOne"),
		`{"document": {"_id": 1}}`, session))
	got := g.Post(t, gatewaytest.Documents(db, "things", "find"), `{}`, session)
	session = token(got)
	wantJSON(t, without(t, got.Body, "session"), `{"documents": [{"_id": 1}]}`)
	got = g.Post(t, "/v1/sessions:end", `{}`, session)
	if got.Status != 200 {
		t.Errorf("the end of the session is %d %s", got.Status, got.Body)
	}
	session.Value = "x"
	if got := g.Post(t, gatewaytest.Documents(db, "things", "find"), `{}`,
		session); got.Status != 404 || !bytes.Contains(got.Body, []byte("SessionNotFound")) {
		t.Errorf("a wrong token is %d %s", got.Status, got.Body)
	}
}

// TestIdempotencyKey repeats a call. Where writes cannot be repeated, nothing is run; the embedded
// database repeats them.
func TestIdempotencyKey(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	key := gatewaytest.Header{Name: "Idempotency-Key", Value: "one"}
	first := g.Post(t, gatewaytest.Documents(db, "things", "insertOne"), `{"document": {"n": 1}}`,
		key)
	if !suite.IsEmbedded() && first.Status == 400 &&
		bytes.Contains(first.Body, []byte("IdempotencyKeyUnsupported")) {
		wantJSON(t, g.Post(t, gatewaytest.Documents(db, "things", "countDocuments"), `{}`).Body,
			`{"count": 0}`)
		return
	}
	again := g.Post(t, gatewaytest.Documents(db, "things", "insertOne"), `{"document": {"n": 1}}`,
		key)
	if first.Status != 200 || !bytes.Equal(first.Body, again.Body) {
		t.Errorf("the first call is %d %s, the second %d %s", first.Status, first.Body,
			again.Status, again.Body)
	}
	wantJSON(t, g.Post(t, gatewaytest.Documents(db, "things", "countDocuments"), `{}`).Body,
		`{"count": 1}`)
	other := g.Post(t, gatewaytest.Documents(db, "things", "insertOne"), `{"document": {"n": 2}}`,
		key)
	if other.Status != 422 {
		t.Errorf("another call with the key is %d %s", other.Status, other.Body)
	}
}
