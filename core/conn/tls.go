package conn

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/mooringdb/mooring/core/connstring"
)

// TLSConfig reads the files that the options name and makes the configuration for Config.TLS. It does not ask whether
// TLS is on (connstring.Config.UseTLS does). Revocation is not looked for yet, whatever the options say.
//
// tlsAllowInvalidCertificates accepts any certificate that is for the server's name, tlsAllowInvalidHostnames any
// trusted certificate whatever its name, tlsInsecure any at all.
func TLSConfig(opt connstring.TLS) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if opt.CAFile != "" {
		data, err := os.ReadFile(opt.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tlsCAFile: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("tlsCAFile: %s has no certificate", opt.CAFile)
		}
	}
	if opt.CertificateKeyFile != "" {
		cert, err := loadKeyPair(opt.CertificateKeyFile, opt.CertificateKeyFilePassword)
		if err != nil {
			return nil, fmt.Errorf("tlsCertificateKeyFile: %w", err)
		}
		conf.Certificates = []tls.Certificate{cert}
	} else if opt.CertificateKeyFilePassword != "" {
		return nil, errors.New("tlsCertificateKeyFilePassword: there is no tlsCertificateKeyFile")
	}
	v := verification{
		chain: !opt.Insecure && !opt.AllowInvalidCertificates,
		name:  !opt.Insecure && !opt.AllowInvalidHostnames,
		roots: conf.RootCAs,
	}
	if !v.chain || !v.name {
		conf.InsecureSkipVerify = true // verification does what is left to do
		conf.VerifyConnection = v.verify
	}
	return conf, nil
}

// verification is the part of the usual verification that the options leave.
type verification struct {
	chain, name bool
	roots       *x509.CertPool
}

func (v verification) verify(cs tls.ConnectionState) error {
	leaf := cs.PeerCertificates[0] // a server always presents one
	if v.name {
		if err := leaf.VerifyHostname(cs.ServerName); err != nil {
			return err
		}
	}
	if !v.chain {
		return nil
	}
	opts := x509.VerifyOptions{Roots: v.roots, Intermediates: x509.NewCertPool()}
	for _, cert := range cs.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	_, err := leaf.Verify(opts)
	return err
}

// loadKeyPair reads a file that has the certificate, its chain and the key, in any order.
func loadKeyPair(file, password string) (tls.Certificate, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := findKey(data, password)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", file, err)
	}
	cert, err := tls.X509KeyPair(data, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", file, err)
	}
	return cert, nil
}

// findKey gives the private key among the PEM blocks, in the clear.
func findKey(data []byte, password string) ([]byte, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY":
			if x509.IsEncryptedPEMBlock(block) { //nolint:staticcheck // insecure by its design, and what such files are
				return decryptKey(block, password)
			}
			return pem.EncodeToMemory(block), nil
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("keys encrypted as PKCS #8 are not supported: decrypt it, or use the traditional format")
		}
	}
	return nil, errors.New("there is no private key")
}

func decryptKey(block *pem.Block, password string) ([]byte, error) {
	if password == "" {
		return nil, errors.New("the key is encrypted and tlsCertificateKeyFilePassword is not given")
	}
	der, err := x509.DecryptPEMBlock(block, []byte(password)) //nolint:staticcheck // see findKey
	if err != nil {
		return nil, errors.New("the key cannot be decrypted with tlsCertificateKeyFilePassword")
	}
	return pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: der}), nil
}
