package page_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/mooringdb/mooring/service/page"
)

// A client reads one cursor from random replicas, which are cut off from each other, drained,
// killed and restarted, while fetches and answers are lost and calls are repeated, late ones too.
// It gets each page once and in order, or is told that it cannot: by an error, or because it has
// allowed a gap for this very page. A holder that comes back after another replica went on
// without it gives way, and what it delivered meanwhile is told to the reader of the newer
// branch.
//
// What is promised holds for the newest branch. A call that allows a gap and whose answer does
// not reach its client is a reader of its own: if it reaches a replica that is cut off, it takes
// a page.
//
// MOORING_MODEL_SEEDS is the number of runs.
func TestModel(t *testing.T) {
	seeds := 20_000
	if n, err := strconv.Atoi(os.Getenv("MOORING_MODEL_SEEDS")); err == nil {
		seeds = n
	}
	counts := map[string]int{}
	for seed := range seeds {
		w := newWorld(uint64(seed), counts)
		if err := w.run(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, w.log)
		}
	}
	t.Logf("%v", counts)
	for _, must := range []string{"complete", "behind a gap", "the late one gave way", "it had gone on", "the reader was told", "drained", "unsure push", "reused", "old call"} {
		if counts[must] == 0 {
			t.Errorf("it never happened: %s", must)
		}
	}
}

const (
	modelReplicas = 4
	modelPages    = 14
)

// world is some replicas, a server with one cursor, and a client.
type world struct {
	rng      *rand.Rand
	counts   map[string]int
	log      string
	at       int // the page that the server delivers next
	replicas [modelReplicas]*life
	cut      [modelReplicas][modelReplicas]bool
	newest   page.Branch

	old   []call       // that the client has made
	late  bool         // the answer of the call that is run does not reach the client
	taken map[int]bool // pages that went to such a call, with which it began a branch of its own
}

// life is one life of a replica.
type life struct {
	self   page.Replica
	at     int
	ledger page.Ledger
	last   delivery // that is remembered
	has    bool
}

// token and delivery are what a client gets.
type token struct {
	seq    uint64
	branch page.Branch
	holder page.Replica
}

type delivery struct {
	content int
	next    token
	end     bool
}

type call struct {
	tok   token
	allow bool
}

func newWorld(seed uint64, counts map[string]int) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 7)), counts: counts, at: 1, taken: map[int]bool{}}
	for i := range w.replicas {
		w.start(i)
	}
	w.replicas[0].ledger = page.Opened()
	return w
}

