package conn

import (
	"context"
	"errors"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/wire"
)

var _ auth.Runner = (*Conn)(nil)

// login returns the state of the connection's authentication, nil if the client has no credential.
func (c *Conn) login(cfg Config) (*auth.State, error) {
	if cfg.Auth == nil {
		return nil, nil
	}
	return cfg.Auth.Start(auth.Target{Address: c.addr})
}

// authenticate ends the handshake. Arbiters have no users (Authentication, "Arbiters"): on their
// connections the credential is not used, also if the server asks for another authentication
// later.
func (c *Conn) authenticate(ctx context.Context, r auth.Runner) error {
	if c.desc.Kind == description.ServerRSArbiter {
		c.auth = nil
	}
	if c.auth == nil {
		return nil
	}
	return c.ofService(c.auth.Authenticate(ctx, r, c.hello))
}

// Reauthenticate authenticates the connection again after the server has asked for it with cause
// (error 391). It blocks until that is done or ctx ends. The error is an *auth.Error; the
// connection must not be used after it.
func (c *Conn) Reauthenticate(ctx context.Context, cause error) error {
	if c.auth == nil {
		return cause
	}
	err := c.ofService(c.auth.Reauthenticate(ctx, c, cause))
	if err != nil {
		c.broken.CompareAndSwap(nil, &breakage{err})
	}
	return err
}

// Mechanism returns the mechanism that authenticated the connection, and why it was chosen. Both
// are empty if no mechanism did.
func (c *Conn) Mechanism() (name, why string) {
	if c.auth == nil {
		return "", ""
	}
	return c.auth.Mechanism()
}

// ofService adds the service to an error of an authentication behind a load balancer.
func (c *Conn) ofService(err error) error {
	if e, ok := errors.AsType[*auth.Error](err); ok {
		e.Service = c.desc.ServiceID
	}
	return err
}

// loginRunner runs the commands of the first authentication within what is left of ConnectTimeout.
// The time between them, in which a provider may obtain a credential, does not count.
type loginRunner struct {
	conn  *Conn
	limit *limit
}

// Run runs one command.
func (r *loginRunner) Run(
	ctx context.Context, database string, command bson.Raw,
) (bson.Raw, error) {
	ctx, end := r.limit.apply(ctx)
	defer end()
	return r.conn.Run(ctx, database, command)
}

// Run runs one command of an authentication.
func (c *Conn) Run(ctx context.Context, database string, command bson.Raw) (bson.Raw, error) {
	b := bson.NewBuilder(wire.BeginMsg(nil, 0))
	b.AppendElements(command)
	appendAPI(b, c.api)
	b.String("$db", database)
	if err := b.Err(); err != nil {
		return nil, err
	}
	b.Finish()
	msg := b.Bytes()
	wire.EndMsg(msg)
	reply, err := c.RoundTrip(ctx, msg)
	if e, ok := err.(*mongoerr.NetworkError); ok { //nolint:errorlint // RoundTrip never wraps it
		e.Op, e.Sent = "authentication", false // no operation was sent
	}
	return reply, err
}
