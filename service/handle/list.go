package handle

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/address"
)

// Kind is what a handle stands for.
type Kind string

// KindCursor is the only one for now.
const KindCursor Kind = "cursor"

// Info describes an open handle.
type Info struct {
	ID        string
	Kind      Kind
	Principal string
	Namespace Namespace
	// Server holds the cursor; Pinned: over a connection of its own, so that it cannot leave its replica.
	Server address.Address
	Pinned bool
	// Busy: a page is being fetched, or a stream has taken the cursor. Then it does not expire.
	Busy    bool
	Opened  time.Time // in whole milliseconds: it goes with the cursor to other replicas
	LastUse time.Time // when the last page was delivered here, or the call began that is running
	Expires time.Time // zero while it is busy
	Pages   uint64    // that were delivered
	Replica string    // that holds it; empty for a single one
}

// Query chooses handles. The zero value chooses none, since its Limit is 0.
type Query struct {
	// Principal, Pinned: nil is any. Database, Collection: empty is any.
	Principal            *string
	Database, Collection string
	Pinned               *bool
	// After is the handle behind which the list begins; zero: from the oldest.
	After Mark
	// Limit is the most that are listed.
	Limit int
}

// Mark is a place in the list: handles are listed in the order in which they were opened, and by their ids within a millisecond.
type Mark struct {
	Opened time.Time
	ID     string
}

// Mark is the handle's place in the list.
func (i Info) Mark() Mark { return Mark{Opened: i.Opened, ID: i.ID} }

// Compare orders marks.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(m.Opened.Compare(o.Opened), strings.Compare(m.ID, o.ID))
}

// Handles lists open cursors of this replica, in the order of their marks.
func (r *Registry) Handles(q Query) []Info {
	if q.Limit <= 0 {
		return nil
	}
	infos := r.matching(q)
	slices.SortFunc(infos, func(a, b Info) int { return a.Mark().Compare(b.Mark()) })
	return infos[:min(len(infos), q.Limit)]
}

func (r *Registry) matching(q Query) []Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	var infos []Info
	for _, e := range r.entries {
		if e.counted && q.matches(e) {
			if info := r.infoLocked(e); info.Mark().Compare(q.After) > 0 {
				infos = append(infos, info)
			}
		}
	}
	return infos
}

func (q *Query) matches(e *entry) bool {
	return (q.Principal == nil || *q.Principal == e.principal) &&
		(q.Database == "" || q.Database == e.namespace.Database) &&
		(q.Collection == "" || q.Collection == e.namespace.Collection) &&
		(q.Pinned == nil || *q.Pinned == e.pinned) &&
		!e.opened.Before(q.After.Opened)
}

// handleID is the cursor's name in lists.
func (e *entry) handleID() string { return hex.EncodeToString(e.id[:]) }

func (r *Registry) infoLocked(e *entry) Info {
	info := Info{
		ID: e.handleID(), Kind: KindCursor, Principal: e.principal, Namespace: e.namespace, Server: e.server, Pinned: e.pinned,
		Busy: e.fetch != nil, Opened: e.opened, LastUse: e.lastUse, Pages: e.pages, Replica: r.cfg.Replica,
	}
	if !info.Busy {
		info.Expires = e.expires
	}
	return info
}

// Kill ends a cursor of this replica, whoever works on it. An id that is not here is ErrHandleNotFound.
func (r *Registry) Kill(ctx context.Context, id string) error {
	var key CursorID
	if n, err := hex.Decode(key[:], []byte(id[:min(len(id), 2*len(key))])); err != nil || n != len(key) || len(id) != 2*len(key) {
		return ErrHandleNotFound
	}
	r.mu.Lock()
	e := r.entries[key]
	if e == nil || !e.counted {
		r.mu.Unlock()
		return ErrHandleNotFound
	}
	f := r.removeLocked(e, ErrCursorNotFound)
	r.mu.Unlock()
	return e.end(ctx, f)
}
