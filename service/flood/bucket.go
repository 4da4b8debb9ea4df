package flood

import "time"

// refill is the time after which an empty bucket is full again.
const refill = 2 * time.Second

// bucket limits how often something happens. Its zero value is full.
type bucket struct {
	empty time.Duration // of refill, at the time below
	at    time.Time
}

// take reports whether one more may happen, of which so many may happen at once, and in refill.
func (b *bucket) take(most int, now time.Time) bool {
	empty := max(b.empty-now.Sub(b.at), 0) + refill/time.Duration(most)
	if empty > refill {
		return false
	}
	b.empty, b.at = empty, now
	return true
}

// isFull reports whether nothing has happened for so long that the past does not count any more.
func (b *bucket) isFull(now time.Time) bool { return now.Sub(b.at) >= b.empty }

// tally counts what the log has one line for in logEvery.
type tally struct {
	n      int       // since the last line
	logged time.Time // the time of that line
}

// add counts one, and returns the count if it is time for a line, or 0.
func (t *tally) add(now time.Time) (n int) {
	t.n++
	if now.Sub(t.logged) < logEvery {
		return 0
	}
	n, t.n, t.logged = t.n, 0, now
	return n
}
