package deployment

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// reply holds a document and the time that the server takes for it.
type reply struct {
	doc   bson.Raw
	delay time.Duration
	// awaits says that the batch is empty, and that more documents may be waited for.
	awaits bool
}

func ok(add func(*bson.Builder)) (reply, error) {
	b := new(bson.Builder)
	if add != nil {
		add(b)
	}
	return reply{doc: b.Double("ok", 1).Finish()}, nil
}

// commands are those that a host knows besides hello and configureFailPoint. Each refuses the
// fields that it does not know.
var commands = map[string]func(*host, *request) (reply, error){
	"testVersion2":              func(*host, *request) (reply, error) { return ok(nil) },
	"testDeprecationInVersion2": func(*host, *request) (reply, error) { return ok(nil) },
	"ping":                      func(*host, *request) (reply, error) { return ok(nil) },
	"endSessions":               (*host).endSessions,
	"getnonce": func(*host, *request) (reply, error) {
		return ok(func(b *bson.Builder) { b.String("nonce", "1") })
	},
	"insert":                   write("insert", (*host).insert),
	"update":                   write("update", (*host).update),
	"delete":                   write("delete", (*host).delete),
	"findAndModify":            write("findAndModify", (*host).findAndModify),
	"bulkWrite":                write("bulkWrite", (*host).bulkWrite),
	"createSearchIndexes":      write("createSearchIndexes", (*host).searchIndexes),
	"updateSearchIndex":        write("updateSearchIndex", (*host).searchIndexes),
	"dropSearchIndex":          write("dropSearchIndex", (*host).searchIndexes),
	"shardCollection":          known("shardCollection", (*host).shardCollection),
	"checkMetadataConsistency": known("checkMetadataConsistency", (*host).checkMetadata),
	"renameCollection":         write("renameCollection", (*host).rename),
	"create":                   write("create", (*host).create),
	"drop":                     write("drop", (*host).drop),
	"dropDatabase":             write("dropDatabase", (*host).dropDatabase),
	"collMod":                  write("collMod", (*host).collMod),
	"createIndexes":            write("createIndexes", (*host).createIndexes),
	"dropIndexes":              write("dropIndexes", (*host).dropIndexes),
	"listCollections":          read("listCollections", (*host).listCollections),
	"listIndexes":              read("listIndexes", (*host).listIndexes),
	"find":                     read("find", (*host).find),
	"aggregate":                read("aggregate", (*host).aggregate),
	"count":                    read("count", (*host).count),
	"distinct":                 read("distinct", (*host).distinct),
	"listDatabases":            read("listDatabases", (*host).listDatabases),
	"getMore":                  known("getMore", (*host).getMore),
	"killCursors":              known("killCursors", (*host).killCursors),
	"commitTransaction":        write("commitTransaction", ending((*host).commit)),
	"abortTransaction":         write("abortTransaction", ending((*host).abort)),

	"replSetFreeze":   known("replSetFreeze", (*host).freeze),
	"replSetStepDown": known("replSetStepDown", (*host).stepDown),
}

