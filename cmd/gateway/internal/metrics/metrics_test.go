package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/mooringdb/mooring/cmd/gateway/internal/metrics"
)

// scrape returns what a scraper gets, by the name of the metric.
func scrape(t *testing.T, m *metrics.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func TestBuildAndRuntime(t *testing.T) {
	families := scrape(t, metrics.New("v1.2.3"))
	for _, name := range []string{
		"go_goroutines", "process_resident_memory_bytes", "mooring_build_info",
	} {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	for _, l := range families["mooring_build_info"].GetMetric()[0].GetLabel() {
		if l.GetName() == "version" && l.GetValue() != "v1.2.3" {
			t.Errorf("the version is %q", l.GetValue())
		}
	}
}
