package bank_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// pause is how long a teller waits at most before it makes a call again, and attempts how often
	// it makes one. pauseMost is the same before another attempt of a transaction.
	pause     = 50 * time.Millisecond
	attempts  = 100
	pauseMost = 500 * time.Millisecond
)

// rest waits for a random part of a time.
func rest(most time.Duration) {
	time.Sleep(time.Duration(rand.Int64N(int64(most)))) //nolint:forbidigo // a client that waits
}

// errPoor reports that an account does not have the money.
var errPoor = errors.New("the account does not have the money")

// outcome is what became of a transfer.
type outcome uint8

const (
	unfinished outcome = iota // the experiment ended before it was known
	acknowledged
	poor
	// unsure: the account was poor, but an attempt before had no answer and may have come later.
	unsure
)

// teller makes transfers, one after the other. It does what the `retry` of errors says, to the
// letter: it waits as long as the gateway says, makes the same call again, or the whole
// transaction, and takes never for never. If an outcome is unknown, it reads the transfer's
// document.
type teller struct {
	id       int
	replica  func() api // a replica by chance
	tally    *tally
	runs     bool // by Run; otherwise statement by statement
	careless bool // without a transaction
	// uncounted has the statements have no numbers, and be repeated nevertheless.
	uncounted  bool
	impatience float64 // the share of calls that it leaves before the answer, and then makes again
	done       []transfer
	outcomes   []outcome
}

// work makes transfers until ctx ends, and finishes the last one within grace.
func (t *teller) work(ctx, grace context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		from := rand.IntN(count)
		f := transfer{
			teller: t.id, number: n, from: from, to: (from + 1 + rand.IntN(count-1)) % count,
			amount: 1 + rand.IntN(2*start/3),
		}
		t.done = append(t.done, f)
		t.outcomes = append(t.outcomes, t.transfer(grace, f))
	}
}

// way returns by what the teller makes its transfers.
func (t *teller) way() string {
	way := [...]string{"REST", "gRPC"}[t.id%2]
	if t.runs {
		way += " by Run"
	}
	return way
}

// transfer makes the transaction until its outcome is known. The document of the transfer, and a
// duplicate of it, show that an attempt before has succeeded.
func (t *teller) transfer(ctx context.Context, f transfer) outcome {
	unknown := false
	for wait := 5 * time.Millisecond; ctx.Err() == nil; wait = min(wait*3/2, pauseMost) {
		err := t.attempt(ctx, f)
		isPoor := errors.Is(err, errPoor) || reasonOf(err) == "ExpectationFailed"
		switch {
		case err == nil:
			return acknowledged
		case isPoor && unknown:
			return unsure
		case isPoor:
			return poor
		case reasonOf(err) == "DuplicateKey" && unknown:
			t.tally.add(&t.tally.byLedger)
			return acknowledged
		case t.careless || retryOf(err) == again || ctx.Err() != nil:
		case reasonOf(err) == "" || reasonOf(err) == unknownCommit:
			t.tally.add(&t.tally.unknown)
			unknown = true
			if t.isRecorded(ctx, f) {
				t.tally.add(&t.tally.byLedger)
				return acknowledged
			}
		default:
			t.tally.stuck(err)
			return unfinished
		}
		t.tally.add(&t.tally.again)
		rest(wait)
	}
	return unfinished
}

// isRecorded reports whether the document of a transfer is there: it is committed.
func (t *teller) isRecorded(ctx context.Context, f transfer) (is bool) {
	_, _ = t.call(ctx, func(ctx context.Context, a api) (err error) {
		is, err = a.isRecorded(ctx, f)
		return err
	})
	return is
}

