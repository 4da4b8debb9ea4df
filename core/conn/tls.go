package conn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn/ocsp"
	"github.com/mooringdb/mooring/core/connstring"
)

// TLS holds what encrypts the connections of a client. Connections that are made after a Reload use
// what the files say then; those that exist go on. Its methods are safe for concurrent use.
type TLS struct {
	opt     connstring.TLS
	checker *ocsp.Checker
	current atomic.Pointer[tls.Config]
}

// NewTLS reads the files that the options name. It does not ask whether TLS is on
// (connstring.Config.UseTLS does).
func NewTLS(opt connstring.TLS) (*TLS, error) {
	conf, checker, err := tlsConfig(opt)
	if err != nil {
		return nil, err
	}
	t := &TLS{opt: opt, checker: checker}
	t.current.Store(conf)
	return t, nil
}

// Files returns the names of the files that the options name.
func (t *TLS) Files() []string {
	return slices.DeleteFunc([]string{t.opt.CertificateKeyFile, t.opt.CAFile},
		func(name string) bool { return name == "" })
}

// Reload reads the files again. If they cannot be used, what was read before stays.
func (t *TLS) Reload() error {
	conf, _, err := tlsConfig(t.opt)
	if err == nil {
		t.current.Store(conf)
	}
	return err
}

// Config returns the newest configuration, which is not changed any more: Config.TLS.
func (t *TLS) Config() *tls.Config { return t.current.Load() }

// Revocation returns what Config.Revocation needs. It is nil if certificates are not verified or
// tlsDisableCertificateRevocationCheck is set.
func (t *TLS) Revocation() *ocsp.Checker { return t.checker }

// tlsConfig reads the files and returns the configuration and what checks revocation.
//
// tlsAllowInvalidCertificates accepts any certificate for the server's name,
// tlsAllowInvalidHostnames any trusted certificate for whatever name, tlsInsecure any
// certificate.
func tlsConfig(opt connstring.TLS) (*tls.Config, *ocsp.Checker, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if opt.CAFile != "" {
		roots, err := readAuthorities(opt.CAFile)
		if err != nil {
			return nil, nil, fmt.Errorf("tlsCAFile: %w", err)
		}
		conf.RootCAs = roots
	}
	if opt.CertificateKeyFile != "" {
		cert, err := loadKeyPair(opt.CertificateKeyFile, opt.CertificateKeyFilePassword)
		if err != nil {
			return nil, nil, fmt.Errorf("tlsCertificateKeyFile: %w", err)
		}
		// Return this certificate always: crypto/tls would withhold it if its issuer is not among
		// those that the server names, which need not include intermediate ones.
		conf.GetClientCertificate = func(
			*tls.CertificateRequestInfo,
		) (*tls.Certificate, error) {
			return &cert, nil
		}
	} else if opt.CertificateKeyFilePassword != "" {
		return nil, nil, errors.New("tlsCertificateKeyFilePassword needs " +
			"tlsCertificateKeyFile")
	}
	v := verification{
		chain: !opt.Insecure && !opt.AllowInvalidCertificates,
		name:  !opt.Insecure && !opt.AllowInvalidHostnames,
		roots: conf.RootCAs,
	}
	if !v.chain || !v.name {
		conf.InsecureSkipVerify = true // verification does the rest
		conf.VerifyConnection = v.verify
	}
	if !v.chain || opt.DisableCertificateRevocationCheck {
		return conf, nil, nil
	}
	return conf, ocsp.New(ocsp.Config{DisableEndpointCheck: opt.DisableOCSPEndpointCheck}), nil
}

// readAuthorities reads the certificates of a PEM file. It skips unreadable ones, as long as one
// can be read.
func readAuthorities(file string) (*x509.CertPool, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	found, unread := 0, error(nil)
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			unread = err
			continue
		}
		pool.AddCert(cert)
		found++
	}
	switch {
	case found > 0:
		return pool, nil
	case unread != nil:
		return nil, fmt.Errorf("%s has no certificate that can be read: %w", file, unread)
	default:
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
}

// verification does the part of the usual verification that the options leave.
type verification struct {
	chain, name bool
	roots       *x509.CertPool
}

func (v verification) verify(cs tls.ConnectionState) error {
	var err error
	if v.name {
		err = cs.PeerCertificates[0].VerifyHostname(cs.ServerName) // a server always presents one
	}
	if err == nil && v.chain {
		_, err = verifyChain(cs, v.roots)
	}
	if err != nil {
		return &tls.CertificateVerificationError{
			UnverifiedCertificates: cs.PeerCertificates, Err: err,
		}
	}
	return nil
}

// verifyChain returns the chain from the server's certificate to one of the roots, for whatever
// name.
func verifyChain(cs tls.ConnectionState, roots *x509.CertPool) ([]*x509.Certificate, error) {
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, cert := range cs.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	chains, err := cs.PeerCertificates[0].Verify(opts)
	if err != nil {
		return nil, err
	}
	return chains[0], nil
}

func encrypt(
	ctx context.Context, addr address.Address, cfg Config, transport net.Conn,
) (net.Conn, error) {
	if cfg.TLS == nil {
		return transport, nil
	}
	conf := cfg.TLS().Clone()
	if conf.ServerName == "" {
		conf.ServerName = serverName(addr)
	}
	if verify := conf.VerifyConnection; verify != nil {
		conf.VerifyConnection = func(cs tls.ConnectionState) error {
			cs.ServerName = conf.ServerName // crypto/tls leaves it empty for IP addresses
			return verify(cs)
		}
	}
	nc := tls.Client(transport, conf)
	if err := nc.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if err := checkRevocation(ctx, cfg.Revocation, nc.ConnectionState(), conf.RootCAs); err != nil {
		return nil, &certificateError{err}
	}
	return nc, nil
}

// certificateError marks an error about a certificate after the TLS handshake. Its timeouts, too,
// are not the server's.
type certificateError struct{ err error }

func (e *certificateError) Error() string { return e.err.Error() }

func (e *certificateError) Unwrap() error { return e.err }

// checkRevocation checks the chain after the handshake, since crypto/tls gives its callbacks no
// context and responders may have to be asked.
func checkRevocation(
	ctx context.Context, checker *ocsp.Checker, cs tls.ConnectionState, roots *x509.CertPool,
) error {
	if checker == nil {
		return nil
	}
	var chain []*x509.Certificate
	if len(cs.VerifiedChains) > 0 {
		chain = cs.VerifiedChains[0]
	} else { // with tlsAllowInvalidHostnames
		var err error
		if chain, err = verifyChain(cs, roots); err != nil {
			return err
		}
	}
	return checker.Check(ctx, chain, cs.OCSPResponse)
}

// serverName returns the name for the server's certificate and, unless it is an IP address, the
// SNI: the host of the connection string, also through a proxy. A Unix domain socket has no host
// and is localhost.
func serverName(addr address.Address) string {
	if addr.Network() == "unix" {
		return "localhost"
	}
	host := addr.Host()
	if strings.Contains(host, ":") {
		host, _, _ = strings.Cut(host, "%") // certificates have no zone of an IPv6 address
	}
	return host
}
