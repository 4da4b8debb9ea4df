package page

// Instance identifies one run of a replica. A restarted replica has another instance at the same
// address.
type Instance [16]byte

// Replica identifies one gateway of several that share their keys.
type Replica struct {
	Address  string // at which the others reach it
	Instance Instance
}

// Branch tells what a cursor's pages were before a gap from what they are behind it. The zero
// value is the branch of a cursor whose client has never allowed a gap.
type Branch struct {
	Gaps uint32 // how many gaps lead to it
	ID   uint64 // tells branches with as many gaps apart
}

// Newer reports whether b is newer than o.
func (b Branch) Newer(o Branch) bool {
	if b.Gaps != o.Gaps {
		return b.Gaps > o.Gaps
	}
	return b.ID > o.ID
}

// Ledger holds what one replica knows of a cursor's pages. The zero value stands for a cursor of
// which it knows nothing.
type Ledger struct {
	position
	before position // when the page that is being fetched was granted
	moves  uint64   // how often the cursor went to another replica
	to     Replica  // with moved and yielded: the replica that has it
}

// position holds what a page call changes.
type position struct {
	next   uint64 // the page to be granted next
	phase  phase  // what became of page next-1
	branch Branch
	gap    uint64 // the page with which the branch began
	parent Branch // of the token with which it began
	// late is true if a replica that could not be reached may hold an older branch. from is the
	// replica that should hold it.
	late bool
	from Replica
}

type phase uint8

const (
	absent    phase = iota // nothing is known here
	delivered              // page next-1 was delivered
	fetching               // page next-1 is being fetched
	lost                   // page next-1 was asked for and no answer came
	ended                  // page next-1 was the last
	streamed               // page next-1 and all that follow went to a stream
	moved                  // the cursor was pushed to another replica
	yielded                // the cursor went on at another replica; this one has given way
	numPhases
)

func (p phase) String() string {
	return [numPhases]string{
		"absent", "delivered", "fetching", "lost", "ended", "streamed", "moved", "yielded",
	}[p]
}

// Opened returns the ledger of a cursor whose page 0 was delivered.
func Opened() Ledger { return Ledger{position: position{next: 1, phase: delivered}} }

// Continues reports whether the next page may be asked for.
func (l Ledger) Continues() bool { return l.phase == delivered || l.phase == lost }

// Known reports whether anything is known of the cursor.
func (l Ledger) Known() bool { return l.phase != absent }

// Moved returns the replica that the cursor went to, if it did.
func (l Ledger) Moved() (Replica, bool) { return l.to, l.phase.elsewhere() }

// elsewhere reports whether the cursor is at another replica.
func (p phase) elsewhere() bool { return p == moved || p == yielded }

// Branch returns the branch of the tokens for the pages that come.
func (l Ledger) Branch() Branch { return l.branch }

// Fork returns how the branch began, and the replica that should have held the cursor before.
func (l Ledger) Fork() (Fork, Replica) {
	return Fork{Branch: l.branch, Parent: l.parent, Gap: l.gap}, l.from
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

// Effect says what the caller has to do after a transition.
type Effect uint8

// The effects.
const (
	Keep     Effect = iota // nothing changes
	Remember               // remember the page that was fetched
	Forget                 // forget the page that is remembered: it is not the last one any more
	Close                  // remove the cursor, and close it on its server
	Drop                   // forget the cursor without closing it: another replica may have it
)

// Fetched ends the fetch of the page that was granted.
func (l Ledger) Fetched(o Outcome) (Ledger, Effect) {
	switch o {
	case NotSent:
		l.position = l.before
		if l.phase == absent || l.phase.elsewhere() {
			return l, Drop
		}
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

// Cut records that a part of the next page is gone before a client has asked for it. The page
// counts as asked for and not answered.
func (l Ledger) Cut() Ledger {
	l.next, l.phase = l.next+1, lost
	return l
}
