package outbox_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/internal/outbox"
)

func TestHoldsAreReleasedInOrder(t *testing.T) {
	var told []int
	o := outbox.New(func(n int) { told = append(told, n) })
	step := func(do func(), want ...int) {
		t.Helper()
		do()
		o.Flush()
		if !slices.Equal(told, want) {
			t.Errorf("delivered %v, want %v", told, want)
		}
		told = nil
	}
	step(func() { o.Add(1); o.Hold(); o.Add(2); o.Hold(); o.Add(3) }, 1)
	step(func() { o.Add(4) })
	step(o.Release, 2)
	step(o.Release, 3, 4)
	step(o.Release)
	step(func() { o.Add(5); o.Deliver() }, 5)
}

// TestOrderUnderLoad checks that facts of many goroutines come in the order of the lock under
// which they were added, one at a time, each before the Flush that follows it returns.
func TestOrderUnderLoad(t *testing.T) {
	var mu, telling sync.Mutex
	var told []int
	o := outbox.New(func(n int) {
		if !telling.TryLock() {
			t.Error("two facts are delivered at once")
		}
		told = append(told, n)
		telling.Unlock()
	})
	next := 0
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for range 500 {
				mu.Lock()
				n := next
				next++
				o.Add(n)
				mu.Unlock()
				if g == 0 {
					o.Deliver()
					continue
				}
				o.Flush()
			}
		})
	}
	all.Wait()
	if !slices.IsSorted(told) || len(told) != 4000 {
		t.Errorf("%d facts delivered, sorted %v; want 4000 in order", len(told),
			slices.IsSorted(told))
	}
}

// TestFlushWaitsAndDeliverDoesNot checks both while another goroutine delivers, which does what
// Deliver asked for and leaves to Flush what was flushed.
func TestFlushWaitsAndDeliverDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		var told []int
		o := outbox.New(func(n int) {
			if n == 1 {
				<-goOn
			}
			told = append(told, n)
		})
		o.Add(1)
		go o.Flush()
		synctest.Wait()
		o.Add(2)
		o.Deliver()
		o.Add(3)
		flushed := false
		go func() {
			o.Flush()
			flushed = true
		}()
		synctest.Wait()
		if len(told) > 0 || flushed {
			t.Errorf("delivered %v, flushed %v, while the first is being delivered", told, flushed)
		}
		close(goOn)
		synctest.Wait()
		if !slices.Equal(told, []int{1, 2, 3}) || !flushed {
			t.Errorf("delivered %v, flushed %v", told, flushed)
		}
	})
}
