package deployment

import (
	"slices"
	"strings"
	"sync"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// store holds the collections of a deployment, by namespace, and how they became what they are.
type store struct {
	mu          sync.Mutex
	collections map[string]*collection
	log         []entry
	changed     chan struct{} // closed, and replaced, at each change
	// past are those of a store with a clock: one for each versionEvery entries of the log.
	past  []version
	clock *clock // nil: the store is a copy, whose changes have no time of their own
}

// version holds the collections of a store as they were behind the first entries of its log.
type version struct {
	entries     int
	collections map[string]*collection
}

// versionEvery is how many entries of the log are replayed at most for a store of the past.
const versionEvery = 512

// entry holds one change of a store. Its documents are never changed.
type entry struct {
	at            timestamp
	kind          string // the operationType of change streams; "": these do not see it
	namespace     string
	before, after bson.Raw // the document that changed
	target        string   // the namespace that a rename gives
	nsType        string   // of a collection that was created
	images        bool     // the collection has changeStreamPreAndPostImages
	apply         func(*store)
}

// id returns the _id of the document that changed, or the zero Value.
func (e entry) id() bson.Value {
	if e.before != nil {
		return field(e.before, "_id")
	}
	return field(e.after, "_id")
}

// doLocked makes a change and writes it down.
func (s *store) doLocked(e entry) {
	if s.clock != nil {
		e.at = s.clock.tick()
	}
	s.recordLocked(e)
}

// recordLocked makes a change and writes it down with the time that it has already.
func (s *store) recordLocked(e entry) {
	if c := s.collections[e.namespace]; c != nil {
		e.images, _ = field(c.options, "changeStreamPreAndPostImages", "enabled").Bool()
	}
	s.log = append(s.log, e)
	e.apply(s)
	close(s.changed)
	s.changed = make(chan struct{})
	if s.clock != nil && len(s.log)%versionEvery == 0 {
		s.past = append(s.past, version{len(s.log), s.copyLocked()})
	}
}

// changes returns a channel that is closed at the next change.
func (s *store) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// at returns a copy of the store as it was at that time.
func (s *store) at(t timestamp) *store {
	s.mu.Lock()
	defer s.mu.Unlock()
	past := newStore(nil)
	last := len(s.log)
	for last > 0 && s.log[last-1].at.after(t) {
		last--
	}
	if last == len(s.log) {
		past.collections = s.copyLocked()
		return past
	}
	first := 0
	for _, v := range slices.Backward(s.past) {
		if v.entries <= last {
			first, past.collections = v.entries, copyOf(v.collections)
			break
		}
	}
	for _, e := range s.log[first:last] {
		e.apply(past)
	}
	return past
}

func (s *store) copyLocked() map[string]*collection { return copyOf(s.collections) }

// copyOf returns a copy that can be changed without changing the original.
func copyOf(collections map[string]*collection) map[string]*collection {
	all := make(map[string]*collection, len(collections))
	for name, c := range collections {
		all[name] = c.clone()
	}
	return all
}

// collection holds documents in the order of insertion; each has an _id. Documents are never
// changed, but replaced.
type collection struct {
	docs    []bson.Raw
	options bson.Raw // as they were created with
	// indexes are those besides idIndex.
	indexes  []bson.Raw
	uuid     bson.Value
	shardKey bson.Raw // nil: it is not sharded
	max      int      // of a capped collection, how many documents it holds; 0: it is not capped
}

// newCollection returns a collection that has never been.
func newCollection(docs []bson.Raw) *collection { return &collection{docs: docs, uuid: newUUID()} }

// clone returns a collection of its own with the same contents. It shares the documents' list up to
// its length; whichever collection adds to it first beyond that gets a list of its own.
func (c *collection) clone() *collection {
	other := *c
	other.docs = slices.Clip(c.docs)
	return &other
}

func newStore(c *clock) *store {
	return &store{
		collections: map[string]*collection{}, clock: c, changed: make(chan struct{}),
	}
}

// lookLocked returns the collection of the namespace, an empty one if there is none.
func (s *store) lookLocked(namespace string) *collection {
	if c, ok := s.collections[namespace]; ok {
		return c
	}
	return &collection{}
}

// collectionLocked returns the collection of the namespace. It makes one if there is none, which
// only an entry's apply may do.
func (s *store) collectionLocked(namespace string) *collection {
	c, ok := s.collections[namespace]
	if !ok {
		c = newCollection(nil)
		s.collections[namespace] = c
	}
	return c
}

// findLocked returns the documents that match, in order, without those that are skipped.
func (s *store) findLocked(namespace string, q query) ([]bson.Raw, error) {
	if q.skip < 0 {
		return nil, failure.BelowLimit.Errorf(
			"BSON field 'skip' value must be >= 0, actual value '%d'", q.skip)
	}
	c := s.lookLocked(namespace)
	docs := c.docs
	if view, _ := field(c.options, "viewOn").Str(); view != "" {
		database, _, _ := strings.Cut(namespace, ".")
		p := pipeline{store: s, database: database}
		stages, _ := field(c.options, "pipeline").Array()
		var err error
		if docs, err = p.runLocked(database+"."+view, bson.Value{}, stages); err != nil {
			return nil, err
		}
	}
	if err := c.checkHint(q.hint); err != nil {
		return nil, err
	}
	found, err := q.scope.filtered(docs, q.filter)
	if err != nil {
		return nil, err
	}
	if err := q.scope.sortBy(found, q.sort); err != nil {
		return nil, err
	}
	found = found[min(int(q.skip), len(found)):]
	if q.limit > 0 && q.limit < int64(len(found)) {
		found = found[:q.limit]
	}
	return found, nil
}

// idIndex is the index that every collection has.
var idIndex = bson.NewBuilder(nil).Int32("v", 2).OpenDocument("key").Int32("_id", 1).Close().
	String("name", "_id_").Finish()

// checkHint refuses a hint that is not an index: its name, or its keys.
func (c *collection) checkHint(hint bson.Value) error {
	if hint.IsZero() {
		return nil
	}
	for _, index := range append(slices.Clone(c.indexes), idIndex) {
		if hint.Equal(field(index, "name")) || hint.Equal(field(index, "key")) {
			return nil
		}
	}
	return failure.BadValue.Errorf("hint provided does not correspond to an existing index")
}

// filtered returns a new list of the documents that match.
func (s scope) filtered(docs []bson.Raw, filter bson.Raw) ([]bson.Raw, error) {
	// one that is wrong is refused without documents, too
	if _, err := s.matches(filter, nil); err != nil {
		return nil, err
	}
	var found []bson.Raw
	for _, doc := range docs {
		ok, err := s.matches(filter, doc)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, doc)
		}
	}
	return found, nil
}

