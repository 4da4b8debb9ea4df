package caller

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// CertificateName chooses a name in a client certificate.
type CertificateName string

// The names that can be chosen. The zero value chooses none.
const (
	Subject    CertificateName = "subject" // the whole distinguished name, as in RFC 2253
	CommonName CertificateName = "commonName"
	DNSName    CertificateName = "dns"
	URI        CertificateName = "uri"
	Email      CertificateName = "email"
)

// CertificateNames returns all names that can be chosen.
func CertificateNames() []CertificateName {
	return []CertificateName{Subject, CommonName, DNSName, URI, Email}
}

// kindCertificateName begins the principal of a client certificate.
const kindCertificateName = "cert:"

// fromCertificate returns whose certificate c is. TLS has verified it when the connection was
// made; its time is checked again, since connections last.
func fromCertificate(c *x509.Certificate, name CertificateName, now time.Time) (*Identity, error) {
	if now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return nil, invalid("the client certificate has expired")
	}
	var names []string
	switch name {
	case Subject:
		names = []string{c.Subject.String()}
	case CommonName:
		names = []string{c.Subject.CommonName}
	case DNSName:
		names = c.DNSNames
	case URI:
		for _, u := range c.URIs {
			names = append(names, u.String())
		}
	case Email:
		names = c.EmailAddresses
	default:
		return nil, invalid("client certificates do not count here")
	}
	if len(slices.Compact(names)) != 1 {
		return nil, invalid(fmt.Sprintf("the client certificate has %d names of the kind %s: it "+
			"must have one", len(names), name))
	}
	return newIdentity(kindCertificateName, names[0], c.NotAfter)
}
