package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// backend is a deployment that cursors of several batches are read from.
type backend struct {
	uri         string
	pinned      bool // a cursor keeps its connection
	openCursors func() int
	handle      func(name string, h func(s *fakemongo.Server) fakemongo.Handler)
}

// backends are the deployments by name: one where any replica can continue any cursor, and one
// where only its owner can.
var backends = map[string]func(testing.TB) *backend{
	"replica set":   replicaSet,
	"load balancer": loadBalanced,
}

func replicaSet(t testing.TB) *backend {
	c := fakemongo.NewCluster(t, fakemongo.ClusterConfig{TCP: true, Discard: true},
		fakemongo.Primary, fakemongo.Secondary, fakemongo.Secondary)
	for _, h := range c.Hosts() {
		h.SetDocuments("lab.c", fakemongo.Numbered(0, pagedDocuments, 100)...)
	}
	return &backend{
		uri: c.URI("replicaSet=rs"),
		openCursors: func() int {
			n := 0
			for _, h := range c.Hosts() {
				n += h.OpenCursors()
			}
			return n
		},
		handle: func(name string, h func(*fakemongo.Server) fakemongo.Handler) {
			for _, host := range c.Hosts() {
				host.Handle(name, h(host.Server))
			}
		},
	}
}

func loadBalanced(t testing.TB) *backend {
	b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{TCP: true, Discard: true, Strict: true})
	b.SetDocuments("lab.c", fakemongo.Numbered(0, pagedDocuments, 100)...)
	return &backend{
		uri:         "mongodb://" + balance(t, b).Address + "/?loadBalanced=true&maxPoolSize=200",
		pinned:      true,
		openCursors: b.OpenCursors,
		handle: func(name string, h func(*fakemongo.Server) fakemongo.Handler) {
			for _, s := range b.Services() {
				s.Handle(name, h(s.Server))
			}
		},
	}
}

// startReplicas starts two gateways that share a key and know each other.
func startReplicas(t testing.TB, uri string, args ...string) []*gatewaytest.Gateway {
	t.Helper()
	key, err := exec.Command(suite.Gateway(t), "key", "new").Output()
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, key, 0o600); err != nil {
		t.Fatal(err)
	}
	addresses := gatewaytest.FreeAddresses(t, 2)
	var replicas []*gatewaytest.Gateway
	for _, address := range addresses {
		replicas = append(replicas, suite.Start(t, uri, append([]string{
			"--handle-keys-file", keys, "--idempotency-key-file", keys,
			"--replica-address", address, "--replica-peers", strings.Join(addresses, ","),
		}, args...)...))
	}
	return replicas
}

// TestPagesFromAnyReplica reads each cursor's pages from two gateways in turn, over REST and
// gRPC: on a replica set the cursor moves between them, behind a load balancer the call is
// forwarded to the replica that has the connection.
func TestPagesFromAnyReplica(t *testing.T) {
	for name, start := range backends {
		t.Run(name, func(t *testing.T) {
			backend := start(t)
			replicas := startReplicas(t, backend.uri)
			a, b := replicas[0], replicas[1]
			ways := [][]pager{
				{overREST{base: a.REST}, overREST{base: b.REST}},
				{overREST{base: b.REST}, newGRPC(t, a)},
				{newGRPC(t, a), newGRPC(t, b)},
				{newGRPC(t, b), overREST{base: a.REST}, overREST{base: b.REST}, overREST{base: b.REST}},
			}
			var wg sync.WaitGroup
			for i := range 40 {
				wg.Go(func() {
					pages, err := reads(t.Context(), "c", pagedBatch, 0, pagedDocuments,
						ways[i%len(ways)]...)
					if err != nil || pages < pagedBatches {
						t.Errorf("cursor %d, %d pages: %v", i, pages, err)
					}
				})
			}
			wg.Wait()
			waitUntilNothingIsHeld(t, backend, a, b)
		})
	}
}

