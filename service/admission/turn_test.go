package admission_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/admission"
)

// TestHeavyWork checks that one processor is left, that a turn that has lasted goes to another
// call, and that a call that waits for something else has none.
func TestHeavyWork(t *testing.T) {
	for processors := 1; processors <= 3; processors++ {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			synctest.Test(t, func(t *testing.T) {
				a := admission.New(admission.Config{})
				most := max(1, processors-1)
				turns := make([]admission.Turn, most)
				for i := range turns {
					turns[i] = a.Turn()
					turns[i].Take()
				}
				worked := false
				done := make(chan struct{})
				go func() {
					defer close(done)
					next := a.Turn()
					next.Take()
					worked = true
					next.Leave()
				}()
				synctest.Wait()
				if worked {
					t.Errorf("%d processors: more than %d calls work", processors, most)
				}
				turns[0].Yield()
				synctest.Wait()
				if worked {
					t.Errorf("%d processors: a turn ends at once", processors)
				}
				<-time.After(20 * time.Millisecond) // the time of a turn
				turns[0].Yield()
				<-done
				if !worked || !turns[0].Leave() || turns[0].Leave() {
					t.Errorf("%d processors: the turn does not go round", processors)
				}
				for i := range turns[1:] {
					turns[i+1].Leave()
				}
			})
		}()
	}
}

// TestWorkWithoutAdmission checks that nothing waits without an admission.
func TestWorkWithoutAdmission(t *testing.T) {
	var a *admission.Admission
	one, two := a.Turn(), a.Turn()
	one.Take()
	two.Take()
	one.Yield()
	if one.Leave() {
		t.Error("a turn of no admission counts")
	}
}

// TestTurnOfAccount checks that the turns of a call are those of its admission.
func TestTurnOfAccount(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		var none *admission.Account
		free := none.Turn()
		free.Take()
		if free.Leave() {
			t.Error("a turn of no account counts")
		}
		a := admission.New(admission.Config{})
		var c admission.Account
		a.Open(&c, named("c"))
		one, worked := c.Turn(), make(chan struct{})
		one.Take()
		go func() {
			two := c.Turn()
			two.Take()
			close(worked)
			two.Leave()
		}()
		synctest.Wait()
		select {
		case <-worked:
			t.Error("two turns at once")
		default:
		}
		if !one.Leave() {
			t.Error("the turn of an account does not count")
		}
		<-worked
	})
}
