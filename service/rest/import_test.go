package rest_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

type importStream = grpc.ClientStreamingServer[mooringv1.ImportRequest, mooringv1.ImportResponse]

// importer is a fake whose Import does what a test says.
type importer struct {
	fake
	run func(importStream) error
}

func (i *importer) Import(ss importStream) error { return i.run(ss) }

func newImporter(t *testing.T, run func(importStream) error, change ...func(*config)) http.Handler {
	t.Helper()
	conn := inproc.NewConn(mapErrors, mapStreamErrors)
	mooringv1.RegisterDocumentServiceServer(conn, &importer{run: run})
	return newHandler(t, nil, append(change, func(c *config) { c.Conn = conn })...)
}

// received has the first message and all documents of an import.
type received struct {
	first     *mooringv1.ImportRequest
	documents []string
	messages  int
}

func (r *received) run(ss importStream) error {
	for {
		m, err := ss.Recv()
		if errors.Is(err, io.EOF) {
			return ss.SendAndClose(&mooringv1.ImportResponse{
				Acknowledged: true, InsertedCount: new(int64(len(r.documents))),
			})
		}
		if err != nil {
			return err
		}
		if r.messages++; r.messages == 1 {
			r.first = m
		}
		for _, d := range m.GetDocuments() {
			r.documents = append(r.documents, d.GetJson()+string(d.GetBson()))
		}
	}
}

func TestImportForms(t *testing.T) {
	one, two := ejson(t, `{"a": 1}`), ejson(t, `{"b": {"c": 2}}`)
	const ndjson, raw = "application/x-ndjson", "application/bson"
	long := `{"long": "` + strings.Repeat("x", 200<<10) + `"}`
	for name, test := range map[string]struct {
		kind, body string
		want       []string
	}{
		"lines":                   {ndjson, "{\"a\": 1}\n{\"b\": 2}\n", []string{`{"a": 1}`, `{"b": 2}`}},
		"no end of the last line": {ndjson + "; charset=utf-8", "{\"a\": 1}\n{\"b\": 2}", []string{`{"a": 1}`, `{"b": 2}`}},
		"empty lines":             {ndjson, "\n\r\n {\"a\": 1} \r\n\n", []string{`{"a": 1}`}},
		"a long line":             {ndjson, long + "\n{}", []string{long, `{}`}},
		"no line":                 {ndjson, "\n", nil},
		"what is not JSON":        {ndjson, "{\"a\": 1}\nx\n", []string{`{"a": 1}`, "x"}},
		"BSON":                    {raw, string(one) + string(two), []string{string(one), string(two)}},
		"no BSON":                 {raw, "", nil},
		"BSON that ends early":    {raw, string(one) + string(two[:9]), []string{string(one), string(two[:9])}},
		"a length that ends":      {raw, string(one) + "\x05\x00", []string{string(one), "\x05\x00"}},
		"a length that is none":   {raw, string(one) + "\x03\x00\x00\x00", []string{string(one), "\x03\x00\x00\x00"}},
		"a negative length":       {raw, "\xff\xff\xff\xff", []string{"\xff\xff\xff\xff"}},
	} {
		var got received
		w := do(newImporter(t, got.run), "POST", documents+":import", test.body, "Content-Type",
			test.kind)
		if fmt.Sprintf("%q", got.documents) != fmt.Sprintf("%q", test.want) {
			t.Errorf("%s: the documents are %q, want %q", name, got.documents, test.want)
		}
		want := fmt.Sprintf(`{"acknowledged":true,"insertedCount":%d}`, len(test.want))
		if w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: %d %s, want %s", name, w.Code, w.Body, want)
		}
		if got.first.GetDatabase() != "shop" || got.first.GetCollection() != "orders" {
			t.Errorf("%s: the first message is %v", name, got.first)
		}
	}
}

