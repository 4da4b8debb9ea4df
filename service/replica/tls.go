package replica

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// Keys returns a ring's keys for the connections between replicas: the first key is presented,
// each is accepted. The keys can change at any time.
type Keys interface {
	TransportKeys() []ed25519.PrivateKey
}

// errForeignKey refuses a peer that has none of this replica's handle keys.
var errForeignKey = errors.New("its certificate was not made from any of the handle keys")

// serverName is sent as SNI. It hides the real name, which has no meaning here, since keys are
// pinned and names are not checked.
const serverName = "mooring-replica"

// identity presents this replica's key in a handshake and checks the key of the peer.
type identity struct {
	keys Keys

	// mu guards the fields below. Nothing blocks while it is held.
	mu   sync.Mutex
	made map[string]*tls.Certificate // by public key: the certificate that is presented
}

// config returns the configuration for both sides of a connection. It asks for the keys at each
// handshake.
//
// No session is resumed, because a resumed session would not check the certificate again.
func (i *identity) config() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ServerName:             serverName,
		SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return i.certificate()
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return i.certificate()
		},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, //nolint:gosec // the key is pinned: see VerifyConnection
		VerifyConnection:   i.verify,
	}
}

// presented returns the public key that this replica presents now.
func (i *identity) presented() string { return publicKey(i.keys.TransportKeys()[0]) }

// certificate returns the certificate of the first key.
func (i *identity) certificate() (*tls.Certificate, error) {
	key := i.keys.TransportKeys()[0]
	i.mu.Lock()
	defer i.mu.Unlock()
	if c := i.made[publicKey(key)]; c != nil {
		return c, nil
	}
	c, err := newCertificate(key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the handle key: %w", err)
	}
	i.made = map[string]*tls.Certificate{publicKey(key): c}
	return c, nil
}

// newCertificate signs a key with itself. Only the key matters: the certificate has no other
// content and is always valid.
func newCertificate(key ed25519.PrivateKey) (*tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: serverName},
		DNSNames:     []string{serverName},
		NotBefore:    time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		// "no well-defined expiration date", RFC 5280, 4.1.2.5
		NotAfter:    time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// verify accepts a peer that has proved one of the keys. The peer's certificate may have expired.
func (i *identity) verify(s tls.ConnectionState) error {
	if !i.knows(peerKey(s)) {
		return errForeignKey
	}
	return nil
}

// knows reports whether a public key belongs to one of the current keys.
func (i *identity) knows(public string) bool {
	for _, key := range i.keys.TransportKeys() {
		if public == publicKey(key) {
			return true
		}
	}
	return false
}

// peerKey returns the public key of the peer. If the peer has no Ed25519 key, it returns the empty
// string.
func peerKey(s tls.ConnectionState) string {
	if len(s.PeerCertificates) == 0 {
		return ""
	}
	public, _ := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	return string(public)
}

func publicKey(key ed25519.PrivateKey) string {
	public, _ := key.Public().(ed25519.PublicKey) // always
	return string(public)
}
