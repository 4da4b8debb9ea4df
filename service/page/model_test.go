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
// It gets each page once and in order, or is told that it cannot. CursorPositionUnknown always has
// a cause: a getMore without an answer, a replica that ended or cannot be reached, or a push of
// which it is not certain that it arrived.
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
	for _, must := range []string{
		"complete", "unknown", "drained", "unsure push", "reused", "old call",
	} {
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
	calm     bool // no replica crashes, and all can be reached
	lossy    bool // something happened for which a page may count as lost

	old    []call       // that the client has made
	holder page.Replica // that served the last page
	late   bool         // the answer of the call that is run does not reach the client
}

// life is one life of a replica.
type life struct {
	self   page.Replica
	at     int
	ledger page.Ledger
	last   delivery // that is remembered
	has    bool
}

// delivery is what a client gets: the content of a page, and whether it is the last.
type delivery struct {
	content int
	end     bool
}

// call asks for a page with a token that names the replica that holds the cursor.
type call struct {
	seq    uint64
	holder page.Replica
}

func newWorld(seed uint64, counts map[string]int) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 7)), counts: counts, at: 1, calm: seed%2 == 0}
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
	c := call{1, w.replicas[0].self}
	for range 200 {
		w.disturb()
		// an old call arrives late, or again; its answer is lost
		if w.chance(0.15) && len(w.old) > 0 {
			w.counts["old call"]++
			w.late = true
			_, _ = w.call(w.any(), w.old[w.rng.IntN(len(w.old))])
		}
		w.old = append(w.old, c)
		w.late = w.chance(0.1) // its answer is lost, and the client asks again
		at := w.any()
		d, err := w.call(at, c)
		if w.late {
			continue
		}
		switch {
		case err == nil:
			if d.content != int(c.seq) {
				return fmt.Errorf("page %d came where %d was due", d.content, c.seq)
			}
			if d.end {
				w.counts["complete"]++
				return nil
			}
			c = call{c.seq + 1, w.holder}
		case errors.Is(err, errReused):
			w.counts["reused"]++
			return nil
		case errors.Is(err, errUnknown):
			if !w.lossy {
				return fmt.Errorf("page %d is unknown without a cause", c.seq)
			}
			w.counts["unknown"]++
			return nil
		}
	}
	w.counts["never read"]++
	return nil
}

func (w *world) any() *life { return w.replicas[w.rng.IntN(modelReplicas)] }

// disturb changes what is connected, and ends lives.
func (w *world) disturb() {
	switch i, k := w.rng.IntN(modelReplicas), w.rng.IntN(modelReplicas); {
	case w.calm:
		if w.chance(0.05) {
			w.drain(w.replicas[i])
			w.start(i)
		}
	case w.chance(0.25):
		w.cut[i][k], w.cut[k][i], w.lossy = true, true, true
	case w.chance(0.5):
		w.cut[i][k], w.cut[k][i] = false, false
	case w.chance(0.05):
		w.drain(w.replicas[i])
		w.start(i)
	case w.chance(0.03):
		w.note("%s ends", w.replicas[i].self.Address)
		w.lossy = true
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
		arrives, answered := w.calm || !w.chance(0.1), w.calm || !w.chance(0.2)
		if arrives {
			if got, ok := to.ledger.Accept(l.ledger.Record(), true, false); ok {
				to.ledger, to.has = got, false
			}
		}
		receiver := to.self
		if !arrives || !answered {
			receiver.Instance = page.Instance{}
			w.lossy = true
			w.counts["unsure push"]++
		}
		w.counts["drained"]++
		w.note("%s pushes to %s: arrives %v, answered %v", l.self.Address, to.self.Address, arrives,
			answered)
		l.ledger, _ = l.ledger.Pushed(receiver)
		return
	}
}

var (
	errReused  = fmt.Errorf("reused")
	errUnknown = fmt.Errorf("unknown")
	errAgain   = fmt.Errorf("nothing was sent")
	errNowhere = fmt.Errorf("nowhere")
)

// call is a call of a client at a replica.
func (w *world) call(l *life, c call) (delivery, error) {
	for range 8 {
		d, to, err := w.here(l, c)
		if !errors.Is(err, errNowhere) {
			return d, err
		}
		if to == (page.Replica{}) {
			if to = c.holder; to.Instance == l.self.Instance {
				return d, errReused // it was here, and is not: it has expired, or was closed
			}
		}
		if d, err = w.search(l, c, to); !errors.Is(err, errNowhere) {
			return d, err
		}
		if _, moved := l.ledger.Moved(); moved || !l.ledger.Known() {
			return delivery{}, errUnknown
		} // else it has come here
	}
	return delivery{}, errUnknown
}

// here decides with what one replica knows; errNowhere: another one has to be asked.
func (w *world) here(l *life, c call) (delivery, page.Replica, error) {
	ledger, v := l.ledger.Ask(page.Question{Seq: c.seq, Remembered: l.has})
	l.ledger = ledger
	to, _ := l.ledger.Moved()
	switch v {
	case page.Fetch:
		d, err := w.fetch(l, c)
		return d, to, err
	case page.Repeat:
		w.holder = l.self
		return l.last, to, nil
	case page.Reused:
		return delivery{}, to, errReused
	case page.Unknown:
		return delivery{}, to, errUnknown
	default:
		return delivery{}, to, errNowhere
	}
}

// search asks the replica that should have the cursor, and then all others.
func (w *world) search(l *life, c call, to page.Replica) (delivery, error) {
	ask := func(to page.Replica) (delivery, page.Replica, error) {
		other, ok := w.reach(l, to)
		if !ok {
			return delivery{}, page.Replica{}, errNowhere
		}
		return w.here(other, c)
	}
	for range 4 {
		d, next, err := ask(to)
		if !errors.Is(err, errNowhere) {
			return d, err
		}
		if next == (page.Replica{}) || next == to {
			break
		}
		to = next
	}
	for _, k := range w.rng.Perm(modelReplicas) {
		if d, _, err := ask(page.Replica{Address: string(rune('a' + k))}); k != l.at &&
			!errors.Is(err, errNowhere) {
			return d, err
		}
	}
	return delivery{}, errNowhere
}

// reach finds the replica at an address, if it can be reached and knows something or is the life
// that is asked for.
func (w *world) reach(l *life, to page.Replica) (*life, bool) {
	k := int(to.Address[0] - 'a')
	other := w.replicas[k]
	known := to.Instance == (page.Instance{}) || other.self.Instance == to.Instance ||
		other.ledger.Known()
	return other, k != l.at && !w.cut[l.at][k] && known
}

// fetch runs a getMore.
func (w *world) fetch(l *life, c call) (delivery, error) {
	o := page.GotPage
	content := w.at
	switch {
	case w.chance(0.1):
		o = page.NotSent
	case w.chance(0.05):
		o, w.lossy = page.NoReply, true
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
	ledger, effect := l.ledger.Fetched(o)
	l.ledger = ledger
	w.note("%s: page %d: content %d, outcome %d", l.self.Address, c.seq, content, o)
	switch effect {
	case page.Remember:
		l.has, l.last = true, delivery{content: content, end: o == page.GotLast}
		w.holder = l.self
		return l.last, nil
	case page.Forget:
		l.has = false
		return delivery{}, errUnknown
	case page.Close:
		l.ledger, l.has = page.Ledger{}, false
		return delivery{}, errReused
	default: // nothing was sent
		return delivery{}, errAgain
	}
}
