package admission

// Count bounds how many things of one kind are open that outlive the calls that open them, such as
// cursors and transactions. Principals have shares as described at Limits. What does not fit is
// refused without waiting, since such a thing ends only when its client comes back, or after a
// time. A Count is safe for concurrent use.
type Count struct{ of *resource }

// NewCount returns a Count that is 0. what names the things in errors, such as "open cursors".
func NewCount(what string, l Limits) *Count { return &Count{newResource(what, l, 0)} }

// Refusal returns nil if one more thing of a principal fits, assuming that ending of its things
// have ended, and otherwise why it does not. It changes nothing: call Add, or Refused to count the
// refusal.
func (c *Count) Refusal(p Principal, ending int64) *Error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	q := c.of.queue
	v := judge(q.limits, q.used-ending, q.held(p)-ending, 1, false)
	if v == fits {
		return nil
	}
	return &Error{Cause: causes[v], What: c.of.name}
}

// Refused counts a call that was not run because of Refusal.
func (c *Count) Refused(cause Cause) { c.of.refused[cause].Add(1) }

// Add counts one more thing of a principal, whether or not it fits. The caller must call Remove
// when the thing has ended.
func (c *Count) Add(p Principal) { c.of.force(p, 1) }

// Take does what Add does if one more thing fits, and reports whether it does.
func (c *Count) Take(p Principal) bool { return c.of.spare(p, 1) }

// AddSome counts so many more things of a principal, whether or not they fit. The caller must call
// RemoveSome when they have ended.
func (c *Count) AddSome(p Principal, n int64) { c.of.force(p, n) }

// TakeSome does what AddSome does if they fit, or if the principal has none, and reports whether it
// has.
func (c *Count) TakeSome(p Principal, n int64) bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.queue.held(p) == 0 {
		c.of.queue.force(p, n)
		return true
	}
	return c.of.queue.take(p, n, false) == fits
}

// RemoveSome takes back what AddSome or TakeSome has counted, or a part.
func (c *Count) RemoveSome(p Principal, n int64) { c.of.give(p, n) }

// Remove takes back one Add or Take.
func (c *Count) Remove(p Principal) { c.of.give(p, 1) }

// Held returns how many things a principal has.
func (c *Count) Held(p Principal) int64 {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.of.queue.held(p)
}

// Usage returns how many things there are, and how many calls were refused.
func (c *Count) Usage() Usage { return c.of.usage() }
