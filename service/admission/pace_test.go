package admission_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/admission"
)

// TestPace checks how many refusals of a principal are at once, and how long others are held back.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{})
		one, other := admission.Principal{Name: "one"}, admission.Principal{Name: "other"}
		took := func(p admission.Principal) time.Duration {
			begun := time.Now()
			a.HoldBack(t.Context(), p)
			return time.Since(begun)
		}
		for i := range 100 {
			if d := took(one); d > 0 {
				t.Fatalf("refusal %d is held back for %v", i+1, d)
			}
		}
		for range 10 {
			if d := took(one); d != 10*time.Millisecond {
				t.Errorf("after 100 refusals, one more is held back for %v, want 10ms", d)
			}
		}
		if d := took(other); d > 0 {
			t.Errorf("the refusal of another client is held back for %v", d)
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		for i := range 100 {
			if d := took(one); d > 0 {
				t.Fatalf("a second later, refusal %d is held back for %v", i+1, d)
			}
		}
	})
}

// TestPaceOfMany checks that a client that makes the same call on many connections, again and
// again, is refused once a second on each.
func TestPaceOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var mu sync.Mutex
		var clients sync.WaitGroup
		refusals := 0
		for range 500 {
			clients.Go(func() {
				for ctx.Err() == nil {
					a.HoldBack(ctx, admission.Principal{Name: "one"})
					mu.Lock()
					refusals++
					mu.Unlock()
				}
			})
		}
		clients.Wait()
		if refusals < 5000 || refusals > 6500 {
			t.Errorf("500 connections have %d refusals in 10 s, want about 5,000", refusals)
		}
	})
}

// TestPaceIsBounded checks that no more than 2,000 refusals are held back, of which each principal
// has a share, and that they end with their clients.
func TestPaceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{})
		ctx, leave := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		var mu sync.Mutex
		held := map[string]int{}
		add := func(name string, n int) {
			mu.Lock()
			defer mu.Unlock()
			held[name] += n
		}
		for _, name := range []string{"one", "two", "three"} {
			for range 5000 {
				calls.Go(func() {
					add(name, 1)
					a.HoldBack(ctx, admission.Principal{Name: name})
					add(name, -1)
				})
			}
			synctest.Wait()
		}
		all := held["one"] + held["two"] + held["three"]
		if all > 2000 || held["one"] > 1604 || held["two"] < 300 || held["three"] == 0 {
			t.Errorf("held back: %v, want at most 2,000, and 80 %% of what is free of each", held)
		}
		begun := time.Now()
		leave()
		calls.Wait()
		if d := time.Since(begun); d > 0 {
			t.Errorf("the refusals of clients that have left are held back for %v", d)
		}
		if held["one"] != 0 {
			t.Errorf("%d are held back after the end", held["one"])
		}
	})
	var none *admission.Admission
	none.HoldBack(t.Context(), admission.Principal{})
}
