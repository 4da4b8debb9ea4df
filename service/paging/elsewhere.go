package paging

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/service/call"
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

// elsewhere describes a client's call about a cursor that is not here.
type elsewhere struct {
	lookup
	to page.Replica // that should hold it
}

var _ call.Elsewhere = (*elsewhere)(nil)

func (e *elsewhere) Error() string {
	return "the gateway replica at " + e.to.Address + " has the cursor"
}

// Route implements call.Elsewhere.
func (e *elsewhere) Route(
	ctx context.Context, here func(context.Context) error, there call.There,
) (reply call.Reply, err error) {
	switch {
	case e.owned():
		reply, err = e.askOwner(ctx, there)
	case e.what == forClose:
		s := search{p: e.p, what: e.what, there: there}
		reply, err = s.run(ctx, e.to)
		if errors.Is(err, errHere) || errors.Is(err, errNowhere) { // it has ended
			err = ErrCursorNotFound
		}
	default:
		reply, err = e.follow(ctx, here, there)
	}
	if reply.Stream != nil {
		reply.Stream = relayed{reply.Stream}
	}
	return reply, err
}

// follow searches the cursor until another replica has made the call, or the cursor has come here
// and here has made it.
func (e *elsewhere) follow(
	ctx context.Context, here func(context.Context) error, there call.There,
) (call.Reply, error) {
	home := 0
	for range maxHops {
		if e.what == forPage {
			if err := e.reserve(ctx); err != nil {
				return call.Reply{}, err
			}
		}
		s := search{p: e.p, what: e.what, there: there}
		reply, err := s.run(ctx, e.to)
		switch {
		case errors.Is(err, errHere) && home > 0 && !s.unsure: // it was closed here, or has expired
			return call.Reply{}, ErrCursorNotFound
		case errors.Is(err, errHere):
			home++
		case errors.Is(err, errNowhere):
			if err := e.isLost(); err != nil {
				return call.Reply{}, err
			} // else it has come here meanwhile
		default:
			return reply, err
		}
		err = here(ctx)
		again, ok := errors.AsType[*elsewhere](err)
		if !ok {
			return call.Reply{}, err
		}
		e.to = again.to
	}
	return call.Reply{}, ErrCursorPositionUnknown
}

// relayed wraps a stream of the replica that holds the cursor.
type relayed struct{ call.Stream }

// Recv returns the next message. If the replica is gone, so is the cursor, and also if it is still
// there: it kills the cursor of a stream that broke.
func (r relayed) Recv() (call.Message, error) {
	m, err := r.Stream.Recv()
	_, gone := errors.AsType[*UnreachableError](err)
	if gone || errors.Is(err, handle.ErrClosing) {
		err = ErrOwnerGone
	}
	return m, err
}

// search has other replicas asked for a cursor.
type search struct {
	p     *Pager
	what  purpose
	there call.There
	// unsure: a replica that may hold the cursor did not answer.
	unsure bool

	mu    sync.Mutex
	asked []string // the addresses of all replicas that were asked without their being named
}

// run asks the replica that should hold the cursor, then where that leads, then all others. It
// goes on when the client goes away.
func (s *search) run(ctx context.Context, to page.Replica) (call.Reply, error) {
	if s.p.alone() {
		return call.Reply{}, errNowhere
	}
	ctx, cancel := operation.RunOn(ctx)
	defer cancel()
	for range maxHops {
		heir := s.p.successions.of(to)
		reply, err := s.ask(ctx, heir)
		if errors.Is(err, errNowhere) && heir != to {
			reply, err = s.ask(ctx, to) // it may have kept the cursor: see successions.of
		}
		if errors.Is(err, errNowhere) {
			reply, err = s.others(ctx)
		}
		moved, ok := errors.AsType[*MovedError](err)
		if !ok {
			return reply, err
		}
		to = moved.To
	}
	return call.Reply{}, errNowhere // it moves faster than it can be followed
}

// ask asks one replica. If that one is gone, or knows nothing, it returns errNowhere.
func (s *search) ask(ctx context.Context, to page.Replica) (call.Reply, error) {
	switch {
	case to.Instance == s.p.instance:
		return call.Reply{}, errHere
	case to.Address == "" || to.Address == s.p.cfg.Replica: // an earlier life of this replica
		return call.Reply{}, errNowhere
	}
	reply, err := ask(ctx, s.what, to, s.there)
	if s.gone(err) {
		return call.Reply{}, errNowhere
	}
	return reply, err
}

// gone reports whether a replica has not answered, or knows nothing. One that may have begun a
// stream is not gone: no other one can send that.
func (s *search) gone(err error) bool {
	lost, unreachable := errors.AsType[*UnreachableError](err)
	if unreachable && lost.Sent && s.what == forStream {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsure = s.unsure || unreachable && !lost.Refused
	return unreachable || errors.Is(err, ErrNotHere) || errors.Is(err, handle.ErrClosing)
}

// ask asks a replica, and once more if its answer may have been lost: the same token brings the
// same page. A stream is asked for once.
func ask(
	ctx context.Context, what purpose, to page.Replica, there call.There,
) (reply call.Reply, err error) {
	for range 2 {
		reply, err = there(ctx, to)
		if err != nil && ctx.Err() != nil {
			return call.Reply{}, context.Cause(ctx)
		}
		lost, ok := errors.AsType[*UnreachableError](err)
		if !ok || !lost.Sent || what == forStream {
			return reply, err
		}
	}
	return call.Reply{}, err
}

// others asks all other replicas: there may be one that the cursor was pushed to. If none of
// those knows it, their names are looked up anew, and those are asked that were not known.
func (s *search) others(ctx context.Context) (call.Reply, error) {
	limited, cancel := context.WithTimeout(ctx, othersTimeout)
	defer cancel()
	reply, err := call.Reply{}, error(errNowhere)
	for _, again := range []bool{false, true} {
		reply, err = s.all(limited, s.unasked(s.p.replicas.Others(limited, again)))
		if !errors.Is(err, errNowhere) {
			break
		}
	}
	if err != nil && ctx.Err() != nil {
		return call.Reply{}, context.Cause(ctx)
	}
	return reply, err
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
func (s *search) all(ctx context.Context, addresses []string) (call.Reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	best, bestErr := call.Reply{}, error(errNowhere)
	eachOf(addresses, func(address string) {
		reply, err := ask(ctx, s.what, page.Replica{Address: address}, s.there)
		late := err != nil && ctx.Err() != nil
		if s.gone(err) || late {
			err = errNowhere
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unsure = s.unsure || late
		if rank(err) <= rank(bestErr) {
			reply.Drop()
			return
		}
		best, bestErr = reply, err
		if bestErr == nil {
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
func rank(err error) int {
	_, moved := errors.AsType[*MovedError](err)
	switch {
	case err == nil:
		return 4
	case errors.Is(err, ErrCursorTokenReused):
		return 3
	case moved:
		return 2
	case !errors.Is(err, errNowhere):
		return 1
	default:
		return 0
	}
}
