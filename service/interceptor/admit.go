package interceptor

import (
	"context"

	"github.com/mooringdb/mooring/service/admission"
)

// admit waits until the call has its place among the calls in flight, or the open streams, of its
// principal. It opens the call's account, unless the listener has done so.
func (x *Chain) admit(ctx context.Context, c *pass) error {
	a := x.cfg.Admission
	if a == nil {
		return c.next(ctx)
	}
	if c.call.Account == nil {
		a.Open(&c.account, admission.PrincipalOf(c.call.Principal, fromPeer(ctx).Address))
		defer c.account.Close()
		c.call.Account = &c.account
	}
	p := c.call.Account.Principal()
	if c.stream != nil {
		if err := a.EnterStream(ctx, p); err != nil {
			return err
		}
		defer a.LeaveStream(p)
		return c.next(ctx)
	}
	if err := a.EnterCall(ctx, p); err != nil {
		return err
	}
	defer a.LeaveCall(p)
	return c.next(ctx)
}
