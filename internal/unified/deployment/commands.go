package deployment

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/mongotest"
)

// reply holds a document and the time that the server takes for it.
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

// commands are those that a host knows besides hello and configureFailPoint. Each refuses the
// fields that it does not know.
var commands = map[string]func(*host, *mongotest.Command) (reply, error){
	"testVersion2":              func(*host, *mongotest.Command) (reply, error) { return ok(nil) },
	"testDeprecationInVersion2": func(*host, *mongotest.Command) (reply, error) { return ok(nil) },
	"ping":                      func(*host, *mongotest.Command) (reply, error) { return ok(nil) },
	"endSessions":               func(*host, *mongotest.Command) (reply, error) { return ok(nil) },
	"getnonce": func(*host, *mongotest.Command) (reply, error) {
		return ok(func(b *bson.Builder) { b.String("nonce", "1") })
	},
	"insert":          write("insert", (*host).insert),
	"update":          write("update", (*host).update),
	"delete":          write("delete", (*host).delete),
	"findAndModify":   write("findAndModify", (*host).findAndModify),
	"create":          write("create", (*host).create),
	"drop":            write("drop", (*host).drop),
	"collMod":         write("collMod", (*host).collMod),
	"createIndexes":   write("createIndexes", (*host).createIndexes),
	"dropIndexes":     write("dropIndexes", (*host).dropIndexes),
	"listCollections": read("listCollections", (*host).listCollections),
	"listIndexes":     read("listIndexes", (*host).listIndexes),
	"find":            read("find", (*host).find),
	"aggregate":       read("aggregate", (*host).aggregate),
	"count":           read("count", (*host).count),
	"distinct":        read("distinct", (*host).distinct),
	"listDatabases":   read("listDatabases", (*host).listDatabases),
	"getMore":         known("getMore", (*host).getMore),
	"killCursors":     known("killCursors", (*host).killCursors),

	"replSetFreeze":   known("replSetFreeze", (*host).freeze),
	"replSetStepDown": known("replSetStepDown", (*host).stepDown),
}

// fields are those that each command understands, and those that change nothing here. A field of
// servers since some wire version has it behind a colon. Every command may have the driver's own.
var fields = map[string][]string{
	"insert": {"documents", "ordered", "bypassDocumentValidation", "comment:9", "rawData:27"},
	"update": {
		"updates", "ordered", "bypassDocumentValidation", "let:13", "comment:9",
		"rawData:27",
	},
	"delete": {"deletes", "ordered", "let:13", "comment:9", "rawData:27"},
	"findAndModify": {
		"query", "update", "remove", "new", "sort", "upsert", "fields", "arrayFilters", "collation",
		"bypassDocumentValidation", "let:13", "hint:9", "comment:9", "rawData:27",
	},
	"create": {
		"capped", "size", "max", "viewOn", "pipeline", "expireAfterSeconds", "timeseries:13",
		"clusteredIndex:16", "changeStreamPreAndPostImages:17", "comment:9",
	},
	"collMod":         {"index", "changeStreamPreAndPostImages:17", "comment:9"},
	"createIndexes":   {"indexes", "commitQuorum:9", "comment:9", "rawData:27"},
	"dropIndexes":     {"index", "comment:9", "rawData:27"},
	"listCollections": {"filter", "nameOnly", "authorizedCollections", "cursor", "comment:9"},
	"listIndexes":     {"cursor", "comment:9", "rawData:27"},
	"drop":            {"comment:9"},
	"find": {
		"filter", "sort", "skip", "limit", "batchSize", "singleBatch", "tailable", "awaitData",
		"hint", "projection", "min", "max",
		"returnKey", "showRecordId", "collation", "comment", "let:13", "allowDiskUse:9",
		"rawData:27",
	},
	"aggregate": {
		"pipeline", "cursor", "hint", "collation", "allowDiskUse", "bypassDocumentValidation",
		"comment",
		"let:13", "rawData:27",
	},
	"count":         {"query", "skip", "limit", "collation", "comment:9", "rawData:27"},
	"distinct":      {"key", "query", "collation", "comment:9", "hint:22", "rawData:27"},
	"listDatabases": {"filter", "nameOnly", "comment:9"},
	"getMore":       {"collection", "batchSize", "comment:9"},
	"killCursors":   {"cursors", "comment:9"},

	"replSetFreeze":   {},
	"replSetStepDown": {"secondaryCatchUpPeriodSecs", "force"},

	// statements
	"updates": {"q", "u", "multi", "upsert", "arrayFilters", "collation", "hint", "sort:25"},
	"deletes": {"q", "limit", "collation", "hint:9"},
}

