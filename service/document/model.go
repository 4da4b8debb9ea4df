package document

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
)

// readModels reads the writes of a bulk write. many says that each has a namespace.
func readModels(
	r *request.Reader, models []*mooringv1.WriteModel, many bool,
) []client.NamespacedWriteModel {
	all := make([]client.NamespacedWriteModel, len(models))
	for i, m := range models {
		all[i] = client.NamespacedWriteModel{
			Namespace: readNamespace(r, m, many), WriteModel: readModel(r, m),
		}
		if r.Err() != nil {
			r.Within("models." + strconv.Itoa(i))
			return nil
		}
		switch all[i].Kind {
		case client.UpdateMany, client.DeleteMany:
			if r.IsExact() {
				r.RefuseKey("updateMany and deleteMany do not take a key")
			}
		case client.InsertOne:
			all[i].Document = r.WithID(i, all[i].Document)
		default:
		}
	}
	return all
}

func readNamespace(r *request.Reader, m *mooringv1.WriteModel, many bool) client.Namespace {
	switch {
	case !many && m.Namespace != nil:
		r.Refuse("namespace", "is only for writes on many collections")
	case !many:
		return client.Namespace{}
	}
	db, collection, _ := strings.Cut(m.GetNamespace(), ".")
	if db == "" || collection == "" {
		r.Refuse("namespace", "%q is not database.collection", m.GetNamespace())
	}
	return client.Namespace{Database: db, Collection: collection}
}

// readModel reads one write. Errors have paths within the model.
func readModel(r *request.Reader, m *mooringv1.WriteModel) client.WriteModel {
	r.Known("kind", m)
	switch kind := m.GetKind().(type) {
	case *mooringv1.WriteModel_InsertOne:
		r.Known("insertOne", kind.InsertOne)
		return client.WriteModel{
			Kind:     client.InsertOne,
			Document: r.Required("insertOne.document", kind.InsertOne.GetDocument()),
		}
	case *mooringv1.WriteModel_UpdateOne:
		const at = "updateOne"
		one := kind.UpdateOne
		w := readWrite(r, at, client.UpdateOne, one)
		w.Update, w.Upsert = r.Update(at+".update", one.GetUpdate()), one.Upsert
		w.Sort = r.Keys(at+".sort", one.GetSort())
		w.ArrayFilters = r.Array(at+".arrayFilters", one.GetArrayFilters())
		return w
	case *mooringv1.WriteModel_UpdateMany:
		const at = "updateMany"
		one := kind.UpdateMany
		w := readWrite(r, at, client.UpdateMany, one)
		w.Update, w.Upsert = r.Update(at+".update", one.GetUpdate()), one.Upsert
		w.ArrayFilters = r.Array(at+".arrayFilters", one.GetArrayFilters())
		return w
	case *mooringv1.WriteModel_ReplaceOne:
		const at = "replaceOne"
		one := kind.ReplaceOne
		w := readWrite(r, at, client.ReplaceOne, one)
		w.Document, w.Upsert = r.Required(at+".replacement", one.GetReplacement()), one.Upsert
		w.Sort = r.Keys(at+".sort", one.GetSort())
		return w
	case *mooringv1.WriteModel_DeleteOne:
		return readWrite(r, "deleteOne", client.DeleteOne, kind.DeleteOne)
	case *mooringv1.WriteModel_DeleteMany:
		return readWrite(r, "deleteMany", client.DeleteMany, kind.DeleteMany)
	default:
		r.Refuse("kind", "is missing: it is insertOne, updateOne, updateMany, replaceOne, "+
			"deleteOne or deleteMany")
		return client.WriteModel{}
	}
}

// filtered lists what writes have in common that look for documents.
type filtered interface {
	proto.Message
	GetFilter() *mooringv1.Document
	GetCollation() *mooringv1.Document
	GetHint() *mooringv1.Hint
}

// readWrite reads what writes have in common that look for documents.
func readWrite(
	r *request.Reader, at string, kind client.WriteKind, m filtered,
) client.WriteModel {
	r.Known(at, m)
	return client.WriteModel{
		Kind: kind, Filter: r.Required(at+".filter", m.GetFilter()),
		Collation: r.Document(at+".collation", m.GetCollation()),
		Hint:      r.Hint(at+".hint", m.GetHint()),
	}
}

// kindOf returns the name of a model's kind, as a field's path has it.
func kindOf(m *mooringv1.WriteModel) string {
	kind := m.ProtoReflect().Descriptor().Oneofs().ByName("kind")
	return m.ProtoReflect().WhichOneof(kind).JSONName()
}
