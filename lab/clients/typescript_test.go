package clients_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedClient compiles a client of openapi-typescript and openapi-fetch under strict rules,
// and runs it.
func TestGeneratedClient(t *testing.T) {
	g := startScripted(t)
	dir := installTools(t)
	if err := os.CopyFS(filepath.Join(dir, "gen"), os.DirFS(filepath.Join(root(t), "gen", "openapi"))); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "node_modules", ".bin")
	run(t, dir, nil, filepath.Join(bin, "openapi-typescript"), "gen/openapi.json", "-o", "openapi.d.ts")
	run(t, dir, nil, filepath.Join(bin, "tsc"), "-p", ".")
	out := run(t, dir, nil, "node", "build/typed.js", g.REST, "typed")
	want(t, out, "inserted 3", "read Ada Ben Cid", "queried 1", "streamed 3",
		"refused 409 DuplicateKey never")
}

// TestTypeScript packs clients/typescript, installs it elsewhere, and runs its tests and its types'
// tests there.
func TestTypeScript(t *testing.T) {
	g := startScripted(t)
	source := filepath.Join(root(t), "clients", "typescript")
	dir := t.TempDir()
	packed := strings.TrimSpace(run(t, dir, nil, "npm", "pack", "--silent", source))
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, nil, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--offline", "./"+packed)
	if err := os.CopyFS(dir, files(filepath.Join(source, "test"))); err != nil {
		t.Fatal(err)
	}
	t.Run("calls", func(t *testing.T) {
		env := []string{"MOORING_REST=" + g.REST, "MOORING_DATABASE=typescript", "MOORING_CHANGES=1"}
		out := run(t, dir, env, "node", "--test", "--test-timeout=60000", "client.test.js")
		want(t, out, "# fail 0", "# skipped 0")
	})
	t.Run("types", func(t *testing.T) {
		run(t, dir, nil, filepath.Join(installTools(t), "node_modules", ".bin", "tsc"), "-p", ".")
	})
}