func TestImportOptions(t *testing.T) {
	var got received
	do(newImporter(t, got.run), "POST",
		documents+":import?ordered=false&bypassDocumentValidation=true&returnPartialSuccess=true"+
			`&comment=c&writeConcern={"w":"majority"}`, "{}", "Content-Type",
		"application/x-ndjson")
	m := got.first
	if m.GetOrdered() || m.Ordered == nil || !m.GetBypassDocumentValidation() ||
		!m.GetReturnPartialSuccess() ||
		m.GetWriteConcern().GetW().GetTag() != "majority" || m.GetComment() == nil {
		t.Errorf("the options are %v", m)
	}
}

func TestImportRefusals(t *testing.T) {
	never := func(importStream) error { return errors.New("the service was called") }
	for name, test := range map[string]struct {
		query, kind string
		code        int
	}{
		"XML":             {"", "application/xml", 415},
		"columns of JSON": {"?columns=a", "application/x-ndjson", 400},
		"no delimiter":    {"?delimiter=ab", "text/csv", 400},
		"no columns":      {"", "text/csv; header=absent", 400},
		"columns twice":   {"?columns=a", "text/csv; header=present", 400},
		"bad columns":     {"?columns=a.int()", "text/csv", 400},
		"no type":         {"", "", 415},
		"a parameter":     {"?filter={}", "application/x-ndjson", 400},
		"no bool":         {"?ordered=2", "application/x-ndjson", 400},
		"another accept":  {"", "application/x-ndjson", 406},
	} {
		accept := "application/json"
		if test.code == 406 {
			accept = "application/bson"
		}
		w := do(newImporter(t, never), "POST", documents+":import"+test.query, "{}", "Content-Type",
			test.kind, "Accept", accept)
		if w.Code != test.code {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, test.code)
		}
	}
}

// TestImportFails: the service's error comes although the body is not read to its end.
func TestImportFails(t *testing.T) {
	fail := func(ss importStream) error {
		if _, err := ss.Recv(); err != nil {
			return err
		}
		return &rpcerr.Error{
			Reason: rpcerr.MalformedDocument, Field: "documents.3", Message: "is malformed",
		}
	}
	body := strings.Repeat("{}\n", 1<<20)
	w := do(newImporter(t, fail), "POST", documents+":import", body, "Content-Type",
		"application/x-ndjson")
	if w.Code != 400 || !bytes.Contains(w.Body.Bytes(), []byte("documents.3")) ||
		w.Header().Get("Connection") != "close" {
		t.Errorf("%d %s, %v", w.Code, w.Body, w.Header())
	}
	some := func(config *config) { config.MaxBodyBytes = 100 << 10 }
	var got received
	w = do(newImporter(t, got.run, some), "POST", documents+":import", strings.Repeat("x", 200<<10),
		"Content-Type", "application/x-ndjson")
	if w.Code != 413 {
		t.Errorf("a line that is too long: %d %s, want 413", w.Code, w.Body)
	}
	got = received{}
	r := httptest.NewRequest("POST", documents+":import",
		io.MultiReader(strings.NewReader("{}\n"), brokenBody{}))
	r.Header.Set("Content-Type", "application/x-ndjson")
	if w := serve(newImporter(t, got.run), r); w.Code != 499 || got.documents != nil {
		t.Errorf("a broken body: %d %s, documents %q", w.Code, w.Body, got.documents)
	}
}