func (t *teller) attempt(ctx context.Context, f transfer) error {
	switch {
	case t.careless:
		return t.statements(ctx, "", f)
	case t.runs:
		return t.run(ctx, f)
	}
	var token string
	_, err := t.call(ctx, func(ctx context.Context, a api) (err error) {
		token, err = a.begin(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := t.statements(ctx, token, f); err != nil {
		_, _ = t.call(ctx, func(ctx context.Context, a api) error { return a.abort(ctx, token) })
		return err
	}
	return t.commit(ctx, token)
}

// run makes the transfer in one call. Without an answer it is unknown what became of it: Run has no
// number.
func (t *teller) run(ctx context.Context, f transfer) error {
	_, err := t.call(ctx, func(ctx context.Context, a api) error {
		err := given(ctx, a.run(ctx, f))
		if err != nil && reasonOf(err) == "" {
			return &failure{reason: unknownCommit, retry: never, message: err.Error()}
		}
		return err
	})
	return err
}

// statements carries a transfer out. Its document is the first statement, so that a transfer that
// was made before is found out before the account seems to be poor.
func (t *teller) statements(ctx context.Context, token string, f transfer) error {
	var number int32
	next := func() statement {
		if !t.careless && !t.uncounted {
			number++
		}
		return statement{token, number}
	}
	s := next()
	if _, err := t.call(ctx, func(ctx context.Context, a api) error {
		return a.record(ctx, s, f)
	}); err != nil {
		return err
	}
	for _, c := range []change{{f.from, -f.amount}, {f.to, f.amount}} {
		s, found := next(), false
		if _, err := t.call(ctx, func(ctx context.Context, a api) (err error) {
			found, err = a.add(ctx, s, c)
			return err
		}); err != nil {
			return err
		}
		if !found {
			return errPoor
		}
	}
	return nil
}

// commit repeats Commit until it is known whether the transaction is committed.
func (t *teller) commit(ctx context.Context, token string) error {
	repeated, err := t.call(ctx, func(ctx context.Context, a api) error {
		return a.commit(ctx, token)
	})
	switch {
	case repeated > 0 && err == nil:
		t.tally.add(&t.tally.byCommit)
	case repeated > 0 && retryOf(err) == again:
		t.tally.add(&t.tally.byAbort)
	}
	return err
}

// call makes a call at a replica by chance, and makes it again while the gateway says so, or does
// not answer: statements have numbers, Commit and Abort can be repeated, and an empty transaction
// more is no harm. It returns how often it was repeated.
func (t *teller) call(
	ctx context.Context, f func(context.Context, api) error,
) (repeated int, err error) {
	for ; ; repeated++ {
		short, cancel := ctx, context.CancelFunc(func() {})
		if rand.Float64() < t.impatience {
			t.tally.add(&t.tally.left)
			short, cancel = context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(pause))))
		}
		err = given(short, f(short, t.replica()))
		cancel()
		if err == nil {
			return repeated, nil
		}
		t.tally.failed(err)
		if repeated+1 >= attempts || ctx.Err() != nil || retryOf(err) != sameRequest {
			return repeated, err
		}
		time.Sleep(afterOf(err)) //nolint:forbidigo // a client that does what it is told
		rest(pause)
	}
}

// given returns the error of a call that a teller gives time to. If it is that the time is over,
// the teller has left before the answer, and has no answer.
func given(ctx context.Context, err error) error {
	end, ok := ctx.Deadline()
	if ok && time.Until(end) < pause && reasonOf(err) == "DeadlineExceeded" {
		return context.DeadlineExceeded
	}
	return err
}

// tally counts what happened to calls.
type tally struct {
	mu       sync.Mutex
	again    int // transactions that were run again
	unknown  int // Commits and Runs after which it was not known what became of the transaction
	left     int // calls whose client went away
	byCommit int // transactions whose Commit, repeated, said that they are committed
	byAbort  int // those whose Commit, repeated, said that they are not
	byLedger int // those whose document was found by the next attempt
	reads    int // sums of a snapshot
	wrong    int // those that differ
	reasons  map[string]int
	texts    map[string]string // an example for each reason
	ends     map[string]int    // errors after which the gateway lets a client do nothing
}

// stuck counts an error after which a transfer cannot go on.
func (t *tally) stuck(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends[err.Error()]++
}

func (t *tally) add(counter *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*counter++
}

func (t *tally) failed(err error) {
	reason := reasonOf(err)
	if reason == "" {
		reason = "no answer"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reasons[reason]++
	t.texts[reason] = err.Error()
}
