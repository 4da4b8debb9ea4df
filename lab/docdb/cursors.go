package docdb

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// cursor holds where a cursor of the engine goes on.
type cursor struct {
	namespace string
	database  string
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
	"find":            "documentdb_api.find_cursor_first_page",
	"aggregate":       "documentdb_api.aggregate_cursor_first_page",
	"listCollections": "documentdb_api.list_collections_cursor_first_page",
	"listIndexes":     "documentdb_api.list_indexes_cursor_first_page",
}

// newCursor returns the id of a cursor that is to be opened.
func (f *Front) newCursor() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastCursor++
	return f.lastCursor<<20 | 0xc
}

// open answers a command that opens a cursor.
func (r *request) open() (bson.Raw, error) {
	c := &cursor{database: r.Database, lsid: r.lsid, within: r.within, snapshot: r.snapshot}
	var page []byte
	var at int64
	id := r.front.newCursor()
	err := r.on.QueryRow(r.front.ctx, "SELECT cursorpage::bytea, continuation::bytea, "+lsnColumn+
		" FROM "+pages[r.Name]+"($1, $2::bytea, $3)", r.Database, []byte(r.body), id).
		Scan(&page, &c.continuation, &at)
	if err != nil {
		return nil, err
	}
	r.front.clock.saw(uint64(at))
	c.namespace = text(page, "cursor", "ns")
	if integer(page, "cursor", "id") != 0 {
		r.front.keep(id, c)
	}
	return page, nil
}

func (f *Front) keep(id int64, c *cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cursors[id] = c
}

// getMore answers with the next page of a cursor.
func (r *request) getMore() (bson.Raw, error) {
	id := integer(r.body, "getMore")
	f := r.front
	f.mu.Lock()
	c := f.cursors[id]
	f.mu.Unlock()
	switch {
	case c == nil || c.within != r.within:
		return nil, failure.CursorNotFound.Errorf("cursor id %d not found", id)
	case c.lsid != r.lsid:
		return nil, failure.Unauthorized.Errorf("cursor %d was opened in another session", id)
	case c.database+"."+text(r.body, "collection") != c.namespace:
		return nil, failure.Unauthorized.Errorf("cursor %d is one of %s", id, c.namespace)
	case c.stream != nil:
		return r.nextEvents(id, c)
	}
	var page, continuation []byte
	err := r.read(c.snapshot, func() error {
		return r.on.QueryRow(f.ctx, "SELECT cursorpage::bytea, continuation::bytea FROM "+
			"documentdb_api.cursor_get_more($1, $2::bytea, $3::bytea)", r.Database, []byte(r.body),
			c.continuation).Scan(&page, &continuation)
	})
	if err != nil {
		f.forget(id)
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c.continuation = continuation
	if integer(page, "cursor", "id") == 0 {
		delete(f.cursors, id)
	}
	return page, nil
}

func (f *Front) forget(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.cursors, id)
}

func (r *request) killCursors() (bson.Raw, error) {
	var killed, unknown, engines []int64
	ids, _ := field(r.body, "cursors").Array()
	r.front.mu.Lock()
	for _, v := range ids.All() {
		id, _ := v.AsInt64()
		c := r.front.cursors[id]
		if c == nil {
			unknown = append(unknown, id)
			continue
		}
		killed = append(killed, id)
		delete(r.front.cursors, id)
		if c.stream == nil && c.within == nil {
			engines = append(engines, id)
		}
	}
	r.front.mu.Unlock()
	if len(engines) > 0 {
		if _, err := r.call("documentdb_api_internal.delete_cursors($1)", engines); err != nil {
			return nil, err
		}
	}
	b := bson.NewBuilder(nil)
	appendList(b, "cursorsKilled", killed, b.Int64)
	appendList(b, "cursorsNotFound", unknown, b.Int64)
	b.OpenArray("cursorsAlive").Close().OpenArray("cursorsUnknown").Close()
	return b.Double("ok", 1).Finish(), nil
}

// killOf forgets the cursors that a condition is about.
func (f *Front) killOf(is func(*cursor) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, c := range f.cursors {
		if is(c) {
			delete(f.cursors, id)
		}
	}
}
