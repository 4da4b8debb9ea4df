package interceptor

import (
	"context"
	"crypto/x509"
	"net/netip"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Authenticate finds out who makes a call of the gRPC listener, by its metadata and its connection.
// The listener calls it before it reads the request. The interceptors need the context that it
// returns. Its error is the status that the client gets. Without Config.Callers it returns ctx.
func (x *Chain) Authenticate(ctx context.Context, method string) (context.Context, error) {
	if x.cfg.Callers == nil {
		return ctx, nil
	}
	value := func(key string) []string { return metadata.ValueFromIncomingContext(ctx, key) }
	local := call.Local{RequestID: requestID(value(RequestIDKey))}
	presented := fromPeer(ctx)
	presented.Authorization = value("authorization")
	presented.APIKey = caller.Join(value("api-key"), value("apikey"))
	var err error
	if local.Identity, err = x.cfg.Callers.Authenticate(ctx, &presented); err == nil {
		return &call.LocalContext{Context: ctx, Local: local}, nil
	}
	failure := rpcerr.Explain(err, call.Call{Local: local})
	refusals := x.Refusals()
	refusals.Refused(ctx, &Refusal{
		RequestID: local.RequestID, Method: method, Client: presented.Address,
		Code: failure.Code(), Reason: failure.Reason(), Message: failure.Logged(),
	})
	return nil, failure
}

// Refuse records a unary call of the gRPC listener whose request could not be read. It blocks while
// it holds back the refusal of a client that has had many. ctx is what Authenticate has returned.
// The error that it returns is the status that the client gets.
func (x *Chain) Refuse(ctx context.Context, method string, err error) error {
	local := localOf(ctx)
	failure := rpcerr.Explain(err, call.Call{Local: local, Terse: x.cfg.Terse})
	refusals := x.Refusals()
	refusals.Refused(ctx, &Refusal{
		RequestID: local.RequestID, Principal: nameOf(&local), Admitted: true, Method: method,
		Client: local.Client, Code: failure.Code(), Reason: failure.Reason(),
		Message: failure.Logged(),
	})
	return failure
}

// localOf returns what the caller within the process says of a call, with the id and the address
// that a call of the network has.
func localOf(ctx context.Context) call.Local {
	local := call.LocalFrom(ctx)
	if !local.Forwarded && !local.Client.IsValid() {
		local.Client = fromPeer(ctx).Address
	}
	if local.RequestID == "" {
		local.RequestID = requestID(metadata.ValueFromIncomingContext(ctx, RequestIDKey))
	}
	return local
}

// nameOf returns the principal of the client; empty: it has none.
func nameOf(local *call.Local) string {
	if local.Identity == nil {
		return ""
	}
	return local.Identity.Principal
}

// fromPeer returns what the client's connection says of the client.
func fromPeer(ctx context.Context) (p caller.Presented) {
	client, ok := peer.FromContext(ctx)
	if !ok {
		return p
	}
	if secure, ok := client.AuthInfo.(credentials.TLSInfo); ok {
		p.Certificate = verifiedLeaf(secure.State.VerifiedChains)
	}
	if a, ok := client.Addr.(interface{ AddrPort() netip.AddrPort }); ok {
		p.Address = a.AddrPort().Addr().Unmap()
	}
	return p
}

func verifiedLeaf(chains [][]*x509.Certificate) *x509.Certificate {
	if len(chains) == 0 {
		return nil
	}
	return chains[0][0]
}

var (
	errUnknown = &caller.Error{Message: "this call needs credentials"}
	errExpired = &caller.Error{
		Problem: caller.Invalid, Message: "the credential of the stream has expired",
	}
)

// permit refuses calls whose client the listener has not authenticated, if it must be. It ends a
// stream when the client's credential expires.
func (x *Chain) permit(ctx context.Context, c *pass) error {
	id := c.call.Identity
	switch {
	case id == nil && x.cfg.Callers == nil:
		return c.next(ctx)
	case id == nil:
		return errUnknown
	}
	if x.cfg.Callers != nil { // a ticket is older than the call
		now, ok := x.cfg.Callers.Current(id)
		if !ok {
			return errRemoved
		}
		c.call.Identity, id = now, now
	}
	c.call.Principal = id.Principal
	if c.stream == nil || id.Expires.IsZero() {
		return c.next(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Not a deadline: it would become the time limit of the server's work.
	timer := time.AfterFunc(time.Until(id.Expires), func() { cancel(ending{errExpired}) })
	defer timer.Stop()
	return c.next(ctx)
}
