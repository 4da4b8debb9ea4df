package changestream_test

import (
	"testing"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/changestream"
)

// FuzzTicket opens tickets with any sealed content. One that opens is made of what it says.
func FuzzTicket(f *testing.F) {
	tickets := changestream.NewTickets(keys, "test")
	for _, id := range []*caller.Identity{nil, {Principal: "key:ann"}} {
		ticket, _, err := tickets.Seal(id, &mooringv1.WatchRequest{Database: "db"})
		if err != nil {
			f.Fatal(err)
		}
		plain, err := keys.OpenTicket(ticket)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(plain)
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		id, watch, err := tickets.Open(keys.SealTicket(plain))
		if (watch == nil) != (err != nil) {
			t.Fatalf("Open = %v, %v, %v", id, watch, err)
		}
		if id != nil && len(id.Principal) > len(plain) {
			t.Errorf("the principal has %d bytes, of %d", len(id.Principal), len(plain))
		}
	})
}
