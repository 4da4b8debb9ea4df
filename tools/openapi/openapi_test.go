package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/gen/openapi"
)

// published returns the document that clients get.
func published(t *testing.T) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(openapi.JSON, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// operations calls f with each operation of the document.
func operations(d document, f func(verb, path string, op *operation)) {
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for verb, op := range d.Paths[path] {
			f(verb, path, op)
		}
	}
}

// TestOperations checks what each operation needs.
func TestOperations(t *testing.T) {
	readable := regexp.MustCompile(`^[a-z][a-zA-Z]+$`)
	ids := map[string]string{}
	repeats := map[string]string{
		"findByQuery": "read", "aggregate": "never", "putDocument": "key", "nextPage": "token",
	}
	operations(published(t), func(verb, path string, op *operation) {
		if other, taken := ids[op.OperationID]; taken || !readable.MatchString(op.OperationID) {
			t.Errorf("%s %s has the id %q, as %q", verb, path, op.OperationID, other)
		}
		ids[op.OperationID] = path
		if op.Summary == "" || strings.Contains(op.Summary, "\n") {
			t.Errorf("%s has the summary %q", op.OperationID, op.Summary)
		}
		for _, code := range []string{"400", "401", "403", "404", "429", "503", "default"} {
			if op.Responses[code] == nil {
				t.Errorf("%s has no response %s", op.OperationID, code)
			}
		}
		if repeat := repeats[op.OperationID]; repeat != "" && op.Repeat != repeat ||
			!slices.Contains([]string{"never", "read", "key", "token"}, op.Repeat) {
			t.Errorf("%s has the repeat %q", op.OperationID, op.Repeat)
		}
		if body := media(op.RequestBody, "application/json"); body != nil {
			schema, _ := body["schema"].(object)
			if items, ok := schema["items"].(object); ok {
				schema = items // an array has no name; what is in it does
			}
			if schema["$ref"] == nil || body["example"] == nil {
				t.Errorf("%s: the body has no named schema, or no example", op.OperationID)
			}
		}
		answer, _ := op.Responses["200"].(object)
		if answer != nil && !hasExample(answer) {
			t.Errorf("%s: no response has an example", op.OperationID)
		}
	})
	for id, path := range map[string]string{
		"findOne":      "/v1/databases/{database}/collections/{collection}/documents:findOne",
		"startSession": "/v1/sessions:start", "watchTicket": "/v1/changeStreams/{ticket}",
	} {
		if ids[id] != path {
			t.Errorf("%s is %q, want %q", id, ids[id], path)
		}
	}
}

func hasExample(of object) bool {
	content, _ := of["content"].(object)
	for _, m := range content {
		if m, _ := m.(object); m["example"] != nil {
			return true
		}
	}
	return false
}

// TestWords checks that no text speaks of the other protocol, or in its words.
func TestWords(t *testing.T) {
	foreign := regexp.MustCompile(`gRPC|REST|\bproto\b|[A-Z]{3,}_[A-Z]{3,}|ABORTED|UNAVAILABLE|` +
		`[a-z]Service\b|this message|\b[a-z]+_[a-z]+`)
	walk(t, "", published(t), func(where string, of object) {
		for _, key := range []string{"description", "summary"} {
			text, _ := of[key].(string)
			text = strings.ReplaceAll(text, "such as `ALREADY_EXISTS`", "")
			if found := foreign.FindString(text); found != "" {
				t.Errorf("%s says %q: %s", where, found, text)
			}
		}
	})
}

// TestReferences checks that each reference leads somewhere, and that each component is used.
func TestReferences(t *testing.T) {
	d := published(t)
	used := map[string]bool{}
	walk(t, "", d, func(where string, of object) {
		if ref, ok := of["$ref"].(string); ok {
			used[ref] = true
		}
	})
	for kind, all := range d.Components {
		if kind == "securitySchemes" {
			continue
		}
		names, _ := all.(object)
		for name := range names {
			ref := "#/components/" + kind + "/" + name
			if !used[ref] {
				t.Errorf("nothing refers to %s", ref)
			}
			delete(used, ref)
		}
	}
	for ref := range used {
		t.Errorf("%s leads nowhere", ref)
	}
}

// TestNames checks that no two components have one name, in any case: generators make types of
// all kinds of components.
func TestNames(t *testing.T) {
	kinds := map[string]string{}
	for kind, all := range published(t).Components {
		names, _ := all.(object)
		for name := range names {
			word := strings.ToLower(strings.ReplaceAll(name, "-", ""))
			if other, taken := kinds[word]; taken {
				t.Errorf("%s is the name of one of the %s and of the %s", name, kind, other)
			}
			kinds[word] = kind
		}
	}
}

// TestOrder checks that the groups of operations are in the order of their tags, and documents
// before the calls of the catalog that drop them.
func TestOrder(t *testing.T) {
	d := published(t)
	var tags []string
	for _, tag := range d.Tags {
		tags = append(tags, fmt.Sprint(tag["name"]))
	}
	if !slices.Equal(tags, inOrder) {
		t.Errorf("the tags are %q, want %q", tags, inOrder)
	}
	at := func(path string) int { return strings.Index(string(openapi.JSON), "  \""+path+"\": {") }
	last := ""
	for _, path := range slices.SortedFunc(maps.Keys(d.Paths), func(a, b string) int {
		return at(a) - at(b)
	}) {
		if tag := d.Paths.tag(path); compareTags(last, tag) > 0 && last != "" {
			t.Errorf("%s of %s comes after %s", path, tag, last)
		} else {
			last = tag
		}
	}
}

// walk calls f with each object of a value.
func walk(t *testing.T, where string, value any, f func(where string, of object)) {
	t.Helper()
	switch v := value.(type) {
	case document:
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var of object
		if err := json.Unmarshal(b, &of); err != nil {
			t.Fatal(err)
		}
		walk(t, where, of, f)
	case object:
		f(where, v)
		for key, in := range v {
			walk(t, where+"/"+key, in, f)
		}
	case []any:
		for i, in := range v {
			walk(t, fmt.Sprintf("%s/%d", where, i), in, f)
		}
	}
}

func TestWording(t *testing.T) {
	s := &schemas{ids: map[string]string{"CursorService.NextPage": "nextPage"}}
	for _, c := range []struct{ in, want string }{
		{"The order. On REST also as pairs: `[[1]]`.", "The order. Also as pairs: `[[1]]`."},
		{"A token. On gRPC it is bytes. It ends.", "A token. It ends."},
		{"On gRPC it is bytes.\n\nOn REST, it is text.", "It is text."},
		{
			"The document; unset (on REST: null) when none matched.",
			"The document; null when none matched.",
		},
		{
			"It is OK (REST: 207) then, else FAILED_PRECONDITION (REST: 410).",
			"It is 207 then, else 410.",
		},
		{
			"CursorService.NextPage is NOT_FOUND without snapshot_time and `_id`.",
			"nextPage is 404 without snapshotTime and `_id`.",
		},
	} {
		if got := s.wording(c.in); got != c.want {
			t.Errorf("wording(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestReadStatuses(t *testing.T) {
	if _, err := readStatuses("# Nothing"); err == nil {
		t.Error("a text without tables has statuses")
	}
	rows := table("<!-- reasons: x -->\n\n| a | b |\n|---|---|\n| `R` | 1 |\n\n| x | y |\n",
		"<!-- reasons:")
	if len(rows) != 1 || rows[0][0] != "`R`" || rows[0][1] != "1" {
		t.Errorf("the table's rows are %q", rows)
	}
}
