package docdb

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/mooringdb/mooring/core/bson"
)

// emptyDigest stands for no user in the ids of sessions.
var emptyDigest = sha256.Sum256(nil)

// contextOf returns a context that does not end with the front.
func contextOf(f *Front) context.Context { return context.WithoutCancel(f.ctx) }

// lists are the statements of writes.
var lists = map[string]string{"insert": "documents", "update": "updates", "delete": "deletes"}

// write runs the statements of a write one by one, but the documents of an insert together.
func (r *request) write() (bson.Raw, error) {
	unlock, err := r.number()
	if err != nil {
		return nil, err
	}
	defer unlock()
	list := lists[r.Name]
	array, _ := field(r.body, list).Array()
	statements := slices.Collect(array.Documents())
	w := &written{ordered: true}
	if ordered, given := field(r.body, "ordered").Bool(); given {
		w.ordered = ordered
	}
	if r.Name == "insert" {
		err = r.insert(w, statements)
	} else {
		err = r.each(w, list, statements)
	}
	if err != nil {
		return nil, err
	}
	return w.reply(r.Name == "update"), nil
}

// written collects what the statements of a write did.
type written struct {
	ordered     bool
	n, modified int64
	upserted    []bson.Raw
	errors      []bson.Raw
	retried     []int32
}

// failed reports whether a statement has failed that those behind it wait for.
func (w *written) failed() bool { return w.ordered && len(w.errors) > 0 }

// add adds what the statement at an index did.
func (w *written) add(i int, reply bson.Raw) {
	w.n += integer(reply, "n")
	w.modified += integer(reply, "nModified")
	for name, to := range map[string]*[]bson.Raw{
		"upserted": &w.upserted, "writeErrors": &w.errors,
	} {
		all, _ := field(reply, name).Array()
		for doc := range all.Documents() {
			*to = append(*to, bson.NewBuilder(nil).Int32("index", int32(i)).
				AppendElements(bson.Without(doc, "index")).Finish())
		}
	}
}

func (w *written) reply(isUpdate bool) bson.Raw {
	b := bson.NewBuilder(nil).Int32("n", int32(w.n))
	if isUpdate {
		b.Int32("nModified", int32(w.modified))
	}
	if len(w.upserted) > 0 {
		appendList(b, "upserted", w.upserted, b.Document)
	}
	if len(w.errors) > 0 {
		appendList(b, "writeErrors", w.errors, b.Document)
	}
	if len(w.retried) > 0 {
		appendList(b, "retriedStmtIds", w.retried, b.Int32)
	}
	return b.Double("ok", 1).Finish()
}

// number applies the txnNumber of a retryable write. unlock lets the session's next one begin.
func (r *request) number() (unlock func(), err error) {
	if r.within != nil {
		r.within.wrote = true
	}
	if !r.retryable() {
		return func() {}, nil
	}
	s := r.front.session(r.lsid)
	s.writes.Lock()
	if err := r.front.advance(r, nil); err != nil {
		s.writes.Unlock()
		return nil, err
	}
	return s.writes.Unlock, nil
}

func (r *request) retryable() bool { return r.Body.Has("txnNumber") && !r.Body.Has("autocommit") }

// statementID returns the id of the statement at an index of a command.
func (r *request) statementID(i int) int32 {
	ids, _ := field(r.body, "stmtIds").Array()
	if id, ok := field(bson.Raw(ids), indexKey(i)).AsInt64(); ok {
		return int32(id)
	}
	return int32(integer(r.body, "stmtId")) + int32(i)
}

// remembered returns what a statement did when it was run before; nil: it was not.
func (r *request) remembered(id int32) (bson.Raw, error) {
	if !r.retryable() {
		return nil, nil
	}
	var result []byte
	err := r.on.QueryRow(r.front.ctx, `SELECT result FROM mooring.statements
		WHERE lsid = $1 AND txn = $2 AND stmt = $3`, []byte(r.lsid),
		integer(r.Body, "txnNumber"), id).Scan(&result)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return result, err
}

// remember keeps what statements did, in the SQL transaction that does it. The session's older
// writes are forgotten.
func (r *request) remember(result bson.Raw, ids ...int32) error {
	_, err := r.on.Exec(r.front.ctx, `WITH old AS
			(DELETE FROM mooring.statements WHERE lsid = $1 AND txn < $2)
		INSERT INTO mooring.statements SELECT $1, $2, unnest($3::int[]), $4`,
		[]byte(r.lsid), integer(r.Body, "txnNumber"), ids, []byte(result))
	return err
}

// once runs a statement in an SQL transaction of its own, or returns what it did before.
func (r *request) once(
	id int32, run func() (bson.Raw, error),
) (reply bson.Raw, again bool, err error) {
	err = r.inTx(func() error {
		reply, err = r.remembered(id)
		if again = reply != nil; again || err != nil {
			return err
		}
		if reply, err = run(); err != nil {
			return err
		}
		if reply, err = withCodes(reply); err != nil {
			return err
		}
		if r.retryable() && !reply.Has("writeErrors") {
			return r.remember(reply, id)
		}
		return nil
	})
	return reply, again, err
}

