package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/servicetest"
)

// malformed describes requests that differ in one part, and how all of them are answered.
type malformed struct {
	name, method string
	path         string // with %s for the part, if it is in the path
	header       string // lines, with %s for the part, if it is there
	body         string // with %s for the part, if it is there
	code         int
	reason       string   // "": several
	parts        []string // one request each
}

const typed = "Content-Type: application/json\r\n"

// deep returns n opening parts and as many closing ones.
func deep(open, middle, end string, n int) string {
	return strings.Repeat(open, n) + middle + strings.Repeat(end, n)
}

var malformedRequests = []malformed{
	{"unknown path", "GET", "%s", "", "", 404, "RouteNotFound", []string{
		"/v", "/v1", "/v1/", "/v2/databases", "/V1/databases", "/v1/database", "/v1/databases/shop", "/v1/databases/shop/collections/orders",
		"/v1/databases/shop/collection/orders/documents", documents + "/1/2", documents + "/1/2/3/4", "/index.html", "/favicon.ico", "/robots.txt",
		"/.env", "/v1/databases/a/b/c/d/e/f", "/healthz/", "/openapi.json/x", "/v1/deployments", "/v1/deployment", "//v1/databases", "/v1//databases", "/graphql",
	}},
	{"unknown verb", "POST", documents + "%s", typed, "{}", 404, "RouteNotFound", []string{
		":", "::find", ":find:", ":Find", ":FIND", ":fnd", ":find%20", ":%66ind%00", ":find()", ":find;x=1", ":$where", ":drop", ":runCommand", ":next", "/1:find",
	}},
	{
		"bad segment", "POST", "/v1/databases/%s/collections/orders/documents:find", typed, "{}", 400,
		"InvalidArgument",
		[]string{
			"", "%2e", "%2E%2e", "%ff", "%C0%AF", "%ED%A0%80", "~", "~%20", "~a", "~_w", "~$$$", "~YQ==YQ", "a%00b",
		},
	},
	{
		"bad name of a collection", "POST", "/v1/databases/shop/collections/%s/documents:find", typed,
		"{}", 400, "InvalidArgument",
		[]string{
			"", "%2e%2e", "%fe", "~", "~!", "a%00b",
		},
	},
	{"bad _id", "GET", documents + "/%s", "", "", 400, "InvalidArgument", []string{
		"user-1", "507f1f77bcf86cd79943901", "507f1f77bcf86cd7994390111", "507f1f77bcf86cd79943901g", "%7B", "%5B1", "1%202", "01", "+1", "0x1f", "1e", "tru", "%27a%27", "%22a", "%22%ff%22", "~", "~%22",
		"%7B%22$oid%22%3A%22x%22%7D", "%7B%22$oid%22%3A1%7D", "%7B%22$uuid%22%3A%22x%22%7D", "%7B%22$date%22%3A%22x%22%7D", "NaN", "undefined", "x?idType=text", "x?idType=", "x?idType=string&idType=string",
	}},
	{"wrong method", "%s", documents + ":find", "", "", 405, "MethodNotAllowed", []string{
		"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "QUERY", "get", "FOO",
	}},
	{"wrong method of a GET", "%s", "/v1/databases", "", "", 405, "MethodNotAllowed", []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "LINK"}},
	{"wrong method of a page", "%s", "/openapi.json", "", "", 405, "MethodNotAllowed", []string{"POST", "PUT", "DELETE"}},
	{"wrong type", "POST", documents + ":find", "%s", "{}", 415, "UnsupportedMediaType", []string{
		"", "Content-Type:\r\n", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n", "Content-Type: multipart/form-data; boundary=x\r\n",
		"Content-Type: application/xml\r\n", "Content-Type: application/bson\r\n", "Content-Type: application/x-ndjson\r\n", "Content-Type: application/jsonp\r\n", "Content-Type: json\r\n",
		"Content-Type: application/json; charset=latin1\r\n", "Content-Type: application/json; charset=utf-16\r\n", "Content-Type: application/json;;;=\r\n", "Content-Type: application/json, text/plain\r\n",
		"Content-Type: */*\r\n", "Content-Type: application/grpc\r\n", typed + "Content-Encoding: gzip\r\n", typed + "Content-Encoding: br\r\n", typed + "Content-Encoding: deflate, gzip\r\n",
	}},
	{"wrong type of a PATCH", "PATCH", documents + "/1", "Content-Type: %s\r\n", "{}", 415, "UnsupportedMediaType", []string{"application/merge-patch+json", "application/json-patch+json", "text/plain"}},
	{"wrong type of an import", "POST", documents + ":import", "Content-Type: %s\r\n", "{}", 415, "UnsupportedMediaType", []string{"application/xml", "text/plain"}},
	{
		"unacceptable", "POST", documents + ":find", typed + "Accept: %s\r\n", "{}", 406,
		"NotAcceptable",
		[]string{
			"text/html", "application/xml", "image/*", "application/json;q=0", "*/*;q=0", "application/x-ndjson", "text/event-stream", "application/json;profile=pretty", "application/json;int64=string", "json", "application/json;charset=latin1", "application/json;q=2", "application/json;q=x",
		},
	},
	{"unacceptable for a stream", "POST", documents + ":streamFind", typed + "Accept: %s\r\n", "{}", 406, "NotAcceptable", []string{"application/json", "application/bson", "application/ejson"}},
	{
		"body that is no JSON", "POST", documents + ":find", typed, "%s", 400, "MalformedDocument",
		[]string{
			"x", "{", "}", "[", "[]", "[{}]", `"a"`, "1", "null", "true", "{}{}", "{} x", "{,}", `{"filter"}`, `{"filter":}`, `{"filter":{}`, `{"filter":{},}`, `{"filter":{"a":1,}}`, `{filter:{}}`, `{'filter':{}}`,
			`{"filter":{"a":01}}`, `{"filter":{"a":+1}}`, `{"filter":{"a":.5}}`, `{"filter":{"a":1.}}`, `{"filter":{"a":1e}}`, `{"filter":{"a":0x1}}`, `{"filter":{"a":NaN}}`, `{"filter":{"a":Infinity}}`, `{"filter":{"a":undefined}}`,
			`{"filter":{"a":tru}}`, `{"filter":{"a":True}}`, `{"filter":{"a":"b}}`, `{"filter":{"a":"\x"}}`, `{"filter":{"a":"\u12"}}`, "{\"filter\":{\"a\":\"\n\"}}", "{\"filter\":{\"a\":\"\x00\"}}", `{"filter":{a:1}}`,
			"// comment\n{}", "/**/{}", "\xef\xbb\xbf{}", "\xff\xfe{\x00}\x00", "--- {}", "a=b&c=d", "<xml/>", "%PDF-1.4",
		},
	},
	{
		"field of another type", "POST", documents + ":find", typed, "%s", 400, "MalformedDocument",
		[]string{
			`{"filter":null}`, `{"filter":1}`, `{"filter":"{}"}`, `{"filter":[]}`, `{"filter":true}`, `{"sort":1}`, `{"sort":"a"}`, `{"sort":[["a"]]}`, `{"sort":[["a",1,2]]}`, `{"sort":[[1,1]]}`, `{"projection":[]}`, `{"hint":1}`, `{"hint":true}`,
			`{"tailable":1}`, `{"tailable":"true"}`, `{"tailable":null}`, `{"readConcern":1}`, `{"readConcern":null}`, `{"readConcern":{"level":1}}`, `{"readPreference":1}`, `{"readPreference":[]}`, `{"readPreference":{"tags":{}}}`,
			`{"readPreference":{"tags":[1]}}`, `{"readPreference":{"tags":[{"a":1}]}}`, `{"session":1}`, `{"collation":"en"}`, `{"let":[]}`, `{"min":1}`,
		},
	},
	{
		"number that is none", "POST", documents + ":find", typed, `{"limit":%s}`, 400,
		"MalformedDocument",
		[]string{
			`"x"`, `""`, `" 1"`, `"1.5"`, `1.5`, `1e400`, `9223372036854775808`, `"9223372036854775808"`, `1e19`, `true`, `null`, `{}`, `[1]`, `{"$numberLong":"x"}`, `{"$numberLong":1}`, `{"$numberInt":"3000000000"}`, `"0x10"`, `--1`, `"+1"`,
		},
	},
	{"number of 32 bits", "POST", documents + ":find", typed, `{"batchSize":%s}`, 400, "", []string{`2147483648`, `-2147483649`, `-1`, `1e10`, `"4294967296"`}},
	{"negative number", "POST", documents + ":find", typed, `{%s}`, 400, "InvalidArgument", []string{`"skip":-1`, `"limit":-9223372036854775809`, `"maxTimeMS":-1`, `"maxAwaitTimeMS":-5`}},
	{
		"wrapper that is none", "POST", documents + ":find", typed, `{"filter":{"a":%s}}`, 400,
		"MalformedDocument",
		[]string{
			`{"$oid":"x"}`, `{"$oid":1}`, `{"$oid":"507f1f77bcf86cd799439011","x":1}`, `{"$date":"yesterday"}`, `{"$date":{"$numberLong":"x"}}`, `{"$numberInt":"1.5"}`, `{"$numberInt":1}`, `{"$numberDouble":"x"}`, `{"$numberDecimal":"x"}`,
			`{"$binary":1}`, `{"$binary":{"base64":"!","subType":"00"}}`, `{"$binary":{"base64":"AA==","subType":"xyz"}}`, `{"$uuid":"x"}`, `{"$timestamp":1}`, `{"$timestamp":{"t":-1,"i":0}}`, `{"$regularExpression":{"pattern":1,"options":""}}`,
			`{"$code":1}`, `{"$symbol":1}`, `{"$minKey":2}`, `{"$undefined":false}`, `{"$dbPointer":1}`, `{"$numberLong":"9223372036854775808"}`,
		},
	},
	{"too deep", "POST", documents + ":find", typed, "%s", 400, "MalformedDocument", []string{
		`{"filter":` + deep(`{"a":`, "1", "}", 201) + "}", `{"filter":` + deep(`{"a":`, "1", "}", 100_000) + "}", `{"filter":{"a":` + deep("[", "", "]", 201) + "}}", `{"filter":{"a":` + strings.Repeat("[", 1_000_000) + "}}",
		`{"comment":` + deep("[", "", "]", 300) + "}", strings.Repeat("[", 100_000), `{"sort":` + deep("[", "", "]", 1000) + "}",
	}},
	{"no UTF-8", "POST", documents + ":find", typed, "%s", 400, "MalformedDocument", []string{
		"{\"filter\":{\"a\":\"\xff\"}}", "{\"filter\":{\"a\":\"\xc3\"}}", "{\"filter\":{\"a\":\"\xed\xa0\x80\"}}", "{\"filter\":{\"a\":\"\xf8\x88\x80\x80\x80\"}}", "{\"filter\":{\"a\":\"\xc0\xaf\"}}", "{\"filter\":{\"\xff\":1}}",
		"{\"session\":\"\xff\"}", "{\"comment\":\"\xff\"}", `{"filter":{"a":"\ud800"}}`, `{"filter":{"a":"\udc00\ud800"}}`, `{"filter":{"a\u0000b":1}}`,
	}},
	{"no UTF-8 in a name", "POST", documents + ":find", typed, "%s", 400, "", []string{"{\"\xff\":1}", `{"\ud800":1}`}},
	{"twice", "POST", documents + ":find", typed, "%s", 400, "MalformedDocument", []string{
		`{"filter":{},"filter":{}}`, `{"limit":1,"limit":2}`, `{"batchSize":1,"batch_size":2}`, `{"tailable":true,"tailable":true}`, `{"readConcern":"local","readConcern":"local"}`, `{"readPreference":{"mode":"primary","mode":"nearest"}}`,
		`{"readPreference":{"tags":[{"a":"b","a":"c"}]}}`,
	}},
	{"unknown field", "POST", documents + ":find", typed, "%s", 400, "InvalidArgument", []string{
		`{"x":1}`, `{"Filter":{}}`, `{"":1}`, `{"filter ":{}}`, `{"$where":"1"}`, `{"database":"x"}`, `{"collection":"x"}`, `{"update":{}}`, `{"readPreference":{"x":1}}`, `{"readConcern":{"mode":"local"}}`, `{"__proto__":{}}`,
	}},
	{"word", "POST", documents + ":find", typed, "%s", 400, "InvalidArgument", []string{
		`{"readPreference":"Secondary"}`, `{"readPreference":"SECONDARY"}`, `{"readPreference":"slaveOk"}`, `{"readPreference":""}`, `{"readPreference":{"mode":"secondarypreferred"}}`, `{"statement":1}`,
	}},
	{
		"option", "POST", documents + ":find", typed, `{"options":%s}`, 400, "InvalidArgument",
		[]string{
			`{"filter":{}}`, `{"find":"x"}`, `{"lsid":{}}`, `{"$db":"x"}`, `{"$readPreference":{}}`, `{"maxTimeMS":1}`, `{"fromMongos":true}`,
		},
	},
	{"parameter", "GET", documents + "?%s", "", "", 400, "InvalidArgument", []string{
		"limit=x", "limit=", "limit=1&limit=2", "limit=1.5", "limit=99999999999999999999", "skip=-1", "batchSize=-1", "x=gtt.1", "Limit=1", "filter[a]=1", "%zz", "a=%", ";", "session=x", "timeout=5", "timeout=", "timeout=-5s", "timeout=5s&timeout=6s", "readPreference=Nearest", "tailable=true", "limit=null",
	}},
	{
		"document in a parameter", "GET", documents + "?%s", "", "", 400, "MalformedDocument",
		[]string{
			"filter=x", "filter=", "filter=1", "filter=%7B", "filter=%7B%7D%7B%7D", "filter=null", "sort=1", "projection=%5B%5D", "filter=%7B%22a%22:%22%ff%22%7D", "hint=a_1",
		},
	},
	{
		"header", "POST", documents + ":find", typed + "%s\r\n", "{}", 400, "InvalidArgument",
		[]string{
			"Request-Timeout: x", "Request-Timeout: 5", "Request-Timeout: -1s", "Request-Timeout: 0s", "Grpc-Timeout: 5", "Grpc-Timeout: 5s", "Grpc-Timeout: 123456789S", "Grpc-Timeout: S",
		},
	},
	{"precondition", "DELETE", documents + "/1", "%s\r\n", "", 400, "InvalidArgument", []string{
		"If-Match: x", `If-Match: "x`, `If-Match: x"`, `If-Match: "a" "b"`, "If-Match: ,", `If-Match: w/"x"`, `If-Match: *, "x"`, `If-None-Match: *`, `If-None-Match: "x"`,
	}},
	{"key", "POST", documents + ":find", typed + "%s\r\n", "{}", 400, "IdempotencyKeyUnsupported", []string{"Idempotency-Key: a"}},
	{"token", "POST", "%s", typed, `{"cursor":"x"}`, 404, "CursorNotFound", []string{"/v1/cursors:next", "/v1/cursors:close", "/v1/cursors:stream"}},
	{"session", "POST", documents + ":find", typed + "Mooring-Session: %s\r\n", "{}", 404, "SessionNotFound", []string{"x", strings.Repeat("A", 2000), "AQ=="}},
	{"transaction", "POST", documents + ":find", typed + "Mooring-Transaction: %s\r\n", "{}", 404, "TransactionNotFound", []string{"x", strings.Repeat("A", 2000)}},
	{"write", "POST", documents + ":%s", typed, "{}", 400, "InvalidArgument", []string{
		"updateOne", "updateMany", "replaceOne", "deleteOne", "deleteMany", "insertOne", "insertMany", "findOneAndUpdate", "findOneAndReplace", "findOneAndDelete", "bulkWrite", "distinct",
	}},
	{"update", "POST", documents + ":updateOne", typed, `{"filter":{},%s}`, 400, "", []string{
		`"update":{}`, `"update":{"a":1}`, `"update":1`, `"update":"x"`, `"update":[1]`, `"update":null`, `"update":{"$set":{}},"arrayFilters":{}`, `"update":{"$set":{"a":1}},"writeConcern":1`, `"update":{"$set":{"a":1}},"writeConcern":{"w":-1}`, `"update":{"$set":{"a":1}},"writeConcern":{"w":true}`,
	}},
	{"models", "POST", documents + ":bulkWrite", typed, `{"models":%s}`, 400, "", []string{
		`{}`, `[1]`, `[{}]`, `[{"x":{}}]`, `[{"insertOne":{}}]`, `[{"insertOne":{"document":1}}]`, `[{"insertOne":{"document":{}},"deleteOne":{"filter":{}}}]`, `[{"deleteOne":{}}]`, `[{"namespace":"a.b","deleteOne":{"filter":{}}}]`,
	}},
	{"command", "POST", "/v1/databases/shop:runCommand", typed, "%s", 400, "", []string{
		`{}`, `{"command":{}}`, `{"command":null}`, `{"command":{"getMore":1}}`, `{"command":{"ping":1,"lsid":{}}}`, `{"command":{"killAllSessions":[]}}`, `{"command":{"ping":1,"$db":"x"}}`,
	}},
	{"resource", "PUT", documents + "/7", typed, "%s", 400, "", []string{`{"_id":8}`, `{"_id":"7"}`, `{"$set":{}}`, ``, `[]`, `1`, `{"a":{"b":}}`, `{} {}`}},
	{"long path", "GET", "%s", "", "", 414, "URITooLong", []string{documents + "?filter=" + strings.Repeat("x", 8200), "/" + strings.Repeat("a/", 5000), documents + "/" + strings.Repeat("1", 9000)}},
	{"body of a GET", "GET", documents, "%s", "x", 400, "InvalidArgument", []string{"", typed, "Content-Type: text/plain\r\n"}},
	{"body that is too large", "POST", documents + ":find", typed, "%s", 413, "TooLarge", []string{`{"comment":"` + strings.Repeat("x", 2<<20) + `"}`}},
	{"flood of items", "POST", documents + ":insertMany", typed, "%s", 413, "TooLarge", []string{`{"documents":[` + strings.Repeat("{},", 110_000) + `{}]}`}},
	{"flood of fields", "POST", documents + ":find", typed, "%s", 400, "InvalidArgument", []string{`{` + strings.Repeat(`"x":1,`, 100_000) + `"x":1}`}},
	{"flood of parameters", "GET", documents + "?%s", "", "", 400, "InvalidArgument", []string{strings.Repeat("a=1&", 1500), strings.Repeat("&", 7000) + "a"}},
	{"flood of ranges", "POST", documents + ":find", typed + "Accept: %s\r\n", "{}", 406, "NotAcceptable", []string{strings.Repeat("a/b,", 10_000)}},
}

