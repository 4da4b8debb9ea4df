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
	failing := write("failing.yaml", "policy: p.cedar\ntests:\n- {name: x, call: DocumentService/Find, expect: deny}\n")
	broken := write("broken.yaml", "policy: p.cedar\ntsets: []\n")
	for _, row := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"tenants", []string{"policy", "test", policies + "tenant-isolation.yaml"}, 0, "ok: "},
		{"a row that fails", []string{"policy", "test", failing}, 1, "FAIL x: it is allowed"},
		{"a broken table", []string{"policy", "test", broken}, 1, "tsets"},
		{"no file", []string{"policy", "test"}, 2, "policy test FILE"},
		{"two files", []string{"policy", "test", "a", "b"}, 2, "policy test FILE"},
		{"explain a tenant", []string{"policy", "explain", policies + "tenant-isolation.cedar", "--principal", "jwt:ann", "--claims", `{"tenant":"acme"}`, "--action", "Find", "--on", "shop.orders"}, 0, "allowed by tenant\nfilter    {\"tenant\":\"acme\"}"},
		{"no commands", []string{"policy", "explain", policies + "tenant-isolation.cedar", "--claims", `{"tenant":"acme"}`, "--action", "RunCommand", "--on", "shop"}, 0, "refused by no rule\nno commands"},
		{"a reader", []string{"policy", "explain", policies + "read-only.cedar", "--principal", "key:ann", "--groups", "key:readers", "--action", "InsertOne", "--on", "shop.orders"}, 0, "refused by no rule"},
		{"claims", []string{"policy", "explain", policies + "read-only.cedar", "--claims", "x", "--action", "Find"}, 2, "--claims"},
		{"action", []string{"policy", "explain", policies + "read-only.cedar", "--action", "Look"}, 2, "--action"},
		{"no policy", []string{"policy", "explain", filepath.Join(dir, "none"), "--action", "Find"}, 1, "none"},
		{"a broken policy", []string{"policy", "explain", broken, "--action", "Find"}, 1, "not Cedar"},
	} {
		code, stdout, stderr := run(nil, row.args...)
		if code != row.code || !strings.Contains(stdout+stderr, row.want) {
			t.Errorf("%s: exit %d, %s%s, want %d, %s", row.name, code, stdout, stderr, row.code, row.want)
		}
	}
}
