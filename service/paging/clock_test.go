package paging_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/paging"
)

// The replicas' clocks may differ by a minute: a token that one of them has sealed has not
// expired for the others before its time is up for both. What is here is good as long as it is
// here, whatever the clock of its sealer has said.
func TestClocksThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		idle := func(d time.Duration) func(*paging.Config) {
			return func(c *paging.Config) { c.Idle = d }
		}
		n.start("a", idle(time.Minute)) // seals as one whose clock is 9 minutes behind
		b := n.start("b", idle(10*time.Minute))
		page := n.open("a", 20, 2, 0)
		time.Sleep(90 * time.Second) //nolint:forbidigo // fake time; expired for a
		if _, err := n.next("a", page.Token); !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("at its own sealer: %v", err)
		}
		// a says so
		if _, err := n.next("b", page.Token); !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("elsewhere: %v", err)
		}
		if asked := len(n.questions()); asked != 1 {
			t.Errorf("%d questions", asked)
		}
		time.Sleep(31 * time.Second) //nolint:forbidigo // fake time
		if _, err := n.next("b", page.Token); !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("later: %v", err)
		}
		if asked := len(n.questions()); asked != 0 {
			t.Errorf("%d questions for a token that has expired for everybody", asked)
		}

		page = n.open("a", 20, 2, 0)
		if err := n.node("a").Drain(t.Context()); err != nil { // b has it
			t.Fatal(err)
		}
		time.Sleep(9 * time.Minute) //nolint:forbidigo // fake time
		if next := n.mustNext("b", page.Token); numbers(next) != "2 3" {
			t.Errorf("page %s", numbers(next))
		}
		time.Sleep(11 * time.Minute) //nolint:forbidigo // fake time
		if _, err := n.next("b", page.Token); !errors.Is(err, paging.ErrCursorNotFound) ||
			b.Len() != 0 {
			t.Errorf("in the end: %v, %d known", err, b.Len())
		}
	})
}
