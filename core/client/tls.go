package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/mooringdb/mooring/core/connstring"
)

// tlsConfig is what the tls options ask for, nil without TLS. Revocation is not checked yet, neither by OCSP nor by lists.
func tlsConfig(cfg *connstring.Config) (*tls.Config, error) {
	if !cfg.UseTLS() {
		return nil, nil
	}
	t := cfg.TLS
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		roots, err := readRoots(t.CAFile)
		if err != nil {
			return nil, err
		}
		out.RootCAs = roots
	}
	if t.CertificateKeyFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertificateKeyFile, t.CertificateKeyFile)
		if err != nil {
			return nil, fmt.Errorf("tlsCertificateKeyFile: %w", err)
		}
		out.Certificates = []tls.Certificate{cert}
	}
	switch {
	case t.Insecure || t.AllowInvalidCertificates:
		out.InsecureSkipVerify = true //nolint:gosec // what the user asked for
	case t.AllowInvalidHostnames:
		out.InsecureSkipVerify = true //nolint:gosec // VerifyConnection checks all but the name
		out.VerifyConnection = verifyChain(out.RootCAs)
	}
	return out, nil
}

func readRoots(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tlsCAFile: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tlsCAFile: %s has no certificate in PEM", file)
	}
	return roots, nil
}

// verifyChain checks that the server's certificate comes from one of the roots, whatever its name is.
func verifyChain(roots *x509.CertPool) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the server sent no certificate")
		}
		opt := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range s.PeerCertificates[1:] {
			opt.Intermediates.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(opt)
		return err
	}
}
