package wire_test

import (
	"slices"
	"strings"
	"testing"
)

// TestSameCommands has three drivers run the same operations on the same server, and compares what
// they send field by field. Each difference is explained by a row of differences.md, and each row
// explains one, but for those that only one of the two servers causes.
func TestSameCommands(t *testing.T) {
	skipWithoutPymongo(t)
	operations := slices.Concat(finds, reads, writes, commands)
	var order []string
	for _, op := range slices.Concat(operations, bulks) {
		order = append(order, op.name)
	}
	order = append(order, closing)
	if distinct := slices.Compact(
		slices.Sorted(slices.Values(order))); len(distinct) != len(order) {
		t.Fatalf("%d operations have %d names", len(order), len(distinct))
	}
	recordings := map[string]recording{}
	for _, driver := range drivers {
		recordings[driver.name] = record(t, newDeployment(t), driver.open, operations)
		for name, commands := range record(t, newDeployment8(t), driver.open, bulks) {
			if name != closing {
				recordings[driver.name][name] = commands
			}
		}
	}
	plain, _, _ := strings.Cut(differences, "## Attempts")
	rows := explanations(t, plain)
	total, unexplained := 0, 0
	for _, driver := range drivers[1:] {
		// pymongo does not tell whether it could send endSessions.
		compared := order
		if driver.name == "pymongo" {
			compared = order[:len(order)-1]
		}
		for _, d := range compare(driver.name, compared, recordings["mooring"],
			recordings[driver.name]) {
			total++
			known := false
			for _, row := range rows {
				if row.explains(d) && (suite.IsEmbedded() || !row.embedded) {
					known, row.used = true, true
				}
			}
			if !known {
				unexplained++
				t.Errorf("not explained: %v", d)
			}
		}
	}
	for _, row := range rows {
		if !row.used && !row.embedded && !suite.IsEmbedded() {
			t.Errorf("the row explains nothing: %v: %s", row.patterns, row.why)
		}
	}
	t.Logf("%d operations, %d differences, %d of them not explained", len(order)-1, total,
		unexplained)
}
