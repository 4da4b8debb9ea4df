package servicetest_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/servicetest"
)

// TestURLConditionsUnderPolicy has finds in a URL under a policy with a filter and a hidden field:
// what reaches the server, of the page and of its count, is what a find in JSON becomes.
func TestURLConditionsUnderPolicy(t *testing.T) {
	rules, err := policy.Parse([]byte(
		`@filter("{'tenant': 'a'}") @hidden("salary") permit (principal, action, resource);`))
	if err != nil {
		t.Fatal(err)
	}
	server := fakemongo.NewServer(t, nil)
	g := servicetest.Start(t, server, servicetest.Config{
		Policy: policy.NewEnforcer(policy.Config{Policy: rules}),
	})
	server.SetDocuments("d.c", servicetest.Docs(3, 10)...)
	const path = "/v1/databases/d/collections/c/documents"
	call := func(method, url, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, url, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		g.REST.ServeHTTP(w, r)
		return w
	}
	find := func(method, url, body string) string {
		t.Helper()
		before := len(server.Commands("find"))
		w := call(method, url, body)
		commands := server.Commands("find")[before:]
		if w.Code != 200 || len(commands) != 1 {
			t.Fatalf("%s: %d %s, %d finds", url, w.Code, w.Body, len(commands))
		}
		return parts(t, commands[0].Body, "filter", "sort", "projection", "limit")
	}
	inURL := find("GET", path+"?status=in.(a,b)&total=gt.10&order=-total&select=_id,total&limit=2",
		"")
	inJSON := find("POST", path+":find", `{"filter": {"status": {"$in": ["a", "b"]},
		"total": {"$gt": 10}}, "sort": {"total": -1}, "projection": {"_id": 1, "total": 1}, "limit": 2}`)
	if inURL != inJSON || !strings.Contains(inURL, `"tenant"`) {
		t.Errorf("the finds differ, or lack the policy's filter:\n%s\n%s", inURL, inJSON)
	}
	for _, query := range []string{
		"salary=gt.5", "salary=exists.true", "order=-salary", "salary.a=1",
	} {
		if w := call("GET", path+"?"+query, ""); w.Code != 403 {
			t.Errorf("%s: %d %s, want 403: the field is hidden", query, w.Code, w.Body)
		}
	}
	_ = call("GET", path+"?status=a&count=exact", "") // the fake server counts nothing
	counts := server.Commands("aggregate")
	if len(counts) != 1 {
		t.Fatalf("%d counts, want 1", len(counts))
	}
	if text := parts(t, counts[0].Body, "pipeline"); !strings.Contains(text, `"tenant"`) ||
		!strings.Contains(text, `"status"`) {
		t.Errorf("the count is %s", text)
	}
}

// parts writes the fields of a command.
func parts(t *testing.T, command bson.Raw, names ...string) string {
	t.Helper()
	b := bson.NewBuilder(nil)
	for _, name := range names {
		if v, ok := command.Lookup(name); ok {
			b.Value(name, v)
		}
	}
	text, err := extjson.Append(nil, b.Finish(), extjson.Relaxed)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
