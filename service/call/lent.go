package call

import (
	"context"
	"sync"

	"github.com/mooringdb/mooring/core/buffer"
)

// Lent holds the memory of the server's replies that a response has views of, until the transport
// does not read the response any more. Its zero value holds nothing.
type Lent struct {
	// mu guards the fields below.
	mu      sync.Mutex
	buffers []*buffer.Buffer
	closed  bool
}

// Lend gives a reference to the transport of the call of ctx, which releases it when the response
// is written. If nothing says when that is, or if the response is remembered since the call is in a
// transaction, the collector gets the memory.
func Lend(ctx context.Context, b *buffer.Buffer) {
	if b == nil {
		return
	}
	c, ok := ctx.Value(key{}).(*Call)
	if !ok || c.Lent == nil || c.Transaction != nil || !c.Lent.add(b) {
		b.Keep()
	}
}

func (l *Lent) add(b *buffer.Buffer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.buffers = append(l.buffers, b)
	}
	return !l.closed
}

// Close releases everything. The transport calls it when the handler has ended and the response is
// written, or will not be.
func (l *Lent) Close() {
	l.mu.Lock()
	buffers := l.buffers
	l.buffers, l.closed = nil, true
	l.mu.Unlock()
	for _, b := range buffers {
		b.Release()
	}
}
