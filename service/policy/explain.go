package policy

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/service/caller"
)

// Explanation describes how a policy decides about a request, and why.
type Explanation struct {
	// Rule is as in Decision, or says that there is no policy.
	Rule string
	// Refusal is nil if the request is allowed.
	Refusal *Refusal
	// Decision says what the caller may do with the action on the resource of the request. It is
	// nil if the request contains further requests, each of which is decided by itself.
	Decision *Decision
	// Commandless is what Policy.Commandless returns for the caller.
	Commandless string
	// Near and Permit are what NearPermits and PermitFor return for what no rule permits.
	Near   []Near
	Permit string
}

// Explain decides about a request of a method, such as /mooring.v1.DocumentService/Find, as
// Call.Check does, and changes the request in the same way. A *Refusal of Check is in the
// Explanation; Explain returns the other errors of Check.
func (e *Enforcer) Explain(
	ctx context.Context, who *caller.Identity, name string, request proto.Message,
) (*Explanation, error) {
	c := e.Begin(who, name, false)
	err := c.Check(ctx, request)
	defer c.work.Release()
	x := &Explanation{Rule: c.Rule(), Commandless: c.state.standing(who).commandless}
	switch refusal, refused := errors.AsType[*Refusal](err); {
	case refused:
		x.Rule, x.Refusal = refusal.Rule, refusal
		x.suggest(&c, refusal)
	case err != nil:
		return nil, err
	}
	if on, ok := c.decidesOn(); ok {
		x.Decision = c.state.decide(question{who, c.name, on})
	}
	return x, nil
}

// suggest says what would allow what no rule permits.
func (x *Explanation) suggest(c *Call, refusal *Refusal) {
	if refusal.Rule != NoRule {
		return
	}
	who := principal(c.who)
	x.Near = c.state.policy.NearPermits(&who, refusal.Action, refusal.On)
	x.Permit = PermitFor(&who, refusal.Action, refusal.On)
}

// decidesOn returns what the action of the call is decided on. It reports false if the parts of the
// request are decided instead.
func (c *Call) decidesOn() (on Resource, ok bool) {
	if c.method == nil {
		return Resource{}, false
	}
	switch c.method.Scope {
	case mooringv1.Method_SCOPE_REQUESTS, mooringv1.Method_SCOPE_WRITES:
		return Resource{}, false
	case mooringv1.Method_SCOPE_DEPLOYMENT, mooringv1.Method_SCOPE_OPENED:
		return Resource{}, true
	default:
		return c.on, true
	}
}

// WithoutPolicy explains a request on a gateway without a policy; see Unruled.
func WithoutPolicy(who *caller.Identity, operators []string, name string) *Explanation {
	x := &Explanation{Rule: "no policy"}
	if x.Refusal = Unruled(who, operators, name); x.Refusal != nil {
		x.Rule = x.Refusal.Rule
	}
	return x
}

// Unruled returns the Refusal of a call on a gateway without a policy, or nil if the call is
// allowed: all calls are but those for operators. operators lists the principals that may make
// these; nil means all clients.
func Unruled(who *caller.Identity, operators []string, name string) *Refusal {
	m := method.Of(name)
	if m == nil || m.Group != mooringv1.Method_GROUP_OPERATE || operators == nil {
		return nil
	}
	r := &Refusal{Action: m.Action, Rule: "auth.operators", NoPolicy: true}
	if who != nil {
		if slices.Contains(operators, who.Principal) {
			return nil
		}
		r.Principal = who.Principal
	}
	return r
}
