// Package oidc implements the mechanism MONGODB-OIDC in its machine flow: a client sends an access
// token of a provider, and the server verifies it with the identity provider. Mechanism caches the
// token for all connections of a client. The package has the providers for Azure, Google Cloud and
// Kubernetes; applications supply others. It has no human flow, which asks a person to log in, and
// therefore no two-step conversations, refresh tokens or allowed hosts.
package oidc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
)

const (
	timeout = time.Minute            // for a provider
	pause   = 100 * time.Millisecond // at least, from one call of a provider to the next
)

// Codes of the server's errors.
const (
	authenticationFailed     = 18
	reauthenticationRequired = 391
)

var _ auth.Mechanism = (*Mechanism)(nil)

// Mechanism implements MONGODB-OIDC with the token of one client. It is of the mutex shape; the
// provider is called outside of mu, by the goroutine that has the turn.
type Mechanism struct {
	provider Provider

	turn chan struct{} // holds a token of its own while no goroutine asks the provider
	next time.Time     // the earliest time of the provider's next call; guarded by turn

	mu       sync.Mutex
	cached   accessToken // the zero value if there is none; guarded by mu
	last     uint64      // the last token's generation; guarded by mu
	failures uint64      // calls of the provider that have failed; guarded by mu
	failure  error       // of the last one; guarded by mu
}

// accessToken holds a token of the provider. Generations tell apart two answers with the same
// text: a connection whose token was refused does not take back a later one.
type accessToken struct {
	text       string
	generation uint64
}

// New returns the mechanism with an empty cache.
func New(p Provider) *Mechanism {
	m := &Mechanism{provider: p, turn: make(chan struct{}, 1)}
	m.turn <- struct{}{}
	return m
}

// Format keeps the token out of every verb.
func (m *Mechanism) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "oidc.Mechanism") }

// Name returns MONGODB-OIDC.
func (m *Mechanism) Name() string { return "MONGODB-OIDC" }

// Speculate returns a conversation with the cached token, or nil if there is none.
func (m *Mechanism) Speculate(auth.Target) auth.Conversation {
	if t, ok := m.load(); ok {
		return &conversation{token: t, cached: true}
	}
	return nil
}

// Begin returns a conversation with the cached token, or with a new one from the provider. It
// blocks while the provider is asked, by this caller or another one, and until the provider may be
// asked again; at most until ctx ends. If the provider fails while several callers wait, all get
// that error.
func (m *Mechanism) Begin(ctx context.Context, to auth.Target) (auth.Conversation, error) {
	if t, ok := m.load(); ok {
		return &conversation{token: t, cached: true}, nil
	}
	before, _ := m.failed()
	select {
	case <-m.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for an access token: %w", context.Cause(ctx))
	}
	defer func() { m.turn <- struct{}{} }()
	if t, ok := m.load(); ok {
		return &conversation{token: t, cached: true}, nil
	}
	if n, err := m.failed(); n > before {
		return nil, err
	}
	t, err := m.ask(ctx, to.User.Name)
	if err != nil {
		return nil, m.fail(ctx, fmt.Errorf("obtain an access token: %w", err))
	}
	return &conversation{token: m.store(t)}, nil
}

var errSlow = errors.New("the provider did not answer in time")

// ask calls the provider. The caller has the turn.
func (m *Mechanism) ask(ctx context.Context, username string) (Token, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errSlow)
	defer cancel()
	wait := time.NewTimer(time.Until(m.next))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return Token{}, context.Cause(ctx)
	}
	m.next = time.Now().Add(pause)
	t, err := m.provider.Token(ctx, Request{Username: username, Version: CallbackVersion})
	switch {
	case err != nil && ctx.Err() != nil:
		return Token{}, context.Cause(ctx)
	case err != nil:
		return Token{}, err
	}
	return t, t.check()
}

// failed returns how often the provider has failed, and how the last time.
func (m *Mechanism) failed() (times uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failures, m.failure
}

// fail notes that the provider has failed with err, and returns it. If the caller that asked has
// gone, the next one asks again.
func (m *Mechanism) fail(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.failures++
		m.failure = err
	}
	return err
}

func (m *Mechanism) load() (accessToken, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cached, m.cached != accessToken{}
}

func (m *Mechanism) store(t Token) accessToken {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	m.cached = accessToken{t.AccessToken, m.last}
	return m.cached
}

// invalidate drops t from the cache, unless there is another one by now.
func (m *Mechanism) invalidate(t accessToken) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cached == t {
		m.cached = accessToken{}
	}
}

// Refused drops the conversation's token if the server did not accept it, or wants another one. If
// it was a cached token that was not accepted, a new one may succeed. Any other error says nothing
// about the token.
func (m *Mechanism) Refused(c auth.Conversation, err error) (again bool) {
	had := c.(*conversation)
	code := mongoerr.Code(err)
	if code == authenticationFailed || code == reauthenticationRequired {
		m.invalidate(had.token)
	}
	return code == authenticationFailed && had.cached
}

// conversation plays the one-step conversation: the client sends a token, and that is all.
type conversation struct {
	token  accessToken
	cached bool // the token was not fetched for this conversation
}

// Format keeps the token out of every verb.
func (c *conversation) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "oidc.conversation") }

// First returns the token.
func (c *conversation) First() ([]byte, error) {
	return new(bson.Builder).String("jwt", c.token.text).Finish(), nil
}

// Next ends the conversation: the server has nothing to say.
func (c *conversation) Next(payload []byte) (response []byte, done bool, err error) {
	if len(payload) > 0 {
		return nil, false, errors.New("the server answers the token with a message")
	}
	return nil, true, nil
}
