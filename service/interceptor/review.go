package interceptor

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// A stream is open for as long as its client likes. When the rules of the policy or the API keys
// are replaced, each open stream is decided again, and ends if its client would not be allowed the
// same now.

// live holds the open streams. mu guards streams, and nothing blocks while it is held.
type live struct {
	mu      sync.Mutex
	streams map[*pass]struct{}
}

func (l *live) add(c *pass) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams == nil {
		l.streams = map[*pass]struct{}{}
	}
	l.streams[c] = struct{}{}
}

// remove removes a stream, and reports whether it was there.
func (l *live) remove(c *pass) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, found := l.streams[c]
	delete(l.streams, c)
	return found
}

func (l *live) all() []*pass {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*pass, 0, len(l.streams))
	for c := range l.streams {
		all = append(all, c)
	}
	return all
}

// review ends the open streams whose clients would not be allowed them now. It logs that when all
// have ended: a log may block.
func (x *Chain) review() {
	ended := map[*pass]error{}
	for _, c := range x.live.all() {
		err := x.withdrawn(c)
		if err == nil || !x.live.remove(c) { // it is told once, also if two files change
			continue
		}
		c.place.End(ending{err})
		ended[c] = err
	}
	for c, err := range ended {
		c.logEnd(err)
	}
}

var (
	// errRemoved ends a stream whose client's API key is removed.
	errRemoved = &caller.Error{
		Problem: caller.Invalid, Message: "the API key of the stream is no longer valid",
	}
	// errSooner ends a stream whose client's API key ends sooner than it did when the stream began.
	errSooner = &caller.Error{
		Problem: caller.Invalid,
		Message: "the API key of the stream now expires sooner: open the stream again",
	}
)

// withdrawn returns an error if the client of a call would not be allowed what it was.
func (x *Chain) withdrawn(c *pass) error {
	id, err := x.current(c)
	if err != nil || x.cfg.Policy == nil {
		return err
	}
	return x.cfg.Policy.Still(id, &c.grounds)
}

// removed returns an error if the API key of a stream's client was replaced before the stream was
// one of the open ones: review may have come before. The replica that a client has called decides
// about it.
func (x *Chain) removed(c *pass) error {
	if c.call.Forwarded {
		return nil
	}
	_, err := x.current(c)
	return err
}

// logEnd logs that the policy ends an open stream, if err says so.
func (c *pass) logEnd(err error) {
	if refusal, ok := errors.AsType[*policy.Refusal](err); ok {
		c.logRefusal(context.Background(), "open stream ended by the policy", refusal)
	}
}

// current returns the client of a call as it is now.
func (x *Chain) current(c *pass) (*caller.Identity, error) {
	id := c.call.Identity
	if x.cfg.Callers == nil || id == nil {
		return id, nil
	}
	now, ok := x.cfg.Callers.Current(id)
	switch {
	case !ok:
		return nil, errRemoved
	case !now.Expires.IsZero() && (id.Expires.IsZero() || now.Expires.Before(id.Expires)):
		return nil, errSooner
	}
	return now, nil
}

// rights implements call.Rights.
type rights struct{ *pass }

// Taken returns what the call was allowed by.
func (r rights) Taken() string { return r.grounds.Text() }

// Check returns an error if the client would not be allowed now what another call was. It adds that
// to what this call is allowed by.
func (r rights) Check(taken string) error {
	var g policy.Grounds
	if err := g.Add(taken); err != nil {
		return err
	}
	_ = r.grounds.Add(taken)
	err := r.chain.cfg.Policy.Still(r.call.Identity, &g)
	if refusal, ok := errors.AsType[*policy.Refusal](err); ok {
		r.logRefusal(context.Background(), "request refused by the policy", refusal)
	}
	return err
}

// Since returns since when the replica has the rules and the API keys that it has now.
func (r rights) Since() time.Time {
	since := r.chain.cfg.Policy.Since()
	if callers := r.chain.cfg.Callers; callers != nil && callers.Since().After(since) {
		return callers.Since()
	}
	return since
}

// Event returns what the client of a change stream may see of an event now.
func (r rights) Event(event bson.Raw) (bson.Raw, bool) {
	id, err := r.chain.current(r.pass)
	if err != nil {
		return nil, false
	}
	return r.chain.cfg.Policy.Event(id, event)
}

// Answer returns what the client may see of the document that a request is answered with.
func (r rights) Answer(
	request proto.Message, document bson.Raw, repeated bool,
) (bson.Raw, error) {
	document, err := r.policy.Answer(request, document, repeated)
	if refusal, ok := errors.AsType[*policy.Refusal](err); ok {
		r.logRefusal(context.Background(), "request refused by the policy", refusal)
	}
	return document, err
}

// ending represents why the gateway ends a stream that its client has left open. It counts as a
// cancellation: a command that opens a cursor goes on then, and the cursor is closed.
type ending struct{ err error }

func (e ending) Error() string { return e.err.Error() }

// Unwrap returns the reason and the cancellation.
func (e ending) Unwrap() []error { return []error{e.err, context.Canceled} }

// ended returns the error that the client of a call gets, which failed with err: if the gateway has
// canceled the call, the reason for that.
func (c *pass) ended(ctx context.Context, err error) error {
	if err == nil || !isCanceled(err) {
		return err
	}
	cause := context.Cause(ctx)
	if end, ok := errors.AsType[ending](cause); ok {
		return c.instead(err, end.err)
	}
	if errors.Is(cause, errCut) {
		return c.instead(err, cause)
	}
	return err // the handler itself saw an interrupted send
}

// instead returns the error of a call that was canceled for a reason. It hides nothing that the
// call has done, or may have done.
func (c *pass) instead(err, reason error) error {
	if rpcerr.IsOutcomeUnknown(err) {
		return err
	}
	if partial, ok := errors.AsType[*rpcerr.PartialError](err); ok {
		return &rpcerr.PartialError{Result: partial.Result, Err: reason}
	}
	if c.isOnce() && mongoerr.Judge(err).Delivery == mongoerr.Executed { // unacknowledged
		return &rpcerr.Error{
			Reason:  rpcerr.WriteOutcomeUnknown,
			Message: "a part of the call was sent before it ended: " + reason.Error(),
		}
	}
	return reason
}
