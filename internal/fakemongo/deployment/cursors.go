package deployment

import (
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

const firstBatch = 101

// cursor holds what is left of a result.
type cursor struct {
	namespace string
	session   string // that opened it
	rest      []bson.Raw
	tailable  bool
	awaitData bool
	query     query         // of a tailable cursor
	ends      bool          // with its last document: the server knows that no more can come
	seen      int           // of a tailable cursor, how many documents it has given
	stream    *changeStream // nil: the cursor is not a change stream's
}

func (h *host) find(cmd *request) (reply, error) {
	keep, err := projection(cmd.Body)
	if err != nil {
		return reply{}, err
	}
	sc, err := newScope(cmd.Body, document(cmd.Body, "collation"))
	if err != nil {
		return reply{}, err
	}
	q := query{
		scope: sc, hint: field(cmd.Body, "hint"),
		filter: within(document(cmd.Body, "filter"), document(cmd.Body, "min"),
			document(cmd.Body, "max")),
		sort: document(cmd.Body, "sort"), skip: integer(cmd.Body, "skip"),
		limit: integer(cmd.Body, "limit"),
	}
	s := cmd.store
	s.mu.Lock()
	found, err := s.findLocked(namespace(cmd), q)
	s.mu.Unlock()
	if err == nil {
		found, err = sc.project(found, keep)
	}
	if err != nil {
		return reply{}, err
	}
	c := &cursor{namespace: namespace(cmd), rest: found, query: q, seen: len(found)}
	c.tailable, _ = field(cmd.Body, "tailable").Bool()
	c.awaitData, _ = field(cmd.Body, "awaitData").Bool()
	single, _ := field(cmd.Body, "singleBatch").Bool()
	c.ends = q.limit > 0
	r, err := h.first(cmd, c, field(cmd.Body, "batchSize"), single)
	sleep, _ := sleepOf(field(q.filter, "$where")) // findLocked has seen that it is right
	r.delay += sleep
	return r, err
}

// first answers with a cursor's first batch, which may be the only one.
func (h *host) first(cmd *request, c *cursor, batchSize bson.Value, only bool) (reply, error) {
	size, given := batchSize.AsInt64()
	if !given {
		size = firstBatch
	}
	batch := c.take(size)
	var id int64
	if !only && c.goesOn(len(batch), size) {
		h.mu.Lock()
		h.lastCursor++
		id = h.lastCursor
		h.cursors[id], c.session = c, sessionOf(cmd.Command)
		h.mu.Unlock()
	}
	return c.reply(id, "firstBatch", batch)
}

// goesOn reports whether the cursor stays open behind a batch. Behind a full one it does: a server
// does not look whether there is more.
func (c *cursor) goesOn(got int, size int64) bool {
	if c.stream != nil {
		return !c.stream.ended || len(c.rest) > 0
	}
	return c.tailable || len(c.rest) > 0 || int64(got) == size && !c.ends
}

func (c *cursor) take(n int64) []bson.Raw {
	n = min(n, int64(len(c.rest)), largest(c.rest))
	batch := c.rest[:n]
	c.rest = c.rest[n:]
	return batch
}

// defaultAwait is how long a getMore without maxTimeMS waits for documents.
const defaultAwait = time.Second

// getMore answers with the next batch. If that is empty, and the cursor is one that awaits
// documents, it blocks until the store has changed or its time is over.
func (h *host) getMore(cmd *request) (reply, error) {
	limit := defaultAwait
	if ms, given := field(cmd.Body, "maxTimeMS").AsInt64(); given && ms > 0 {
		limit = time.Duration(ms) * time.Millisecond
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		changed := cmd.store.changes()
		r, err := h.nextBatch(cmd)
		if err != nil || !r.awaits {
			return r, err
		}
		select {
		case <-changed:
		case <-timeout.C:
			return r, nil
		}
	}
}

func (h *host) nextBatch(cmd *request) (reply, error) {
	id := integer(cmd.Body, "getMore")
	size, given := field(cmd.Body, "batchSize").AsInt64()
	h.mu.Lock()
	defer h.mu.Unlock()
	c, found := h.cursors[id]
	if !found {
		return reply{}, failure.CursorNotFound.Errorf("cursor id %d not found", id)
	}
	if c.session != sessionOf(cmd.Command) {
		return reply{}, failure.Unauthorized.Errorf(
			"Cannot run getMore on cursor %d, which was created in session %q, in session "+
				"%q", id, c.session, sessionOf(cmd.Command))
	}
	if err := c.more(cmd.store); err != nil {
		return reply{}, err
	}
	if !given || size == 0 {
		size = int64(len(c.rest)) + 1
	}
	batch := c.take(size)
	if !c.goesOn(len(batch), size) {
		delete(h.cursors, id)
		id = 0
	}
	r, err := c.reply(id, "nextBatch", batch)
	r.awaits = c.awaitData && id != 0 && len(batch) == 0
	return r, err
}

// more adds what has come behind what a tailable cursor or a change stream has seen.
func (c *cursor) more(s *store) error {
	if c.stream != nil {
		events, err := c.stream.collect()
		c.rest = append(c.rest, events...)
		return err
	}
	if !c.tailable {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	docs, err := s.findLocked(c.namespace, c.query)
	if err != nil {
		return err
	}
	c.rest = append(c.rest, docs[min(c.seen, len(docs)):]...)
	c.seen = max(c.seen, len(docs))
	return nil
}

func (h *host) killCursors(cmd *request) (reply, error) {
	ids, _ := field(cmd.Body, "cursors").Array()
	h.mu.Lock()
	defer h.mu.Unlock()
	return ok(func(b *bson.Builder) {
		b.OpenArray("cursorsKilled")
		var unknown []int64
		for _, v := range ids.All() {
			id, _ := v.AsInt64()
			if h.cursors[id] == nil {
				unknown = append(unknown, id)
				continue
			}
			delete(h.cursors, id)
			b.Int64("", id)
		}
		b.Close().OpenArray("cursorsNotFound")
		for _, id := range unknown {
			b.Int64("", id)
		}
		b.Close().OpenArray("cursorsAlive").Close().OpenArray("cursorsUnknown").Close()
	})
}

func (c *cursor) reply(id int64, name string, batch []bson.Raw) (reply, error) {
	return ok(func(b *bson.Builder) {
		b.OpenDocument("cursor").OpenArray(name)
		for _, doc := range batch {
			b.Document("", doc)
		}
		b.Close().Int64("id", id).String("ns", c.namespace)
		if c.stream != nil {
			b.Document("postBatchResumeToken", c.stream.resumeToken(c.rest))
		}
		b.Close()
	})
}

// OpenCursors returns how many cursors the servers hold.
func (d *Deployment) OpenCursors() int {
	n := 0
	for _, h := range d.hosts {
		h.mu.Lock()
		n += len(h.cursors)
		h.mu.Unlock()
	}
	return n
}
