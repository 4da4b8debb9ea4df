package console

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/front"
)

// OIDC says how people sign in at the issuer of tokens: by OpenID Connect, with the code flow and
// PKCE (RFC 7636), as a public client. The page does it; the gateway takes no part in it.
type OIDC struct {
	// Issuer is the issuer's URL, Client the id of the console there, and Scope what it asks for.
	Issuer, Client, Scope string
	// UseIDToken says that the id token is the credential, instead of the access token: the
	// audience of tokens is Client.
	UseIDToken bool
	// Endpoints returns the issuer's endpoints. It may block until its context ends.
	Endpoints func(context.Context) (caller.Endpoints, error)
}

// provider is the path of what the page must know of the issuer.
const provider = "oidc.json"

// endpointsTime is how long a request for the page waits for an issuer that is not known yet.
const endpointsTime = 2 * time.Second

func (o *OIDC) serve(x *front.Exchange) error {
	e, err := o.endpoints(x.Request().Context())
	if err != nil {
		return err
	}
	token := "access_token"
	if o.UseIDToken {
		token = "id_token"
	}
	return answer(x, map[string]string{
		"issuer": o.Issuer, "authorizationEndpoint": e.Authorization, "tokenEndpoint": e.Token,
		"clientId": o.Client, "scope": o.Scope, "token": token,
	})
}

func (o *OIDC) endpoints(ctx context.Context) (caller.Endpoints, error) {
	ctx, cancel := context.WithTimeout(ctx, endpointsTime)
	defer cancel()
	return o.Endpoints(ctx)
}

func isNoHost(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
		strings.ContainsRune(".-:[]", r))
}

// policy returns what a browser lets the page do: it may also call the origin of the token
// endpoint, if that is known.
func (o *OIDC) policy(ctx context.Context) string {
	e, err := o.endpoints(ctx)
	if err != nil {
		return policy // the page says that the issuer cannot be reached
	}
	u, err := url.Parse(e.Token)
	if err != nil || strings.ContainsFunc(u.Host, isNoHost) { // it would end the directive
		return policy
	}
	return strings.Replace(policy, "connect-src 'self'",
		"connect-src 'self' "+u.Scheme+"://"+u.Host, 1)
}
