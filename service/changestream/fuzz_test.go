package changestream_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/seal"
)

// FuzzTicket opens any text as a ticket, which no key has sealed, and tickets with any content. One
// that opens is made of what it says: a ticket of the same identity and request opens alike.
func FuzzTicket(f *testing.F) {
	test := seal.NewDeployment("test")
	tickets := changestream.NewTickets(keys, "test")
	for _, id := range []*caller.Identity{nil, {Principal: "key:ann"}} {
		ticket, _, err := tickets.Seal(id, &mooringv1.WatchRequest{Database: "db"})
		if err != nil {
			f.Fatal(err)
		}
		sealed, err := keys.Open("", ticket, seal.KindTicket, test)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(sealed.Body, ticket[1:])
		live, _, err := tickets.Seal(id, &mooringv1.LiveRequest{Database: "db", Collection: "c"})
		if err != nil {
			f.Fatal(err)
		}
		if sealed, err = keys.Open("", live, seal.KindTicket, test); err != nil {
			f.Fatal(err)
		}
		f.Add(sealed.Body, live)
	}
	f.Fuzz(func(t *testing.T, body []byte, text string) {
		if _, err := keys.Open("", text, seal.KindTicket, test); err != nil {
			if _, _, err := tickets.Open(text); err == nil {
				t.Errorf("Open(%q) = nil, and no key has sealed it", text)
			}
		}
		id, watch, err := tickets.Open(ticketOf(body))
		if (watch == nil) != (err != nil) {
			t.Fatalf("Open = %v, %v, %v", id, watch, err)
		}
		if err != nil {
			return
		}
		again, _, err := tickets.Seal(id, watch)
		if err != nil {
			return // its JSON is longer than the content's
		}
		sameID, sameWatch, err := tickets.Open(again)
		switch {
		case err != nil && id != nil && time.Until(id.Expires) < time.Minute: // it has expired
		case err != nil:
			t.Fatalf("Open = %v, of a ticket for %v, %v", err, id, watch)
		case !proto.Equal(sameWatch, watch) || sameID.Digest() != id.Digest():
			t.Errorf("Open = %v, %v, of a ticket for %v, %v", sameID, sameWatch, id, watch)
		}
	})
}

// ticketOf seals any body as a ticket.
func ticketOf(body []byte) string {
	return keys.Seal("", seal.Claim{
		Kind: seal.KindTicket, Deployment: seal.NewDeployment("test"),
		Expires: time.Now().Add(changestream.TicketLife), Body: body,
	})
}
