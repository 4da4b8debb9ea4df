package handle

// position is what is known about a cursor's pages, as a value. Pages are numbered; the token with sequence n asks for page n. Find
// delivers page 0 with token 1, so next begins at 1. Each page is granted once: who was granted it runs the getMore, everybody else
// waits for that page, gets it again, or is told why not.
type position struct {
	next  uint64 // the page to be granted next
	phase phase  // what is known about page next-1
	held  bool   // page next-1 is remembered; only ask looks at it
}

type phase uint8

const (
	phaseIdle  phase = iota // page next-1 was delivered; next can be granted
	phaseBusy               // page next-1 is being fetched
	phaseLost               // page next-1 was asked for and no answer came
	phaseEnded              // page next-1 was the last
	phaseTaken              // page next-1 and all that follow went to a stream
)

func (p phase) String() string {
	return [...]string{"idle", "busy", "lost", "ended", "taken"}[p]
}

// verdict is the answer to "may I have page seq?"
type verdict uint8

const (
	verdictGrant   verdict = iota // yours: fetch it
	verdictGap                    // yours, but pages before it may be missing: the client said that it would rather go on
	verdictRepeat                 // the page that is remembered
	verdictWait                   // somebody fetches it; ask again then
	verdictReused                 // delivered before, forgotten since
	verdictUnknown                // may have been delivered, or not
)

func (v verdict) String() string {
	return [...]string{"grant", "gap", "repeat", "wait", "reused", "unknown"}[v]
}

// ask decides who gets page seq. allowGap is the client's word that it would rather miss a page than stop.
func (p position) ask(seq uint64, allowGap bool) verdict {
	switch {
	case seq == p.next && p.phase == phaseIdle:
		return verdictGrant
	case seq >= p.next: // granted elsewhere, by a replica that went on without this one
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
		return position{next: p.next, phase: phaseLost}
	case outcomeLast, outcomeDead:
		return position{next: p.next, phase: phaseEnded}
	default:
		return position{next: p.next, phase: phaseIdle}
	}
}

// lost is the position when a part of page next is gone, which nobody has asked for yet. It is as if somebody had, and no answer had come.
func (p position) lost() position { return position{next: p.next + 1, phase: phaseLost} }
