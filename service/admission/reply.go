package admission

import (
	"context"
	"net/netip"
)

// AccountKey identifies the *Account in the context of a call.
type AccountKey struct{}

// From returns the account of the call that ctx belongs to, nil if there is none.
func From(ctx context.Context) *Account {
	c, _ := ctx.Value(AccountKey{}).(*Account)
	return c
}

// AddressFrom returns the address of the client whose call ctx belongs to, as in Principal: it is
// not valid if the client has a name.
func AddressFrom(ctx context.Context) netip.Addr {
	if c := From(ctx); c != nil {
		return c.principal.Address
	}
	return netip.Addr{}
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

// AdmitReply charges the call of ctx for a reply of the server of size bytes, before it is read. It
// uses what Reserve has charged first. It blocks until the reply fits, but for at most
// Config.Patience and until ctx ends. If it does not fit, the call ends with an *Error. After GoOn,
// and for a command that goes on without its client, AdmitReply waits until the reply fits or the
// call has the overdraft: see GoOn. The caller must call done when the reply has been read. Until
// then it is charged even if the call has ended; afterwards, if it is kept, until the end of the
// call. What was reserved for a reply that is not kept is reserved again.
func (a *Admission) AdmitReply(ctx context.Context, size int) (done func(kept bool), err error) {
	c := From(ctx)
	if !c.charges() {
		return func(bool) {}, nil
	}
	n := int64(size)
	reserved := c.draw(n)
	if more := n - reserved; more > 0 {
		// A reply that was reserved for, and is larger, comes first: its call has the rest already.
		var v verdict
		v, err = a.bytes.attempt(ctx, c.principal, more, reserved > 0 || c.isOpen())
		if err == nil && v != fits {
			err = c.insist(ctx, more, v)
		}
	}
	if err != nil {
		c.give(reserved)
		return func(bool) {}, err
	}
	a.allocates(n)
	return func(kept bool) {
		if kept {
			c.keep(n, balance.addReply)
		} else {
			c.keep(reserved, balance.addReserved)
			c.give(n - reserved)
		}
	}, nil
}

// GoOn says that the client already has a part of the result. From now on no charge of the call is
// refused, nor a place of EnterCommand. A charge waits instead until it fits, or until the call
// gets the overdraft: the permission, which one call has at a time, to exceed the budget. The call
// has it until it has given back, or handed over, as many bytes as it has overdrawn: it may be open
// for days.
func (c *Account) GoOn() {
	if !c.charges() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = true
}

func (c *Account) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// insist takes bytes that do not fit. Unless GoOn was called, it ends the call. If the call or what
// goes on without it is not over then, it blocks until the bytes fit or the account has the
// overdraft, and until ctx ends.
func (c *Account) insist(ctx context.Context, n int64, v verdict) error {
	a := c.admission
	if !c.isOpen() {
		refused := a.bytes.refusal(v)
		if c.refuse != nil {
			c.refuse.End(refusal{refused})
		}
		if ctx.Err() != nil {
			return refused
		}
	}
	if !c.owe(n, false) {
		taken, err := c.awaitOverdraft(ctx, n)
		if taken || err != nil {
			return err
		}
	}
	a.bytes.force(c.principal, n)
	return nil
}

// awaitOverdraft blocks until the account has taken n bytes, or has the overdraft and owes them.
// One goroutine of an account waits at a time, also behind a larger demand: with two, one could
// wait for an overdraft that the other has got.
func (c *Account) awaitOverdraft(ctx context.Context, n int64) (taken bool, err error) {
	waits := c.waiting()
	select {
	case waits <- struct{}{}:
		defer func() { <-waits }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if c.owe(n, false) {
		return false, nil
	}
	a := c.admission
	taken, err = a.bytes.await(ctx, c.principal, n, true, a.overdraft)
	if !taken && err == nil {
		c.owe(n, true)
	}
	return taken, err
}

// waiting returns the channel that holds a value while a goroutine waits for the overdraft.
func (c *Account) waiting() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits == nil {
		c.waits = make(chan struct{}, 1)
	}
	return c.waits
}

// owe records that n bytes are overdrawn, if the account has the overdraft or gets it now.
func (c *Account) owe(n int64, gets bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owed == 0 && !gets {
		return false
	}
	c.owed += n
	return true
}

// pay records that n bytes are no longer the account's. It returns the overdraft if that was all
// that is owed.
func (c *Account) pay(n int64) {
	c.mu.Lock()
	returns := c.owed > 0 && c.owed <= n
	c.owed = max(c.owed-n, 0)
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
