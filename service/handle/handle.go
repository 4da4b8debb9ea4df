// Package handle keeps what outlives a request: for now, cursors that are read in pages. A client holds a sealed token, which it can
// neither read nor change; the gateway holds the rest of the last batch, the last page, and which pages were granted.
//
// A getMore cannot be repeated, so a repeated token must never skip a page silently: each page is granted once (see position), fetched to
// the end although the client goes away (operation.Operation's RunOn), and remembered within a memory budget. What the token says is
// enough for a gateway with the same key to continue the cursor, but only the one that served the last page can say what was delivered.
//
// The package knows neither gRPC nor HTTP, and it runs no commands: it calls the cursors that it is given.
package handle

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/batch"
)

// Defaults of Config.
const (
	DefaultIdle       = 10 * time.Minute
	DefaultPageMemory = 32 << 20
	DefaultPageBytes  = 3 << 20
	DefaultMaxCursors = 100_000
)

// Cursor is what a registry needs of *cursor.Cursor. One goroutine at a time uses it.
type Cursor interface {
	Next(ctx context.Context) (cursor.Batch, error)
	Done() bool
	State() cursor.State
	SetBatchSize(n int32)
	SetMaxAwaitTimeMS(ms *int64)
	// SetRunOn says whether a getMore that was sent goes on when the client goes away: it does for pages, not for streams.
	SetRunOn(on bool)
	Close(ctx context.Context) error
}

var _ Cursor = (*cursor.Cursor)(nil)

// Namespace is what a cursor was opened on.
type Namespace struct{ Database, Collection string }

// Config of a registry; zero fields are the defaults.
type Config struct {
	Keys *KeyRing // required
	// Deployment tells deployments apart: a token is good for one only.
	Deployment string
	// Replica is the address at which other replicas reach this one; empty for a single replica.
	Replica string
	// Idle is how long a token is good; each page brings a new one.
	Idle time.Duration
	// PageMemory is how many bytes may be held between two calls: delivered pages, for those who ask again, and what is left of batches
	// that are larger than a page. Less than 0 is none.
	PageMemory int
	// PageBytes is the most that a page holds, unless one document is larger.
	PageBytes int
	// MaxCursors is how many cursors are held, ended ones included whose last page may still be asked for. One more makes the one go that was
	// asked for longest ago.
	MaxCursors int
	// Continue makes a cursor of a state; required.
	Continue func(cursor.State) Cursor
}

// Registry holds the live cursors of one gateway.
//
// One mutex over the fields below it; no I/O under it. A cursor itself belongs to whoever was granted its next page, and once its entry
// is out of the registry he kills it, or, if nobody was, whoever removed it. One goroutine, the janitor, kills those that have expired and
// those for which there was no room.
type Registry struct {
	cfg      Config
	instance instanceID
	janitor  sync.WaitGroup
	stop     context.CancelFunc

	wake chan struct{} // tells the janitor that there are doomed ones

	mu      sync.Mutex
	entries map[cursorID]*entry
	idle    list     // those on which nobody works, in the order in which they expire
	doomed  []*entry // removed, and still to be killed
	memory  memory
	closed  bool
}

// entry is one cursor. Its fields are guarded by the registry's mutex, except those of the holder.
type entry struct {
	id                       cursorID
	principal                string
	namespace                Namespace
	expires                  time.Time
	pos                      position
	before                   position // when the page that is being fetched was granted
	fetch                    *fetch   // nil if nobody works on it
	removed                  bool     // no longer in the registry
	page                     Page     // the last one that was delivered, if it is in the list of pages
	inPages, inRests, inIdle place

	// The holder's: whoever was granted the page, or else has removed the entry.
	cur    Cursor // nil once a stream has taken it
	rest   rest
	sizer  batch.Sizer
	chosen int32 // the client's batch size, which is then the largest; 0: it has none
}

func newEntry(id cursorID, principal string, namespace Namespace) *entry {
	e := &entry{id: id, principal: principal, namespace: namespace}
	e.inPages.e, e.inRests.e, e.inIdle.e = e, e, e
	return e
}

// fetch is somebody's work on a cursor: he fetches a page, or is the stream that took the cursor.
type fetch struct {
	cancel context.CancelCauseFunc // ends it
	done   chan struct{}           // closed when it is over
	// The page, for those who wait for it; ok: there is one. They do not change once done is closed.
	page Page
	ok   bool
}

// New returns a registry. It does nothing until Start.
func New(cfg Config) *Registry {
	cfg.Idle = orDefault(cfg.Idle, DefaultIdle)
	cfg.PageMemory = orDefault(cfg.PageMemory, DefaultPageMemory)
	cfg.PageBytes = orDefault(cfg.PageBytes, DefaultPageBytes)
	cfg.MaxCursors = orDefault(cfg.MaxCursors, DefaultMaxCursors)
	r := &Registry{cfg: cfg, entries: map[cursorID]*entry{}, stop: func() {}, wake: make(chan struct{}, 1)}
	r.memory.budget = max(cfg.PageMemory, 0)
	_, _ = rand.Read(r.instance[:]) // never fails
	return r
}

func orDefault[T ~int | ~int64](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// Start begins to look for expired cursors. ctx is for its values only; Close ends it.
func (r *Registry) Start(ctx context.Context) error {
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.janitor.Go(func() { r.sweep(ctx) })
	return nil
}

// Close ends the registry: its goroutine, the page calls that still run, and, if no other gateway could continue them, its
// cursors. Those of a configured key stay on their servers, where they end with their own timeout: a client may continue them at another
// replica, or here after a restart. It waits, and kills, until ctx ends.
func (r *Registry) Close(ctx context.Context) error {
	r.stop()
	r.janitor.Wait()
	r.mu.Lock()
	r.closed = true
	left := r.doomed
	var busy []*fetch
	for _, e := range r.entries {
		if f := r.removeLocked(e, ErrClosing); f != nil {
			busy = append(busy, f)
		} else if r.cfg.Keys.Ephemeral() {
			left = append(left, e)
		}
	}
	r.mu.Unlock()
	for _, f := range busy {
		if err := f.wait(ctx); err != nil {
			return err
		}
	}
	killAll(ctx, left)
	return nil
}

// Len is the number of cursors that are held, ended ones included whose last page may still be asked for.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries)
}

// removeLocked takes an entry out and tells whoever works on it to stop. If that is somebody, he kills the cursor at the end of the
// work that is returned; if it is nil, the caller kills.
func (r *Registry) removeLocked(e *entry, cause error) *fetch {
	e.removed = true
	delete(r.entries, e.id)
	r.memory.forget(e)
	r.unsettleLocked(e)
	if e.fetch != nil {
		e.fetch.cancel(cause)
	} else {
		e.rest = rest{}
	}
	return e.fetch
}

// wait waits until it is over.
func (f *fetch) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// kill ends the cursor on its server. Nobody works on the entry, and nobody will.
func (e *entry) kill(ctx context.Context) {
	e.rest = rest{}
	if e.cur == nil {
		return
	}
	_ = e.cur.Close(ctx) // never fails, and does not end with ctx
	e.cur = nil
}
