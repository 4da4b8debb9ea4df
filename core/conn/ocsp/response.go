package ocsp

import (
	"bytes"
	"crypto"
	_ "crypto/sha1" // responders may use this hash
	_ "crypto/sha256"
	_ "crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	xocsp "golang.org/x/crypto/ocsp"
)

// maxAge is how long a response without nextUpdate is valid. RFC 6960 wants it to be
// "sufficiently recent": without a limit, a response from before the revocation could be stapled
// forever.
const maxAge = 24 * time.Hour

// Response holds a responder's statement about one certificate.
type Response struct {
	Status     Finding // Good, Revoked or Unknown
	ThisUpdate time.Time
	NextUpdate time.Time // zero where the responder always has newer information
	RevokedAt  time.Time
	Reason     int // as RFC 5280 numbers it
}

// Parse reads a response in DER and verifies it as RFC 6960 section 3.2 demands: it is about
// cert, it is signed by issuer or a signer that issuer has authorized, and it is valid now. There
// is no tolerance for clock skew.
func Parse(der []byte, cert, issuer *x509.Certificate, now time.Time) (Response, error) {
	// Given an issuer, the library accepts any certificate of that issuer as the signer's.
	// Without one it only verifies the signature with the certificate in the response;
	// checkSigner does the rest.
	r, err := xocsp.ParseResponseForCert(der, cert, nil)
	if err != nil {
		return Response{}, err
	}
	if err := checkCertID(r, issuer); err != nil {
		return Response{}, err
	}
	if err := checkSigner(r, issuer, now); err != nil {
		return Response{}, err
	}
	if err := checkTime(r, now); err != nil {
		return Response{}, err
	}
	out := Response{Status: Unknown, ThisUpdate: r.ThisUpdate, NextUpdate: r.NextUpdate}
	switch r.Status {
	case xocsp.Good:
		out.Status = Good
	case xocsp.Revoked:
		out.Status, out.RevokedAt, out.Reason = Revoked, r.RevokedAt, r.RevocationReason
	}
	return out, nil
}

// responseData holds the beginning of the signed part, up to what the library does not show.
type responseData struct {
	Version     int `asn1:"optional,default:0,explicit,tag:0"`
	ResponderID asn1.RawValue
	ProducedAt  time.Time `asn1:"generalized"`
	Responses   []singleResponse
}

type singleResponse struct{ CertID certID }

type certID struct {
	HashAlgorithm pkix.AlgorithmIdentifier
	NameHash      []byte
	IssuerKeyHash []byte
	SerialNumber  *big.Int
}

// checkCertID verifies that the response, which the library chose by its serial number, is about
// a certificate of issuer.
func checkCertID(r *xocsp.Response, issuer *x509.Certificate) error {
	var data responseData
	if _, err := asn1.Unmarshal(r.TBSResponseData, &data); err != nil {
		return err
	}
	i := slices.IndexFunc(data.Responses, func(s singleResponse) bool {
		return s.CertID.SerialNumber.Cmp(r.SerialNumber) == 0
	})
	name, key, err := issuerHashes(issuer, r.IssuerHash)
	if err != nil {
		return err
	}
	if i < 0 || !bytes.Equal(data.Responses[i].CertID.NameHash, name) ||
		!bytes.Equal(data.Responses[i].CertID.IssuerKeyHash, key) {
		return errors.New("it is for a certificate of another issuer")
	}
	return nil
}

// issuerHashes returns the hashes of the issuer's name and of its public key.
func issuerHashes(issuer *x509.Certificate, hash crypto.Hash) (name, key []byte, err error) {
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		PublicKey asn1.BitString
	}
	if _, err := asn1.Unmarshal(issuer.RawSubjectPublicKeyInfo, &info); err != nil {
		return nil, nil, err
	}
	h := hash.New()
	h.Write(issuer.RawSubject)
	name = h.Sum(nil)
	h.Reset()
	h.Write(info.PublicKey.RightAlign())
	return name, h.Sum(nil), nil
}

// checkSigner verifies that the signer is the issuer itself or has a certificate for this purpose
// from the issuer. It does not check that certificate for revocation.
func checkSigner(r *xocsp.Response, issuer *x509.Certificate, now time.Time) error {
	signer := r.Certificate
	if signer == nil {
		return r.CheckSignatureFrom(issuer)
	}
	if bytes.Equal(signer.RawSubject, issuer.RawSubject) &&
		bytes.Equal(signer.RawSubjectPublicKeyInfo, issuer.RawSubjectPublicKeyInfo) {
		return nil
	}
	fault := ""
	switch {
	case !bytes.Equal(signer.RawIssuer, issuer.RawSubject) ||
		signer.CheckSignatureFrom(issuer) != nil:
		fault = "was not issued by the authority that issued the server's"
	case !slices.Contains(signer.ExtKeyUsage, x509.ExtKeyUsageOCSPSigning):
		fault = "is not valid for signing OCSP responses"
	case signer.KeyUsage != 0 && signer.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		fault = "is not valid for signatures"
	case len(signer.UnhandledCriticalExtensions) > 0:
		fault = "has an unknown critical extension"
	case now.Before(signer.NotBefore) || now.After(signer.NotAfter):
		fault = "has expired or is not valid yet"
	}
	if fault != "" {
		return fmt.Errorf("the certificate of its signer %s", fault)
	}
	return nil
}

func checkTime(r *xocsp.Response, now time.Time) error {
	switch {
	case now.Before(r.ThisUpdate):
		return fmt.Errorf("it is valid from %s", stamp(r.ThisUpdate))
	case !r.NextUpdate.IsZero() && !now.Before(r.NextUpdate):
		return fmt.Errorf("it expired at %s", stamp(r.NextUpdate))
	case r.NextUpdate.IsZero() && now.Sub(r.ThisUpdate) > maxAge:
		return fmt.Errorf("it was made at %s and has no nextUpdate",
			stamp(r.ThisUpdate))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// tlsFeature is the extension of RFC 7633; statusRequest is the TLS extension whose number it
// then lists.
var tlsFeature = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}

const statusRequest = 5

// MustStaple reports whether cert demands that its server staples a response. An unreadable
// extension counts as a demand.
func MustStaple(cert *x509.Certificate) bool {
	for _, ext := range cert.Extensions {
		if !ext.Id.Equal(tlsFeature) {
			continue
		}
		var features []int
		_, err := asn1.Unmarshal(ext.Value, &features)
		return err != nil || slices.Contains(features, statusRequest)
	}
	return false
}
