package replicaset

import (
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// writes are the commands that change something.
var writes = []string{
	"insert", "update", "delete", "findAndModify", "create", "drop", "dropDatabase",
	"createIndexes", "dropIndexes", "renameCollection", "collMod",
}

// writeWait is how long a write without maxTimeMS waits for a transaction to end. It is more than
// a transaction may last.
const writeWait = 2 * time.Minute

// writeAlone runs a write outside transactions, unless done has its reply already, and adds what
// it has changed to the oplog.
func (s *Server) writeAlone(cmd *fakemongo.Command, done *remembered) (bson.Raw, error) {
	wait := writeWait
	if ms := integer(cmd.Body, "maxTimeMS"); ms > 0 {
		wait = time.Duration(ms) * time.Millisecond
	}
	if s.take(wait) != nil {
		return nil, failure.MaxTimeMSExpired.Errorf(
			"operation exceeded time limit: a transaction is in progress, and writes wait for " +
				"its end")
	}
	defer s.give()
	if done != nil && done.reply != nil {
		return done.reply, nil
	}
	s.data.Lock()
	reply, changes, err := s.write(cmd, itself(namespaceOf(cmd)))
	s.log.add(changes)
	s.data.Unlock()
	if done != nil && err == nil && integer(reply, "ok") == 1 {
		done.reply = reply
	}
	return reply, err
}

// write has the backend run a write, and returns what has changed, also if the write has failed.
// The caller has the turn.
func (s *Server) write(cmd *fakemongo.Command, p place) (bson.Raw, []change, error) {
	switch cmd.Name {
	case "insert":
		return s.insert(cmd, p)
	case "update":
		return s.statements(cmd, "updates", func(one bson.Raw) (bson.Raw, []change, error) {
			return s.update(cmd, p, one)
		})
	case "delete":
		return s.statements(cmd, "deletes", func(one bson.Raw) (bson.Raw, []change, error) {
			return s.delete(cmd, p, one)
		})
	case "findAndModify":
		return s.findAndModify(cmd, p)
	}
	return s.define(cmd)
}

// insert runs an insert. The documents get their _id here.
func (s *Server) insert(cmd *fakemongo.Command, p place) (bson.Raw, []change, error) {
	var docs []bson.Raw
	for _, doc := range cmd.Documents("documents") {
		docs = append(docs, idFirst(doc))
	}
	body := bson.Without(p.moved(cmd), "documents")
	reply, err := s.pass(body, map[string][]bson.Raw{"documents": docs})
	if err != nil || integer(reply, "ok") != 1 {
		return p.told(reply), nil, err
	}
	failed := map[int64]bool{}
	end := len(docs)
	errs, _ := field(reply, "writeErrors").Array()
	for e := range errs.Documents() {
		failed[integer(e, "index")] = true
		if ordered(cmd) {
			end = int(integer(e, "index"))
		}
	}
	var changes []change
	for i, doc := range docs[:end] {
		if !failed[int64(i)] {
			changes = append(changes, change{kind: "insert", ns: p.of, after: doc.Clone()})
		}
	}
	return p.told(reply), changes, nil
}

func ordered(cmd *fakemongo.Command) bool {
	v, given := field(cmd.Body, "ordered").Bool()
	return v || !given
}

// statements runs those of an update or a delete one by one.
func (s *Server) statements(cmd *fakemongo.Command, list string,
	run func(bson.Raw) (bson.Raw, []change, error),
) (bson.Raw, []change, error) {
	var n, modified int64
	var upserted, failed bson.Builder
	upserted.OpenArray("upserted")
	failed.OpenArray("writeErrors")
	var ups, errs int
	var changes []change
	for i, one := range cmd.Documents(list) {
		reply, changed, err := run(one)
		changes = append(changes, changed...)
		if err != nil || integer(reply, "ok") != 1 {
			return reply, changes, err
		}
		n += integer(reply, "n")
		modified += integer(reply, "nModified")
		if id, ok := reply.Lookup("upserted", "0", "_id"); ok {
			upserted.OpenDocument("").Int32("index", int32(i)).Value("_id", id).Close()
			ups++
		}
		if e := failureOf(reply); e != nil {
			failed.Document("", bson.With(e, "index", bson.Int32Value(int32(i))))
			errs++
			if ordered(cmd) {
				break
			}
		}
	}
	return okay(func(b *bson.Builder) {
		b.Int32("n", int32(n))
		if list == "updates" {
			b.Int32("nModified", int32(modified))
		}
		if ups > 0 {
			b.AppendElements(upserted.Close().Finish())
		}
		if errs > 0 {
			b.AppendElements(failed.Close().Finish())
		}
	}), changes, nil
}

// one runs a write command with one statement.
func (s *Server) one(
	cmd *fakemongo.Command, p place, list string, statement bson.Raw,
) (bson.Raw, error) {
	body := bson.Without(p.moved(cmd), list)
	reply, err := s.pass(body, map[string][]bson.Raw{list: {statement}})
	return p.told(reply), err
}

// update runs one statement. If it changes one document, that is the one which was read before.
func (s *Server) update(cmd *fakemongo.Command, p place, one bson.Raw) (bson.Raw, []change, error) {
	multi, _ := field(one, "multi").Bool()
	before, exact, ok := s.before(p, document(one, "q"), nil, field(one, "collation"), multi)
	if ok {
		one = bson.With(one, "q", bson.DocumentValue(exact))
	}
	if stages, isPipeline := field(one, "u").Array(); isPipeline && ok {
		upserts, _ := field(one, "upsert").Bool()
		return s.updateByPipeline(p, before, stages, upserts)
	}
	reply, err := s.one(cmd, p, "updates", one)
	if err != nil || !ok {
		return reply, nil, err
	}
	upserted := field(reply, "upserted", "0", "_id")
	if integer(reply, "nModified") == 0 && upserted.IsZero() {
		return reply, nil, nil
	}
	changes, err := s.changed(p, kindOf(document(one, "u")), before, upserted)
	return reply, changes, err
}

// updateByPipeline replaces documents by what a pipeline makes of them, which the backend has for
// aggregations only.
func (s *Server) updateByPipeline(
	p place, before []bson.Raw, stages bson.Array, upserts bool,
) (bson.Raw, []change, error) {
	if len(before) == 0 && upserts {
		return nil, nil, failure.NotImplemented.Errorf(
			"the embedded database has no upsert by a pipeline")
	}
	var changes []change
	for _, doc := range before {
		after, err := s.throughPipeline(p, doc, stages)
		if err == nil && slices.Equal(doc, after) {
			continue
		}
		if err == nil {
			err = s.apply(p.at, doc, after)
		}
		if err != nil {
			return nil, changes, err
		}
		changes = append(changes, change{kind: "update", ns: p.of, before: doc, after: after})
	}
	return okay(func(b *bson.Builder) {
		b.Int32("n", int32(len(before))).Int32("nModified", int32(len(changes)))
	}), changes, nil
}

// throughPipeline returns what a pipeline makes of a document.
func (s *Server) throughPipeline(p place, doc bson.Raw, stages bson.Array) (bson.Raw, error) {
	b := bson.NewBuilder(nil).String("aggregate", p.at.coll).OpenArray("pipeline").
		OpenDocument("").Document("$match", byID(doc)).Close()
	for stage := range stages.Documents() {
		b.Document("", stage)
	}
	out, err := s.all(b.Close().OpenDocument("cursor").Close(), p.at)
	switch {
	case err != nil:
		return nil, err
	case len(out) != 1 || !idOf(out[0]).Equal(idOf(doc)):
		return nil, failure.ImmutableField.Errorf("the pipeline changes the _id")
	}
	return out[0].Clone(), nil
}

// kindOf tells a replacement from an update.
func kindOf(u bson.Raw) string {
	if key := u.FirstKey(); key != "" && key[0] == '$' {
		return "update"
	}
	return "replace"
}

// delete runs one statement.
func (s *Server) delete(cmd *fakemongo.Command, p place, one bson.Raw) (bson.Raw, []change, error) {
	all := integer(one, "limit") == 0
	before, exact, ok := s.before(p, document(one, "q"), nil, field(one, "collation"), all)
	if ok {
		one = bson.With(one, "q", bson.DocumentValue(exact))
	}
	reply, err := s.one(cmd, p, "deletes", one)
	if err != nil || !ok || integer(reply, "n") == 0 {
		return reply, nil, err
	}
	changes, err := s.changed(p, "delete", before, bson.Value{})
	return reply, changes, err
}

func (s *Server) findAndModify(cmd *fakemongo.Command, p place) (bson.Raw, []change, error) {
	before, exact, ok := s.before(p, document(cmd.Body, "query"), document(cmd.Body, "sort"),
		field(cmd.Body, "collation"), false)
	body, kind := p.moved(cmd), kindOf(document(cmd.Body, "update"))
	if ok {
		body = bson.With(body, "query", bson.DocumentValue(exact))
	}
	if stages, isPipeline := field(cmd.Body, "update").Array(); isPipeline && len(before) == 1 {
		after, err := s.throughPipeline(p, before[0], stages)
		if err != nil {
			return nil, nil, err
		}
		body, kind = bson.With(body, "update", bson.DocumentValue(after)), "update"
	}
	reply, err := s.pass(body, cmd.Sequences)
	reply = p.told(reply)
	if err != nil || !ok || integer(reply, "lastErrorObject", "n") == 0 {
		return reply, nil, err
	}
	changes, err := s.changed(p, kind, before, field(reply, "lastErrorObject", "upserted"))
	return reply, changes, err
}

func byID(doc bson.Raw) bson.Raw { return bson.NewBuilder(nil).Value("_id", idOf(doc)).Finish() }

// before returns the documents that a statement will change, or only the first, and the filter of
// just these. ok is false if the filter is refused; then the statement is, too.
func (s *Server) before(
	p place, filter, sort bson.Raw, collation bson.Value, all bool,
) (docs []bson.Raw, exact bson.Raw, ok bool) {
	rest, wanted := wholeDocuments(filter)
	b := bson.NewBuilder(nil).String("find", p.at.coll).Document("filter", rest)
	if !sort.IsEmpty() {
		b.Document("sort", sort)
	}
	if !collation.IsZero() {
		b.Value("collation", collation)
	}
	if !all && len(wanted) == 0 {
		b.Int32("limit", 1)
	}
	docs, err := s.all(b, p.at)
	for _, want := range wanted {
		docs = slices.DeleteFunc(docs, func(doc bson.Raw) bool { return !slices.Equal(doc, want) })
	}
	if !all && len(docs) > 1 {
		docs = docs[:1]
	}
	if len(wanted) > 0 || !all && len(docs) == 1 {
		filter = among(idsOf(docs))
	}
	return clones(docs), filter, err == nil
}

// wholeDocuments takes the conditions {$expr: {$eq: ["$$ROOT", {$literal: document}]}}, which the
// backend does not have, out of a filter, and returns the rest and the documents.
func wholeDocuments(filter bson.Raw) (rest bson.Raw, wanted []bson.Raw) {
	b := new(bson.Builder)
	for key, v := range filter.All() {
		sides, _ := field(filter, "$expr", "$eq").Array()
		of, _ := field(bson.Raw(sides), "0").Str()
		want, isDoc := field(bson.Raw(sides), "1", "$literal").Document()
		if key == "$expr" && of == "$$ROOT" && isDoc {
			wanted = append(wanted, want)
			continue
		}
		list, isList := v.Array()
		if key != "$and" || !isList {
			b.Value(key, v)
			continue
		}
		kept := bson.NewBuilder(nil).OpenArray("$and")
		n := 0
		for each := range list.Documents() {
			inner, more := wholeDocuments(each)
			wanted = append(wanted, more...)
			if !inner.IsEmpty() {
				kept.Document("", inner)
				n++
			}
		}
		if n > 0 {
			b.AppendElements(kept.Close().Finish())
		}
	}
	return b.Finish(), wanted
}

func idsOf(docs []bson.Raw) (ids []bson.Value) {
	for _, doc := range docs {
		ids = append(ids, idOf(doc))
	}
	return ids
}

func clones(docs []bson.Raw) []bson.Raw {
	for i, doc := range docs {
		docs[i] = doc.Clone()
	}
	return docs
}

// changed compares documents with what they were.
func (s *Server) changed(
	p place, kind string, before []bson.Raw, upserted bson.Value,
) ([]change, error) {
	ids := idsOf(before)
	if !upserted.IsZero() && !upserted.IsNull() {
		ids = append(ids, upserted)
	}
	now := map[string]bson.Raw{}
	if len(ids) > 0 {
		docs, err := s.all(bson.NewBuilder(nil).String("find", p.at.coll).
			Document("filter", among(ids)), p.at)
		if err != nil {
			return nil, err
		}
		for _, doc := range clones(docs) {
			now[keyOf(idOf(doc))] = doc
		}
	}
	var changes []change
	for _, doc := range before {
		key := keyOf(idOf(doc))
		after := now[key]
		delete(now, key)
		switch {
		case after == nil:
			changes = append(changes, change{kind: "delete", ns: p.of, before: doc})
		case !slices.Equal(doc, after):
			changes = append(changes, change{kind: kind, ns: p.of, before: doc, after: after})
		}
	}
	for _, doc := range now {
		changes = append(changes, change{kind: "insert", ns: p.of, after: doc})
	}
	return changes, nil
}

// define runs a command that changes collections.
func (s *Server) define(cmd *fakemongo.Command) (bson.Raw, []change, error) {
	ns := namespaceOf(cmd)
	var gone []change
	switch cmd.Name {
	case "drop":
		exists, err := s.collections(ns.db, ns.coll)
		if err != nil {
			return nil, nil, err
		}
		if len(exists) > 0 {
			gone = []change{{kind: "drop", ns: ns}}
		}
	case "dropDatabase":
		names, err := s.collections(cmd.Database, "")
		if err != nil {
			return nil, nil, err
		}
		for _, name := range names {
			gone = append(gone, change{kind: "drop", ns: namespace{cmd.Database, name}})
		}
		if len(names) > 0 {
			gone = append(gone, change{kind: "dropDatabase", ns: namespace{db: cmd.Database}})
		}
	case "renameCollection":
		from, _ := field(cmd.Body, "renameCollection").Str()
		to, _ := field(cmd.Body, "to").Str()
		gone = []change{{kind: "rename", ns: parse(from), to: parse(to)}}
	}
	reply, err := s.pass(cmd.Body, cmd.Sequences)
	if err != nil || integer(reply, "ok") != 1 {
		return reply, nil, err
	}
	return reply, gone, nil
}

// collections returns the names of a database's collections, or only that one's if it exists.
func (s *Server) collections(db, only string) ([]string, error) {
	b := bson.NewBuilder(nil).Int32("listCollections", 1).Bool("nameOnly", true)
	if only != "" {
		b.OpenDocument("filter").String("name", only).Close()
	}
	list, err := s.all(b, namespace{db, "$cmd.listCollections"})
	var names []string
	for _, each := range list {
		name, _ := field(each, "name").Str()
		names = append(names, name)
	}
	return names, err
}
