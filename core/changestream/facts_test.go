package changestream_test

import (
	"context"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestFacts checks what a stream says of its batches and its resumption: how late the newest event
// is, and why the old cursor was lost. A batch without events is not a fact.
func TestFacts(t *testing.T) {
	timed := fakemongo.Document(doc(t, `{"ok": 1, "cursor": {"id": {"$numberLong": "5"}, "ns": "shop.orders", "nextBatch": [
		{"_id": {"t": 1}, "wallTime": {"$date": "1999-12-31T23:59:57Z"}}, {"_id": {"t": 2}, "wallTime": {"$date": "1999-12-31T23:59:58Z"}}]}}`))
	run(t, 21, []step{
		aggregate(first(t, 5, "")),
		getMore(timed),
		getMore(resumableError()),
		aggregate(first(t, 6, "", `{"t": 3}`)),
	}, func(t *testing.T, s *script, _ *client.Client) {
		var received []event.ChangesReceived
		var resumed []event.ChangeStreamResumed
		c, err := client.New(connstring.Config{Hosts: []address.Address{s.Address()}},
			client.Options{
				Dialer: s.Dial, Sink: &event.Sink{
					ChangesReceived: func(e event.ChangesReceived) {
						received = append(received, e)
					},
					ChangeStreamResumed: func(e event.ChangeStreamResumed) {
						resumed = append(resumed, e)
					},
				},
			})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }()
		begun := time.Now()
		w := watch(t, c, client.WatchOptions{})
		for range 3 {
			if _, err := w.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		_ = w.Close(t.Context())
		if len(received) != 2 || len(resumed) != 1 {
			t.Fatalf("%d batches and %d resumptions, want 2 and 1", len(received), len(resumed))
		}
		at := received[0]
		if at.Database != "shop" || at.Collection != "orders" || at.Events != 2 ||
			at.ReceivedAt.Before(begun) ||
			!at.WallTime.Equal(time.Date(1999, 12, 31, 23, 59, 58, 0, time.UTC)) {
			t.Errorf("the first batch is %+v", at)
		}
		if !received[1].WallTime.IsZero() || received[1].Events != 1 {
			t.Errorf("a batch of events without a time is %+v", received[1])
		}
		if why := resumed[0]; why.Database != "shop" || why.Collection != "orders" ||
			mongoerr.Code(why.Err) != 280280 {
			t.Errorf("the resumption is %+v", why)
		}
	})
}
