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

func (b bucket) Take(rate float64, now time.Time) (Bucket, time.Duration) {
	return b.take(rate, now)
}

// Balance is a balance, whose methods are those without a capital.
type Balance = balance

func (b balance) Add(n int64) (Balance, bool)          { return b.add(n) }
func (b balance) AddReserved(n int64) (Balance, bool)  { return b.addReserved(n) }
func (b balance) AddReply(n int64) (Balance, bool)     { return b.addReply(n) }
func (b balance) Remove(n int64) (Balance, int64)      { return b.remove(n) }
func (b balance) Draw(n int64) (Balance, int64)        { return b.draw(n) }
func (b balance) TakeReplies() (Balance, int64, int64) { return b.takeReplies() }
func (b balance) Close() (Balance, int64)              { return b.close() }
func (b balance) Held() int64                          { return b.held }
func (b balance) Parts() int64                         { return b.reserved + b.replies }

// MaxWaiting is how many demands wait for a resource.
const MaxWaiting = maxWaiting

// Places returns how many places calls take that wait for their turn.
func (a *Admission) Places() int64 {
	a.calls.mu.Lock()
	defer a.calls.mu.Unlock()
	return a.calls.places.used
}
