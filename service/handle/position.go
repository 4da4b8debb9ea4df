package handle

// position is what is known about a cursor's pages, as a value. Pages are numbered; the token with sequence n asks for page n. Find
// delivers page 0 with token 1, so next begins at 1. Each page is granted once: who was granted it runs the getMore, everybody else
// waits for that page, gets it again, or is told why not.
type position struct {
	next  uint64 // the page to be granted next
	phase phase  // what is known about page next-1
	// moves counts how often the cursor has gone from replica to replica; with phaseMoved that move included. Of what two replicas know of
	// it, the one with more is newer. Pages would not do: an allowed gap goes back to one that was asked for before.
	moves uint64

	// Only ask looks at these.
	held bool // page next-1 is remembered; with phaseMoved: what was granted is
	same bool // with phaseMoved: the asker is the one that it was granted to, in the same attempt
}

type phase uint8

const (
	phaseIdle  phase = iota // page next-1 was delivered; next can be granted
	phaseBusy               // page next-1 is being fetched
	phaseLost               // page next-1 was asked for and no answer came
	phaseEnded              // page next-1 was the last
	phaseTaken              // page next-1 and all that follow went to a stream
	phaseMoved              // page next-1 and all that follow were granted to another replica
	phaseAway               // nothing is known here: another replica may be asked
)

func (p phase) String() string {
	return [...]string{"idle", "busy", "lost", "ended", "taken", "moved", "away"}[p]
}

// verdict is the answer to "may I have page seq?"
type verdict uint8

const (
	verdictGrant     verdict = iota // yours: fetch it
	verdictGap                      // yours, but pages before it may be missing: the client said that it would rather go on
	verdictRepeat                   // the page that is remembered
	verdictWait                     // somebody fetches it; ask again then
	verdictReused                   // delivered before, forgotten since
	verdictUnknown                  // may have been delivered, or not
	verdictElsewhere                // another replica knows
	verdictBehind                   // it was served by a replica that went on without this one
	verdictAgain                    // yours already, but the answer that said so was lost
)

func (v verdict) String() string {
	return [...]string{"grant", "gap", "repeat", "wait", "reused", "unknown", "elsewhere", "behind", "again"}[v]
}

// takes says whether the cursor is to be worked on, or handed over: not while somebody is at it.
func (v verdict) takes() bool {
	return v == verdictGrant || v == verdictGap || v == verdictElsewhere || v == verdictBehind || v == verdictAgain
}

// ask decides who gets page seq. allowGap is the client's word that it would rather miss a page than stop.
func (p position) ask(seq uint64, allowGap bool) verdict {
	switch {
	case p.phase == phaseAway:
		return verdictElsewhere
	case p.phase == phaseMoved:
		return p.moved(seq, allowGap)
	case seq == p.next && p.phase == phaseIdle:
		return verdictGrant
	case seq >= p.next && (p.phase == phaseIdle || p.phase == phaseLost):
		return verdictBehind
	case seq >= p.next:
		return p.gap(allowGap)
	case seq < p.next-1:
		return verdictReused
	case p.phase == phaseBusy:
		return verdictWait
	case p.phase == phaseLost:
		return p.gap(allowGap)
	case p.held:
		return verdictRepeat
	default:
		return verdictReused
	}
}

// moved decides where another replica was granted page next-1. It alone may have it again: whoever else asks is sent to it.
func (p position) moved(seq uint64, allowGap bool) verdict {
	switch {
	case seq < p.next-1:
		return verdictReused
	case seq >= p.next || !p.same:
		return verdictElsewhere
	case p.held:
		return verdictAgain
	default: // what was granted had to go before it arrived
		return p.gap(allowGap)
	}
}

// gap allows a jump only where nobody is at work on the cursor.
func (p position) gap(allowGap bool) verdict {
	if !allowGap || p.phase == phaseBusy || p.phase == phaseTaken {
		return verdictUnknown
	}
	return verdictGap
}

// outcome is how fetching a page went.
type outcome uint8

const (
	outcomePage    outcome = iota // there it is, and more may follow
	outcomeLast                   // there it is, and nothing follows
	outcomeNotSent                // nothing was sent: it is as if nobody had asked
	outcomeLost                   // it was asked for and no answer came
	outcomeDead                   // the server refused: it has no such cursor any more
)

// fetched is the position after the fetch of the page that was granted; before is the one in which it was granted.
func (p position) fetched(o outcome, before position) position {
	switch o {
	case outcomeNotSent:
		return before
	case outcomeLost:
		p.phase = phaseLost
	case outcomeLast, outcomeDead:
		p.phase = phaseEnded
	default:
		p.phase = phaseIdle
	}
	return p
}

// granted is the position that is left behind when page seq, and the cursor with it, goes to another replica.
func (p position) granted(seq uint64) position {
	return position{next: seq + 1, phase: phaseMoved, moves: p.moves + 1}
}

// pushed is the position that is left behind when all that is known goes to another replica. It may grant the page that this one would have
// granted next.
func (p position) pushed() position {
	if p.phase == phaseIdle {
		p.next++
	}
	return position{next: p.next, phase: phaseMoved, moves: p.moves + 1}
}

// forkMoves is more than any cursor moves between two pages.
const forkMoves = 1 << 20

// forked is the position of who goes on from page seq on without the holder, who cannot be reached: with a gap, perhaps. It is newer than
// all that came before that page, and than what the holder still does until then.
func (p position) forked(seq uint64) position {
	return position{next: seq + 1, phase: phaseLost, moves: max(p.moves, seq*forkMoves) + forkMoves}
}

// newer says whether o knows more of the same cursor than p does. A record that comes again is not newer than what has become of it.
func (p position) newer(o position) bool {
	switch {
	case p.phase == phaseAway:
		return true
	case p.moves != o.moves:
		return o.moves > p.moves
	case (p.phase == phaseMoved) != (o.phase == phaseMoved): // who was given it, and who only knows that he was
		return p.phase == phaseMoved
	default:
		return o.next > p.next
	}
}

// lost is the position when a part of page next is gone, which nobody has asked for yet. It is as if somebody had, and no answer had come.
func (p position) lost() position {
	return position{next: p.next + 1, phase: phaseLost, moves: p.moves}
}
