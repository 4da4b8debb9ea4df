package paging

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/seal"
)

// Defaults of Config.
const (
	DefaultUnreadIdle = time.Minute
	DefaultPageMemory = 32 << 20
	DefaultPageBytes  = 3 << 20
)

// Config configures a Pager. Zero fields mean the defaults.
type Config struct {
	Keys *seal.Ring // required
	// Deployment tells deployments apart. A token is valid for one deployment only.
	Deployment string
	// Replica is the address at which other replicas reach this one; empty for a single replica.
	Replica string
	// Idle is how long a token is valid. Each page brings a new one.
	Idle time.Duration
	// UnreadIdle is how long the first token of an Opening that is Casual is valid, if Idle is not
	// less.
	UnreadIdle time.Duration
	// PageMemory is how many bytes may be held between two calls: delivered pages, for clients that
	// ask again, and what is left of batches that are larger than a page. What is left is never
	// dropped; while it fills its memory, no cursor is opened. Less than 0 means that no page is
	// remembered.
	PageMemory int
	// Admission is charged with what cursors keep between two calls, each for its principal; nil:
	// nothing is.
	Admission *admission.Admission
	// PageBytes is the most that a page holds, unless one document is larger.
	PageBytes int
	// Sizes is what is known of the sizes of documents; nil: nothing yet.
	Sizes *batch.Sizes
	// MaxCursors bounds the known cursors, including those that have ended or went to another
	// replica.
	MaxCursors int
	// MaxPerPrincipal is how many open cursors a principal may have when it opens one more; less
	// than 0 means no limit but its share of all (see handle.Config).
	MaxPerPrincipal int
	// Continue makes a cursor of a state; required.
	Continue func(cursor.State) Cursor
}

// Pager holds the cursors of one gateway that are read in pages.
//
// The table's lock guards what its things hold, and the fields of the last group. Nothing blocks
// while it is held. The call that was granted the next page of a cursor owns the cursor.
type Pager struct {
	cfg         Config
	replicas    Replicas // nil: there are none
	instance    page.Instance
	deployment  seal.Deployment
	table       *handle.Table
	drain       *drain
	successions *successions
	owners      *owners

	memory memory
	bound  map[handle.ID][]*held // the cursors of each transaction, oldest first
}

// New returns a pager. It does nothing until Start.
func New(cfg Config) *Pager {
	cfg.UnreadIdle = orDefault(cfg.UnreadIdle, DefaultUnreadIdle)
	cfg.PageMemory = orDefault(cfg.PageMemory, DefaultPageMemory)
	cfg.PageBytes = orDefault(cfg.PageBytes, DefaultPageBytes)
	if cfg.Sizes == nil {
		cfg.Sizes = batch.NewSizes()
	}
	p := &Pager{
		cfg: cfg, deployment: seal.NewDeployment(cfg.Deployment),
		table: handle.New(handle.Config{
			Idle: cfg.Idle, Max: cfg.MaxCursors, MaxPerPrincipal: cfg.MaxPerPrincipal,
		}),
		bound:  map[handle.ID][]*held{},
		owners: newOwners(),
	}
	p.drain = newDrain(p)
	p.successions = newSuccessions(p.table.Idle() + seal.MaxSkew)
	p.cfg.UnreadIdle = min(p.cfg.UnreadIdle, p.table.Idle())
	p.memory.budget, p.memory.shares = max(cfg.PageMemory, 0), map[admission.Principal]int{}
	_, _ = rand.Read(p.instance[:]) // never fails
	return p
}

func orDefault[T ~int | ~int64](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// SetReplicas sets how the other replicas are reached. It is called before Start; without it, or
// without an own address, the pager is alone.
func (p *Pager) SetReplicas(r Replicas) { p.replicas = r }

// SetAddress sets Config.Replica once the listener for replicas is bound. It is called before
// Start.
func (p *Pager) SetAddress(address string) { p.cfg.Replica = address }

// Self returns this replica, as others see it.
func (p *Pager) Self() page.Replica {
	return page.Replica{Address: p.cfg.Replica, Instance: p.instance}
}

// alone reports whether there is no replica to ask: none is configured, or none can have the key.
func (p *Pager) alone() bool {
	return p.replicas == nil || p.cfg.Replica == "" || p.cfg.Keys.Ephemeral()
}

// Table returns the table of the cursors. Other kinds of handles are kept in it, too.
func (p *Pager) Table() *handle.Table { return p.table }

// Start begins to end expired cursors. ctx is for its values only; Close ends it.
func (p *Pager) Start(ctx context.Context) error {
	p.table.Start(ctx)
	return nil
}

// Reclaim drops the oldest pages that are held for clients that ask again, those of one principal
// if only is not nil, until so many bytes are free. Such a client gets ErrCursorTokenReused.
func (p *Pager) Reclaim(bytes int64, only *admission.Principal) {
	p.table.Do(func(*handle.Locked) { p.memory.drop(int(bytes), only) })
}

// Len returns the number of known cursors, including those that have ended, whose last page a
// client may still ask for, and those that went to another replica.
func (p *Pager) Len() int { return p.table.Len() }

// Handles lists open cursors of this replica, in the order of their marks.
func (p *Pager) Handles(q handle.Query) []handle.Info { return p.table.List(q) }

// Kill ends a cursor of this replica, even if a call works on it. It returns handle.ErrNotFound
// for an id that is not here.
func (p *Pager) Kill(ctx context.Context, id string) error { return p.table.Kill(ctx, id) }
