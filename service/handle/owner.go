package handle

import (
	"context"
	"errors"
	"io"

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
	return ans, ownersError(err)
}

// ownersError says what has become of a cursor whose owner gives no answer, or is not the one that it was.
func ownersError(err error) error {
	if _, gone := errors.AsType[*UnreachableError](err); gone || errors.Is(err, ErrNotHere) || errors.Is(err, ErrClosing) {
		return ErrOwnerGone
	}
	return err
}

// relay hands a stream at a cursor's owner to a stream here.
func (r *Registry) relay(ctx context.Context, c claim, a Asking) (context.Context, *Taken, error) {
	if r.alone() || c.replica == "" || c.replica == r.cfg.Replica {
		return nil, nil, ErrOwnerGone
	}
	s, err := r.peers.Stream(ctx, c.replica, r.question(c, a, ForStream))
	if err != nil {
		return nil, nil, ownersError(err)
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
		return cursor.Batch{}, ownersError(err)
	}
	b := cursor.Batch{Documents: docs}
	for _, doc := range docs {
		b.Bytes += len(doc)
	}
	b.Buffer = b.Bytes
	return b, nil
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
