package cursor

import (
	"context"

	"github.com/mooringdb/mooring/core/operation"
)

// New returns the cursor of a reply without its command.
func New(ctx context.Context, res operation.Result, opt Options) (*Cursor, error) {
	c := &Cursor{}
	return c, c.open(ctx, &res, opt)
}

var First = first
