package client_test

import (
	"crypto/tls"
	"net/url"
	"strings"
	"testing"

	xocsp "golang.org/x/crypto/ocsp"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestRevokedServer is that the options reach the connections, and that an operation's error names
// the revocation.
func TestRevokedServer(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	cert := ca.Issue(t, "127.0.0.1")
	s := fakemongo.NewTCPServer(t, nil)
	s.UseTLS(&tls.Config{
		Certificates: []tls.Certificate{
			cert.TLS(cert.Respond(t, ca, xocsp.Response{Status: xocsp.Revoked})),
		},
	})
	base := s.URI() + "&tls=true&tlsCAFile=" +
		url.QueryEscape(certtest.File(t, "ca.pem", ca.CertificateBlock()))
	for options, revoked := range map[string]bool{
		"": true, "&tlsDisableOCSPEndpointCheck=true": true, "&tlsDisableCertificateRevocationCheck=true": false,
	} {
		t.Run(strings.TrimPrefix(options, "&"), func(t *testing.T) {
			t.Parallel()
			uri := base + options
			if revoked {
				uri += "&serverSelectionTimeoutMS=2000" // each Ping takes this time
			}
			cfg, err := connstring.Parse(uri)
			if err != nil {
				t.Fatal(err)
			}
			c, err := client.New(cfg, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close(t.Context()) }()
			err = c.Ping(t.Context())
			if (err != nil) != revoked ||
				err != nil && !strings.Contains(err.Error(), "was revoked at") {
				t.Errorf("Ping() = %v, want an error about the revocation: %v", err, revoked)
			}
		})
	}
}
