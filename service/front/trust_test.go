package front_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/flood"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
)

// TestTrust checks that the connection of a client whose credential counts is not closed for what
// others of its address waste, and that of a client without one is.
func TestTrust(t *testing.T) {
	for name, want := range map[string]struct {
		identity *caller.Identity
		closed   bool
	}{
		"a credential that counts": {&caller.Identity{Principal: "key:a"}, false},
		"none":                     {nil, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := closesForNeighbours(t, want.identity); got != want.closed {
				t.Errorf("%s: closed: %t, want %t", name, got, want.closed)
			}
		})
	}
}

// closesForNeighbours makes a call of a client, and reports whether its connection is closed at the
// next call of no use once its neighbours have wasted all that their address may.
func closesForNeighbours(t *testing.T, identity *caller.Identity) (closed bool) {
	t.Helper()
	g := flood.New(0, 0, slog.New(slog.DiscardHandler), nil)
	from := netip.MustParseAddr("192.0.2.1")
	c, _ := g.Enter(from, func() { closed = true })
	h, err := front.New(front.Config{
		Conn: inproc.NewConn(nil, nil),
		APIs: []front.API{api(func(x *front.Exchange) {
			_ = x.Admit(func(context.Context) (*caller.Identity, error) { return identity, nil })
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	h.ServeHTTP(httptest.NewRecorder(), r.WithContext(flood.NewContext(t.Context(), c)))
	for range 5 {
		other, _ := g.Enter(from, func() {})
		for range 1000 {
			other.Waste()
		}
	}
	c.Waste()
	return closed
}
