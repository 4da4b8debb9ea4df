package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/registry"
)

// TestExamples runs the examples as a user would, where what they need is installed.
func TestExamples(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	env := append(os.Environ(), "MOORING_GRPC="+g.GRPC, "MOORING_REST="+g.REST,
		"MOORING_DATABASE="+suite.Database(t))
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, dir, name string, args ...string) (string, error) {
		t.Helper()
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("%s is not installed", name)
		}
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		t.Logf("%s %s\n%s", name, strings.Join(args, " "), out)
		return string(out), err
	}
	want := func(t *testing.T, out string, err error, parts ...string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("the output does not say %q", part)
			}
		}
	}

	t.Run("python", func(t *testing.T) {
		out, err := run(t, filepath.Join(root, "examples", "python"), "python3", "main.py")
		want(t, out, err, "inserted 2500 documents", "read 2500 documents in ",
			"streamed 2500 documents", "409 DuplicateKey")
	})
	t.Run("curl", func(t *testing.T) {
		out, err := run(t, filepath.Join(root, "examples", "curl"), "sh", "demo.sh")
		want(t, out, err, `"fender"`, `{"end"`, `{"$numberLong":"9007199254740993"}`)
	})
	t.Run("node", func(t *testing.T) {
		dir := copyNodeExample(t, root)
		registry.Fetch(t, dir, nil, "npm", "ci", "--ignore-scripts", "--no-progress")
		out, err := run(t, dir, "node", "main.js")
		want(t, out, err, "inserted 2500 documents", "read 2500 documents in ",
			"streamed 2500 documents", "ALREADY_EXISTS")
	})
}

// copyNodeExample copies the example, so that nothing is installed in the checkout, beside links
// to the proto files.
func copyNodeExample(t *testing.T, root string) string {
	t.Helper()
	base := t.TempDir()
	for _, link := range []string{"proto", "third_party"} {
		if err := os.Symlink(filepath.Join(root, link), filepath.Join(base, link)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	dir := filepath.Join(base, "examples", "node")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"main.js", "package.json", "package-lock.json", ".npmrc"} {
		b, err := os.ReadFile(filepath.Join(root, "examples", "node", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
