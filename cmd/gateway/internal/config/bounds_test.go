package config_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
)

// bound matches the names of options that bound something.
var bound = regexp.MustCompile(
	`(?i)\.(max|timeout|.*idle|rate|queueTime|.*memory|budget|skew|linger)[A-Za-z]*$`)

// cells returns the cells of the rows of a table in Markdown whose cell at that place is code.
func cells(text string, place int) (rows [][]string) {
	for line := range strings.Lines(text) {
		row := strings.Split(strings.TrimSpace(line), " | ")
		for i := range row {
			row[i] = strings.Trim(row[i], "|` ")
		}
		if strings.HasPrefix(line, "| ") && len(row) > place {
			rows = append(rows, row)
		}
	}
	return rows
}

// TestBounds checks that the table of bounds in docs/security.md has a row for each option that
// bounds something, with its true default, and names metrics that there are.
func TestBounds(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := os.ReadFile("../../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "<!-- bounds begin -->\n")
	table, _, ok2 := strings.Cut(rest, "<!-- bounds end -->")
	if !ok || !ok2 {
		t.Fatal("the page lacks its table of bounds")
	}
	var options bytes.Buffer
	if err := config.Markdown(&options); err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{}
	for _, row := range cells(options.String(), 3) {
		defaults[row[0]] = row[3]
	}
	described := map[string]bool{}
	for _, row := range cells(table, 4) {
		option, text, metric := row[1], row[2], row[4]
		described[option] = true
		if want, ok := defaults[option]; option != "-" && option != "option" && (!ok || want != text) {
			t.Errorf("%s has the default %q, the table says %q", option, want, text)
		}
		if metric != "-" && metric != "metric" && !strings.Contains(string(metrics), "`"+metric+"`") {
			t.Errorf("%s: there is no metric %q", option, metric)
		}
	}
	for option := range defaults {
		if bound.MatchString(option) && !described[option] {
			t.Errorf("%s has no row in the table of bounds of docs/security.md", option)
		}
	}
	if len(described) < 25 || len(defaults) < 50 {
		t.Errorf("%d rows, %d options", len(described), len(defaults))
	}
}
