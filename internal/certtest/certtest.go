// Package certtest makes certificate authorities, certificates and OCSP responses for tests.
// Nothing it makes is secret: keys are shared between the certificates of one process.
package certtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Algorithm names the kind of key.
type Algorithm uint8

// The algorithms.
const (
	ECDSA Algorithm = iota
	RSA
)

func (a Algorithm) String() string { return [...]string{"ECDSA", "RSA"}[a] }

// role keeps the keys of one algorithm apart.
type role uint8

const (
	authority role = iota
	foreign
	leaf
	delegate
	numRoles
)

// keys are made once, since RSA takes its time.
var keys = func() (made [2][numRoles]func() (crypto.Signer, error)) {
	for r := range numRoles {
		made[ECDSA][r] = sync.OnceValues(func() (crypto.Signer, error) {
			return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		})
		made[RSA][r] = sync.OnceValues(func() (crypto.Signer, error) {
			return rsa.GenerateKey(rand.Reader, 2048)
		})
	}
	return made
}()

func key(t testing.TB, a Algorithm, r role) crypto.Signer {
	t.Helper()
	k, err := keys[a][r]()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// serial numbers are never used twice in one process.
var serial atomic.Int64

// Pair holds a certificate, its key, and the certificates above it except the root.
type Pair struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
	Above       []*x509.Certificate
	algorithm   Algorithm
	issuer      *Pair // nil: itself
}

// Option changes a certificate before it is signed.
type Option func(*x509.Certificate)

// Authority makes a root that is valid for a day around now.
func Authority(t testing.TB, a Algorithm) *Pair { return root(t, a, authority, "test authority") }

// ForeignAuthority makes another root, with another key.
func ForeignAuthority(t testing.TB, a Algorithm) *Pair {
	return root(t, a, foreign, "foreign authority")
}

func root(t testing.TB, a Algorithm, r role, name string) *Pair {
	t.Helper()
	template := template(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	return sign(t, template, nil, &Pair{Key: key(t, a, r), algorithm: a})
}

// Intermediate makes an authority below p. Its key is that of foreign authorities.
func (p *Pair) Intermediate(t testing.TB, options ...Option) *Pair {
	t.Helper()
	template := template("intermediate authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	return sign(t, template, options, &Pair{
		Key: key(t, p.algorithm, foreign), algorithm: p.algorithm, issuer: p,
	})
}

// Issue makes a certificate for a host name or an IP address, good for servers and clients.
func (p *Pair) Issue(t testing.TB, name string, options ...Option) *Pair {
	t.Helper()
	template := template(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{
		x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth,
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	return sign(t, template, options, &Pair{
		Key: key(t, p.algorithm, leaf), algorithm: p.algorithm, issuer: p,
	})
}

// Delegate makes a certificate with which OCSP responses can be signed for p.
func (p *Pair) Delegate(t testing.TB, options ...Option) *Pair {
	t.Helper()
	template := template("delegate responder")
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageOCSPSigning}
	return sign(t, template, options, &Pair{
		Key: key(t, p.algorithm, delegate), algorithm: p.algorithm, issuer: p,
	})
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1000 + serial.Add(1)), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-12 * time.Hour), NotAfter: time.Now().Add(12 * time.Hour),
	}
}

func sign(t testing.TB, template *x509.Certificate, options []Option, p *Pair) *Pair {
	t.Helper()
	for _, option := range options {
		option(template)
	}
	parent, signer := template, p.Key
	if p.issuer != nil {
		parent, signer = p.issuer.Certificate, p.issuer.Key
		if p.issuer.issuer != nil {
			p.Above = append([]*x509.Certificate{p.issuer.Certificate}, p.issuer.Above...)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, p.Key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	if p.Certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return p
}

// Responders names OCSP responders in the certificate.
func Responders(urls ...string) Option {
	return func(c *x509.Certificate) { c.OCSPServer = urls }
}

// MustStaple makes the certificate demand a staple (RFC 7633).
func MustStaple(c *x509.Certificate) {
	c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{
		Id: []int{1, 3, 6, 1, 5, 5, 7, 1, 24}, Value: []byte{0x30, 3, 2, 1, 5},
	})
}

// Valid sets the time for which the certificate is valid.
func Valid(from, to time.Time) Option {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = from, to }
}

// Purposes sets the extended key usage.
func Purposes(usages ...x509.ExtKeyUsage) Option {
	return func(c *x509.Certificate) { c.ExtKeyUsage = usages }
}

// Chain returns the certificate with all above it, the root included: what a verification gives.
func (p *Pair) Chain() []*x509.Certificate {
	chain := []*x509.Certificate{p.Certificate}
	for p.issuer != nil {
		p = p.issuer
		chain = append(chain, p.Certificate)
	}
	return chain
}

// TLS returns what a server or a client presents, with a staple if it is not nil.
func (p *Pair) TLS(staple []byte) tls.Certificate {
	cert := tls.Certificate{
		Certificate: [][]byte{p.Certificate.Raw}, PrivateKey: p.Key, OCSPStaple: staple,
	}
	for _, above := range p.Above {
		cert.Certificate = append(cert.Certificate, above.Raw)
	}
	return cert
}

// Pool has the certificate as the only one.
func (p *Pair) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.Certificate)
	return pool
}

// CertificateBlock returns the certificate for a PEM file.
func (p *Pair) CertificateBlock() *pem.Block {
	return &pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate.Raw}
}

// KeyBlock returns the key for a PEM file, in PKCS #8 and in the clear.
func (p *Pair) KeyBlock(t testing.TB) *pem.Block {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &pem.Block{Type: "PRIVATE KEY", Bytes: der}
}

// File writes a PEM file into a directory that ends with the test, and gives its path.
func File(t testing.TB, name string, blocks ...*pem.Block) string {
	t.Helper()
	var data []byte
	for _, b := range blocks {
		data = append(data, pem.EncodeToMemory(b)...)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
