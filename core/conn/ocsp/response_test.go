package ocsp_test

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	xocsp "golang.org/x/crypto/ocsp"

	"github.com/mooringdb/mooring/core/conn/ocsp"
	"github.com/mooringdb/mooring/internal/certtest"
)

func TestParse(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	ca, stranger := certtest.Authority(t, certtest.ECDSA),
		certtest.ForeignAuthority(t, certtest.ECDSA)
	server, other := ca.Issue(t, "server"), ca.Issue(t, "other")
	delegate := ca.Delegate(t)
	good := xocsp.Response{Status: xocsp.Good}
	between := func(from, to time.Duration) xocsp.Response {
		return xocsp.Response{
			Status: xocsp.Good, ThisUpdate: now.Add(from), NextUpdate: now.Add(to),
		}
	}
	for _, tt := range []struct {
		name string
		der  []byte
		want string // in the error; "" for success
	}{
		{"signed by the authority", server.Respond(t, ca, good), ""},
		{"with the authority's own certificate", server.Respond(t, ca, xocsp.Response{Certificate: ca.Certificate}), ""},
		{"signed by a delegate", server.Respond(t, delegate, good), ""},
		{"SHA-256 in its CertID", server.Respond(t, ca, xocsp.Response{IssuerHash: crypto.SHA256}), ""},
		{"revoked", server.Respond(t, ca, xocsp.Response{Status: xocsp.Revoked}), ""},
		{"unknown", server.Respond(t, ca, xocsp.Response{Status: xocsp.Unknown}), ""},
		{"about another certificate", other.Respond(t, ca, good), "no response matching"},
		{"about another issuer's certificate", aboutForeign(t, server, stranger, ca), "of another issuer"},
		{"signed by a stranger", server.Respond(t, stranger, good), "was not issued by"},
		{"signed by a stranger in the authority's name", server.Respond(t, impostor(t, ca), good), "was not issued by"},
		{"signed by a stranger's delegate", server.Respond(t, stranger.Delegate(t), good), "was not issued by"},
		{"signed by another server", server.Respond(t, other, good), "is not valid for signing OCSP responses"},
		{"signed by the server itself", server.Respond(t, server, good), "is not valid for signing OCSP responses"},
		{"delegate without digital signatures", server.Respond(t, ca.Delegate(t, func(
			c *x509.Certificate,
		) {
			c.KeyUsage = x509.KeyUsageKeyEncipherment
		}), good), "is not valid for signatures"},
		{"delegate with a strange critical extension", server.Respond(t, ca.Delegate(t, func(
			c *x509.Certificate,
		) {
			c.ExtraExtensions = []pkix.Extension{
				{Id: []int{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}},
			}
		}), good), "critical extension"},
		{"delegate expired", server.Respond(t, ca.Delegate(t, certtest.Valid(now.Add(-2*time.Hour), now.Add(-time.Hour))), good), "has expired"},
		{"delegate not valid yet", server.Respond(t, ca.Delegate(t, certtest.Valid(now.Add(time.Hour), now.Add(2*time.Hour))), good), "not valid yet"},
		{"from this moment", server.Respond(t, ca, between(0, time.Minute)), ""},
		{"to this moment", server.Respond(t, ca, between(-time.Minute, 0)), "it expired at"},
		{"for later", server.Respond(t, ca, between(time.Second, time.Minute)), "it is valid from"},
		{"no nextUpdate", server.Respond(t, ca, xocsp.Response{ThisUpdate: now.Add(-time.Hour)}), ""},
		{"no nextUpdate, old", server.Respond(t, ca, xocsp.Response{ThisUpdate: now.Add(-25 * time.Hour)}), "has no nextUpdate"},
		{"responder's error", xocsp.TryLaterErrorResponse, "try later"},
		{"signature broken", broken(server.Respond(t, ca, good)), "x509"},
		{"nothing", []byte{}, "asn1"},
		{"garbage", []byte("garbage"), "asn1"},
		{"something behind", append(server.Respond(t, ca, good), 0), "trailing data"},
	} {
		_, err := ocsp.Parse(tt.der, server.Certificate, ca.Certificate, now)
		if (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Parse() = %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestParseGivesTheStatus(t *testing.T) {
	ca := certtest.Authority(t, certtest.RSA)
	server := ca.Issue(t, "server")
	now := time.Now().UTC().Truncate(time.Second)
	sent := xocsp.Response{
		Status: xocsp.Revoked, ThisUpdate: now, NextUpdate: now.Add(time.Hour),
		RevokedAt: now.Add(-time.Hour), RevocationReason: xocsp.KeyCompromise,
	}
	got, err := ocsp.Parse(server.Respond(t, ca.Delegate(t), sent), server.Certificate,
		ca.Certificate, now)
	want := ocsp.Response{
		Status: ocsp.Revoked, ThisUpdate: now, NextUpdate: now.Add(time.Hour),
		RevokedAt: now.Add(-time.Hour), Reason: xocsp.KeyCompromise,
	}
	if err != nil || got != want {
		t.Errorf("Parse() = %+v, %v, want %+v", got, err, want)
	}
}

// aboutForeign returns a response about another certificate with the server's serial number,
// signed by the server's own authority.
func aboutForeign(t *testing.T, server, stranger, ca *certtest.Pair) []byte {
	now := time.Now()
	der, err := xocsp.CreateResponse(stranger.Certificate, ca.Certificate, xocsp.Response{
		SerialNumber: server.Certificate.SerialNumber, ThisUpdate: now.Add(-time.Hour),
		NextUpdate: now.Add(time.Hour),
	}, ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// impostor returns a pair with the authority's name and another key.
func impostor(t *testing.T, ca *certtest.Pair) *certtest.Pair {
	p := certtest.ForeignAuthority(t, certtest.ECDSA)
	return p.Issue(t, "impostor", func(c *x509.Certificate) { c.Subject = ca.Certificate.Subject })
}

func broken(der []byte) []byte {
	der[len(der)-1] ^= 1
	return der
}

func TestMustStaple(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	feature := func(value ...byte) certtest.Option {
		return func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{
				{Id: []int{1, 3, 6, 1, 5, 5, 7, 1, 24}, Value: value},
			}
		}
	}
	for _, tt := range []struct {
		name   string
		option certtest.Option
		want   bool
	}{
		{"no extension", func(*x509.Certificate) {}, false},
		{"status_request", certtest.MustStaple, true},
		{"another feature", feature(0x30, 3, 2, 1, 17), false},
		{"two features", feature(0x30, 6, 2, 1, 17, 2, 1, 5), true},
		{"unreadable", feature(0x30, 9, 2), true},
	} {
		if got := ocsp.MustStaple(ca.Issue(t, "server", tt.option).Certificate); got != tt.want {
			t.Errorf("%s: MustStaple() = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	ca := certtest.Authority(f, certtest.ECDSA)
	server := ca.Issue(f, "server")
	now := time.Now()
	f.Add(server.Respond(f, ca, xocsp.Response{}))
	f.Add(server.Respond(f, ca.Delegate(f), xocsp.Response{Status: xocsp.Revoked}))
	f.Add(xocsp.TryLaterErrorResponse)
	f.Fuzz(func(t *testing.T, der []byte) {
		r, err := ocsp.Parse(der, server.Certificate, ca.Certificate, now)
		if (err == nil) == (r.Status == ocsp.None) {
			t.Errorf("Parse() = %+v, %v", r, err)
		}
	})
}
