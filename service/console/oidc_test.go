package console_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/console"
)

// TestOIDC checks what the page learns of an issuer, and that it may call its token endpoint and
// nothing else.
func TestOIDC(t *testing.T) {
	right := caller.Endpoints{
		Authorization: "https://login.example/authorize", Token: "https://login.example:8443/token",
	}
	for name, row := range map[string]struct {
		endpoints caller.Endpoints
		err       error
		idToken   bool
		body      string
		connect   string
	}{
		"access token": {
			endpoints: right,
			body: `{"authorizationEndpoint":"https://login.example/authorize",` +
				`"clientId":"c","issuer":"https://login.example","scope":"openid",` +
				`"token":"access_token","tokenEndpoint":"https://login.example:8443/token"}`,
			connect: "connect-src 'self' https://login.example:8443;",
		},
		"id token": {
			endpoints: right, idToken: true,
			body: `"token":"id_token"`, connect: "connect-src 'self' https://login.example:8443;",
		},
		"an issuer that is not there": {
			err:  &caller.Error{Problem: caller.Unavailable, Message: "not there"},
			body: "not there", connect: "connect-src 'self';",
		},
		"a host that would end the directive": {
			endpoints: caller.Endpoints{
				Authorization: "https://a.example", Token: "https://a.example;script-src/token",
			},
			body: `"token":"access_token"`, connect: "connect-src 'self';",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandler(t, console.Config{SignIn: true, OIDC: &console.OIDC{
				Issuer: "https://login.example", Client: "c", Scope: "openid",
				UseIDToken: row.idToken,
				Endpoints: func(context.Context) (caller.Endpoints, error) {
					return row.endpoints, row.err
				},
			}})
			page := ask(h, "GET", "/console/")
			if csp := page.Header().Get("Content-Security-Policy"); page.Code != http.StatusOK ||
				!strings.Contains(csp, row.connect) || strings.Count(csp, "script-src") != 1 {
				t.Errorf("%d, policy %q, want %q", page.Code, csp, row.connect)
			}
			script := ask(h, "GET", "/console/settings.json")
			if got := script.Body.String(); got != `{"signIn":true,"oidc":true}` ||
				!strings.Contains(script.Header().Get("Content-Security-Policy"),
					"connect-src 'self';") {
				t.Errorf("settings %s, %v", got, script.Header())
			}
			got := ask(h, "GET", "/console/oidc.json")
			if (got.Code == http.StatusOK) != (row.err == nil) ||
				!strings.Contains(got.Body.String(), row.body) {
				t.Errorf("%d %s", got.Code, got.Body)
			}
		})
	}
}

// TestWithoutOIDC checks that nothing of it is there.
func TestWithoutOIDC(t *testing.T) {
	h := newHandler(t, console.Config{SignIn: true})
	if got := ask(h, "GET", "/console/oidc.json"); got.Code != http.StatusNotFound {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := ask(h, "GET", "/console/settings.json").Body.String(); got !=
		`{"signIn":true,"oidc":false}` {
		t.Error(got)
	}
}
