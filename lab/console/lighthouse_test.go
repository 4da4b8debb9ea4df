package console_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/registry"
)

// TestLighthouse has Lighthouse judge the first view. Run it with make console-lighthouse, on a
// machine that does nothing else.
func TestLighthouse(t *testing.T) {
	if os.Getenv("LAB_LIGHTHOUSE") == "" {
		t.Skip("a measurement: LAB_LIGHTHOUSE=1")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		text, err := os.ReadFile(filepath.Join("lighthouse", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	registry.Fetch(t, dir, nil, "npm", "ci", "--ignore-scripts", "--no-progress", "--no-audit",
		"--no-fund")
	d := deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0])
	gateway := suite.Start(t, d.URI(false, nil), "--console-enabled")
	report := filepath.Join(dir, "report.json")
	cmd := exec.CommandContext(t.Context(),
		filepath.Join(dir, "node_modules", ".bin", "lighthouse"),
		gateway.REST+"/console/", "--quiet", "--output=json", "--output-path="+report,
		"--preset=desktop",
		"--only-categories=performance,accessibility,best-practices,seo",
		"--chrome-flags=--headless --no-sandbox --disable-dev-shm-usage")
	cmd.Env = append(os.Environ(), "CHROME_PATH="+chromium)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("lighthouse: %v\n%s", err, out)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Categories map[string]struct{ Score float64 }
		Audits     map[string]struct {
			Score        *float64
			Title        string
			NumericValue float64
		}
	}
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	for name, c := range found.Categories {
		t.Logf("%s %.0f", name, 100*c.Score)
		if c.Score < 0.95 {
			t.Errorf("%s has %.0f, want 95 at least", name, 100*c.Score)
		}
	}
	t.Logf("interactive after %.0f ms", found.Audits["interactive"].NumericValue)
	for name, a := range found.Audits {
		if a.Score != nil && *a.Score < 0.9 {
			t.Logf("audit %s, %s: %.2f", name, a.Title, *a.Score)
		}
	}
}
