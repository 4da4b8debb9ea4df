package rest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/coding"
)

// TestImportArrays has bodies that are an array of JSON: the service gets the items as they are.
func TestImportArrays(t *testing.T) {
	long := `{"long":"` + strings.Repeat(`x\"`, 100<<10) + `"}`
	for name, test := range map[string]struct {
		body string
		want []string
	}{
		"documents":        {`[{"a":1},{"b":[{"c":"]}"}]}]`, []string{`{"a":1}`, `{"b":[{"c":"]}"}]}`}},
		"spaces":           {" [ {\"a\": 1} ,\r\n\t{} ] \n", []string{`{"a": 1}`, `{}`}},
		"quotes":           {`[{"a\"":"\\"},{"b":"\\\""}]`, []string{`{"a\"":"\\"}`, `{"b":"\\\""}`}},
		"no documents":     {`[1, "a,b", null]`, []string{"1", `"a,b"`, "null"}},
		"nothing":          {"[]", nil},
		"spaces for all":   {"[ \n ]", nil},
		"a long document":  {"[{}," + long + ",{}]", []string{"{}", long, "{}"}},
		"brackets of text": {`[{"a":"[[[{{{"}]`, []string{`{"a":"[[[{{{"}`}},
	} {
		for arrival, from := range map[string]io.Reader{
			"at once": strings.NewReader(test.body), "by bytes": iotest.OneByteReader(strings.NewReader(test.body)),
		} {
			var got received
			r := newPost(documents+":import", from)
			w := serve(newImporter(t, got.run), r)
			if w.Code != 200 || !reflect.DeepEqual(got.documents, test.want) {
				t.Errorf("%s, %s: %d %s, documents %.300q", name, arrival, w.Code, w.Body,
					got.documents)
			}
		}
	}
}

// TestImportRows has bodies that are rows.
func TestImportRows(t *testing.T) {
	for name, test := range map[string]struct {
		query, kind, body string
		want              []string
	}{
		"names": {"", "text/csv", "_id,at.date(),a.b\n1,2026-11-30,x\n2,,\n", []string{
			`{"_id":1,"at":{"$date":"2026-11-30T00:00:00Z"},"a":{"b":"x"}}`, `{"_id":2}`,
		}},
		"names that are said to be there": {"", "text/csv; header=present; charset=utf-8", "a\n1\n", []string{`{"a":1}`}},
		"names in the query":              {"?columns=a,b.string()", "text/csv", "1,2\n", []string{`{"a":1,"b":"2"}`}},
		"no names":                        {"?columns=a", "text/csv; header=absent", "1\n", []string{`{"a":1}`}},
		"semicolons":                      {"?delimiter=%3B", "text/csv", "a;b\n1;2\n", []string{`{"a":1,"b":2}`}},
		"tabs":                            {"?delimiter=tab", "text/csv", "a\tb\n1\t2\n", []string{`{"a":1,"b":2}`}},
	} {
		var got received
		w := do(newImporter(t, got.run), "POST", documents+":import"+test.query, test.body,
			"Content-Type", test.kind)
		var texts []string
		for _, d := range got.documents {
			text, err := extjson.Append(nil, bson.Raw(d), extjson.Relaxed)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		if w.Code != 200 || !reflect.DeepEqual(texts, test.want) {
			t.Errorf("%s: %d %s, documents %q, want %q", name, w.Code, w.Body, texts, test.want)
		}
	}
}

// TestImportStops has bodies whose first two documents are sound and inserted; the answer says so,
// and what is wrong behind them.
func TestImportStops(t *testing.T) {
	const array, rows = "application/json", "text/csv"
	for name, test := range map[string]struct{ kind, body, want string }{
		"an array without an end": {array, `[{},{},`, `documents.2: the array is not closed (byte 7 of the body)`},
		"a document without one":  {array, `[{},{},{"a":"`, `documents.2: the array is not closed (byte 13 of the body)`},
		"a comma too many":        {array, `[{},{},]`, `documents.2: expected a document (byte 7 of the body)`},
		"two arrays":              {array, "[{},{}]\n[]", `documents.2: unexpected text after the array (byte 8 of the body)`},
		"a bracket too many":      {array, "[{},{}}]", `documents.2: expected \",\" or \"]\" after a document (byte 6 of the body)`},
		"a value":                 {rows, "a.int32()\n1\n2\nx\n4\n", `documents.2: line 4, column 1 (a.int32()): \"x\" is not an integer`},
		"a cell too many":         {rows, "a,b\n1,\n2,\n3,,\n", `documents.2: line 4, column 4: the row has 3 cells, not 2`},
		"a quote":                 {rows, "a\n1\n2\n\"3\n", `documents.2: line 4, column 1: this quote is not closed`},
	} {
		var got received
		w := do(newImporter(t, got.run), "POST", documents+":import", test.body, "Content-Type",
			test.kind)
		if w.Code != 400 || !strings.Contains(w.Body.String(), test.want) ||
			!strings.Contains(w.Body.String(), `"insertedCount":2`) || len(got.documents) != 2 ||
			w.Header().Get("Connection") != "close" {
			t.Errorf("%s: %d %s, documents %q, %v", name, w.Code, w.Body, got.documents, w.Header())
		}
	}
}

// TestImportNothing has bodies of which not one document can be cut: the service is not asked.
func TestImportNothing(t *testing.T) {
	for name, test := range map[string]struct {
		kind, body string
		code       int
		want       string
	}{
		"an object": {"application/json", `{"a":1}`, 400, "the body must be an array"},
		"no body":   {"application/json", "", 400, "the array is not closed"},
		"text":      {"application/json", "a", 400, "the body must be an array"},
		"no names":  {"text/csv", "", 400, "the header row is missing"},
		"a name":    {"text/csv", "a,a\n1,2\n", 400, "line 1, column 3"},
		"a row":     {"text/csv", "a.int32()\nx\n", 400, "line 2, column 1"},
		"a long row": {
			"text/csv", "a\n" + strings.Repeat("x", 200<<10), 413, "the row is longer than 102400 bytes",
		},
		"a long item": {
			"application/json", `["` + strings.Repeat("x", 200<<10), 413, "a document is longer than 102400 bytes",
		},
	} {
		var got received
		few := func(config *config) { config.MaxBodyBytes = 100 << 10 }
		w := do(newImporter(t, got.run, few), "POST", documents+":import", test.body,
			"Content-Type", test.kind)
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.want) ||
			got.documents != nil {
			t.Errorf("%s: %d %s, documents %q", name, w.Code, w.Body, got.documents)
		}
	}
}

