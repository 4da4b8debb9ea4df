package handle

import (
	"context"
	"time"
)

// quietGrace is how long Quiet waits for work that ends by itself before it cancels it; two
// thirds of its time if that is less.
const quietGrace = 5 * time.Second

// Refuse makes Refusing true from now on, and reports whether it was already.
func (t *Table) Refuse() (before bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, t.refusing = t.refusing, true
	return before
}

// Quiet blocks until no call works on anything, or until ctx ends. It cancels endless work at once,
// and all other work after quietGrace.
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
		if waitAll(patient, works) == nil {
			continue
		}
		for _, w := range works {
			w.Cancel(ErrClosing)
		}
		if err := waitAll(ctx, works); err != nil {
			return err
		}
	}
}

func waitAll(ctx context.Context, works []*Work) error {
	for _, w := range works {
		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
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
