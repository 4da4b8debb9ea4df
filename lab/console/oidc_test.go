package console_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/issuertest"
	"github.com/mooringdb/mooring/lab/internal/browser"
)

const client = "the-console"

// provider is an issuer at which people sign in: it lets everyone in as ann, at once.
type provider struct {
	t      *testing.T
	issuer *issuertest.Issuer
	url    string

	mu     sync.Mutex
	codes  map[string]url.Values // by code: what the authorization was asked with
	refuse string                // an error that every authorization ends with
	nonce  string                // of id tokens, in place of the right one
	form   bool                  // authorizations begin with a form, and stay there
	asked  int
}

func startProvider(t *testing.T) *provider {
	p := &provider{t: t, codes: map[string]url.Values{}}
	p.issuer = issuertest.New(t, "")
	mux := http.NewServeMux()
	mux.Handle("/", p.issuer)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	p.url = s.URL
	p.issuer.SetURL(s.URL)
	return p
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("response_type") != "code" || q.Get("client_id") != client ||
		q.Get("code_challenge_method") != "S256" || q.Get("scope") != "openid groups" {
		p.t.Errorf("authorization: %s", r.URL)
	}
	if p.form {
		_, _ = w.Write([]byte("the form"))
		return
	}
	answer := url.Values{"state": {q.Get("state")}, "iss": {p.url}}
	if p.refuse != "" {
		answer.Set("error", p.refuse)
	} else {
		code := rand.Text()
		p.codes[code] = q
		answer.Set("code", code)
	}
	back.RawQuery = answer.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// token gives tokens for a code, once, to the client that knows the verifier (RFC 7636, 4.6).
func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	w.Header().Set("Content-Type", "application/json")
	code := r.PostFormValue("code")
	asked := p.codes[code]
	delete(p.codes, code)
	digest := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if asked == nil || r.PostFormValue("client_id") != client ||
		r.PostFormValue("redirect_uri") != asked.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(digest[:]) != asked.Get("code_challenge") {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant"})
		return
	}
	claims := p.issuer.Claims("ann")
	claims["aud"], claims["nonce"] = client, asked.Get("nonce")
	if p.nonce != "" {
		claims["nonce"] = p.nonce
	}
	_ = json.NewEncoder(w).Encode(map[string]string{
		"access_token": p.issuer.Token(p.t, "ann"),
		"id_token":     issuertest.Sign(p.t, p.issuer.Key(), jose.ES256, claims),
	})
}

// TestOIDC has people sign in at an issuer: with an access token, and, where the audience is the
// client, with an id token.
func TestOIDC(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	p := startProvider(t)
	b := browser.Start(t)
	for name, audience := range map[string]string{
		"access token": issuertest.Audience, "id token": client,
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0])
			s := &scene{t: t, browser: b, deployment: d}
			s.gateway = suite.Start(t, d.URI(false, nil), "--console-enabled",
				"--auth-jwt-issuer", p.url, "--auth-jwt-audience", audience,
				"--auth-operators", "jwt:ann", "--console-oidc-client-id", client,
				"--console-oidc-scope", "openid groups")
			s.page = b.Open(s.gateway.REST + "/console/#/held")
			s.page.Emulate(1280, 900, "light")
			s.shows("Sign in with your organization")
			s.judge("signing in at an issuer")
			s.shoot("oidc")
			s.click("Sign in with your organization")
			s.shows("Clients hold no cursors now.") // the view that was asked for
			s.shows("jwt:ann")
			s.eventually(`location.search === "" && sessionStorage.length === 0`)
			if errs := s.page.Errors(); len(errs) > 0 {
				t.Errorf("the console of the page has %q", errs)
			}
		})
	}
}

// TestOIDCRefuses has an issuer that refuses, an answer that the page has not asked for, and a
// token of another sign-in.
func TestOIDCRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	p := startProvider(t)
	d := deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0])
	s := &scene{t: t, browser: browser.Start(t), deployment: d}
	s.gateway = suite.Start(t, d.URI(false, nil), "--console-enabled",
		"--auth-jwt-issuer", p.url, "--auth-jwt-audience", client,
		"--console-oidc-client-id", client, "--console-oidc-scope", "openid groups")
	console := s.gateway.REST + "/console/"
	s.page = s.browser.Open(console + "?state=forged&code=stolen")
	s.shows("This sign-in was not begun here")
	if p.asked > 0 {
		t.Error("a code that was not asked for was redeemed")
	}
	p.refuse = "access_denied"
	s.click("Sign in with your organization")
	s.shows("The issuer refused: access_denied")
	p.refuse, p.nonce = "", "of-another"
	s.click("Sign in with your organization")
	s.shows("The token is not of this sign-in.")
	p.nonce = ""
	p.issuer.SetStatus(http.StatusInternalServerError)
	s.click("Sign in with your organization") // what is known of the issuer counts
	s.shows("Deployment")
}

// TestOIDCBack goes back from the issuer's form without signing in: the browser may show the page
// that it has left.
func TestOIDCBack(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	p := startProvider(t)
	d := deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0])
	s := &scene{t: t, browser: browser.Start(t), deployment: d}
	s.gateway = suite.Start(t, d.URI(false, nil), "--console-enabled",
		"--auth-jwt-issuer", p.url, "--auth-jwt-audience", client,
		"--console-oidc-client-id", client, "--console-oidc-scope", "openid groups")
	s.page = s.browser.Open(s.gateway.REST + "/console/")
	s.shows("Sign in with your organization")
	s.do("globalThis.left = true")
	p.form = true
	s.click("Sign in with your organization")
	s.shows("the form")
	s.do("history.back()")
	s.shows("Sign in with your organization")
	s.eventually("globalThis.left") // it is the page of before
	p.form = false
	s.click("Sign in with your organization")
	s.shows("jwt:ann")
}