// TestImportLongest has the longest item that may be, and one that is a byte longer.
func TestImportLongest(t *testing.T) {
	const most = 100 << 10
	few := func(config *config) { config.MaxBodyBytes = most }
	for size, code := range map[int]int{most: 200, most + 1: 413} {
		item := `{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}`
		var got received
		w := do(newImporter(t, got.run, few), "POST", documents+":import", "["+item+"]",
			"Content-Type", "application/json")
		if w.Code != code {
			t.Errorf("%d bytes: %d %s, want %d", size, w.Code, w.Body, code)
		}
	}
}

// TestImportCompressed has bodies of each type in each coding, and such that are not what they say.
func TestImportCompressed(t *testing.T) {
	for _, in := range []coding.Coding{coding.Gzip, coding.Zstd} {
		for kind, body := range map[string]string{
			"application/x-ndjson": strings.Repeat("{}\n", 1000), "text/csv": "a\n" + strings.Repeat("1\n", 1000),
			"application/json": "[" + strings.Repeat("{},", 999) + "{}]",
			"application/bson": strings.Repeat("\x05\x00\x00\x00\x00", 1000),
		} {
			packed := string(in.Append(nil, []byte(body)))
			for name, test := range map[string]struct {
				body string
				code int
				want string
			}{
				"sound": {packed, 200, `"insertedCount":1000`},
				"half":  {packed[:len(packed)/2], 400, "the body is not what Content-Encoding says"},
				"plain": {body, 400, "the body is not what Content-Encoding says"},
			} {
				var got received
				w := do(newImporter(t, got.run), "POST", documents+":import", test.body,
					"Content-Type", kind,
					"Content-Encoding", in.String())
				if w.Code != test.code || !strings.Contains(w.Body.String(), test.want) {
					t.Errorf("%s, %v, %s: %d %s", kind, in, name, w.Code, w.Body)
				}
			}
		}
	}
	var got received
	for _, bad := range []string{"br", "gzip, zstd", "deflate"} {
		w := do(newImporter(t, got.run), "POST", documents+":import", "{}", "Content-Type",
			"application/x-ndjson",
			"Content-Encoding", bad)
		if w.Code != 415 {
			t.Errorf("Content-Encoding %s: %d %s", bad, w.Code, w.Body)
		}
	}
}

// TestImportKeepsPace has clients that stop within a body, of each type and coding: the answer
// comes when the time of a piece has passed.
func TestImportKeepsPace(t *testing.T) {
	for kind, body := range map[string]string{
		"application/x-ndjson": "{}\n{", "application/json": "[{},{", "text/csv": "a\n1\n\"",
		"application/bson": "\x05\x00\x00\x00\x00\x05",
	} {
		for _, in := range []coding.Coding{coding.Identity, coding.Gzip, coding.Zstd} {
			t.Run(fmt.Sprint(kind, in), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var got received
					l := listen(t, newImporter(t, got.run))
					conn := l.dial()
					defer func() { _ = conn.Close() }()
					packed := in.Append(nil, []byte(body))
					if in != coding.Identity {
						packed = packed[:len(packed)-4]
					}
					go func() {
						_, _ = fmt.Fprintf(conn,
							"POST %s:import HTTP/1.1\r\nHost: db\r\nContent-Type: %s\r\n"+
								"Content-Encoding: %v\r\nContent-Length: 10000\r\n\r\n%s",
							documents, kind, in, packed)
					}()
					begun := time.Now()
					reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = reply.Body.Close() }()
					text, err := io.ReadAll(reply.Body)
					took := time.Since(begun)
					if err != nil || reply.StatusCode != 408 || took != 30*time.Second {
						t.Errorf("%d %s after %v, %v", reply.StatusCode, text, took, err)
					}
				})
			})
		}
	}
}

// FuzzImportArray cuts what encoding/json takes for an array as encoding/json does, and all else
// without a panic.
func FuzzImportArray(f *testing.F) {
	for _, seed := range []string{
		`[{"a":1},{"b":"]"}]`, `[]`, `[[],{}]`, `[1,2`, `{}`, `["\""]`, "[ 1 , 2 ]\n", `[}`, `[,]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var want []json.RawMessage
		isArray := json.Unmarshal([]byte(body), &want) == nil && strings.TrimSpace(body) != "null"
		var got received
		r := httptest.NewRequest("POST", documents+":import", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := serve(newImporter(t, got.run), r)
		if !isArray {
			return
		}
		if w.Code != 200 || len(got.documents) != len(want) {
			t.Fatalf("%q: %d %s, documents %q", body, w.Code, w.Body, got.documents)
		}
		for i, d := range got.documents {
			if d != string(want[i]) {
				t.Errorf("%q: document %d is %q, want %q", body, i, d, want[i])
			}
		}
	})
}
