package caller_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/mooringdb/mooring/internal/issuertest"
	"github.com/mooringdb/mooring/internal/memhttp"
	"github.com/mooringdb/mooring/service/caller"
)

const issuerURL = "https://issuer.example"

// world is an authenticator of tokens, and its issuer in memory.
type world struct {
	*caller.Authenticator
	*issuertest.Issuer
	t *testing.T

	mu      sync.Mutex
	fetched []error // what Fetched was called with
}

// newWorld makes a world. The issuer is wrapped by around if it is not nil.
func newWorld(t *testing.T, around func(http.Handler) http.Handler) *world {
	w := &world{Issuer: issuertest.New(t, issuerURL), t: t}
	var handler http.Handler = w.Issuer
	if around != nil {
		handler = around(handler)
	}
	w.Authenticator = caller.New(caller.Config{Tokens: &caller.TokenConfig{
		Issuer: issuerURL, Audience: issuertest.Audience, Skew: time.Minute, Claim: "sub",
		Algorithms: []string{"RS256", "ES256", "EdDSA"},
		Transport:  memhttp.New(t, handler, "issuer.example"),
		Fetched: func(_ int, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.fetched = append(w.fetched, err)
		},
	}})
	t.Cleanup(w.Close)
	return w
}

// try returns the outcome of a call with a token.
func (w *world) try(text string) string {
	return outcome(w.Authenticate(w.t.Context(), bearer(text)))
}

func (w *world) expect(what, text, want string) {
	w.t.Helper()
	if got := w.try(text); !strings.HasPrefix(got, want) {
		w.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func (w *world) wantFetches(n int) {
	w.t.Helper()
	if got := w.Fetches(); got != n {
		w.t.Errorf("the keys were fetched %d times, want %d", got, n)
	}
}

// token returns a token with some claims changed; nil removes one.
func (w *world) token(change map[string]any) string {
	claims := w.Claims("ann")
	maps.Copy(claims, change)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return issuertest.Sign(w.t, w.Key(), jose.ES256, claims)
}

func at(d time.Duration) int64 { return time.Now().Add(d).Unix() }

func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		for _, row := range []struct {
			name   string
			change map[string]any
			want   string
		}{
			{"right", nil, "jwt:ann"},
			{"several audiences", map[string]any{"aud": []string{"x", issuertest.Audience}}, "jwt:ann"},
			{"expired within the skew", map[string]any{"exp": at(-50 * time.Second)}, "jwt:ann"},
			{"nbf within the skew", map[string]any{"nbf": at(50 * time.Second)}, "jwt:ann"},
			{"no nbf and iat", map[string]any{"nbf": nil, "iat": nil}, "jwt:ann"},
			{"expired", map[string]any{"exp": at(-61 * time.Second)}, "invalid: the token has expired"},
			{"no exp", map[string]any{"exp": nil}, "invalid: the token has no expiry"},
			{"exp of another type", map[string]any{"exp": "tomorrow"}, "invalid: the token is malformed"},
			{"future nbf", map[string]any{"nbf": at(61 * time.Second)}, "invalid: the token is not valid yet"},
			{"future iat", map[string]any{"iat": at(61 * time.Second)}, "invalid: the token is not valid yet"},
			{"other audience", map[string]any{"aud": "other"}, "invalid: the token is for another audience"},
			{"no audience", map[string]any{"aud": nil}, "invalid: the token is for another audience"},
			{"other issuer", map[string]any{"iss": issuerURL + "/"}, "invalid: the token has another issuer"},
			{"no issuer", map[string]any{"iss": nil}, "invalid: the token has another issuer"},
			{"no subject", map[string]any{"sub": nil}, "invalid: the claim sub of the token must be a string"},
			{"empty subject", map[string]any{"sub": ""}, "invalid: the claim sub of the token must be a string"},
			{"long subject", map[string]any{"sub": strings.Repeat("x", 300)}, "invalid: the name"},
		} {
			w.expect(row.name, w.token(row.change), row.want)
			w.expect(row.name+", again", w.token(row.change), row.want)
		}
		w.wantFetches(1)
	})
}

