package admission

import (
	"context"
	"sync"
)

// Account holds bytes of memory that one principal uses for one purpose: a call, or what outlives
// it, such as the rest of a cursor's batch. A holder charges its account before it takes memory
// (Grow, Reserve), hands memory over to the next holder (HandOver), and returns what it does not
// use any more (Shrink, Close). No byte is returned twice: an account returns what it holds, and
// nothing if that was returned before.
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
	// overdrawn says that the account has the overdraft of the admission, with which it reads so
	// many replies.
	overdrawn bool
	reading   int
	open      bool // see GoOn
}

// Open opens an account of a principal; before that, it is the zero value. If a is nil, nothing is
// charged. The caller must call Close when the holder uses no memory any more.
func (a *Admission) Open(c *Account, p Principal) { c.admission, c.principal = a, p }

// OpenFor opens another account of the principal of c, for memory that outlives the call. If c
// charges nothing, it does nothing.
func (c *Account) OpenFor(other *Account) {
	if c.charges() {
		other.admission, other.principal = c.admission, c.principal
	}
}

// Ender ends a call with a cause. It does not block.
type Ender interface{ End(cause error) }

// OnRefusal sets what ends the call when a reply of the server does not fit.
func (c *Account) OnRefusal(end Ender) { c.refuse = end }

// Principal returns whose account it is.
func (c *Account) Principal() Principal { return c.principal }

// Grow charges n more bytes of a request before they are taken. It blocks until they fit, for at
// most Config.Patience and until ctx ends. Its errors are *Error and *WaitError.
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

// GrowLast does what Grow does for the last bytes of a call, which then holds everything that it
// needs to end. Such bytes come before those of calls that have longer to go. It uses what Reserve
// has charged first. Its errors are *Error and the cause of ctx.
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
	open, overdrawn := c.isOpen(), false
	v, err := c.admission.bytes.attempt(ctx, c.principal, n, last || open)
	switch {
	case err != nil:
		return err
	case v != fits && !open:
		return c.admission.bytes.refusal(v)
	case v != fits:
		if overdrawn, err = c.insist(ctx, n, v); err != nil {
			return err
		}
	}
	c.keep(n, balance.add)
	if overdrawn {
		c.endReading()
	}
	c.admission.allocates(n)
	return nil
}

// Reserve charges n bytes for replies of the server, before the command is sent whose reply they
// are for, and for the response. It blocks like Grow. AdmitReply and GrowLast use them before they
// charge more; TakeReplies and Close return what is left. A command whose reply would not fit is so
// refused before it has an effect.
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

// CheckTotal returns an *Error if a call could not grow to n bytes even if nothing else were held.
func (c *Account) CheckTotal(n int64) error {
	if !c.charges() {
		return nil
	}
	return c.admission.bytes.check(n)
}

// Force charges n bytes that are in use already. It does not block. No other call gets them, but
// the budget may be exceeded.
func (c *Account) Force(n int64) {
	if !c.charges() || n <= 0 {
		return
	}
	c.admission.bytes.force(c.principal, n)
	c.keep(n, balance.add)
}

// HandOver charges another account with n bytes that it holds from now on, instead of this one. It
// does not block. What this account does not hold, for example because its call has ended, the
// other one is charged with as Force does. What is reserved here stays.
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
	}
}

// Held returns the bytes that are charged.
func (c *Account) Held() int64 {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.balance.held
}

// Shrink returns n bytes, or what is charged if that is less.
func (c *Account) Shrink(n int64) {
	if c.charges() {
		c.give(c.remove(n))
	}
}

// TakeReplies returns how many bytes are charged for the server's replies since the last call. The
// caller returns them with Shrink, or hands them over, when the replies are not used any more,
// unless that is at the end of the call. What Reserve has charged beside them is returned.
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

// Close returns everything. What is charged later is returned at once.
func (c *Account) Close() {
	if !c.charges() {
		return
	}
	c.mu.Lock()
	var held int64
	c.balance, held = c.balance.close()
	c.mu.Unlock()
	c.give(held)
	c.returnOverdraft()
	c.end()
}
