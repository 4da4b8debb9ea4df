package docdb

import (
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// lists are the statements of writes.
var lists = map[string]string{"insert": "documents", "update": "updates", "delete": "deletes"}

// write runs the statements of a write one by one, but the documents of an insert together.
func (r *request) write() (bson.Raw, error) {
	statements := r.Documents(lists[r.Name])
	ordered, given := field(r.Body, "ordered").Bool()
	w := &written{ordered: ordered || !given}
	size, first := 1, 0
	if r.Name == "insert" {
		size = max(1, len(statements))
	}
	for group := range slices.Chunk(statements, size) {
		if err := r.group(w, first, group); err != nil {
			return nil, err
		}
		if first += len(group); w.ordered && len(w.errors) > 0 {
			break
		}
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

// add adds what the statements at these indexes did.
func (w *written) add(reply bson.Raw, at ...int) {
	w.n += integer(reply, "n")
	w.modified += integer(reply, "nModified")
	for name, to := range map[string]*[]bson.Raw{
		"upserted": &w.upserted, "writeErrors": &w.errors,
	} {
		all, _ := field(reply, name).Array()
		for doc := range all.Documents() {
			of := at[integer(doc, "index")]
			*to = append(*to, bson.With(doc, "index", bson.Int32Value(int32(of))))
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

func (r *request) retryable() bool { return r.Body.Has("txnNumber") && r.within == nil }

// statementID returns the id of the statement at an index of a command.
func (r *request) statementID(i int) int32 {
	ids, _ := field(r.Body, "stmtIds").Array()
	if id, ok := field(bson.Raw(ids), strconv.Itoa(i)).AsInt64(); ok {
		return int32(id)
	}
	return int32(integer(r.Body, "stmtId")) + int32(i)
}

// known returns what the statements of a retryable write did that were run before.
func (r *request) known() (map[int32]bson.Raw, error) {
	known := map[int32]bson.Raw{}
	if !r.retryable() {
		return known, nil
	}
	var ids []int32
	var results [][]byte
	err := r.on.QueryRow(r.front.ctx, `SELECT array_agg(stmt), array_agg(result)
		FROM mooring.statements WHERE lsid = $1 AND txn = $2`, []byte(r.lsid), r.number()).
		Scan(&ids, &results)
	for i, id := range ids {
		known[id] = results[i]
	}
	return known, err
}

// remember keeps what statements did, in the SQL transaction that does it. The session's older
// writes are forgotten.
func (r *request) remember(result bson.Raw, ids ...int32) error {
	if !r.retryable() || len(ids) == 0 {
		return nil
	}
	_, err := r.on.Exec(r.front.ctx, `WITH old AS
			(DELETE FROM mooring.statements WHERE lsid = $1 AND txn < $2)
		INSERT INTO mooring.statements SELECT $1, $2, unnest($3::int[]), $4`,
		[]byte(r.lsid), r.number(), ids, []byte(result))
	return err
}

// group runs statements, of which the first has an index, in one SQL transaction. Those that were
// run before are not run again.
func (r *request) group(w *written, first int, group []bson.Raw) error {
	list, before := lists[r.Name], *w
	return r.inTx(func() error {
		*w = before
		known, err := r.known()
		if err != nil {
			return err
		}
		var left []int
		b := bson.NewBuilder(nil).AppendElements(bson.Without(r.Body, list)).OpenArray(list)
		for i, s := range group {
			id := r.statementID(first + i)
			if did, again := known[id]; again {
				w.add(did, first+i)
				w.retried = append(w.retried, id)
				continue
			}
			left = append(left, first+i)
			b.Document("", s)
		}
		if len(left) == 0 {
			return nil
		}
		if err := r.prepare(group[0]); err != nil {
			return err
		}
		reply, err := r.change(r.Name, b.Close().Finish())
		if err == nil {
			reply, err = withCodes(reply)
		}
		if err != nil {
			return err
		}
		w.add(reply, left...)
		if r.Name == "insert" { // each of them did this
			reply = bson.NewBuilder(nil).Int32("n", 1).Finish()
		}
		failed := map[int64]bool{}
		for _, e := range w.errors {
			failed[integer(e, "index")] = true
		}
		var done []int32
		for _, i := range left {
			switch {
			case !failed[int64(i)]:
				done = append(done, r.statementID(i))
			case w.ordered: // those behind it were not run
				return r.remember(reply, done...)
			}
		}
		return r.remember(reply, done...)
	})
}

// prepare refuses an update or a delete that cannot be retried, and says what it does.
func (r *request) prepare(statement bson.Raw) error {
	if r.Name == "insert" {
		return nil
	}
	multi, _ := field(statement, "multi").Bool()
	limit, limited := field(statement, "limit").AsInt64()
	if r.retryable() && (multi || limited && limit == 0) {
		return failure.InvalidOptions.Errorf("a retryable write changes one document")
	}
	return r.emitKind(field(statement, "u"))
}

func (r *request) findAndModify() (reply bson.Raw, err error) {
	id, again := r.statementID(0), false
	err = r.inTx(func() error {
		known, err := r.known()
		if reply, again = known[id]; again || err != nil {
			return err
		}
		if err := r.emitKind(field(r.Body, "update")); err != nil {
			return err
		}
		reply, err = r.change("find_and_modify", r.Body)
		if err != nil {
			return err
		}
		return r.remember(reply, id)
	})
	if again {
		reply = bson.With(reply, "retriedStmtId", bson.Int32Value(id))
	}
	return reply, err
}

// change runs a function of the engine that changes documents.
func (r *request) change(function string, body bson.Raw) (bson.Raw, error) {
	return r.call("SELECT p_result FROM documentdb_api."+function+"(@db, @body::bytea)",
		r.args(body))
}

// emit writes a message into the log, in its order with the changes of the SQL transaction, and
// returns the position that the log has come to.
func (r *request) emit(prefix string, content bson.Raw) (at uint64, err error) {
	return r.query("pg_logical_emit_message(true, @prefix, @content::bytea)::text", "",
		pgx.NamedArgs{
			"prefix":  prefix,
			"content": append([]byte{}, content...), // no message would be made of NULL
		}, new(string))
}

// emitKind says in the log whether the changes behind it replace documents: its rows do not tell.
func (r *request) emitKind(update bson.Value) error {
	if update.IsZero() { // documents are deleted
		return nil
	}
	kind := "update"
	if doc, ok := update.Document(); ok && (doc.IsEmpty() || doc.FirstKey()[0] != '$') {
		kind = "replace"
	}
	_, err := r.emit(kind, nil)
	return err
}