// TestForged checks tokens whose signature is not the issuer's, or is none.
// TestTokenAttributes checks what a policy learns of a token.
func TestTokenAttributes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		token := w.token(map[string]any{"tenant": "acme", "groups": []any{"ops", 1, "shop"}})
		id, err := w.Authenticate(t.Context(), bearer(token))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(id.Groups, []string{"jwt:ops", "jwt:shop"}) ||
			id.Claims["tenant"] != "acme" {
			t.Errorf("groups %q, claims %v", id.Groups, id.Claims)
		}
	})
}

func TestForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		right := w.Token(t, "ann")
		parts := strings.Split(right, ".")
		private := w.Key()
		public := private.Public()
		der, err := x509.MarshalPKIXPublicKey(public.Key)
		if err != nil {
			t.Fatal(err)
		}
		stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		sign := func(key any, id string, alg jose.SignatureAlgorithm) string {
			return issuertest.Sign(t, jose.JSONWebKey{Key: key, KeyID: id}, alg, w.Claims("ann"))
		}
		withHeader := func(header string) string {
			return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + parts[1] + "." +
				parts[2]
		}
		embedded, err := json.Marshal(jose.JSONWebKey{Key: stranger.Public(), KeyID: "x"})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range []struct{ name, text, want string }{
			{"right", right, "jwt:ann"},
			{"alg none", withHeader(`{"alg":"none"}`), "invalid: the token is signed with an algorithm"},
			{"alg none without a signature", withHeader(`{"alg":"none"}`)[:len(withHeader(`{"alg":"none"}`))-len(parts[2])], "invalid: the token is signed with an algorithm"},
			{"confusion: the public key as a secret", sign(der, public.KeyID, jose.HS256), "invalid: the token is signed with an algorithm"},
			{"confusion: the public key's JSON", sign(embedded, public.KeyID, jose.HS256), "invalid: the token is signed with an algorithm"},
			{"an algorithm that is not pinned", withHeader(`{"alg":"ES384","kid":"` + public.KeyID + `"}`), "invalid: the token is signed with an algorithm"},
			{"the algorithm of another kind of key", withHeader(`{"alg":"RS256","kid":"` + public.KeyID + `"}`), "invalid: the token's key is not the issuer's"},
			{"a stranger's key under the issuer's id", sign(stranger, public.KeyID, jose.ES256), "invalid: the token's signature is wrong"},
			{"a stranger's key without an id", sign(stranger, "", jose.ES256), "invalid: the token's signature is wrong"},
			{"a stranger's key in the token", withHeader(`{"alg":"ES256","kid":"x","jwk":` + string(embedded) + `}`), "invalid: the token's key is not the issuer's"},
			{"other claims", parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"eve"}`)) + "." + parts[2], "invalid: the token has another issuer"},
			{"another subject", w.Forge(t, "eve"), "invalid: the token's signature is wrong"},
			{"a critical extension", withHeader(`{"alg":"ES256","crit":["x"],"x":1}`), "invalid"},
			{"the JSON form", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, "invalid: the token is malformed"},
			{"two parts", parts[0] + "." + parts[1], "invalid: the token is malformed"},
			{"nothing", "", "invalid: the token is malformed"},
			{"too long", right + strings.Repeat("A", 16<<10), "invalid: the token is too long"},
		} {
			w.expect(row.name, row.text, row.want)
		}
		w.wantFetches(1) // tokens with unknown keys do not cause one each
	})
}

// TestKindsOfKeys checks the keys of an issuer that count, and those that are left out.
func TestKindsOfKeys(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // that is the point
	if err != nil {
		t.Fatal(err)
	}
	strong, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret := make([]byte, 32)
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			name    string
			key     any
			use     string
			alg     string // of the published key
			signs   jose.SignatureAlgorithm
			want    string
			private bool
		}{
			{name: "RSA", key: strong, signs: jose.RS256, want: "jwt:ann"},
			{name: "Ed25519", key: edwards, signs: jose.EdDSA, want: "jwt:ann"},
			{name: "ECDSA for signatures", key: curve, use: "sig", alg: "ES256", signs: jose.ES256, want: "jwt:ann"},
			{name: "for encryption", key: curve, use: "enc", signs: jose.ES256, want: "invalid: the token's key"},
			{name: "for another algorithm", key: strong, alg: "PS256", signs: jose.RS256, want: "invalid: the token's key"},
			{name: "weak", key: weak, signs: jose.RS256, want: "invalid: the token's key"},
			{name: "a secret", key: secret, signs: jose.HS256, want: "invalid: the token is signed", private: true},
			{name: "a private key", key: curve, signs: jose.ES256, want: "invalid: the token's key", private: true},
		} {
			w := newWorld(t, nil)
			key := jose.JSONWebKey{Key: row.key, KeyID: "k", Use: row.use, Algorithm: row.alg}
			if row.private {
				w.Publish(key)
			} else {
				w.Publish(key.Public())
			}
			key.Algorithm = ""
			w.expect(row.name, issuertest.Sign(t, key, row.signs, w.Claims("ann")), row.want)
		}
	})
}

// TestOneFetch checks that a thousand first calls at the same time cause one fetch.
func TestOneFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		token := w.Token(t, "ann")
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if got := w.try(token); got != "jwt:ann" {
					t.Errorf("%s", got)
				}
			})
		}
		wg.Wait()
		w.wantFetches(1)
	})
}

// TestRotation checks that a new key counts at once, also while calls with old tokens go on, that
// an old key counts until it is withdrawn, and that strangers cannot cause many fetches.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		old := w.Token(t, "old")
		w.expect("first", old, "jwt:old")
		time.Sleep(10 * time.Second) //nolint:forbidigo // fake time
		w.Rotate(t)
		renewed := w.Token(t, "new")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { w.expect("new key", renewed, "jwt:new") })
			wg.Go(func() { w.expect("old key", old, "jwt:old") })
		}
		wg.Wait()
		w.wantFetches(2)

		stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		unknown := issuertest.Sign(t, jose.JSONWebKey{Key: stranger, KeyID: "none"}, jose.ES256,
			w.Claims("eve"))
		for range 50 { // over 25 seconds
			w.expect("unknown key", unknown, "invalid: the token's key is not the issuer's")
			time.Sleep(500 * time.Millisecond) //nolint:forbidigo // fake time
		}
		if n := w.Fetches(); n > 5 {
			t.Errorf("%d fetches: unknown keys cause more than one in ten seconds", n)
		}

		// A withdrawn key counts until the keys are fetched the next time.
		w.Withdraw()
		w.expect("just withdrawn", old, "jwt:old")
		time.Sleep(10 * time.Minute) //nolint:forbidigo // fake time
		w.expect("while it is fetched", old, "jwt:old")
		synctest.Wait()
		w.expect("withdrawn", old, "invalid: the token's key is not the issuer's")
		w.expect("the other", renewed, "jwt:new")
	})
}

// TestRemembered checks that a token is verified once, and not beyond its time.
func TestRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		token := w.token(map[string]any{"exp": at(5 * time.Minute)})
		w.expect("first", token, "jwt:ann")
		time.Sleep(5 * time.Minute) //nolint:forbidigo // fake time
		w.expect("within the skew", token, "jwt:ann")
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		w.expect("after it", token, "invalid: the token has expired")
	})
}

// TestHangingIssuer checks that calls wait a bounded time for an issuer that does not answer, that
// a call whose client goes away does not wait, and that keys that are there count meanwhile.
func TestHangingIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.SetHang(true)
		token := w.Token(t, "ann")
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.Authenticate(ctx, bearer(token)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call with a deadline: %v", err)
		}
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("it waited %s", waited)
		}
		w.expect("while it hangs", token, "unavailable: the keys of the issuer")
		if waited := time.Since(begin); waited != 5*time.Second {
			t.Errorf("the calls waited %s, want 5s", waited)
		}
		w.expect("right after it", token, "unavailable")
		if time.Since(begin) != 5*time.Second {
			t.Error("a call right after a fetch that failed begins another")
		}
		w.wantFetches(1)
		w.SetHang(false)
		time.Sleep(2 * time.Second) //nolint:forbidigo // fake time
		w.expect("when it answers again", token, "jwt:ann")
		w.wantFetches(2)

		w.SetHang(true)
		time.Sleep(10 * time.Minute) //nolint:forbidigo // fake time
		begin = time.Now()
		w.expect("while a refresh hangs", token, "jwt:ann")
		w.expect("a new token", w.Token(t, "bob"), "jwt:bob")
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("calls with known keys waited %s", waited)
		}
		w.Rotate(t)
		w.expect("a new key", w.Token(t, "cat"), "unavailable")
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.fetched) != 3 || w.fetched[0] == nil || w.fetched[1] != nil ||
			w.fetched[2] == nil {
			t.Errorf("Fetched was called with %v", w.fetched)
		}
	})
}

// TestClose checks that Close ends a fetch that hangs, and that later calls do not begin one.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.SetHang(true)
		token := w.Token(t, "ann")
		done := make(chan string)
		go func() { done <- w.try(token) }()
		synctest.Wait()
		begin := time.Now()
		w.Close()
		if got := <-done; !strings.HasPrefix(got, "unavailable") || time.Since(begin) != 0 {
			t.Errorf("after Close: %s in %s", got, time.Since(begin))
		}
		w.expect("later", token, "unavailable")
		w.wantFetches(1)
	})
}

// TestBrokenIssuer checks answers that are not keys.
func TestBrokenIssuer(t *testing.T) {
	document := func(issuer, keys string) string {
		return `{"issuer":"` + issuer + `","jwks_uri":"` + keys + `"}`
	}
	for _, row := range []struct{ name, discovery, keys, want string }{
		{"not JSON", "<html>", "", "discovery"},
		{"another issuer", document("https://evil.example", issuerURL+"/keys"), "{}", "discovery"},
		{"keys in the clear", document(issuerURL, "http://issuer.example/keys"), "{}", "it is not https"},
		{"no place of the keys", document(issuerURL, ""), "{}", "it is not a URL"},
		{"keys that are not JSON", document(issuerURL, issuerURL+"/keys"), "[", "keys"},
		{"no keys", document(issuerURL, issuerURL+"/keys"), `{"keys":[{"kty":"oct","k":"AAAA"},{"kty":"new"}]}`, "has none"},
		{"endless", document(issuerURL, issuerURL+"/keys"), `{"keys":[` + strings.Repeat(" ", 2<<20) + `]}`, "keys"},
		{"redirect", "to /x", "", "redirects"},
		{"an error with a long page", "500", "", "500"},
		{"missing keys", document(issuerURL, issuerURL+"/none"), "", "404"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case strings.HasPrefix(row.discovery, "to "):
						http.Redirect(w, r, row.discovery[3:], http.StatusFound)
					case r.URL.Path == "/keys":
						_, _ = w.Write([]byte(row.keys))
					case r.URL.Path == "/none":
						http.NotFound(w, r)
					case row.discovery == "500":
						http.Error(w, strings.Repeat("x", 1000), http.StatusInternalServerError)
					default:
						_, _ = w.Write([]byte(row.discovery))
					}
				})
			})
			const want = "unavailable: the keys of the issuer of tokens cannot be fetched"
			if got := w.try(w.Token(t, "ann")); got != want {
				t.Errorf("%s: %s, want %s and no reason, which is for the operator", row.name, got,
					want)
			}
			synctest.Wait()
			if err := w.fetched[0]; err == nil || !strings.Contains(err.Error(), row.want) ||
				len(err.Error()) > 300 {
				t.Errorf("%s: the reason is %.400v, want %s", row.name, err, row.want)
			}
		})
	}
}

func TestFetchKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := issuertest.New(t, issuerURL)
		cfg := &caller.TokenConfig{
			Issuer: issuerURL, Transport: memhttp.New(t, i, "issuer.example"),
		}
		if n, err := caller.FetchKeys(t.Context(), cfg); n != 1 || err != nil {
			t.Errorf("FetchKeys = %d, %v", n, err)
		}
		i.SetHang(true)
		begin := time.Now()
		if _, err := caller.FetchKeys(t.Context(), cfg); err == nil ||
			time.Since(begin) != 5*time.Second {
			t.Errorf("FetchKeys of an issuer that hangs = %v after %s", err, time.Since(begin))
		}
	})
}

func TestCheckIssuer(t *testing.T) {
	for text, ok := range map[string]bool{
		issuerURL: true, issuerURL + "/tenant/": true, "http://127.0.0.1:8080": true, "http://localhost": true,
		"http://[::1]:1": true, "http://issuer.example": false, "issuer.example": false, "https://": false,
		"https://a@issuer.example": false, issuerURL + "?a=b": false, issuerURL + "#a": false, "ftp://localhost": false, ":": false,
	} {
		if err := caller.CheckIssuer(text); (err == nil) != ok {
			t.Errorf("CheckIssuer(%q) = %v", text, err)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.AAAA")
	a := caller.New(caller.Config{Tokens: &caller.TokenConfig{
		Issuer: issuerURL, Audience: "x", Claim: "sub", Algorithms: caller.Algorithms(),
		Transport: noTransport{},
	}})
	f.Cleanup(a.Close)
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := a.Authenticate(t.Context(), bearer(text)); err == nil {
			t.Errorf("%q is %s", text, id.Principal)
		}
	})
}

type noTransport struct{}

func (noTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no network")
}

// TestNoAddressIsNotThrottled checks that failed attempts over a Unix domain socket slow no other
// client down.
func TestNoAddressIsNotThrottled(t *testing.T) {
	a := caller.New(caller.Config{Keys: &caller.KeyTable{}})
	for range 1000 {
		_, err := a.Authenticate(t.Context(), &caller.Presented{APIKey: []string{"wrong"}})
		if e, ok := errors.AsType[*caller.Error](err); !ok || e.Problem != caller.Invalid {
			t.Fatalf("an attempt without an address: %v", err)
		}
	}
}

// TestSignIn asks where people sign in: before anything is known of the issuer, while it cannot be
// reached, and where it names no place to send a browser to.
func TestSignIn(t *testing.T) {
	at := caller.Endpoints{
		Authorization: issuerURL + "/authorize", Token: issuerURL + "/token",
	}
	w := newWorld(t, nil)
	w.SetStatus(http.StatusInternalServerError)
	if got, err := w.SignIn(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "cannot be fetched") {
		t.Errorf("an issuer that fails: %+v, %v", got, err)
	}
	w = newWorld(t, nil)
	for range 2 {
		if got, err := w.SignIn(t.Context()); err != nil || got != at {
			t.Errorf("%+v, %v", got, err)
		}
		w.SetStatus(http.StatusInternalServerError) // what is known counts
	}
	w = newWorld(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			rw.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(rw, strings.ReplaceAll(answer.Body.String(),
				issuerURL+"/token", "http://issuer.example/token"))
		})
	})
	if got, err := w.SignIn(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "does not say where people sign in") {
		t.Errorf("a token endpoint without https: %+v, %v", got, err)
	}
}
