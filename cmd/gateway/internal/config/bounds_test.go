package config_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

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
	defaults := allDefaults(t)
	described := map[string]bool{}
	for _, row := range cells(table, 4) {
		option, text, metric := row[1], row[2], row[4]
		described[option] = true
		if want, ok := defaults[option]; option != "-" && option != "option" &&
			(!ok || want != text) {
			t.Errorf("%s has the default %q, the table says %q", option, want, text)
		}
		if metric != "-" && metric != "metric" &&
			!strings.Contains(string(metrics), "`"+metric+"`") {
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

// allDefaults returns the defaults of all options, as docs/configuration.md has them.
func allDefaults(t *testing.T) map[string]string {
	t.Helper()
	var options bytes.Buffer
	if err := config.Markdown(&options); err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{}
	for _, row := range cells(options.String(), 3) {
		defaults[row[0]] = row[1]
	}
	return defaults
}

// limit matches a number with its unit, and the option in parentheses that sets it.
var limit = regexp.MustCompile(
	"([0-9][0-9,]*)(?: (MiB|minutes|s|%))?[ ,][^();|0-9]*\\(`([a-zA-Z.]+)`\\)")

// TestLimits checks that the limits in docs/api.md whose options it names are their defaults.
func TestLimits(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n## Limits\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	defaults, named := allDefaults(t), map[string]bool{}
	for _, m := range limit.FindAllStringSubmatch(section, -1) {
		unit := map[string]string{"minutes": "m"}[m[2]]
		if unit == "" {
			unit = m[2]
		}
		got, want := strings.ReplaceAll(m[1], ",", "")+unit, defaults[m[3]]
		of, _ := time.ParseDuration(got)
		if wanted, err := time.ParseDuration(want); got != want && (err != nil || of != wanted) {
			t.Errorf("%s has the default %q, docs/api.md says %q", m[3], want, got)
		}
		named[m[3]] = true
	}
	for _, option := range []string{
		"requests.maxSize", "requests.maxItems", "pages.maxSize", "cursors.idle",
		"transactions.idle", "cursors.maxPerPrincipal", "cursors.maxPinned",
	} {
		if !named[option] {
			t.Errorf("docs/api.md has no limit for %s", option)
		}
	}
}
