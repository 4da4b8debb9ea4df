// Package gssapi implements the mechanism GSSAPI, which is Kerberos (RFC 4752): a client sends a
// ticket for the server's service, the server proves that it has the service's key, and both agree
// on no further protection, since TLS provides it. The package has the conversation and the names
// of services; a Kerberos library, such as package krb5, implements Initiator.
package gssapi

import (
	"context"
	"errors"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// DefaultServiceName is the service of MongoDB servers.
const DefaultServiceName = "mongodb"

// Service names what a ticket is for.
type Service struct {
	Name, Host string
	Realm      string // empty stands for the realm that the library finds for the host
}

// Initiator obtains tickets. Its methods may be called by several goroutines at once.
type Initiator interface {
	// Initiate returns a new security context with the service. It blocks while a ticket is
	// fetched, until ctx ends. A user without a password is found in a keytab or a credential
	// cache.
	Initiate(ctx context.Context, s Service, u auth.User) (SecurityContext, error)

	// Refused takes note that a server refused the context. It reports whether a new one may
	// succeed.
	Refused(c SecurityContext) (again bool)
}

// SecurityContext holds one context, in the words of RFC 2743. It does no I/O, and one goroutine
// uses it.
type SecurityContext interface {
	// First returns the token that begins the context. It is called once.
	First() ([]byte, error)

	// Next takes the acceptor's token, after which the context is established.
	Next(token []byte) error

	// Wrap returns a message with its integrity protected, without confidentiality.
	Wrap(message []byte) ([]byte, error)

	// Unwrap returns the message in what the acceptor wrapped. An error is one whose integrity is
	// not proved.
	Unwrap(wrapped []byte) ([]byte, error)
}

// Config says which service a server's is. Its zero value is mongodb at the host that is connected
// to.
type Config struct {
	ServiceName  string // SERVICE_NAME; empty stands for DefaultServiceName
	ServiceRealm string // SERVICE_REALM
	ServiceHost  string // SERVICE_HOST; empty stands for the host that is connected to

	// Canonicalize says how the host's name is found (CANONICALIZE_HOST_NAME).
	Canonicalize Canonicalization

	// Resolver answers questions about names; nil stands for net.DefaultResolver.
	Resolver Resolver
}

var _ auth.Mechanism = (*Mechanism)(nil)

// Mechanism implements GSSAPI for one client.
type Mechanism struct {
	config    Config
	initiator Initiator
}

// New returns the mechanism over a Kerberos library.
func New(cfg Config, i Initiator) *Mechanism {
	if cfg.ServiceName == "" {
		cfg.ServiceName = DefaultServiceName
	}
	return &Mechanism{cfg, i}
}

// Name returns GSSAPI.
func (m *Mechanism) Name() string { return "GSSAPI" }

// Speculate returns nil: the mechanism does not begin in hello.
func (m *Mechanism) Speculate(auth.Target) auth.Conversation { return nil }

// patience is how long names and a ticket may take.
const patience = time.Minute

var errSlow = errors.New("no ticket was obtained in time")

// Begin returns a conversation with a ticket for the server's service. It blocks while names are
// resolved and a ticket is fetched.
func (m *Mechanism) Begin(ctx context.Context, to auth.Target) (auth.Conversation, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSlow)
	defer cancel()
	host := m.config.ServiceHost
	if host == "" {
		host = to.Address.Host()
	}
	service := Service{
		Name:  m.config.ServiceName,
		Host:  m.config.Canonicalize.name(ctx, m.config.Resolver, host),
		Realm: m.config.ServiceRealm,
	}
	c, err := m.initiator.Initiate(ctx, service, to.User)
	if err != nil {
		return nil, err
	}
	return NewConversation(c, to.User.Name), nil
}

// Refused asks the library whether a new ticket may succeed. A connection that broke says nothing
// about the ticket.
func (m *Mechanism) Refused(c auth.Conversation, err error) bool {
	return !mongoerr.IsNetwork(err) && m.initiator.Refused(c.(*Conversation).context)
}
