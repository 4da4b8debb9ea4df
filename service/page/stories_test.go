package page_test

import (
	"fmt"
	"maps"
	"slices"
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
	branches uint64  // that have begun
	tokens   []token // of the client, oldest first
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
	"cut": (*story).cut, "push": (*story).push, "repush": (*story).repush,
	"takeUp": (*story).takeUp, "giveWay": (*story).giveWay,
	"expire": (*story).expire, "release": (*story).release,
	"restart": (*story).restart,
}

var storyOutcomes = map[string]page.Outcome{
	"page": page.GotPage, "last": page.GotLast,
	"notSent": page.NotSent, "noReply": page.NoReply, "refused": page.Refused,
}

var storyEffects = map[page.Effect]string{
	page.Keep: "keep", page.Remember: "remember", page.Forget: "forget",
	page.Close: "close", page.Drop: "drop",
}

var storySettled = map[string]page.Settled{
	"allGaveWay": page.AllGaveWay, "wentOn": page.WentOn, "noAnswer": page.NoAnswer,
}

// open opens the cursor at a replica, and delivers page 0: open a.
func (s *story) open(t *testing.T, d *datadriven.TestData) string {
	r := s.replica(t, d, 0)
	r.ledger, r.remembered = page.Opened(), true
	s.tokens = append(s.tokens, token{seq: 1, holder: r.self})
	return r.show()
}

// ask asks a replica for a page: ask a 2 [branch=0] [allowGap] [stream] [settled=wentOn].
// The client uses its newest token for the page, or the one of the branch that is named.
func (s *story) ask(t *testing.T, d *datadriven.TestData) string {
	r, q := s.replica(t, d, 0), s.question(t, d)
	if d.HasArg("settled") {
		q.Settled = named(t, d, "settled", storySettled)
	}
	ledger, v := r.ledger.Ask(q)
	return s.answered(r, q, ledger, v)
}

// takeUp asks a replica for a page of a cursor that no replica is found to hold:
// takeUp b 2 [branch=0] [allowGap] [sure].
func (s *story) takeUp(t *testing.T, d *datadriven.TestData) string {
	r, q := s.replica(t, d, 0), s.question(t, d)
	ledger, v := r.ledger.TakeUp(q, d.HasArg("sure"))
	return s.answered(r, q, ledger, v)
}

// answered carries out a verdict.
func (s *story) answered(
	r *storyReplica, q page.Question, ledger page.Ledger, v page.Verdict,
) string {
	if ledger.Branch() != r.ledger.Branch() {
		s.branches++
	}
	r.ledger = ledger
	switch {
	case v.Grants():
		r.working, r.seq = true, q.Seq
		r.remembered = r.remembered && !q.Stream
	case v == page.GiveWay:
		r.remembered = false
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
			s.tokens = append(s.tokens, token{seq: r.seq + 1, branch: ledger.Branch(), holder: r.self})
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

// cut drops what is left of the last batch: cut a.
func (s *story) cut(t *testing.T, d *datadriven.TestData) string {
	r := s.replica(t, d, 0)
	r.ledger = r.ledger.Cut()
	return r.show()
}

// push pushes what a replica knows to another: push a b [lost] [unanswered] [withoutLeftover].
// With lost the record does not arrive; with unanswered the answer does not.
func (s *story) push(t *testing.T, d *datadriven.TestData) string {
	from, to := s.replica(t, d, 0), s.replica(t, d, 1)
	from.record = from.ledger.Record(!d.HasArg("withoutLeftover"))
	var arrived string
	if !d.HasArg("lost") {
		arrived = to.accept(from.record)
	}
	receiver := to.self
	if d.HasArg("lost") || d.HasArg("unanswered") {
		receiver.Instance = page.Instance{}
	}
	ledger, effect := from.ledger.Pushed(receiver)
	from.ledger = ledger
	if effect == page.Drop {
		from.remembered = false
	}
	return arrived + storyEffects[effect] + "\n" + from.show() + to.show()
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

// giveWay lets a replica with a newer branch ask another one to give way: giveWay a to=b.
func (s *story) giveWay(t *testing.T, d *datadriven.TestData) string {
	r := s.replica(t, d, 0)
	var name string
	d.ScanArgs(t, "to", &name)
	newer := s.replicas[name]
	fork, _ := newer.ledger.Fork()
	ledger, v, wentOn := r.ledger.Yielded(page.Yield{Fork: fork, To: newer.self, Working: r.working})
	r.ledger = ledger
	text := v.String()
	if v == page.GiveWay {
		r.remembered = false
		text += fmt.Sprintf(", went on %v", wentOn)
	}
	return text + "\n" + r.show()
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

// question makes a question of a command's arguments and of the client's token.
func (s *story) question(t *testing.T, d *datadriven.TestData) page.Question {
	t.Helper()
	seq, err := strconv.ParseUint(d.CmdArgs[1].Key, 10, 64)
	if err != nil {
		d.Fatalf(t, "page: %v", err)
	}
	var branch string
	if d.HasArg("branch") {
		d.ScanArgs(t, "branch", &branch)
	}
	for _, tok := range slices.Backward(s.tokens) {
		if tok.seq != seq || branch != "" && branch != branchText(tok.branch) {
			continue
		}
		r := s.replica(t, d, 0)
		return page.Question{
			Seq: seq, Branch: tok.branch, Holder: tok.holder, Here: tok.holder == r.self,
			AllowGap: d.HasArg("allowGap"), Stream: d.HasArg("stream"),
			Remembered: r.remembered, Working: r.working, Random: s.branches + 1,
		}
	}
	d.Fatalf(t, "the client has no token for page %d", seq)
	return page.Question{}
}

// show prints what a replica knows.
func (r *storyReplica) show() string {
	if !r.ledger.Known() {
		return r.self.Address + ": absent\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: page %d %s", r.self.Address, r.ledger.Record(true).Next-1, r.ledger.Phase())
	if to, moved := r.ledger.Moved(); moved {
		fmt.Fprintf(&b, " to %s", to.Address)
		if to.Instance == (page.Instance{}) {
			b.WriteString(" (unsure)")
		}
	}
	if branch := r.ledger.Branch(); branch != (page.Branch{}) {
		fork, from := r.ledger.Fork()
		fmt.Fprintf(&b, ", branch %s from page %d", branchText(branch), fork.Gap)
		if r.ledger.Record(true).Late {
			fmt.Fprintf(&b, ", %s may hold an older one", from.Address)
		}
	}
	if r.remembered {
		b.WriteString(", remembered")
	}
	return b.String() + "\n"
}

// branchText is how files name a branch.
func branchText(b page.Branch) string {
	if b == (page.Branch{}) {
		return "0"
	}
	return fmt.Sprintf("%d.%d", b.Gaps, b.ID)
}

// named returns what an argument of a command names.
func named[T any](t *testing.T, d *datadriven.TestData, arg string, values map[string]T) T {
	t.Helper()
	var name string
	d.ScanArgs(t, arg, &name)
	v, ok := values[name]
	if !ok {
		d.Fatalf(t, "%s is one of %v", arg, slices.Sorted(maps.Keys(values)))
	}
	return v
}
