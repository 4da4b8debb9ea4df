package rest_test

import (
	"context"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// FuzzBody sends any text as a body. It is refused with 400, or it reaches the handler as a valid
// request.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `{"filter": {"a": 1}, "sort": [["b", 1]], "hint": "x", "limit": "5", "comment": null}`,
		`{"readPreference": {"mode": "nearest", "tags": [{"a": "b"}]}, "readConcern": {"level": "local"}}`,
		`{"readPreference": "secondary", "batchSize": {"$numberInt": "3"}, "tailable": true, "max_time_ms": 1e2}`,
		`{"filter": null}`, `{"limit": 1.5}`, `{"session": "\ud83d\ude00"}`, `{"limit"`, `[`,
	} {
		f.Add([]byte(s))
	}
	var got *mooringv1.FindRequest
	h := newHandler(f, &fake{find: func(
		_ context.Context, r *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		got = r
		return &mooringv1.FindResponse{}, nil
	}})
	f.Fuzz(func(t *testing.T, body []byte) {
		w := do(h, "POST", documents+":find", string(body))
		if w.Code == 400 {
			errorOf(t, w.Code, w.Body.Bytes(), 400)
			return
		}
		if w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		for _, d := range []*mooringv1.Document{
			got.GetFilter(), got.GetSort(), got.GetProjection(), got.GetHint().GetKeys(),
		} {
			if d != nil && bson.Raw(d.GetBson()).Validate() != nil {
				t.Fatalf("%q gave a malformed document", body)
			}
		}
		if !utf8.ValidString(got.GetSession()) {
			t.Fatalf("%q gave a string that is not UTF-8", body)
		}
		if _, err := proto.Marshal(got); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
	})
}

// FuzzPath sends any text as a path.
func FuzzPath(f *testing.F) {
	for _, s := range []string{
		"/", documents, "/v1/databases/~YQ/collections/%2F/documents:findOne", "/v1//x", "/v1/databases/a:b:c", "/v1/databases/~",
	} {
		f.Add(s)
	}
	h := newHandler(f, &fake{})
	f.Fuzz(func(t *testing.T, path string) {
		r := requestOf("OPTIONS", path)
		if r == nil {
			return
		}
		w := serve(h, r)
		if w.Code != 400 && w.Code != 404 && w.Code != 405 && w.Code != 414 {
			t.Fatalf("%q: %d", path, w.Code)
		}
	})
}
