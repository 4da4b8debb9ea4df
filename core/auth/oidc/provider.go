package oidc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// CallbackVersion is the version of Provider. It grows when the meaning of its parameters changes.
const CallbackVersion = 1

// Provider obtains access tokens from an identity provider: it is the specification's machine
// callback. It is called by one goroutine at a time, caches nothing, and should return soon after
// ctx has ended.
type Provider interface {
	Token(ctx context.Context, r Request) (Token, error)
}

// ProviderFunc makes a Provider of a function.
type ProviderFunc func(ctx context.Context, r Request) (Token, error)

// Token calls f.
func (f ProviderFunc) Token(ctx context.Context, r Request) (Token, error) { return f(ctx, r) }

// Request holds what a provider is told. The time that it has is the context's deadline.
type Request struct {
	Username string // of the connection string; may be empty
	Version  int    // CallbackVersion
}

// Token holds an access token. Printing it shows a mask.
type Token struct {
	AccessToken string

	// ExpiresIn is how long the token is valid, zero if it is not known. It must not be negative;
	// nothing else is done with it, since the server says when it wants another token.
	ExpiresIn time.Duration
}

// check reports what is wrong with a provider's answer. A token itself is for the server to judge.
func (t Token) check() error {
	switch {
	case t.AccessToken == "":
		return errors.New("the provider returned no access token")
	case t.ExpiresIn < 0:
		return fmt.Errorf("the provider returned a token that expires in %s", t.ExpiresIn)
	}
	return nil
}

// String returns a mask.
func (t Token) String() string { return "oidc.Token(***)" }

// Format writes what String returns, whatever the verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }
