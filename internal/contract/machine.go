package contract

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

// patience is how often the machine makes one call, and how often it begins anew.
const patience = 60

// operation holds one operation, and what has become of it.
type operation struct {
	number     int
	way        Way
	collection string
	key        string
	duplicate  bool       // it inserts a document that is there: DuplicateKey
	planned    []string   // the commands that the plan is about
	random     *rand.Rand // of the machine

	// mu guards the fields below.
	mu     sync.Mutex
	hands  *Hands // nil: it has not begun
	plan   []fault
	met    []met
	cancel context.CancelFunc // ends the call under way

	// The fields below belong to the machine.

	calls    int
	told     []Failure
	outcome  outcome
	restarts int
	rows     []int // that were read
	wrong    bool  // rows were missing, or there twice
}

// met holds a fault that has happened to a command.
type met struct {
	fault   fault
	command string
}

// outcome says what the machine knows at the end.
type outcome uint8

const (
	stuck outcome = iota // it was told to go on for ever
	succeeded
	refused // nothing was done, and it must not go on
	unknown
)

var outcomes = [...]string{"stuck", "succeeded", "refused", "unknown"}

func (o outcome) String() string { return outcomes[o] }

func (op *operation) nextFault(command string) fault {
	op.mu.Lock()
	defer op.mu.Unlock()
	if len(op.plan) == 0 || !slices.Contains(op.planned, command) {
		return pass
	}
	f := op.plan[0]
	op.plan = op.plan[1:]
	switch {
	case f == leave && !op.hands.MayLeave:
		f = cutBefore
	case f == leaveThenDrop && !op.hands.MayLeave:
		f = dropBetween
	}
	if f != pass {
		op.met = append(op.met, met{f, command})
	}
	return f
}

// begin begins an operation with a client.
func (op *operation) begin(hands *Hands) {
	hands.Cut(-1)
	op.mu.Lock()
	defer op.mu.Unlock()
	op.hands = hands
}

// end returns what has happened to the operation. Nothing happens any more.
func (op *operation) end() []met {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.plan = nil
	return op.met
}

// cut ends the connection of the caller after so many more bytes.
func (op *operation) cut(after int) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.hands.Cut(after)
}

// leave ends the call under way.
func (op *operation) leave() {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.cancel()
}

// prepare makes the operation's collection.
func (op *operation) prepare(d *deployment.Deployment) {
	var docs []bson.Raw
	n := 2
	if op.way == Page || op.way == Stream {
		n = rows
	}
	for id := 1; id <= n && op.way != Import; id++ {
		docs = append(docs, bson.NewBuilder(nil).Int32("_id", int32(id)).Int32("n", 0).Finish())
	}
	d.SetDocuments(Database+"."+op.collection, docs...)
}

// perform has the machine make an operation.
func (x *experiment) perform(ctx context.Context, op *operation, hands *Hands) {
	op.begin(hands)
	m := &machine{operation: op, client: hands.Client, wait: x.cfg.Wait}
	switch op.way {
	case Plain, Key:
		m.write(ctx)
	case Statement, Commit:
		m.transaction(ctx)
	case Run:
		m.run(ctx)
	case Page:
		m.pages(ctx)
	case Stream:
		m.stream(ctx)
	case Import:
		m.imports(ctx)
	}
}

// machine does what errors say.
type machine struct {
	*operation
	client Client
	wait   time.Duration
}

// do makes a call once.
func (m *machine) do(ctx context.Context, call Call) Answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	m.cancel = cancel
	m.mu.Unlock()
	m.calls++
	call.Collection = m.collection
	answer := m.client.Do(ctx, call)
	if answer.Failure != nil {
		m.told = append(m.told, *answer.Failure)
	}
	return answer
}

// pause waits before a call is repeated.
func (m *machine) pause(ctx context.Context, f *Failure) {
	wait := time.Duration(f.RetryAfter * float64(time.Second))
	if wait <= 0 {
		wait = time.Duration(m.random.Int64N(int64(m.wait)))
	}
	sleep(ctx, wait)
}

// persist makes a call again as long as its error says so. known says that the gateway knows the
// call again: then it is also repeated without an answer. ok is false if that does not end.
func (m *machine) persist(ctx context.Context, call Call, known bool) (answer Answer, ok bool) {
	for range patience {
		answer = m.do(ctx, call)
		f := answer.Failure
		if f == nil || f.Retry != sameRequest && (!known || !f.isUnanswered()) {
			return answer, true
		}
		m.pause(ctx, f)
	}
	return answer, false
}

