package caller

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

const (
	// fetchTime limits a fetch of the keys, and how long a call waits for one.
	fetchTime = 5 * time.Second
	// refetch is the least time between a fetch that has succeeded and the next one, which a token
	// with an unknown key asks for: strangers can send those as fast as they like.
	refetch = 10 * time.Second
	// retry is the least time between a fetch that has failed and the next one.
	retry = 2 * time.Second
	// refresh is the age at which the keys are fetched again while they count, since an issuer may
	// have withdrawn one.
	refresh = 10 * time.Minute
	// maxAnswer limits an answer of the issuer.
	maxAnswer = 1 << 20
)

// issuer gets the keys of an issuer of tokens, and keeps them. Calls that need keys start a fetch,
// or wait for the one under way: there is never more than one. Keys that were fetched count until a
// later fetch has others, also while the issuer cannot be reached.
type issuer struct {
	url     string
	client  *http.Client
	fetched func(keys int, err error)
	running sync.WaitGroup // the fetch

	// mu guards the fields below. Nothing blocks while it is held.
	mu     sync.Mutex
	keys   *keySet // nil: none yet
	last   outcome // of the last fetch that has ended
	flying *fetch  // the fetch under way; nil: none
	closed bool
}

// outcome says how a fetch ended. The zero value stands for none.
type outcome struct {
	at  time.Time
	err error
}

// fetch represents one attempt to get the keys.
type fetch struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended; err is set before
	err    error
}

func newIssuer(cfg *TokenConfig) *issuer {
	i := &issuer{url: cfg.Issuer, fetched: cfg.Fetched}
	transport := cfg.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	i.client = &http.Client{
		Transport:     limited{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}
	return i
}

// FetchKeys asks an issuer for its keys, as an Authenticator does, and returns how many may sign
// tokens. It blocks for at most fetchTime.
func FetchKeys(ctx context.Context, cfg *TokenConfig) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	keys, err := newIssuer(cfg).fetch(ctx)
	if err != nil {
		return 0, err
	}
	return len(keys.keys), nil
}

var errRedirect = errors.New("the issuer redirects to another address")

// errUnavailable has no reason: the reason names addresses of the issuer's network, and anyone can
// send a token. The operator gets the reason by TokenConfig.Fetched.
var errUnavailable = &Error{
	Problem: Unavailable,
	Message: "the keys of the issuer of tokens cannot be fetched",
}

// errNoSignIn is the error of an issuer that has no endpoints with https.
var errNoSignIn = &Error{
	Problem: Unavailable,
	Message: "the issuer of tokens does not say where people sign in",
}

// current returns the keys; nil if there are none yet. It does not block. If the keys are old, it
// starts a fetch.
func (i *issuer) current(ctx context.Context, now time.Time) *keySet {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.keys != nil && now.Sub(i.last.at) >= refresh {
		i.startLocked(ctx)
	}
	return i.keys
}

// signIn returns where people sign in. It blocks while nothing is known yet and a fetch is under
// way, or until ctx ends.
func (i *issuer) signIn(ctx context.Context) (Endpoints, error) {
	now := time.Now()
	keys := i.current(ctx, now)
	if keys == nil {
		var err error
		if keys, err = i.newer(ctx, nil, now); err != nil {
			return Endpoints{}, err
		}
	}
	if !keys.endpoints.usable() {
		return Endpoints{}, errNoSignIn
	}
	return keys.endpoints, nil
}

