package deployment

import (
	"errors"
	"slices"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// tally holds what the operations of a bulkWrite add to its reply.
type tally struct {
	errors, inserted, matched, modified, upserted, deleted int32
}

// bulkWrite runs operations on several collections. Its results come by a cursor.
func (h *host) bulkWrite(cmd *request) (reply, error) {
	ops, err := h.bulkOperations(cmd)
	if err != nil {
		return reply{}, err
	}
	ordered, given := field(cmd.Body, "ordered").Bool()
	errorsOnly, _ := field(cmd.Body, "errorsOnly").Bool()
	var sum tally
	var results []bson.Raw
	cmd.store.mu.Lock()
	for i, op := range ops {
		did, err := cmd.once(int32(i), func() (result, error) { return op.run(cmd, op) })
		if end, ended := errors.AsType[*fatal](err); ended {
			cmd.store.mu.Unlock()
			return reply{}, end
		}
		if err != nil {
			sum.errors++
			refused := bson.Without(failure.Reply(err, false), "codeName")
			results = append(results, bson.NewBuilder(nil).AppendElements(refused).
				Int32("idx", int32(i)).Int32("n", 0).Finish())
			if ordered || !given {
				break
			}
			continue
		}
		op.count(&sum, did)
		if !errorsOnly {
			results = append(results, op.result(i, did))
		}
	}
	cmd.store.mu.Unlock()
	c := &cursor{namespace: "admin.$cmd.bulkWrite", rest: results, ends: true}
	r, err := h.first(cmd, c, field(cmd.Body, "cursor", "batchSize"), false)
	r.doc = bson.NewBuilder(nil).AppendElements(r.doc).Int32("nErrors", sum.errors).
		Int32("nInserted", sum.inserted).Int32("nMatched", sum.matched).
		Int32("nModified", sum.modified).Int32("nUpserted", sum.upserted).
		Int32("nDeleted", sum.deleted).Finish()
	return r, err
}

// bulkOperation holds one operation of a bulkWrite.
type bulkOperation struct {
	kind      string // "insert", "update" or "delete"
	namespace string
	statement bson.Raw // in the words of the command of that name
	run       func(*request, bulkOperation) (result, error)
}

// bulkOperations returns the operations of a command, or refuses them all.
func (h *host) bulkOperations(cmd *request) ([]bulkOperation, error) {
	if h.wire < wire80 {
		return nil, failure.CommandNotFound.Errorf("no such command: 'bulkWrite'")
	}
	if cmd.Database != "admin" {
		return nil, failure.Unauthorized.Errorf(
			"bulkWrite may only be run against the admin database.")
	}
	runs := map[string]func(*request, bulkOperation) (result, error){
		"insert": func(cmd *request, op bulkOperation) (result, error) {
			return h.insertLocked(cmd, op.namespace, document(op.statement, "document"))
		},
		"update": func(cmd *request, op bulkOperation) (result, error) {
			return h.updateLocked(cmd, op.namespace, op.statement)
		},
		"delete": func(cmd *request, op bulkOperation) (result, error) {
			return h.deleteLocked(cmd, op.namespace, op.statement,
				integer(op.statement, "limit"))
		},
	}
	infos, ops := cmd.Documents("nsInfo"), []bulkOperation(nil)
	for _, doc := range cmd.Documents("ops") {
		kind := doc.FirstKey()
		op := bulkOperation{kind: kind, run: runs[kind]}
		if op.run == nil {
			return nil, failure.UnknownField.Errorf(
				"BSON field 'bulkWrite.ops.%s' is unknown", kind)
		}
		if err := h.checkFields("ops."+kind, doc); err != nil {
			return nil, err
		}
		of := integer(doc, kind)
		if of < 0 || of >= int64(len(infos)) {
			return nil, failure.BadValue.Errorf(
				"BulkWrite ops entry %d has an invalid nsInfo index", of)
		}
		op.namespace, _ = field(infos[of], "ns").Str()
		multi, _ := field(doc, "multi").Bool()
		if err := cmd.allowsMulti(multi); err != nil {
			return nil, err
		}
		op.statement = renamed(doc, multi)
		if err := checkStages(field(op.statement, "u")); err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	if len(ops) == 0 {
		return nil, failure.InvalidLength.Errorf(
			"Write batch sizes must be between 1 and 100000. Got 0")
	}
	return ops, nil
}

// renamed returns an operation with the names that update and delete have for its fields.
func renamed(op bson.Raw, multi bool) bson.Raw {
	b := new(bson.Builder)
	for key, v := range op.All() {
		switch key {
		case "filter":
			key = "q"
		case "updateMods":
			key = "u"
		}
		b.Value(key, v)
	}
	if !multi {
		b.Int32("limit", 1)
	}
	return b.Finish()
}

func (op bulkOperation) count(sum *tally, did result) {
	switch {
	case op.kind == "insert":
		sum.inserted += did.n
	case op.kind == "delete":
		sum.deleted += did.n
	case !did.upserted.IsZero():
		sum.upserted++
	default:
		sum.matched += did.n
		sum.modified += did.modified
	}
}

// result returns the document of an operation that was done.
func (op bulkOperation) result(i int, did result) bson.Raw {
	b := bson.NewBuilder(nil).Double("ok", 1).Int32("idx", int32(i)).Int32("n", did.n)
	if op.kind == "update" {
		b.Int32("nModified", did.modified)
	}
	if !did.upserted.IsZero() {
		b.OpenDocument("upserted").Value("_id", did.upserted).Close()
	}
	return b.Finish()
}

// largest returns how many of the documents, the first ones, fit into one reply.
func largest(docs []bson.Raw) int64 {
	size := 0
	n := slices.IndexFunc(docs, func(doc bson.Raw) bool {
		size += len(doc) + 16
		return size > 16<<20
	})
	if n < 0 {
		n = len(docs)
	}
	return int64(max(n, 1))
}
