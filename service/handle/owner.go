package handle

import (
	"context"
	"errors"
	"io"
	"maps"
	"time"

	"github.com/mooringdb/mooring/core/cursor"
)

// owned says that only another replica can continue the cursor of a claim.
func (r *Registry) owned(c claim) bool { return c.pinned && c.instance != r.instance }

// askOwner gets a page of a pinned cursor from the replica that holds its connection. It runs on when the client goes away, as a page call does
// there. Asking twice is harmless: the same token brings the same page.
func (r *Registry) askOwner(ctx context.Context, c claim, a Asking) (Page, error) {
	if ctx.Err() != nil {
		return Page{}, context.Cause(ctx)
	}
	ctx, cancel := runOn(ctx)
	defer cancel()
	ans, err := r.putOwner(ctx, c, r.question(c, a, ForPage))
	switch {
	case err != nil:
		return Page{}, err
	case ans.Page == nil:
		return Page{}, ErrOwnerGone
	default:
		return *ans.Page, nil
	}
}

// closeAtOwner has the owner close a pinned cursor.
func (r *Registry) closeAtOwner(ctx context.Context, c claim, a Asking) error {
	_, err := r.putOwner(ctx, c, r.question(c, a, ForClose))
	return err
}

func (r *Registry) putOwner(ctx context.Context, c claim, q Question) (Answer, error) {
	if r.alone() || c.replica == "" || c.replica == r.cfg.Replica {
		return Answer{}, ErrOwnerGone
	}
	ans, _, err := r.put(ctx, c.replica, q)
	return ans, r.ownersError(ctx, c, err)
}

// ownerPatience is how long an owner may give no answer before it counts as gone.
const ownerPatience = time.Minute

// silence is how long a replica has given no answer: from its first question without one to the last.
type silence struct{ since, last time.Time }

// ownersError says what has become of a cursor whose owner gives no answer, or is not the one that it was. An owner that refuses connections is
// gone; one that is silent may come back. Whatever else it has said, it is heard.
func (r *Registry) ownersError(ctx context.Context, c claim, err error) error {
	owner := Replica{Address: c.replica, Instance: c.instance}
	lost, unreachable := errors.AsType[*UnreachableError](err)
	switch {
	case errors.Is(err, ErrNotHere), errors.Is(err, ErrClosing), unreachable && (lost.Refused || r.silent(owner)):
		return ErrOwnerGone
	case !unreachable && ctx.Err() == nil:
		r.heard(owner)
	}
	return err
}

// silent notes that a replica gave no answer, and says whether it has been so for long.
func (r *Registry) silent(owner Replica) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.silences, func(_ Replica, s silence) bool { return now.Sub(s.last) > ownerPatience })
	s, known := r.silences[owner]
	if !known {
		s.since = now
	}
	s.last = now
	r.silences[owner] = s
	return now.Sub(s.since) > ownerPatience
}

func (r *Registry) heard(owner Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.silences, owner)
}

// relay hands a stream at a cursor's owner to a stream here.
func (r *Registry) relay(ctx context.Context, c claim, a Asking) (context.Context, *Taken, error) {
	if r.alone() || c.replica == "" || c.replica == r.cfg.Replica {
		return nil, nil, ErrOwnerGone
	}
	s, err := r.peers.Stream(ctx, c.replica, r.question(c, a, ForStream))
	if err = r.ownersError(ctx, c, err); err != nil {
		return nil, nil, err
	}
	return ctx, &Taken{Cursor: &relayed{stream: s, state: c.state}}, nil
}

// relayed is a cursor whose batches another replica reads, and sizes. It is as fast as it is read.
type relayed struct {
	stream PageStream
	state  cursor.State
	done   bool
}

var _ Cursor = (*relayed)(nil)

func (c *relayed) Next(context.Context) (cursor.Batch, error) {
	if c.done {
		return cursor.Batch{}, io.EOF
	}
	docs, err := c.stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		c.done = true
		return cursor.Batch{}, nil
	case err != nil:
		if _, gone := errors.AsType[*UnreachableError](err); gone || errors.Is(err, ErrClosing) {
			err = ErrOwnerGone // or it will kill the cursor: a stream that broke is not taken up again
		}
		return cursor.Batch{}, err
	}
	got := restOf(docs)
	return cursor.Batch{Documents: docs, Bytes: got.bytes, Buffer: got.buffer}, nil
}

func (c *relayed) Close(context.Context) error {
	c.done = true
	c.stream.Close()
	return nil
}

func (c *relayed) Done() bool               { return c.done }
func (c *relayed) State() cursor.State      { return c.state }
func (c *relayed) Pinned() bool             { return true }
func (c *relayed) SetBatchSize(int32)       {}
func (c *relayed) SetMaxAwaitTimeMS(*int64) {}
func (c *relayed) SetRunOn(bool)            {}
