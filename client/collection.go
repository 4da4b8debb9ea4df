package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Collection reads and writes the documents of a collection, which are values of T. Options are
// functions that set fields of the request:
//
//	orders.Find(ctx, filter, func(r *mooringv1.FindRequest) { r.BatchSize = proto.Int32(500) })
//
// Filters, updates, replacements and pipeline stages are whatever Client.Document takes; a nil
// filter matches all documents. An update may also be a *mooringv1.Update, which can hold a
// pipeline.
type Collection[T any] struct {
	client         *Client
	database, name string
}

// In returns a collection, without making a call.
func In[T any](c *Client, database, name string) *Collection[T] {
	return &Collection[T]{client: c, database: database, name: name}
}

func apply[Q any](request *Q, options []func(*Q)) *Q {
	for _, set := range options {
		set(request)
	}
	return request
}

// one returns the document of a response.
func one[T any](c *Client, d *mooringv1.Document, err error) (T, error) {
	if err == nil && d == nil {
		err = ErrNoDocument
	}
	if err != nil {
		var none T
		return none, err
	}
	return decode[T](c, d)
}

// FindOne returns the first document that matches, or ErrNoDocument.
func (c *Collection[T]) FindOne(
	ctx context.Context, filter any, options ...func(*mooringv1.FindOneRequest),
) (T, error) {
	f, err := c.client.Document(filter)
	if err != nil {
		return one[T](c.client, nil, err)
	}
	response, err := Call(ctx, c.client, c.client.documents.FindOne, apply(
		&mooringv1.FindOneRequest{Database: c.database, Collection: c.name, Filter: f}, options,
	))
	return one[T](c.client, response.GetDocument(), err)
}

// Find returns an iterator over the documents that match. It reads them in pages. An error is the
// last thing that it yields. If the loop ends early, the iterator closes the cursor, which may
// block for up to 2 seconds.
func (c *Collection[T]) Find(
	ctx context.Context, filter any, options ...func(*mooringv1.FindRequest),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		f, err := c.client.Document(filter)
		request := apply(
			&mooringv1.FindRequest{Database: c.database, Collection: c.name, Filter: f}, options,
		)
		var first *mooringv1.FindResponse
		if err == nil {
			first, err = Call(ctx, c.client, c.client.documents.Find, request)
		}
		next := &mooringv1.NextPageRequest{
			Session: request.Session, Transaction: request.Transaction,
			BatchSize: request.BatchSize, MaxAwaitTimeMs: request.MaxAwaitTimeMs,
		}
		pages(ctx, c.client, first, err, next, yield)
	}
}

// Aggregate returns an iterator over the results of a pipeline, as Find does. If the write concern
// of $out or $merge was not met, the last error's Error.Reason is WriteConcernFailed.
func (c *Collection[T]) Aggregate(
	ctx context.Context, pipeline []any, options ...func(*mooringv1.AggregateRequest),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		stages, err := every(c.client, pipeline)
		request := apply(&mooringv1.AggregateRequest{
			Database: c.database, Collection: &c.name, Pipeline: stages,
		}, options)
		var first *mooringv1.AggregateResponse
		if err == nil {
			first, err = Call(ctx, c.client, c.client.documents.Aggregate, request)
		}
		next := &mooringv1.NextPageRequest{
			Session: request.Session, Transaction: request.Transaction,
			BatchSize: request.BatchSize,
		}
		pages(ctx, c.client, first, err, next, yield)
	}
}

// page describes a page of any call.
type page interface {
	GetDocuments() []*mooringv1.Document
	GetCursor() string
}

// pages yields the documents of a result: those of its first page, and of the pages that next
// brings, as soon as it has a cursor. err is why there is no first page. If the loop ends early, or
// a page fails, the cursor is closed.
func pages[T any](
	ctx context.Context, c *Client, first page, err error, next *mooringv1.NextPageRequest,
	yield func(T, error) bool,
) {
	isOpen := false
	defer func() {
		if isOpen {
			closeCursor(ctx, c, next)
		}
	}()
	for current := first; err == nil; current, err = Call(ctx, c, c.cursors.NextPage, next) {
		next.Cursor = current.GetCursor()
		isOpen = next.Cursor != ""
		if !each(c, current.GetDocuments(), yield) {
			return
		}
		if !isOpen {
			break
		}
	}
	isOpen = isOpen && status.Code(err) != codes.NotFound
	if write, ok := first.(hasConcern); ok {
		err = withConcern(err, write)
	}
	if err != nil {
		var none T
		yield(none, err)
	}
}

// closing bounds how long closeCursor blocks.
const closing = 2 * time.Second

// closeCursor closes a cursor, also if the context has ended. If that fails, the cursor expires.
func closeCursor(ctx context.Context, c *Client, next *mooringv1.NextPageRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	_, _ = c.cursors.CloseCursor(c.outgoing(ctx), &mooringv1.CloseCursorRequest{
		Cursor: next.Cursor, Session: next.Session, Transaction: next.Transaction,
	})
}

