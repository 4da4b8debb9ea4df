package certificate_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/certificate"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/internal/certtest"
)

// files writes the certificate of a pair, its key, and the authority of clients.
func files(t *testing.T, pair, authority *certtest.Pair) config.TLS {
	t.Helper()
	f := config.TLS{
		CertificateFile: certtest.File(t, "crt", pair.CertificateBlock()),
		KeyFile:         certtest.File(t, "key", pair.KeyBlock(t)),
	}
	if authority != nil {
		f.ClientAuthorityFile = certtest.File(t, "ca", authority.CertificateBlock())
	}
	return f
}

// handshake connects a client to a server in memory, and returns the server's certificate and the
// client's, as each has verified the other's.
func handshake(
	t *testing.T, server, client *tls.Config,
) (serverLeaf, clientLeaf *x509.Certificate, err error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	s, c := tls.Server(a, server), tls.Client(b, client)
	failed := make(chan error, 1)
	go func() {
		failed <- s.HandshakeContext(context.Background())
		_, _ = s.Write([]byte("x"))
	}()
	err = c.HandshakeContext(t.Context())
	if err == nil {
		_, err = c.Read(make([]byte, 1)) // TLS 1.3: the client learns of a refusal here
	}
	if err != nil {
		b.Close()
		return nil, nil, errors.Join(err, <-failed)
	}
	if err := <-failed; err != nil {
		return nil, nil, err
	}
	if chains := s.ConnectionState().VerifiedChains; len(chains) > 0 {
		clientLeaf = chains[0][0]
	}
	return c.ConnectionState().PeerCertificates[0], clientLeaf, nil
}

func texts(t *testing.T, h *certificate.Holder) (all []string) {
	t.Helper()
	for _, path := range h.Paths() {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	return all
}

// TestReplace checks that new handshakes get the newest certificate and authorities, and that
// files that cannot be used change nothing.
func TestReplace(t *testing.T) {
	ca, other := certtest.Authority(t, certtest.ECDSA), certtest.ForeignAuthority(t, certtest.ECDSA)
	first, second := ca.Issue(t, "db.example"), ca.Issue(t, "db.example")
	h, err := certificate.New(files(t, first, ca))
	if err != nil {
		t.Fatal(err)
	}
	server := h.TLS()
	old, foreign := ca.Issue(t, "old").TLS(nil), other.Issue(t, "new").TLS(nil)
	client := func(pair *tls.Certificate) *tls.Config {
		c := &tls.Config{
			RootCAs: ca.Pool(), ServerName: "db.example", MinVersion: tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(1),
		}
		if pair != nil {
			// Whatever authorities the server names.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return pair, nil
			}
		}
		return c
	}
	expect := func(what string, want *certtest.Pair, by *tls.Config, name string, ok bool) {
		t.Helper()
		got, who, err := handshake(t, server, by)
		if (err == nil) != ok {
			t.Errorf("%s: %v, want success %v", what, err, ok)
		}
		if err == nil && !got.Equal(want.Certificate) {
			t.Errorf("%s: not the newest certificate", what)
		}
		if err == nil && (who == nil) != (name == "") ||
			who != nil && who.Subject.CommonName != name {
			t.Errorf("%s: the client's certificate is %v, want %q", what, who, name)
		}
	}
	resuming := client(&old)
	expect("without a certificate", first, client(nil), "", true)
	expect("with one", first, resuming, "old", true)
	expect("with a foreign one", first, client(&foreign), "", false)

	good := texts(t, h)
	for name, bad := range map[string][]string{
		"another's key":   {good[0], string(pem.EncodeToMemory(other.KeyBlock(t))), good[2]},
		"no certificate":  {"x", good[1], good[2]},
		"no authorities":  {good[0], good[1], "x"},
		"a part of a key": {good[0], good[1][:40], good[2]},
	} {
		if err := h.Use(bad); err == nil || strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("Use of %s = %v", name, err)
		}
	}
	expect("after files that cannot be used", first, resuming, "old", true)

	next := []string{
		string(pem.EncodeToMemory(second.CertificateBlock())), string(pem.EncodeToMemory(second.KeyBlock(t))),
		string(pem.EncodeToMemory(other.CertificateBlock())),
	}
	if err := h.Use(next); err != nil {
		t.Fatal(err)
	}
	expect("a new certificate", second, client(nil), "", true)
	expect("of the new authority", second, client(&foreign), "new", true)
	expect("of the old authority, with a session of before", second, resuming, "", false)
}

func TestRequired(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	f := files(t, ca.Issue(t, "db.example"), ca)
	f.RequireClient = true
	h, err := certificate.New(f)
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{RootCAs: ca.Pool(), ServerName: "db.example", MinVersion: tls.VersionTLS12}
	if _, _, err := handshake(t, h.TLS(), c); err == nil {
		t.Error("a client without a certificate is accepted")
	}
	c.Certificates = []tls.Certificate{ca.Issue(t, "client").TLS(nil)}
	if _, who, err := handshake(t, h.TLS(), c); err != nil || who == nil {
		t.Errorf("a client with one: %v, %v", who, err)
	}
}

func TestNew(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	good := files(t, ca.Issue(t, "db.example"), ca)
	if h, err := certificate.New(config.TLS{}); h != nil || err != nil || h.TLS() != nil {
		t.Errorf("New without files = %v, %v", h, err)
	}
	for _, row := range []struct {
		name   string
		change func(*config.TLS)
		want   string
	}{
		{"no certificate", func(f *config.TLS) { f.CertificateFile = "/no/such" }, "option tls.certificateFile"},
		{"no key", func(f *config.TLS) { f.KeyFile = "/no/such" }, "option tls.keyFile"},
		{"no authorities", func(f *config.TLS) { f.ClientAuthorityFile = "/no/such" }, "option tls.clientAuthorityFile"},
		{"a key as authorities", func(f *config.TLS) { f.ClientAuthorityFile = f.KeyFile }, "tls.clientAuthorityFile"},
		{"endless", func(f *config.TLS) { f.ClientAuthorityFile = "/dev/zero" }, "larger than"},
	} {
		f := good
		row.change(&f)
		if _, err := certificate.New(f); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: New = %v, want %q", row.name, err, row.want)
		}
	}
}
