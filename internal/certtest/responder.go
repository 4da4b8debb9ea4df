package certtest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
)

// Respond makes an OCSP response about p, signed by signer: p's issuer or one of its delegates.
// Times that r leaves open stand for an hour around now.
func (p *Pair) Respond(t testing.TB, signer *Pair, r ocsp.Response) []byte {
	t.Helper()
	r.SerialNumber = p.Certificate.SerialNumber
	der, err := respond(p.issuer, signer, r)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func respond(issuer, signer *Pair, r ocsp.Response) ([]byte, error) {
	now := time.Now()
	if r.ThisUpdate.IsZero() {
		r.ThisUpdate, r.NextUpdate = now.Add(-30*time.Minute), now.Add(30*time.Minute)
	}
	if r.Status == ocsp.Revoked && r.RevokedAt.IsZero() {
		r.RevokedAt = now.Add(-time.Hour)
	}
	if signer != issuer && r.Certificate == nil {
		r.Certificate = signer.Certificate
	}
	return ocsp.CreateResponse(issuer.Certificate, signer.Certificate, r, signer.Key)
}

// Responder represents an OCSP responder: an http.Handler, and a RoundTripper that needs no
// socket. Its fields are set before it is used.
type Responder struct {
	Authority *Pair
	Signer    *Pair         // nil: the authority
	Response  ocsp.Response // the answer to all questions, apart from its serial number
	NoGet     bool          // answer GET with 405
	Hook      func(*http.Request)

	mu      sync.Mutex
	methods []string
}

// Methods returns those of the requests so far.
func (s *Responder) Methods() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.methods...)
}

func (s *Responder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	s.methods = append(s.methods, req.Method)
	s.mu.Unlock()
	if s.Hook != nil {
		s.Hook(req)
	}
	der, err := question(req)
	switch {
	case req.Method == http.MethodGet && s.NoGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	asked, err := ocsp.ParseRequest(der)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r := s.Response
	r.SerialNumber = new(big.Int).Set(asked.SerialNumber)
	signer := s.Signer
	if signer == nil {
		signer = s.Authority
	}
	answer, err := respond(s.Authority, signer, r)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/ocsp-response")
	_, _ = w.Write(answer)
}

// RoundTrip answers without a network.
func (s *Responder) RoundTrip(req *http.Request) (*http.Response, error) {
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	s.ServeHTTP(w, req)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: w.status, ProtoMajor: 1, ProtoMinor: 1, Header: w.header,
		Body: io.NopCloser(&w.body), Request: req,
	}, nil
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }

func question(req *http.Request) ([]byte, error) {
	if req.Method == http.MethodPost {
		if got := req.Header.Get("Content-Type"); got != "application/ocsp-request" {
			return nil, fmt.Errorf("the content type is %q", got) // as RFC 6960, A.1 has it
		}
		return io.ReadAll(req.Body)
	}
	// Without the percent encoding; the base64 may have slashes.
	path := req.URL.Path
	if i := strings.Index(path, "/M"); i >= 0 { // DER begins with 0x30, which is M in base64
		path = path[i+1:]
	}
	return base64.StdEncoding.DecodeString(path)
}
