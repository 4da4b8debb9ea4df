package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// rest sends a request of REST and returns the answer. header is name, value, name, value, …
func rest(
	ctx context.Context, t testing.TB, g *gatewaytest.Gateway, method, path, body string,
	header ...string,
) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, g.REST+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// TestResource is the life of one document, as a client of REST sees it.
func TestResource(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	collection := "/v1/databases/" + suite.Database(t) + "/collections/things/documents/"
	var first, second string // etags
	for _, step := range []struct {
		name, method, path, body string
		header                   func() []string
		code                     int
		text                     string
		then                     func(*http.Response)
	}{
		{"nothing there", "GET", "7", "", nil, 404, "DocumentNotFound", nil},
		{"nothing to change", "PATCH", "7", `{"$set":{"a":1}}`, nil, 404, "DocumentNotFound", nil},
		{"nothing to replace", "PUT", "7", `{"a":0}`, func() []string { return []string{"If-Match", "*"} }, 412, "PreconditionFailed", nil},
		{
			"create", "PUT", "7", `{"a":1}`, func() []string { return []string{"If-None-Match", "*"} }, 201, `{"_id":7,"a":1}`,
			func(r *http.Response) { first = r.Header.Get("Etag") },
		},
		{"create again", "PUT", "7", `{"a":2}`, func() []string { return []string{"If-None-Match", "*"} }, 412, "PreconditionFailed", nil},
		{"read", "GET", "7", "", nil, 200, `{"_id":7,"a":1}`, func(r *http.Response) {
			if got := r.Header.Get("Etag"); got != first {
				t.Errorf("etag %s, want %s as at the beginning", got, first)
			}
		}},
		{"still the same", "GET", "7", "", func() []string { return []string{"If-None-Match", first} }, 304, ``, nil},
		{
			"change", "PATCH", "7", `{"$set":{"a":2}}`, func() []string { return []string{"If-Match", first} }, 200, `{"_id":7,"a":2}`,
			func(r *http.Response) { second = r.Header.Get("Etag") },
		},
		{"change with an old etag", "PATCH", "7", `{"$set":{"a":3}}`, func() []string { return []string{"If-Match", first} }, 412, "PreconditionFailed", nil},
		{"delete with an old etag", "DELETE", "7", ``, func() []string { return []string{"If-Match", first} }, 412, "PreconditionFailed", nil},
		{"replace with an old etag", "PUT", "7", `{}`, func() []string { return []string{"If-Match", first} }, 412, "PreconditionFailed", nil},
		{
			"replace", "PUT", "7", `{"_id":7,"b":{"c":[1,"x",null]}}`, func() []string { return []string{"If-Match", second, "Prefer", "return=minimal"} }, 204, ``,
			func(r *http.Response) { second = r.Header.Get("Etag") },
		},
		{"another one", "GET", "7", "", func() []string { return []string{"If-None-Match", first} }, 200, `{"_id":7,"b":{"c":[1,"x",null]}}`, nil},
		{"one that does not match", "GET", `7?filter={"b":1}`, "", nil, 404, "DocumentNotFound", nil},
		{"delete", "DELETE", "7", ``, func() []string { return []string{"If-Match", second} }, 204, ``, nil},
		{"gone", "DELETE", "7", ``, nil, 404, "DocumentNotFound", nil},
		{"replace or create", "PUT", "%22a%2Fb%22", `{"n":1}`, nil, 201, `{"_id":"a/b","n":1}`, nil},
		{"and again", "PUT", "~YS9i?idType=string", `{"n":2}`, nil, 200, `{"_id":"a/b","n":2}`, nil},
		{"a pipeline", "PATCH", "~ImEvYiI", `[{"$set":{"n":{"$add":["$n",40]}}}]`, nil, 200, `{"_id":"a/b","n":42}`, nil},
		{"a document as the _id", "PUT", "%7B%22x%22%3A1%7D", `{}`, nil, 201, `{"_id":{"x":1}}`, nil},
		{"and no condition", "GET", "%7B%22$gt%22%3A%22%22%7D", ``, nil, 404, `DocumentNotFound`, nil},
	} {
		var header []string
		if step.header != nil {
			header = step.header()
		}
		if strings.Contains(step.body, "$add") && suite.IsEmbedded() {
			continue // it has no expressions
		}
		resp, text := rest(t.Context(), t, g, step.method, collection+step.path, step.body,
			header...)
		if resp.StatusCode != step.code || !strings.Contains(text, step.text) {
			t.Fatalf("%s: %d %s, want %d %s", step.name, resp.StatusCode, text, step.code,
				step.text)
		}
		if step.then != nil {
			step.then(resp)
		}
	}
}

// TestResourceLosesNoUpdate: clients that each read, add one and write with If-Match lose nothing.
func TestResourceLosesNoUpdate(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	path := "/v1/databases/" + suite.Database(t) + "/collections/things/documents/%22n%22"
	if resp, text := rest(t.Context(), t, g, "PUT", path, `{"n":0}`); resp.StatusCode != 201 {
		t.Fatal(resp.StatusCode, text)
	}
	const clients, each = 4, 10
	var failed atomic.Int64
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for done := 0; done < each; {
				read, text := rest(t.Context(), t, g, "GET", path, "")
				var n int
				if _, err := fmt.Sscanf(text, `{"_id":"n","n":%d}`, &n); err != nil {
					t.Errorf("%d %s: %v", read.StatusCode, text, err)
					return
				}
				resp, text := rest(t.Context(), t, g, "PUT", path, fmt.Sprintf(`{"n":%d}`, n+1),
					"If-Match", read.Header.Get("Etag"))
				switch resp.StatusCode {
				case http.StatusOK:
					done++
				case http.StatusPreconditionFailed:
					failed.Add(1)
				default:
					t.Errorf("%d %s", resp.StatusCode, text)
					return
				}
			}
		})
	}
	group.Wait()
	_, text := rest(t.Context(), t, g, "GET", path, "")
	if want := fmt.Sprintf(`{"_id":"n","n":%d}`, clients*each); text != want {
		t.Errorf("%s, want %s; %d writes were refused", text, want, failed.Load())
	}
	t.Logf("%d writes, and %d that were refused", clients*each, failed.Load())
}
