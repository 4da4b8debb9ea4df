package recipes_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// TestTenants makes a key for each of two tenants with the lines of docs/policy.md, and checks that
// each sees its own documents.
func TestTenants(t *testing.T) {
	deployment := uri(t)
	dir := t.TempDir()
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	section := between(t, page(t, "policy.md"), "## One tenant per claim", "\n## ")
	block := strings.ReplaceAll(between(t, section, "    mooring key api new --principal acme-app",
		"\n\n"), "\n    ", "\n")
	cmd := exec.CommandContext(t.Context(), "sh", "-ec",
		`mooring() { "$GATEWAY" "$@"; }`+"\n"+block)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GATEWAY="+suite.Gateway(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	g := suite.Start(t, deployment, "--auth-api-keys-file", dir+"/keys",
		"--policy-file", root+"/examples/policies/tenant-isolation.cedar")
	call := func(tenant, verb, body string) string {
		t.Helper()
		text, err := os.ReadFile(dir + "/" + tenant)
		if err != nil {
			t.Fatal(err)
		}
		key := strings.Fields(string(text))[1]
		answer := g.Post(t, gatewaytest.Documents("shop", "orders", verb), body,
			gatewaytest.Header{Name: "Authorization", Value: "Bearer " + key})
		return string(answer.Body)
	}
	call("acme", "insertOne", `{"document": {"_id": 1}}`)
	call("zenith", "insertOne", `{"document": {"_id": 2}}`)
	for tenant, want := range map[string]string{
		"acme":   `{"documents":[{"_id":1,"tenant":"acme"}]}`,
		"zenith": `{"documents":[{"_id":2,"tenant":"zenith"}]}`,
	} {
		if got := call(tenant, "find", `{}`); got != want {
			t.Errorf("%s finds %s, want %s", tenant, got, want)
		}
	}
	got := call("acme", "deleteMany", `{"filter": {}}`)
	if !strings.Contains(got, `"deletedCount":1`) {
		t.Errorf("deleteMany of acme: %s", got)
	}
	if got := call("zenith", "countDocuments", `{}`); got != `{"count":1}` {
		t.Errorf("after it zenith has %s", got)
	}
}
