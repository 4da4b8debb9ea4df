package bank_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mooringdb/mooring/lab/internal/history"
)

const (
	// lists is the collection of the clerks' documents, and perGroup how many of these transactions
	// share.
	lists    = "lists"
	perGroup = 3
	// A group is left after so many operations, or so many of unknown outcome, so that a judge
	// decides it soon.
	mostOperations, mostUnknown = 60, 8
	// There are so many desks, each with clerks that share their documents.
	desks, perDesk = 4, 3
	// verdictTime is how long the judge may take for a group.
	verdictTime = 20 * time.Second
)

// desk has the documents that its clerks work on: a group for single documents and one for
// transactions.
type desk struct {
	id       int
	recorder *history.Recorder

	mu     sync.Mutex // guards the fields below
	groups [2]int     // how many there were of each kind; the last one is in use
	last   int        // the last value that a clerk has written
}

// The kinds of groups.
const (
	single = iota
	several
)

// group names the group in use.
func (d *desk) group(kind int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("%d-%d-%d", d.id, kind, d.groups[kind])
}

// leave has the clerks use another group, if that one is in use still.
func (d *desk) leave(kind int, group string) {
	if d.group(kind) == group {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.groups[kind]++
	}
}

// value returns a number that was not written before.
func (d *desk) value() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	return d.last
}

// clerk works on documents that are lists, as a teller does on accounts: by what errors say. What
// it asks and what it is told goes into a history, of which porcupine is the judge.
type clerk struct {
	*teller
	desk *desk
	seen int // the number that it saw last in a document of one number
}

// work makes operations until ctx ends, and finishes the last one within grace.
func (c *clerk) work(ctx, grace context.Context) {
	for ctx.Err() == nil {
		kind := rand.IntN(2)
		group := c.desk.group(kind)
		o := history.Operation{Group: group}
		called := c.desk.recorder.Now()
		known := true
		if kind == single {
			o.Steps, o.Unknown, known = c.one(grace, group)
		} else {
			o.Steps, o.Unknown = c.transaction(grace, group)
		}
		if !known {
			continue
		}
		all, unknown := c.desk.recorder.Add(c.id, called, o)
		if all >= mostOperations || unknown >= mostUnknown {
			c.desk.leave(kind, group)
		}
	}
}

// one makes a step on a single document. It returns whether its outcome is unknown, and false if
// the gateway has refused it: then nothing was done.
func (c *clerk) one(
	ctx context.Context, document string,
) (done []history.Step, unknown, known bool) {
	s := c.choose(document)
	key := ""
	if s.Kind != history.Read && rand.IntN(2) == 0 {
		key = fmt.Sprintf("a-key-of-clerk-%d-%d", c.id, c.desk.value())
	}
	answered := true
	for range attempts {
		short, cancel := c.patience(ctx)
		told, err := c.replica().step(short, statement{}, key, s)
		err = given(short, err)
		cancel()
		safe := key != "" || s.Kind == history.Read
		switch {
		case err == nil && key != "" && rand.Float64() < repeated:
			// Once more, with the same key: it must change nothing.
			_, _ = c.replica().step(ctx, statement{}, key, s)
			fallthrough
		case err == nil:
			c.remember(told)
			return []history.Step{told}, false, true
		case retryOf(err) == sameRequest && (safe || reasonOf(err) != ""):
			answered = answered && reasonOf(err) != ""
		case reasonOf(err) == "" || reasonOf(err) == unknownWrite:
			return []history.Step{s}, true, true
		case reasonOf(err) == "DuplicateKey" && s.Kind == history.Insert:
			return []history.Step{s}, false, true
		default:
			c.tally.failed(err)
			return []history.Step{s}, true, !answered
		}
		c.tally.failed(err)
		rest(pause)
	}
	return []history.Step{s}, true, true
}

// choose returns a step on a document.
func (c *clerk) choose(document string) history.Step {
	s := history.Step{Document: document, Value: c.desk.value(), Old: c.seen}
	switch n := rand.IntN(100); {
	case n < 30:
		s.Kind = history.Read
	case n < 55:
		s.Kind = history.Append
	case n < 70:
		s.Kind = history.Set
	case n < 85:
		s.Kind = history.Swap
	case n < 95:
		s.Kind = history.Insert
	default:
		s.Kind = history.Delete
	}
	return s
}

