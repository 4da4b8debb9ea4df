package policy

import (
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// normal returns the path of a field without what selects items of an array: positions, $, $[] and
// $[name]. a.0.b and a.$[].b reach what a.b names.
func normal(path string) string {
	if !strings.ContainsAny(path, ".0123456789$") && path != "" {
		return path
	}
	parts := strings.Split(path, ".")
	parts = slices.DeleteFunc(parts, func(part string) bool {
		return part == "" || part == "$" || strings.HasPrefix(part, "$[") ||
			strings.Trim(part, "0123456789") == ""
	})
	return strings.Join(parts, ".")
}

// within reports whether a path is another, or in it.
func within(path, other string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || rest[0] == '.')
}

// touches reports whether a path of a request is one of the paths, in one of them, or has one of
// them in it. A path without a name touches all.
func touches(path string, paths []string) bool {
	if len(paths) == 0 {
		return false
	}
	path = normal(path)
	return path == "" || slices.ContainsFunc(paths, func(other string) bool {
		return within(path, other) || within(other, path)
	})
}

// fieldsOf returns the paths of the fields that a filter looks at, but within $nor and $expr, which
// demand no value.
func fieldsOf(filter bson.Raw) (paths []string) {
	for key, v := range filter.All() {
		if key != "$and" && key != "$or" {
			paths = append(paths, key)
			continue
		}
		list, _ := v.Array()
		for sub := range list.Documents() {
			paths = append(paths, fieldsOf(sub)...)
		}
	}
	return paths
}

// pinned returns the values that all documents that match a filter of a rule have, as the fields of
// a document. It reports false if the filter also looks at other fields, or at other values.
func pinned(filter bson.Raw) (bson.Raw, bool) {
	b := bson.NewBuilder(nil)
	ok := pin(b, filter)
	values := b.Finish()
	paths := fieldsOf(values)
	slices.Sort(paths)
	return values, ok && len(slices.Compact(paths)) == values.Len()
}

func pin(b *bson.Builder, filter bson.Raw) bool {
	for key, v := range filter.All() {
		if key == "$and" {
			list, _ := v.Array()
			for sub := range list.Documents() {
				if !pin(b, sub) {
					return false
				}
			}
			continue
		}
		if d, ok := v.Document(); ok {
			equal, ok := d.Lookup("$eq")
			if !ok || d.Len() != 1 {
				return false
			}
			v = equal
		}
		if key == "$or" || !isScalar(v) {
			return false
		}
		b.Value(key, v)
	}
	return true
}

func isScalar(v bson.Value) bool {
	switch v.Type {
	case bson.TypeString, bson.TypeDouble, bson.TypeInt32, bson.TypeInt64, bson.TypeBool,
		bson.TypeNull, bson.TypeDateTime, bson.TypeObjectID:
		return true
	default:
		return false
	}
}
