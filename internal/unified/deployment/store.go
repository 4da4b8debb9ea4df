package deployment

import (
	"slices"
	"strings"
	"sync"

	"github.com/mooringdb/mooring/core/bson"
)

// store is the collections of a deployment, by namespace.
type store struct {
	mu          sync.Mutex
	collections map[string]*collection
}

// collection holds documents in the order of insertion; each has an _id. Documents are never changed, but replaced.
type collection struct {
	docs []bson.Raw
	max  int // of a capped collection, how many documents it holds; 0: it is not capped
}

func newStore() *store { return &store{collections: map[string]*collection{}} }

// collectionLocked is that of the namespace; it is made where there is none.
func (s *store) collectionLocked(namespace string) *collection {
	c, ok := s.collections[namespace]
	if !ok {
		c = &collection{}
		s.collections[namespace] = c
	}
	return c
}

// findLocked is the documents that match, in order, without those that are skipped.
func (s *store) findLocked(namespace string, q query) ([]bson.Raw, error) {
	c, ok := s.collections[namespace]
	if !ok {
		c = &collection{}
	}
	found, err := filtered(c.docs, q.filter)
	if err != nil {
		return nil, err
	}
	if err := sortBy(found, q.sort); err != nil {
		return nil, err
	}
	found = found[min(int(q.skip), len(found)):]
	if q.limit > 0 && q.limit < int64(len(found)) {
		found = found[:q.limit]
	}
	return found, nil
}

// filtered is a new list of the documents that match.
func filtered(docs []bson.Raw, filter bson.Raw) ([]bson.Raw, error) {
	if _, err := matches(filter, nil); err != nil { // one that is wrong is refused without documents, too
		return nil, err
	}
	var found []bson.Raw
	for _, doc := range docs {
		ok, err := matches(filter, doc)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, doc)
		}
	}
	return found, nil
}

// query is what is asked for.
type query struct {
	filter, sort bson.Raw
	skip, limit  int64
}

// insertLocked adds a document, to which it gives an _id where it has none.
func (s *store) insertLocked(namespace string, doc bson.Raw) error {
	id, ok := doc.Lookup("_id")
	if !ok {
		id = bson.ObjectIDValue(bson.NewObjectID())
		doc = bson.PrependID(doc, "_id", id)
	}
	c := s.collectionLocked(namespace)
	if c.index(id) >= 0 {
		return fail(duplicateKey, "E11000 duplicate key error collection: %s index: _id_ dup key", namespace)
	}
	c.docs = append(c.docs, doc.Clone())
	if c.max > 0 && len(c.docs) > c.max {
		c.docs = slices.Delete(c.docs, 0, 1)
	}
	return nil
}

func (c *collection) index(id bson.Value) int {
	return slices.IndexFunc(c.docs, func(doc bson.Raw) bool {
		v, _ := doc.Lookup("_id")
		return equal(v, id)
	})
}

// replaceLocked puts doc in the place of the one with the same _id.
func (s *store) replaceLocked(namespace string, doc bson.Raw) {
	c := s.collectionLocked(namespace)
	id, _ := doc.Lookup("_id")
	c.docs = slices.Clone(c.docs)
	c.docs[c.index(id)] = doc
}

// mergeLocked puts each document, which has an _id, in the place of the one with the same, or adds it.
func (s *store) mergeLocked(namespace string, docs []bson.Raw) {
	c := s.collectionLocked(namespace)
	for _, doc := range docs {
		if id, _ := doc.Lookup("_id"); c.index(id) >= 0 {
			s.replaceLocked(namespace, doc)
		} else {
			c.docs = append(c.docs, doc)
		}
	}
}

func (s *store) deleteLocked(namespace string, doc bson.Raw) {
	c := s.collectionLocked(namespace)
	id, _ := doc.Lookup("_id")
	i := c.index(id)
	c.docs = slices.Delete(slices.Clone(c.docs), i, i+1)
}

// sortBy sorts by the keys of a sort document.
func sortBy(docs []bson.Raw, order bson.Raw) error {
	for key, v := range order.All() {
		if n, ok := v.AsInt64(); !ok || n != 1 && n != -1 {
			return fail(badValue, "$sort key ordering of %s must be 1 or -1", key)
		}
	}
	slices.SortStableFunc(docs, func(a, b bson.Raw) int {
		for key, v := range order.All() {
			direction, _ := v.AsInt64()
			x, _ := a.Lookup(strings.Split(key, ".")...)
			y, _ := b.Lookup(strings.Split(key, ".")...)
			if c := compare(x, y); c != 0 {
				return c * int(direction)
			}
		}
		return 0
	})
	return nil
}

// Sorted are the contents of a collection, sorted by _id.
func (d *Deployment) Sorted(namespace string) []bson.Raw {
	docs, _ := d.Documents(namespace)
	slices.SortStableFunc(docs, func(a, b bson.Raw) int { return compare(field(a, "_id"), field(b, "_id")) })
	return docs
}
