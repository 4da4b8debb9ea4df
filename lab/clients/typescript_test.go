package clients_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/gen/openapi"
	"github.com/mooringdb/mooring/lab/internal/browser"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/registry"
)

// TestGeneratedClient compiles a client of openapi-typescript and openapi-fetch under strict rules,
// and runs it.
func TestGeneratedClient(t *testing.T) {
	g := startScripted(t)
	dir := withDescription(t, installTools(t))
	bin := filepath.Join(dir, "node_modules", ".bin")
	run(t, dir, nil, filepath.Join(bin, "openapi-typescript"), "openapi.json", "-o", "openapi.d.ts")
	run(t, dir, nil, filepath.Join(bin, "tsc"), "-p", ".")
	out := run(t, dir, nil, "node", "build/typed.js", g.REST, "typed")
	want(t, out, "inserted 3", "read Ada Ben Cid", "queried 1", "streamed 3",
		"refused 409 DuplicateKey never")
}

// TestHeyAPI compiles a client of @hey-api/openapi-ts under strict rules, and runs it.
func TestHeyAPI(t *testing.T) {
	g := startScripted(t)
	dir := withDescription(t, installTools(t))
	bin := filepath.Join(dir, "node_modules", ".bin")
	run(t, dir, nil, filepath.Join(bin, "openapi-ts"), "-i", "openapi.json", "-o", "hey",
		"-c", "@hey-api/client-fetch", "--no-log-file")
	run(t, dir, nil, filepath.Join(bin, "tsc"), "-p", "tsconfig.hey.json")
	out := run(t, dir, nil, "node", "build/hey.js", g.REST, "hey")
	want(t, out, "inserted 1", "read Ada", "refused 409 DuplicateKey never")
}

// TestOapiCodegen compiles a Go client of oapi-codegen, and runs it.
func TestOapiCodegen(t *testing.T) {
	g := startScripted(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root(t), "tools", "oapi"))); err != nil {
		t.Fatal(err)
	}
	registry.Fetch(t, dir, nil, "go", "mod", "download")
	run(t, withDescription(t, dir), nil, "go", "tool", "oapi-codegen", "-config", "oapi.yaml",
		"openapi.json")
	run(t, dir, nil, "go", "build", "-o", "oapi", ".")
	out := run(t, dir, nil, filepath.Join(dir, "oapi"), g.REST, "oapi")
	want(t, out, "inserted 1", "read Ada", "refused 409 DuplicateKey never")
}

// withDescription writes openapi.json into a directory, which it returns.
func withDescription(t *testing.T, dir string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), openapi.JSON, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTypeScript packs clients/typescript and installs it elsewhere. There it runs the tests in
// each runtime on each server, and the tests of the types.
func TestTypeScript(t *testing.T) {
	source := filepath.Join(root(t), "clients", "typescript")
	dir := t.TempDir()
	packed := strings.TrimSpace(run(t, dir, nil, "npm", "pack", "--silent", source))
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, nil, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--offline",
		"./"+packed)
	if err := os.CopyFS(dir, files(filepath.Join(source, "test"))); err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(http.FileServerFS(os.DirFS(dir)))
	t.Cleanup(site.Close)
	onEachServer(t, func(t *testing.T, on server) {
		t.Run("node", func(t *testing.T) {
			out := run(t, dir, on.env(), "node", "--test", "--test-timeout=60000", "client.test.js")
			want(t, out, "ok 1 - reads and writes", "# fail 0",
				skipped(on, "# skipped 1", "# skipped 4"))
		})
		t.Run("deno", func(t *testing.T) {
			deno := installDeno(t)
			env := on.env("NO_COLOR=1", "DENO_NO_UPDATE_CHECK=1", "DENO_DIR="+t.TempDir())
			out := run(t, dir, env, deno, "test", "--allow-net=127.0.0.1", "--allow-env",
				"--allow-read", "--no-check",
				"--node-modules-dir=manual", "client.test.js")
			want(t, out, "reads and writes ... ok", "| 0 failed",
				skipped(on, "| 1 ignored", "| 4 ignored"))
		})
		t.Run("chromium", func(t *testing.T) { inBrowser(t, on, site.URL) })
	}, "--rest-cors-origins", site.URL)
	t.Run("types", func(t *testing.T) {
		run(t, dir, nil, filepath.Join(installTools(t), "node_modules", ".bin", "tsc"), "-p", ".")
	})
}

// skipped returns what a runtime without EventSource says of the tests that it skips.
func skipped(on server, replicaSet, others string) string {
	if on.replicaSet {
		return replicaSet
	}
	return others
}

// inBrowser runs the tests of the TypeScript client in a page of this origin.
func inBrowser(t *testing.T, on server, origin string) {
	query := url.Values{"url": {on.REST}, "database": {on.database}}
	if on.replicaSet {
		query.Set("replicaSet", "1")
	}
	page := browser.Start(t).Open(origin + "/page.html?" + query.Encode())
	var report []string
	gatewaytest.Eventually(t, 5*time.Minute, func() error {
		if page.Evaluate(`globalThis.report ?? []`, &report); len(report) == 0 {
			return fmt.Errorf("the tests have not ended; the console has %q", page.Errors())
		}
		return nil
	})
	missing := 0
	for _, line := range report {
		if strings.HasPrefix(line, "skip ") {
			missing++
		} else if !strings.HasPrefix(line, "ok ") {
			t.Error(line)
		}
	}
	if len(report) < 20 || on.replicaSet && missing != 0 || !on.replicaSet && missing != 4 {
		t.Errorf("%d of %d tests were skipped", missing, len(report))
	}
}
