package docdb

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// cursor holds where a cursor of the engine goes on. It has one getMore at a time.
type cursor struct {
	namespace string
	lsid      string
	// within is the transaction that the cursor was opened in, and snapshot what it reads; nil:
	// none.
	within       *transaction
	snapshot     *snapshot
	continuation []byte  // the engine's own
	stream       *stream // nil: the cursor is no change stream's
}

// pages are the functions that answer with a cursor's first page.
var pages = map[string]string{
	"find":            "find_cursor_first_page",
	"aggregate":       "aggregate_cursor_first_page",
	"listCollections": "list_collections_cursor_first_page",
	"listIndexes":     "list_indexes_cursor_first_page",
}

// page runs a function of the engine that returns a page, and how the cursor goes on behind it.
func (r *request) page(
	function string, args pgx.NamedArgs,
) (page bson.Raw, next []byte, err error) {
	_, err = r.query("cursorpage::bytea, continuation::bytea", " FROM documentdb_api."+function,
		args, (*[]byte)(&page), &next)
	return page, next, err
}

// open answers a command that opens a cursor.
func (r *request) open() (bson.Raw, error) {
	f, args := r.front, r.args(r.Body)
	c := &cursor{lsid: r.lsid, within: r.within, snapshot: r.snapshot}
	id := rand.Int64()
	args["id"] = id
	page, next, err := r.page(pages[r.Name]+"(@db, @body::bytea, @id)", args)
	if err != nil {
		return nil, err
	}
	c.namespace, c.continuation = text(page, "cursor", "ns"), next
	if integer(page, "cursor", "id") != 0 {
		f.keep(id, c)
	}
	return page, nil
}

func (f *Front) keep(id int64, c *cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cursors[id] = c
}

// forget forgets the cursors that a condition is about.
func (f *Front) forget(is func(int64, *cursor) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.cursors, is)
}

// getMore answers with the next page of a cursor.
func (r *request) getMore() (reply bson.Raw, err error) {
	id := integer(r.Body, "getMore")
	f := r.front
	f.mu.Lock()
	c := f.cursors[id]
	f.mu.Unlock()
	switch {
	case c == nil || c.within != r.within:
		return nil, failure.CursorNotFound.Errorf("cursor id %d not found", id)
	case c.lsid != r.lsid:
		return nil, failure.Unauthorized.Errorf("cursor %d was opened in another session", id)
	case r.Database+"."+text(r.Body, "collection") != c.namespace:
		return nil, failure.Unauthorized.Errorf("cursor %d is one of %s", id, c.namespace)
	case c.stream != nil:
		reply, err = r.nextEvents(id, c)
	default:
		reply, err = r.nextPage(c)
	}
	if integer(reply, "cursor", "id") == 0 { // also of no reply
		f.forget(func(other int64, _ *cursor) bool { return other == id })
	}
	return reply, err
}

func (r *request) nextPage(c *cursor) (page bson.Raw, err error) {
	args := r.args(r.Body)
	args["continuation"] = c.continuation
	err = r.read(c.snapshot, func() (err error) {
		page, c.continuation, err = r.page(
			"cursor_get_more(@db, @body::bytea, @continuation::bytea)", args)
		return err
	})
	return page, err
}

func (r *request) killCursors() (bson.Raw, error) {
	killed, unknown := []int64{}, []int64{}
	ids, _ := field(r.Body, "cursors").Array()
	for _, v := range ids.All() {
		id, _ := v.AsInt64()
		unknown = append(unknown, id)
	}
	r.front.forget(func(id int64, _ *cursor) bool {
		i := slices.Index(unknown, id)
		if i >= 0 {
			killed = append(killed, id)
			unknown = slices.Delete(unknown, i, i+1)
		}
		return i >= 0
	})
	// The engine passes over the ids that are not its own.
	_, err := r.call("documentdb_api_internal.delete_cursors(@ids)", pgx.NamedArgs{"ids": killed})
	b := bson.NewBuilder(nil)
	appendList(b, "cursorsKilled", killed, b.Int64)
	appendList(b, "cursorsNotFound", unknown, b.Int64)
	b.OpenArray("cursorsAlive").Close().OpenArray("cursorsUnknown").Close()
	return b.Double("ok", 1).Finish(), err
}
