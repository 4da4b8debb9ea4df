// Package e2e tests the gateway from outside: as a process, before a real MongoDB server or one
// with canned replies.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// raw makes BSON of a value of the official driver.
func raw(t testing.TB, v any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// document makes a proto Document, in BSON, of a value of the official driver.
func document(t testing.TB, v any) *mooringv1.Document {
	t.Helper()
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: raw(t, v)}}
}

// fields is a document written shortly.
func fields(pairs ...any) bson.D {
	d := bson.D{}
	for i := 0; i+1 < len(pairs); i += 2 {
		d = append(d, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return d
}

func update(t testing.TB, operators any) *mooringv1.Update {
	t.Helper()
	return &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: document(t, operators)}}
}

// ids gives the values of _id, which must be int32.
func ids(docs []*mooringv1.Document) []int32 {
	out := make([]int32, len(docs))
	for i, d := range docs {
		out[i] = bson.Raw(d.GetBson()).Lookup("_id").Int32()
	}
	return out
}

// startCanned starts a server with canned replies.
func startCanned(t testing.TB) *canned.Server {
	t.Helper()
	s := startCannedAt(t, "127.0.0.1:0")
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the canned server: %v", err)
		}
	})
	return s
}

// wantJSON compares JSON texts without regard to spaces and the order of keys.
func wantJSON(t testing.TB, got []byte, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Errorf("not JSON: %v in %s", err, got)
		return
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("bug: %v in %s", err, want)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got  %s\nwant %s", bytes.TrimSpace(got), want)
	}
}

// without drops top-level fields that the caller does not compare.
func without(t testing.TB, text []byte, names ...string) []byte {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(text, &m); err != nil {
		return text
	}
	for _, name := range names {
		delete(m, name)
	}
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// startCannedAt starts a server that the caller closes.
func startCannedAt(t testing.TB, address string) *canned.Server {
	t.Helper()
	s, err := canned.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newRequest makes a POST of an empty JSON object that wants a stream.
func newRequest(ctx context.Context, url string) (*http.Request, error) {
	return streamRequest(ctx, url, `{}`)
}

func streamRequest(ctx context.Context, url, body string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/x-ndjson")
	return req, nil
}
