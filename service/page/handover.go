package page

// Fork describes the beginning of a branch.
type Fork struct {
	Branch Branch
	// Gap is the page with which the branch began, and Parent the branch of that page's token.
	Gap    uint64
	Parent Branch
}

// Yield asks a replica to give way to one that has begun a branch.
type Yield struct {
	Fork
	// To is the replica that has the branch.
	To Replica
	// Working: a call works on the cursor.
	Working bool
}

// Yielded answers a replica that has begun a branch. The verdict is GiveWay, Wait, Elsewhere if
// it is not here, or Unknown if the branch here is as new. With GiveWay the caller drops the
// cursor, and wentOn reports whether pages may have been granted here behind the gap.
func (l Ledger) Yielded(y Yield) (_ Ledger, v Verdict, wentOn bool) {
	switch {
	case l.phase == absent, l.phase == moved:
		return l, Elsewhere, false
	case !y.Branch.Newer(l.branch):
		return l, Unknown, false
	case l.phase == yielded: // it has given way before
		return l, GiveWay, l.wentOn(y)
	case y.Working || l.phase == fetching:
		return l, Wait, false
	}
	return l.gaveWay(y.To), GiveWay, l.wentOn(y)
}

// wentOn reports whether the page with which the other branch began was granted here, too. Of a
// branch that began elsewhere it is not known what came before it.
func (l Ledger) wentOn(y Yield) bool { return l.branch != y.Parent || l.next > y.Gap }

// gaveWay returns the ledger of a cursor that went on at another replica without this one.
func (l Ledger) gaveWay(to Replica) Ledger {
	l.phase, l.to = yielded, to
	return l
}

// Record holds a ledger on its way to another replica.
type Record struct {
	Next  uint64
	Phase uint8 // opaque
	Moves uint64
	Fork
	Late bool
	From Replica
}

// Record returns what another replica is told when it gets the cursor. whole reports that all
// that is left of the last batch goes along; otherwise the next page is lost.
func (l Ledger) Record(whole bool) Record {
	if !whole && l.phase == delivered {
		l = l.Cut()
	}
	fork, _ := l.Fork()
	return Record{
		Next: l.next, Phase: uint8(l.phase), Moves: l.moves + 1, Fork: fork,
		Late: l.late, From: l.from,
	}
}

// Pushed records that all that is known went to another replica. If it is not certain that it
// arrived, the instance of that replica is zero. Nothing is granted here any more even then: if two
// replicas held a cursor, one would skip pages of the other.
func (l Ledger) Pushed(to Replica) (Ledger, Effect) {
	if l.phase == absent || l.phase.elsewhere() || l.phase == ended && to.Instance == (Instance{}) {
		return l, Keep
	}
	l.phase, l.to, l.moves = moved, to, l.moves+1
	return l, Drop
}

// Accept takes over what another replica knows, unless more is known here. holds reports that the
// record brings the cursor. Working: a call works on the cursor here.
func (l Ledger) Accept(r Record, holds, working bool) (Ledger, bool) {
	switch known := l.phase != absent; {
	case r.Phase >= uint8(numPhases), known && working:
		return l, false
	case known && l.branch.Newer(r.Branch), known && l.branch == r.Branch && r.Moves <= l.moves:
		return l, false
	}
	got := Ledger{
		position: position{
			next: r.Next, phase: phase(r.Phase), branch: r.Branch, gap: r.Gap, parent: r.Parent,
			late: r.Late, from: r.From,
		},
		moves: r.Moves,
	}
	switch {
	case got.phase == ended, got.phase == streamed:
	case got.phase == delivered && holds:
	default:
		got.phase = lost
	}
	return got, true
}
