package admission

import "context"

// Work accounts for the processor time and the memory of one goroutine of a call, while that
// decodes, checks or encodes messages. The goroutine calls Do before each part of the work, so that
// heavy work takes turns (see Turn), Charge before it allocates memory, and Rest at the end. It may
// have a turn from Do until Rest, but never while it waits for memory. One goroutine owns a Work.
// The zero value and nil charge nothing and take no turn.
type Work struct {
	ctx     context.Context //nolint:containedctx // for the time of a call
	account *Account
	turn    Turn
	since   int // bytes of work since the last look
	owed    int // bytes that Copy has not charged yet
	// charged is what the call was charged, and vacated the part of it that Vacate was called for.
	charged, vacated int64
}

// Work returns a Work that charges c. ctx is the context of the call. If c is nil, nothing is
// charged, and there are no turns.
func (c *Account) Work(ctx context.Context) Work { return Work{ctx: ctx, account: c} }

const (
	// part is after how many bytes of work Do looks whether the call has ended, and lets others
	// work. A call with less work than that takes no turn.
	part = 32 << 10
	// copied is from how many bytes Copy charges: most requests make fewer.
	copied = 64 << 10
)

// Within replaces the context of the call.
func (w *Work) Within(ctx context.Context) { w.ctx = ctx }

// Do says that work on n bytes comes next. Once the work is heavy, from 32 KiB on, Do blocks until
// the call has a turn, and later calls of Do yield it from time to time. If the context of the call
// has ended, Do returns its cause. The call has the turn even then, for work that must go on.
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

// Rest gives the turn back, if there is one. The goroutine calls it when the work is done.
func (w *Work) Rest() { w.Pause() }

// Pause gives the turn back, if there is one. Call it before the goroutine waits for anything, and
// resume afterwards, which takes a turn again.
func (w *Work) Pause() (resume func()) {
	if w == nil || !w.turn.Leave() {
		return nothing
	}
	return w.turn.Take
}

// Charge charges the call for bytes before they are allocated, as Account.Grow does. It gives its
// turn back while it waits for them.
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

// Copy charges the call for n bytes that are about to be copied. It adds up what it is called for,
// and charges as Charge does when that reaches 64 KiB.
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

// Vacate says that so many of the bytes that Charge has charged are no longer used; see
// Account.Vacate.
func (w *Work) Vacate(bytes int64) {
	if w == nil {
		return
	}
	w.account.Vacate(bytes)
	w.vacated += bytes
}

// Release returns what Charge has charged; nothing may use that memory any more. Without Release it
// is returned at the end of the call.
func (w *Work) Release() {
	w.account.Vacate(-w.vacated)
	w.account.Shrink(w.charged)
	w.charged, w.vacated = 0, 0
}
