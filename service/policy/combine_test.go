package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/policy"
)

// TestCombine checks what rules that permit the same allow together: of each field of a document no
// more than one of them alone.
func TestCombine(t *testing.T) {
	const together = " (together they would permit more than each alone)"
	for _, row := range []struct {
		name, action string
		rules        [][]string // annotations of permits
		want         string
	}{
		{"one", "Find", [][]string{{`@hidden("a")`}}, "1 hidden a"},
		{"none has limits", "Find", [][]string{{}, {}}, "1"},
		{"a wide one", "Find", [][]string{{`@hidden("a")`}, {}}, "2"},
		{
			"filters", "Find",
			[][]string{{`@filter("{'t': 1}")`}, {`@filter("{'u': 2}")`}},
			`1, 2 filter {"$or":[{"t":1},{"u":2}]}`,
		},
		{"the same filter", "Find", [][]string{{`@filter("{'t': 1}")`}, {`@filter("{'t': 1}")`}}, `1 filter {"t":1}`},
		{
			"filters with the same fields", "Find",
			[][]string{{`@filter("{'t': 1}")`, `@hidden("a, b")`}, {`@filter("{'u': 2}")`, `@hidden("b, a")`}},
			`1, 2 filter {"$or":[{"t":1},{"u":2}]} hidden a b`,
		},
		{"hidden fields", "Find", [][]string{{`@hidden("a, c")`}, {`@hidden("c, b")`}}, "1, 2 hidden c"},
		{"hidden fields that differ", "Find", [][]string{{`@hidden("a")`}, {`@hidden("b")`}}, "1, 2 limits"},
		{"a part of a hidden field", "Find", [][]string{{`@hidden("a")`}, {`@hidden("a.b")`}}, "2 hidden a.b"},
		{"parts of a rule's own hidden fields", "Find", [][]string{{`@hidden("a, a.b, c.d, ab, c, a")`}}, "1 hidden a ab c"},
		{
			"parts of hidden fields", "Find",
			[][]string{{`@hidden("a, b.c")`}, {`@hidden("a.b, b")`}},
			"1, 2 hidden b.c a.b",
		},
		{"a filter and hidden fields", "Find", [][]string{{`@filter("{'t': 1}")`}, {`@hidden("a")`}}, "refused 1, 2" + together},
		{
			"different filters, different fields", "Find",
			[][]string{{`@filter("{'t': 1}")`, `@hidden("a")`}, {`@filter("{'t': 2}")`, `@hidden("b")`}},
			"refused 1, 2" + together,
		},
		{
			"a filter within hidden fields", "Find",
			[][]string{{`@filter("{'t': 1}")`, `@hidden("a")`}, {`@hidden("a")`}},
			"2 hidden a",
		},
		{
			"a third that goes with each", "Find",
			[][]string{{`@filter("{'t': 1}")`}, {`@filter("{'u': 1}")`}, {`@filter("{'u': 1}")`, `@hidden("a")`}},
			`1, 2 filter {"$or":[{"t":1},{"u":1}]}`,
		},
		{
			"a third that goes with one", "Find",
			[][]string{{`@filter("{'t': 1}")`}, {`@filter("{'u': 1}")`}, {`@filter("{'v': 1}")`, `@hidden("a")`}},
			"refused 1, 2, 3" + together,
		},
		{"read-only fields do not count for reads", "Find", [][]string{{`@readonly("a")`}, {`@hidden("b")`}}, "1 readonly a"},
		{
			"forced values do not count for reads", "Find",
			[][]string{{`@filter("{'t': 1}")`, `@forced("{'t': 1}")`}, {`@filter("{'t': 2}")`, `@forced("{'t': 2}")`}},
			`1, 2 filter {"$or":[{"t":1},{"t":2}]} forced {"t":1}`,
		},
		{
			"but for writes", "InsertOne",
			[][]string{{`@filter("{'t': 1}")`, `@forced("{'t': 1}")`}, {`@filter("{'t': 2}")`, `@forced("{'t': 2}")`}},
			"refused 1, 2" + together,
		},
		{
			"values that two rules force", "InsertOne",
			[][]string{{`@forced("{'a': 1}")`}, {`@forced("{'a': 2}")`}},
			"refused 1, 2" + together,
		},
		{
			"values of which one rule forces a part", "InsertOne",
			[][]string{{`@forced("{'a': 1, 'b': 2}")`}, {`@forced("{'b': 2}")`}},
			`2 forced {"b":2}`,
		},
		{"read-only fields", "UpdateOne", [][]string{{`@readonly("a, c")`}, {`@readonly("b, c")`}}, "1, 2 readonly c"},
		{"a field hidden or read-only", "UpdateOne", [][]string{{`@hidden("a")`}, {`@readonly("a")`}}, "1, 2 readonly a"},
		{
			"a filter and read-only fields", "UpdateOne",
			[][]string{{`@filter("{'t': 1}")`}, {`@readonly("a")`}},
			"refused 1, 2" + together,
		},
		{"a claim that the caller does not have", "Find", [][]string{{`@filter("{'t': {'$claim': 'x'}}")`}, {`@hidden("a")`}}, "2 hidden a"},
	} {
		var text strings.Builder
		for i, annotations := range row.rules {
			fmt.Fprintf(&text, "@id(\"%d\") %s %s\n", i+1, strings.Join(annotations, " "),
				permitAll)
		}
		d := parse(t, text.String()).
			Decide(&policy.Principal{Name: "key:a"}, row.action,
				policy.Resource{Database: "d", Collection: "c"})
		if got := shown(t, &d); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

// shown returns a decision as text.
func shown(t *testing.T, d *policy.Decision) string {
	t.Helper()
	text := d.Rule
	if !d.Allowed {
		return "refused " + text
	}
	for _, part := range []struct {
		name string
		doc  []byte
	}{{"filter", d.Filter}, {"forced", d.Forced}} {
		if part.doc == nil {
			continue
		}
		json, err := extjson.Append(nil, part.doc, extjson.Relaxed)
		if err != nil {
			t.Fatal(err)
		}
		text += " " + part.name + " " + string(json)
	}
	if len(d.Hidden) > 0 {
		text += " hidden " + strings.Join(d.Hidden, " ")
	}
	if len(d.ReadOnly) > 0 {
		text += " readonly " + strings.Join(d.ReadOnly, " ")
	}
	if d.Restricted() && !strings.Contains(text, " hidden") && d.Filter == nil && d.Forced == nil &&
		len(d.ReadOnly) == 0 {
		text += " limits"
	}
	return text
}

// TestConflictsOnce checks that rules that do not go together are named once, however many actions
// and resources they are about.
func TestConflictsOnce(t *testing.T) {
	p := parse(t, `
		@id("a") @filter("{'t': 1}") permit (principal, action, resource == Collection::"d.c");
		@id("b") @hidden("x") permit (principal, action, resource);`)
	on := []policy.Resource{{Database: "d", Collection: "c"}, {Database: "d", Collection: "c"}}
	found := p.Conflicts(&policy.Principal{Name: "key:a"}, on)
	if len(found) != 1 || found[0].Rules != "a, b" {
		t.Errorf("Conflicts() = %v", found)
	}
}
