package admission

import (
	"context"
	"sync"
)

// Account counts the bytes of memory that one principal uses for one purpose: a call, or something
// that outlives it, such as the rest of a cursor's batch. Its holder charges it before it allocates
// memory (Grow, Reserve), hands memory over to another account (HandOver), and returns what it no
// longer uses (Shrink, Close). An account never returns more than it holds.
//
// The zero value charges nothing, and neither does nil. An Account is safe for concurrent use and
// must not be copied.
type Account struct {
	admission *Admission // nil: nothing is charged
	principal Principal
	// refuse ends the call of the account when a reply does not fit; nil: nothing does.
	refuse Ender

	// mu guards the fields below. Nothing blocks while it is held.
	mu      sync.Mutex
	balance balance
	ends    ends
	// owed is how many bytes are overdrawn and not paid yet. If it is positive, the account has the
	// overdraft of the admission.
	owed  int64
	open  bool          // see GoOn
	waits chan struct{} // see waiting; nil: nothing has waited
}

// Open makes c, a zero Account, charge a principal of a. If a is nil, nothing is charged. The
// caller must call Close when the memory is no longer used.
func (a *Admission) Open(c *Account, p Principal) { c.admission, c.principal = a, p }

// OpenFor opens other, a zero Account, for the principal of c and for memory that outlives the call
// of c. If c charges nothing, neither does other. GoOn of c before counts for other, too.
func (c *Account) OpenFor(other *Account) {
	if c.charges() {
		other.admission, other.principal, other.open = c.admission, c.principal, c.isOpen()
	}
}

// Ender ends a call with a cause. It does not block.
type Ender interface{ End(cause error) }

// OnRefusal sets what AdmitReply calls to end the call when a reply of the server does not fit.
func (c *Account) OnRefusal(end Ender) { c.refuse = end }

// Principal returns whose account it is.
func (c *Account) Principal() Principal { return c.principal }

// Grow charges n more bytes of a request before they are allocated. It blocks until they fit, but
// for at most Config.Patience and until ctx ends. Its errors are *Error and *WaitError. On an error
// nothing is charged.
func (c *Account) Grow(ctx context.Context, n int64) error {
	err := c.grow(ctx, n, false)
	if err == nil {
		return nil
	}
	return c.admission.bytes.unsent(err)
}

// growNow charges n more bytes if they fit, and reports whether they do. It does not wait for them.
func (c *Account) growNow(n int64) bool {
	if !c.charges() {
		return true
	}
	if !c.admission.bytes.spare(c.principal, n) {
		return false
	}
	c.keep(n, balance.add)
	c.admission.allocates(n)
	return true
}

// GrowLast does what Grow does for the last bytes that a call needs. It uses what is left of
// Reserve first, and comes before Grow of other calls, since this call is about to return
// everything. Its errors are *Error and the cause of ctx.
func (c *Account) GrowLast(ctx context.Context, n int64) error {
	if !c.charges() || n <= 0 {
		return nil
	}
	drawn := c.draw(n)
	c.keep(drawn, balance.add)
	err := c.grow(ctx, n-drawn, true)
	if err != nil {
		c.refuseResponse()
	}
	return err
}

func (c *Account) grow(ctx context.Context, n int64, last bool) error {
	if !c.charges() || n <= 0 {
		return nil
	}
	open := c.isOpen()
	v, err := c.admission.bytes.attempt(ctx, c.principal, n, last || open)
	switch {
	case err != nil:
		return err
	case v != fits && !open:
		return c.admission.bytes.refusal(v)
	case v != fits:
		if err = c.insist(ctx, n, v); err != nil {
			return err
		}
	}
	c.keep(n, balance.add)
	c.admission.allocates(n)
	return nil
}

// Reserve charges n bytes for the server's reply to a command that is not yet sent, and for the
// response. A command whose reply would not fit is thus refused before it has an effect. Reserve
// blocks and fails as Grow does. AdmitReply and GrowLast use the bytes before they charge more;
// TakeReplies and Close return what is left.
func (c *Account) Reserve(ctx context.Context, n int64) error {
	if !c.charges() || n <= 0 {
		return nil
	}
	if err := c.admission.bytes.take(ctx, c.principal, n); err != nil {
		return c.admission.bytes.unsent(err)
	}
	c.keep(n, balance.addReserved)
	return nil
}

