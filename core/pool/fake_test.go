package pool_test

import (
	"sync"

	"github.com/mooringdb/mooring/core/pool"
)

// fake is a connection that is only there.
type fake struct {
	mu     sync.Mutex
	err    error
	closed int
}

var _ pool.Resource = (*fake)(nil)

func newFake() *fake { return &fake{} }

func (f *fake) Alive() bool { return f.Err() == nil }

func (f *fake) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fake) Interrupt(cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = cause
}

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	return nil
}

func (f *fake) timesClosed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}
