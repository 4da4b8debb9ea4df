package deployment

import (
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/mongotest"
)

// reply is a document, and how long the server takes for it.
type reply struct {
	doc   bson.Raw
	delay time.Duration
}

func ok(add func(*bson.Builder)) (reply, error) {
	b := new(bson.Builder)
	if add != nil {
		add(b)
	}
	return reply{doc: b.Double("ok", 1).Finish()}, nil
}

// commands are those that a host knows besides hello and configureFailPoint. Each refuses the fields that it does not know.
var commands = map[string]func(*host, *mongotest.Command) (reply, error){
	"ping":        func(*host, *mongotest.Command) (reply, error) { return ok(nil) },
	"endSessions": func(*host, *mongotest.Command) (reply, error) { return ok(nil) },
	"getnonce": func(*host, *mongotest.Command) (reply, error) {
		return ok(func(b *bson.Builder) { b.String("nonce", "1") })
	},
	"insert":        write("insert", (*host).insert),
	"update":        write("update", (*host).update),
	"delete":        write("delete", (*host).delete),
	"findAndModify": write("findAndModify", (*host).findAndModify),
	"create":        write("create", (*host).create),
	"drop":          write("drop", (*host).drop),
	"find":          read("find", (*host).find),
	"aggregate":     read("aggregate", (*host).aggregate),
	"count":         read("count", (*host).count),
	"distinct":      read("distinct", (*host).distinct),
	"listDatabases": read("listDatabases", (*host).listDatabases),
	"getMore":       known("getMore", (*host).getMore),
	"killCursors":   known("killCursors", (*host).killCursors),

	"replSetFreeze":   known("replSetFreeze", (*host).freeze),
	"replSetStepDown": known("replSetStepDown", (*host).stepDown),
}

// fields are those that each command understands, and those that change nothing here. Every command may have the driver's
// own.
var fields = map[string][]string{
	"insert":        {"documents", "ordered", "bypassDocumentValidation"},
	"update":        {"updates", "ordered", "bypassDocumentValidation", "let"},
	"delete":        {"deletes", "ordered", "let"},
	"findAndModify": {"query", "update", "remove", "new", "sort", "upsert", "let"},
	"create":        {"capped", "size", "max"},
	"drop":          {},
	"find": {
		"filter", "sort", "skip", "limit", "batchSize", "singleBatch", "tailable", "awaitData", "hint", "let", "projection", "min", "max",
		"returnKey", "showRecordId",
	},
	"aggregate":     {"pipeline", "cursor", "hint", "let", "allowDiskUse", "bypassDocumentValidation"},
	"count":         {"query"},
	"distinct":      {"key", "query"},
	"listDatabases": {"filter", "nameOnly"},
	"getMore":       {"collection", "batchSize"},
	"killCursors":   {"cursors"},

	"replSetFreeze":   {},
	"replSetStepDown": {"secondaryCatchUpPeriodSecs", "force"},
}

var driverFields = []string{
	"$db", "$readPreference", "$clusterTime", "lsid", "txnNumber", "readConcern", "writeConcern", "maxTimeMS", "comment",
	"apiVersion", "apiStrict", "apiDeprecationErrors",
}

type command = func(*host, *mongotest.Command) (reply, error)

func known(name string, run command) command {
	return func(h *host, cmd *mongotest.Command) (reply, error) {
		for key := range cmd.Body.All() {
			if key != name && !slices.Contains(fields[name], key) && !slices.Contains(driverFields, key) {
				return reply{}, fail(unknownField, "BSON field '%s.%s' is an unknown field", name, key)
			}
		}
		return run(h, cmd)
	}
}

func write(name string, run command) command {
	return known(name, func(h *host, cmd *mongotest.Command) (reply, error) {
		if role, _ := h.Role(); role > mongotest.Primary {
			return reply{}, fail(notWritablePrimary, "not primary")
		}
		return run(h, cmd)
	})
}

