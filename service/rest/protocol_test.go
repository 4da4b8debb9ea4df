package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/service/front"
)

// echo is a protocol that answers its requests with their bodies.
type echo struct{}

func (echo) Takes(r *http.Request) bool { return r.URL.Path == "/echo" }

func (echo) Serve(x *front.Exchange) {
	body, err := x.Body.ReadAll()
	if err != nil {
		failed := x.Explain(x.Request().Context(), err).HTTP()
		x.Response.WriteHeader(failed.Code)
		x.Response.Write([]byte(failed.Body.GetError().GetReason()))
		return
	}
	defer body.Free()
	x.Response.WriteHeader(http.StatusOK)
	x.Response.Write(body.B)
}

// refusals counts what the handler says of the requests that it refuses.
type refusals []string

func (r *refusals) Refused(code codes.Code, reason string) {
	*r = append(*r, fmt.Sprint(code, " ", reason))
}

// TestProtocol checks that the requests of another protocol have the limits of REST, and that other
// requests do not reach it.
func TestProtocol(t *testing.T) {
	var refused refusals
	h := newHandler(t, &fake{}, func(c *config) {
		c.APIs, c.MaxBodyBytes, c.Refusals.Meter = []front.API{echo{}}, 1000, &refused
	})
	for _, c := range []struct {
		path     string
		bytes    int
		code     int
		body     string
		refusals []string
	}{
		{"/echo", 1000, 200, strings.Repeat("x", 1000), nil},
		{"/echo", 1001, 413, "TooLarge", []string{"InvalidArgument TooLarge"}},
		{"/echo/", 1, 404, "", []string{"NotFound RouteNotFound"}},
	} {
		refused = nil
		w := do(h, "POST", c.path, strings.Repeat("x", c.bytes))
		body := w.Body.String()
		if w.Code != c.code || c.body != "" && body != c.body {
			t.Errorf("%s of %d bytes: %d %s, want %d %s", c.path, c.bytes, w.Code, body, c.code,
				c.body)
		}
		if got, want := fmt.Sprint(refused), fmt.Sprint(c.refusals); got != want {
			t.Errorf("%s of %d bytes: refused %v, want %v", c.path, c.bytes, got, want)
		}
	}
}

// TestRefusedOnce checks that the handler counts a request as refused only if it reaches no
// interceptor, because they count the others.
func TestRefusedOnce(t *testing.T) {
	var refused refusals
	h := newHandler(t, rows(t, errRefused), func(c *config) { c.Refusals.Meter = &refused })
	for _, c := range []struct {
		path, body string
		refusals   []string
	}{
		{":streamFind", "{}", nil},
		{":streamFind", `{"no":1}`, []string{"InvalidArgument InvalidArgument"}},
	} {
		refused = nil
		if w := do(h, "POST", documents+c.path, c.body); w.Code != 400 {
			t.Errorf("%s %s: %d, want 400", c.path, c.body, w.Code)
		}
		if got, want := fmt.Sprint(refused), fmt.Sprint(c.refusals); got != want {
			t.Errorf("%s %s: refused %v, want %v", c.path, c.body, got, want)
		}
	}
}
