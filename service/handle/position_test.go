package handle_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/handle"
)

// Every phase, asked for every page: the verdicts for pages 3, 4, 5 and 6 where page 5 would be granted next, without and with allowGap.
func TestPositionAsk(t *testing.T) {
	const held, forgotten = true, false
	for _, test := range []struct {
		name      string
		phase     handle.Phase
		held      bool
		same      bool
		want, gap string
	}{
		{"delivered", handle.PhaseIdle, held, false, "reused repeat grant behind", "reused repeat grant behind"},
		{"delivered and forgotten", handle.PhaseIdle, forgotten, false, "reused reused grant behind", "reused reused grant behind"},
		{"being fetched", handle.PhaseBusy, forgotten, false, "reused wait unknown unknown", "reused wait unknown unknown"},
		{"being fetched, the page before is there", handle.PhaseBusy, held, false, "reused wait unknown unknown", "reused wait unknown unknown"},
		{"lost", handle.PhaseLost, forgotten, false, "reused unknown behind behind", "reused gap behind behind"},
		{"the last", handle.PhaseEnded, held, false, "reused repeat unknown unknown", "reused repeat gap gap"},
		{"the last, forgotten", handle.PhaseEnded, forgotten, false, "reused reused unknown unknown", "reused reused gap gap"},
		{"taken by a stream", handle.PhaseTaken, forgotten, false, "reused reused unknown unknown", "reused reused unknown unknown"},
		{
			"moved, another one asks", handle.PhaseMoved, held, false,
			"reused elsewhere elsewhere elsewhere", "reused elsewhere elsewhere elsewhere",
		},
		{
			"moved and forgotten, another one asks", handle.PhaseMoved, forgotten, false,
			"reused elsewhere elsewhere elsewhere", "reused elsewhere elsewhere elsewhere",
		},
		{"moved, the same one asks", handle.PhaseMoved, held, true, "reused again elsewhere elsewhere", "reused again elsewhere elsewhere"},
		{
			"moved and forgotten, the same one asks", handle.PhaseMoved, forgotten, true,
			"reused unknown elsewhere elsewhere", "reused gap elsewhere elsewhere",
		},
		{
			"away", handle.PhaseAway, forgotten, false,
			"elsewhere elsewhere elsewhere elsewhere", "elsewhere elsewhere elsewhere elsewhere",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := handle.NewPosition(5, test.phase, test.held)
			if test.same {
				p = p.Same()
			}
			for _, allowGap := range []bool{false, true} {
				var got []string
				for seq := uint64(3); seq <= 6; seq++ {
					got = append(got, p.Ask(seq, allowGap))
				}
				want := test.want
				if allowGap {
					want = test.gap
				}
				if text := strings.Join(got, " "); text != want {
					t.Errorf("ask(3, 4, 5, 6; allowGap %v) = %s, want %s", allowGap, text, want)
				}
			}
		})
	}
	if got := handle.NewPosition(1, handle.PhaseIdle, false).Ask(0, false); got != "reused" {
		t.Errorf("page 0, which has no token: %s", got)
	}
}

// Of two records of a cursor, the one with more moves counts, however many pages the other one knows; after the same move, that of who was
// given the cursor, and what he has made of it.
func TestPositionNewer(t *testing.T) {
	for _, test := range []struct {
		p     handle.Phase
		o     handle.Phase
		moves uint64 // of the other one; the own are 3
		next  uint64 // of the other one; the own is 5
		want  bool
	}{
		{handle.PhaseAway, handle.PhaseMoved, 1, 1, true},
		{handle.PhaseAway, handle.PhaseIdle, 1, 1, true},
		{handle.PhaseMoved, handle.PhaseIdle, 2, 9, false},
		{handle.PhaseMoved, handle.PhaseIdle, 3, 4, true},
		{handle.PhaseMoved, handle.PhaseEnded, 3, 5, true},
		{handle.PhaseMoved, handle.PhaseMoved, 3, 5, false},
		{handle.PhaseMoved, handle.PhaseMoved, 4, 5, true},
		{handle.PhaseMoved, handle.PhaseIdle, 4, 3, true}, // the page was granted with a gap
		{handle.PhaseIdle, handle.PhaseMoved, 3, 5, false},
		{handle.PhaseIdle, handle.PhaseMoved, 4, 5, true},
		{handle.PhaseIdle, handle.PhaseIdle, 3, 5, false}, // the same push again
		{handle.PhaseIdle, handle.PhaseIdle, 3, 4, false}, // after a page was fetched
		{handle.PhaseIdle, handle.PhaseLost, 3, 6, true},
		{handle.PhaseEnded, handle.PhaseLost, 2, 5, false},
	} {
		t.Run(fmt.Sprintf("%v 5, %v %d after %d moves", test.p, test.o, test.next, test.moves), func(t *testing.T) {
			p, o := handle.NewPosition(5, test.p, false).After(3), handle.NewPosition(test.next, test.o, false).After(test.moves)
			if got := p.Newer(o); got != test.want {
				t.Errorf("newer = %v, want %v", got, test.want)
			}
		})
	}
}

// Who goes on without the holder is newer than all that the holder may still do, and than who went on so before.
func TestPositionForked(t *testing.T) {
	p := handle.NewPosition(5, handle.PhaseIdle, false).After(7)
	first := handle.Position{}.Forked(5)
	if !p.Newer(first) || first.Newer(p) {
		t.Error("going on without the holder is not newer than it")
	}
	if later := (handle.Position{}).Forked(6); !first.Newer(later) || !first.After(first.Moves()+1000).Newer(later) {
		t.Error("going on without the holder for a second time is not newer than what the first one made of it")
	}
	if mine := first.Forked(5); !first.Newer(mine) {
		t.Error("who knows of a record is not newer than that")
	}
}

// Whatever happens to the fetches, a page number is never granted again after it may have been delivered, unless the client allows a gap.
func TestPositionNeverSkips(t *testing.T) {
	outcomes := []handle.Outcome{handle.OutcomePage, handle.OutcomeLast, handle.OutcomeNotSent, handle.OutcomeLost, handle.OutcomeDead}
	var walk func(p handle.Position, seq uint64, depth int)
	walk = func(p handle.Position, seq uint64, depth int) {
		if depth == 0 || p.Ask(seq, false) != "grant" {
			return
		}
		busy := handle.NewPosition(seq+1, handle.PhaseBusy, false)
		if got := busy.Ask(seq, false); got != "wait" {
			t.Fatalf("while page %d is fetched, asking for it gives %s", seq, got)
		}
		moved := handle.NewPosition(seq+1, handle.PhaseMoved, true)
		if got := moved.Ask(seq, true); got != "elsewhere" {
			t.Fatalf("while page %d is another replica's, asking for it gives %s", seq, got)
		}
		for _, o := range outcomes {
			after := busy.Fetched(o, p)
			again := after.Ask(seq, false)
			if want := o == handle.OutcomeNotSent; (again == "grant") != want {
				t.Fatalf("after outcome %d, page %d again: %s", o, seq, again)
			}
			walk(after, seq, depth-1)
			if o == handle.OutcomePage {
				walk(after, seq+1, depth-1)
			}
		}
	}
	walk(handle.NewPosition(1, handle.PhaseIdle, false), 1, 5)
}
