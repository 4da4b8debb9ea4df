package admission

import "context"

// Vacate says that n of the charged bytes are no longer used, such as those of a text that was
// decoded. They stay charged, and AdmitMessage uses them before it charges more. A negative n takes
// that back for -n bytes, which must be done before Shrink returns them.
func (c *Account) Vacate(n int64) {
	if !c.charges() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balance = c.balance.vacate(n)
}

// AdmitMessage charges the call of ctx for a message to a server of size bytes, before it is built.
// It uses the bytes of Vacate first. It blocks until the message fits, but for at most
// Config.Patience and until ctx ends. The caller must call done when the message is no longer used.
// Until then it is charged even if the call has ended. Its errors are *Error and *WaitError.
func (a *Admission) AdmitMessage(ctx context.Context, size int) (done func(), err error) {
	c := From(ctx)
	if !c.charges() {
		return nothing, nil
	}
	vacant := c.occupy(int64(size))
	more := int64(size) - vacant
	if err := c.grow(ctx, more, true); err != nil {
		c.returnVacant(vacant)
		return nothing, a.bytes.unsent(err)
	}
	more = c.remove(more)
	return func() {
		c.returnVacant(vacant)
		c.give(more)
	}, nil
}

// SpareFor charges the call of ctx for size bytes that it can do without, and reports whether they
// fit. It does not block. If it reports true, the caller must call done when they are no longer
// used.
func (a *Admission) SpareFor(ctx context.Context, size int) (done func(), ok bool) {
	c := From(ctx)
	if !c.charges() {
		return nothing, true
	}
	if !a.bytes.spare(c.principal, int64(size)) {
		return nothing, false
	}
	return func() { c.give(int64(size)) }, true
}

func (c *Account) occupy(n int64) (removed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balance, removed = c.balance.occupy(n)
	return removed
}

// returnVacant returns to the account what occupy has removed.
func (c *Account) returnVacant(n int64) {
	if c.keep(n, balance.add) {
		c.Vacate(n)
	}
}

func nothing() {}