var driverFields = []string{
	"$db", "$readPreference", "$clusterTime", "lsid", "txnNumber", "readConcern", "writeConcern",
	"maxTimeMS",
	"apiVersion", "apiStrict", "apiDeprecationErrors",
}

// checkFields refuses the fields of a command or of a statement that this server does not know.
func (h *host) checkFields(name string, doc bson.Raw) error {
	for key, v := range doc.All() {
		if key == name || slices.Contains(driverFields, key) || h.knows(name, key) {
			if _, isText := v.Str(); key == "comment" && !isText && h.wire < wire44 {
				return fail(typeMismatch, "comment must be a string")
			}
			continue
		}
		if name == "find" || name == "aggregate" {
			return fail(unknownField, "Unrecognized field '%s'.", key)
		}
		if name == "findAndModify" && h.wire < wire50 {
			return fail(unknownField, "BSON field '%s' is an unknown field", key)
		}
		return fail(unknownField, "BSON field '%s.%s' is an unknown field", name, key)
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

type command = func(*host, *mongotest.Command) (reply, error)

func known(name string, run command) command {
	return func(h *host, cmd *mongotest.Command) (reply, error) {
		if err := h.checkFields(name, cmd.Body); err != nil {
			return reply{}, err
		}
		for _, list := range []string{"updates", "deletes"} {
			for _, statement := range cmd.Documents(list) {
				if err := h.checkFields(list, statement); err != nil {
					return reply{}, err
				}
				if err := checkStages(field(statement, "u")); err != nil {
					return reply{}, err
				}
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

// namespace returns the collection that a command names first.
func namespace(cmd *mongotest.Command) string {
	name, _ := field(cmd.Body, cmd.Name).Str()
	return cmd.Database + "." + name
}

func (h *host) insert(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	return statements(cmd, cmd.Documents("documents"), func(doc bson.Raw) (int32, error) {
		return h.insertLocked(namespace(cmd), doc)
	}, nil)
}

// insertLocked inserts a document of a command, if its keys are allowed.
func (h *host) insertLocked(namespace string, doc bson.Raw) (int32, error) {
	if strings.HasPrefix(document(doc, "_id").FirstKey(), "$") {
		return 0, fail(dollarPrefixed, "_id fields may not contain '$'-prefixed fields")
	}
	for key := range doc.All() {
		if strings.HasPrefix(key, "$") && h.wire < wire50 {
			return 0, fail(badValue, "Document can't have $ prefixed field names: %s", key)
		}
	}
	if err := h.deployment.store.insertLocked(namespace, doc); err != nil {
		return 0, err
	}
	return 1, nil
}

// statements runs those of a write command; run returns what each adds to n. A statement that is
// refused is a write error.
func statements(
	cmd *mongotest.Command, all []bson.Raw, run func(statement bson.Raw) (n int32, err error),
	add func(*bson.Builder),
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
		failed = append(failed, bson.NewBuilder(nil).Int32("index", int32(i)).Value("code",
			field(refused, "code")).
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

func (h *host) count(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.queryLocked(cmd)
	if err != nil {
		return reply{}, err
	}
	return ok(func(b *bson.Builder) { b.Int32("n", int32(len(found))) })
}

// queryLocked returns what a command's query is about.
func (s *store) queryLocked(cmd *mongotest.Command) ([]bson.Raw, error) {
	sc, err := newScope(cmd.Body, document(cmd.Body, "collation"))
	if err != nil {
		return nil, err
	}
	return s.findLocked(namespace(cmd), query{
		scope: sc, filter: document(cmd.Body, "query"), hint: field(cmd.Body, "hint"),
		skip: integer(cmd.Body, "skip"), limit: integer(cmd.Body, "limit"),
	})
}

func (h *host) distinct(cmd *mongotest.Command) (reply, error) {
	s := h.deployment.store
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