func read(name string, run command) command {
	return known(name, func(h *host, cmd *mongotest.Command) (reply, error) {
		if role, _ := h.Role(); role > mongotest.Primary {
			mode, _ := cmd.Body.Lookup("$readPreference", "mode")
			if name, _ := mode.Str(); name == "" || name == "primary" {
				return reply{}, fail(13435, "not primary and secondaryOk=false")
			}
		}
		return run(h, cmd)
	})
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

// namespace is the collection that a command names first.
func namespace(cmd *mongotest.Command) string {
	name, _ := field(cmd.Body, cmd.Name).Str()
	return cmd.Database + "." + name
}

func (h *host) insert(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	return statements(cmd, cmd.Documents("documents"), func(doc bson.Raw) (int32, error) {
		if err := s.insertLocked(namespace(cmd), doc); err != nil {
			return 0, err
		}
		return 1, nil
	}, nil)
}

// statements runs those of a write command; run returns what each adds to n. A statement that is refused is a write error.
func statements(
	cmd *mongotest.Command, all []bson.Raw, run func(statement bson.Raw) (n int32, err error), add func(*bson.Builder),
) (reply, error) {
	ordered, given := field(cmd.Body, "ordered").Bool()
	var total int32
	var failed []bson.Raw
	for i, statement := range all {
		n, err := run(statement)
		total += n
		if err == nil {
			continue
		}
		refused := refusal(err)
		failed = append(failed, bson.NewBuilder(nil).Int32("index", int32(i)).Value("code", field(refused, "code")).
			Value("errmsg", field(refused, "errmsg")).Finish())
		if ordered || !given {
			break
		}
	}
	return ok(func(b *bson.Builder) {
		b.Int32("n", total)
		if add != nil {
			add(b)
		}
		if len(failed) == 0 {
			return
		}
		b.OpenArray("writeErrors")
		for _, e := range failed {
			b.Document("", e)
		}
		b.Close()
	})
}

func (h *host) update(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var modified int32
	var upserted bson.Builder
	var index int32
	r, err := statements(cmd, cmd.Documents("updates"), func(u bson.Raw) (int32, error) {
		n, m, id, err := s.updateLocked(namespace(cmd), u)
		if !id.IsZero() {
			upserted.OpenDocument("").Int32("index", index).Value("_id", id).Close()
		}
		modified += m
		index++
		return n, err
	}, func(b *bson.Builder) {
		b.Int32("nModified", modified)
		if upserted.Len() > 0 {
			b.OpenArray("upserted").AppendElements(upserted.Finish()).Close()
		}
	})
	for _, u := range cmd.Documents("updates") {
		sleep, _ := sleepOf(field(u, "q", "$where"))
		r.delay += sleep
	}
	return r, err
}

// updateLocked is one statement: how many documents match, how many change, and the _id of one that was upserted.
func (s *store) updateLocked(namespace string, u bson.Raw) (n, modified int32, upserted bson.Value, err error) {
	q := query{filter: document(u, "q")}
	if multi, _ := field(u, "multi").Bool(); !multi {
		q.limit = 1
	}
	found, err := s.findLocked(namespace, q)
	if err != nil {
		return 0, 0, upserted, err
	}
	for _, doc := range found {
		changed, err := changed(doc, field(u, "u"))
		if err != nil {
			return n, modified, upserted, err
		}
		n++
		if !bytesEqual(changed, doc) {
			modified++
			s.replaceLocked(namespace, changed)
		}
	}
	if upsert, _ := field(u, "upsert").Bool(); upsert && n == 0 {
		doc, err := s.upsertLocked(namespace, q.filter, field(u, "u"))
		return 1, 0, field(doc, "_id"), err
	}
	return n, modified, upserted, nil
}

func bytesEqual(a, b bson.Raw) bool { return string(a) == string(b) }

// upsertLocked inserts what the filter's equalities and the update make.
func (s *store) upsertLocked(namespace string, filter bson.Raw, update bson.Value) (bson.Raw, error) {
	b := new(bson.Builder)
	for key, v := range filter.All() {
		if d, isDoc := v.Document(); !isDoc || !strings.HasPrefix(d.FirstKey(), "$") {
			b.Value(key, v)
		}
	}
	doc, err := changed(b.Finish(), update)
	if err != nil {
		return nil, err
	}
	if !doc.Has("_id") {
		doc = bson.PrependID(doc, "_id", bson.ObjectIDValue(bson.NewObjectID()))
	}
	return doc, s.insertLocked(namespace, doc)
}

// changed is doc after an update: $set, $inc and $unset of top-level fields, or another document with the same _id.
func changed(doc bson.Raw, update bson.Value) (bson.Raw, error) {
	u, isDoc := update.Document()
	if !isDoc {
		return nil, fail(failedToParse, "an update must be a document here")
	}
	if !strings.HasPrefix(u.FirstKey(), "$") {
		if id, has := doc.Lookup("_id"); has && !u.Has("_id") {
			return bson.PrependID(u, "_id", id), nil
		}
		return u, nil
	}
	for operator, v := range u.All() {
		changes, isDoc := v.Document()
		if !isDoc || !slices.Contains([]string{"$set", "$unset", "$inc"}, operator) {
			return nil, fail(failedToParse, "Unknown modifier: %s", operator)
		}
		for key, v := range changes.All() {
			switch {
			case strings.Contains(key, "."):
				return nil, fail(badValue, "no update of a path here: %s", key)
			case operator == "$unset":
				doc = bson.Without(doc, key)
			case !doc.Has(key):
				doc = bson.NewBuilder(nil).AppendElements(doc).Value(key, v).Finish()
			case operator == "$set":
				doc = bson.With(doc, key, v)
			case operator == "$inc":
				doc = bson.With(doc, key, bson.Int32Value(int32(integer(doc, key)+integer(changes, key))))
			}
		}
	}
	return doc, nil
}

func (h *host) delete(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	return statements(cmd, cmd.Documents("deletes"), func(d bson.Raw) (int32, error) {
		found, err := s.findLocked(namespace(cmd), query{filter: document(d, "q"), limit: integer(d, "limit")})
		for _, doc := range found {
			s.deleteLocked(namespace(cmd), doc)
		}
		return int32(len(found)), err
	}, nil)
}

func (h *host) findAndModify(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	q := query{filter: document(cmd.Body, "query"), sort: document(cmd.Body, "sort"), limit: 1}
	found, err := s.findLocked(namespace(cmd), q)
	if err != nil {
		return reply{}, err
	}
	value := bson.NullValue()
	after, _ := field(cmd.Body, "new").Bool()
	upsert, _ := field(cmd.Body, "upsert").Bool()
	remove, _ := field(cmd.Body, "remove").Bool()
	switch {
	case len(found) == 0 && upsert:
		doc, err := s.upsertLocked(namespace(cmd), q.filter, field(cmd.Body, "update"))
		if err != nil {
			return reply{}, err
		}
		if after {
			value = bson.DocumentValue(doc)
		}
	case len(found) == 0:
	case remove:
		s.deleteLocked(namespace(cmd), found[0])
		value = bson.DocumentValue(found[0])
	default:
		doc, err := changed(found[0], field(cmd.Body, "update"))
		if err != nil {
			return reply{}, err
		}
		s.replaceLocked(namespace(cmd), doc)
		value = bson.DocumentValue(found[0])
		if after {
			value = bson.DocumentValue(doc)
		}
	}
	return ok(func(b *bson.Builder) { b.Value("value", value) })
}

func (h *host) create(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.collections[namespace(cmd)]; exists {
		return reply{}, fail(namespaceExists, "Collection %s already exists.", namespace(cmd))
	}
	s.collections[namespace(cmd)] = &collection{max: int(integer(cmd.Body, "max"))}
	return ok(nil)
}

func (h *host) drop(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.collections, namespace(cmd))
	return ok(nil)
}