// query holds what a command asks for.
type query struct {
	scope        scope
	filter, sort bson.Raw
	skip, limit  int64
	hint         bson.Value
}

// insertLocked adds a document, to which it gives an _id where it has none.
// With bypass, no validator is asked.
func (s *store) insertLocked(namespace string, doc bson.Raw, bypass bool) error {
	id, ok := doc.Lookup("_id")
	if !ok {
		id = bson.ObjectIDValue(bson.NewObjectID())
		doc = bson.PrependID(doc, "_id", id)
	}
	c := s.lookLocked(namespace)
	if c.index(id) >= 0 && c.kind() != "timeseries" { // which has no index of _id
		return duplicate(namespace, idIndex, doc)
	}
	if err := c.allows(namespace, nil, doc, bypass); err != nil {
		return err
	}
	doc = doc.Clone()
	s.doLocked(entry{kind: "insert", namespace: namespace, after: doc, apply: func(s *store) {
		c := s.collectionLocked(namespace)
		c.docs = append(c.docs, doc)
		if c.max > 0 && len(c.docs) > c.max {
			c.docs = c.docs[1:]
		}
	}})
	return nil
}

func (c *collection) index(id bson.Value) int {
	return slices.IndexFunc(c.docs, func(doc bson.Raw) bool {
		v, _ := doc.Lookup("_id")
		return scope{}.equal(v, id)
	})
}

// replaceLocked puts doc in the place of the one with the same _id. kind is "update" or "replace".
// With bypass, no validator is asked.
func (s *store) replaceLocked(kind, namespace string, doc bson.Raw, bypass bool) error {
	id, _ := doc.Lookup("_id")
	c := s.lookLocked(namespace)
	before := c.docs[c.index(id)]
	if err := c.allows(namespace, before, doc, bypass); err != nil {
		return err
	}
	s.doLocked(entry{
		kind: kind, namespace: namespace, before: before, after: doc,
		apply: func(s *store) {
			c := s.collectionLocked(namespace)
			c.docs = slices.Clone(c.docs)
			c.docs[c.index(id)] = doc
		},
	})
	return nil
}

// mergeLocked puts each document, which has an _id, in the place of the one with the same, or adds
// it. With failing, one that is there is an error.
func (s *store) mergeLocked(
	namespace string, docs []bson.Raw, failing, bypass bool,
) error {
	for _, doc := range docs {
		id, _ := doc.Lookup("_id")
		if failing || s.lookLocked(namespace).index(id) < 0 {
			if err := s.insertLocked(namespace, doc, bypass); err != nil {
				return err
			}
			continue
		}
		if err := s.replaceLocked("replace", namespace, doc, bypass); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) deleteLocked(namespace string, doc bson.Raw) {
	id, _ := doc.Lookup("_id")
	s.doLocked(entry{kind: "delete", namespace: namespace, before: doc, apply: func(s *store) {
		c := s.collectionLocked(namespace)
		i := c.index(id)
		c.docs = slices.Delete(slices.Clone(c.docs), i, i+1)
	}})
}

// sortBy sorts by the keys of a sort document.
func (s scope) sortBy(docs []bson.Raw, order bson.Raw) error {
	for key, v := range order.All() {
		if n, ok := v.AsInt64(); !ok || n != 1 && n != -1 {
			return failure.BadValue.Errorf("$sort key ordering of %s must be 1 or -1", key)
		}
	}
	slices.SortStableFunc(docs, func(a, b bson.Raw) int {
		for key, v := range order.All() {
			direction, _ := v.AsInt64()
			x, _ := a.Lookup(strings.Split(key, ".")...)
			y, _ := b.Lookup(strings.Split(key, ".")...)
			if c := s.compare(x, y); c != 0 {
				return c * int(direction)
			}
		}
		return 0
	})
	return nil
}

// Sorted returns the contents of a collection, sorted by _id.
func (d *Deployment) Sorted(namespace string) []bson.Raw {
	docs, _ := d.Documents(namespace)
	slices.SortStableFunc(docs, func(a, b bson.Raw) int {
		return scope{}.compare(field(a, "_id"), field(b, "_id"))
	})
	return docs
}
