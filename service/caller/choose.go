package caller

import (
	"slices"
	"strings"
)

// kind distinguishes credentials.
type kind uint8

const (
	kindNone kind = iota
	kindKey
	kindToken
	kindCertificate
)

// credential holds the credential of a call that decides.
type credential struct {
	kind kind
	text string // of a key or token
}

// choose returns the credential that decides about a call: that of Authorization, else the API
// key, else the certificate. If that credential does not count, the others do not help.
func choose(p *Presented) (credential, error) {
	switch {
	case len(p.Authorization) > 1 || len(p.APIKey) > 1:
		return credential{}, invalid("the call has the same kind of credential more than once")
	case len(p.Authorization) == 1:
		scheme, text, _ := strings.Cut(p.Authorization[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return credential{}, invalid("Authorization must be Bearer, a space, and a token or " +
				"an API key")
		}
		text = strings.Trim(text, " ")
		if strings.HasPrefix(text, keyPrefix) {
			return credential{kindKey, text}, nil
		}
		return credential{kindToken, text}, nil
	case len(p.APIKey) == 1:
		return credential{kindKey, p.APIKey[0]}, nil
	case p.Certificate != nil:
		return credential{kind: kindCertificate}, nil
	}
	return credential{}, nil
}

// Join returns the values of two headers. It changes neither.
func Join(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	return slices.Concat(a, b)
}
