// Package caller decides who calls: it turns what a client presents (an API key, a JSON Web Token,
// a client certificate) into an Identity, or refuses it. The listeners of gRPC and REST call it
// once for each call, before they read the request. It does not decide what a caller may do.
//
// Whether a credential counts is a pure function on values: findKey, verifyToken, fromCertificate.
// An Authenticator applies them, counts failures for each address, and gets the keys of the
// issuer of tokens over the network.
package caller

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Identity says who a client is. It does not change.
type Identity struct {
	// Principal names the client. It begins with the kind of the credential ("key:", "jwt:" or
	// "cert:"), so that no client can take the name of a client of another kind.
	Principal string
	// Expires is the time from which the credential does not count; zero means never.
	Expires time.Time
	// Groups lists the groups that the client is in. Each begins with the kind of the credential,
	// as Principal does.
	Groups []string
	// Claims has what the credential says of the client, as encoding/json reads it: the claims of
	// a token, those in the line of an API key, or the names in a certificate.
	Claims map[string]any

	key    *apiKey // the API key; nil: another credential, or only ref says which it is
	ref    string  // see KeyRef
	digest atomic.Pointer[Digest]
}

// Digest tells identities apart by what they say of a client, without the time.
type Digest [sha256.Size]byte

// Digest returns the digest of the principal, the groups and the claims, of nil too.
func (id *Identity) Digest() Digest {
	if id == nil {
		return Digest{}
	}
	if d := id.digest.Load(); d != nil {
		return *d
	}
	// In Go's syntax texts are quoted, values have their types, and the keys of maps their order.
	all := fmt.Appendf(nil, "%#v", []any{id.Principal, id.Groups, id.Claims})
	d := Digest(sha256.Sum256(all))
	id.digest.Store(&d)
	return d
}

// maxPrincipalBytes limits a principal, which logs and lists of cursors show.
const maxPrincipalBytes = 256

// newIdentity returns the identity of a client by its kind and name. It fails if the name cannot
// be a principal.
func newIdentity(kind, name string, expires time.Time) (*Identity, error) {
	if name == "" || len(kind)+len(name) > maxPrincipalBytes || !utf8.ValidString(name) {
		return nil, invalid("the name in the credential is empty, too long or not UTF-8")
	}
	return &Identity{Principal: kind + name, Expires: expires}, nil
}

// groups returns the names of groups as an identity of the kind has them.
func groups(kind string, names []string) (groups []string) {
	for _, name := range names {
		groups = append(groups, kind+name)
	}
	return groups
}

// Problem says why a client is refused.
type Problem uint8

// The problems. The zero value is that of a client that presents nothing.
const (
	Missing     Problem = iota
	Invalid             // the credential does not count
	TooMany             // too many failed attempts came from the client's address
	Unavailable         // the issuer's keys cannot be had at the moment
	Busy                // more new tokens are to be verified than the gateway has time for
)

// Error refuses a client. Its message has no part of a credential.
type Error struct {
	Problem Problem
	Message string
}

func (e *Error) Error() string { return e.Message }

func invalid(message string) error { return &Error{Problem: Invalid, Message: message} }

var (
	errMissing = &Error{
		Message: "this call needs credentials: send Authorization: Bearer and an API key or a " +
			"token, or present a client certificate",
	}
	errTooMany = &Error{
		Problem: TooMany,
		Message: "too many failed attempts to authenticate from this address",
	}
)

// Presented holds what a client presents with a call.
type Presented struct {
	// Authorization and APIKey have the values of the headers authorization, and api-key and
	// apiKey.
	Authorization, APIKey []string
	// Certificate is the client's certificate if TLS has verified it; nil: none.
	Certificate *x509.Certificate
	// Address is where the client is; the zero value for clients without an IP address.
	Address netip.Addr
}

// Config says which credentials count. At least one kind does.
type Config struct {
	// Keys has the API keys; nil: they do not count. Replace changes them.
	Keys *KeyTable
	// Tokens describes the JSON Web Tokens that count; nil: none.
	Tokens *TokenConfig
	// CertificateName chooses the name in a client certificate that becomes the principal; the
	// zero value means that certificates do not count.
	CertificateName CertificateName
}

// Authenticator finds out who calls. It is safe for concurrent use.
type Authenticator struct {
	keys        atomic.Pointer[KeyTable]
	since       atomic.Pointer[time.Time] // of Replace
	tokens      *tokens                   // nil: none is accepted
	certificate CertificateName
	// certificates has the identities of the certificates of connections, so that each call of a
	// connection has the same one.
	certificates *lru.Cache[*x509.Certificate, *Identity]
	failures     *throttle

	mu        sync.Mutex
	followers []func()
}

// New returns an authenticator. The caller must call Close if there are tokens.
func New(cfg Config) *Authenticator {
	certificates, err := lru.New[*x509.Certificate, *Identity](maxVerified)
	if err != nil {
		panic("bug: caller: " + err.Error())
	}
	a := &Authenticator{
		certificate: cfg.CertificateName, certificates: certificates, failures: newThrottle(),
	}
	a.keys.Store(cfg.Keys)
	if cfg.Tokens != nil {
		a.tokens = newTokens(*cfg.Tokens)
	}
	return a
}

// SignIn returns the endpoints of the issuer at which people sign in. It blocks while nothing is
// known of the issuer and it is asked, or until ctx ends. It needs tokens in the Config; its errors
// are those of Authenticate.
func (a *Authenticator) SignIn(ctx context.Context) (Endpoints, error) {
	return a.tokens.keys.signIn(ctx)
}

// Close ends the fetching of the issuer's keys, and waits until it has ended.
func (a *Authenticator) Close() {
	if a.tokens != nil {
		a.tokens.keys.close()
	}
}

// Authenticate returns who presents p. It blocks only while it gets the issuer's keys: until ctx
// ends, at most fetchTime. Its errors are *Error, and the cause of ctx.
func (a *Authenticator) Authenticate(ctx context.Context, p *Presented) (*Identity, error) {
	now := time.Now()
	id, err := a.authenticate(ctx, p, now)
	if e, ok := errors.AsType[*Error](err); ok && e.Problem == Invalid &&
		!a.failures.fail(p.Address, now) {
		return nil, errTooMany
	}
	return id, err
}

func (a *Authenticator) authenticate(
	ctx context.Context, p *Presented, now time.Time,
) (*Identity, error) {
	c, err := choose(p)
	if err != nil {
		return nil, err
	}
	switch c.kind {
	case kindKey:
		return findKey(a.keys.Load(), c.text, now)
	case kindToken:
		if a.tokens == nil {
			return nil, invalid("the credential is not an API key, which begins with " + keyPrefix +
				", and this gateway accepts no tokens")
		}
		return a.tokens.identify(ctx, c.text, now, func() bool {
			return a.failures.exhausted(p.Address, now)
		})
	case kindCertificate:
		return a.fromCertificate(p.Certificate, now)
	default:
		return nil, errMissing
	}
}

// fromCertificate returns whose certificate c is, as the same value for each call of a connection.
func (a *Authenticator) fromCertificate(c *x509.Certificate, now time.Time) (*Identity, error) {
	if id, ok := a.certificates.Get(c); ok && counts(c, now) {
		return id, nil
	}
	id, err := fromCertificate(c, a.certificate, now)
	if err == nil {
		a.certificates.Add(c, id)
	}
	return id, err
}