// Spare charges n more bytes that the call can do without, and reports whether they fit. It does
// not block, and takes nothing that another call waits for.
func (c *Account) Spare(n int64) bool {
	if !c.charges() {
		return true
	}
	if !c.admission.bytes.spare(c.principal, n) {
		return false
	}
	c.keep(n, balance.add)
	return true
}

// ReserveSpare does what Reserve does, but only if the bytes fit at once, and reports whether it
// has. It does not block.
func (c *Account) ReserveSpare(n int64) bool {
	if !c.charges() || n <= 0 {
		return true
	}
	if !c.admission.bytes.spare(c.principal, n) {
		return false
	}
	return c.keep(n, balance.addReserved)
}

// CheckTotal returns an *Error if a call could not hold n bytes even if nothing else were held. It
// charges nothing.
func (c *Account) CheckTotal(n int64) error {
	if !c.charges() {
		return nil
	}
	return c.admission.bytes.check(n)
}

// Force charges n bytes that are already in use, even if that exceeds the budget. It does not
// block.
func (c *Account) Force(n int64) {
	if !c.charges() || n <= 0 {
		return
	}
	c.admission.bytes.force(c.principal, n)
	c.keep(n, balance.add)
}

// HandOver moves a charge of n bytes from c to another account. It does not block. If c holds fewer
// bytes, for example because its call has ended, the rest is charged as Force does. It does not
// move what Reserve has charged.
func (c *Account) HandOver(to *Account, n int64) {
	if !c.charges() || !to.charges() || c.admission != to.admission {
		to.Force(n)
		c.Shrink(n)
		return
	}
	handed := c.hand(n)
	c.admission.bytes.move(c.principal, to.principal, handed)
	if handed > 0 {
		to.keep(handed, balance.add)
		c.pay(handed)
	}
	to.Force(n - handed)
}

// charges reports whether the account is open, or was.
func (c *Account) charges() bool { return c != nil && c.admission != nil }

// keep records bytes that were taken, and reports whether it has. A closed account returns them at
// once.
func (c *Account) keep(n int64, add func(balance, int64) (balance, bool)) bool {
	c.mu.Lock()
	var kept bool
	c.balance, kept = add(c.balance, n)
	c.mu.Unlock()
	if !kept {
		c.give(n)
	}
	return kept
}

// remove removes n bytes, or what there is if that is less, from the account. The caller owns them.
func (c *Account) remove(n int64) (removed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balance, removed = c.balance.remove(n)
	return removed
}

// hand removes n bytes, or what there is beside what is reserved if that is less.
func (c *Account) hand(n int64) (handed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balance, handed = c.balance.remove(min(n, c.balance.held-c.balance.reserved))
	return handed
}

// give returns bytes that were removed from the account.
func (c *Account) give(n int64) {
	if n > 0 {
		c.admission.bytes.give(c.principal, n)
		c.pay(n)
	}
}

// Held returns how many bytes are charged.
func (c *Account) Held() int64 {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.balance.held
}

// Mark describes what an account held at a time.
type Mark struct{ held, vacant int64 }

// Mark returns what the account holds now, for ShrinkTo.
func (c *Account) Mark() (m Mark) {
	if c.charges() {
		c.mu.Lock()
		defer c.mu.Unlock()
		m = Mark{c.balance.held, c.balance.vacant}
	}
	return m
}

// ShrinkTo returns what was charged since m. What has been charged before must still be.
func (c *Account) ShrinkTo(m Mark) {
	if c.charges() {
		now := c.Mark()
		c.Vacate(m.vacant - now.vacant)
		c.Shrink(now.held - m.held)
	}
}

// Shrink returns n bytes, or what is charged if that is less.
func (c *Account) Shrink(n int64) {
	if c.charges() {
		c.give(c.remove(n))
	}
}

// TakeReplies reports how many bytes AdmitReply has charged since the last TakeReplies, and returns
// what is left of Reserve. If the replies are no longer used before the call ends, or are kept for
// longer, the caller passes these bytes to Shrink or HandOver.
func (c *Account) TakeReplies() (replies int64) {
	if !c.charges() {
		return 0
	}
	c.mu.Lock()
	var unused int64
	c.balance, replies, unused = c.balance.takeReplies()
	c.mu.Unlock()
	c.give(unused)
	return replies
}

// Close returns everything, and calls the functions of AtEnd. What is charged later is returned at
// once.
func (c *Account) Close() {
	if !c.charges() {
		return
	}
	c.mu.Lock()
	var held int64
	c.balance, held = c.balance.close()
	c.mu.Unlock()
	c.give(held)
	c.end()
}
