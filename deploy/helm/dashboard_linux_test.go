package helm_test

import (
	"os"
	"strings"
	"testing"
)

// TestDashboard checks that the ConfigMap has the chart's dashboard as it is, with the label and
// the annotation by which Grafana's sidecar takes it.
func TestDashboard(t *testing.T) {
	needHelm(t)
	trees := renderTrees(t, "-f", "mooring/ci/monitoring.yaml",
		"--show-only", "templates/dashboard.yaml")
	if len(trees) != 1 {
		t.Fatalf("there are %d manifests", len(trees))
	}
	get := func(keys ...string) any {
		var v any = trees[0]
		for _, key := range keys {
			m, _ := v.(map[string]any)
			v = m[key]
		}
		return v
	}
	file, err := os.ReadFile("mooring/files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := get("data", "mooring.json"); got != strings.TrimSuffix(string(file), "\n") {
		t.Errorf("the ConfigMap has %v, want the file", got)
	}
	if got := get("metadata", "labels", "grafana_dashboard"); got != "1" {
		t.Errorf("the label is %v", got)
	}
	if got := get("metadata", "annotations", "grafana_folder"); got != "Mooring" {
		t.Errorf("the annotation is %v", got)
	}
}
