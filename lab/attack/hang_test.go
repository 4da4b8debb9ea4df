package attack_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/gateway"
)

// TestHang: a call that its client has left is told from one that the gateway has cut.
func TestHang(t *testing.T) {
	for _, want := range []string{"gone", "cut", "503"} {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch want {
			case "gone":
				_, _ = io.Copy(io.Discard, r.Body)
				leave()
				<-r.Context().Done()
			case "cut":
				panic(http.ErrAbortHandler)
			case "503":
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer server.Close()
		var calls hangs
		calls.hang(t, ctx,
			&target{Gateway: &gateway.Gateway{REST: server.URL}, http: server.Client()}, "gone")
		if !maps.Equal(calls.answers, map[string]int{want: 1}) {
			t.Errorf("the call ends as %v, want %s", calls.answers, want)
		}
	}
}
