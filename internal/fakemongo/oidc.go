package fakemongo

import (
	"errors"
	"sync"
)

// OIDC plays the server's side of MONGODB-OIDC's one-step conversation. Its methods may be called
// at any time.
type OIDC struct {
	mu    sync.Mutex
	users map[string]string // by access token; guarded by mu
	seen  []string          // guarded by mu
}

// Accept makes a token that of a user.
func (o *OIDC) Accept(token, user string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users == nil {
		o.users = map[string]string{}
	}
	o.users[token] = user
}

// Revoke makes a token invalid. Connections that have logged in with it stay so.
func (o *OIDC) Revoke(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.users, token)
}

// Seen returns the tokens that clients have sent, in order, those in hello included.
func (o *OIDC) Seen() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.seen...)
}

// SASL returns what Auth.SASL wants for MONGODB-OIDC.
func (o *OIDC) SASL(*Command) SASL { return &oidcConversation{server: o} }

type oidcConversation struct {
	server *OIDC
	user   string
}

// Username returns the token's user.
func (c *oidcConversation) Username() string { return c.user }

// Step takes the token.
func (c *oidcConversation) Step(payload []byte) (response []byte, done bool, err error) {
	token, _ := field(payload, "jwt").Str()
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.seen = append(c.server.seen, token)
	user, ok := c.server.users[token]
	if !ok {
		return nil, false, errors.New("not a token of this deployment")
	}
	c.user = user
	return nil, true, nil
}
