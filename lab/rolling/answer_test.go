package rolling_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestNoJSON: what is not JSON is repeated if it comes from haproxy, and ends a result if it comes
// with status 200.
func TestNoJSON(t *testing.T) {
	for _, c := range []struct {
		status   int
		text     string
		repeated bool
	}{
		{http.StatusServiceUnavailable, "<html>\n", true},
		{http.StatusOK, `{"documents":[{"_id":` + "\n", false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.text)
		}))
		t.Cleanup(server.Close)
		reader := client{&world{t: t, url: server.URL, http: server.Client()}}
		_, ofPage := reader.post("/", []byte("{}"))
		for _, err := range []error{ofPage, reader.readStream()} {
			f, ok := errors.AsType[*failure](err)
			if err == nil || ok == c.repeated || ok && f.Retry != "never" {
				t.Errorf("the error of %d %q is %v", c.status, c.text, err)
			}
		}
	}
}
