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

// Keys are a ring's keys for the connections between replicas: the first is presented, each is
// accepted. They can change at any time.
type Keys interface {
	TransportKeys() []ed25519.PrivateKey
}

// errForeignKey is a peer that has none of our keys.
var errForeignKey = errors.New("its certificate is of none of the handle keys")

// serverName is sent as SNI: the real one is nobody's business, and means nothing, since keys are
// pinned and not names.
const serverName = "mooring-replica"

// identity is who this replica is in a handshake, and whom it takes for another one.
type identity struct {
	keys Keys

	// mu guards the fields below. Nothing blocks while it is held.
	mu   sync.Mutex
	made map[string]*tls.Certificate // by public key: the one that is presented
}

// config is for both sides of a connection. It asks for the keys at each handshake.
//
// Nothing is resumed, because a resumed session would not look at the certificate again.
func (i *identity) config() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ServerName:             serverName,
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.certificate() },
		GetClientCertificate:   func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.certificate() },
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, //nolint:gosec // the key is pinned: see VerifyConnection
		VerifyConnection:       i.verify,
	}
}

// presented is the public key that this replica shows now.
func (i *identity) presented() string { return publicKey(i.keys.TransportKeys()[0]) }

// certificate is that of the first key.
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

// newCertificate signs a key with itself. Only the key counts: the certificate says nothing else,
// and is always valid.
func newCertificate(key ed25519.PrivateKey) (*tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: serverName},
		DNSNames:     []string{serverName},
		NotBefore:    time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // "no well-defined expiration date", RFC 5280, 4.1.2.5
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// verify accepts a peer that has proved that it has one of the keys; when its certificate ends
// does not matter.
func (i *identity) verify(s tls.ConnectionState) error {
	if !i.knows(peerKey(s)) {
		return errForeignKey
	}
	return nil
}

// knows says whether that public key is one of a key of now.
func (i *identity) knows(public string) bool {
	for _, key := range i.keys.TransportKeys() {
		if public == publicKey(key) {
			return true
		}
	}
	return false
}

// peerKey is the public key of whoever is on the other side; empty if it is none of ours in any
// case.
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