func (w *world) start(i int) {
	l := &life{at: i, self: page.Replica{Address: string(rune('a' + i))}}
	for k := range l.self.Instance {
		l.self.Instance[k] = byte(w.rng.Uint32())
	}
	w.replicas[i] = l
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

func (w *world) note(format string, args ...any) { w.log += fmt.Sprintf(format+"\n", args...) }

// run lets the client read to the end, or until an error ends it.
func (w *world) run() error {
	tok, want := token{seq: 1, holder: w.replicas[0].self}, 1
	unknown, allowed, mayJump := 0, false, false // mayJump: this page may begin behind a gap
	for range 200 {
		w.disturb()
		if w.chance(0.15) && len(w.old) > 0 { // an old call arrives late, or again; its answer is lost
			c := w.old[w.rng.IntN(len(w.old))]
			w.counts["old call"]++
			w.late = true
			_, _ = w.call(w.any(), c)
		}
		c := call{tok, unknown > 0 && w.chance(0.6)}
		w.old = append(w.old, c)
		mayJump, allowed = mayJump || c.allow, allowed || c.allow
		w.late = w.chance(0.1) // its answer is lost, and the client asks again
		d, err := w.call(w.any(), c)
		if w.late {
			continue
		}
		switch {
		case err == nil:
			strict := !allowed || tok.branch == w.newest && d.next.branch == w.newest
			for w.taken[want] {
				want++
			}
			if d.content != want && !mayJump && strict {
				return fmt.Errorf("page %d came where %d was due", d.content, want)
			}
			if d.content != want {
				w.counts["behind a gap"]++
			}
			unknown, want, tok, mayJump = 0, d.content+1, d.next, false
			if d.end {
				w.counts["complete"]++
				return nil
			}
		case errors.Is(err, errReused):
			w.counts["reused"]++
			return nil
		case errors.Is(err, errUnknown):
			if unknown++; allowed {
				w.counts["the reader was told"]++
			}
		}
	}
	w.counts["never read"]++
	return nil
}

func (w *world) any() *life { return w.replicas[w.rng.IntN(modelReplicas)] }

// disturb changes what is connected, and ends lives.
func (w *world) disturb() {
	switch i, k := w.rng.IntN(modelReplicas), w.rng.IntN(modelReplicas); {
	case w.chance(0.25):
		w.cut[i][k], w.cut[k][i] = true, true
	case w.chance(0.5):
		w.cut[i][k], w.cut[k][i] = false, false
	case w.chance(0.05):
		w.drain(w.replicas[i])
		w.start(i)
	case w.chance(0.03):
		w.note("%s ends", w.replicas[i].self.Address)
		w.start(i)
	}
}

// drain pushes what a replica has to another one.
func (w *world) drain(l *life) {
	for _, k := range w.rng.Perm(modelReplicas) {
		to := w.replicas[k]
		if k == l.at || w.cut[l.at][k] || !l.ledger.Known() {
			continue
		}
		if _, moved := l.ledger.Moved(); moved {
			return
		}
		arrives, answered := !w.chance(0.1), !w.chance(0.2)
		if arrives {
			if got, ok := to.ledger.Accept(l.ledger.Record(true), true, false); ok {
				to.ledger, to.has = got, false
			}
		}
		receiver := to.self
		if !arrives || !answered {
			receiver.Instance = page.Instance{}
			w.counts["unsure push"]++
		}
		w.counts["drained"]++
		w.note("%s pushes to %s: arrives %v, answered %v", l.self.Address, to.self.Address, arrives, answered)
		l.ledger, _ = l.ledger.Pushed(receiver)
		return
	}
}

var (
	errReused  = fmt.Errorf("reused")
	errUnknown = fmt.Errorf("unknown")
	errAgain   = fmt.Errorf("nothing was sent")
	errNowhere = fmt.Errorf("nowhere")
	errRefused = fmt.Errorf("refused")
	errSilent  = fmt.Errorf("silent")
)

func (w *world) question(l *life, c call) page.Question {
	return page.Question{
		Seq: c.tok.seq, Branch: c.tok.branch, Holder: c.tok.holder, Here: c.tok.holder == l.self, AllowGap: c.allow, Remembered: l.has, Random: w.rng.Uint64(),
	}
}

// call is a call of a client at a replica.
func (w *world) call(l *life, c call) (delivery, error) {
	for range 8 {
		d, to, err := w.here(l, c)
		if !errors.Is(err, errNowhere) {
			return d, err
		}
		if to == (page.Replica{}) {
			if to = c.tok.holder; to.Instance == l.self.Instance {
				return d, errReused // it was here, and is not: it has expired, or was closed
			}
		}
		d, sure, err := w.search(l, c, to)
		if !errors.Is(err, errNowhere) {
			return d, err
		}
		ledger, v := l.ledger.TakeUp(w.question(l, c), sure)
		switch v {
		case page.Unknown:
			return delivery{}, errUnknown
		case page.Skip:
			l.ledger, l.has = ledger, false
			return w.fetch(l, c, "takes it up")
		default: // it has come here
		}
	}
	return delivery{}, errUnknown
}

// here decides with what one replica knows; errNowhere: another one has to be asked.
func (w *world) here(l *life, c call) (delivery, page.Replica, error) {
	q := w.question(l, c)
	for {
		var v page.Verdict
		l.ledger, v = l.ledger.Ask(q)
		to, _ := l.ledger.Moved()
		switch v {
		case page.Fetch, page.Skip:
			d, err := w.fetch(l, c, v.String())
			return d, to, err
		case page.Repeat:
			return l.last, to, nil
		case page.Reused:
			return delivery{}, to, errReused
		case page.Unknown:
			return delivery{}, to, errUnknown
		case page.Confirm:
			q.Settled = w.confirm(l)
		case page.GiveWay:
			w.note("%s gives way", l.self.Address)
			l.has = false
			return delivery{}, to, errNowhere
		default:
			return delivery{}, to, errNowhere
		}
	}
}

// search asks the replica that should have the cursor, and then all others.
func (w *world) search(l *life, c call, to page.Replica) (_ delivery, sure bool, _ error) {
	sure = true
	ask := func(to page.Replica) (delivery, page.Replica, error) {
		other, err := w.reach(l, to)
		switch {
		case errors.Is(err, errSilent):
			sure = false
			return delivery{}, page.Replica{}, errNowhere
		case errors.Is(err, errRefused):
			return delivery{}, page.Replica{}, errNowhere
		}
		return w.here(other, c)
	}
	for range 4 {
		d, next, err := ask(to)
		if !errors.Is(err, errNowhere) {
			return d, sure, err
		}
		if next == (page.Replica{}) || next == to {
			break
		}
		to = next
	}
	for _, k := range w.rng.Perm(modelReplicas) {
		if d, _, err := ask(page.Replica{Address: string(rune('a' + k))}); k != l.at && !errors.Is(err, errNowhere) {
			return d, sure, err
		}
	}
	return delivery{}, sure, errNowhere
}

// reach finds the replica at an address: it refuses if it is another life.
func (w *world) reach(l *life, to page.Replica) (*life, error) {
	k := int(to.Address[0] - 'a')
	switch other := w.replicas[k]; {
	case k == l.at:
		return nil, errRefused
	case w.cut[l.at][k]:
		return nil, errSilent
	case to.Instance != (page.Instance{}) && other.self.Instance != to.Instance && !other.ledger.Known():
		return nil, errRefused
	default:
		return other, nil
	}
}

// confirm asks all replicas to give way.
func (w *world) confirm(l *life) page.Settled {
	settled, clean := page.NotAsked, false
	for k, other := range w.replicas {
		if k == l.at {
			continue
		}
		if w.cut[l.at][k] {
			settled = page.NoAnswer
			continue
		}
		fork, _ := l.ledger.Fork()
		ledger, v, wentOn := other.ledger.Yielded(page.Yield{Fork: fork, To: l.self})
		other.ledger = ledger
		switch {
		case v == page.GiveWay && wentOn:
			w.counts["it had gone on"]++
			settled = max(settled, page.WentOn)
		case v == page.GiveWay:
			clean = true
			w.counts["the late one gave way"]++
		case v == page.Unknown:
			settled = page.NoAnswer
		}
	}
	if settled == page.NotAsked {
		settled = page.WentOn
		if clean {
			settled = page.AllGaveWay
		}
	}
	w.note("%s confirms: %d", l.self.Address, settled)
	return settled
}

// fetch runs a getMore.
func (w *world) fetch(l *life, c call, why string) (delivery, error) {
	o := page.GotPage
	content := w.at
	switch {
	case w.chance(0.1):
		o = page.NotSent
	case w.chance(0.05):
		o = page.NoReply
		if w.chance(0.7) {
			w.at++
		}
	case w.at > modelPages:
		o = page.Refused
	case w.at == modelPages:
		o, w.at = page.GotLast, w.at+1
	default:
		w.at++
	}
	branch := l.ledger.Branch()
	if (w.late || o == page.NoReply) && branch != c.tok.branch && w.at > content {
		w.taken[content] = true
	}
	if branch.Newer(w.newest) && o != page.NotSent {
		w.newest = branch
	}
	ledger, effect := l.ledger.Fetched(o)
	l.ledger = ledger
	w.note("%s: %s page %d of branch %d/%d, allowGap %v: content %d, outcome %d", l.self.Address, why, c.tok.seq, branch.Gaps, branch.ID%1000, c.allow, content, o)
	switch effect {
	case page.Remember:
		l.has = true
		l.last = delivery{content: content, next: token{seq: c.tok.seq + 1, branch: branch, holder: l.self}, end: o == page.GotLast}
		return l.last, nil
	case page.Forget:
		l.has = false
		return delivery{}, errUnknown
	case page.Drop, page.Close:
		l.ledger, l.has = page.Ledger{}, false
		if effect == page.Close {
			return delivery{}, errReused
		}
	default: // nothing changes
	}
	return delivery{}, errAgain
}
