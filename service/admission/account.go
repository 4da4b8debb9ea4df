package admission

import (
	"context"
	"sync"
)

// Account holds the bytes of one call. The zero value charges nothing. It is safe for concurrent
// use and must not be copied.
type Account struct {
	admission *Admission // nil: nothing is charged
	principal Principal
	// refuse ends the call of the account when a reply does not fit; nil: nothing does.
	refuse context.CancelCauseFunc

	// mu guards the fields below. Nothing blocks while it is held.
	mu   sync.Mutex
	held int64
	// replies is the part of held that is charged for replies of the server.
	replies int64
	closed  bool
	// overdrawn says that the account has the overdraft of the admission, with which it reads so
	// many replies.
	overdrawn bool
	reading   int
}

// Open opens the account of a call that a principal makes; before that, it is the zero value. If a
// nil, nothing is charged. The caller must call Close when the call holds no memory any more.
func (a *Admission) Open(c *Account, p Principal) { c.admission, c.principal = a, p }

// OpenFor opens another account of the principal of c, for memory that outlives the call.
func (c *Account) OpenFor(other *Account) {
	if c != nil {
		other.admission, other.principal = c.admission, c.principal
	}
}

// OnRefusal sets the function that ends the call when a reply of the server does not fit.
func (c *Account) OnRefusal(end context.CancelCauseFunc) { c.refuse = end }

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

// GrowLast does what Grow does for the last bytes of a call, which then holds everything that it
// needs to end. Such bytes come before those of calls that have longer to go. Its errors are *Error
// and the cause of ctx.
func (c *Account) GrowLast(ctx context.Context, n int64) error { return c.grow(ctx, n, true) }

func (c *Account) grow(ctx context.Context, n int64, last bool) error {
	if c == nil || c.admission == nil || n <= 0 {
		return nil
	}
	if err := c.admission.bytes.take(ctx, c.principal, n, last); err != nil {
		return err
	}
	c.hold(n)
	return nil
}

// CheckTotal returns an *Error if a call could not grow to n bytes even if nothing else were held.
func (c *Account) CheckTotal(n int64) error {
	if c == nil || c.admission == nil {
		return nil
	}
	return c.admission.bytes.check(n)
}

// Force charges n bytes that are in use already. It does not block. No other call gets them, but
// the budget may be exceeded.
func (c *Account) Force(n int64) {
	if c == nil || c.admission == nil || n <= 0 {
		return
	}
	c.admission.bytes.force(c.principal, n)
	c.hold(n)
}

// hold records bytes that were taken, and reports whether it has. A closed account returns them at
// once.
func (c *Account) hold(n int64) bool {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.held += n
	}
	c.mu.Unlock()
	if closed {
		c.admission.bytes.give(c.principal, n)
	}
	return !closed
}

// Held returns the bytes that are charged.
func (c *Account) Held() int64 {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// Shrink returns n bytes, or what is charged if that is less.
func (c *Account) Shrink(n int64) {
	if c == nil || c.admission == nil {
		return
	}
	c.mu.Lock()
	n = min(n, c.held)
	c.held -= n
	c.mu.Unlock()
	if n > 0 {
		c.admission.bytes.give(c.principal, n)
	}
}

// TakeReplies returns how many bytes are charged for the server's replies since the last call. The
// caller returns them with Shrink when the replies are not used any more, unless that is at the end
// of the call.
func (c *Account) TakeReplies() (n int64) {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, c.replies = c.replies, 0
	return n
}

// Close returns everything. What is charged later is returned at once.
func (c *Account) Close() {
	if c == nil || c.admission == nil {
		return
	}
	c.mu.Lock()
	held := c.held
	c.held, c.closed = 0, true
	c.mu.Unlock()
	if held > 0 {
		c.admission.bytes.give(c.principal, held)
	}
	c.returnOverdraft()
}
