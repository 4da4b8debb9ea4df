package rest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// jsonOf writes the BSON of a request's document; "" if there is none.
func jsonOf(t testing.TB, d *mooringv1.Document) string {
	t.Helper()
	if d == nil {
		return ""
	}
	text, err := extjson.Append(nil, bson.Raw(d.GetBson()), extjson.Relaxed)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestConditions has GETs with conditions: the service gets the find that JSON would have been.
func TestConditions(t *testing.T) {
	for query, want := range map[string]string{
		"status=paid&total=gt.10&order=-placed&select=_id,total&limit=3": `{"status":"paid","total":{"$gt":10}} {"placed":-1} {"_id":1,"total":1} 3`,
		`filter={"a":1}&b=2`:                  `{"$and":[{"a":1},{"b":2}]}   0`,
		"field.limit=5&limit=9":               `{"limit":5}   9`,
		"":                                    `   0`,
		`sort={"a":1}&projection={"b":1}&c=1`: `{"c":1} {"a":1} {"b":1} 0`,
		"name=x&namespace=y&principal=z":      `{"name":"x","namespace":"y","principal":"z"}   0`,
	} {
		var got *mooringv1.FindRequest
		f := &fake{find: func(
			_ context.Context, r *mooringv1.FindRequest,
		) (*mooringv1.FindResponse, error) {
			got = r
			return &mooringv1.FindResponse{}, nil
		}}
		w := do(newHandler(t, f), "GET", documents+"?"+query, "")
		text := fmt.Sprintf("%s %s %s %d", jsonOf(t, got.GetFilter()), jsonOf(t, got.GetSort()),
			jsonOf(t, got.GetProjection()), got.GetLimit())
		if w.Code != 200 || text != want {
			t.Errorf("%s: %d %s\ngot  %s\nwant %s", query, w.Code, w.Body, text, want)
		}
	}
	w := do(newHandler(t, rows(t, nil, []string{`{"_id": 1, "a": 2}`})), "GET",
		documents+":streamFind?a=2&select=a", "", "Accept", "text/csv")
	if w.Code != 200 || w.Body.String() != "a\n2\n" {
		t.Errorf("a stream: %d %q", w.Code, w.Body)
	}
}

// TestConditionRefusals has GETs that are refused before anything runs.
func TestConditionRefusals(t *testing.T) {
	many := make([]string, 100_000)
	for i := range many {
		many[i] = fmt.Sprintf("f%d=1", i)
	}
	for query, want := range map[string]string{
		"a=gtt.5":                     `400 did you mean gt?`,
		"a=1&a=2":                     `400 is repeated`,
		"limit=1&limit=2":             `400 limit: is repeated`,
		"tailable=true":               `400 send a POST`,
		"maxAwaitTimeMS=5":            `400 send a POST`,
		`order=a&sort={"b":1}`:        `400 order: sets the same as sort`,
		`select=a&projection={}`:      `400 select: sets the same as projection`,
		"count=all":                   `400 count: \"all\" is not exact`,
		strings.Join(many, "&"):       `414 URITooLong`,
		strings.Join(many[:300], "&"): `400 the query has more than 100 conditions`,
	} {
		w := do(newHandler(t, &fake{}), "GET", documents+"?"+query, "")
		if code, message, _ := strings.Cut(want, " "); fmt.Sprint(w.Code) != code ||
			!strings.Contains(w.Body.String(), message) {
			t.Errorf("%.50s: %d %s, want %s", query, w.Code, w.Body, want)
		}
	}
	w := do(newHandler(t, &fake{}), "GET", documents+":streamFind?count=exact", "")
	if w.Code != 400 || !strings.Contains(w.Body.String(), "not for streams") {
		t.Errorf("a count of a stream: %d %s", w.Code, w.Body)
	}
}

// TestCountOfPage has the total in a header: it is that of the filter, in a call of its own, whose
// refusal is that of the page.
func TestCountOfPage(t *testing.T) {
	var counted *mooringv1.CountDocumentsRequest
	f := &fake{
		find: func(context.Context, *mooringv1.FindRequest) (*mooringv1.FindResponse, error) {
			return &mooringv1.FindResponse{Documents: docs(t, `{"a": 1}`)}, nil
		},
		count: func(
			_ context.Context, r *mooringv1.CountDocumentsRequest,
		) (*mooringv1.CountDocumentsResponse, error) {
			counted = r
			return &mooringv1.CountDocumentsResponse{Count: 42}, nil
		},
	}
	h := newHandler(t, f)
	for _, method := range []string{"GET", "HEAD"} {
		w := do(h, method, documents+`?status=paid&limit=1&count=exact&collation={"locale":"sv"}`,
			"", "Mooring-Session", "s")
		if total := w.Header().Get("Mooring-Total-Count"); w.Code != 200 || total != "42" {
			t.Errorf("%s: %d %s, total %q", method, w.Code, w.Body, total)
		}
		if counted == nil || jsonOf(t, counted.GetFilter()) != `{"status":"paid"}` ||
			counted.GetDatabase() != "shop" ||
			counted.GetCollection() != "orders" || counted.GetLimit() != 0 ||
			counted.GetSession() != "s" ||
			jsonOf(t, counted.GetCollation()) != `{"locale":"sv"}` {
			t.Errorf("%s: the count is %v", method, counted)
		}
	}
	if w := do(h, "GET", documents, ""); w.Header().Get("Mooring-Total-Count") != "" {
		t.Error("there is a total that nobody asked for")
	}
	f.count = func(
		context.Context, *mooringv1.CountDocumentsRequest,
	) (*mooringv1.CountDocumentsResponse, error) {
		return nil, status.Error(codes.PermissionDenied, "no")
	}
	if w := do(h, "GET", documents+"?count=exact", ""); w.Code != 403 ||
		w.Header().Get("Mooring-Total-Count") != "" {
		t.Errorf("a count that is refused: %d %s, %v", w.Code, w.Body, w.Header())
	}
}
