package admission

import "time"

// Names for the tests, which are outside of the package.
type (
	Verdict = verdict
	Queue   = queue
	Demand  = demand
	Bucket  = bucket
)

const (
	Fits            = fits
	OwnShareVerdict = ownShare
	FullVerdict     = full
	TooMuchVerdict  = tooMuch
)

var (
	Judge    = judge
	NewQueue = newQueue
)

func NewDemand(amount int64, last bool, granted func()) *Demand {
	return &demand{amount: amount, last: last, granted: granted}
}

func (q *queue) Take(p Principal, n int64, last bool) Verdict { return q.take(p, n, last) }
func (q *queue) Wait(p Principal, d *Demand)                  { q.wait(p, d) }
func (q *queue) Abandon(d *Demand) Verdict                    { return q.abandon(d) }
func (q *queue) Give(p Principal, n int64)                    { q.give(p, n) }
func (q *queue) Used() int64                                  { return q.used }
func (q *queue) Members() int                                 { return len(q.members) }
func (q *queue) Waits() int                                   { return q.waits() }

func (b bucket) Take(rate float64, now time.Time) (Bucket, time.Duration) { return b.take(rate, now) }
