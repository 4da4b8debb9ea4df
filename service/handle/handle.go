// Package handle keeps what outlives a request: for now, cursors that are read in pages. A client holds a sealed token, which it can
// neither read nor change; the gateway holds the rest of the last batch, the last page, and which pages were granted.
//
// A getMore cannot be repeated, so a repeated token must never skip a page silently: each page is granted once (see position), fetched to
// the end although the client goes away (operation.Operation's RunOn), and remembered within a memory budget.
//
// Of several replicas with the same keys, the one that served a cursor's last page holds the cursor. Another one that gets the token for the
// next page asks it, and is granted the page, and with it the cursor; what remains behind is a record of where it went. A cursor that is
// pinned to a connection stays where it was opened: its pages are asked for there. A replica that drains hands over what it has.
//
// The package knows neither gRPC nor HTTP, and it runs no commands: it calls the cursors and the peers that it is given.
package handle

import (
	"context"
	crand "crypto/rand"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/batch"
)

// Defaults of Config.
const (
	DefaultIdle       = 10 * time.Minute
	DefaultPageMemory = 32 << 20
	DefaultPageBytes  = 3 << 20
	DefaultMaxCursors = 100_000

	DefaultMaxPerPrincipal = 100
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
	// Pinned says that it holds a connection: only this process can continue it.
	Pinned() bool
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
	// MaxCursors is how many cursors are known, those included that have come to their end or went elsewhere. One more makes one of these go, or
	// else the one that was asked for longest ago.
	MaxCursors int
	// MaxPerPrincipal is how many open cursors a principal may have when he opens one more; less than 0 is no limit. Without authentication
	// of clients all are one principal.
	MaxPerPrincipal int
	// Continue makes a cursor of a state; required.
	Continue func(cursor.State) Cursor
}

// Registry holds the live cursors of one gateway.
//
// One mutex over the fields below it; no I/O under it. A cursor itself belongs to whoever was granted its next page, and once its entry
// is out of the registry he kills it, or, if nobody was, whoever removed it. The janitor's goroutines kill those that have expired and
// those for which there was no room.
type Registry struct {
	cfg      Config
	peers    Peers // nil: there are none
	instance InstanceID
	// deployment is the configuration's, as tokens have it.
	deployment DeploymentID
	janitor    sync.WaitGroup
	stop       context.CancelFunc
	// plain and pinned are the removed ones that are still to be killed. Those that hold a connection never wait behind the others.
	plain, pinned doomed

	mu        sync.Mutex
	entries   map[CursorID]*entry
	live      list           // those on which nobody works and whose next page may be asked for, in the order in which they expire
	past      list           // the others on which nobody works, in that order
	forgot    time.Time      // when it was last forgotten where a cursor went
	open      map[string]int // open cursors of each principal
	memory    memory
	silences  map[Replica]silence
	draining  bool
	closed    bool          // only records of where cursors went are left
	drained   chan struct{} // closed when Drain is through; nil before it
	drainsErr error         // what it returned
}

// entry is what is known of one cursor. Its fields are guarded by the registry's mutex, except those of the holder.
type entry struct {
	id        CursorID
	principal string
	namespace Namespace
	server    address.Address
	pinned    bool
	live      bool // its next page may be asked for
	counted   bool // among the open ones of its principal
	opened    time.Time
	lastUse   time.Time
	pages     uint64 // that were delivered
	expires   time.Time

	pos     position
	before  position // when the page that is being fetched was granted
	fetch   *fetch   // nil if nobody works on it
	removed bool     // no longer in the registry
	page    Page     // the last one that was delivered, if it is in the list of pages

	// With phaseMoved: who was granted the page, in which attempt, and what he got, as long as there is room for it.
	to      Replica
	attempt uint64
	granted *Holding
	// asking is the attempt in which this replica asks others; unsure: it may have been granted the cursor, and does not know it.
	asking uint64
	unsure bool

	inPages, inRests, inGrants, inIdle place

	// The holder's: whoever was granted the page, or else has removed the entry.
	cur    Cursor // nil once it is elsewhere
	rest   rest
	sizer  batch.Sizer
	chosen int32 // the client's batch size, which is then the largest; 0: it has none
}

func newEntry(id CursorID, principal string, namespace Namespace) *entry {
	e := &entry{id: id, principal: principal, namespace: namespace, asking: newAttempt()}
	e.inPages.e, e.inRests.e, e.inGrants.e, e.inIdle.e = e, e, e, e
	return e
}

// newAttempt tells one asking from the others; 0 is none.
func newAttempt() uint64 { return 1 + rand.Uint64N(math.MaxUint64) }

// fetch is somebody's work on a cursor: he fetches a page, asks other replicas, hands the cursor over, or is the stream that took it.
type fetch struct {
	cancel context.CancelCauseFunc // ends it
	done   chan struct{}           // closed when it is over
	// The page with that number, for those who wait for it; ok: there is one. Or the reason why there is none, if it is one for
	// whoever asks. They do not change once done is closed.
	seq  uint64
	page Page
	ok   bool
	err  error
}

// New returns a registry. It does nothing until Start.
func New(cfg Config) *Registry {
	cfg.Idle = orDefault(cfg.Idle, DefaultIdle)
	cfg.PageMemory = orDefault(cfg.PageMemory, DefaultPageMemory)
	cfg.PageBytes = orDefault(cfg.PageBytes, DefaultPageBytes)
	cfg.MaxCursors = orDefault(cfg.MaxCursors, DefaultMaxCursors)
	cfg.MaxPerPrincipal = orDefault(cfg.MaxPerPrincipal, DefaultMaxPerPrincipal)
	r := &Registry{
		cfg: cfg, entries: map[CursorID]*entry{}, open: map[string]int{}, silences: map[Replica]silence{}, stop: func() {},
		plain: newDoomed(), pinned: newDoomed(), deployment: NewDeploymentID(cfg.Deployment),
	}
	r.memory.budget = max(cfg.PageMemory, 0)
	_, _ = crand.Read(r.instance[:]) // never fails
	return r
}

func orDefault[T ~int | ~int64](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// SetPeers tells how the other replicas are reached. It is called before Start; without it, or without an own address, the registry is alone.
func (r *Registry) SetPeers(p Peers) { r.peers = p }

// SetAddress is for who knows Config.Replica only when he listens. It is called before Start.
func (r *Registry) SetAddress(address string) { r.cfg.Replica = address }

// Self is this replica, as others see it.
func (r *Registry) Self() Replica { return Replica{Address: r.cfg.Replica, Instance: r.instance} }

// alone says that there is nobody to ask: no peers, or no key that they could have.
func (r *Registry) alone() bool {
	return r.peers == nil || r.cfg.Replica == "" || r.cfg.Keys.Ephemeral()
}

// Start begins to look for expired cursors. ctx is for its values only; Close ends it.
func (r *Registry) Start(ctx context.Context) error {
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.janitor.Go(func() { r.sweep(ctx) })
	r.janitor.Go(func() { r.plain.killAll(ctx) })
	r.janitor.Go(func() { r.pinned.killAll(ctx) })
	return nil
}

// Len is the number of cursors that something is known of: ended ones included whose last page may still be asked for, and those that were
// handed over.
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
	r.memory.drop(e)
	r.unsettleLocked(e)
	r.countLocked(e, false)
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
