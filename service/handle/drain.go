package handle

import (
	"context"
	"time"
)

// quietGrace is how long Quiet waits for work that ends by itself before it cancels it; two
// thirds of its time if that is less.
const quietGrace = 5 * time.Second

// Refuse makes RefusingLocked true from now on, and reports whether it was already.
func (t *Table) Refuse() (before bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, t.refusing = t.refusing, true
	return before
}

// Quiet waits until no call works on anything. Endless work is canceled at once, the other after a
// while.
func (t *Table) Quiet(ctx context.Context) error {
	grace := quietGrace
	if deadline, ok := ctx.Deadline(); ok {
		grace = min(grace, time.Until(deadline)*2/3)
	}
	patient, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for {
		works := t.works()
		if len(works) == 0 {
			return nil
		}
		for _, w := range works {
			if w.Endless {
				w.Cancel(ErrClosing)
			}
		}
		for _, w := range works {
			if w.Wait(patient) == nil {
				continue
			}
			w.Cancel(ErrClosing)
			if err := w.Wait(ctx); err != nil {
				return err
			}
		}
	}
}

func (t *Table) works() []*Work {
	t.mu.Lock()
	defer t.mu.Unlock()
	var works []*Work
	for _, thing := range t.things {
		if w := thing.handle().work; w != nil {
			works = append(works, w)
		}
	}
	return works
}
