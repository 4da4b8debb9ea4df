package replicaset

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// newCopy returns the place of a new, empty copy of a collection.
func (s *Server) newCopy(of namespace) place {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies++
	return place{of, namespace{internalDatabase, fmt.Sprintf("c%d", s.copies)}}
}

// copyOf copies a collection with its indexes. The caller has the turn.
func (s *Server) copyOf(of namespace) (place, error) {
	p := s.newCopy(of)
	docs, err := s.contents(of)
	if err != nil {
		return p, err
	}
	return p, errors.Join(s.fill(p, docs), s.copyIndexes(p))
}

// contents returns the documents of a collection.
func (s *Server) contents(of namespace) ([]bson.Raw, error) {
	return s.all(bson.NewBuilder(nil).String("find", of.coll).Int32("batchSize", 10_000), of)
}

// fill puts documents into a copy.
func (s *Server) fill(p place, docs []bson.Raw) error {
	for len(docs) > 0 {
		n := min(largest(docs), 10_000)
		b := bson.NewBuilder(nil).String("insert", p.at.coll).OpenArray("documents")
		for _, doc := range docs[:n] {
			b.Document("", doc)
		}
		if _, err := s.ask(b.Close(), p.at.db); err != nil {
			return err
		}
		docs = docs[n:]
	}
	return nil
}

func (s *Server) copyIndexes(p place) error {
	indexes, err := s.all(bson.NewBuilder(nil).String("listIndexes", p.of.coll), p.of)
	if failure.NamespaceNotFound.Is(err) {
		return nil
	}
	if err != nil {
		return err
	}
	b := bson.NewBuilder(nil).String("createIndexes", p.at.coll).OpenArray("indexes")
	n := 0
	for _, index := range indexes {
		if name, _ := field(index, "name").Str(); name != "_id_" {
			b.Document("", bson.Without(index, "v", "ns"))
			n++
		}
	}
	if n == 0 {
		return nil
	}
	_, err = s.ask(b.Close(), p.at.db)
	return err
}

// dropCopy removes a copy, and the cursors on it.
func (s *Server) dropCopy(p place) {
	s.mu.Lock()
	for id, c := range s.cursors {
		if c.place.at == p.at {
			delete(s.cursors, id)
		}
	}
	s.mu.Unlock()
	// A copy that cannot be dropped ends with the process.
	_, _ = s.ask(bson.NewBuilder(nil).String("drop", p.at.coll), p.at.db)
}

// readAt runs a read that may open a cursor. A copy that is the read's own ends with the cursor.
func (s *Server) readAt(cmd *fakemongo.Command, p place, own bool) (bson.Raw, error) {
	reply, err := s.pass(p.moved(cmd), cmd.Sequences)
	id := integer(reply, "cursor", "id")
	if id != 0 && p.of != p.at {
		s.mu.Lock()
		s.cursors[id] = &cursor{place: p, own: own}
		s.mu.Unlock()
	} else if own {
		s.dropCopy(p)
	}
	return p.told(reply), err
}

// readSnapshot reads a collection as it was at a time, from a copy in which later changes are
// undone.
func (s *Server) readSnapshot(cmd *fakemongo.Command) (bson.Raw, error) {
	switch cmd.Name {
	case "find", "aggregate", "distinct":
	default:
		return nil, failure.InvalidOptions.Errorf("%s does not support read concern level snapshot",
			cmd.Name)
	}
	at := timestampOf(field(cmd.Body, "readConcern", "atClusterTime"))
	p := s.newCopy(namespaceOf(cmd))
	s.data.RLock()
	if at == (timestamp{}) {
		at = s.log.now()
	}
	docs, err := s.past(p.of, at)
	s.data.RUnlock()
	if err == nil {
		err = s.fill(p, docs)
	}
	if err != nil {
		return nil, err
	}
	reply, err := s.readAt(cmd, p, true)
	return fakemongo.WithSnapshotTime(reply, at.value()), err
}

// past returns the documents of a collection as they were at a time. The caller holds data.
func (s *Server) past(of namespace, at timestamp) ([]bson.Raw, error) {
	docs, err := s.contents(of)
	later, _, _, ok := s.log.after(position{at: at, part: last})
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, failure.SnapshotTooOld.Errorf(
			"the oplog does not reach back to the snapshot's time")
	}
	return undone(docs, of, later)
}

// undone takes changes back, the newest first. Documents that were deleted come back at the end.
func undone(docs []bson.Raw, of namespace, later []change) ([]bson.Raw, error) {
	now := map[string]bson.Raw{}
	var order []string
	for _, doc := range docs {
		key := keyOf(idOf(doc))
		now[key] = doc
		order = append(order, key)
	}
	for i := len(later) - 1; i >= 0; i-- {
		c := later[i]
		if c.ns != of && c.to != of {
			continue
		}
		if c.id().IsZero() {
			return nil, failure.SnapshotUnavailable.Errorf(
				"%s has been dropped or renamed since", of)
		}
		key := keyOf(c.id())
		if c.after == nil {
			order = append(order, key)
		}
		now[key] = c.before
	}
	docs = docs[:0:0]
	for _, key := range order {
		if doc := now[key]; doc != nil {
			docs = append(docs, doc)
			delete(now, key)
		}
	}
	return docs, nil
}

// parse returns the namespace of a name with a dot.
func parse(name string) namespace {
	db, coll, _ := strings.Cut(name, ".")
	return namespace{db, coll}
}
