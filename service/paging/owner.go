package paging

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// askOwner has the call made by the replica that holds the connection of a pinned cursor. A call
// for a page runs on when the client goes away, as it does there.
func (e *elsewhere) askOwner(ctx context.Context, there call.There) (call.Reply, error) {
	if ctx.Err() != nil {
		return call.Reply{}, context.Cause(ctx)
	}
	if e.what == forPage {
		if err := e.reserve(ctx); err != nil {
			return call.Reply{}, err
		}
		var cancel func()
		ctx, cancel = operation.RunOn(ctx)
		defer cancel()
	}
	p, owner := e.p, e.c.holder
	if p.alone() || owner.Address == "" || owner.Address == p.cfg.Replica {
		return call.Reply{}, ErrOwnerGone
	}
	reply, err := ask(ctx, e.what, owner, there)
	if _, moved := errors.AsType[*MovedError](err); moved {
		err = ErrOwnerGone
	}
	return reply, p.OwnerError(ctx, owner, err)
}

// ownerPatience is how long an owner may give no answer before it counts as gone.
const ownerPatience = time.Minute

// silence records how long a replica has given no answer: since the first question that it left
// unanswered, up to the last one.
type silence struct{ since, last time.Time }

// owners remembers which replicas give no answer.
//
// The mutex guards silences. Nothing blocks while it is held.
type owners struct {
	mu       sync.Mutex
	silences map[page.Replica]silence
}

func newOwners() *owners { return &owners{silences: map[page.Replica]silence{}} }

// OwnerError returns the error of a client that needs a replica which has returned err. It is
// ErrOwnerGone if the replica is gone. An owner that was restarted, has left or refuses connections
// is gone. An owner that does not answer may come back, and counts as gone after ownerPatience. Any
// other answer ends its silence.
func (p *Pager) OwnerError(ctx context.Context, owner page.Replica, err error) error {
	return p.owners.explain(ctx, owner, err)
}

// explain returns what Pager.OwnerError does.
func (o *owners) explain(ctx context.Context, owner page.Replica, err error) error {
	lost, unreachable := errors.AsType[*UnreachableError](err)
	switch {
	case errors.Is(err, ErrNotHere), errors.Is(err, handle.ErrClosing),
		unreachable && (lost.Refused || o.silent(owner)):
		return ErrOwnerGone
	case !unreachable && ctx.Err() == nil:
		o.heard(owner)
	}
	return err
}

// silent records that a replica gave no answer, and reports whether it has given none for longer
// than ownerPatience.
func (o *owners) silent(owner page.Replica) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(o.silences, func(_ page.Replica, s silence) bool {
		return now.Sub(s.last) > ownerPatience
	})
	s, known := o.silences[owner]
	if !known {
		s.since = now
	}
	s.last = now
	o.silences[owner] = s
	return now.Sub(s.since) > ownerPatience
}

func (o *owners) heard(owner page.Replica) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.silences, owner)
}
