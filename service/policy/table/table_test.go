package table_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/policy/table"
)

// TestRun checks that each kind of a row that does not hold fails.
func TestRun(t *testing.T) {
	const policy = `@id("mine") @hidden("salary")
		permit (principal == Principal::"key:c", action, resource == Collection::"hr.people");
		@id("by default") forbid (principal, action, resource == Collection::"hr.secrets");`
	for row, want := range map[string]string{
		`expect: allow`:                                "",
		`expect: allow, rule: mine`:                    "",
		`expect: allow, rule: other`:                   "test 1: mine decides, not other",
		`expect: allow, principal: key:d`:              "test 1: no permit rule allows it: ",
		`expect: deny, principal: key:d`:               "",
		`expect: deny, name: n`:                        "n: the request is allowed",
		`expect: perhaps`:                              `expect is "perhaps"; it must be allow or deny`,
		`expect: deny, principal: "", because: no`:     "",
		`expect: deny, principal: "", because: never`:  "the client gets this",
		`expect: allow, call: DocumentService/Finds`:   "there is no call",
		`expect: allow, call: Documents/Find`:          "there is no service",
		`expect: allow, request: {filters: {}}`:        `the request has no field "filters"`,
		`expect: allow, request: {limit: 1, limit: 2}`: `the request has the field "limit" twice`,
		`expect: allow, request: [1]`:                  "the request is not a mapping",

		`expect: allow, becomes: {projection: {salary: 0}}`: "",
		`expect: allow, becomes: {projection: {other: 0}}`: `projection becomes {"salary":0}, ` +
			`not {"other":0}`,
		`expect: allow, request: {database: [1]}`:                                  "database: must be a single value",
		`expect: allow, request: {indexes: 1}, call: CatalogService/CreateIndexes`: "indexes: must be a list",
	} {
		dir := t.TempDir()
		text := "policy: p.cedar\ntests:\n  - {" + row
		for _, field := range []string{
			"principal: key:c", "call: DocumentService/Find",
			"request: {database: hr, collection: people}",
		} {
			if name, _, _ := strings.Cut(field, ":"); !strings.Contains(row, name+":") {
				text += ", " + field
			}
		}
		path := filepath.Join(dir, "t.yaml")
		write(t, path, text+"}\n")
		write(t, filepath.Join(dir, "p.cedar"), policy)
		rows, p, err := table.Read(path)
		if err != nil {
			t.Fatalf("%s: %v", row, err)
		}
		got := strings.Trim(fmt.Sprint(rows.Run(p)), "[]")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", row, got, want)
		}
	}
}

// TestConflicts checks that a table fails if rules do not go together for one of its principals,
// also if no row asks for what they refuse.
func TestConflicts(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p.cedar"), `
		@id("own tenant") @filter("{'tenant': {'$claim': 'tenant'}}")
		permit (principal, action in Action::"read", resource == Collection::"shop.staff");
		@id("no salary") @hidden("salary")
		permit (principal in Group::"key:hr", action in Action::"read", resource in Database::"shop");`)
	row := "\n  - {principal: key:a, groups: [%s], claims: {%s}, call: DocumentService/Find, " +
		"request: {database: shop, collection: orders}, expect: %s}"
	for _, one := range []struct{ rows, want string }{
		{fmt.Sprintf(row, "key:hr", "", "allow"), ""},
		{fmt.Sprintf(row, "", "tenant: x", "deny"), ""},
		{
			fmt.Sprintf(row, "key:hr", "tenant: x", "allow"),
			"key:a, groups [key:hr]: Aggregate on shop.staff is refused by own tenant, no salary: give them",
		},
	} {
		path := filepath.Join(dir, "t.yaml")
		write(t, path, "policy: p.cedar\ntests:"+one.rows)
		rows, p, err := table.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Trim(fmt.Sprint(rows.Run(p)), "[]")
		if (got == "") != (one.want == "") || !strings.HasPrefix(got, one.want) ||
			strings.Count(got, "is refused by") > 1 {
			t.Errorf("%s: %q, want %q, once", one.rows, got, one.want)
		}
	}
}

// TestRead checks the errors of a table's file and its policy's.
func TestRead(t *testing.T) {
	for name, row := range map[string]struct{ table, policy, want string }{
		"an unknown field": {"policy: p.cedar\ntest: []", "", "field test not found"},
		"no tests":         {"policy: p.cedar", "permit (principal, action, resource);", "the table has no tests"},
		"no YAML":          {"{", "", "t.yaml"},
		"no policy":        {"policy: q.cedar\ntests: [{}]", "", "q.cedar"},
		"no Cedar":         {"policy: p.cedar\ntests: [{}]", "permit", "p.cedar"},
		"a mistake": {
			"policy: p.cedar\ntests: [{}]", "\nforbid (principal, action == Action::\"write\", resource);",
			"p.cedar: line 2: ",
		},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "t.yaml")
		write(t, path, row.table)
		write(t, filepath.Join(dir, "p.cedar"), row.policy)
		if _, _, err := table.Read(path); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	if _, _, err := table.Read(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}

// TestChart checks that the policies in the values that the chart is tested with have no mistake.
func TestChart(t *testing.T) {
	files, err := filepath.Glob("../../../deploy/helm/mooring/ci/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policies := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var values struct {
			Policy string `yaml:"policy"`
		}
		if err := yaml.Unmarshal(text, &values); err != nil {
			t.Fatal(err)
		}
		if values.Policy == "" {
			continue
		}
		policies++
		if _, err := policy.Parse([]byte(values.Policy)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if policies == 0 {
		t.Error("no values of the chart have a policy")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
