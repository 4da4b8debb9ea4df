// Package issuertest is an issuer of JSON Web Tokens for tests: its discovery document, its keys,
// and tokens of all kinds. It opens no port; its Handler can be served anywhere.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Audience is the audience of the tokens of Claims.
const Audience = "mooring"

// Issuer represents an issuer. Its methods are safe for concurrent use.
type Issuer struct {
	url string

	mu      sync.Mutex
	keys    []jose.JSONWebKey // private ones, the newest last
	publish []jose.JSONWebKey // public ones, as the endpoint has them
	hang    bool
	status  int // of answers; 0: 200
	fetches int // of the keys
}

// New returns an issuer with one key, at that URL.
func New(t testing.TB, url string) *Issuer {
	i := &Issuer{url: url}
	i.Rotate(t)
	return i
}

// SetURL changes the issuer's URL, for a server whose port is known late.
func (i *Issuer) SetURL(url string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.url = url
}

// Rotate makes a new key, with which Sign signs from now on, and publishes it beside the others.
func (i *Issuer) Rotate(t testing.TB) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = append(i.keys, jose.JSONWebKey{
		Key: private, KeyID: fmt.Sprintf("key-%d", len(i.keys)+1), Algorithm: "ES256", Use: "sig",
	})
	i.publish = append(i.publish, i.keys[len(i.keys)-1].Public())
}

// Withdraw publishes the newest key only.
func (i *Issuer) Withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.publish = []jose.JSONWebKey{i.keys[len(i.keys)-1].Public()}
}

// Publish publishes a key of a test.
func (i *Issuer) Publish(k jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.publish = append(i.publish, k)
}

// SetHang makes the endpoint of the keys answer nothing until the client goes away.
func (i *Issuer) SetHang(on bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hang = on
}

// SetStatus sets the status of all answers; 0 means 200.
func (i *Issuer) SetStatus(code int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status = code
}

// Fetches returns how often the keys were asked for.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// ServeHTTP serves the discovery document and the keys.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	url, status, hang := i.url, i.status, i.hang
	keys := jose.JSONWebKeySet{Keys: slices.Clone(i.publish)}
	isKeys := r.URL.Path == "/keys"
	if isKeys {
		i.fetches++
	}
	i.mu.Unlock()
	var answer any = keys
	switch {
	case status != 0:
		w.WriteHeader(status)
		return
	case isKeys && hang:
		<-r.Context().Done()
		return
	case r.URL.Path == "/.well-known/openid-configuration":
		answer = map[string]any{
			"issuer": url, "jwks_uri": url + "/keys",
			"authorization_endpoint": url + "/authorize", "token_endpoint": url + "/token",
		}
	case !isKeys:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// Claims returns the claims of a token that counts for an hour from now.
func (i *Issuer) Claims(subject string) map[string]any {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	return map[string]any{
		"iss": i.url, "sub": subject, "aud": Audience,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
}

// Forge returns a token with the newest key's id and the claims of Claims, whose signature is
// wrong.
func (i *Issuer) Forge(t testing.TB, subject string) string {
	t.Helper()
	right := strings.Split(i.Token(t, "ann"), ".")
	claims, err := json.Marshal(i.Claims(subject))
	if err != nil {
		t.Fatal(err)
	}
	return right[0] + "." + base64.RawURLEncoding.EncodeToString(claims) + "." + right[2]
}

// Key returns the newest private key.
func (i *Issuer) Key() jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[len(i.keys)-1]
}

// Token returns a token for a subject, signed with the newest key.
func (i *Issuer) Token(t testing.TB, subject string) string {
	t.Helper()
	return Sign(t, i.Key(), jose.ES256, i.Claims(subject))
}

// Sign returns a token with the claims, signed with a key.
func Sign(
	t testing.TB, key jose.JSONWebKey, algorithm jose.SignatureAlgorithm, claims map[string]any,
) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