// TestMalformedRequests sends malformed requests to a whole gateway: services, interceptors and
// client are real. Each is answered by the right status in the one shape, and costs less than a
// second.
func TestMalformedRequests(t *testing.T) {
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{})
	h, err := front.New(front.Config{
		Conn: g.Local, MaxBodyBytes: 1200 << 10, APIs: []front.API{rest.New(rest.Config{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, h)
	n := 0
	for _, m := range malformedRequests {
		for i, part := range m.parts {
			n++
			fill := func(text string) string { return strings.ReplaceAll(text, "%s", part) }
			body := fill(m.body)
			if !strings.Contains(m.body, "%s") {
				body = m.body
			}
			request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: "+
				"%d\r\n\r\n%s", fill(m.method), fill(m.path), fill(m.header), len(body), body)
			t.Run(fmt.Sprintf("%s %d", m.name, i), func(t *testing.T) {
				sendMalformed(t, l, &m, request)
			})
		}
	}
	if n < 300 {
		t.Errorf("%d requests, want 300", n)
	}
	t.Logf("%d requests", n)
}

// mostTime is the processor time that an answer may take; the race detector takes ten times as
// much. What else the process did in that time is counted, too; so there are three attempts.
const mostTime = time.Second * underRace

// processorTime returns what this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

func sendMalformed(t *testing.T, l *pipeListener, m *malformed, request string) {
	t.Helper()
	for attempt := range 3 {
		begin := processorTime(t)
		code, allow, text := exchange(t, l, request)
		if took := processorTime(t) - begin; took > mostTime && attempt < 2 {
			continue
		} else if took > mostTime {
			t.Errorf("it took %v", took)
		}
		short := request[:min(len(request), 300)]
		if strings.HasPrefix(request, "HEAD") {
			if code != m.code {
				t.Errorf("%q: %d, want %d", short, code, m.code)
			}
			return
		}
		var answer struct{ Error *errorBody }
		if err := json.Unmarshal(text, &answer); err != nil || answer.Error == nil {
			t.Fatalf("%q: %d, no error body: %.300q", short, code, text)
		}
		e := answer.Error
		if code != m.code || m.reason != "" && e.Reason != m.reason || e.Message == "" ||
			e.RequestID == "" || e.Retry == "" || e.Status == "" {
			t.Errorf("%q: %d %.400s, want %d %s", short, code, text, m.code, m.reason)
		}
		if (code == http.StatusMethodNotAllowed) != (allow != "") {
			t.Errorf("%q: Allow %q", short, allow)
		}
		return
	}
}

// exchange sends a request on a connection of its own, and returns the answer.
func exchange(t *testing.T, l *pipeListener, request string) (code int, allow string, text []byte) {
	t.Helper()
	conn := l.dial()
	sent := make(chan struct{})
	go func() { // the answer may come before all is sent
		defer close(sent)
		_, _ = io.WriteString(conn, request)
	}()
	defer func() { _ = conn.Close(); <-sent }()
	method, _, _ := strings.Cut(request, " ")
	reply, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%.200q: %v", request, err)
	}
	defer func() { _ = reply.Body.Close() }()
	if text, err = io.ReadAll(reply.Body); err != nil {
		t.Fatalf("%.200q: %v", request, err)
	}
	return reply.StatusCode, reply.Header.Get("Allow"), text
}

// TestSlowRequests sends requests whose bodies stop, or come a byte at a time, to a gateway that
// waits for half a second, and for the default time. Each is answered at the end of that time, or
// at its deadline.
func TestSlowRequests(t *testing.T) {
	const (
		post     = "POST " + documents + ":find HTTP/1.1\r\nHost: localhost\r\n" + typed
		length   = "Content-Length: 10000\r\n\r\n"
		chunked  = "Transfer-Encoding: chunked\r\n\r\n"
		deadline = "Request-Timeout: 20ms\r\n"
	)
	for _, wait := range []time.Duration{500 * time.Millisecond, 0} {
		for _, row := range []struct {
			name, request string
			drip          string // sent again and again
			code          int
			reason        string
			most          time.Duration // that the gateway waits, if it has no other time
		}{
			{"no body", post + length, "", 408, "BodyTimeout", 30 * time.Second},
			{"a brace", post + length + "{", "", 408, "BodyTimeout", 30 * time.Second},
			{"half a body", post + length + `{"filter":`, "", 408, "BodyTimeout", 30 * time.Second},
			{"a body without its last byte", post + length + "{}" + strings.Repeat(" ", 9997), "", 408, "BodyTimeout", 30 * time.Second},
			{"bytes", post + length, " ", 408, "BodyTimeout", 30 * time.Second},
			{"no chunk", post + chunked, "", 408, "BodyTimeout", 30 * time.Second},
			{"half a chunk", post + chunked + "10\r\n{", "", 408, "BodyTimeout", 30 * time.Second},
			{"half a size of a chunk", post + chunked + "1", "", 408, "BodyTimeout", 30 * time.Second},
			{"no last chunk", post + chunked + "2\r\n{}\r\n", "", 408, "BodyTimeout", 30 * time.Second},
			{"small chunks", post + chunked, "1\r\n \r\n", 408, "BodyTimeout", 30 * time.Second},
			{"a write", "PUT " + documents + "/7 HTTP/1.1\r\nHost: localhost\r\n" + typed + length + `{"a":`, "", 408, "BodyTimeout", 30 * time.Second},
			{"an import", "POST " + documents + ":import HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n" + length + "{}\n{", "", 408, "BodyTimeout", 30 * time.Second},
			{"bytes of an import", "POST " + documents + ":import HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n" + chunked, "1\r\n \r\n", 408, "BodyTimeout", 30 * time.Second},
			{"a BSON import", "POST " + documents + ":import HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/bson\r\n" + chunked + "4\r\n\x00\x00\xf0\x00\r\n", "1\r\n \r\n", 408, "BodyTimeout", 30 * time.Second},
			{"a body of a GET", "GET " + documents + " HTTP/1.1\r\nHost: localhost\r\n" + length, "", 408, "BodyTimeout", 30 * time.Second},
			{"no route", "POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\n" + length + "{", "", 404, "RouteNotFound", 10 * time.Second},
			{"another type", "POST " + documents + ":find HTTP/1.1\r\nHost: localhost\r\n" + length + "{", "", 415, "UnsupportedMediaType", 10 * time.Second},
			{"a body with a deadline", post + deadline + length + "{", "", 504, "DeadlineExceeded", 20 * time.Millisecond},
			{"chunks with a deadline", post + deadline + chunked, "1\r\n \r\n", 504, "DeadlineExceeded", 20 * time.Millisecond},
		} {
			t.Run(fmt.Sprintf("%s %v", row.name, wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := http.Handler(newHandler(t, &fake{}, func(c *config) {
						c.BodyTimeout = wait
					}))
					if strings.Contains(row.request, ":import") {
						h = newImporter(t, (&received{}).run, func(c *config) {
							c.BodyTimeout = wait
						})
					}
					l := listen(t, h)
					conn := l.dial()
					sent := make(chan struct{})
					defer func() { _ = conn.Close(); <-sent }()
					go func() {
						defer close(sent)
						_, err := io.WriteString(conn, row.request)
						for err == nil && row.drip != "" {
							time.Sleep(9 * time.Millisecond) //nolint:forbidigo // fake time
							_, err = io.WriteString(conn, row.drip)
						}
					}()
					begin, most := time.Now(), row.most
					if wait != 0 {
						most = min(most, wait)
					}
					reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = reply.Body.Close() }()
					took := time.Since(begin)
					text, err := io.ReadAll(reply.Body)
					if err != nil {
						t.Fatal(err)
					}
					if e := errorOf(t, reply.StatusCode, text, row.code); e.Reason != row.reason ||
						took != most {
						t.Errorf("%+v after %v, want %s after %v", e, took, row.reason, most)
					}
				})
			})
		}
	}
}

