package cursor

import (
	"context"

	"github.com/mooringdb/mooring/core/operation"
)

// New makes the cursor of a reply that nobody asked for.
func New(ctx context.Context, res operation.Result, opt Options) (*Cursor, error) {
	c := &Cursor{}
	return c, c.open(ctx, &res, opt)
}

var First = first
