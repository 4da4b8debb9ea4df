package caller

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	lru "github.com/hashicorp/golang-lru/v2"
)

// TokenConfig describes the JSON Web Tokens that count.
type TokenConfig struct {
	// Issuer is the URL of the issuer, which has its discovery document below it and is each
	// token's iss.
	Issuer string
	// Audience must be in each token's aud.
	Audience string
	// Algorithms lists the signature algorithms that count, of Algorithms.
	Algorithms []string
	// Skew is how far the clocks of issuer and gateway may differ.
	Skew time.Duration
	// Claim names the claim with the principal's name.
	Claim string
	// Transport makes the requests to the issuer; nil: http.DefaultTransport.
	Transport http.RoundTripper
	// Fetched is called after each fetch of the issuer's keys, with their number or the reason of
	// its failure. It may be nil.
	Fetched func(keys int, err error)
}

// Algorithms returns the signature algorithms that a TokenConfig may list. All are asymmetric: the
// gateway has no secret in common with an issuer, and a public key is none.
func Algorithms() []string {
	return []string{
		"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
	}
}

const (
	// kindTokenName begins the principal of a token.
	kindTokenName = "jwt:"
	// maxTokenBytes limits a token. Those of large organisations have about 8 KiB.
	maxTokenBytes = 16 << 10
	// maxVerified is how many tokens, and how many certificates, are remembered, so that a client's
	// next calls do not cost a verification.
	maxVerified = 10_000
)

// tokens verifies tokens with the issuer's keys, and remembers those that count.
type tokens struct {
	cfg        TokenConfig
	algorithms []jose.SignatureAlgorithm
	keys       *issuer
	// verified has the tokens that count by their hashes.
	verified *lru.Cache[[sha256.Size]byte, verified]
	// known has the principals of tokens that have counted.
	known  *lru.Cache[string, struct{}]
	budget budget // of verifications
}

// verified holds the result of a verification, which counts as long as the keys do.
type verified struct {
	identity *Identity
	keys     *keySet
}

func newTokens(cfg TokenConfig) *tokens {
	cache, err := lru.New[[sha256.Size]byte, verified](maxVerified)
	if err != nil {
		panic("bug: caller: " + err.Error())
	}
	known, err := lru.New[string, struct{}](maxVerified)
	if err != nil {
		panic("bug: caller: " + err.Error())
	}
	t := &tokens{cfg: cfg, keys: newIssuer(&cfg), verified: cache, known: known}
	for _, name := range cfg.Algorithms {
		t.algorithms = append(t.algorithms, jose.SignatureAlgorithm(name))
	}
	return t
}

// identify returns whose token text is. It gets the issuer's keys if it has none, or none with the
// token's id, and waits until the token may be verified. overdrawn reports whether the client's
// address has failed too often.
func (t *tokens) identify(
	ctx context.Context, text string, now time.Time, overdrawn func() bool,
) (*Identity, error) {
	if len(text) > maxTokenBytes {
		return nil, invalid("the token is too long")
	}
	sum := sha256.Sum256([]byte(text))
	keys := t.keys.current(ctx, now)
	if v, ok := t.verified.Get(sum); ok && v.keys == keys {
		if !now.Before(v.identity.Expires) {
			return nil, errTokenExpired
		}
		return v.identity, nil
	}
	p, err := t.parse(text, now)
	if err != nil {
		return nil, err
	}
	candidates := p.candidates(keys)
	if len(candidates) == 0 {
		if keys, err = t.keys.newer(ctx, keys, now); err != nil {
			return nil, err
		}
		candidates = p.candidates(keys)
	}
	if len(candidates) == 0 {
		return nil, errUnknownKey
	}
	known := t.known.Contains(p.identity.Principal)
	if err := t.budget.wait(ctx, costOf(candidates), known, overdrawn()); err != nil {
		return nil, err
	}
	if err := p.verify(candidates); err != nil {
		return nil, err
	}
	t.verified.Add(sum, verified{p.identity, keys})
	t.known.Add(p.identity.Principal, struct{}{})
	return p.identity, nil
}

var (
	errUnknownKey   = &Error{Problem: Invalid, Message: "the token's key is not the issuer's"}
	errMalformed    = &Error{Problem: Invalid, Message: "the token is malformed"}
	errSignature    = &Error{Problem: Invalid, Message: "the token's signature is wrong"}
	errTokenExpired = &Error{Problem: Invalid, Message: "the token has expired"}
)

