package changestream

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/flood"
	"github.com/mooringdb/mooring/service/hub"
	"github.com/mooringdb/mooring/service/match"
	"github.com/mooringdb/mooring/service/stream"
)

const (
	// ringBytes is the most that the events of one shared cursor take, or one reply of the server.
	ringBytes = 4 << 20
	// maxLingering is how many shared cursors stay open that no stream uses.
	maxLingering = 8
	// catchUpShare is the part of the cursors of a replica that catch up, and maxCatchUps how many
	// do if there is no limit on cursors.
	catchUpShare = 4
	maxCatchUps  = 1000
	// takenShare is the part of the memory that the streams of one principal may have taken from
	// shared cursors and not sent.
	takenShare = 8
	// maxSteps is how many steps all filters of a shared cursor take for an event: about 20 ms. A
	// thousand everyday filters take a hundredth. Each may take minSteps in any case, about 0.2
	// ms, such as one that looks into an order of 3,000 lines: one more of these must not end all.
	maxSteps = 20 * match.MaxSteps
	minSteps = match.MaxSteps / 8
)

// ringPrincipal is charged for the events in memory that no stream has taken.
var ringPrincipal = admission.Principal{Name: "change streams"}

// NewHub returns the hub of a replica whose change streams may have so many cursors; 0: any number.
// Its memory is charged, and makes room for calls. The caller must close it after all streams.
func NewHub(a *admission.Admission, cursors int64) *hub.Hub {
	most := maxCatchUps
	if cursors > 0 {
		most = int(max(1, cursors/catchUpShare))
	}
	account, taken := &admission.Account{}, int64(0)
	if a != nil {
		a.Open(account, ringPrincipal)
		taken = a.Bytes().Limit / takenShare
	}
	h := hub.New(hub.Config{
		Account: account, RingBytes: ringBytes, MaxCatchUps: most, MaxLingering: maxLingering,
		MaxTaken: taken, MaxSteps: maxSteps, MinSteps: minSteps,
	})
	a.AddReclaim(func(n int64, only *admission.Principal) {
		if only == nil || *only == ringPrincipal {
			h.Reclaim(n)
		}
	})
	return h
}

// opener opens the sources of one stream's subscription.
type opener struct {
	client   *client.Client
	account  *admission.Account // says whose the cursors are
	taken    reader
	streams  *stream.Streams
	catchUps *admission.Count
	ns       client.Namespace
	opt      client.WatchOptions
	asked    atomic.Bool
}

// newOpener returns the opener for a call. It keeps nothing of the request but what its key has.
func (s *Server) newOpener(
	ctx context.Context, ns client.Namespace, opt *client.WatchOptions,
) *opener {
	o := &opener{
		client: s.cfg.Client, streams: s.cfg.Streams, catchUps: s.catchUps, ns: ns,
		account: &admission.Account{},
		opt: client.WatchOptions{
			FullDocument:             opt.FullDocument,
			FullDocumentBeforeChange: opt.FullDocumentBeforeChange,
			ShowExpandedEvents:       opt.ShowExpandedEvents,
		},
	}
	o.opt.Caller, o.opt.RunOn = opt.Caller, true
	admission.From(ctx).OpenFor(o.account)
	o.taken = reader{admission.From(ctx), s.taken, o.account.Principal()}
	return o
}

// reader charges the call of a stream for the events that it has taken from a shared cursor, so
// that the streams that end for memory are those that hold some.
type reader struct {
	call  *admission.Account
	taken *admission.Count
	of    admission.Principal
}

var _ hub.Account = reader{}

// Spare implements hub.Account. The bytes are in memory already: only how many of them the
// principal's streams have taken says whether they fit.
func (r reader) Spare(n int64) bool {
	if !r.taken.TakeSome(r.of, n) {
		return false
	}
	r.call.Force(n)
	return true
}

// Force implements hub.Account.
func (r reader) Force(n int64) {
	r.taken.AddSome(r.of, n)
	r.call.Force(n)
}

// Shrink implements hub.Account.
func (r reader) Shrink(n int64) {
	if n > 0 {
		r.taken.RemoveSome(r.of, n)
		r.call.Shrink(n)
	}
}

// open implements hub.Open.
func (o *opener) open(ctx context.Context, after bson.Raw) (hub.Source, bson.Raw, error) {
	o.asked.Store(true)
	s := &source{streams: o.streams}
	o.account.OpenFor(&s.account)
	if err := s.account.EnterChangeCursor(ctx); err != nil {
		if after != nil {
			err = hub.ErrBehind
		}
		return nil, nil, err
	}
	if after != nil {
		if !o.catchUps.Take(o.account.Principal()) {
			s.leave()
			return nil, nil, hub.ErrBehind
		}
		s.catchUps = o.catchUps
	}
	s.account.GoOn() // a reply for which there is no room waits, and others go on
	opt := o.opt
	opt.StartAfter, opt.BatchSize = after, o.streams.First(batch.Source{}, nil)
	changes, err := o.client.Watch(s.charged(ctx), o.ns, opt)
	if err != nil {
		s.leave()
		return nil, nil, err
	}
	s.changes = changes
	return s, changes.ResumeToken(), nil
}

// source reads a change stream for a hub. Its account has the replies, since it may go on when the
// call that has opened it has ended.
type source struct {
	changes *changestream.Stream
	streams *stream.Streams
	account admission.Account
	// catchUps counts the source if it is of one stream that catches up; nil: it is shared.
	catchUps *admission.Count
	sizer    batch.Sizer
	pace     stream.Pacer
}

var _ hub.Source = (*source)(nil)

