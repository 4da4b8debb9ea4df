package operation_test

import (
	"bytes"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
)

// TestLend checks who has a reply in lent memory: the caller, unless the reply has an error, whose
// views stay valid although memory of that size is lent again. A failed attempt leaves none lent.
func TestLend(t *testing.T) {
	ok := bson.NewBuilder(nil).Int32("ok", 1).Finish()
	failed := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", 2).String("errmsg", "no").Finish()
	unavailable := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", 91).Finish()
	concern := bson.NewBuilder(nil).Int32("ok", 1).OpenDocument("writeConcernError").
		Int32("code", 64).Close().Finish()
	for name, test := range map[string]struct {
		kind    operation.Kind
		replies []bson.Raw
		lend    bool
		lent    bool
	}{
		"without Lend":          {operation.Read, []bson.Raw{ok}, false, false},
		"a result":              {operation.Read, []bson.Raw{ok}, true, true},
		"an error":              {operation.Read, []bson.Raw{failed}, true, false},
		"a write concern error": {operation.Write, []bson.Raw{concern}, true, false},
		"another attempt":       {operation.Read, []bson.Raw{unavailable, ok}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := buffer.Lent()
			r, f := retrying(21, test.replies...)
			heard := 0
			r.Sink = &event.Sink{CommandSucceeded: func(e event.CommandSucceeded) {
				heard += len(e.Reply)
			}}
			res, err := r.Run(t.Context(), &operation.Operation{
				Database: "db", Command: command{}, Kind: test.kind, Lend: test.lend, Retry: true,
			})
			last := test.replies[len(test.replies)-1]
			if (res.Lent != nil) != test.lent || len(f.sent) != len(test.replies) {
				t.Errorf("lent %t after %d attempts", res.Lent != nil, len(f.sent))
			}
			if err == nil && (!bytes.Equal(res.Reply, last) || heard != len(last)) {
				t.Errorf("the reply is %v, and %d bytes in events", res.Reply, heard)
			}
			res.Lent.Release()
			if n := buffer.Lent() - before; n != 0 {
				t.Errorf("%d are lent", n)
			}
			for range 3 {
				other := buffer.Get(16 << 10)
				clear(other.Bytes())
				defer other.Release()
			}
			if refused, isRefused := err.(*mongoerr.CommandError); isRefused && //nolint:errorlint // as it is
				(refused.Message != "no" || !bytes.Equal(refused.Reply, failed)) {
				t.Errorf("the error reads %v", refused)
			}
			if wce := res.WriteConcernError; wce != nil && wce.Raw.Validate() != nil {
				t.Errorf("the write concern error reads %x", wce.Raw)
			}
		})
	}
}
