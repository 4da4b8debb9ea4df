package broadcast_test

import (
	"sync"
	"testing"

	"github.com/mooringdb/mooring/core/internal/broadcast"
)

func TestStoreWakesEveryReaderOnce(t *testing.T) {
	v := broadcast.New(1)
	got, changed := v.Load()
	if got != 1 {
		t.Fatalf("Load() = %d, want 1", got)
	}
	select {
	case <-changed:
		t.Fatal("changed is closed before Store")
	default:
	}
	v.Store(1)
	<-changed // a Store of an equal value wakes, too
	got, changed = v.Load()
	if got != 1 {
		t.Fatalf("Load() = %d, want 1", got)
	}
	v.Store(2)
	<-changed
	if got, _ = v.Load(); got != 2 {
		t.Fatalf("Load() = %d, want 2", got)
	}
}

func TestConcurrentStoresAndFollowers(t *testing.T) {
	const last = 1000
	v := broadcast.New(0)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				got, changed := v.Load()
				if got == last {
					return
				}
				<-changed
			}
		})
	}
	for i := 1; i <= last; i++ {
		v.Store(i)
	}
	wg.Wait()
}
