package interceptor

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/policy"
)

// apiPrefix begins the methods of the API. Other methods are health and reflection, which have
// nothing that a policy could decide about.
const apiPrefix = "/mooring."

// decide applies the policy to the request of a unary call. The messages of a stream have not
// arrived yet: see stream.RecvMsg.
func (x *Chain) decide(ctx context.Context, c *pass) error {
	if c.stream == nil {
		if err := c.check(ctx, c.request); err != nil {
			return err
		}
	}
	return c.next(ctx)
}

// ask keeps what the client asks for, if it may ask again with the same idempotency key: the
// policy, which changes the request, may be another one then.
func (c *pass) ask(ctx context.Context, m proto.Message) error {
	if c.stream != nil || len(metadata.ValueFromIncomingContext(ctx, call.IdempotencyKey)) == 0 {
		return nil
	}
	asked, err := call.DigestOf(m)
	c.call.Asked = &asked
	return err
}

// check applies the policy to a message of the client, if there is one. It logs what is refused,
// with the rule; the client does not see the rule. The replica that a client has called decides
// about the call, and another that it forwards the call to does not: it would refuse the filters
// that the policy has added.
func (c *pass) check(ctx context.Context, message any) error {
	enforcer := c.chain.cfg.Policy
	if enforcer == nil {
		if c.call.Forwarded {
			return nil
		}
		return c.checkOperator(ctx)
	}
	m, ok := message.(proto.Message)
	if !ok || !strings.HasPrefix(c.method, apiPrefix) {
		return nil
	}
	if !c.checked {
		c.checked = true
		c.policy = enforcer.Begin(c.call.Identity, c.method, c.call.Built)
		c.policy.Keep(&c.grounds)
		c.call.Rights, c.call.Answers = rights{c}, rights{c}
	}
	if c.call.Forwarded {
		c.policy.Of(m)
		c.decideInside(ctx)
		return c.grounds.Add(c.call.Taken)
	}
	if err := c.ask(ctx, m); err != nil {
		return err
	}
	err := c.policy.Check(ctx, m)
	c.call.Quiet = c.policy.Quiet()
	if c.policy.PerEvent() {
		c.call.Events = rights{c}
	}
	c.decideInside(ctx)
	if refusal, ok := errors.AsType[*policy.Refusal](err); ok {
		c.logRefusal(ctx, "request refused by the policy", refusal)
	}
	if err == nil && c.stream != nil && c.isStale() {
		err = c.chain.withdrawn(c) //nolint:contextcheck // it waits for nothing
		c.logEnd(err)              //nolint:contextcheck // it waits for nothing
	}
	return err
}

// isStale reports whether the rules or the API keys were replaced while a message was decided:
// review may have come before the decision.
func (c *pass) isStale() bool {
	callers, id := c.chain.cfg.Callers, c.call.Identity
	if callers != nil && id != nil {
		if now, ok := callers.Current(id); !ok || now != id {
			return true
		}
	}
	return c.policy.Stale()
}

// decideInside gives the handler what decides about each database or collection that the call lists
// or drops with others. It logs which of them keeps a database from being dropped; a list leaves
// them out.
func (c *pass) decideInside(ctx context.Context) {
	inside := c.policy.Inside()
	if inside == nil {
		return
	}
	c.call.Inside = insideFunc(func(database, collection string) error {
		err := inside(database, collection)
		refusal, ok := errors.AsType[*policy.Refusal](err)
		if ok && c.method == mooringv1.CatalogService_DropDatabase_FullMethodName {
			c.logRefusal(ctx, "request refused by the policy", refusal)
		}
		return err
	})
}

// insideFunc implements call.Inside.
type insideFunc func(database, collection string) error

// Decide calls the function.
func (f insideFunc) Decide(database, collection string) error { return f(database, collection) }

// logRefusal logs a refusal with its rule. The message is constant.
func (c *pass) logRefusal(ctx context.Context, message string, refusal *policy.Refusal) {
	//nolint:sloglint // see above
	c.chain.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, message,
		slog.String("method", c.method), slog.String("request_id", c.call.RequestID),
		slog.String("principal", refusal.Principal), slog.String("action", refusal.Action),
		slog.String("resource", refusal.On.String()), slog.String("rule", refusal.Rule),
		slog.String("field", refusal.Field), slog.String("err", refusal.Problem))
}

// checkOperator refuses the calls that show and end what belongs to all clients to clients that are
// no operators, if there is no policy. It logs what is refused.
func (c *pass) checkOperator(ctx context.Context) error {
	refusal := policy.Unruled(c.call.Identity, c.chain.cfg.Operators, c.method)
	if refusal == nil {
		return nil
	}
	c.logRefusal(ctx, "request refused: the client is not an operator", refusal)
	return refusal
}

// isOperator reports whether the client may see the servers of the deployment.
func (c *pass) isOperator() bool {
	cfg, id := &c.chain.cfg, c.call.Identity
	switch {
	case id == nil:
		return false
	case cfg.Policy != nil:
		return cfg.Policy.IsOperator(id)
	}
	return slices.Contains(cfg.Operators, id.Principal)
}
