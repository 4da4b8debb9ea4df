package paging

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

const (
	// maxHops is how often a call follows a cursor that has moved.
	maxHops = 8
	// maxAsked is how many replicas are asked at a time for a cursor whose holder is gone, and
	// othersTimeout how long they may take.
	maxAsked      = 16
	othersTimeout = 10 * time.Second
)

var (
	// errHere: the cursor should be at this replica.
	errHere = errors.New("the cursor is here")
	// errNowhere: no replica that answers knows anything of the cursor.
	errNowhere = errors.New("no replica knows the cursor")
)

func (p *Pager) question(c claim, a Asking, purpose Purpose) Question {
	return Question{
		Asker: p.Self(), Holder: c.holder.Instance, Purpose: purpose,
		Principal: a.Principal, Token: a.Token,
		BatchSize: a.BatchSize, MaxAwaitTimeMS: a.MaxAwaitTimeMS, Inflation: a.Inflation,
	}
}

// search asks other replicas for a cursor.
type search struct {
	p *Pager
	q Question
	// at is the replica that has answered.
	at page.Replica
	// unsure: a replica that may hold the cursor did not answer.
	unsure bool

	mu    sync.Mutex
	asked []string // the addresses of all replicas that were asked without their being named
}

// run asks the replica that should hold the cursor, then where that leads, then all others. It
// goes on when the client goes away.
func (s *search) run(ctx context.Context, to page.Replica) (Answer, error) {
	if s.p.alone() {
		return Answer{}, errNowhere
	}
	ctx, cancel := runOn(ctx)
	defer cancel()
	for range maxHops {
		heir := s.p.successions.of(to)
		ans, err := s.ask(ctx, heir)
		if errors.Is(err, errNowhere) && heir != to {
			ans, err = s.ask(ctx, to) // it may have kept the cursor: see successions.of
		}
		if errors.Is(err, errNowhere) {
			ans, err = s.others(ctx)
		}
		if err != nil || ans.Moved == nil {
			return ans, err
		}
		to = *ans.Moved
	}
	return Answer{}, errNowhere // it moves faster than it can be followed
}

// ask asks one replica. If that one is gone, or knows nothing, it returns errNowhere.
func (s *search) ask(ctx context.Context, to page.Replica) (Answer, error) {
	switch {
	case to.Instance == s.p.instance:
		return Answer{}, errHere
	case to.Address == "" || to.Address == s.p.cfg.Replica: // an earlier life of this replica
		return Answer{}, errNowhere
	}
	q := s.q
	q.Holder = to.Instance
	ans, err := s.p.put(ctx, to.Address, q)
	if s.gone(err) {
		return Answer{}, errNowhere
	}
	s.at = to
	return ans, err
}

// gone reports whether a replica has not answered, or knows nothing.
func (s *search) gone(err error) bool {
	lost, unreachable := errors.AsType[*UnreachableError](err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsure = s.unsure || unreachable && !lost.Refused
	return unreachable || errors.Is(err, ErrNotHere) || errors.Is(err, handle.ErrClosing)
}

// put asks a question, and once more if its answer may have been lost: the same token brings the
// same page.
func (p *Pager) put(ctx context.Context, address string, q Question) (ans Answer, err error) {
	for range 2 {
		ans, err = p.replicas.Ask(ctx, address, q)
		if err != nil && ctx.Err() != nil {
			return Answer{}, context.Cause(ctx)
		}
		if lost, ok := errors.AsType[*UnreachableError](err); !ok || !lost.Sent {
			return ans, err
		}
	}
	return Answer{}, err
}

// others asks all other replicas: there may be one that the cursor was pushed to. If none of
// those knows it, their names are looked up anew, and those are asked that were not known.
func (s *search) others(ctx context.Context) (Answer, error) {
	limited, cancel := context.WithTimeout(ctx, othersTimeout)
	defer cancel()
	ans, err := Answer{}, error(errNowhere)
	for _, again := range []bool{false, true} {
		ans, err = s.all(limited, s.unasked(s.p.replicas.Others(limited, again)))
		if !errors.Is(err, errNowhere) {
			break
		}
	}
	if err != nil && ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	return ans, err
}

// unasked returns the addresses that were not asked yet, and notes them.
func (s *search) unasked(addresses []string) []string {
	fresh := slices.DeleteFunc(addresses, func(a string) bool {
		return a == s.p.cfg.Replica || slices.Contains(s.asked, a)
	})
	s.asked = append(s.asked, fresh...)
	return fresh
}

// all asks several replicas at once, and returns the best of their answers. A replica that has not
// answered when ctx ends may hold the cursor.
func (s *search) all(ctx context.Context, addresses []string) (Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := s.q
	q.Holder = page.Instance{}
	best, bestErr := Answer{}, error(errNowhere)
	eachOf(addresses, func(address string) {
		ans, err := s.p.put(ctx, address, q)
		late := err != nil && ctx.Err() != nil
		if s.gone(err) || late {
			err = errNowhere
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unsure = s.unsure || late
		if rank(ans, err) > rank(best, bestErr) {
			best, bestErr, s.at = ans, err, page.Replica{Address: address}
		}
		if bestErr == nil && best.Moved == nil {
			cancel() // only one holds it
		}
	})
	return best, bestErr
}

// eachOf calls do for several addresses at once, and returns when all calls have.
func eachOf(addresses []string, do func(address string)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxAsked)
	for _, address := range addresses {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(address)
		})
	}
	wg.Wait()
}

// rank orders what replicas answer: the holder's word first, then that the page was delivered,
// then where the cursor went, then any other error, then that nothing is known.
func rank(ans Answer, err error) int {
	switch {
	case err == nil && ans.Moved == nil:
		return 4
	case errors.Is(err, ErrCursorTokenReused):
		return 3
	case err == nil:
		return 2
	case !errors.Is(err, errNowhere):
		return 1
	default:
		return 0
	}
}