// TestMalformedAfterErrors has a body that is malformed after documents of which the service
// tells errors in its response: the error has them, with the server's words for an operator alone.
func TestMalformedAfterErrors(t *testing.T) {
	var lines []byte
	authorizations := map[string]string{}
	for _, name := range []string{"operator", "client"} {
		key, line, err := caller.NewKey(name, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		authorizations[name], lines = "Bearer "+key, append(lines, line+"\n"...)
	}
	keys, err := caller.ParseKeys(lines)
	if err != nil {
		t.Fatal(err)
	}
	x := interceptor.New(interceptor.Config{
		Terse: true, OperatorTexts: true, Operators: []string{"key:operator"},
		Logger: slog.New(slog.DiscardHandler),
	})
	conn := inproc.NewConn(x.Unary(), x.Stream())
	mooringv1.RegisterDocumentServiceServer(conn, &importer{run: func(ss importStream) error {
		for {
			if _, err := ss.Recv(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
		}
		return ss.SendAndClose(&mooringv1.ImportResponse{
			Acknowledged: true, InsertedCount: new(int64(1)), FailedCount: new(int64(1)),
			WriteErrors: []*mooringv1.WriteError{{
				Index: 1, Code: 11000, KeyValue: payload.NewDocument(ejson(t, `{"_id": 1}`)),
			}},
			WriteConcernError: &mooringv1.WriteConcernError{Code: 64},
		})
	}})
	h := newHandler(t, nil, func(c *config) {
		c.Conn, c.Terse, c.Callers = conn, true, caller.New(caller.Config{Keys: keys})
	})
	for name, authorization := range authorizations {
		w := do(h, "POST", documents+":import?ordered=false&returnPartialSuccess=true", "[{},{},]",
			"Content-Type", "application/json", "Authorization", authorization)
		for _, want := range []string{
			`"reason":"MalformedDocument"`, `(byte `, `"insertedCount":1`,
			`"writeErrors":[{"index":1,"code":11000`, `"writeConcernError":{"code":64`,
		} {
			if w.Code != 400 || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %d %s, want %s", name, w.Code, w.Body, want)
			}
		}
		if got := strings.Contains(w.Body.String(), "keyValue"); got != (name == "operator") {
			t.Errorf("%s: %s", name, w.Body)
		}
	}
}

// TestImportBrokenOff has a body stop: once the service has documents of it, the client is told
// what is inserted, and that the import is not to be made again.
func TestImportBrokenOff(t *testing.T) {
	h := newImporter(t, func(ss importStream) error {
		inserted := int64(0)
		for {
			m, err := ss.Recv()
			if err != nil && inserted > 0 {
				done := rpcerr.Result{InsertedCount: &inserted}
				return &rpcerr.PartialError{Err: ss.Context().Err(), Result: done}
			}
			if err != nil {
				return err
			}
			inserted += int64(len(m.GetDocuments()))
		}
	})
	for n, want := range map[int]string{
		10: `"retry":"same-request"}}`, 10_000: `"retry":"never"},"result":{"insertedCount":`,
	} {
		r := httptest.NewRequest("POST", documents+":import",
			io.MultiReader(strings.NewReader(strings.Repeat("{}\n", n)), lateBody{}))
		r.Header.Set("Content-Type", "application/x-ndjson")
		if w := serve(h, r); w.Code != 408 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d documents: %d %s, want %s", n, w.Code, w.Body, want)
		}
	}
}

type lateBody struct{}

func (lateBody) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// countingBody is an endless body that counts what was read.
type countingBody struct{ read int }

func (b *countingBody) Read(p []byte) (int, error) {
	n := copy(p, bytes.Repeat([]byte("{}\n"), len(p)/3+1))
	b.read += n
	return n, nil
}

// TestImportEndsBeforeItsBody has the service end an import whose client sends nothing more. The
// answer comes at once, says why, and ends the connection, whose rest is not read.
func TestImportEndsBeforeItsBody(t *testing.T) {
	for name, request := range map[string]string{
		"of a length": "Content-Length: 10000\r\n\r\n{}\n{", "in chunks": "Transfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := listen(t, newImporter(t, func(ss importStream) error {
					time.Sleep(time.Second) //nolint:forbidigo // fake time
					return status.Error(codes.PermissionDenied, "withdrawn")
				}))
				conn := l.dial()
				defer func() { _ = conn.Close() }()
				go func() {
					_, _ = io.WriteString(conn,
						"POST "+documents+
							":import HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
							"application/x-ndjson\r\n"+request)
				}()
				begun := time.Now()
				reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = reply.Body.Close() }()
				text, err := io.ReadAll(reply.Body)
				if took := time.Since(begun); err != nil || reply.StatusCode != 403 ||
					!reply.Close || took != time.Second ||
					!strings.Contains(string(text), "withdrawn") {
					t.Errorf("%d %s after %v, close: %t, %v", reply.StatusCode, text, took,
						reply.Close, err)
				}
			})
		})
	}
}

