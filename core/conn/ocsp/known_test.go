package ocsp_test

import (
	"testing"

	xocsp "golang.org/x/crypto/ocsp"

	"github.com/mooringdb/mooring/core/conn/ocsp"
	"github.com/mooringdb/mooring/internal/certtest"
)

func TestKnown(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	server := ca.Issue(t, "server", certtest.Responders(responderURL))
	c := ocsp.New(ocsp.Config{Transport: mustNotAsk(t)})
	if got := c.Known(server.Chain()); got != (ocsp.Response{}) {
		t.Errorf("Known() = %v before anything is", got)
	}
	wantAccepted(t, c.Check(t.Context(), server.Chain(), server.Respond(t, ca, xocsp.Response{})))
	if got := c.Known(server.Chain()); got.Status != ocsp.Good || got.NextUpdate.IsZero() {
		t.Errorf("Known() = %v, want what was stapled", got)
	}
	if got := c.Known(ca.Chain()); got != (ocsp.Response{}) {
		t.Errorf("Known() = %v of a trust anchor", got)
	}
}
