package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
)

// The reasons, besides errors of its source, that end a subscription.
var (
	// ErrBehind ends a subscription that needs events which the ring no longer holds, if no source
	// can be opened for it to catch up. The client may subscribe again with its token.
	ErrBehind = errors.New("the change stream is behind, and no other can be opened to catch up")
	// ErrGreedy ends a subscription whose filter takes too many steps, beside those of others: see
	// Filter.Within.
	ErrGreedy = fmt.Errorf("%w: its filter takes too many steps", ErrBehind)
	// ErrClosed ends all subscriptions of a hub that is closed.
	ErrClosed = errors.New("the hub of change streams is closed")
)

// Error ends a subscription. Token is the last resume token of the subscriber, after which it can
// subscribe again if Err allows that; nil: it has none.
type Error struct {
	Token bson.Raw
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Key identifies a source: subscribers with equal keys share one. Options holds anything else in
// which streams differ, in an encoding that the caller chooses.
type Key struct {
	Database, Collection                   string
	FullDocument, FullDocumentBeforeChange string
	Options                                string
}

// Batch holds what a source has read: events, which stay valid until the next call of Next, and the
// resume token after them; nil: the token is that of the last event.
type Batch struct {
	Events []bson.Raw
	Token  bson.Raw
}

// Source reads a change stream, and resumes it by itself after resumable errors. Next blocks until
// there are events, or until the server's wait for them (maxAwaitTimeMS) is over. All its errors
// are final; io.EOF says that the server has ended the stream. Close is called once, and not during
// Next.
type Source interface {
	Next(ctx context.Context) (Batch, error)
	Close()
}

// Open opens a source that begins after a resume token, or now if that is nil. It returns the token
// at which the source begins; nil: the server gives none. The hub may call it as long as any
// subscriber of the same key exists, and may keep a source for longer than the subscriber whose
// Open it was. If there is no room for a source, Open must return ErrBehind.
type Open func(ctx context.Context, after bson.Raw) (Source, bson.Raw, error)

// Account counts the bytes of events in memory. Its methods do not block. *admission.Account
// implements it.
type Account interface {
	// Spare charges bytes if they fit, and reports whether they do.
	Spare(n int64) bool
	// Force charges bytes, whether or not they fit.
	Force(n int64)
	Shrink(n int64)
}

// Config configures a Hub. Account and RingBytes are required.
type Config struct {
	// Account is charged for events that no subscriber has taken. See Reader.
	Account Account
	// RingBytes is the most bytes that the ring of one source takes, unless the newest reply of the
	// source alone takes more.
	RingBytes int
	// MaxCatchUps is how many subscribers may catch up at a time; 0: none.
	MaxCatchUps int
	// MaxSteps is how many steps all filters of a source take for a new event, if no subscriber
	// comes meanwhile and each takes more than MinSteps; 0: any number. See Filter.Within.
	MaxSteps int
	// MinSteps is how many steps each filter may take in any case.
	MinSteps int
	// MaxTaken is how many bytes of events the account of a Reader should permit; 0: any number.
	// The hub does not look at it.
	MaxTaken int64
	// Linger is how long a source stays open after its last subscriber; 0: 30 s.
	Linger time.Duration
	// MaxLingering is how many sources without a subscriber stay open; 0: none.
	MaxLingering int
	// Progress is how often a subscriber without events gets a newer token; 0: 10 s.
	Progress time.Duration
}

// Hub gives subscribers the events of sources that they share. It is safe for concurrent use.
//
// Each shared source has a feed, whose goroutine reads it into a ring. A subscriber that catches up
// reads its own source in the goroutine that calls TryNext.
type Hub struct {
	cfg  Config
	ctx  context.Context //nolint:containedctx // it is the hub's, and ends with it
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	// mu guards the fields below. feed.mu is not taken under it.
	mu       sync.Mutex
	feeds    map[Key]*feed
	catchUps int
	// lingering counts the feeds whose linger is set.
	lingering int
	closed    bool
}

// New returns a hub, which the caller must close.
func New(cfg Config) *Hub {
	if cfg.Linger == 0 {
		cfg.Linger = 30 * time.Second
	}
	if cfg.MaxSteps == 0 {
		cfg.MaxSteps = math.MaxInt
	}
	if cfg.Progress == 0 {
		cfg.Progress = 10 * time.Second
	}
	h := &Hub{cfg: cfg, feeds: map[Key]*feed{}}
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	return h
}

// Close ends all subscriptions with ErrClosed, and blocks until all shared sources are closed. Each
// subscription still has to be closed, which closes the source by which it catches up.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for _, f := range h.feeds {
		h.stayLocked(f)
	}
	h.mu.Unlock()
	h.stop(ErrClosed)
	h.wg.Wait()
}

// Filter decides which events a subscriber gets. Filters with equal Text count as equal, and one
// call of Match for an event decides for all of them. Match must be pure, fast and safe for
// concurrent use; nil keeps all events.
type Filter struct {
	Text  string
	Match func(event bson.Raw) bool
	// Within does what Match does if it takes so many steps at most, and returns how many it takes,
	// or more than these. If all filters of a source take more than Config.MaxSteps for an event,
	// the subscriptions of those end that take more than an equal part, of what others leave as
	// well, and more than Config.MinSteps. Nil: Match takes none.
	Within func(event bson.Raw, steps int) (keeps bool, took int)
	// Marks is true if the subscriber gets no token of an event without the event: such a token
	// names the document.
	Marks bool
}

