package aws

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/mooringdb/mooring/core/auth"
)

var _ auth.Mechanism = (*Mechanism)(nil)

// Mechanism implements MONGODB-AWS with the credentials of one client.
type Mechanism struct{ source *Source }

// New returns the mechanism with credentials from the source.
func New(s *Source) *Mechanism { return &Mechanism{s} }

// Name returns MONGODB-AWS.
func (m *Mechanism) Name() string { return "MONGODB-AWS" }

// patience is how long a source may take: an application's own provider has no other limit.
const patience = time.Minute

var errSlow = errors.New("no AWS credentials were obtained in time")

// Begin returns a conversation with the source's credentials and a fresh nonce. It blocks while an
// endpoint is asked.
func (m *Mechanism) Begin(ctx context.Context, _ auth.Target) (auth.Conversation, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSlow)
	defer cancel()
	c, err := m.source.Credentials(ctx)
	if err != nil {
		return nil, err
	}
	var nonce Nonce
	_, _ = rand.Read(nonce[:]) // never fails
	return NewConversation(c, nonce, m.source.config.Now()), nil
}

// Speculate returns nil: the mechanism does not begin in hello.
func (m *Mechanism) Speculate(auth.Target) auth.Conversation { return nil }

// Refused clears the cache, whatever the reason. Another attempt is left to the next connection.
func (m *Mechanism) Refused(auth.Conversation, error) bool {
	m.source.Clear()
	return false
}
