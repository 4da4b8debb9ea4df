package interceptor

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// charge opens the account of the call's client, unless the listener has done so. The memory that
// the call uses here is charged to it. A refusal ends the call.
func (x *Chain) charge(ctx context.Context, c *pass) error {
	a := x.cfg.Admission
	if a == nil {
		return c.next(ctx)
	}
	if c.call.Account == nil {
		a.Open(&c.account, admission.PrincipalOf(c.call.Principal, c.call.Client))
		defer c.account.Close()
		c.call.Account = &c.account
	}
	c.call.Account.OnRefusal(&c.place)
	return c.refused(ctx, c.next(ctx))
}

// admit waits until the call has its place among the calls in flight, or the open streams, of its
// principal.
func (x *Chain) admit(ctx context.Context, c *pass) error {
	a := x.cfg.Admission
	if a == nil {
		return c.next(ctx)
	}
	p := c.call.Account.Principal()
	if c.stream != nil {
		if err := a.EnterStream(ctx, p); err != nil {
			return err
		}
		defer a.LeaveStream(p)
		return c.next(ctx)
	}
	began := time.Now()
	err := a.EnterCall(ctx, p)
	c.queued = time.Since(began)
	if err != nil {
		return err
	}
	defer a.LeaveCall(p)
	return c.next(ctx)
}

// pace holds back the refusal of a client that has had many. What the call is charged with stays
// until then.
func (x *Chain) pace(ctx context.Context, c *pass) error {
	err := c.next(ctx)
	if isRefusal(outcomeOf(err)) {
		of := admission.PrincipalOf(c.call.Principal, c.call.Client)
		x.cfg.Admission.HoldBack(ctx, of)
	}
	return err
}

// isRefusal reports whether a call with that outcome was refused by a limit or by the policy.
func isRefusal(code codes.Code, reason string) bool {
	return code == codes.ResourceExhausted || code == codes.PermissionDenied ||
		rpcerr.Reason(reason) == rpcerr.Overloaded
}

// OpenAccount opens another account of the client that makes a call of the gRPC listener, or whose
// call another replica forwards, for its messages. ctx is what Authenticate has returned. If
// nothing is limited, it does nothing.
func (x *Chain) OpenAccount(ctx context.Context, c *admission.Account) {
	if x.cfg.Admission == nil {
		return
	}
	local := call.LocalFrom(ctx)
	client := local.Client
	if !local.Forwarded {
		client = fromPeer(ctx).Address
	}
	x.cfg.Admission.Open(c, admission.PrincipalOf(nameOf(&local), client))
}

// refused returns the error of a call, or the refusal that has canceled the call.
func (c *pass) refused(ctx context.Context, err error) error {
	if err == nil || !isCanceled(err) {
		return err
	}
	if refusal, ok := errors.AsType[*admission.Error](context.Cause(ctx)); ok {
		return c.instead(err, refusal)
	}
	return err
}