// newer returns keys that are newer than old if there are any. It blocks until a fetch has ended,
// or ctx. If the issuer was asked a moment ago, it returns the same keys without asking again.
func (i *issuer) newer(ctx context.Context, old *keySet, now time.Time) (*keySet, error) {
	f, keys, err := i.join(ctx, old, now)
	if f == nil {
		return keys, err
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if f.err != nil {
		return nil, errUnavailable
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys, nil
}

// join returns the fetch to wait for. Without one, it returns what is known.
func (i *issuer) join(
	ctx context.Context, old *keySet, now time.Time,
) (*fetch, *keySet, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	least := refetch
	if i.last.err != nil {
		least = retry
	}
	switch {
	case i.keys != old: // meanwhile fetched
		return nil, i.keys, nil
	case i.closed:
		return nil, nil, errUnavailable
	case i.flying == nil && now.Sub(i.last.at) < least && i.last.err != nil:
		return nil, nil, errUnavailable
	case i.flying == nil && now.Sub(i.last.at) < least:
		return nil, i.keys, nil
	}
	i.startLocked(ctx)
	return i.flying, nil, nil
}

// startLocked starts a fetch unless one is under way. It takes the values of ctx only.
func (i *issuer) startLocked(ctx context.Context) {
	if i.flying != nil || i.closed {
		return
	}
	f := &fetch{done: make(chan struct{})}
	ctx, f.cancel = context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
	i.flying = f
	i.running.Go(func() { i.run(ctx, f) })
}

func (i *issuer) run(ctx context.Context, f *fetch) {
	defer f.cancel()
	keys, err := i.fetch(ctx)
	i.mu.Lock()
	if err == nil && !keys.same(i.keys) {
		i.keys = keys
	}
	i.last = outcome{time.Now(), err}
	i.flying = nil
	n := 0
	if i.keys != nil {
		n = len(i.keys.keys)
	}
	i.mu.Unlock()
	f.err = err
	close(f.done)
	if i.fetched != nil {
		i.fetched(n, err)
	}
}

// close ends the fetch under way and waits for it. Later ones fail.
func (i *issuer) close() {
	i.mu.Lock()
	i.closed = true
	if i.flying != nil {
		i.flying.cancel()
	}
	i.mu.Unlock()
	i.running.Wait()
}

// fetch asks the issuer for its keys: for its discovery document first, which says where they are.
func (i *issuer) fetch(ctx context.Context) (*keySet, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, i.client), i.url)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	var where struct {
		JWKS          string `json:"jwks_uri"`
		Authorization string `json:"authorization_endpoint"`
		Token         string `json:"token_endpoint"`
	}
	if err := provider.Claims(&where); err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	if _, err := parseURL(where.JWKS); err != nil {
		return nil, fmt.Errorf("discovery: jwks_uri: %w", err)
	}
	text, err := i.get(ctx, where.JWKS)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	keys, err := parseKeySet(text)
	if err == nil {
		keys.endpoints = Endpoints{where.Authorization, where.Token}
	}
	return keys, err
}

// Endpoints holds the URLs at which people sign in to an issuer: the authorization endpoint and the
// token endpoint of OpenID Connect. They are what the issuer says, and empty if it says nothing.
type Endpoints struct{ Authorization, Token string }

// usable reports whether a browser may be sent to the endpoints.
func (e Endpoints) usable() bool {
	_, err := parseURL(e.Authorization)
	_, err2 := parseURL(e.Token)
	return err == nil && err2 == nil
}

func (i *issuer) get(ctx context.Context, from string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	response, err := i.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(response.Body)
}

// CheckIssuer returns why a URL cannot be that of an issuer; nil if it can.
func CheckIssuer(text string) error {
	u, err := parseURL(text)
	if err == nil && (u.RawQuery != "" || u.Fragment != "") {
		err = errURL
	}
	return err
}

var errURL = errors.New("it is not a URL such as https://issuer.example")

// parseURL parses a URL of an issuer. It must be https, since the answer says which tokens count;
// plain http is for issuers on this machine.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return nil, errURL
	}
	ip, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return nil, errors.New("it is not https")
	}
	return u, nil
}

// parseKeySet reads a JSON Web Key Set. It leaves out keys of kinds that it does not know, secret
// and weak ones, and those for encryption.
func parseKeySet(text []byte) (*keySet, error) {
	var list struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	set := &keySet{}
	for _, one := range list.Keys {
		var k jose.JSONWebKey
		if json.Unmarshal(one, &k) == nil && canSign(&k) {
			set.keys = append(set.keys, k)
		}
	}
	if len(set.keys) == 0 {
		return nil, errors.New("keys: the issuer has none that can verify a signature")
	}
	return set, nil
}

// leastRSA is the length of the shortest RSA keys that count, in bits.
const leastRSA = 2048

// canSign reports whether tokens that a key has signed may count.
func canSign(k *jose.JSONWebKey) bool {
	weak := false
	if r, ok := k.Key.(*rsa.PublicKey); ok {
		weak = r.N.BitLen() < leastRSA
	}
	return k.IsPublic() && !weak && (k.Use == "" || k.Use == "sig")
}

// limited limits the length of answers.
type limited struct{ http.RoundTripper }

// RoundTrip sends a request. The answer's body ends after maxAnswer. The body of an answer with a
// status other than 200 is left out: package oidc would make it a part of the reason, which is
// logged.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	switch {
	case err != nil:
	case response.StatusCode != http.StatusOK:
		_ = response.Body.Close() // nothing reads it
		response.Body = http.NoBody
	default:
		response.Body = &limitedBody{io.LimitReader(response.Body, maxAnswer), response.Body}
	}
	return response, err
}

type limitedBody struct {
	io.Reader
	io.Closer
}
