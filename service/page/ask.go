package page

// Question asks for a page for a client, with what the caller knows beside the ledger.
type Question struct {
	Seq uint64 // the page
	// Stream asks for the page and all that follow.
	Stream bool
	// Remembered: page next-1 is there. Working: a call works on the cursor, or hands it over.
	Remembered, Working bool
}

// Verdict answers a question.
type Verdict uint8

// The verdicts.
const (
	Elsewhere Verdict = iota // another replica has to be asked: see Moved
	Fetch                    // granted: fetch it, then call Fetched
	Repeat                   // deliver the page that is remembered
	Wait                     // a call works on the cursor: ask again when it has ended
	Reused                   // it was delivered before and is not remembered
	Unknown                  // it may have been delivered, or pages before it may be missing
	Ended                    // the cursor was ended for lack of room
	numVerdicts
)

func (v Verdict) String() string {
	return [numVerdicts]string{
		"elsewhere", "fetch", "repeat", "wait", "reused", "unknown", "ended",
	}[v]
}

// place says where the page that is asked for lies.
type place uint8

const (
	earlier   place = iota // before page next-1
	latest                 // page next-1
	following              // page next
	beyond                 // behind page next
	numPlaces
)

// verdicts is the answer for each phase and place. The absent phase and the moved one answer
// Elsewhere.
var verdicts = [numPhases][numPlaces]Verdict{
	delivered: {earlier: Reused, latest: Repeat, following: Fetch, beyond: Unknown},
	fetching:  {earlier: Reused, latest: Wait, following: Unknown, beyond: Unknown},
	lost:      {earlier: Reused, latest: Unknown, following: Unknown, beyond: Unknown},
	ended:     {earlier: Reused, latest: Repeat, following: Unknown, beyond: Unknown},
	streamed:  {earlier: Reused, latest: Reused, following: Unknown, beyond: Unknown},
	evicted:   {earlier: Reused, latest: Reused, following: Ended, beyond: Unknown},
}

// Ask decides about a question. The new ledger counts whatever the verdict is.
func (l Ledger) Ask(q Question) (Ledger, Verdict) {
	v := verdicts[l.phase][l.place(q.Seq)]
	switch {
	case v == Repeat && (!q.Remembered || q.Stream):
		return l, Reused
	case v == Fetch && q.Working:
		return l, Wait
	case v == Fetch:
		l.next, l.phase = q.Seq+1, fetching
		if q.Stream {
			l.phase = streamed
		}
	}
	return l, v
}

func (l Ledger) place(seq uint64) place {
	switch {
	case seq+1 < l.next:
		return earlier
	case seq+1 == l.next:
		return latest
	case seq == l.next:
		return following
	default:
		return beyond
	}
}
