package stream

import (
	"context"

	"github.com/mooringdb/mooring/core/cursor"
)

// ahead reads one batch on a goroutine of its own. Its owner calls wait or stop, once, which wait
// for the goroutine.
type ahead struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the fields below are set
	batch  cursor.Batch
	err    error
	// panicked is what the goroutine has panicked with, nil if it has not.
	panicked any
}

// begin begins to read.
func begin(ctx context.Context, read func(context.Context) (cursor.Batch, error)) *ahead {
	a := &ahead{done: make(chan struct{})}
	ctx, a.cancel = context.WithCancel(ctx)
	go a.run(ctx, read)
	return a
}

func (a *ahead) run(ctx context.Context, read func(context.Context) (cursor.Batch, error)) {
	defer close(a.done)
	defer func() { a.panicked = recover() }()
	a.batch, a.err = read(ctx)
}

// wait returns the batch. If reading has panicked, so does wait, for the goroutine of the call has
// what recovers.
func (a *ahead) wait() (cursor.Batch, error) {
	<-a.done
	a.cancel()
	if a.panicked != nil {
		panic(a.panicked)
	}
	return a.batch, a.err
}

// stop interrupts the reading, and takes back what was read. A nil ahead does nothing.
func (a *ahead) stop() {
	if a == nil {
		return
	}
	a.cancel()
	<-a.done
	a.batch.Lent.Release()
}
