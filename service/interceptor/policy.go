package interceptor

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/service/policy"
)

// apiPrefix begins the methods of the API. Other methods are health and reflection, which have
// nothing that a policy could decide about.
const apiPrefix = "/mooring."

// check applies the policy to a message of the client, if there is one. It logs what is refused,
// with the rule; the client does not see the rule.
func (c *pass) check(ctx context.Context, message any) error {
	enforcer := c.chain.cfg.Policy
	m, ok := message.(proto.Message)
	if enforcer == nil || !ok || !strings.HasPrefix(c.method, apiPrefix) {
		return nil
	}
	if !c.checked {
		c.checked = true
		c.policy = enforcer.Begin(c.call.Identity, c.method, c.call.Built)
	}
	err := c.policy.Check(m)
	c.call.Quiet = c.policy.Quiet()
	if refusal, ok := errors.AsType[*policy.Refusal](err); ok {
		c.chain.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "request refused by the policy",
			slog.String("method", c.method), slog.String("request_id", c.call.RequestID),
			slog.String("principal", refusal.Principal), slog.String("action", refusal.Action),
			slog.String("resource", refusal.On.String()), slog.String("rule", refusal.Rule),
			slog.String("field", refusal.Field), slog.String("err", refusal.Problem))
	}
	return err
}
