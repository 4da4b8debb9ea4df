package deployment

import (
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// within adds find's min and max, bounds of an index's key, to a filter.
func within(filter, lower, upper bson.Raw) bson.Raw {
	b := bson.NewBuilder(nil).AppendElements(filter)
	for key, v := range lower.All() {
		b.OpenDocument(key).Value("$gte", v).Close()
	}
	for key, v := range upper.All() {
		b.OpenDocument(key).Value("$lt", v).Close()
	}
	return b.Finish()
}

// indexed is what returnKey leaves of a document here, where _id has the only index.
var indexed = bson.NewBuilder(nil).Int32("_id", 1).Finish()

// projection is which fields find leaves of documents; nil: all.
func projection(find bson.Raw) (bson.Raw, error) {
	key, _ := field(find, "returnKey").Bool()
	record, _ := field(find, "showRecordId").Bool()
	keep := document(find, "projection")
	switch {
	case key:
		return indexed, nil
	case record:
		return nil, fail(badValue, "documents have no record id here")
	}
	for name, v := range keep.All() {
		if name != "_id" && !v.Truthy() || strings.Contains(name, ".") || v.Type == bson.TypeDocument {
			return nil, fail(badValue, "a projection only says which fields stay here: %s", name)
		}
	}
	return keep, nil
}

// projected is a new list of documents with the fields that are kept. Those have their _id unless that is excluded.
func projected(docs []bson.Raw, keep bson.Raw) []bson.Raw {
	if keep.IsEmpty() {
		return docs
	}
	id := field(keep, "_id")
	out := make([]bson.Raw, len(docs))
	for i, doc := range docs {
		b := new(bson.Builder)
		for key, v := range doc.All() {
			if keep.Has(key) && key != "_id" || key == "_id" && (id.IsZero() || id.Truthy()) {
				b.Value(key, v)
			}
		}
		out[i] = b.Finish()
	}
	return out
}
