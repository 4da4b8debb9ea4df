package admission

import (
	"context"
	"errors"
)

// AccountKey keys the *Account in the context of a call.
type AccountKey struct{}

// From returns the account of the call that ctx belongs to, nil if there is none.
func From(ctx context.Context) *Account {
	c, _ := ctx.Value(AccountKey{}).(*Account)
	return c
}

// CallerOf returns the Principal of the call that ctx belongs to, nil if there is none.
func CallerOf(ctx context.Context) any {
	if c := From(ctx); c != nil {
		return c.principal
	}
	return nil
}

// refusal ends the context of a call whose reply does not fit. It counts as a cancellation, so
// that what goes on without its client goes on, and closes the cursor that it opens.
type refusal struct{ err *Error }

func (r refusal) Error() string { return r.err.Error() }

// Unwrap returns the refusal and the cancellation.
func (r refusal) Unwrap() []error { return []error{r.err, context.Canceled} }

// AdmitReply charges a reply of the server to the call that ctx belongs to, before it is read: with
// what Reserve has charged, and with what is missing. It
// blocks until the reply fits, for at most Config.Patience and until ctx ends. If it does not fit,
// the call ends with an *Error. What goes on without its client is then read alone: one reply at a
// time that nothing has room for. The caller calls done when the reply has been read. Until then
// it is charged even if the call has ended, and afterwards until the end of the call.
func (a *Admission) AdmitReply(ctx context.Context, size int) (done func(), err error) {
	c := From(ctx)
	if !c.charges() {
		return nothing, nil
	}
	reserved := c.draw(int64(size))
	// A reply that was reserved for, and is larger, comes first: its call has the rest already.
	if more := int64(size) - reserved; more > 0 {
		err = a.bytes.take(ctx, c.principal, more, reserved > 0)
	}
	if err == nil {
		return func() { c.keep(int64(size), balance.addReply) }, nil
	}
	c.give(reserved)
	refused, ok := errors.AsType[*Error](err)
	if !ok {
		return nothing, err
	}
	if c.refuse != nil {
		c.refuse(refusal{refused})
	}
	if ctx.Err() != nil {
		return nothing, err
	}
	return a.overdraw(ctx, c, int64(size))
}

func nothing() {}

// overdraw charges a reply that does not fit. The account keeps the overdraft until it is closed
// and has read its replies.
func (a *Admission) overdraw(
	ctx context.Context, c *Account, size int64,
) (done func(), err error) {
	if !c.beginReading(false) {
		select {
		case a.overdraft <- struct{}{}:
			c.beginReading(true)
		case <-ctx.Done():
			return nothing, context.Cause(ctx)
		}
	}
	a.bytes.force(c.principal, size)
	return func() {
		c.keep(size, balance.addReply)
		c.mu.Lock()
		c.reading--
		c.mu.Unlock()
		c.returnOverdraft()
	}, nil
}

// beginReading begins to read a reply with the overdraft, if the account has it or gets it now.
func (c *Account) beginReading(gets bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overdrawn = c.overdrawn || gets
	if c.overdrawn {
		c.reading++
	}
	return c.overdrawn
}

// returnOverdraft returns the overdraft if the account has it and does not need it any more.
func (c *Account) returnOverdraft() {
	c.mu.Lock()
	returns := c.overdrawn && c.balance.closed && c.reading == 0
	c.overdrawn = c.overdrawn && !returns
	c.mu.Unlock()
	if returns {
		<-c.admission.overdraft
	}
}

// draw removes what is reserved for a reply of n bytes from the account. The caller owns it.
func (c *Account) draw(n int64) (drawn int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balance, drawn = c.balance.draw(n)
	return drawn
}