// TestStreamFromAnyReplica reads the rest of a cursor as a stream from a gateway that did not
// open it, and closes one there.
func TestStreamFromAnyReplica(t *testing.T) {
	for name, start := range backends {
		t.Run(name, func(t *testing.T) {
			backend := start(t)
			replicas := startReplicas(t, backend.uri)
			owner, other := overREST{base: replicas[0].REST}, replicas[1]
			for _, rest := range []func(context.Context, string, *sequence) error{
				newGRPC(t, other).rest, overREST{base: other.REST}.rest,
			} {
				p, err := owner.find(t.Context(), "c", pagedBatch)
				if err != nil {
					t.Fatal(err)
				}
				s := sequence{at: int32(len(p.ids)), end: pagedDocuments}
				if err := errors.Join(rest(t.Context(), p.cursor, &s), s.complete()); err != nil {
					t.Error(err)
				}
			}
			p, err := owner.find(t.Context(), "c", pagedBatch)
			if err != nil {
				t.Fatal(err)
			}
			closeCursor(t, other, heldCursor{page: p})
			waitUntilNothingIsHeld(t, backend, replicas...)
			for i, g := range replicas {
				if _, err := (overREST{base: g.REST}).
					next(t.Context(), p.cursor); reasonOf(err) != "CursorNotFound" {
					t.Errorf("gateway %d: next of a closed cursor: %v, want CursorNotFound", i, err)
				}
			}
		})
	}
}

// waitUntilNothingIsHeld waits until no cursor is open, and no connection in use.
func waitUntilNothingIsHeld(t testing.TB, b *backend, gateways ...*gatewaytest.Gateway) {
	t.Helper()
	gatewaytest.Eventually(t, 10*time.Second, func() error {
		if n := b.openCursors(); n > 0 {
			return fmt.Errorf("%d cursors are open", n)
		}
		for i, g := range gateways {
			if n := g.Vars(t).CheckedOut(); n > 0 {
				return fmt.Errorf("gateway %d has %d connections checked out", i, n)
			}
		}
		return nil
	})
}

// TestOwnerIsKilled: what a client hears of a cursor whose replica is no more.
func TestOwnerIsKilled(t *testing.T) {
	for name, start := range backends {
		t.Run(name, func(t *testing.T) {
			backend := start(t)
			replicas := startReplicas(t, backend.uri)
			a, b := overREST{base: replicas[0].REST}, overREST{base: replicas[1].REST}
			first, err := a.find(t.Context(), "c", pagedBatch)
			if err != nil {
				t.Fatal(err)
			}
			// It was held by both: on a replica set it is the first one's again, behind a load
			// balancer it always was.
			second, err := b.next(t.Context(), first.cursor)
			if err != nil {
				t.Fatal(err)
			}
			third, err := a.next(t.Context(), second.cursor)
			if err != nil {
				t.Fatal(err)
			}
			elsewhere, err := b.find(t.Context(), "c", pagedBatch)
			if err != nil {
				t.Fatal(err)
			}
			replicas[0].Kill(t)
			if _, err := readOn(t.Context(), elsewhere, 0, pagedDocuments, b); err != nil {
				t.Errorf("the other replica's own cursor: %v", err)
			}
			for _, p := range []pager{b, newGRPC(t, replicas[1])} {
				_, err = p.next(t.Context(), third.cursor)
				want := "CursorPositionUnknown"
				if backend.pinned {
					want = "CursorOwnerGone"
				}
				if got := reasonOf(err); got != want {
					t.Errorf("after the owner's end: %v, want %s", err, want)
				}
				t.Logf("%v", err)
			}
		})
	}
}

// TestOwnerDrains: a replica that is told to stop hands its cursors over, with what is left of
// their batches; those that keep a connection end, on the server, too.
func TestOwnerDrains(t *testing.T) {
	for name, start := range backends {
		t.Run(name, func(t *testing.T) {
			backend := start(t)
			// Pages are smaller than the batches, so that there is something left.
			replicas := startReplicas(t, backend.uri, "--pages-max-size", "1KiB")
			a, b := overREST{base: replicas[0].REST}, overREST{base: replicas[1].REST}
			const cursors = 50
			var held []numbers
			at := int32(0)
			for range cursors {
				p, err := a.find(t.Context(), "c", pagedBatch)
				if err != nil {
					t.Fatal(err)
				}
				at = int32(len(p.ids))
				held = append(held, p)
			}
			if at == 0 || at >= pagedBatch {
				t.Fatalf("a page has %d documents, and a batch %d", at, pagedBatch)
			}
			if err := replicas[0].Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code, err := replicas[0].Wait(t.Context()); code != 0 || err != nil {
				t.Errorf("exit code %d, %v", code, err)
			}
			if backend.pinned {
				waitUntilNothingIsHeld(t, backend, replicas[1])
			}
			for i, p := range held {
				_, err := readOn(t.Context(), p, 0, pagedDocuments, b)
				if backend.pinned && reasonOf(err) != "CursorOwnerGone" {
					t.Errorf("cursor %d: %v, want CursorOwnerGone", i, err)
				}
				if !backend.pinned && err != nil {
					t.Errorf("cursor %d: %v", i, err)
				}
			}
			waitUntilNothingIsHeld(t, backend, replicas[1])
		})
	}
}
