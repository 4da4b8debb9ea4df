package client

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// LiveKind says what has become of a document.
type LiveKind string

// The kinds. The caller's state is what Live has yielded so far.
const (
	// LiveAdded: the document matches, and the caller does not have it yet.
	LiveAdded LiveKind = "added"
	// LiveChanged: the caller has an older state of the document.
	LiveChanged LiveKind = "changed"
	// LiveRemoved: the document does not match any more. Document has only its _id.
	LiveRemoved LiveKind = "removed"
	// LiveReady: the caller now has all documents that match. Document is unset.
	LiveReady LiveKind = "ready"
)

// Live tells what has happened to one document.
type Live[T any] struct {
	Kind     LiveKind
	Document T
}

// Live returns an iterator over the documents that match a filter, and then over their changes. If
// the connection is lost, or the stream ends with an error that allows it, Live opens another one,
// yields what differs from what the caller has, and LiveReady again. The _ids of all documents that
// match are kept in memory.
func (c *Collection[T]) Live(
	ctx context.Context, filter any, options ...func(*mooringv1.LiveRequest),
) iter.Seq2[Live[T], error] {
	return func(yield func(Live[T], error) bool) {
		f, err := c.client.Document(filter)
		if err != nil {
			yield(Live[T]{}, err)
			return
		}
		l := &following[T]{c: c.client, yield: yield, shown: map[string]bson.Raw{}}
		request := apply(&mooringv1.LiveRequest{
			Database: c.database, Collection: c.name, Filter: f,
		}, options)
		for failures := 0; ; failures++ {
			before := l.messages
			more, err := l.stream(ctx, request)
			if !more {
				return
			}
			failed := Explain(err)
			progressed := l.messages > before
			if progressed {
				failures = 0
			}
			canGoOn := l.messages > 0 && (errors.Is(err, io.EOF) || failed.isCut(progressed) ||
				failed.Reason != "" && failed.Retry != Never)
			if !canGoOn || ctx.Err() != nil ||
				pause(ctx, backoff(failures, failed.RetryAfter)) != nil {
				yield(Live[T]{}, failed)
				return
			}
		}
	}
}

// following holds the state of one iteration of Live.
type following[T any] struct {
	c     *Client
	yield func(Live[T], error) bool
	// shown has the _ids of the documents that the caller has, by their bytes, as documents.
	shown map[string]bson.Raw
	// named has those that a stream has told of before it is ready; nil: it is.
	named    map[string]bool
	messages int
}

// stream runs one stream up to its error, and reports whether the caller wants more.
func (l *following[T]) stream(
	ctx context.Context, request *mooringv1.LiveRequest,
) (more bool, err error) {
	l.named = map[string]bool{}
	for message, err := range messages(ctx, l.c, l.c.changes.Live, request) {
		if err != nil {
			return true, err
		}
		l.messages++
		if kind := LiveKind(message.GetKind()); kind == LiveReady {
			more = l.ready()
		} else {
			more = l.documents(kind, message.GetDocuments())
		}
		if !more {
			return false, nil
		}
	}
	return true, io.EOF
}

// ready yields that the documents are gone which the last stream had and this one has not.
func (l *following[T]) ready() (more bool) {
	for k, id := range l.shown {
		if l.named != nil && !l.named[k] {
			delete(l.shown, k)
			gone := &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: id}}
			if !l.tell(LiveRemoved, gone) {
				return false
			}
		}
	}
	l.named = nil
	return l.yield(Live[T]{Kind: LiveReady}, nil)
}

func (l *following[T]) documents(kind LiveKind, docs []*mooringv1.Document) (more bool) {
	for _, d := range docs {
		v, _ := bson.Raw(d.GetBson()).Lookup("_id")
		id := bson.NewBuilder(nil).Value("_id", v).Finish()
		k := string(id)
		_, had := l.shown[k]
		switch {
		case kind == LiveRemoved && !had:
			continue
		case kind == LiveRemoved:
			delete(l.shown, k)
		default:
			l.shown[k] = id
			if kind = LiveAdded; had {
				kind = LiveChanged
			}
		}
		if l.named != nil {
			l.named[k] = true
		}
		if !l.tell(kind, d) {
			return false
		}
	}
	return true
}

func (l *following[T]) tell(kind LiveKind, d *mooringv1.Document) (more bool) {
	v, err := decode[T](l.c, d)
	return l.yield(Live[T]{kind, v}, err) && err == nil
}