// charged returns a context whose replies the source is charged for.
func (s *source) charged(ctx context.Context) context.Context {
	return context.WithValue(ctx, admission.AccountKey{}, &s.account)
}

// Next returns the events of the next reply. They are charged until the next call.
func (s *source) Next(ctx context.Context) (hub.Batch, error) {
	ctx = s.charged(ctx)
	s.account.Shrink(s.account.TakeReplies())
	s.changes.SetBatchSize(s.sizer.Next(s.streams.Target()))
	s.pace.Begin()
	var next hub.Batch
	size := 0
	for {
		event, found, err := s.changes.TryNext(ctx)
		if err != nil && len(next.Events) == 0 {
			return next, err
		}
		if found {
			next.Events = append(next.Events, event)
			size += len(event)
		}
		if !found || err != nil || s.changes.Buffered() == 0 {
			break // an error comes again
		}
	}
	next.Token = s.changes.ResumeToken()
	s.sizer.Saw(len(next.Events), size)
	return next, s.pace.After(ctx, len(next.Events))
}

// Close closes the cursor.
func (s *source) Close() {
	_ = s.changes.Close(context.Background())
	s.leave()
}

func (s *source) leave() {
	if s.catchUps != nil {
		s.catchUps.Remove(s.account.Principal())
	}
	s.account.LeaveChangeCursor()
	s.account.Close()
}

// subscribe returns a stream of the events of a shared cursor.
func (s *Server) subscribe(
	ctx context.Context, of share, o *opener,
) (*hub.Subscription, error) {
	for {
		by := hub.Reader{Near: flood.From(ctx).Number(), Who: o.taken.of, Account: o.taken}
		shared, err := s.cfg.Hub.Subscribe(ctx, of.key, of.hubFilter(), of.after, by, o.open)
		if _, refused := errors.AsType[*admission.Error](err); !refused || o.asked.Load() {
			return shared, err
		}
		// The client that was opening it has used its share, which says nothing of this one's.
	}
}

// sharedChanges reads a shared cursor, until an event comes that only the server can decide about,
// one that the server cannot send, and need not to this stream, or one for which its filter takes
// too many steps beside those of others.
type sharedChanges struct {
	stream.Changes

	of share
	// since is when a stream without a token began; zero: with a token, or it has had an event. The
	// cursor may be behind it. The end of the cursor comes nevertheless.
	since session.Timestamp
	// own opens a stream with the server's $match; nil: it is open.
	own func(ctx context.Context, after bson.Raw) (stream.Changes, error)
}

// TryNext implements stream.Changes.
func (c *sharedChanges) TryNext(ctx context.Context) (bson.Raw, bool, error) {
	before := c.ResumeToken()
	event, found, err := c.Changes.TryNext(ctx)
	for found && isUntil(event, c.since) && !isInvalidate(event) {
		before = c.ResumeToken()
		event, found, err = c.Changes.TryNext(ctx)
	}
	if found {
		c.since = session.Timestamp{}
	}
	switch {
	case c.own == nil:
	case found && c.of.undecided(event):
		return c.goOn(ctx, before, hub.ErrBehind)
	case c.of.needNot(err), errors.Is(err, hub.ErrGreedy):
		return c.goOn(ctx, c.ResumeToken(), err)
	}
	return event, found, err
}

// goOn goes on with the server's $match, or fails if it does not know where.
func (c *sharedChanges) goOn(
	ctx context.Context, after bson.Raw, otherwise error,
) (bson.Raw, bool, error) {
	if after == nil {
		return nil, false, otherwise
	}
	own, err := c.own(ctx, after)
	if err != nil {
		return nil, false, err
	}
	_ = c.Close(ctx)
	c.Changes, c.own = own, nil
	return c.TryNext(ctx)
}

// isUntil reports whether an event is not later than a time, if that is not zero and the event says
// when it was.
func isUntil(event bson.Raw, time session.Timestamp) bool {
	at := timeOf(event)
	return !at.IsZero() && !at.After(time)
}

// timeOf returns when an event was; zero: it does not say.
func timeOf(event bson.Raw) session.Timestamp {
	v, _ := event.Lookup("clusterTime")
	t, i, _ := v.Timestamp()
	return session.Timestamp{T: t, I: i}
}

// ownChanges reads a cursor of a stream's own.
type ownChanges struct {
	*changestream.Stream

	server  *Server
	account *admission.Account
	pace    stream.Pacer
}

// TryNext implements stream.Changes.
func (c *ownChanges) TryNext(ctx context.Context) (bson.Raw, bool, error) {
	c.pace.Begin()
	event, found, err := c.Stream.TryNext(ctx)
	if !found && err == nil {
		err = c.pace.After(ctx, 0)
	}
	return event, found, err
}

// Close closes the cursor.
func (c *ownChanges) Close(ctx context.Context) error {
	defer c.account.LeaveChangeCursor()
	defer c.server.own.Add(-1)
	return c.Stream.Close(ctx)
}

// openOwn opens a stream with a cursor of its own.
func (s *Server) openOwn(
	ctx context.Context, ns client.Namespace, opt client.WatchOptions,
) (stream.Changes, error) {
	account := admission.From(ctx)
	if err := account.EnterChangeCursor(ctx); err != nil {
		return nil, err
	}
	opt.BatchSize, opt.RunOn = s.cfg.Streams.First(batch.Source{}, opt.BatchSize), true
	changes, err := s.cfg.Client.Watch(ctx, ns, opt)
	if err != nil {
		account.LeaveChangeCursor()
		return nil, err
	}
	s.own.Add(1)
	return &ownChanges{Stream: changes, server: s, account: account}, nil
}