// remember keeps what a swap can begin with.
func (c *clerk) remember(s history.Step) {
	switch {
	case s.Done && (s.Kind == history.Set || s.Kind == history.Swap || s.Kind == history.Insert):
		c.seen = s.Value
	case s.Seen != nil && s.Seen.Exists:
		_, _ = fmt.Sscanf(s.Seen.Items, "[%d]", &c.seen)
	}
}

// patience returns the time that a clerk gives a call.
func (c *clerk) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if rand.Float64() >= c.impatience {
		return context.WithCancel(ctx)
	}
	c.tally.add(&c.tally.left)
	return context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(pause))))
}

// transaction appends to documents of a group and returns what they are then, or reads them all:
// the documents that a transaction reads are those that it changes, so that two of them which miss
// each other are a conflict. It returns whether the outcome is unknown.
func (c *clerk) transaction(
	ctx context.Context, group string,
) (done []history.Step, unknown bool) {
	var steps []history.Step
	kind, value := history.Append, c.desk.value()
	if rand.IntN(4) == 0 {
		kind = history.Read
	}
	for _, i := range rand.Perm(perGroup)[:1+rand.IntN(perGroup)] {
		steps = append(steps, history.Step{
			Kind: kind, Document: fmt.Sprintf("%s-%d", group, i), Value: value, Upsert: true,
		})
	}
	attempt := c.statement
	if kind == history.Append && rand.IntN(2) == 0 {
		attempt = c.runAll
	}
	for wait := 5 * time.Millisecond; ctx.Err() == nil; wait = min(wait*3/2, pauseMost) {
		done, err := attempt(ctx, steps)
		switch reason := reasonOf(err); {
		case err == nil:
			return done, false
		case reason == "" || reason == unknownCommit:
			return steps, true
		case retryOf(err) != again:
			c.tally.stuck(err) // which the audit complains about
			return steps, true
		}
		rest(wait)
	}
	return steps, true
}

// statement makes a transaction step by step.
func (c *clerk) statement(ctx context.Context, steps []history.Step) ([]history.Step, error) {
	var token string
	if _, err := c.call(ctx, func(ctx context.Context, a api) (err error) {
		token, err = a.begin(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	var done []history.Step
	for i, s := range steps {
		step := func(ctx context.Context, a api) (err error) {
			s, err = a.step(ctx, statement{token, int32(i + 1)}, "", s)
			return err
		}
		_, err := c.call(ctx, step)
		if err == nil && rand.Float64() < repeated {
			_, err = c.call(ctx, step) // the gateway remembers what it has answered
		}
		if err != nil {
			_, _ = c.call(ctx, func(ctx context.Context, a api) error {
				return a.abort(ctx, token)
			})
			return nil, err
		}
		done = append(done, s)
	}
	return done, c.commit(ctx, token)
}

// runAll makes a transaction in one call, which it does not repeat without an answer.
func (c *clerk) runAll(ctx context.Context, steps []history.Step) (done []history.Step, err error) {
	_, err = c.call(ctx, func(ctx context.Context, a api) (err error) {
		done, err = a.runSteps(ctx, steps)
		if err = given(ctx, err); err != nil && reasonOf(err) == "" {
			return &failure{reason: unknownCommit, retry: never, message: err.Error()}
		}
		return err
	})
	return done, err
}

// unknownWrite says that it is not known whether a write was made, and repeated is the share of
// keyed calls and of statements that a clerk makes again although they have succeeded.
const (
	unknownWrite = "WriteOutcomeUnknown"
	repeated     = 0.2
)

// employ has so many clerks work at desks beside the tellers.
func (b *bank) employ(clerks int) {
	b.recorder = history.NewRecorder()
	var d *desk
	for n := range clerks {
		if n%perDesk == 0 {
			d = &desk{id: n / perDesk, recorder: b.recorder}
		}
		b.clerks = append(b.clerks, &clerk{desk: d, teller: &teller{
			id: n, tally: b.tally, replica: b.protocol(n), impatience: impatience,
		}})
	}
}

// judge complains about what no order of the clerks' operations explains, and if there are too few.
func (b *bank) judge() (wrong []string) {
	if len(b.clerks) == 0 {
		return nil
	}
	v := b.recorder.Judge(history.Contents{}, verdictTime)
	b.t.Logf("clerks: %v", v)
	for _, group := range v.Undecided {
		wrong = append(wrong, "the judge has not decided the history of "+group)
	}
	least := int(300 * b.time.Minutes())
	if v.Operations < least || v.Unknown < least/100 {
		wrong = append(wrong, fmt.Sprintf("there are only %v, want %d and %d", v, least, least/100))
	}
	return append(wrong, v.Violations...)
}
