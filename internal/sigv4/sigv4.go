// Package sigv4 checks signatures of AWS (Signature Version 4) for tests, as a service does: from
// what a request says and the secret key that belongs to it. It is made from the documented
// algorithm and shares nothing with the signer.
package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Request holds what was signed. Header has the names in lower case.
type Request struct {
	Method, Path, Query string
	Header              map[string]string
	Body                string
}

// Credential holds what an Authorization header says besides the signature.
type Credential struct {
	AccessKeyID, Date, Region, Service string
	SignedHeaders                      []string
}

// Verify checks the request's Authorization header. Secret returns the secret key of an access key
// id, or "" if it is not known.
func Verify(r Request, secret func(accessKeyID string) string) (Credential, error) {
	c, signature, err := parse(r.Header["authorization"])
	if err != nil {
		return c, err
	}
	key := secret(c.AccessKeyID)
	if key == "" {
		return c, fmt.Errorf("unknown access key id %q", c.AccessKeyID)
	}
	if !strings.HasPrefix(r.Header["x-amz-date"], c.Date+"T") {
		return c, errors.New("the credential's date is not the request's")
	}
	canonical, err := r.canonical(c.SignedHeaders)
	if err != nil {
		return c, err
	}
	scope := c.Date + "/" + c.Region + "/" + c.Service + "/aws4_request"
	text := "AWS4-HMAC-SHA256\n" + r.Header["x-amz-date"] + "\n" + scope + "\n" + hash(canonical)
	k := mac([]byte("AWS4"+key), c.Date)
	for _, part := range []string{c.Region, c.Service, "aws4_request"} {
		k = mac(k, part)
	}
	if want := hex.EncodeToString(mac(k, text)); signature != want {
		return c, fmt.Errorf("the signature is %s, not %s", signature, want)
	}
	return c, nil
}

func parse(authorization string) (c Credential, signature string, err error) {
	rest, ok := strings.CutPrefix(authorization, "AWS4-HMAC-SHA256 ")
	if !ok {
		return c, "", errors.New("the Authorization header has another algorithm")
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ", ") {
		k, v, _ := strings.Cut(part, "=")
		fields[k] = v
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[4] != "aws4_request" {
		return c, "", fmt.Errorf("the credential %q has no scope", fields["Credential"])
	}
	signed := strings.Split(fields["SignedHeaders"], ";")
	c = Credential{scope[0], scope[1], scope[2], scope[3], signed}
	return c, fields["Signature"], nil
}

// canonical returns the canonical request. A path and a query are taken as they are: the tests' are
// canonical.
func (r Request) canonical(signed []string) (string, error) {
	if !slices.IsSorted(signed) {
		return "", fmt.Errorf("the signed headers %q are not in order", signed)
	}
	lines := []string{r.Method, r.Path, r.Query}
	for _, name := range signed {
		v, ok := r.Header[name]
		if !ok {
			return "", fmt.Errorf("the signed header %q is not there", name)
		}
		lines = append(lines, name+":"+strings.Join(strings.Fields(v), " "))
	}
	lines = append(lines, "", strings.Join(signed, ";"), hash(r.Body))
	return strings.Join(lines, "\n"), nil
}

func hash(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}
