package page_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/mooringdb/mooring/service/page"
)

// TestStories replays what replicas are asked about one cursor, and compares their answers with
// the files in testdata/stories. To write the files anew:
//
//	go test ./service/page -run TestStories -rewrite
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := story{replicas: map[string]*storyReplica{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			step, ok := storySteps[d.Cmd]
			if !ok {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			return step(&s, t, d)
		})
	})
}

// story is the replicas and the client of one file.
type story struct {
	replicas map[string]*storyReplica
	lives    byte
	tokens   uint64 // that the client has, from number 1 on
}

// storyReplica is one life of a replica.
type storyReplica struct {
	self       page.Replica
	ledger     page.Ledger
	remembered bool        // the last page is there
	working    bool        // a call works on the cursor
	seq        uint64      // the page that is being fetched
	record     page.Record // that was pushed last
}

var storySteps = map[string]func(*story, *testing.T, *datadriven.TestData) string{
	"open": (*story).open, "ask": (*story).ask, "fetched": (*story).fetched, "forget": (*story).forget,
	"push": (*story).push, "repush": (*story).repush, "expire": (*story).expire,
	"release": (*story).release, "restart": (*story).restart,
}

var storyOutcomes = map[string]page.Outcome{
	"page": page.GotPage, "last": page.GotLast,
	"notSent": page.NotSent, "noReply": page.NoReply, "refused": page.Refused,
}

var storyEffects = map[page.Effect]string{
	page.Keep: "keep", page.Remember: "remember", page.Forget: "forget",
	page.Close: "close",
}

// open opens the cursor at a replica, and delivers page 0: open a.
func (s *story) open(t *testing.T, d *datadriven.TestData) string {
	r := s.replica(t, d, 0)
	r.ledger, r.remembered = page.Opened(), true
	s.tokens = 1
	return r.show()
}

// ask asks a replica for a page: ask a 2 [stream].
func (s *story) ask(t *testing.T, d *datadriven.TestData) string {
	r := s.replica(t, d, 0)
	seq, err := strconv.ParseUint(d.CmdArgs[1].Key, 10, 64)
	if err != nil || seq > s.tokens {
		d.Fatalf(t, "the client has no token for page %s", d.CmdArgs[1].Key)
	}
	q := page.Question{
		Seq: seq, Stream: d.HasArg("stream"), Remembered: r.remembered, Working: r.working,
	}
	ledger, v := r.ledger.Ask(q)
	r.ledger = ledger
	if v == page.Fetch {
		r.working, r.seq = true, q.Seq
		r.remembered = r.remembered && !q.Stream
	}
	return v.String() + "\n" + r.show()
}

// fetched ends the fetch of the page that was granted:
// fetched a (page | last | notSent | noReply | refused).
func (s *story) fetched(t *testing.T, d *datadriven.TestData) string {
	r := s.replica(t, d, 0)
	outcome, ok := storyOutcomes[d.CmdArgs[1].Key]
	if !ok || !r.working {
		d.Fatalf(t, "outcome %v, working %v", d.CmdArgs[1], r.working)
	}
	ledger, effect := r.ledger.Fetched(outcome)
	r.ledger, r.working = ledger, false
	switch effect {
	case page.Remember:
		r.remembered = true
		if outcome == page.GotPage {
			s.tokens = r.seq + 1
		}
	case page.Forget, page.Close:
		r.remembered = false
	default: // nothing changes
	}
	return storyEffects[effect] + "\n" + r.show()
}

// release ends a stream: release a.
func (s *story) release(t *testing.T, d *datadriven.TestData) string {
	r := s.replica(t, d, 0)
	r.working = false
	return r.show()
}

// forget drops the page that is remembered: forget a.
func (s *story) forget(t *testing.T, d *datadriven.TestData) string {
	r := s.replica(t, d, 0)
	r.remembered = false
	return r.show()
}

// push pushes what a replica knows to another: push a b [lost] [unanswered].
// With lost the record does not arrive; with unanswered the answer does not.
func (s *story) push(t *testing.T, d *datadriven.TestData) string {
	from, to := s.replica(t, d, 0), s.replica(t, d, 1)
	from.record = from.ledger.Record()
	var arrived string
	if !d.HasArg("lost") {
		arrived = to.accept(from.record)
	}
	receiver := to.self
	if d.HasArg("lost") || d.HasArg("unanswered") {
		receiver.Instance = page.Instance{}
	}
	ledger, drop := from.ledger.Pushed(receiver)
	from.ledger = ledger
	verb := "keep\n"
	if drop {
		from.remembered, verb = false, "drop\n"
	}
	return arrived + verb + from.show() + to.show()
}

// repush brings the record that was pushed last once more: repush a b.
func (s *story) repush(t *testing.T, d *datadriven.TestData) string {
	from, to := s.replica(t, d, 0), s.replica(t, d, 1)
	return to.accept(from.record) + to.show()
}

// accept takes over a record that brings the cursor, unless more is known here.
func (r *storyReplica) accept(rec page.Record) string {
	ledger, ok := r.ledger.Accept(rec, true, r.working)
	if !ok {
		return "not accepted\n"
	}
	r.ledger, r.remembered = ledger, false
	return "accepted\n"
}

// expire removes the cursor from a replica's table: expire a.
func (s *story) expire(t *testing.T, d *datadriven.TestData) string {
	r := s.replica(t, d, 0)
	r.ledger, r.remembered = page.Ledger{}, false
	return r.show()
}

// restart begins another life of a replica: restart a.
func (s *story) restart(t *testing.T, d *datadriven.TestData) string {
	delete(s.replicas, d.CmdArgs[0].Key)
	return s.replica(t, d, 0).show()
}

// replica returns the replica that an argument names.
func (s *story) replica(t *testing.T, d *datadriven.TestData, arg int) *storyReplica {
	t.Helper()
	if arg >= len(d.CmdArgs) {
		d.Fatalf(t, "argument %d is missing", arg+1)
	}
	name := d.CmdArgs[arg].Key
	if s.replicas[name] == nil {
		s.lives++
		self := page.Replica{Address: name, Instance: page.Instance{s.lives}}
		s.replicas[name] = &storyReplica{self: self}
	}
	return s.replicas[name]
}

// show prints what a replica knows.
func (r *storyReplica) show() string {
	if !r.ledger.Known() {
		return r.self.Address + ": absent\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: page %d %s", r.self.Address, r.ledger.Record().Next-1, r.ledger.Phase())
	if to, moved := r.ledger.Moved(); moved {
		fmt.Fprintf(&b, " to %s", to.Address)
		if to.Instance == (page.Instance{}) {
			b.WriteString(" (unsure)")
		}
	}
	if r.remembered {
		b.WriteString(", remembered")
	}
	return b.String() + "\n"
}
