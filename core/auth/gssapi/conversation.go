package gssapi

import (
	"errors"
	"fmt"
)

var _ interface {
	First() ([]byte, error)
	Next([]byte) ([]byte, bool, error)
} = (*Conversation)(nil)

// noLayer is the bit of the security layer that protects nothing (RFC 4752, section 3.3).
const noLayer = 1

// Conversation carries out one authentication. It has one owner.
type Conversation struct {
	context     SecurityContext
	user        string
	established bool
}

// NewConversation returns a conversation over a context that has not begun, for the user with that
// name.
func NewConversation(c SecurityContext, user string) *Conversation {
	return &Conversation{context: c, user: user}
}

// First returns the context's first token.
func (c *Conversation) First() ([]byte, error) { return c.context.First() }

// Next takes the server's token, and answers with nothing; then the server's offer of security
// layers, and answers with the choice of none.
func (c *Conversation) Next(payload []byte) (response []byte, done bool, err error) {
	if !c.established {
		if err := c.context.Next(payload); err != nil {
			return nil, false, fmt.Errorf("the server's token: %w", err)
		}
		c.established = true
		return nil, false, nil
	}
	offer, err := c.context.Unwrap(payload)
	if err != nil {
		return nil, false, fmt.Errorf("the server's security layers: %w", err)
	}
	choice, err := c.choose(offer)
	if err != nil {
		return nil, false, err
	}
	response, err = c.context.Wrap(choice)
	return response, err == nil, err
}

// choose answers the server's offer: a byte of layers, and three of the largest message that it
// takes under one.
func (c *Conversation) choose(offer []byte) ([]byte, error) {
	switch {
	case len(offer) != 4:
		return nil, fmt.Errorf("the server's offer of security layers has %d bytes, must have 4",
			len(offer))
	case offer[0]&noLayer == 0:
		return nil, errors.New("the server requires a security layer, which MongoDB does not use")
	}
	return append([]byte{noLayer, 0, 0, 0}, c.user...), nil
}
