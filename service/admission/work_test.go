package admission_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/admission"
)

// oneTurn has one turn at a time until the end of the test.
func oneTurn(t *testing.T) {
	t.Helper()
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// isFree reports whether there is a turn.
func isFree(a *admission.Admission) bool {
	taken := make(chan struct{})
	turn := a.Turn()
	go func() {
		turn.Take()
		close(taken)
	}()
	synctest.Wait()
	select {
	case <-taken:
		turn.Leave()
		return true
	default:
		go func() { <-taken; turn.Leave() }()
		return false
	}
}

// TestWorkTakesTurns checks that work has a turn once it is heavy, and until it rests.
func TestWorkTakesTurns(t *testing.T) {
	oneTurn(t)
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{})
		var c admission.Account
		a.Open(&c, named("c"))
		w := c.Work(t.Context())
		do := func(n int) {
			if err := w.Do(n); err != nil {
				t.Error(err)
			}
		}
		do(1 << 10)
		if !isFree(a) {
			t.Error("small work takes a turn")
		}
		for range 31 {
			do(1 << 10)
		}
		if isFree(a) {
			t.Error("many small parts take no turn")
		}
		w.Rest()
		synctest.Wait()
		if !isFree(a) {
			t.Error("work that rests has a turn")
		}
		do(1 << 20)
		resume := w.Pause()
		if !isFree(a) {
			t.Error("work that waits has a turn")
		}
		resume()
		if isFree(a) {
			t.Error("work that goes on has no turn")
		}
		w.Rest()
	})
}

// TestWorkOfEndedCalls checks that work learns that its call has ended, and has a turn if it goes
// on nevertheless.
func TestWorkOfEndedCalls(t *testing.T) {
	oneTurn(t)
	synctest.Test(t, func(t *testing.T) {
		a, gone := admission.New(admission.Config{}), errors.New("the client has gone")
		var c admission.Account
		a.Open(&c, named("c"))
		ctx, cancel := context.WithCancelCause(t.Context())
		w := c.Work(ctx)
		cancel(gone)
		if err := w.Do(1 << 20); !errors.Is(err, gone) {
			t.Errorf("Do() = %v, want %v", err, gone)
		}
		if isFree(a) {
			t.Error("work that goes on has no turn")
		}
		w.Rest()
	})
}

// TestTurnsGoRound checks that a principal with much heavy work has at most two turns before each
// of another one.
func TestTurnsGoRound(t *testing.T) {
	oneTurn(t)
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{})
		begun := time.Now()
		work := func(name string) {
			var c admission.Account
			a.Open(&c, named(name))
			w := c.Work(t.Context())
			for range 5 {
				if err := w.Do(1 << 20); err != nil {
					t.Error(err)
				}
				<-time.After(2 * time.Millisecond)
			}
			w.Rest()
		}
		var others sync.WaitGroup
		for range 50 {
			others.Go(func() { work("hostile") })
		}
		synctest.Wait()
		work("quiet")
		if took, most := time.Since(begun), 5*3*2*time.Millisecond; took > most {
			t.Errorf("the quiet one has worked for %s, want at most %s", took, most)
		}
		others.Wait()
		if took, want := time.Since(begun), 51*5*2*time.Millisecond; took != want {
			t.Errorf("all have worked for %s, want %s", took, want)
		}
	})
}

// TestWorkCharges checks that work has no turn while it waits for memory, what is charged, and that
// all of it is returned.
func TestWorkCharges(t *testing.T) {
	oneTurn(t)
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1 << 20, Patience: time.Hour})
		var other, c admission.Account
		a.Open(&other, named("other"))
		a.Open(&c, named("c"))
		w := c.Work(t.Context())
		if err := errors.Join(w.Copy(63<<10), w.Charge(0), w.Charge(-5)); err != nil ||
			c.Held() != 0 {
			t.Errorf("%d bytes are charged for a small copy, %v", c.Held(), err)
		}
		if err := w.Copy(1 << 10); err != nil || c.Held() != 64<<10 {
			t.Errorf("%d bytes are charged for copies of 64 KiB, %v", c.Held(), err)
		}
		other.Force(1 << 20)
		for name, charge := range map[string]func(int64) error{
			"Charge": w.Charge, "ChargeLast": w.ChargeLast,
		} {
			if err := w.Do(1 << 20); err != nil {
				t.Error(err)
			}
			charged := make(chan error)
			go func() { charged <- charge(1 << 10) }()
			synctest.Wait()
			if a.Bytes().Waiting != 1 || !isFree(a) {
				t.Errorf("%s waits for memory with a turn", name)
			}
			other.Shrink(128 << 10)
			if err := <-charged; err != nil {
				t.Error(err)
			}
			if isFree(a) {
				t.Errorf("after %s the work goes on without a turn", name)
			}
			w.Rest()
			synctest.Wait()
			other.Force(128<<10 - 1<<10)
		}
		w.Vacate(1 << 10)
		w.Release()
		if got := c.Held(); got != 1<<10 { // of ChargeLast, which is for the end of the call
			t.Errorf("%d bytes are charged after Release", got)
		}
		c.Close()
		other.Close()
		if got := a.Bytes().Held; got != 0 {
			t.Errorf("%d bytes are held at the end", got)
		}
	})
}

// TestNoWork checks that work of no call, and of an account that charges nothing, never waits.
func TestNoWork(t *testing.T) {
	var none *admission.Work
	var account *admission.Account
	zero, of := admission.Work{}, account.Work(t.Context())
	for _, w := range []*admission.Work{none, &zero, &of} {
		if err := errors.Join(w.Do(1<<30), w.Copy(1<<30), w.Charge(1<<30)); err != nil {
			t.Error(err)
		}
		w.Vacate(1)
		w.Pause()()
	}
}
