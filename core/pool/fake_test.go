package pool_test

import (
	"sync/atomic"

	"github.com/mooringdb/mooring/core/pool"
)

// fake is a connection without a peer.
type fake struct {
	broken  atomic.Pointer[error]
	closed  atomic.Int64
	service pool.ServiceID // that it leads to, where that matters

	onInterrupt func() // if not nil, called first
}

var _ pool.Resource = (*fake)(nil)

func newFake() *fake { return &fake{} }

func (f *fake) Alive() bool { return f.broken.Load() == nil }

func (f *fake) Err() error {
	if err := f.broken.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *fake) Interrupt(cause error) {
	if f.onInterrupt != nil {
		f.onInterrupt()
	}
	f.broken.CompareAndSwap(nil, &cause)
}

func (f *fake) Close() error {
	f.closed.Add(1)
	return nil
}

func (f *fake) timesClosed() int { return int(f.closed.Load()) }