// conclude records what the last answer says.
func (m *machine) conclude(answer Answer, ok bool) {
	switch f := answer.Failure; {
	case !ok:
		m.outcome = stuck
	case f == nil:
		m.outcome = succeeded
	case f.isUnknown():
		m.outcome = unknown
	default:
		m.outcome = refused
	}
}

func (m *machine) write(ctx context.Context) {
	call := Call{Verb: UpdateOne, ID: 1}
	if m.duplicate {
		call.Verb = InsertOne
	}
	if m.way == Key {
		call.Key = m.key
	}
	for range patience {
		answer, ok := m.persist(ctx, call, m.way == Key)
		if m.conclude(answer, ok); !ok || !answer.says(restart) {
			return
		}
		m.pause(ctx, answer.Failure)
	}
	m.outcome = stuck
}

// transaction runs the loop of docs/transactions.md, whose waits become longer: a transaction that
// could not be aborted holds its documents for a minute.
func (m *machine) transaction(ctx context.Context) {
	longest := 5 * time.Millisecond
	for begun := time.Now(); time.Since(begun) < 2*time.Minute; {
		answer, ok := m.attempt(ctx)
		if m.conclude(answer, ok); !ok || !answer.says(transaction) {
			return
		}
		m.restarts++
		sleep(ctx, time.Duration(m.random.Int64N(int64(longest))))
		longest = min(longest*3/2, 500*time.Millisecond)
	}
	m.outcome = stuck
}

func (m *machine) attempt(ctx context.Context) (answer Answer, ok bool) {
	answer, ok = m.persist(ctx, Call{Verb: Begin}, true)
	if !ok || answer.Failure != nil {
		return answer, ok
	}
	token := answer.Transaction
	for n := 1; n <= 2; n++ {
		call := Call{Verb: UpdateOne, ID: n, Transaction: token, Statement: n}
		if answer, ok = m.persist(ctx, call, true); !ok || answer.Failure != nil {
			m.persist(ctx, Call{Verb: AbortIt, Transaction: token}, true)
			return answer, ok
		}
	}
	return m.persist(ctx, Call{Verb: CommitIt, Transaction: token}, true)
}

func (m *machine) run(ctx context.Context) {
	for range patience {
		answer, ok := m.persist(ctx, Call{Verb: RunAll}, false)
		if m.conclude(answer, ok); !ok || !answer.says(transaction) {
			return
		}
		m.restarts++
		m.pause(ctx, answer.Failure)
	}
	m.outcome = stuck
}

func (m *machine) pages(ctx context.Context) {
	for range patience {
		m.rows = nil
		answer, ok := m.persist(ctx, Call{Verb: Find}, true)
		for ok && answer.Failure == nil {
			m.rows = append(m.rows, answer.IDs...)
			if answer.Cursor == "" {
				break
			}
			next := Call{Verb: NextPage, Cursor: answer.Cursor}
			answer, ok = m.persist(ctx, next, true)
		}
		m.wrong = m.wrong || !areRows(m.rows, answer.Failure == nil)
		if m.conclude(answer, ok); !ok || !answer.says(restart) {
			return
		}
		m.restarts++
		m.pause(ctx, answer.Failure)
	}
	m.outcome = stuck
}

func (m *machine) stream(ctx context.Context) {
	for range patience {
		answer := m.do(ctx, Call{Verb: StreamAll})
		m.rows = answer.IDs
		f := answer.Failure
		m.wrong = m.wrong || !areRows(m.rows, f == nil)
		m.conclude(answer, true)
		if f == nil || f.Retry != restart && f.Retry != sameRequest && !f.isUnanswered() {
			return
		}
		if f.Retry != sameRequest {
			m.restarts++
		}
		m.pause(ctx, f)
	}
	m.outcome = stuck
}

// areRows reports whether ids are the first rows, and all of them if they are complete.
func areRows(ids []int, complete bool) bool {
	for i, id := range ids {
		if id != i+1 {
			return false
		}
	}
	return !complete || len(ids) == rows
}

// imports goes on after the documents that are inserted.
func (m *machine) imports(ctx context.Context) {
	first := 0
	for range patience {
		answer, ok := m.persist(ctx, Call{Verb: ImportAll, First: first}, false)
		m.conclude(answer, ok)
		f := answer.Failure
		if !ok || f == nil || f.isUnknown() || f.Inserted == 0 && f.Retry != restart {
			return
		}
		first += f.Inserted
		m.restarts++
		m.pause(ctx, f)
	}
	m.outcome = stuck
}