// each runs the statements of an update or a delete.
func (r *request) each(w *written, list string, statements []bson.Raw) error {
	rest := bson.Without(r.body, list)
	for i, s := range statements {
		multi, _ := field(s, "multi").Bool()
		limit, limited := field(s, "limit").AsInt64()
		if r.retryable() && (multi || limited && limit == 0) {
			return fail(invalidOptions, "a retryable write changes one document")
		}
		b := bson.NewBuilder(nil).AppendElements(rest).OpenArray(list).Document("", s)
		one := b.Close().Finish()
		reply, again, err := r.once(r.statementID(i), func() (bson.Raw, error) {
			if err := r.emitKind(field(s, "u")); err != nil {
				return nil, err
			}
			return r.column("p_result", r.Name, r.Database, one)
		})
		if err != nil {
			return err
		}
		if again {
			w.retried = append(w.retried, r.statementID(i))
		}
		w.add(i, reply)
		if w.failed() {
			break
		}
	}
	return nil
}

// insert inserts the documents that were not inserted before, and remembers each.
func (r *request) insert(w *written, docs []bson.Raw) error {
	rest := bson.Without(r.body, "documents")
	return r.inTx(func() error {
		*w = written{ordered: w.ordered}
		known, err := r.known()
		if err != nil {
			return err
		}
		var left []int
		b := bson.NewBuilder(nil).AppendElements(rest).OpenArray("documents")
		for i, doc := range docs {
			if id := r.statementID(i); slices.Contains(known, id) {
				w.n++
				w.retried = append(w.retried, id)
				continue
			}
			left = append(left, i)
			b.Document("", doc)
		}
		if len(left) == 0 && len(docs) > 0 {
			return nil
		}
		reply, err := r.column("p_result", "insert", r.Database, b.Close().Finish())
		if err == nil {
			reply, err = withCodes(reply)
		}
		if err != nil {
			return err
		}
		return r.inserted(w, left, reply)
	})
}

// known returns the statements of a retryable write that were run before.
func (r *request) known() (ids []int32, err error) {
	if !r.retryable() {
		return nil, nil
	}
	err = r.on.QueryRow(r.front.ctx, `SELECT coalesce(array_agg(stmt), '{}') FROM mooring.statements
		WHERE lsid = $1 AND txn = $2`, []byte(r.lsid), integer(r.Body, "txnNumber")).Scan(&ids)
	return ids, err
}

// inserted notes which of the documents at these indexes the engine has inserted.
func (r *request) inserted(w *written, left []int, reply bson.Raw) error {
	w.n += integer(reply, "n")
	failed := map[int]bool{}
	errs, _ := field(reply, "writeErrors").Array()
	for e := range errs.Documents() {
		i := int(integer(e, "index"))
		failed[i] = true
		w.errors = append(w.errors, bson.With(e, "index", bson.Int32Value(int32(left[i]))))
	}
	var done []int32
	for i, of := range left {
		if failed[i] && w.ordered {
			break
		}
		if !failed[i] {
			done = append(done, r.statementID(of))
		}
	}
	if !r.retryable() || len(done) == 0 {
		return nil
	}
	return r.remember(bson.NewBuilder(nil).Finish(), done...)
}

func (r *request) findAndModify() (bson.Raw, error) {
	unlock, err := r.number()
	if err != nil {
		return nil, err
	}
	defer unlock()
	reply, again, err := r.once(r.statementID(0), func() (bson.Raw, error) {
		if err := r.emitKind(field(r.body, "update")); err != nil {
			return nil, err
		}
		return r.column("p_result", "find_and_modify", r.Database, r.body)
	})
	if again {
		reply = bson.With(reply, "retriedStmtId", bson.Int32Value(r.statementID(0)))
	}
	return reply, err
}

// emit writes a message into the log, in its order with the changes of the SQL transaction.
func (r *request) emit(prefix string, content bson.Raw) error {
	_, err := r.on.Exec(r.front.ctx, `SELECT pg_logical_emit_message(true, $1, $2::bytea)`,
		messagePrefix+prefix, append([]byte{}, content...)) // no message would be made of NULL
	return err
}

// emitKind says in the log whether the changes behind it replace documents: its rows do not tell.
func (r *request) emitKind(update bson.Value) error {
	kind := "update"
	if doc, ok := update.Document(); ok && (doc.IsEmpty() || doc.FirstKey()[0] != '$') {
		kind = "replace"
	}
	if r.within == nil && kind == "update" || r.within != nil && r.within.kind == kind {
		return nil
	}
	if r.within != nil {
		r.within.kind = kind
	}
	return r.emit(kind, nil)
}

func indexKey(i int) string { return strconv.Itoa(i) }
