package handle

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/address"
)

// Info describes an open handle.
type Info struct {
	ID        string
	Kind      Kind
	Principal string
	// Database and Collection are the namespace that it was opened on.
	Database, Collection string
	// Server holds it; Pinned: over a connection of its own, so that it cannot leave its replica.
	Server address.Address
	Pinned bool
	// Busy: a call works on it. Then it does not expire.
	Busy    bool
	Opened  time.Time // in whole milliseconds
	LastUse time.Time // when the last call ended, or the one began that is running
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

// Mark identifies a place in the list. Handles are listed in the order in which they were opened,
// and by their ids within a millisecond.
type Mark struct {
	Opened time.Time
	ID     string
}

// Mark returns the handle's place in the list.
func (i Info) Mark() Mark { return Mark{Opened: i.Opened, ID: i.ID} }

// Compare orders marks.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(m.Opened.Compare(o.Opened), strings.Compare(m.ID, o.ID))
}

// List returns open handles in the order of their marks.
func (t *Table) List(q Query) []Info {
	if q.Limit <= 0 {
		return nil
	}
	infos := t.matching(q)
	slices.SortFunc(infos, func(a, b Info) int { return a.Mark().Compare(b.Mark()) })
	return infos[:min(len(infos), q.Limit)]
}

func (t *Table) matching(q Query) []Info {
	t.mu.Lock()
	defer t.mu.Unlock()
	var infos []Info
	for _, thing := range t.things {
		h := thing.handle()
		if !h.counted || h.Opened.Before(q.After.Opened) {
			continue
		}
		if info := h.info(); q.matches(&info) {
			infos = append(infos, info)
		}
	}
	return infos
}

func (h *Handle) info() Info {
	info := Info{
		ID: h.ID.String(), Kind: h.Kind, Principal: h.Principal, Pinned: h.settled.Pinned,
		Busy: h.work != nil, Opened: h.Opened, LastUse: h.lastUse,
	}
	if !info.Busy {
		info.Expires = h.expires
	}
	h.thing.Describe(&info)
	return info
}

func (q *Query) matches(i *Info) bool {
	return (q.Principal == nil || *q.Principal == i.Principal) &&
		(q.Database == "" || q.Database == i.Database) &&
		(q.Collection == "" || q.Collection == i.Collection) &&
		(q.Pinned == nil || *q.Pinned == i.Pinned) &&
		i.Mark().Compare(q.After) > 0
}

// Kill ends a handle and what it stands for, even if a call works on it. It returns ErrNotFound
// for an id that is not in the table.
func (t *Table) Kill(ctx context.Context, id string) error {
	key, ok := parseID(id)
	if !ok {
		return ErrNotFound
	}
	var thing Thing
	var w *Work
	t.Do(func(l *Locked) {
		if found := l.Get(key); found != nil && found.handle().counted {
			thing, w = found, l.Remove(found, ErrKilled)
		}
	})
	if thing == nil {
		return ErrNotFound
	}
	return EndRemoved(ctx, thing, w)
}
