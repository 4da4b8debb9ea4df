package gatewaytest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
)

// Response holds a complete REST answer.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Header holds one header of a request.
type Header struct{ Name, Value string }

// Post sends a JSON body and reads the answer.
func (g *Gateway) Post(t testing.TB, path, body string, headers ...Header) Response {
	t.Helper()
	return g.Do(t, http.MethodPost, path, body, headers...)
}

// Do sends a request and reads the answer.
func (g *Gateway) Do(t testing.TB, method, path, body string, headers ...Header) Response {
	t.Helper()
	resp := g.Open(t, t.Context(), method, path, body, headers...)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: b}
}

// Open sends a request and leaves the answer's body to the caller.
func (g *Gateway) Open(
	t testing.TB, ctx context.Context, method, path, body string, headers ...Header,
) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, g.REST+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		req.Header.Set(h.Name, h.Value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// Documents returns the path of a collection's documents, with a verb such as "find".
func Documents(database, collection, verb string) string {
	return "/v1/databases/" + database + "/collections/" + collection + "/documents:" + verb
}
