package replicaset

import (
	"math"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// okay returns a reply without an error.
func okay(add func(*bson.Builder)) bson.Raw {
	b := new(bson.Builder)
	if add != nil {
		add(b)
	}
	return b.Double("ok", 1).Finish()
}

// failureOf returns what a reply says of a failure, also of one statement; nil: there is none.
func failureOf(reply bson.Raw) bson.Raw {
	if v, _ := field(reply, "ok").AsDouble(); v != 1 {
		return reply
	}
	errs, _ := field(reply, "writeErrors").Array()
	for e := range errs.Documents() {
		return e
	}
	return nil
}

// namespace names a collection.
type namespace struct{ db, coll string }

func (n namespace) String() string { return n.db + "." + n.coll }

// namespaceOf returns the collection that a command names first.
func namespaceOf(cmd *fakemongo.Command) namespace {
	name, _ := field(cmd.Body, cmd.Name).Str()
	return namespace{cmd.Database, name}
}

// place says where the documents of a collection are: there, or in a copy.
type place struct{ of, at namespace }

func itself(n namespace) place { return place{n, n} }

// moved returns a command that is about the place's documents.
func (p place) moved(cmd *fakemongo.Command) bson.Raw {
	if p.of == p.at {
		return cmd.Body
	}
	body := bson.With(cmd.Body, "$db", bson.StringValue(p.at.db))
	key := cmd.Name
	if key == "getMore" {
		key = "collection"
	}
	return bson.With(body, key, bson.StringValue(p.at.coll))
}

// told returns a reply that names the collection, not its copy.
func (p place) told(reply bson.Raw) bson.Raw {
	if p.of == p.at {
		return reply
	}
	b := new(bson.Builder)
	for key, v := range reply.All() {
		text, isText := v.Str()
		doc, isDoc := v.Document()
		list, isList := v.Array()
		switch {
		case isText && (key == "errmsg" || key == "ns"):
			b.String(key, strings.ReplaceAll(text, p.at.String(), p.of.String()))
		case isDoc && key == "cursor":
			b.Document(key, bson.With(doc, "ns", bson.StringValue(p.of.String())))
		case isList && key == "writeErrors":
			b.OpenArray(key)
			for e := range list.Documents() {
				b.Document("", p.told(e))
			}
			b.Close()
		default:
			b.Value(key, v)
		}
	}
	return b.Finish()
}

func field(d bson.Raw, path ...string) bson.Value {
	v, _ := d.Lookup(path...)
	return v
}

func document(d bson.Raw, path ...string) bson.Raw {
	doc, _ := field(d, path...).Document()
	return doc
}

func integer(d bson.Raw, path ...string) int64 {
	n, _ := field(d, path...).AsInt64()
	return n
}

func idOf(doc bson.Raw) bson.Value { return field(doc, "_id") }

// keyOf returns what tells values of _id apart.
func keyOf(id bson.Value) string { return string(append([]byte{byte(id.Type)}, id.Data...)) }

// lacks returns what the backend lacks of what a command needs: FerretDB v1 closes the connection
// on BSON types that it does not have, so that a client could not know what became of its command.
// On two fields of one name it does so with a query that it never closes, which ends the process.
func lacks(cmd *fakemongo.Command) string {
	if what := lacksElements(cmd.Body); what != "" {
		return what
	}
	for _, docs := range cmd.Sequences {
		for _, doc := range docs {
			if what := lacksFields(doc); what != "" {
				return what
			}
		}
	}
	return ""
}

func lacksFields(doc bson.Raw) string {
	seen := make(map[string]bool)
	for key := range doc.All() {
		if seen[key] {
			return "two fields of one name"
		}
		seen[key] = true
	}
	return lacksElements(doc)
}

func lacksElements(doc bson.Raw) string {
	for _, v := range doc.All() {
		if what := lacksValue(v); what != "" {
			return what
		}
	}
	return ""
}

// missing are the types that FerretDB v1 does not have.
var missing = map[bson.Type]string{
	bson.TypeDecimal128: "Decimal128", bson.TypeMinKey: "MinKey", bson.TypeMaxKey: "MaxKey",
	bson.TypeUndefined: "undefined", bson.TypeSymbol: "symbol", bson.TypeJavaScript: "code",
	bson.TypeCodeWithScope: "code with scope", bson.TypeDBPointer: "DBPointer",
}

func lacksValue(v bson.Value) string {
	if name, ok := missing[v.Type]; ok {
		return "the BSON type " + name
	}
	if f, ok := v.Double(); ok && math.IsNaN(f) {
		return "NaN"
	}
	if doc, ok := v.Document(); ok {
		return lacksFields(doc)
	}
	if a, ok := v.Array(); ok {
		return lacksElements(bson.Raw(a))
	}
	return ""
}

// idFirst returns a document whose first element is its _id, a new one if it has none.
func idFirst(doc bson.Raw) bson.Raw {
	id := idOf(doc)
	switch {
	case doc.FirstKey() == "_id":
		return doc
	case id.IsZero():
		id = bson.ObjectIDValue(bson.NewObjectID())
	}
	return bson.PrependID(bson.Without(doc, "_id"), "_id", id)
}

// among returns a filter of documents by their _id.
func among(ids []bson.Value) bson.Raw {
	b := bson.NewBuilder(nil).OpenDocument("_id").OpenArray("$in")
	for _, id := range ids {
		b.Value("", id)
	}
	return b.Close().Close().Finish()
}

// largest returns how many of the documents, the first ones, fit into one message.
func largest(docs []bson.Raw) int {
	const most = 12 << 20
	size := 0
	n := slices.IndexFunc(docs, func(doc bson.Raw) bool {
		size += len(doc) + 16
		return size > most
	})
	if n < 0 {
		return len(docs)
	}
	return max(n, 1)
}