// TestImportHoldsTheClientBack: while the service works on a message, the body is read for the next
// one and no further.
func TestImportHoldsTheClientBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		h := newImporter(t, func(ss importStream) error {
			if _, err := ss.Recv(); err != nil {
				return err
			}
			<-proceed
			return ss.SendAndClose(&mooringv1.ImportResponse{})
		})
		body := &countingBody{}
		r := httptest.NewRequest("POST", documents+":import", body)
		r.Header.Set("Content-Type", "application/x-ndjson")
		done := make(chan int)
		go func() { done <- serve(h, r).Code }()
		synctest.Wait()
		if most := 3 * (256 << 10); body.read > most {
			t.Errorf("%d bytes of the body were read, want at most %d", body.read, most)
		}
		close(proceed)
		if code := <-done; code != 200 {
			t.Errorf("the status is %d, want 200", code)
		}
	})
}

func FuzzImportBSON(f *testing.F) {
	f.Add([]byte(bson.NewBuilder(nil).Int32("a", 1).Finish()))
	f.Add([]byte("\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		var got received
		w := do(newImporter(t, got.run), "POST", documents+":import", string(body), "Content-Type",
			"application/bson")
		if all := strings.Join(got.documents, ""); w.Code != 200 || all != string(body) {
			t.Errorf("%d: the documents are %q of %q", w.Code, all, body)
		}
	})
}