// parsed holds a token that counts if a key of the issuer has signed it.
type parsed struct {
	token    *jwt.JSONWebToken
	identity *Identity // as the token has it
}

// parse reads a token. It checks all that costs little before the signature: what it says of the
// client counts only after verify.
func (t *tokens) parse(text string, now time.Time) (*parsed, error) {
	token, err := jwt.ParseSigned(text, t.algorithms)
	if _, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
		return nil, invalid("the token is signed with an algorithm that the gateway refuses")
	}
	if err != nil || len(token.Headers) != 1 {
		return nil, errMalformed
	}
	var claims jwt.Claims
	var all map[string]any
	if err := token.UnsafeClaimsWithoutVerification(&claims, &all); err != nil {
		return nil, errMalformed
	}
	id, err := t.check(&claims, all, now)
	if err != nil {
		return nil, err
	}
	return &parsed{token, id}, nil
}

// candidates returns the keys that can have signed the token. A nil set has none.
func (p *parsed) candidates(keys *keySet) []jose.JSONWebKey {
	header := p.token.Headers[0]
	return keys.find(header.KeyID, header.Algorithm)
}

// verify decides whether one of the keys has signed the token.
func (p *parsed) verify(candidates []jose.JSONWebKey) error {
	var err error
	for _, k := range candidates {
		if err = p.token.Claims(k.Key); err == nil {
			return nil
		}
	}
	if errors.Is(err, jose.ErrCryptoFailure) {
		return errSignature
	}
	return errMalformed
}

// check decides whether the claims of a token count, and returns whom they name.
func (t *tokens) check(claims *jwt.Claims, all map[string]any, now time.Time) (*Identity, error) {
	expected := jwt.Expected{
		Issuer: t.cfg.Issuer, AnyAudience: jwt.Audience{t.cfg.Audience}, Time: now,
	}
	err := claims.ValidateWithLeeway(expected, t.cfg.Skew)
	switch {
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return nil, invalid("the token has another issuer")
	case errors.Is(err, jwt.ErrInvalidAudience):
		return nil, invalid("the token is for another audience")
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return nil, invalid("the token is not valid yet: compare the clocks")
	case errors.Is(err, jwt.ErrExpired):
		return nil, errTokenExpired
	case err != nil:
		return nil, errMalformed
	case claims.Expiry == nil:
		return nil, invalid("the token has no expiry (exp)")
	}
	name, _ := all[t.cfg.Claim].(string)
	if name == "" {
		return nil, invalid(fmt.Sprintf("the claim %s of the token must be a string", t.cfg.Claim))
	}
	id, err := newIdentity(kindTokenName, name, claims.Expiry.Time().Add(t.cfg.Skew))
	if err != nil {
		return nil, err
	}
	id.Claims, id.Groups = all, groups(kindTokenName, texts(all["groups"]))
	return id, nil
}

// texts returns the texts in a claim that is an array.
func texts(claim any) (list []string) {
	items, _ := claim.([]any)
	for _, item := range items {
		if text, ok := item.(string); ok {
			list = append(list, text)
		}
	}
	return list
}

// keySet holds the keys of an issuer that may sign tokens. It does not change. Its methods take a
// nil set as an empty one.
type keySet struct {
	keys      []jose.JSONWebKey
	endpoints Endpoints
}

// find returns the keys that may have signed a token with the key id and the algorithm. A token
// without an id may be signed by any of them.
func (s *keySet) find(id, algorithm string) (found []jose.JSONWebKey) {
	if s == nil {
		return nil
	}
	for _, k := range s.keys {
		if (id == "" || k.KeyID == id) && (k.Algorithm == "" || k.Algorithm == algorithm) &&
			canVerify(k.Key, algorithm) {
			found = append(found, k)
		}
	}
	return found
}

// canVerify reports whether a key is of the kind that an algorithm takes.
func canVerify(key any, algorithm string) bool {
	switch key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return strings.HasPrefix(algorithm, "ES")
	case ed25519.PublicKey:
		return algorithm == string(jose.EdDSA)
	}
	return false
}

// same reports whether two sets have the same keys. s is not nil.
func (s *keySet) same(other *keySet) bool {
	if other == nil {
		return false
	}
	if s.endpoints != other.endpoints {
		return false
	}
	return slices.EqualFunc(s.keys, other.keys, func(a, b jose.JSONWebKey) bool {
		x, err := a.MarshalJSON()
		y, err2 := b.MarshalJSON()
		return err == nil && err2 == nil && string(x) == string(y)
	})
}
