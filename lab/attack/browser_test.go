package attack_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/lab/internal/browser"
	"github.com/mooringdb/mooring/lab/internal/gateway"
)

// TestPagesOfOtherOrigins checks in Chromium that a page of another origin can neither write, by
// requests that need no preflight, nor read by a name of its own that leads to the gateway, and
// that a page on the gateway's own origin can do both.
func TestPagesOfOtherOrigins(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	g, err := gateway.Start(t.Context(), gateway.Config{
		Binary: suite.Gateway(t), URI: mongo.URI(), Directory: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Stop(slack) })
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>page</title>")
	})
	target, err := url.Parse(g.REST)
	if err != nil {
		t.Fatal(err)
	}
	own := http.NewServeMux() // what serves the page and the API from one origin
	own.Handle("/v1/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
	}})
	own.Handle("/", page)
	evil, good := httptest.NewServer(page), httptest.NewServer(own)
	t.Cleanup(evil.Close)
	t.Cleanup(good.Close)
	b := browser.Start(t, "--host-resolver-rules=MAP *.example 127.0.0.1")
	named := func(name, address string) string {
		return strings.Replace(address, "127.0.0.1", name, 1)
	}

	const collection = "/v1/databases/d/collections/c"
	other := b.Open(named("evil.example", evil.URL))
	for path, body := range map[string]string{
		collection + "/documents:insertOne":  `{"document": {"a": 1}}`,
		collection + "/documents:deleteMany": `{"filter": {}}`,
		collection + ":drop":                 `{}`,
		"/v1/databases/d:runCommand":         `{"command": {"drop": "c"}}`,
	} {
		for _, blob := range []string{`new Blob([%q])`, `new Blob([%q], {type: "text/plain"})`} {
			var outcome string
			other.Evaluate(fmt.Sprintf(`fetch(%q, {method: "POST", mode: "no-cors", body: `+blob+
				`}).then(r => r.type, e => "refused")`,
				g.REST+path, body), &outcome)
		}
	}
	if got := mongo.Commands("insert", "delete", "drop"); len(got) != 0 {
		t.Errorf("a page of another origin has run %v", got)
	}

	rebound := b.Open(named("rebind.example", g.REST) + "/healthz")
	var status int
	rebound.Evaluate(fmt.Sprintf(`fetch(%q).then(r => r.status)`, collection+"/documents"), &status)
	if status != http.StatusMisdirectedRequest || len(mongo.Commands("find")) != 0 {
		t.Errorf("a read by another name: %d, %d finds", status, len(mongo.Commands("find")))
	}

	ours := b.Open(good.URL)
	ours.Evaluate(fmt.Sprintf(`fetch(%q, {method: "POST", headers: {"Content-Type": "application/json"}, body: %q}).then(r => r.status)`,
		collection+"/documents:insertOne", `{"document": {"a": 1}}`), &status)
	if status != http.StatusOK || len(mongo.Commands("insert")) != 1 {
		t.Errorf("a write from the gateway's own origin: %d, %d inserts", status,
			len(mongo.Commands("insert")))
	}
}