// FuzzHandler sends any request to a whole gateway. The answer is never a 500, and a failure has
// the one shape.
func FuzzHandler(f *testing.F) {
	for _, m := range malformedRequests {
		part := m.parts[0]
		if len(part) > 1000 {
			continue
		}
		fill := func(text string) string { return strings.ReplaceAll(text, "%s", part) }
		f.Add(fill(m.method), fill(m.path), fill(m.header), fill(m.body))
	}
	for _, s := range []struct{ method, path, header, body string }{
		{"GET", documents + "/7", "Accept: application/bson\r\nAccept-Encoding: zstd\r\n", ""},
		{"PUT", documents + "/~Nw", typed + "If-Match: \"E.s\"\r\nPrefer: return=minimal\r\n", `{"a":1}`},
		{"PATCH", documents + "/7", typed + "If-Match: *\r\n", `[{"$set":{"a":1}}]`},
		{"GET", documents + ":streamFind?filter={}", "Accept: text/event-stream\r\nLast-Event-ID: q\r\nAccept-Encoding: gzip\r\n", ""},
		{"POST", documents + ":import?ordered=false", "Content-Type: application/x-ndjson\r\n", "{}\n{\"a\":1}\n"},
		{"POST", documents + ":import", "Content-Type: application/bson\r\n", "\x05\x00\x00\x00\x00"},
		{"POST", "/v1/transactions:run", typed, `{"operations":[{"findOne":{"database":"a","collection":"b"}}]}`},
		{"POST", documents + ":aggregate", typed, `{"pipeline":[{"$match":{}}],"readConcern":"majority"}`},
		{"POST", documents + ":bulkWrite", typed, `{"models":[{"insertOne":{"document":{}}}]}`},
		{"POST", "/v1/sessions:start", typed, `{}`},
		{"GET", "/v1/deployment/topology", "", ""},
	} {
		f.Add(s.method, s.path, s.header, s.body)
	}
	g := servicetest.Start(f, fakemongo.NewServer(f, nil),
		servicetest.Config{DefaultTimeout: time.Second})
	f.Fuzz(func(t *testing.T, method, path, header, body string) {
		r := requestOf(method, path)
		if r == nil || method == "" || strings.ContainsAny(method, " \r\n") {
			return // no server would receive it
		}
		for line := range strings.SplitSeq(header, "\r\n") {
			if name, value, ok := strings.Cut(line, ":"); ok {
				r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
			}
		}
		r.Host, r.RemoteAddr = "localhost", "192.0.2.1:1234"
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		// Watches would go on.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		w := serve(g.REST, r.WithContext(ctx))
		switch {
		case w.Code == http.StatusInternalServerError, w.Code < 200, w.Code > 599:
			t.Fatalf("%q %q %q %q: %d %s", method, path, header, body, w.Code, w.Body)
		case w.Code >= 400 && method != http.MethodHead:
			var answer struct{ Error *errorBody }
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Error == nil ||
				answer.Error.Reason == "" {
				t.Fatalf("%q %q: %d without the shape: %q", method, path, w.Code, w.Body)
			}
		}
	})
}
