package transaction

import (
	"bytes"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// FuzzDecodeClaim checks that a claim has one encoding, and that no bytes make decodeClaim panic.
func FuzzDecodeClaim(f *testing.F) {
	c := claim{
		id:    handle.ID{2},
		owner: page.Replica{Instance: page.Instance{3}, Address: "gateway:1"},
		begun: time.UnixMilli(4), session: bson.UUID{5}, number: -6,
	}
	f.Add(c.encode())
	f.Add((&claim{}).encode())
	f.Add((&claim{}).encode()[:fixedBytes-1])
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeClaim(b)
		if whole := len(b) >= fixedBytes; whole != (err == nil) {
			t.Fatalf("%d bytes are read as %v, %v", len(b), c, err)
		}
		if err == nil && !bytes.Equal(c.encode(), b) {
			t.Errorf("%x is encoded again as %x", b, c.encode())
		}
	})
}
