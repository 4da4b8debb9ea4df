package paging_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/seal"
)

// What was pushed elsewhere is known for no longer than a token is good, and expired cursors are
// killed by the replica that has them.
func TestRecordsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		for range 5 {
			n.open("a", 9, 2, 0)
		}
		if err := n.node("a").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a, b := n.node("a").Len(), n.node("b").Len(); a != 5 || b != 5 {
			t.Errorf("%d and %d are known", a, b)
		}
		time.Sleep(handle.DefaultIdle + time.Minute) //nolint:forbidigo // fake time
		if a, b := n.node("a").Len(), n.node("b").Len(); a != 0 || b != 0 {
			t.Errorf("%d and %d are known in the end", a, b)
		}
		if open, killed, _ := n.s.count(); open != 0 || killed != 5 {
			t.Errorf("%d open, %d killed", open, killed)
		}
	})
}

// What was asked for in vain leaves nothing behind, unless an answer may have been lost.
func TestAskingInVainLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		page := n.open("a", 9, 2, 0)
		n.crash("a")
		_, _ = n.next("b", page.Token)
		if got := n.node("b").Len(); got != 0 {
			t.Errorf("b knows %d cursors", got)
		}
	})
}

// Each token opens at every replica with its key, also when another one seals by now; with a key
// that is gone it does not.
func TestReplicasWithRotatedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		old, young := key(t, 1), key(t, 2)
		rings := map[string]*seal.Ring{}
		for _, address := range []string{"a", "b"} {
			rings[address] = ring(t, old)
			n.start(address, func(c *paging.Config) { c.Keys = rings[address] })
		}
		page := n.open("a", 30, 2, 0)
		for i, keys := range [][2][]seal.Key{
			{{old, young}, {old}}, {{old, young}, {old, young}}, {{young, old}, {old, young}}, {{young, old}, {young, old}},
		} {
			for j, address := range []string{"a", "b"} {
				if err := rings[address].Replace(keys[j]...); err != nil {
					t.Fatal(err)
				}
			}
			page = n.mustNext("b", page.Token)
			page = n.mustNext("a", page.Token)
			if want := fmt.Sprintf("%d %d", 4*i+4, 4*i+5); numbers(page) != want {
				t.Fatalf("step %d: page %s, want %s", i, numbers(page), want)
			}
		}
		if err := rings["b"].Replace(key(t, 3)); err != nil {
			t.Fatal(err)
		}
		if _, err := n.next("b", page.Token); !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("the key is gone: %v", err)
		}
	})
}

// A replica without a key of its configuration is alone, whatever it could reach.
func TestEphemeralKeysAskNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		shared := ring(t)
		for _, address := range []string{"a", "b"} {
			n.start(address, func(c *paging.Config) { c.Keys = shared })
		}
		page := n.open("a", 9, 2, 0)
		if _, err := n.next("b", page.Token); !errors.Is(err, paging.ErrCursorPositionUnknown) {
			t.Errorf("Next = %v", err)
		}
		if asked := n.questions(); slices.ContainsFunc(asked, func(string) bool { return true }) {
			t.Errorf("asked %v", asked)
		}
	})
}
