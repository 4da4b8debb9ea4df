package page

// Instance identifies one run of a replica. A restarted replica has another instance at the same
// address.
type Instance [16]byte

// Replica identifies one gateway of several that share their keys.
type Replica struct {
	Address  string // at which the others reach it
	Instance Instance
}

// Ledger holds what one replica knows of a cursor's pages. The zero value stands for a cursor of
// which it knows nothing.
type Ledger struct {
	next  uint64 // the page to be granted next
	phase phase  // what became of page next-1
	moves uint64 // how often the cursor went to another replica
	to    Replica
}

type phase uint8

const (
	absent    phase = iota // nothing is known here
	delivered              // page next-1 was delivered
	fetching               // page next-1 is being fetched
	lost                   // page next-1 was asked for and no answer came
	ended                  // page next-1 was the last
	streamed               // page next-1 and all that follow went to a stream
	evicted                // the cursor was ended before page next was asked for
	moved                  // the cursor was pushed to the replica in Ledger.to
	numPhases
)

func (p phase) String() string {
	return [numPhases]string{
		"absent", "delivered", "fetching", "lost", "ended", "streamed", "evicted", "moved",
	}[p]
}

// Opened returns the ledger of a cursor whose page 0 was delivered.
func Opened() Ledger { return Ledger{next: 1, phase: delivered} }

// Continues reports whether the next page may be asked for.
func (l Ledger) Continues() bool { return l.phase == delivered }

// Known reports whether anything is known of the cursor.
func (l Ledger) Known() bool { return l.phase != absent }

// Moved returns the replica that the cursor went to, if it did.
func (l Ledger) Moved() (Replica, bool) { return l.to, l.phase == moved }

// Evicted returns the ledger of a cursor that was ended for lack of room.
func (l Ledger) Evicted() Ledger {
	l.phase = evicted
	return l
}

// Outcome says how fetching a page ended.
type Outcome uint8

// The outcomes.
const (
	GotPage Outcome = iota // the page is there, and more may follow
	GotLast                // the page is there, and nothing follows
	NotSent                // nothing was sent: it is as if the page had not been asked for
	NoReply                // it was asked for and no answer came
	Refused                // the server has no such cursor any more
)

// Effect says what the caller has to do after a fetch.
type Effect uint8

// The effects.
const (
	Keep     Effect = iota // nothing changes
	Remember               // remember the page that was fetched
	Forget                 // forget the page that is remembered: no call can get it any more
	Close                  // remove the cursor
)

// Fetched ends the fetch of the page that was granted.
func (l Ledger) Fetched(o Outcome) (Ledger, Effect) {
	switch o {
	case NotSent:
		l.next, l.phase = l.next-1, delivered // a page is granted in this phase only
		return l, Keep
	case NoReply:
		l.phase = lost
		return l, Forget
	case Refused:
		l.phase = ended
		return l, Close
	case GotLast:
		l.phase = ended
	default:
		l.phase = delivered
	}
	return l, Remember
}

// Record holds a ledger on its way to another replica.
type Record struct {
	Next  uint64
	Phase uint8 // opaque
	Moves uint64
}

// Record returns what another replica is told when it gets the cursor.
func (l Ledger) Record() Record {
	return Record{Next: l.next, Phase: uint8(l.phase), Moves: l.moves + 1}
}

// Pushed records that all that is known went to another replica, and reports whether the caller
// is to drop the cursor without closing it. If it is not certain that it arrived, the instance of
// that replica is zero. Nothing is granted here any more even then: if two replicas held a cursor,
// one would skip pages of the other.
func (l Ledger) Pushed(to Replica) (_ Ledger, drop bool) {
	if l.phase == absent || l.phase == moved || l.phase == ended && to.Instance == (Instance{}) {
		return l, false
	}
	l.phase, l.to, l.moves = moved, to, l.moves+1
	return l, true
}

// Accept takes over what another replica knows, unless more is known here. holds reports that the
// record brings the cursor. Working: a call works on the cursor here.
func (l Ledger) Accept(r Record, holds, working bool) (Ledger, bool) {
	known := l.phase != absent
	if r.Phase >= uint8(numPhases) || known && (working || r.Moves <= l.moves) {
		return l, false
	}
	got := Ledger{next: r.Next, phase: phase(r.Phase), moves: r.Moves}
	switch {
	case got.phase == ended, got.phase == streamed, got.phase == evicted:
	case got.phase == delivered && holds:
	default:
		got.phase = lost
	}
	return got, true
}