func (f Filter) keeps(event bson.Raw) bool { return f.Match == nil || f.Match(event) }

func (f Filter) within(event bson.Raw, steps int) (keeps bool, took int) {
	if f.Within == nil {
		return f.keeps(event), 0
	}
	return f.Within(event, steps)
}

// Reader says who reads a subscription.
type Reader struct {
	// Near identifies the connection of the client, so that subscribers on one connection have
	// their turns together; 0: not known.
	Near uint64
	// Who is whose the account is, and comparable.
	Who any
	// Account is charged for the events that the subscriber has taken, unless that of another one
	// is that has them as well. If Spare does not permit more, also of what another's account is
	// charged for, the subscriber catches up until there is room again.
	Account Account
}

// Subscribe returns a subscription to the events after a resume token, or from now on if that is
// nil. The caller must close it. The first subscriber of a key opens its source, and each one that
// catches up its own. Subscribe blocks until the source is open, or ctx ends. Its errors are *Error
// and the cause of ctx.
func (h *Hub) Subscribe(
	ctx context.Context, key Key, filter Filter, after bson.Raw, by Reader, open Open,
) (*Subscription, error) {
	f, err := h.enter(key, open) //nolint:contextcheck // the source outlives the subscriber
	if err != nil {
		return nil, &Error{after, err}
	}
	select {
	case <-f.opened:
	case <-ctx.Done():
		h.leave(f)
		return nil, context.Cause(ctx)
	}
	if f.failed != nil {
		h.leave(f)
		return nil, &Error{after, f.failed}
	}
	s := &Subscription{
		hub: h, feed: f, filter: filter, open: open, token: after.Clone(), most: defaultBatch,
		by: by, turn: turn{wake: make(chan struct{}, 1), near: by.Near},
	}
	if s.begin(after) {
		return s, nil
	}
	if err := s.fallBehind(ctx); err != nil {
		h.leave(f)
		return nil, &Error{s.token, err}
	}
	return s, nil
}

// enter returns the feed of a key, which it starts if there is none, with one more subscriber.
func (h *Hub) enter(key Key, open Open) (*feed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	f := h.feeds[key]
	if f == nil {
		f = newFeed(h, key, open)
		h.feeds[key] = f
		f.start()
	}
	f.subscribers++
	h.stayLocked(f)
	return f, nil
}

// stayLocked keeps a feed that was left to end.
func (h *Hub) stayLocked(f *feed) {
	if f.linger != nil {
		f.linger.Stop()
		f.linger = nil
		h.lingering--
	}
}

// leave takes a subscriber from a feed. The last one leaves it to end after a while, or now if
// others linger.
func (h *Hub) leave(f *feed) {
	h.mu.Lock()
	f.subscribers--
	switch last := f.subscribers == 0 && h.feeds[f.key] == f && !h.closed; {
	case last && h.lingering < h.cfg.MaxLingering:
		f.linger = time.AfterFunc(h.cfg.Linger, func() { h.expire(f) })
		h.lingering++
	case last:
		h.removeLocked(f)
		f.cancel()
	}
	h.mu.Unlock()
	h.release(f)
}

// release returns the memory of a feed that has ended and has no subscriber.
func (h *Hub) release(f *feed) {
	h.mu.Lock()
	unused := f.subscribers == 0 && h.feeds[f.key] != f
	h.mu.Unlock()
	if unused {
		f.release(math.MaxInt64)
	}
}

// Reclaim evicts events from the rings until n bytes are free or the rings are empty. Subscribers
// that still need these events catch up.
func (h *Hub) Reclaim(n int64) {
	for _, f := range h.all() {
		if n -= f.release(n); n <= 0 {
			return
		}
	}
}

// MaxCatchUps returns how many subscribers may catch up at a time.
func (h *Hub) MaxCatchUps() int { return h.cfg.MaxCatchUps }

// MaxTaken returns Config.MaxTaken.
func (h *Hub) MaxTaken() int64 { return h.cfg.MaxTaken }

// Stats counts what a hub has open.
type Stats struct {
	Subscribers int
	// Shared counts the shared sources, and CatchUps the subscribers that catch up.
	Shared, CatchUps int
	// RingBytes is how many bytes all rings take.
	RingBytes int64
}

// Stats returns the present figures.
func (h *Hub) Stats() Stats {
	var s Stats
	for _, f := range h.all() {
		s.RingBytes += f.size()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Shared, s.CatchUps = len(h.feeds), h.catchUps
	for _, f := range h.feeds {
		s.Subscribers += f.subscribers
	}
	return s
}

// all returns the feeds that can be subscribed to.
func (h *Hub) all() []*feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.feeds))
}

// with returns a context that ends with ctx and with the hub.
func (h *Hub) with(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.ctx, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// expire ends a feed that still has no subscriber.
func (h *Hub) expire(f *feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.subscribers == 0 && h.feeds[f.key] == f {
		h.removeLocked(f)
		f.cancel()
	}
}

// remove takes a feed that has ended from those that are subscribed to.
func (h *Hub) remove(f *feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLocked(f)
}

func (h *Hub) removeLocked(f *feed) {
	if h.feeds[f.key] == f {
		delete(h.feeds, f.key)
	}
	h.stayLocked(f)
}

// takeCatchUp counts one more source of a subscriber, and reports whether there is room for it.
func (h *Hub) takeCatchUp() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.catchUps >= h.cfg.MaxCatchUps {
		return false
	}
	h.catchUps++
	return true
}

func (h *Hub) giveCatchUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.catchUps--
}
