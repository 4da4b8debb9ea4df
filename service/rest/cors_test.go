package rest_test

import (
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/front"
)

// TestCORSOfPages checks that a GET keeps what its Vary says, and that the responses to two GETs do
// not share it.
func TestCORSOfPages(t *testing.T) {
	h := newHandler(t, &fake{}, func(cfg *config) { cfg.CORS = front.CORS{Origins: []string{"https://app.example"}} })
	for range 2 {
		w := do(h, "GET", "/openapi.json", "", "Origin", "https://app.example")
		if vary := w.Header().Values("Vary"); w.Code != 200 || len(vary) != 2 ||
			!strings.Contains(vary[0], "Accept") || vary[1] != "Origin" {
			t.Errorf("%d, Vary = %q", w.Code, vary)
		}
	}
}
