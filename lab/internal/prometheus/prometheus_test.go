package prometheus_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/prometheus"
)

func TestFaster(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"rate(a_total[5m]) / rate(b_total[1h])", "rate(a_total[5000ms]) / rate(b_total[60000ms])"},
		{"for: 30s", "for: 500ms"},
		{"for: 0s", "for: 0ms"},
		{"a - time() < 7 * 86400", "a - time() < 7 * 86400"},
		{`a{b="for 5m"}`, `a{b="for 5m"}`},
	} {
		if got := prometheus.Faster(row.text); got != row.want {
			t.Errorf("Faster(%q) = %q, want %q", row.text, got, row.want)
		}
	}
}

func TestScrape(t *testing.T) {
	page := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, page)
	}))
	defer s.Close()
	for _, row := range []struct {
		page string
		want map[string]float64 // nil: an error
	}{
		{"# HELP a A.\n\na{b=\"c d\"} 1.5\ne 2\n", map[string]float64{`a{b="c d"}`: 1.5, "e": 2}},
		{"a b\n", nil},
		{"1\n", nil},
	} {
		page = row.page
		text, got, err := prometheus.Scrape(t.Context(), s.URL)
		if row.want == nil && err == nil ||
			row.want != nil && (err != nil || text != page || !maps.Equal(got, row.want)) {
			t.Errorf("Scrape of %q = %q, %v, %v, want %v", row.page, text, got, err, row.want)
		}
	}
}

const rules = `
groups:
  - name: g
    rules:
      - {alert: Low, expr: level < 1, for: 30s}
      - {alert: High, expr: level > 1}
`

// TestServer has Prometheus scrape a listener that has one series.
func TestServer(t *testing.T) {
	if !prometheus.Installed() {
		t.Skip(prometheus.Missing)
	}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `level{of="a"} 2`)
	}))
	defer target.Close()
	begin := time.Now()
	s := prometheus.Start(t, prometheus.Config{
		Interval: 100 * time.Millisecond, Rules: prometheus.Faster(rules),
		Targets: []string{strings.TrimPrefix(target.URL, "http://")},
	})
	gatewaytest.Eventually(t, 20*time.Second, func() error {
		names, err := s.Firing(t.Context())
		if err == nil && !slices.Equal(names, []string{"High"}) {
			err = fmt.Errorf("%q fire", names)
		}
		return err
	})
	for name, ask := range map[string]func() ([]prometheus.Series, error){
		"Query": func() ([]prometheus.Series, error) { return s.Query(t.Context(), "level") },
		"Range": func() ([]prometheus.Series, error) { return s.Range(t.Context(), "level", begin) },
	} {
		gatewaytest.Eventually(t, 20*time.Second, func() error {
			all, err := ask()
			if err != nil {
				return err
			}
			if len(all) != 1 || all[0].Labels["of"] != "a" || !slices.Contains(all[0].Values, 2) {
				return fmt.Errorf("%s(level) = %v", name, all)
			}
			return nil
		})
	}
	if _, err := s.Query(t.Context(), "level{"); err == nil {
		t.Error("Query of half a query has no error")
	}
}
