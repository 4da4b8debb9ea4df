package pagers_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestAnswers: what is not whole is a cut body if it comes with status 200; what haproxy answers
// is not a failure of a gateway; the Data API says by Retry-After whether to repeat.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		status      int
		after, text string
		cut         bool
		want        *failure
	}{
		{200, "", `{"documents":[{"_id":`, true, nil},
		{200, "", `{"documents":[{"_id":0}]}`, false, nil},
		{200, "", `{"documents":[{"_id":0},{"_id":1}],"cursor":"`, true, nil},
		{200, "", `{"documents":[{"_id":0},{"_id":1}]`, true, nil},
		{503, "", "<html>\n", false, nil},
		{
			429, "2", `{"error":{"reason":"Overloaded","retry":"same-request"}}`, false,
			&failure{429, "Overloaded", "same-request", 2 * time.Second},
		},
		{
			429, "1", `{"error":"busy","error_code":"TooManyRequests"}`, false,
			&failure{429, "TooManyRequests", "same-request", time.Second},
		},
		{
			400, "", `{"error":"no","error_code":"InvalidParameter"}`, false,
			&failure{400, "InvalidParameter", "never", 0},
		},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.after != "" {
				w.Header().Set("Retry-After", c.after)
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.text)
		}))
		t.Cleanup(server.Close)
		p, err := overHTTP{server.URL, server.Client()}.post(t.Context(), "/", nil)
		f, ok := errors.AsType[*failure](err)
		if errors.Is(err, errCut) != c.cut || ok != (c.want != nil) || ok && *f != *c.want {
			t.Errorf("%d %q = %+v, %v", c.status, c.text, p, err)
		}
	}
}

// TestSplit: documents are cut at their bounds, and the token is read.
func TestSplit(t *testing.T) {
	resp := &http.Response{StatusCode: http.StatusOK}
	for text, want := range map[string]string{
		`{"documents":[]}`:                                     "[] ",
		`{"documents":[{"_id":0,"pad":"x"}]}`:                  `[{"_id":0,"pad":"x"}] `,
		`{"documents":[{"_id":0},{"_id":1}],"cursor":"token"}`: `[{"_id":0} {"_id":1}] token`,
		`{"cursor":"token"}`:                                   "[] token",
	} {
		p, err := parse(resp, []byte(text))
		if got := fmt.Sprintf("%s %s", p.documents, p.token); err != nil || got != want {
			t.Errorf("parse(%s) = %s, %v, want %s", text, got, err, want)
		}
	}
}