// fields are those that each command understands, and those that change nothing here. A field of
// servers since some wire version has it behind a colon. Every command may have the driver's own.
var fields = map[string][]string{
	"insert": {
		"documents", "ordered", "bypassDocumentValidation", "comment:9", "rawData:27",
		"collectionUUID:17",
	},
	"update": {
		"updates", "ordered", "bypassDocumentValidation", "let:13", "comment:9",
		"rawData:27", "collectionUUID:17",
	},
	"delete": {"deletes", "ordered", "let:13", "comment:9", "rawData:27", "collectionUUID:17"},
	"findAndModify": {
		"query", "update", "remove", "new", "sort", "upsert", "fields", "arrayFilters", "collation",
		"bypassDocumentValidation", "let:13", "hint:9", "comment:9", "rawData:27",
	},
	"create": {
		"capped", "size", "max", "viewOn", "pipeline", "expireAfterSeconds", "timeseries:13",
		"clusteredIndex:16", "changeStreamPreAndPostImages:17", "comment:9",
		"validator", "validationLevel", "validationAction",
	},
	"collMod": {
		"index", "changeStreamPreAndPostImages:17", "comment:9", "collectionUUID:17",
		"validator", "validationLevel", "validationAction",
	},
	"createIndexes": {"indexes", "commitQuorum:9", "comment:9", "rawData:27"},
	"dropIndexes":   {"index", "comment:9", "rawData:27", "collectionUUID:17"},
	"listCollections": {
		"filter", "nameOnly", "authorizedCollections", "cursor", "comment:9", "rawData:27",
	},
	"shardCollection": {"key", "unique", "comment:9"},
	"listIndexes":     {"cursor", "comment:9", "rawData:27"},
	"drop":            {"comment:9", "collectionUUID:17"},
	"dropDatabase":    {"comment:9"},
	"find": {
		"filter", "sort", "skip", "limit", "batchSize", "singleBatch", "tailable", "awaitData",
		"hint", "projection", "min", "max",
		"returnKey", "showRecordId", "collation", "comment", "let:13", "allowDiskUse:9",
		"rawData:27", "collectionUUID:17",
	},
	"aggregate": {
		"pipeline", "cursor", "hint", "collation", "allowDiskUse", "bypassDocumentValidation",
		"comment", "let:13", "rawData:27", "collectionUUID:17",
	},
	"count":             {"query", "skip", "limit", "collation", "comment:9", "rawData:27"},
	"distinct":          {"key", "query", "collation", "comment:9", "hint:22", "rawData:27"},
	"listDatabases":     {"filter", "nameOnly", "comment:9"},
	"getMore":           {"collection", "batchSize", "comment:9"},
	"killCursors":       {"cursors", "comment:9"},
	"commitTransaction": {"recoveryToken", "comment:9"},
	"abortTransaction":  {"recoveryToken", "comment:9"},

	"replSetFreeze":   {},
	"replSetStepDown": {"secondaryCatchUpPeriodSecs", "force"},

	"bulkWrite": {
		"ops", "nsInfo", "ordered", "errorsOnly", "cursor", "bypassDocumentValidation", "let",
		"comment", "rawData:27",
	},
	"renameCollection": {"to", "dropTarget", "comment:9", "collectionUUID:17"},

	"checkMetadataConsistency": {"cursor", "comment"},

	"createSearchIndexes": {"indexes", "comment"},
	"updateSearchIndex":   {"name", "definition", "comment"},
	"dropSearchIndex":     {"name", "comment"},

	// statements
	"ops.insert": {"insert", "document"},
	"ops.update": {
		"update", "filter", "updateMods", "multi", "upsert", "arrayFilters", "collation", "hint",
		"sort",
	},
	"ops.delete": {"delete", "filter", "multi", "collation", "hint"},
	"updates":    {"q", "u", "multi", "upsert", "arrayFilters", "collation", "hint", "sort:25"},
	"deletes":    {"q", "limit", "collation", "hint:9"},
}

var driverFields = []string{
	"$db", "$readPreference", "$clusterTime", "lsid", "txnNumber", "autocommit", "startTransaction",
	"readConcern", "writeConcern", "maxTimeMS",
	"apiVersion", "apiStrict", "apiDeprecationErrors",
}

// checkFields refuses the fields of a command or of a statement that this server does not know.
func (h *host) checkFields(name string, doc bson.Raw) error {
	for key, v := range doc.All() {
		if key == name || slices.Contains(driverFields, key) || h.knows(name, key) {
			if _, isText := v.Str(); key == "comment" && !isText && h.wire < wire44 {
				return failure.TypeMismatch.Errorf("comment must be a string")
			}
			continue
		}
		if name == "find" || name == "aggregate" {
			return failure.UnknownField.Errorf("Unrecognized field '%s'.", key)
		}
		if name == "findAndModify" && h.wire < wire50 {
			return failure.UnknownField.Errorf("BSON field '%s' is an unknown field", key)
		}
		return failure.UnknownField.Errorf("BSON field '%s.%s' is an unknown field", name, key)
	}
	return nil
}

func (h *host) knows(name, key string) bool {
	for _, known := range fields[name] {
		known, since, _ := strings.Cut(known, ":")
		if least, _ := strconv.Atoi(since); known == key && h.wire >= int32(least) {
			return true
		}
	}
	return false
}

type command = func(*host, *request) (reply, error)

func known(name string, run command) command {
	return func(h *host, cmd *request) (reply, error) {
		if err := h.checkFields(name, cmd.Body); err != nil {
			return reply{}, err
		}
		if err := h.checkStatements(cmd.Command); err != nil {
			return reply{}, err
		}
		if err := h.checkUUID(cmd); err != nil {
			return reply{}, err
		}
		for _, statement := range cmd.Documents("updates") {
			if err := checkStages(field(statement, "u")); err != nil {
				return reply{}, err
			}
		}
		return run(h, cmd)
	}
}

// checkStatements refuses the fields of the statements of a write that this server does not know.
func (h *host) checkStatements(cmd *fakemongo.Command) error {
	for _, list := range []string{"updates", "deletes"} {
		for _, statement := range cmd.Documents(list) {
			if err := h.checkFields(list, statement); err != nil {
				return err
			}
		}
	}
	return nil
}

