package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
)

// TestExportRows has streams as CSV, with columns from the query and from the projection.
func TestExportRows(t *testing.T) {
	batches := [][]string{
		{`{"_id": 1, "a": {"b": "x,y", "c": 2}, "at": {"$date": "2026-11-30T10:15:00Z"}}`, `{"_id": 2}`},
		{`{"_id": 3, "a": {"b": "=1+1", "c": {"$numberLong": "9007199254740993"}}, "list": [1]}`},
	}
	for name, test := range map[string]struct{ query, body, accept, want string }{
		"columns": {
			"?columns=_id,a.b,at", "{}", "text/csv",
			"_id,a.b,at\n1,\"x,y\",2026-11-30T10:15:00Z\n2,,\n3,=1+1,\n",
		},
		"types":               {"?columns=a.c,at.date(ms)", "{}", "text/csv;header=present", "a.c,at.date(ms)\n2,1796033700000\n,\n9007199254740993,\n"},
		"a guard":             {"?columns=a.b", "{}", "text/csv; guard=true", "a.b\n\"x,y\"\n\n'=1+1\n"},
		"another delimiter":   {"?columns=_id,a.b&delimiter=%3B", "{}", "text/csv", "_id;a.b\n1;x,y\n2;\n3;=1+1\n"},
		"a projection":        {"", `{"projection": {"a.b": 1, "list": true}}`, "text/csv", "_id,a.b,list\n1,\"x,y\",\n2,,\n3,=1+1,[1]\n"},
		"a nested projection": {"", `{"projection": {"a": {"c": 1}, "_id": 0}}`, "text/csv", "a.c\n2\n\n9007199254740993\n"},
		"an id in its place":  {"", `{"projection": {"a.c": 1, "_id": 1}}`, "text/csv", "a.c,_id\n2,1\n,2\n9007199254740993,3\n"},
		"only the id":         {"", `{"projection": {"_id": 1}}`, "text/csv", "_id\n1\n2\n3\n"},
		"an expression":       {"", `{"projection": {"a": {"$literal": 1}, "_id": 0}}`, "text/csv;profile=canonical", "a\n\"{\"\"b\"\":\"\"x,y\"\",\"\"c\"\":{\"\"$numberInt\"\":\"\"2\"\"}}\"\n"},
	} {
		h := newHandler(t, rows(t, nil, batches...))
		w := do(h, "POST", documents+":streamFind"+test.query, test.body, "Accept", test.accept)
		if w.Code != 200 || !strings.HasPrefix(w.Body.String(), test.want) ||
			w.Header().Get("Content-Type") != "text/csv; charset=utf-8; header=present" {
			t.Errorf("%s: %d %q, want %q, %v", name, w.Code, w.Body, test.want, w.Header())
		}
	}
	w := do(newHandler(t, rows(t, nil)), "GET", documents+":streamFind?columns=a,b", "", "Accept",
		"text/csv")
	if w.Code != 200 || w.Body.String() != "a,b\n" {
		t.Errorf("no documents: %d %q", w.Code, w.Body)
	}
}

func TestExportRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		query, body, accept string
		code                int
		want                string
	}{
		"no columns":            {"", "{}", "text/csv", 400, "columns: is required"},
		"fields that are out":   {"", `{"projection": {"a": 0}}`, "text/csv", 400, "columns: is required"},
		"no id":                 {"", `{"projection": {"_id": 0}}`, "text/csv", 400, "columns: is required"},
		"a bad type":            {"?columns=a.int()", "{}", "text/csv", 400, "there is no type"},
		"columns in each other": {"?columns=a,a.b", "{}", "text/csv", 400, "another column"},
		"columns of lines":      {"?columns=a", "{}", "application/x-ndjson", 400, "is for rows"},
		"a delimiter of lines":  {"?delimiter=tab", "{}", "application/x-ndjson", 400, "is for rows"},
		"another type":          {"?columns=a.string()", "{}", "text/csv", 400, "a value of type int cannot be written as string()"},
		"no header":             {"?columns=a", "{}", "text/csv; header=absent", 406, "NotAcceptable"},
	} {
		h := newHandler(t, rows(t, nil, []string{`{"a": 1}`}))
		w := do(h, "POST", documents+":streamFind"+test.query, test.body, "Accept", test.accept)
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s: %d %s, want %d %s", name, w.Code, w.Body, test.code, test.want)
		}
	}
	for _, path := range []string{
		"/v1/databases/shop/collections/orders/documents:live", "/v1/databases/shop/collections/orders:watch",
	} {
		if w := do(newHandler(t, &fake{}), "POST", path, "{}", "Accept",
			"text/csv"); w.Code != 406 {
			t.Errorf("%s as CSV: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestExportIsCut has a failure after the first rows: the body is aborted, so that no client takes
// the rows for all.
func TestExportIsCut(t *testing.T) {
	for name, f := range map[string]*fake{
		"of the server": rows(t, errDown, []string{`{"a": "x"}`}),
		"of a row":      rows(t, nil, []string{`{"a": "x"}`}, []string{`{"a": 1}`}),
	} {
		aborted := false
		func() {
			defer func() { aborted = recover() != nil }()
			do(newHandler(t, f), "POST", documents+":streamFind?columns=a.string()", "{}", "Accept",
				"text/csv")
		}()
		if !aborted {
			t.Errorf("%s: the body is whole", name)
		}
	}
}

// TestExportIsCharged has large rows, whose text is charged before it is written.
func TestExportIsCharged(t *testing.T) {
	large := bson.NewBuilder(nil).String("a", strings.Repeat(`"`, 3<<20)).Finish()
	f := &fake{streamFind: func(_ *mooringv1.StreamFindRequest, s findStream) error {
		d := &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: large}}
		return s.Send(&mooringv1.StreamFindResponse{Documents: []*mooringv1.Document{d}})
	}}
	for _, budget := range []int64{8 << 20, 64 << 20} {
		a := admission.New(admission.Config{Bytes: budget})
		h := newHandler(t, f, func(c *config) { c.Admission = a })
		w := do(h, "POST", documents+":streamFind?columns=a", "{}", "Accept", "text/csv")
		got := fmt.Sprint(w.Code)
		if want := map[int64]string{8 << 20: "413", 64 << 20: "200"}[budget]; got != want ||
			a.Bytes().Held != 0 {
			t.Errorf("with %d bytes: %s, want %s; %d are left", budget, got, want, a.Bytes().Held)
		}
	}
}
