package deployment

import (
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// difference holds what an update has changed, as change streams say it.
type difference struct {
	updated   bson.Builder
	removed   []string
	truncated bson.Builder
	ambiguous bson.Builder // paths with a part that may be a key or an index
}

// UpdateDescription returns what change events say of an update: what it has set and removed, and,
// if they are to be there, which arrays it has cut and which of its paths are ambiguous.
func UpdateDescription(before, after bson.Raw, truncated, ambiguous bool) bson.Raw {
	var diff difference
	diff.documents(nil, before, after)
	b := bson.NewBuilder(nil).Document("updatedFields", diff.updated.Finish())
	b.OpenArray("removedFields")
	for _, path := range diff.removed {
		b.String("", path)
	}
	b.Close()
	if truncated {
		b.OpenArray("truncatedArrays").AppendElements(diff.truncated.Finish()).Close()
	}
	if ambiguous {
		b.Document("disambiguatedPaths", diff.ambiguous.Finish())
	}
	return b.Finish()
}

// part holds one part of a path: a key, or an index.
type part struct {
	key     string
	isIndex bool
}

func (d *difference) documents(path []part, before, after bson.Raw) {
	for key, v := range after.All() {
		d.values(append(slices.Clone(path), part{key: key}), field(before, key), v)
	}
	for key := range before.All() {
		if !after.Has(key) {
			d.removed = append(d.removed, d.name(append(slices.Clone(path), part{key: key})))
		}
	}
}

func (d *difference) values(path []part, before, after bson.Value) {
	x, isDoc := before.Document()
	y, isStill := after.Document()
	a, isArray := before.Array()
	b, isLike := after.Array()
	switch {
	case isDoc && isStill:
		d.documents(path, x, y)
	case isArray && isLike:
		d.arrays(path, a, b)
	case !before.Equal(after):
		d.updated.Value(d.name(path), after)
	}
}

func (d *difference) arrays(path []part, before, after bson.Array) {
	if after.Len() < before.Len() {
		d.truncated.OpenDocument("").String("field", d.name(path)).
			Int32("newSize", int32(after.Len())).Close()
	}
	for key, v := range bson.Raw(after).All() {
		d.values(append(slices.Clone(path), part{key: key, isIndex: true}),
			field(bson.Raw(before), key), v)
	}
}

// name returns a path with dots. It writes down an ambiguous one.
func (d *difference) name(path []part) string {
	var keys []string
	ambiguous := false
	for _, p := range path {
		_, err := strconv.Atoi(p.key)
		ambiguous = ambiguous || err == nil && !p.isIndex
		keys = append(keys, p.key)
	}
	name := strings.Join(keys, ".")
	if !ambiguous {
		return name
	}
	d.ambiguous.OpenArray(name)
	for _, p := range path {
		if n, err := strconv.Atoi(p.key); err == nil && p.isIndex {
			d.ambiguous.Int32("", int32(n))
		} else {
			d.ambiguous.String("", p.key)
		}
	}
	d.ambiguous.Close()
	return name
}
