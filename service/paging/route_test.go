package paging_test

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
)

// route makes a call as the interceptors do: here, or at the replicas that the pager names.
func route(
	ctx context.Context, here func(context.Context) error, there call.There,
) (call.Reply, error) {
	err := here(ctx)
	away, ok := errors.AsType[call.Elsewhere](err)
	if !ok {
		return call.Reply{}, err
	}
	return away.Route(ctx, here, there)
}

// forwarded returns what the replica is asked that a call is forwarded to.
func forwarded(a paging.Asking, to page.Replica) paging.Asking {
	a.Forwarded, a.Holder = true, to.Instance
	return a
}

// delivered is the response of a call for a page.
type delivered struct {
	proto.Message
	page paging.Page
}

// Next makes a call for a page.
func (life *node) Next(ctx context.Context, a paging.Asking) (got paging.Page, err error) {
	reply, err := route(ctx, func(ctx context.Context) (err error) {
		got, err = life.Pager.Next(ctx, a)
		return err
	}, func(ctx context.Context, to page.Replica) (call.Reply, error) {
		return exchange(ctx, life.link, to.Address, "page", func(
			ctx context.Context, other *node,
		) (call.Reply, error) {
			got, err := other.Pager.Next(ctx, forwarded(a, to))
			return call.Reply{Response: delivered{page: got}}, err
		})
	})
	if there, ok := reply.Response.(delivered); ok && err == nil {
		return there.page, nil
	}
	return got, err
}

// CloseCursor makes a call that closes a cursor.
func (life *node) CloseCursor(ctx context.Context, a paging.Asking) error {
	_, err := route(ctx, func(ctx context.Context) error { return life.Pager.CloseCursor(ctx, a) },
		func(ctx context.Context, to page.Replica) (call.Reply, error) {
			return exchange(ctx, life.link, to.Address, "close", func(
				ctx context.Context, other *node,
			) (call.Reply, error) {
				return call.Reply{}, other.Pager.CloseCursor(ctx, forwarded(a, to))
			})
		})
	return err
}

// taken is a cursor that a stream reads, here or at another replica.
type taken struct {
	Cursor    paging.Cursor
	Documents []bson.Raw
	Release   func()
}

// Take makes a call for a stream.
func (life *node) Take(ctx context.Context, a paging.Asking) (context.Context, *taken, error) {
	var of context.Context
	var got *paging.Taken
	reply, err := route(ctx, func(ctx context.Context) (err error) {
		of, got, err = life.Pager.Take(ctx, a)
		return err
	}, func(asking context.Context, to page.Replica) (call.Reply, error) {
		return exchange(asking, life.link, to.Address, "stream", func(
			_ context.Context, other *node,
		) (call.Reply, error) {
			ctx, got, err := other.Pager.Take(ctx, forwarded(a, to)) //nolint:contextcheck // the stream's
			if err != nil {
				return call.Reply{}, err
			}
			return call.Reply{
				Stream: &pageStream{l: life.link, ctx: ctx, taken: got, owner: other},
			}, nil
		})
	})
	switch {
	case err != nil:
		return nil, nil, err
	case reply.Stream != nil:
		return ctx, &taken{Cursor: &relayed{stream: reply.Stream}, Release: func() {}}, nil
	default:
		return of, &taken{got.Cursor, got.Documents, func() { got.Drop(); got.Release() }}, nil
	}
}

// batch is a message of a stream.
type batch struct {
	proto.Message
	documents []bson.Raw
}

// relayed reads the messages of another replica's stream as if they were batches.
type relayed struct {
	paging.Cursor
	stream call.Stream
	done   bool
}

func (r *relayed) NextLent(context.Context) (cursor.Batch, error) {
	m, err := r.stream.Recv()
	if errors.Is(err, io.EOF) {
		r.done = true
		return cursor.Batch{}, nil
	}
	got, _ := m.(batch)
	return cursor.Batch{Documents: got.documents}, err
}

func (r *relayed) Done() bool { return r.done }

func (r *relayed) Close(context.Context) error {
	r.done = true
	r.stream.Close()
	return nil
}
