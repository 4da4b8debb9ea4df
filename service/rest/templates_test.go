package rest_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"github.com/mooringdb/mooring/service/rest"
)

// TestTemplatesMeanWhatGRPCGatewayReads compares the routes with grpc-gateway's own mux: its
// grammar is what the HTTP annotations are written in, and what other tools read in them.
func TestTemplatesMeanWhatGRPCGatewayReads(t *testing.T) {
	a := rest.New(rest.Config{})
	mux := runtime.NewServeMux()
	var template string
	var values map[string]string
	routes := rest.Templates(a)
	for _, r := range routes {
		err := mux.HandlePath(r.Method, r.Path, func(
			_ http.ResponseWriter, _ *http.Request, found map[string]string,
		) {
			template, values = r.Path, found
		})
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.Path, err)
		}
	}
	if len(routes) < 70 {
		t.Errorf("%d routes, want at least 70", len(routes))
	}
	variable := regexp.MustCompile(`\{(\w+)\}`)
	for _, r := range routes {
		for _, path := range []string{
			variable.ReplaceAllString(r.Path, "a-$1"),
			variable.ReplaceAllString(r.Path, "a%20$1.b"),
		} {
			template, values = "", nil
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(r.Method, path, nil))
			got, gotValues := rest.Match(a, r.Method, path)
			if got != template || got != r.Path || !maps.Equal(gotValues, values) {
				t.Errorf("%s %s is %s %v, grpc-gateway has %s %v", r.Method, path, got, gotValues,
					template, values)
			}
		}
	}
}
