package handle_test

import (
	"testing"

	"github.com/mooringdb/mooring/service/handle"
)

func TestPositionAsk(t *testing.T) {
	for _, test := range []struct {
		name      string
		next      uint64
		phase     handle.Phase
		held      bool
		seq       uint64
		want, gap string
	}{
		{"the next page", 5, handle.PhaseIdle, true, 5, "grant", "grant"},
		{"the last page again", 5, handle.PhaseIdle, true, 4, "repeat", "repeat"},
		{"the last page, forgotten", 5, handle.PhaseIdle, false, 4, "reused", "reused"},
		{"an older page", 5, handle.PhaseIdle, true, 3, "reused", "reused"},
		{"a page granted elsewhere", 5, handle.PhaseIdle, true, 6, "unknown", "gap"},
		{"the page that is fetched", 5, handle.PhaseBusy, false, 4, "wait", "wait"},
		{"the page before it", 5, handle.PhaseBusy, true, 3, "reused", "reused"},
		{"the page behind it", 5, handle.PhaseBusy, true, 5, "unknown", "unknown"},
		{"a lost page", 5, handle.PhaseLost, false, 4, "unknown", "gap"},
		{"behind a lost page", 5, handle.PhaseLost, false, 5, "unknown", "gap"},
		{"the very last page again", 5, handle.PhaseEnded, true, 4, "repeat", "repeat"},
		{"the very last page, forgotten", 5, handle.PhaseEnded, false, 4, "reused", "reused"},
		{"what a stream has taken", 5, handle.PhaseTaken, false, 4, "reused", "reused"},
		{"behind what a stream has taken", 5, handle.PhaseTaken, false, 5, "unknown", "unknown"},
		{"page 0 has no token, but", 1, handle.PhaseIdle, false, 0, "reused", "reused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := handle.NewPosition(test.next, test.phase, test.held)
			if got := p.Ask(test.seq, false); got != test.want {
				t.Errorf("%v.ask(%d) = %s, want %s", p, test.seq, got, test.want)
			}
			if got := p.Ask(test.seq, true); got != test.gap {
				t.Errorf("%v.ask(%d, allowGap) = %s, want %s", p, test.seq, got, test.gap)
			}
		})
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
