package unified

import (
	"context"
	"errors"
	"io"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
)

// maxIterations is how often a cursor that brings nothing is asked for a document.
const maxIterations = 1000

// cursorOperations are the operations on a cursor.
var cursorOperations = table[*openCursor]{
	"close":                       closeCursor,
	"iterateOnce":                 iterate(1),
	"iterateUntilDocumentOrError": iterate(maxIterations),
}

func closeCursor(_ *run, c *openCursor, a *arguments) action {
	limit := a.timeout(nil)
	return func(ctx context.Context) outcome {
		if limit != nil {
			_ = c.Kill(ctx, limit) // as Close, which reports no error of killCursors
			return outcome{}
		}
		return failed(c.Close(ctx))
	}
}

// iterate asks for a document that many times at most: a batch may be empty although the cursor
// goes on.
func iterate(times int) func(*run, *openCursor, *arguments) action {
	return func(_ *run, c *openCursor, _ *arguments) action {
		return func(ctx context.Context) outcome {
			for range times {
				doc, err := c.next(ctx)
				if err != nil {
					return failed(err)
				}
				if doc != nil {
					return outcome{value: bson.DocumentValue(doc)}
				}
			}
			return outcome{}
		}
	}
}

// opener runs what opens a cursor.
type opener = func(context.Context) (*cursor.Cursor, error)

// opened keeps the cursor open, to be saved as an entity.
func opened(open opener) action {
	return func(ctx context.Context) outcome {
		c, err := open(ctx)
		return outcome{entity: &openCursor{Cursor: c}, err: err}
	}
}

// drained reads the cursor to its end.
func drained(open opener) action {
	return func(ctx context.Context) outcome {
		c, err := open(ctx)
		if err != nil {
			return failed(err)
		}
		var docs []bson.Raw
		for {
			b, err := c.Next(ctx)
			if errors.Is(err, io.EOF) {
				return list(docs)
			}
			if err != nil {
				return failed(errors.Join(err, c.Close(ctx)))
			}
			docs = append(docs, b.Documents...)
		}
	}
}
