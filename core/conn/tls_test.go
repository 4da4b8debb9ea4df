package conn_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/mongotest"
)

// authority is a certificate authority for one test, and its files.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) file() string {
	return a.write("ca.pem", &pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) write(name string, blocks ...*pem.Block) string {
	var data []byte
	for _, b := range blocks {
		data = append(data, pem.EncodeToMemory(b)...)
	}
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// issue makes a certificate for a host name or an address, and its key.
func (a *authority) issue(name string) (cert, key *pem.Block) {
	k := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return &pem.Block{Type: "CERTIFICATE", Bytes: der}, &pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}
}

func (a *authority) serverConfig(name string) *tls.Config {
	certBlock, keyBlock := a.issue(name)
	cert, err := tls.X509KeyPair(pem.EncodeToMemory(certBlock), pem.EncodeToMemory(keyBlock))
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}}
}

func TestTLS(t *testing.T) {
	ours, foreign := newAuthority(t), newAuthority(t)
	right, wrong, untrusted := ours.serverConfig("127.0.0.1"), ours.serverConfig("other.example"), foreign.serverConfig("127.0.0.1")
	tests := []struct {
		name   string
		server *tls.Config
		opt    connstring.TLS
		want   string // in the error; "" for success
	}{
		{"trusted", right, connstring.TLS{}, ""},
		{"wrong name", wrong, connstring.TLS{}, "any IP SANs"},
		{"untrusted", untrusted, connstring.TLS{}, "unknown authority"},
		{"wrong name allowed", wrong, connstring.TLS{AllowInvalidHostnames: true}, ""},
		{"untrusted with wrong names allowed", untrusted, connstring.TLS{AllowInvalidHostnames: true}, "unknown authority"},
		{"untrusted allowed", untrusted, connstring.TLS{AllowInvalidCertificates: true}, ""},
		{"wrong name with invalid certificates allowed", wrong, connstring.TLS{AllowInvalidCertificates: true}, "any IP SANs"},
		{"insecure, wrong name", wrong, connstring.TLS{Insecure: true}, ""},
		{"insecure, untrusted", untrusted, connstring.TLS{Insecure: true}, ""},
		{"server speaks plain", nil, connstring.TLS{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := mongotest.NewTCPServer(t, nil)
			if tt.server == nil {
				tt.want = "tls handshake"
			} else {
				s.UseTLS(tt.server)
			}
			tt.opt.CAFile = ours.file()
			conf, err := conn.TLSConfig(tt.opt)
			if err != nil {
				t.Fatal(err)
			}
			c, err := conn.Dial(t.Context(), s.Address(), conn.Config{TLS: conf})
			if err == nil {
				_, err = c.RoundTrip(t.Context(), message("ping", 0))
				_ = c.Close()
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Dial() = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestTLSClientCertificate(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue("client")
	encrypted, err := x509.EncryptPEMBlock(rand.Reader, key.Type, key.Bytes, []byte("secret"), x509.PEMCipherAES256) //nolint:staticcheck // what such files are
	if err != nil {
		t.Fatal(err)
	}
	server := ca.serverConfig("127.0.0.1")
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	server.ClientCAs.AddCert(ca.cert)
	s := mongotest.NewTCPServer(t, nil)
	s.UseTLS(server)
	for name, opt := range map[string]connstring.TLS{
		"in the clear": {CertificateKeyFile: ca.write("client.pem", cert, key)},
		"key first":    {CertificateKeyFile: ca.write("first.pem", key, cert)},
		"encrypted":    {CertificateKeyFile: ca.write("encrypted.pem", cert, encrypted), CertificateKeyFilePassword: "secret"},
	} {
		opt.CAFile = ca.file()
		conf, err := conn.TLSConfig(opt)
		if err != nil {
			t.Fatalf("%s: TLSConfig() = %v", name, err)
		}
		c, err := conn.Dial(t.Context(), s.Address(), conn.Config{TLS: conf})
		if err != nil {
			t.Fatalf("%s: Dial() = %v", name, err)
		}
		_ = c.Close()
	}
}

func TestTLSConfigRefuses(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue("client")
	encrypted, err := x509.EncryptPEMBlock(rand.Reader, key.Type, key.Bytes, []byte("secret"), x509.PEMCipherAES256) //nolint:staticcheck // what such files are
	if err != nil {
		t.Fatal(err)
	}
	both := ca.write("both.pem", cert, encrypted)
	for name, tt := range map[string]struct {
		opt  connstring.TLS
		want string
	}{
		"no such CA file":   {connstring.TLS{CAFile: "/nowhere.pem"}, "tlsCAFile"},
		"CA file is no PEM": {connstring.TLS{CAFile: ca.write("empty.pem")}, "has no certificate"},
		"no such key file":  {connstring.TLS{CertificateKeyFile: "/nowhere.pem"}, "tlsCertificateKeyFile"},
		"no key":            {connstring.TLS{CertificateKeyFile: ca.write("cert.pem", cert)}, "no private key"},
		"no certificate":    {connstring.TLS{CertificateKeyFile: ca.write("key.pem", key)}, "tlsCertificateKeyFile"},
		"no password":       {connstring.TLS{CertificateKeyFile: both}, "tlsCertificateKeyFilePassword is not given"},
		"wrong password":    {connstring.TLS{CertificateKeyFile: both, CertificateKeyFilePassword: "hunter2"}, "cannot be decrypted"},
		"password alone":    {connstring.TLS{CertificateKeyFilePassword: "hunter2"}, "there is no tlsCertificateKeyFile"},
		"PKCS #8": {
			connstring.TLS{CertificateKeyFile: ca.write("pkcs8.pem", cert, &pem.Block{Type: "ENCRYPTED PRIVATE KEY"})}, "PKCS #8",
		},
	} {
		_, err := conn.TLSConfig(tt.opt)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: TLSConfig() = %v, want %q and no secret", name, err, tt.want)
		}
	}
}
