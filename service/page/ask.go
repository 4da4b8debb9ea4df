package page

// Question asks for a page for a client, with what the caller knows beside the ledger.
type Question struct {
	Seq    uint64 // the page
	Branch Branch // of the token
	// Holder is the replica that the token names.
	Holder Replica
	// Here: that is this replica.
	Here bool
	// AllowGap is the client's word that it accepts that pages are missing.
	AllowGap bool
	// Stream asks for the page and all that follow.
	Stream bool

	// Remembered: page next-1 is there. Working: a call works on the cursor, or hands it over.
	Remembered, Working bool
	// Settled is what came of a Confirm.
	Settled Settled
	// Random becomes the id of a branch that the question begins.
	Random uint64
}

// Settled says what the replicas that may hold an older branch have answered.
type Settled uint8

// The answers.
const (
	NotAsked   Settled = iota // no replica was asked yet
	AllGaveWay                // its holder gave way, and delivered nothing behind the gap
	WentOn                    // no replica holds it, but one may have gone on behind the gap
	NoAnswer                  // a replica has not answered
)

// Verdict answers a question.
type Verdict uint8

// The verdicts.
const (
	Elsewhere Verdict = iota // another replica has to be asked: see Moved
	Fetch                    // granted: fetch it, then call Fetched
	Skip                     // granted behind a gap: as Fetch, with a cursor made of the token
	Repeat                   // deliver the page that is remembered
	Wait                     // a call works on the cursor: ask again when it has ended
	Confirm                  // ask the holders of older branches to give way, then ask again
	GiveWay                  // drop the cursor, then ask the replica where it went on: see Moved
	Reused                   // it was delivered before and is not remembered
	Unknown                  // it may have been delivered, or pages before it may be missing
	numVerdicts
)

func (v Verdict) String() string {
	return [numVerdicts]string{
		"elsewhere", "fetch", "skip", "repeat", "wait", "confirm", "give way", "reused", "unknown",
	}[v]
}

// Grants reports whether the caller is to work on the cursor.
func (v Verdict) Grants() bool { return v == Fetch || v == Skip }

// place says where the page that is asked for lies.
type place uint8

const (
	earlier place = iota // before page next-1
	latest               // page next-1
	following
	beyond // behind page next, or on an older branch
	numPlaces
)

// verdicts is the answer for each phase and place. Where it is Unknown, allowing a gap helps if
// the phase is in skippable.
var verdicts = [numPhases][numPlaces]Verdict{
	delivered: {earlier: Reused, latest: Repeat, following: Fetch, beyond: Unknown},
	fetching:  {earlier: Reused, latest: Wait, following: Unknown, beyond: Unknown},
	lost:      {earlier: Reused, latest: Unknown, following: Unknown, beyond: Unknown},
	ended:     {earlier: Reused, latest: Repeat, following: Unknown, beyond: Unknown},
	streamed:  {earlier: Reused, latest: Reused, following: Unknown, beyond: Unknown},
}

var skippable = [numPhases]bool{delivered: true, lost: true, ended: true}

// Ask decides about a question. The new ledger counts whatever the verdict is.
func (l Ledger) Ask(q Question) (Ledger, Verdict) {
	switch {
	case l.phase == absent || l.phase.elsewhere():
		return l, Elsewhere
	case q.Branch.Newer(l.branch) && (q.Working || l.phase == fetching):
		return l, Wait
	case q.Branch.Newer(l.branch):
		return l.gaveWay(q.Holder), GiveWay
	}
	v := verdicts[l.phase][l.place(q)]
	switch {
	case v == Repeat && (!q.Remembered || q.Stream):
		v = Reused
	case v == Fetch && l.late && !q.AllowGap:
		l, v = l.settle(q.Settled)
	case v == Unknown && q.AllowGap && skippable[l.phase]:
		v = Skip
	}
	switch {
	case v.Grants() && q.Working:
		return l, Wait
	case v == Fetch:
		return l.grant(q, l.position), v
	case v == Skip:
		return l.branchOff(q), v
	default:
		return l, v
	}
}

// TakeUp decides about a page of a cursor that no replica is found to hold. sure reports that
// none is left that may hold it.
func (l Ledger) TakeUp(q Question, sure bool) (Ledger, Verdict) {
	switch {
	case l.phase != absent && !l.phase.elsewhere(): // it has come here meanwhile
		return l, Wait
	case !q.AllowGap:
		return l, Unknown
	}
	l = l.branchOff(q)
	l.late, l.from = false, Replica{}
	if !sure {
		l.late, l.from = true, q.Holder
	}
	return l, Skip
}

// place places a page. The token with which a branch began stands for that branch's first page,
// too.
func (l Ledger) place(q Question) place {
	switch {
	case q.Branch != l.branch && q.Seq > l.gap:
		return beyond
	case q.Seq+1 < l.next:
		return earlier
	case q.Seq+1 == l.next:
		return latest
	case q.Seq == l.next:
		return following
	default:
		return beyond
	}
}

// settle decides about a page that would be granted if no replica held an older branch.
func (l Ledger) settle(s Settled) (Ledger, Verdict) {
	switch s {
	case AllGaveWay:
		l.late = false
		return l, Fetch
	case WentOn: // their pages are missing here
		l.late = false
		return l.Cut(), Unknown
	case NoAnswer:
		return l, Unknown
	default:
		return l, Confirm
	}
}

// grant grants a page; before is the position that counts again if nothing is sent.
func (l Ledger) grant(q Question, before position) Ledger {
	l.before = before
	l.next, l.phase = q.Seq+1, fetching
	if q.Stream {
		l.phase = streamed
	}
	return l
}

// branchOff begins a branch with the page that is asked for, and grants it. What is left of the
// last batch goes: if nothing is sent, the page that it belongs to is lost.
func (l Ledger) branchOff(q Question) Ledger {
	before := l
	if l.phase == delivered {
		before = l.Cut()
	}
	own := l.branch
	l.branch, l.gap = Branch{Gaps: max(l.branch.Gaps, q.Branch.Gaps) + 1, ID: q.Random}, q.Seq
	if q.Branch != own && !q.Here { // the token's replica may go on
		l.late, l.from = true, q.Holder
	}
	l.parent = q.Branch
	return l.grant(q, before.position)
}
