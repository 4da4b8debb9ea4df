package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const policies = "../../../../examples/policies/"

func TestPolicy(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("p.cedar", `@id("all") permit (principal, action, resource);`)
	failing := write("failing.yaml",
		"policy: p.cedar\ntests:\n- {name: x, call: DocumentService/Find, expect: deny}\n")
	one := write("one.yaml",
		"policy: p.cedar\ntests:\n- {name: x, call: DocumentService/Find, expect: allow}\n")
	alone := write("alone.yaml", "tests:\n- {name: x, call: DocumentService/Find, expect: allow}\n")
	unnamed := write("policy.txt", `permit (principal in Group::"key:a", action, resource);`)
	unruled := write("unruled.yaml",
		"policy: policy.txt\ntests:\n- {name: x, call: DocumentService/Find, expect: allow}\n")
	broken := write("broken.yaml", "policy: p.cedar\ntsets: []\n")
	for _, row := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"tenants", []string{"policy", "test", policies + "tenant-isolation.yaml"}, 0, "ok: "},
		{"a row that fails", []string{"policy", "test", failing}, 1, "FAIL x: the request is allowed"},
		{"how many fail", []string{"policy", "test", failing}, 1, "mooring: 1 of 1 test failed\n"},
		{"a broken table", []string{"policy", "test", broken}, 1, "tsets"},
		{"one test", []string{"policy", "test", one}, 0, "ok: 1 test\n"},
		{"a policy instead of a table", []string{"policy", "test", policies + "read-only.cedar"}, 2, "read-only.cedar is a policy. FILE is a table of requests, in YAML, which names the policy by its key policy"},
		{"a policy with another ending", []string{"policy", "test", unnamed}, 2, "is a policy. FILE is a table"},
		{"a table without a policy", []string{"policy", "test", alone}, 1, "the key policy is missing: write policy: FILE"},
		{"a row that no rule allows", []string{"policy", "test", unruled}, 1, "FAIL x: no permit rule allows it"},
		{"no file", []string{"policy", "test"}, 2, "policy test FILE"},
		{"two files", []string{"policy", "test", "a", "b"}, 2, "policy test FILE"},
		{"explain a tenant", []string{"policy", "explain", policies + "tenant-isolation.cedar", "--principal", "jwt:ann", "--claims", `{"tenant":"acme"}`, "--action", "Find", "--on", "shop.orders"}, 0, "allowed by tenant\nfilter    {\"tenant\":\"acme\"}"},
		{"no commands", []string{"policy", "explain", policies + "tenant-isolation.cedar", "--claims", `{"tenant":"acme"}`, "--action", "RunCommand", "--on", "shop"}, 0, "refused: no permit rule allows it\ntenant would allow it if action in [Action::\"read\", Action::\"write\"]\noperators would allow it if principal in Group::\"key:operators\"\nno commands"},
		{"a reader", []string{"policy", "explain", policies + "read-only.cedar", "--principal", "key:ann", "--groups", "key:readers", "--action", "InsertOne", "--on", "shop.orders"}, 0, "refused: no permit rule allows it\nreaders would allow it if action in [Action::\"read\", Action::\"describe\", Action::\"watch\"]\noperators would allow it if principal in Group::\"key:operators\"\nthis rule would allow it: permit (principal == Principal::\"key:ann\", action == Action::\"InsertOne\", resource == Collection::\"shop.orders\");\n"},
		{"names in Cedar", []string{"policy", "explain", policies + "read-only.cedar", "--principal", `Principal::"key:ann"`, "--groups", `Group::"key:readers"`, "--action", "Find", "--on", "shop.orders"}, 0, "allowed by readers"},
		{"several groups", []string{"policy", "explain", policies + "read-only.cedar", "--principal", "key:ann", "--groups", "key:a,key:readers", "--groups", "key:b", "--action", "Find", "--on", "shop.orders"}, 0, "allowed by readers"},
		{"a group without a kind", []string{"policy", "explain", policies + "read-only.cedar", "--groups", "readers", "--action", "Find"}, 2, "--groups readers does not begin with the kind of the credential: write key:readers (of an API key), "},
		{"a principal without a kind", []string{"policy", "explain", policies + "read-only.cedar", "--principal", "ann", "--action", "Find"}, 2, "--principal ann does not begin with the kind of the credential: write key:ann"},
		{"groups that are not a list", []string{"policy", "explain", policies + "read-only.cedar", "--groups", `a"b`, "--action", "Find"}, 2, "write names with commas between them"},
		{"claims", []string{"policy", "explain", policies + "read-only.cedar", "--claims", "x", "--action", "Find"}, 2, "--claims"},
		{"action", []string{"policy", "explain", policies + "read-only.cedar", "--action", "Look"}, 2, `--action: there is no action "Look": docs/policy.md lists them`},
		{"an action in lower case", []string{"policy", "explain", policies + "read-only.cedar", "--action", "findone"}, 2, "did you mean FindOne?"},
		{"no action", []string{"policy", "explain", policies + "read-only.cedar"}, 2, "--action is missing"},
		{"no policy", []string{"policy", "explain", filepath.Join(dir, "none"), "--action", "Find"}, 1, "none"},
		{"a broken policy", []string{"policy", "explain", broken, "--action", "Find"}, 1, "not valid Cedar"},
	} {
		code, stdout, stderr := run(nil, row.args...)
		if code != row.code || !strings.Contains(stdout+stderr, row.want) {
			t.Errorf("%s: exit %d, %s%s, want %d, %s", row.name, code, stdout, stderr, row.code,
				row.want)
		}
	}
}
