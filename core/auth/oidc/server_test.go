package oidc_test

import (
	"context"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/oidc"
	"github.com/mooringdb/mooring/core/bson"
)

// server is the mechanism's server side: it knows which tokens are valid. It is an auth.Runner, as
// if each connection led to it.
type server struct {
	mu        sync.Mutex
	valid     map[string]bool
	fail      []int32 // codes of errors that the next saslStarts get
	starts    []string
	hellos    []string // tokens that came in hello
	unanswers bool     // a hello's token is not looked at
}

func newServer(tokens ...string) *server {
	s := &server{valid: map[string]bool{}}
	for _, t := range tokens {
		s.valid[t] = true
	}
	return s
}

func (s *server) Run(_ context.Context, database string, command bson.Raw) (bson.Raw, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	jwt := token(command)
	s.starts = append(s.starts, jwt)
	mechanism, _ := command.Lookup("mechanism")
	if name, _ := mechanism.Str(); command.FirstKey() != "saslStart" || name != "MONGODB-OIDC" ||
		database != "$external" {
		return refusal(9), nil
	}
	if len(s.fail) > 0 {
		code := s.fail[0]
		s.fail = s.fail[1:]
		return refusal(code), nil
	}
	if !s.valid[jwt] {
		return refusal(18), nil
	}
	return accepted(), nil
}

// hello returns the reply to a hello that begins as h.
func (s *server) hello(h bson.Raw) bson.Raw {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := new(bson.Builder).Int32("ok", 1)
	if v, ok := h.Lookup("speculativeAuthenticate"); ok {
		begun, _ := v.Document()
		jwt := token(begun)
		s.hellos = append(s.hellos, jwt)
		if s.valid[jwt] && !s.unanswers {
			b.Document("speculativeAuthenticate", accepted())
		}
	}
	return b.Finish()
}

// started returns the tokens of all saslStarts since the last call.
func (s *server) started() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	starts := s.starts
	s.starts = nil
	return starts
}

func token(command bson.Raw) string {
	v, _ := command.Lookup("payload")
	_, payload, _ := v.Binary()
	jwt, _ := bson.Raw(payload).Lookup("jwt")
	text, _ := jwt.Str()
	return text
}

func accepted() bson.Raw {
	return new(bson.Builder).Int32("conversationId", 1).Bool("done", true).
		Binary("payload", 0, nil).Int32("ok", 1).Finish()
}

func refusal(code int32) bson.Raw {
	return new(bson.Builder).Int32("ok", 0).Int32("code", code).String("errmsg", "refused").Finish()
}

// client is a client's side: an authenticator, and a provider that counts.
type client struct {
	*auth.Authenticator
	mechanism *oidc.Mechanism
	requests  []oidc.Request
}

func newClient(provide oidc.ProviderFunc) *client {
	c := new(client)
	c.mechanism = oidc.New(oidc.ProviderFunc(func(
		ctx context.Context, r oidc.Request,
	) (oidc.Token, error) {
		c.requests = append(c.requests, r)
		return provide(ctx, r)
	}))
	c.Authenticator = auth.SASL("$external", auth.FixedUser(auth.User{Name: "test_user1"}),
		c.mechanism)
	return c
}

// always returns the tokens in turn, the last one for ever.
func always(tokens ...string) oidc.ProviderFunc {
	return func(context.Context, oidc.Request) (oidc.Token, error) {
		t := tokens[0]
		if len(tokens) > 1 {
			tokens = tokens[1:]
		}
		return oidc.Token{AccessToken: t}, nil
	}
}

// connect authenticates a new connection, hello included.
func (c *client) connect(t *testing.T, s *server) (*auth.State, error) {
	t.Helper()
	state, err := c.Start(auth.Target{Address: "db:27017"})
	if err != nil {
		t.Fatal(err)
	}
	b := new(bson.Builder)
	if err := state.AppendHello(b); err != nil {
		t.Fatal(err)
	}
	return state, state.Authenticate(t.Context(), s, s.hello(b.Finish()))
}

type builder = bson.Builder

// constant is a server that always replies the same.
type constant bson.Raw

func (c constant) Run(context.Context, string, bson.Raw) (bson.Raw, error) {
	return bson.Raw(c), nil
}