// each yields documents, and reports whether the caller wants more.
func each[T any](c *Client, docs []*mooringv1.Document, yield func(T, error) bool) bool {
	for _, d := range docs {
		v, err := decode[T](c, d)
		if !yield(v, err) || err != nil {
			return false
		}
	}
	return true
}

// Stream returns an iterator over the documents that match, which come as one stream. If the loop
// ends early, the stream is canceled.
func (c *Collection[T]) Stream(
	ctx context.Context, filter any, options ...func(*mooringv1.StreamFindRequest),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		f, err := c.client.Document(filter)
		if err != nil {
			fail(err, yield)
			return
		}
		request := apply(&mooringv1.StreamFindRequest{
			Database: c.database, Collection: c.name, Filter: f,
		}, options)
		for message, err := range messages(ctx, c.client, c.client.documents.StreamFind, request) {
			if err != nil {
				fail(err, yield)
				return
			}
			if !each(c.client, message.GetDocuments(), yield) {
				return
			}
		}
	}
}

// messages returns an iterator over the messages of a stream. An error is the last thing that it
// yields, io.EOF or one with it if the stream is whole. A stream that fails before its first
// message is opened again where Call would repeat a call.
func messages[Q, R any](
	ctx context.Context, c *Client,
	rpc func(context.Context, Q, ...grpc.CallOption) (grpc.ServerStreamingClient[R], error),
	request Q,
) iter.Seq2[*R, error] {
	return func(yield func(*R, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var stream grpc.ServerStreamingClient[R]
		first := func(ctx context.Context, request Q, options ...grpc.CallOption) (*R, error) {
			var err error
			if stream, err = rpc(ctx, request, options...); err != nil {
				return nil, err
			}
			return stream.Recv()
		}
		message, err := Call(ctx, c, first, request)
		for err == nil && yield(message, nil) {
			message, err = stream.Recv()
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// fail yields the error of a stream, unless it is its end.
func fail[T any](err error, yield func(T, error) bool) {
	if errors.Is(err, io.EOF) {
		return
	}
	var none T
	yield(none, Explain(err))
}

// WithResumeTokens returns a context for Watch, which then calls keep with each resume token, once
// it has yielded the changes before it: with the first one at once, and with more while no change
// passes the pipeline. A Watch with one as StartAfter goes on there. Watch ends with an error of
// keep.
func WithResumeTokens(
	ctx context.Context, keep func(token *mooringv1.Document) error,
) context.Context {
	return context.WithValue(ctx, resumeTokensKey{}, keep)
}

type resumeTokensKey struct{}

// Watch returns an iterator over the change events of the collection, each decoded as a T. If the
// connection is lost, or the stream ends with an error that allows it, Watch opens another one
// after the last event. To watch the database, set Collection to nil in an option; to watch the
// deployment, also set Database to "".
func (c *Collection[T]) Watch(
	ctx context.Context, options ...func(*mooringv1.WatchRequest),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		request := apply(
			&mooringv1.WatchRequest{Database: c.database, Collection: &c.name}, options,
		)
		for failures := 0; ; {
			more, progressed, err := c.watch(ctx, request, yield)
			if !more || errors.Is(err, io.EOF) {
				return
			}
			failed := Explain(err)
			if progressed {
				failures = 0
			}
			if !canGoOn(failed, request, progressed) || ctx.Err() != nil ||
				pause(ctx, backoff(failures, failed.RetryAfter)) != nil {
				fail(err, yield)
				return
			}
			failures++
		}
	}
}

// canGoOn reports whether a stream of changes can go on after its last token. It cannot if the
// deployment has lost what comes next.
func canGoOn(failed *Error, request *mooringv1.WatchRequest, progressed bool) bool {
	isLost := failed.HTTPStatus == 410
	return request.StartAfter != nil && !isLost &&
		(failed.isCut(progressed) || failed.Reason != "" && failed.Retry != Never)
}

// watch runs one stream of changes up to its error. It records in the request where the next one
// goes on, and reports whether the caller wants more, and whether anything came.
func (c *Collection[T]) watch(
	ctx context.Context, request *mooringv1.WatchRequest, yield func(T, error) bool,
) (more, progressed bool, err error) {
	keep, _ := ctx.Value(resumeTokensKey{}).(func(*mooringv1.Document) error)
	for message, err := range messages(ctx, c.client, c.client.changes.Watch, request) {
		if err != nil {
			return true, progressed, err
		}
		progressed = true
		if !each(c.client, message.GetDocuments(), yield) {
			return false, progressed, nil
		}
		if token := message.GetResumeToken(); token != nil {
			request.StartAfter = token
			request.ResumeAfter, request.StartAtOperationTime = nil, nil
			if keep == nil {
				continue
			}
			if err := keep(token); err != nil {
				var none T
				yield(none, err)
				return false, progressed, nil
			}
		}
	}
	return true, progressed, io.EOF
}
