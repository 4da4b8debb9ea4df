package changestream

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
)

// Position is the pure half of a Stream.
type Position = position

var (
	StartingAt = startingAt
	Resumable  = resumable
)

func (p Position) Opened(first *cursor.Batch, reply bson.Raw, wire int32) Position {
	return p.opened(first, reply, wire)
}

func (p Position) Received(b *cursor.Batch) Position { return p.received(b) }

func (p Position) Returning(b *cursor.Batch, n int) (Position, error) { return p.returning(b, n) }

func (p Position) Resume(wire int32) Start { return p.resume(wire) }

func (p Position) Token() bson.Raw { return p.token }
