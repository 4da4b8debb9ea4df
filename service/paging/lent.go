package paging

import (
	"context"

	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/service/call"
)

// lent holds references to the memory that documents are views on. The zero value holds none: the
// documents stay valid.
type lent []*buffer.Buffer

// retain returns references for another holder.
func (l lent) retain() lent {
	for _, b := range l {
		b.Retain()
	}
	return l
}

func (l lent) release() {
	for _, b := range l {
		b.Release()
	}
}

// keep leaves the memory to the collector.
func (l lent) keep() {
	for _, b := range l {
		b.Keep()
	}
}

// lend gives the references to the transport of a call, until it has written the response.
func (l lent) lend(ctx context.Context) {
	for _, b := range l {
		call.Lend(ctx, b)
	}
}
