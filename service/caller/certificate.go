package caller

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
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
	if !counts(c, now) {
		return nil, invalid("the client certificate has expired")
	}
	var names []string
	switch name {
	case Subject:
		names = []string{distinguishedName(c)}
	case CommonName:
		names = commonNames(c)
	case DNSName:
		names = slices.Clone(c.DNSNames)
	case URI:
		for _, u := range c.URIs {
			names = append(names, u.String())
		}
	case Email:
		names = slices.Clone(c.EmailAddresses)
	default:
		return nil, invalid("this gateway accepts no client certificates")
	}
	if names = slices.Compact(names); len(names) != 1 {
		return nil, invalid(fmt.Sprintf("the client certificate has %d names of the kind %s: it "+
			"must have one", len(names), name))
	}
	id, err := newIdentity(kindCertificateName, names[0], c.NotAfter)
	if err != nil {
		return nil, err
	}
	id.Groups = groups(kindCertificateName, c.Subject.OrganizationalUnit)
	id.Claims = namesOf(c)
	return id, nil
}

// namesOf returns the names in a certificate as claims.
func namesOf(c *x509.Certificate) map[string]any {
	claims := map[string]any{}
	add := func(name string, texts []string) {
		list := []any{}
		for _, text := range texts {
			list = append(list, text)
		}
		claims[name] = list
	}
	add(string(CommonName), commonNames(c))
	add(string(DNSName), c.DNSNames)
	add(string(Email), c.EmailAddresses)
	add("organization", c.Subject.Organization)
	add("organizationalUnit", c.Subject.OrganizationalUnit)
	var uris []string
	for _, u := range c.URIs {
		uris = append(uris, u.String())
	}
	add(string(URI), uris)
	return claims
}

// counts reports whether a certificate counts at a time.
func counts(c *x509.Certificate, now time.Time) bool {
	return !now.Before(c.NotBefore) && !now.After(c.NotAfter)
}

// distinguishedName returns the subject of c. The text of c.Subject would have only the last one of
// several common names, so that two clients could have one name.
func distinguishedName(c *x509.Certificate) string {
	var subject pkix.RDNSequence
	if rest, err := asn1.Unmarshal(c.RawSubject, &subject); err != nil || len(rest) > 0 {
		return "" // x509 has parsed it, so this does not happen
	}
	return subject.String()
}

// commonNames returns all common names of the subject of c.
func commonNames(c *x509.Certificate) (names []string) {
	for _, attribute := range c.Subject.Names {
		if name, ok := attribute.Value.(string); ok && attribute.Type.Equal(commonName) {
			names = append(names, name)
		}
	}
	return names
}

// commonName identifies the attribute CN (RFC 4519, 2.3).
var commonName = asn1.ObjectIdentifier{2, 5, 4, 3}