func write(name string, run command) command {
	return known(name, func(h *host, cmd *request) (reply, error) {
		if role, _ := h.Role(); role > fakemongo.Primary {
			return reply{}, failure.NotWritablePrimary.Errorf("not primary")
		}
		return run(h, cmd)
	})
}

func read(name string, run command) command {
	return known(name, func(h *host, cmd *request) (reply, error) {
		if role, _ := h.Role(); role > fakemongo.Primary {
			mode, _ := cmd.Body.Lookup("$readPreference", "mode")
			if name, _ := mode.Str(); name == "" || name == "primary" {
				return reply{}, failure.NotPrimaryNoSecondaryOk.Errorf(
					"not primary and secondaryOk=false")
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

// namespace returns the collection that a command names first.
func namespace(cmd *request) string {
	name, _ := field(cmd.Body, cmd.Name).Str()
	return cmd.Database + "." + name
}

func (h *host) insert(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmd.statements(cmd.Documents("documents"), func(doc bson.Raw) (result, error) {
		return h.insertLocked(cmd, namespace(cmd), doc)
	})
}

// insertLocked inserts a document of a command, if its keys are allowed.
func (h *host) insertLocked(cmd *request, namespace string, doc bson.Raw) (result, error) {
	if strings.HasPrefix(document(doc, "_id").FirstKey(), "$") {
		return result{}, failure.DollarPrefixedFieldName.Errorf(
			"_id fields may not contain '$'-prefixed fields")
	}
	for key := range doc.All() {
		if strings.HasPrefix(key, "$") && h.wire < wire50 {
			return result{}, failure.BadValue.Errorf(
				"Document can't have $ prefixed field names: %s", key)
		}
	}
	return result{n: 1}, cmd.store.insertLocked(namespace, doc, cmd.bypasses())
}

// statements runs those of a write command. A statement that is refused is a write error.
func (r *request) statements(
	all []bson.Raw, run func(statement bson.Raw) (result, error),
) (reply, error) {
	ordered, given := field(r.Body, "ordered").Bool()
	var total result
	var upserted bson.Builder
	var failed []bson.Raw
	for i, statement := range all {
		did, err := r.once(int32(i), func() (result, error) { return run(statement) })
		if end, ended := errors.AsType[*fatal](err); ended {
			return reply{}, end
		}
		if err == nil {
			total.n += did.n
			total.modified += did.modified
			if !did.upserted.IsZero() {
				upserted.OpenDocument("").Int32("index", int32(i)).Value("_id", did.upserted).
					Close()
			}
			continue
		}
		refused := bson.Without(failure.Reply(err, false), "ok", "codeName")
		failed = append(failed, bson.NewBuilder(nil).Int32("index", int32(i)).
			AppendElements(refused).Finish())
		if ordered || !given {
			break
		}
	}
	return ok(func(b *bson.Builder) {
		b.Int32("n", total.n)
		if r.Name == "update" {
			b.Int32("nModified", total.modified)
		}
		if upserted.Len() > 0 {
			b.OpenArray("upserted").AppendElements(upserted.Finish()).Close()
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

func (h *host) listDatabases(cmd *request) (reply, error) {
	s := cmd.store
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
		matched, err := scope{}.matches(document(cmd.Body, "filter"), doc)
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

func (h *host) count(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.queryLocked(cmd)
	if err != nil {
		return reply{}, err
	}
	return ok(func(b *bson.Builder) { b.Int32("n", int32(len(found))) })
}

// queryLocked returns what a command's query is about.
func (s *store) queryLocked(cmd *request) ([]bson.Raw, error) {
	sc, err := newScope(cmd.Body, document(cmd.Body, "collation"))
	if err != nil {
		return nil, err
	}
	return s.findLocked(namespace(cmd), query{
		scope: sc, filter: document(cmd.Body, "query"), hint: field(cmd.Body, "hint"),
		skip: integer(cmd.Body, "skip"), limit: integer(cmd.Body, "limit"),
	})
}

func (h *host) distinct(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.queryLocked(cmd)
	if err != nil {
		return reply{}, err
	}
	key, _ := field(cmd.Body, "key").Str()
	fold, err := newScope(cmd.Body, document(cmd.Body, "collation"))
	if err != nil {
		return reply{}, err
	}
	var values []bson.Value
	for _, doc := range found {
		v := field(doc, strings.Split(key, ".")...)
		if !v.IsZero() && !slices.ContainsFunc(values,
			func(w bson.Value) bool { return fold.equal(v, w) }) {
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
