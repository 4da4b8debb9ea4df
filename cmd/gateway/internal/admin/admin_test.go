package admin_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/admin"
)

func TestPaths(t *testing.T) {
	h := admin.Handler(admin.Config{
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
		}),
	})
	for path, want := range map[string]int{
		"/metrics": http.StatusTeapot, "/": http.StatusNotFound,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("GET %s is answered with %d, want %d", path, w.Code, want)
		}
	}
}