func (h *host) listDatabases(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for ns := range s.collections {
		name, _, _ := strings.Cut(ns, ".")
		names[name] = true
	}
	var docs []bson.Raw
	for name := range names {
		doc := bson.NewBuilder(nil).String("name", name).Finish()
		matched, err := matches(document(cmd.Body, "filter"), doc)
		if err != nil {
			return reply{}, err
		}
		if matched {
			docs = append(docs, doc)
		}
	}
	return ok(func(b *bson.Builder) {
		b.OpenArray("databases")
		for _, doc := range docs {
			b.Document("", doc)
		}
		b.Close()
	})
}

func (h *host) count(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.findLocked(namespace(cmd), query{filter: document(cmd.Body, "query")})
	if err != nil {
		return reply{}, err
	}
	return ok(func(b *bson.Builder) { b.Int32("n", int32(len(found))) })
}

func (h *host) distinct(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.findLocked(namespace(cmd), query{filter: document(cmd.Body, "query")})
	if err != nil {
		return reply{}, err
	}
	key, _ := field(cmd.Body, "key").Str()
	var values []bson.Value
	for _, doc := range found {
		v := field(doc, strings.Split(key, ".")...)
		if !v.IsZero() && !slices.ContainsFunc(values, func(w bson.Value) bool { return equal(v, w) }) {
			values = append(values, v)
		}
	}
	return ok(func(b *bson.Builder) {
		b.OpenArray("values")
		for _, v := range values {
			b.Value("", v)
		}
		b.Close()
	})
}
