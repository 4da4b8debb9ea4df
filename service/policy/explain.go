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

// Explanation says what a policy makes of a request.
type Explanation struct {
	// Rule names the rules that decide; "no rule" if none permits it.
	Rule string
	// Refusal is nil if the request is allowed.
	Refusal *Refusal
	// Decision says what the caller may do with the action on what the request names. It is nil for
	// requests that have others in them, each of which is decided by itself.
	Decision *Decision
	// Commandless names the rule because of which the caller can run no commands; empty: none.
	Commandless string
}

// Explain decides about a request of a method, such as /mooring.v1.DocumentService/Find, as
// Call.Check does, and changes it so. Its errors are those of Check that are no Refusal.
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
	case err != nil:
		return nil, err
	}
	if on, ok := c.decidesOn(); ok {
		x.Decision = c.state.decide(question{who, c.name, on})
	}
	return x, nil
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

// Unruled returns the Refusal of a call where there is no policy, or nil. Then clients may make all
// calls but those of operators. Nil operators mean that all clients are.
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
