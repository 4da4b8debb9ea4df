package client

import (
	"slices"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/operation"
)

// TestMessagesAreAllocatedOnce checks that a message of many writes does not grow as they are
// appended, whether or not all fit.
func TestMessagesAreAllocatedOnce(t *testing.T) {
	doc := bson.NewBuilder(nil).String("text", string(make([]byte, 1000))).Finish()
	var docs []bson.Raw
	var inserts, updates, replacements []WriteModel
	for range 1000 {
		docs = append(docs, doc)
		inserts = append(inserts, WriteModel{Kind: InsertOne, Document: doc})
		replacements = append(replacements,
			WriteModel{Kind: ReplaceOne, Filter: doc, Document: doc})
		updates = append(updates, WriteModel{
			Kind: UpdateOne, Filter: doc, Update: bson.DocumentValue(doc),
		})
	}
	// Under the race detector slices.Grow allocates twice.
	once := testing.AllocsPerRun(1, func() { docs[0] = slices.Grow(bson.Raw(nil), 48<<20) })
	docs[0] = doc
	for _, most := range []int32{48 << 20, 400_000} {
		for name, c := range map[string]*bulk{
			"InsertMany": {docs: docs},
			"inserts":    {models: inserts}, "updates": {models: updates},
			"replacements": {models: replacements},
		} {
			c.common = &Common{}
			c.ids = newIDs(len(docs), func(int) bson.Raw { return doc })
			to := operation.Target{Hello: &description.Server{MaxMessageSize: most}}
			pooled, msg, err := make([]byte, 0, 1024), []byte(nil), error(nil)
			allocs := testing.AllocsPerRun(1, func() {
				c.sent = 0
				msg, err = c.AppendSequences(pooled, to)
			})
			again := testing.AllocsPerRun(1, func() { _, err = c.AppendSequences(pooled, to) })
			if err != nil || allocs > once || again > once {
				t.Errorf("%s of %d bytes: %v and %v allocations, %v", name, most, allocs, again,
					err)
			}
			if len(msg) > int(most) || cap(msg) > len(msg)+len(msg)/20+8<<10 {
				t.Errorf("%s of %d bytes: %d bytes of %d", name, most, len(msg), cap(msg))
			}
		}
	}
}
