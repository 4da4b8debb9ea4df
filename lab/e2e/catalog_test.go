package e2e

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// TestCatalog creates, lists, changes and drops collections and indexes over REST.
func TestCatalog(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	base := "/v1/databases/" + db
	ok := func(verb, path, body string) gatewaytest.Response {
		t.Helper()
		got := g.Do(t, verb, base+path, body,
			gatewaytest.Header{Name: "Content-Type", Value: "application/json"})
		if got.Status != 200 {
			t.Errorf("%s %s: %d %s", verb, path, got.Status, got.Body)
		}
		return got
	}
	names := func(path string) map[string]bool {
		t.Helper()
		var page struct {
			Documents []struct {
				Name string `json:"name"`
			} `json:"documents"`
		}
		if err := json.Unmarshal(ok("GET", path, "").Body, &page); err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, d := range page.Documents {
			found[d.Name] = true
		}
		return found
	}

	ok("POST", "/collections/things:create", `{}`)
	// A second create of the same collection succeeds on some servers.
	ok("POST", "/collections/taken:create", `{}`)
	got := g.Post(t, base+"/collections/things:rename", `{"to": "taken"}`)
	if got.Status != 409 || !bytes.Contains(got.Body, []byte("NamespaceExists")) {
		t.Errorf("a rename to a name that is taken: %d %s, want 409 NamespaceExists", got.Status,
			got.Body)
	}
	if found := names("/collections"); !found["things"] {
		t.Errorf("the collections are %v, want things in them", found)
	}
	g.Post(t, gatewaytest.Documents(db, "things", "insertOne"), `{"document": {"_id": 1, "a": 1}}`)

	got = ok("POST", "/collections/things/indexes:create",
		`{"indexes": [{"key": {"a": 1}}, {"key": [["b", 1], ["2", -1]], "name": "n"}]}`)
	wantJSON(t, got.Body, `{"names": ["a_1", "n"]}`)
	if found := names("/collections/things/indexes"); !found["_id_"] || !found["a_1"] ||
		!found["n"] {
		t.Errorf("the indexes are %v", found)
	}
	ok("POST", "/collections/things/indexes:drop", `{"index": "a_1"}`)
	ok("POST", "/collections/things/indexes:drop", `{"index": [["b", 1], ["2", -1]]}`)
	if found := names("/collections/things/indexes"); found["a_1"] || found["n"] {
		t.Errorf("the indexes are %v after they were dropped", found)
	}

	ok("POST", "/collections/things:rename", `{"to": "others"}`)
	if found := names("/collections?nameOnly=true"); found["things"] || !found["others"] {
		t.Errorf("the collections are %v, want others", found)
	}
	ok("POST", "/collections/others:drop", `{}`)
	ok("POST", "/collections/others:drop", `{}`) // what is not there
	if found := names("/collections"); found["others"] {
		t.Errorf("the collections are %v after others was dropped", found)
	}
	ok("POST", ":drop", `{}`)
	all := g.Do(t, "GET", "/v1/databases?nameOnly=true", "")
	if all.Status != 200 || bytes.Contains(all.Body, []byte(`"`+db+`"`)) {
		t.Errorf("%d: the databases are %s after %s was dropped", all.Status, all.Body, db)
	}
}
