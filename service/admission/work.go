package admission

import "context"

// Work accounts for what a goroutine of a call does with what a client has sent, or gets: it
// decodes, checks or encodes. Before each part of it the goroutine calls Do, which makes heavy work
// take turns, and Charge before it takes memory. It may have a turn from Do until Rest, but never
// while it waits for memory. The goroutine owns it. The zero value and nil charge nothing and take
// no turn.
type Work struct {
	ctx     context.Context //nolint:containedctx // for the time of a call
	account *Account
	turn    Turn
	since   int // bytes of work since the last look
	owed    int // bytes that Copy has not charged yet
	// charged is what the call was charged, and vacated the part of it that Vacate was called for.
	charged, vacated int64
}

// Work returns the work of the call of an account, whose context is ctx. If c is nil, nothing is
// charged, and there are no turns.
func (c *Account) Work(ctx context.Context) Work { return Work{ctx: ctx, account: c} }

const (
	// part is after how many bytes of work Do looks whether the call has ended, and lets others
	// work. A call with less work than that takes no turn.
	part = 32 << 10
	// copied is from how many bytes Copy charges: most requests make fewer.
	copied = 64 << 10
)

// Do says that work on n bytes comes next. If the work has become heavy, it blocks until it is the
// turn of the call, and later lets others have theirs. It returns the cause of a context that has
// ended; the turn is there also then, for work that goes on.
func (w *Work) Do(n int) error {
	if w == nil || w.ctx == nil {
		return nil
	}
	if w.since += n; w.since < part {
		return nil
	}
	w.since = 0
	if w.turn.taken {
		w.turn.Yield()
	} else {
		w.turn = w.account.Turn()
		w.turn.Take()
	}
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	return nil
}

// Rest ends the turn, if there is one. The goroutine calls it when the work is done.
func (w *Work) Rest() { w.Pause() }

// Pause ends the turn, if there is one, before the goroutine waits for anything. It calls resume
// afterwards.
func (w *Work) Pause() (resume func()) {
	if w == nil || !w.turn.Leave() {
		return nothing
	}
	return w.turn.Take
}

// Charge charges the call with bytes before they are taken, as Account.Grow does. It has no turn
// while it waits for them.
func (w *Work) Charge(bytes int64) error {
	if w == nil || w.ctx == nil || bytes <= 0 {
		return nil
	}
	if !w.account.growNow(bytes) {
		defer w.Pause()()
		if err := w.account.Grow(w.ctx, bytes); err != nil {
			return err
		}
	}
	w.charged += bytes
	return nil
}

// ChargeLast does what Charge does for the last bytes of the call, as Account.GrowLast.
func (w *Work) ChargeLast(bytes int64) error {
	defer w.Pause()()
	return w.account.GrowLast(w.ctx, bytes)
}

// Copy charges the call with n bytes that are about to be written anew, once they are many.
func (w *Work) Copy(n int) error {
	if w == nil {
		return nil
	}
	if w.owed += n; w.owed < copied {
		return nil
	}
	owed := int64(w.owed)
	w.owed = 0
	return w.Charge(owed)
}

// Vacate says that nothing is in so many bytes any more that Charge has charged; see
// Account.Vacate.
func (w *Work) Vacate(bytes int64) {
	if w == nil {
		return
	}
	w.account.Vacate(bytes)
	w.vacated += bytes
}

// Release returns what was charged, when nothing uses it any more. Otherwise it is returned at the
// end of the call.
func (w *Work) Release() {
	w.account.Vacate(-w.vacated)
	w.account.Shrink(w.charged)
	w.charged, w.vacated = 0, 0
}
