package cursor

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
)

// wireVersion44 is the first whose getMore takes a comment.
const wireVersion44 = 9

// getMore builds the command that continues a cursor.
type getMore State

func (*getMore) Name() string { return "getMore" }

func (g *getMore) Append(b *bson.Builder, to operation.Target) error {
	b.Int64("getMore", g.ID).String("collection", g.Collection)
	if n := g.batchSize(); n != 0 {
		b.Int64("batchSize", n)
	}
	if !g.Comment.IsZero() && to.Hello.MaxWireVersion >= wireVersion44 {
		b.Value("comment", g.Comment)
	}
	return nil
}

// batchSize returns the batch size, cut down to what the limit still allows (find, getMore and
// killCursors, "Behavior of Limit").
func (g *getMore) batchSize() int64 {
	n := int64(g.BatchSize)
	if g.Remaining > 0 && n > g.Remaining {
		return g.Remaining
	}
	return n
}

// killCursors builds the command that ends a cursor.
type killCursors State

func (*killCursors) Name() string { return "killCursors" }

func (k *killCursors) Append(b *bson.Builder, _ operation.Target) error {
	b.String("killCursors", k.Collection).OpenArray("cursors").Int64("", k.ID).Close()
	return nil
}
