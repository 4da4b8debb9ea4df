package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/load"
)

// The size of a pool, and how many clients each hold a pinned cursor or only read a document.
const (
	poolSize  = 20
	pinBudget = 16 // 80 % of it
	sitters   = 100
	readers   = 50
)

// oneService is a service that is reached as if through a load balancer.
func oneService(t testing.TB) (b *fakemongo.Balanced, uri string) {
	b = fakemongo.NewBalanced(t,
		fakemongo.BalancedConfig{Services: 1, TCP: true, Strict: true, Discard: true})
	b.SetDocuments("lab.c", fakemongo.Numbered(0, pagedDocuments, 100)...)
	b.SetDocuments(load.Database+".c", fakemongo.Numbered(0, pagedDocuments, 100)...)
	return b, fmt.Sprintf("mongodb://%s/?loadBalanced=true&maxPoolSize=%d", b.Service(0).Address(), poolSize)
}

// sit lets every sitter open a cursor, and gives those that were opened and the refusals.
func sit(t testing.TB, pagers ...pager) (opened []string, refusals []*refusal) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range sitters {
		wg.Go(func() {
			p, err := pagers[i%len(pagers)].find(t.Context(), "c", pagedBatch)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				opened = append(opened, p.cursor)
				return
			}
			r, ok := err.(*refusal) //nolint:errorlint // made by the pager
			if !ok {
				t.Errorf("sitter %d: %v", i, err)
				return
			}
			refusals = append(refusals, r)
		})
	}
	wg.Wait()
	return opened, refusals
}

// TestPinBudget: cursors get their share of the pool, and what is beyond it is refused in words
// that help. All clients share the rest of the pool.
func TestPinBudget(t *testing.T) {
	b, uri := oneService(t)
	g := suite.Start(t, uri)
	rest := overREST{base: g.REST}
	opened, refusals := sit(t, rest, newGRPC(t, g))
	if len(opened) != pinBudget || len(refusals) != sitters-pinBudget {
		t.Fatalf("%d cursors and %d refusals, want %d and %d", len(opened), len(refusals),
			pinBudget, sitters-pinBudget)
	}
	for _, r := range refusals {
		if r.HTTP == 0 && r.Status != codes.ResourceExhausted.String() ||
			r.HTTP != 0 && (r.HTTP != 429 || r.Status != "RESOURCE_EXHAUSTED") {
			t.Errorf("%v, want RESOURCE_EXHAUSTED", r)
		}
		if !strings.Contains(r.Message, "16") || !strings.Contains(r.Message, "cursor") {
			t.Errorf("%q does not say what holds the connections", r.Message)
		}
	}
	t.Logf("%v", refusals[0])
	// What was refused is not left open on the server, and holds no connection.
	gatewaytest.Eventually(t, 10*time.Second, func() error {
		if n, held := b.OpenCursors(), g.Vars(t).CheckedOut(); n != pinBudget || held != pinBudget {
			return fmt.Errorf("%d cursors are open and %d connections checked out, want %d", n,
				held, pinBudget)
		}
		return nil
	})
	if _, err := load.Run(t.Context(), job(g, 200)); err != nil {
		t.Errorf("findOne beside them: %v", err)
	}
	// One that fits into its first batch needs no pin.
	if p, err := rest.find(t.Context(), "c", 2*pagedDocuments); err != nil ||
		len(p.ids) != pagedDocuments {
		t.Errorf("a find that needs one batch: %v", err)
	}
	// A pin that is given back can be had again.
	closeCursor(t, g, heldCursor{page: numbers{cursor: opened[0]}})
	p, err := rest.find(t.Context(), "c", pagedBatch)
	if err != nil {
		t.Fatalf("after a cursor was closed: %v", err)
	}
	for _, cursor := range append(slices.Clone(opened[1:]), p.cursor) {
		if _, err := rest.next(t.Context(), cursor); err != nil {
			t.Errorf("next: %v", err)
		}
		closeCursor(t, g, heldCursor{page: numbers{cursor: cursor}})
	}
	waitUntilNothingIsHeld(t, &backend{openCursors: b.OpenCursors}, g)
}

// job is that of the readers.
func job(g *gatewaytest.Gateway, requests int) load.Job {
	return load.Job{
		GRPC: g.GRPC, Operation: load.FindOne, Collection: "c", Requests: requests,
		Callers: readers,
	}
}

// TestStarvation measures what the readers get with and without the sitters.
func TestStarvation(t *testing.T) {
	if os.Getenv("LAB_STARVATION") == "" {
		t.Skip("a measurement: LAB_STARVATION=1 (make starvation)")
	}
	for _, latency := range []time.Duration{0, time.Millisecond} {
		b, uri := oneService(t)
		s := b.Service(0)
		s.Handle("find", func(c *fakemongo.Command) fakemongo.Reply {
			return s.Default(c).After(latency)
		})
		g := suite.Start(t, uri)
		var without, with []float64
		for range 5 {
			without = append(without, rate(t, g))
			opened, refusals := sit(t, overREST{base: g.REST})
			if len(opened) != pinBudget || len(refusals) != sitters-pinBudget {
				t.Fatalf("%d cursors and %d refusals", len(opened), len(refusals))
			}
			with = append(with, rate(t, g))
			for _, cursor := range opened {
				closeCursor(t, g, heldCursor{page: numbers{cursor: cursor}})
			}
		}
		slices.Sort(without)
		slices.Sort(with)
		ratio := with[len(with)/2] / without[len(without)/2]
		t.Logf("a server that takes %v: findOne by %d clients %.0f/s (%.0f … %.0f), beside %d "+
			"pinned cursors %.0f/s (%.0f … %.0f): %.0f %%",
			latency, readers, without[len(without)/2], without[0], without[len(without)-1],
			pinBudget, with[len(with)/2], with[0], with[len(with)-1], 100*ratio)
		if latency == 0 && ratio < 0.7 {
			t.Errorf("%.2f of the throughput is left, want 0.7", ratio)
		}
	}
}

// rate is how many documents the readers get in a second.
func rate(t testing.TB, g *gatewaytest.Gateway) float64 {
	t.Helper()
	const requests = 10_000
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result, err := load.Run(ctx, job(g, requests))
	if err != nil {
		t.Fatal(err)
	}
	return requests / result.Elapsed.Seconds()
}