// TestImportsAreCharged checks that a long line and a long document are charged as they arrive,
// that what is announced costs nothing, and that one which does not fit is refused.
func TestImportsAreCharged(t *testing.T) {
	const budget = 8 << 20
	const array, rows = "application/json", "text/csv"
	xs := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	document := append([]byte{0, 0, 0xf0, 0}, make([]byte, 15<<20)...) // of 15 MiB, as it says
	for _, test := range []struct {
		name, kind string
		body       []byte
		most       int64 // that may be charged
		code       int   // of the answer when the body ends then
	}{
		{"a line of 2 MiB", "application/x-ndjson", bytes.Repeat([]byte("x"), 2<<20), 6 << 20, 200},
		{"a line of 60 MiB", "application/x-ndjson", bytes.Repeat([]byte("x"), 60<<20), budget, 429},
		{"the length of a document", "application/bson", document[:4], 1 << 20, 200},
		{"a document of 1 MiB", "application/bson", append([]byte{0, 0, 0x10, 0}, document[4:1<<20]...), 6 << 20, 200},
		{"a document of 15 MiB", "application/bson", document, budget, 429},
		{"an item of 2 MiB", array, wrap(`["`, xs(2<<20-2), `"]`), 6 << 20, 200},
		{"an item of 60 MiB", array, wrap(`["`, xs(60<<20), `"]`), budget, 429},
		{"spaces in an array", array, wrap("[", bytes.Repeat([]byte(" "), 20<<20), "{}]"), 1 << 20, 200},
		{"a row of 1 MiB", rows, wrap("a\n", xs(1<<20-100), ""), 6 << 20, 200},
		{"rows of 400 KiB", rows, bytes.Repeat(wrap("a\n", xs(400<<10), "\n"), 10), 6 << 20, 200},
		{"a row of 15 MiB", rows, wrap("a\n", xs(15<<20), ""), budget, 429},
		{"a quote without an end", rows, wrap("a\n\"", xs(60<<20), ""), budget, 429},
		{"JSON in a cell", rows, wrap("a.json()\n\"[", bytes.Repeat([]byte("1,"), 1<<20), "1]\"\n"), budget, 429},
		{"empty lines of 1 MiB", "application/x-ndjson", bytes.Repeat(append(bytes.Repeat([]byte(" "), 1<<20), '\n'), 20), 6 << 20, 200},
	} {
		a := admission.New(admission.Config{Bytes: budget})
		var got received
		h := newImporter(t, got.run, func(c *config) { c.Admission = a })
		most := int64(0)
		body := watched{bytes.NewReader(test.body), func() { most = max(most, a.Bytes().Held) }}
		r := httptest.NewRequest("POST", documents+":import", body)
		r.Header.Set("Content-Type", test.kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != test.code || most > test.most || a.Bytes().Held != 0 {
			t.Errorf("%s: %d %.200s with up to %d bytes charged, want %d with %d; %d are left",
				test.name, w.Code, w.Body, most, test.code, test.most, a.Bytes().Held)
		}
	}
}

// TestBinaryCellsAreCharged checks that a document of a binary is charged as one of a string when
// the service has it.
func TestBinaryCellsAreCharged(t *testing.T) {
	held := func(column string, cell []byte) (held int64, size int) {
		a := admission.New(admission.Config{Bytes: 64 << 20})
		h := newImporter(t, func(ss importStream) error {
			m, err := ss.Recv()
			if err != nil {
				return err
			}
			held, size = a.Bytes().Held, len(m.GetDocuments()[0].GetBson())
			return ss.SendAndClose(&mooringv1.ImportResponse{})
		}, func(c *config) { c.Admission = a })
		r := httptest.NewRequest("POST", documents+":import",
			bytes.NewReader(wrap(column+"\n", cell, "\n")))
		r.Header.Set("Content-Type", "text/csv")
		if w := serve(h, r); w.Code != 200 || a.Bytes().Held != 0 {
			t.Fatalf("%s: %d %s, %d bytes are left", column, w.Code, w.Body, a.Bytes().Held)
		}
		return held, size
	}
	cell := bytes.Repeat([]byte("abcd"), 512<<10)
	text, long := held("a.string()", cell)
	for _, column := range []string{"a.binary()", "a.binary(hex)"} {
		binary, size := held(column, cell)
		if least := text - 2*int64(long-size); binary < least {
			t.Errorf("%s: %d bytes are charged, want %d: a string has %d", column, binary, least,
				text)
		}
	}
}

// TestCompressedImportsAreCharged checks that what a compressed body becomes is charged as a body
// that is not compressed.
func TestCompressedImportsAreCharged(t *testing.T) {
	const budget = 24 << 20
	for _, test := range []struct {
		name, kind string
		body       []byte
		code       int
	}{
		{"a line of 1 MiB", "application/x-ndjson", bytes.Repeat([]byte("x"), 1<<20), 200},
		{"a line of 60 MiB", "application/x-ndjson", bytes.Repeat([]byte("x"), 60<<20), 429},
		{"a document of 15 MiB", "application/bson", append([]byte{0, 0, 0xf0, 0}, make([]byte, 15<<20)...), 429},
		{"an item of 60 MiB", "application/json", wrap("[", bytes.Repeat([]byte("x"), 60<<20), "]"), 429},
		{"a row of 15 MiB", "text/csv", wrap("a\n", bytes.Repeat([]byte("x"), 15<<20), ""), 429},
		{"spaces", "application/x-ndjson", bytes.Repeat([]byte(" \n"), 10<<20), 200},
	} {
		for _, c := range []coding.Coding{coding.Gzip, coding.Zstd} {
			a := admission.New(admission.Config{Bytes: budget})
			var got received
			h := newImporter(t, got.run, func(c *config) { c.Admission = a })
			most := int64(0)
			body := watched{bytes.NewReader(c.Append(nil, test.body)), func() {
				most = max(most, a.Bytes().Held)
			}}
			r := httptest.NewRequest("POST", documents+":import", body)
			r.Header.Set("Content-Type", test.kind)
			r.Header.Set("Content-Encoding", c.String())
			w := serve(h, r)
			if w.Code != test.code || most < c.ReaderCost() || most > budget ||
				a.Bytes().Held != 0 {
				t.Errorf("%s in %v: %d %.200s with up to %d bytes charged; %d are left",
					test.name, c, w.Code, w.Body, most, a.Bytes().Held)
			}
		}
	}
}

func wrap(before string, text []byte, after string) []byte {
	return append(append([]byte(before), text...), after...)
}

// watched calls a function before each read.
type watched struct {
	io.Reader
	look func()
}

func (w watched) Read(p []byte) (int, error) {
	w.look()
	return w.Reader.Read(p)
}
