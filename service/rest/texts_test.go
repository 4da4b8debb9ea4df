package rest_test

import (
	"context"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	servicecall "github.com/mooringdb/mooring/service/call"
)

// TestTexts checks that a response is the same whether its text was made while the page was cut or
// afterwards, for pages of all sizes, as JSON and as EJSON, also if what was made is of another
// page.
func TestTexts(t *testing.T) {
	with := func(docs []*mooringv1.Document, at int) []*mooringv1.Document {
		return slices.Insert(docs, at, mixed(t)[1])
	}
	for _, row := range []struct {
		name   string
		docs   []*mooringv1.Document
		want   int // how many documents Make takes
		budget int64
	}{
		{"one", pads(1, 10, "x"), 1, 64 << 20},
		{"none", nil, 0, 64 << 20},
		{"small", pads(100, 1000, "x"), 100, 64 << 20},
		{"large", pads(1000, 1000, "x"), 1000, 64 << 20},
		{"large documents", pads(10, 100_000, "x"), 0, 64 << 20},
		{"a large document", append(pads(999, 999, "x"), pads(1, 99_999, "x")...), 0, 64 << 20},
		{"a last one that fits no piece", append(pads(999, 999, "x"), pads(1, 60_000, "x")...), 0, 64 << 20},
		{"longer as text", pads(1000, 1000, "\x01"), 0, 64 << 20},
		{"too long to keep", pads(3000, 1000, "x"), 0, 64 << 20},
		{"little memory", pads(1000, 1000, "x"), 0, 256 << 10},
		{"invalid", with(pads(100, 1000, "x"), 50), 50, 64 << 20},
		{"invalid, large", with(pads(1000, 1000, "x"), 500), 500, 64 << 20},
		{"invalid at a piece's end", with(pads(1000, 1000, "x"), 33), 33, 64 << 20},
		{"invalid at once", with(pads(100, 1000, "x"), 0), 0, 64 << 20},
	} {
		t.Run(row.name, func(t *testing.T) {
			page, token, made := row.docs, "next", false
			f := &fake{close: closes, find: func(
				ctx context.Context, _ *mooringv1.FindRequest,
			) (*mooringv1.FindResponse, error) {
				if made {
					raw, size := []bson.Raw{}, 0
					for _, d := range row.docs {
						raw, size = append(raw, d.GetBson()), size+len(d.GetBson())
					}
					if n := servicecall.LocalFrom(ctx).Texts.Make(raw, size); n != row.want {
						t.Errorf("Make took %d documents, want %d", n, row.want)
					}
				}
				return &mooringv1.FindResponse{Documents: page, Cursor: &token}, nil
			}}
			for _, test := range []struct {
				name string
				page []*mooringv1.Document
			}{
				{"what was made", row.docs[:max(row.want, min(1, len(row.docs)))]},
				{"another page", pads(max(row.want, 1), 100, "y")},
				{"no documents", nil},
			} {
				for _, header := range [][]string{
					{"Accept", "application/json"},
					{"Accept", "application/ejson"},
					{"Accept-Encoding", "gzip"},
				} {
					accept := header[1]
					page, made = test.page, false
					want := do(newHandler(t, f), "POST", documents+":find", "{}", header...)
					h, a := limited(t, f, row.budget)
					made = true
					got := do(h, "POST", documents+":find", "{}", header...)
					if text := withoutID(want); got.Code != want.Code || withoutID(got) != text {
						t.Errorf("%s as %s: %d with %d bytes, want %d with %d", test.name, accept,
							got.Code, got.Body.Len(), want.Code, want.Body.Len())
					}
					if length := got.Header().Get("Content-Length"); length !=
						want.Header().Get("Content-Length") {
						t.Errorf("%s as %s: Content-Length %s", test.name, accept, length)
					}
					if held := a.Bytes().Held; held != 0 {
						t.Errorf("%s as %s: %d bytes are held at the end", test.name, accept, held)
					}
				}
			}
		})
	}
}

// TestTextsOfAnySize compares pages of documents of random lengths with those whose text is made of
// the response.
func TestTextsOfAnySize(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		longest, size := 1<<r.IntN(17), 100+r.IntN(2<<20)
		var page []*mooringv1.Document
		var raw []bson.Raw
		bytes := 0
		for bytes < size {
			page = append(page, pads(1, 1+r.IntN(longest), "x")...)
			doc := page[len(page)-1].GetBson()
			raw, bytes = append(raw, doc), bytes+len(doc)
		}
		f := findsPads(page)
		want := do(newHandler(t, f), "POST", documents+":find", "{}")
		find := f.find
		f.find = func(
			ctx context.Context, r *mooringv1.FindRequest,
		) (*mooringv1.FindResponse, error) {
			servicecall.LocalFrom(ctx).Texts.Make(raw, bytes)
			return find(ctx, r)
		}
		h, a := limited(t, f, 64<<20)
		got := do(h, "POST", documents+":find", "{}")
		if got.Code != want.Code || !slices.Equal(got.Body.Bytes(), want.Body.Bytes()) {
			t.Errorf("seed %d: %d with %d bytes, want %d", seed, got.Code, got.Body.Len(),
				want.Body.Len())
		}
		if held := a.Bytes().Held; held != 0 {
			t.Errorf("seed %d: %d bytes are held at the end", seed, held)
		}
	}
}

// withoutID returns the body of a response without the id of its request.
func withoutID(w *httptest.ResponseRecorder) string {
	return strings.ReplaceAll(w.Body.String(), w.Header().Get("Mooring-Request-Id"), "")
}

func closes(
	context.Context, *mooringv1.CloseCursorRequest,
) (*mooringv1.CloseCursorResponse, error) {
	return &mooringv1.CloseCursorResponse{}, nil
}
