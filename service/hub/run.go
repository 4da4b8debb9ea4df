package hub

import (
	"context"
	"errors"
)

// start starts the goroutine of a feed, the only one of this package beside the timers of feeds
// without subscribers, and of turns. Close waits for it.
func (f *feed) start() {
	ctx, cancel := context.WithCancel(f.hub.ctx)
	f.cancel = cancel
	f.hub.wg.Go(func() { f.run(ctx) })
}

// run reads the source into the ring until it fails, or ctx ends.
func (f *feed) run(ctx context.Context) {
	defer f.cancel()
	defer f.hub.release(f)
	source, start, err := f.open(ctx, nil)
	if err != nil {
		f.hub.remove(f) // before its subscribers come back
		f.failed = reason(ctx, err)
		close(f.opened)
		return
	}
	defer source.Close()
	f.begin(start)
	for {
		batch, err := source.Next(ctx)
		if err != nil {
			f.hub.remove(f)
			f.end(reason(ctx, err))
			return
		}
		f.add(batch)
	}
}

// reason returns why a feed has ended: the hub's reason, or that of the source.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrClosed) {
		return ErrClosed
	}
	return err
}
