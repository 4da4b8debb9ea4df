// Package lossy is an HTTP proxy before several servers that does to a request what its headers
// say: which server gets it, and whether, and how, the answer is lost. So a test's own random
// numbers decide, and a seed repeats it.
package lossy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"
)

// The headers of a request that are for the proxy; they are not passed on.
const (
	Target = "Lossy-Target" // the number of the server, from 0
	Loss   = "Lossy-Loss"   // one of the losses
)

// The losses: what the client sees is a connection that ends without an answer.
const (
	Nothing  = ""
	Request  = "request"  // the server never sees the request
	Reply    = "reply"    // the server answers, and the client gets no reply
	HangsUp  = "hangs-up" // the server sees its client go away while it works
	hangTime = time.Millisecond
)

// Proxy represents a running proxy.
type Proxy struct {
	URL     string
	targets []string
}

// Start starts a proxy before servers, http://host:port each. It ends with the test.
func Start(t testing.TB, targets ...string) *Proxy {
	p := &Proxy{targets: targets}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	p.URL = s.URL
	return p
}

// Header returns the header that a request must have.
func Header(target int, loss string) http.Header {
	return http.Header{Target: {strconv.Itoa(target)}, Loss: {loss}}
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target, err := strconv.Atoi(r.Header.Get(Target))
	if err != nil || target < 0 || target >= len(p.targets) {
		http.Error(w, "no such target", http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	loss := r.Header.Get(Loss)
	if loss == Request {
		panic(http.ErrAbortHandler)
	}
	ctx := r.Context()
	if loss == HangsUp {
		short, cancel := context.WithTimeout(ctx, hangTime)
		defer cancel()
		ctx = short
	}
	status, header, answer, err := p.forward(ctx, r, p.targets[target], body)
	if err != nil || loss != Nothing {
		panic(http.ErrAbortHandler) // ends the connection
	}
	w.Header().Set("Content-Type", header.Get("Content-Type"))
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

func (p *Proxy) forward(
	ctx context.Context, r *http.Request, target string, body []byte,
) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, target+r.URL.RequestURI(),
		bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header = r.Header.Clone()
	req.Header.Del(Target)
	req.Header.Del(Loss)
	req.Header.Del("Accept-Encoding") // the answer is passed on without its coding
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, answer, err
}
