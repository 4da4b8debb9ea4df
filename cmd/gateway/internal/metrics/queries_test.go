package metrics_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/mooringdb/mooring/cmd/gateway/internal/metrics"
)

const (
	alerts    = "../../../../deploy/prometheus/alerts.yaml"
	dashboard = "../../../../deploy/grafana/mooring.json"
	runbook   = "../../../../docs/runbook.md"
)

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rules returns the alerts' queries by name.
func rules(t *testing.T) map[string]string {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(read(t, alerts), &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r.Expr
			if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url,
				"/docs/runbook.md#"+strings.ToLower(r.Alert)) {
				t.Errorf("%s has the runbook %q", r.Alert, url)
			}
		}
	}
	return all
}

// panels returns the dashboard's queries by the titles of their panels.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	var file struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, dashboard), &file); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, p := range file.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %s has no query", p.Title)
		}
	}
	return all
}

var metricName = regexp.MustCompile(`\b(mooring|rpc|db|go|process)_[a-z_]+\b`)

// TestQueries checks that the dashboard and the alerts use metrics and labels that there are, and
// that each metric of the gateway is in the dashboard.
func TestQueries(t *testing.T) {
	m := metrics.New(metrics.Options{})
	known, used := map[string]bool{"up": true}, map[string]bool{}
	for name := range scrape(t, m) { // those of the runtime among them
		known[name] = true
	}
	for _, r := range m.Table() {
		known[r.Name] = true
		for _, l := range r.Labels {
			known[l] = true
		}
		if r.Kind == "histogram" {
			known[r.Name+"_bucket"], known[r.Name+"_count"] = true, true
		}
	}
	check := func(where, query string) {
		for _, name := range metricName.FindAllString(query, -1) {
			base := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			used[base], used[name] = true, true
			if !known[name] {
				t.Errorf("%s: there is no %s", where, name)
			}
		}
	}
	for title, queries := range panels(t) {
		for _, q := range queries {
			check(title, q)
		}
	}
	for _, r := range m.Table() {
		if !used[r.Name] {
			t.Errorf("the dashboard does not show %s", r.Name)
		}
	}
	for name, q := range rules(t) {
		check(name, q)
	}
}

// TestReadyPanel asks promtool whether the panel Ready has one tile for a replica, and a second one
// only for a replica that is stopping.
func TestReadyPanel(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian: prometheus)")
	}
	var tiles []string
	for _, q := range panels(t)["Ready"] {
		tiles = append(tiles, fmt.Sprintf(`label_replace(%s, "query", "%d", "", "")`,
			strings.ReplaceAll(q, "$instance", ".*"), len(tiles)))
	}
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, []byte(`
tests:
  - input_series:
      - {series: 'mooring_ready{instance="a"}', values: "1"}
      - {series: 'mooring_stopping{instance="a"}', values: "0"}
      - {series: 'mooring_ready{instance="b"}', values: "0"}
      - {series: 'mooring_stopping{instance="b"}', values: "1"}
    promql_expr_test:
      - expr: 'count by (instance) (`+strings.Join(tiles, " or ")+`)'
        exp_samples:
          - {labels: '{instance="a"}', value: 1}
          - {labels: '{instance="b"}', value: 2}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).
		CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestRunbook checks that each alert has a section of the runbook, and each section an alert.
func TestRunbook(t *testing.T) {
	var want, got []string
	for name := range rules(t) {
		want = append(want, name)
	}
	for line := range strings.Lines(string(read(t, runbook))) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			got = append(got, strings.TrimSpace(title))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the runbook has %q, the alerts are %q", got, want)
	}
}

// TestRules asks promtool whether Prometheus accepts the alerts, and whether each fires when it
// should, and none for a gateway that is well.
func TestRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian: prometheus)")
	}
	for _, args := range [][]string{
		{"check", "rules", alerts}, {"test", "rules", "../../../../deploy/prometheus/alerts_test.yaml"},
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).
			CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
	fired := string(read(t, "../../../../deploy/prometheus/alerts_test.yaml"))
	for name := range rules(t) {
		if !strings.Contains(fired, `alertname="`+name+`"`) {
			t.Errorf("%s does not fire in alerts_test.yaml", name)
		}
	}
}
