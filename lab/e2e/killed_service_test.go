package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// heldCursor is a cursor whose first page was read.
type heldCursor struct {
	page numbers
	at   int32 // where its service's documents begin
}

// openCursors opens cursors, and sorts them by service.
func openCursors(t *testing.T, g *gatewaytest.Gateway, n int) map[int32][]heldCursor {
	t.Helper()
	held := map[int32][]heldCursor{}
	for range n {
		p, err := overREST{base: g.REST}.find(t.Context(), "c", pagedBatch)
		if err != nil || len(p.ids) == 0 {
			t.Fatalf("%v, %v", p, err)
		}
		at := begin(p.ids[0])
		held[at/serviceStride] = append(held[at/serviceStride], heldCursor{p, at})
	}
	return held
}

func closeCursor(t *testing.T, g *gatewaytest.Gateway, c heldCursor) {
	t.Helper()
	if got := g.Post(t, "/v1/cursors:close",
		fmt.Sprintf(`{"cursor": %q}`, c.page.cursor)); got.Status != 200 {
		t.Errorf("close: %d %s", got.Status, got.Body)
	}
}

// TestServiceIsKilled kills one of two services behind a load balancer: its cursors are lost and
// its connections closed, and the other service's go on.
func TestServiceIsKilled(t *testing.T) {
	b := startServices(t, fakemongo.BalancedConfig{Strict: true, Discard: true})
	dead, alive := b.Service(0), b.Service(1)
	g := suite.Start(t, "mongodb://"+balance(t, b).Address+"/?loadBalanced=true&maxPoolSize=100")
	rest := overREST{base: g.REST}
	held := openCursors(t, g, 40)
	if len(held[0]) != 20 || len(held[1]) != 20 {
		t.Fatalf("%d and %d cursors, want 20 each", len(held[0]), len(held[1]))
	}
	// Some connections of each are idle then.
	for i := range held {
		for _, c := range held[i][:8] {
			closeCursor(t, g, c)
		}
		held[i] = held[i][8:]
	}
	before, accepted := alive.OpenConnections(), alive.AcceptedConnections()

	dead.Kill()
	for i, c := range held[0] {
		_, err := rest.next(t.Context(), c.page.cursor)
		if err == nil {
			t.Errorf("cursor %d of a service that is gone goes on", i)
		}
		if i == 0 {
			t.Logf("a cursor of the killed service: %v", err)
		}
	}
	gatewaytest.Eventually(t, 10*time.Second, func() error {
		if total := g.Vars(t).Total(); total != before {
			return fmt.Errorf("%d connections in the pool, want the %d of the service "+
				"that is alive", total, before)
		}
		return nil
	})
	for i, c := range held[1] {
		if _, err := readOn(t.Context(), c.page, c.at, c.at+pagedDocuments, rest); err != nil {
			t.Errorf("cursor %d of the other service: %v", i, err)
		}
	}
	if open, now := alive.OpenConnections(), alive.AcceptedConnections(); open != before ||
		now != accepted {
		t.Errorf("the other service has %d connections of %d ever, it had %d of %d", open, now,
			before, accepted)
	}
	for i := range 50 {
		if got := g.Post(t, gatewaytest.Documents("lab", "c", "findOne"), `{}`); got.Status != 200 {
			t.Errorf("findOne %d: %d %s", i, got.Status, got.Body)
		}
	}
	gatewaytest.Eventually(t, 10*time.Second, func() error {
		if v := g.Vars(t); v.CheckedOut() > 0 {
			return fmt.Errorf("%+v", v.Pools)
		}
		return nil
	})

	dead.Restart(t)
	if again := openCursors(t, g, 60); len(again[0]) == 0 {
		t.Error("no cursor on the service that came back")
	}
}
