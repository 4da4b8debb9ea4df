package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// patience is how long a batch is sent again without success.
const patience = 5 * time.Minute

// duplicateKey is the server's code for a document whose key exists.
const duplicateKey = 11000

// send writes a batch. It blocks until all of it is written or rejected, or nothing can be done.
func (m *importing) send(ctx context.Context, b *batch) error {
	b.rejects = b.bad
	if len(b.docs) == 0 {
		return nil
	}
	until := time.Now().Add(patience)
	for attempt := 0; ; attempt++ {
		keyed := !m.unkeyed.Load()
		failures, err := m.write(ctx, b, keyed)
		if err == nil {
			m.reached.Store(true)
			return m.judge(ctx, b, failures)
		}
		failed, ok := errors.AsType[*client.Error](err)
		switch {
		case !ok || ctx.Err() != nil:
			return err
		case failed.Reason == "IdempotencyKeyUnsupported" && keyed:
			m.unkeyed.Store(true)
			continue
		case !isPassing(failed) || time.Now().After(until),
			failed.Reason == "" && !m.reached.Load(): // most likely the address is wrong
			return fmt.Errorf("documents %d to %d: %w", b.first+1, b.next, err)
		case failed.Retry != client.SameRequest, failed.Reason == "IdempotencyUnavailable",
			failed.Reason == "WriteOutcomeUnknown", failed.Reason == "":
			// It may have been written, and its key be forgotten: a gateway that restarts may have
			// had one of its own.
			b.again = true
		}
		if err := pause(ctx, attempt, failed.RetryAfter); err != nil {
			return err
		}
	}
}

// isPassing reports whether the same batch can succeed later. It is never written twice: the server
// knows a batch by its key, and otherwise the documents by their _ids.
func isPassing(failed *client.Error) bool {
	return failed.Retry == client.SameRequest ||
		failed.Reason == "" && failed.Code == codes.Unavailable ||
		failed.Reason == "WriteOutcomeUnknown" || failed.Reason == "IdempotencyUnavailable"
}

// pause blocks for the time that the gateway says, or for one that becomes longer.
func pause(ctx context.Context, attempt int, after time.Duration) error {
	if after <= 0 {
		after = min(100*time.Millisecond<<min(attempt, 6), 5*time.Second)
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write writes what an earlier attempt at the batch has not, and returns the writes that failed.
func (m *importing) write(
	ctx context.Context, b *batch, keyed bool,
) ([]*mooringv1.WriteError, error) {
	var written map[int64]bool
	if b.again && m.UpsertFields == nil {
		// A time series takes a document twice.
		var err error
		written, err = m.settled(ctx, b)
		if failed, ok := errors.AsType[*client.Error](err); err != nil &&
			(!ok || failed.Code != codes.PermissionDenied) { // the client may only insert
			return nil, err
		}
	}
	var docs []bson.Raw
	var indexes []int64
	hash := sha256.New()
	for i, r := range b.docs {
		if !written[int64(i)] {
			docs, indexes = append(docs, r.doc), append(indexes, int64(i))
			hash.Write(r.doc)
		}
	}
	if len(docs) == 0 {
		b.counts = Imported{Inserted: int64(len(written))}
		return nil, nil
	}
	if keyed {
		// A batch of a file that has grown is another one: it has more documents, or more of the
		// last.
		key := fmt.Sprintf("%s-%d-%x", m.state.ID, b.first, hash.Sum(nil)[:8])
		ctx = client.WithIdempotencyKey(ctx, key)
	}
	ordered, partial := m.UpsertFields != nil, true
	if ordered {
		return m.replace(ctx, b)
	}
	r, err := m.Collection.InsertMany(ctx, docs, func(r *mooringv1.InsertManyRequest) {
		r.Ordered, r.ReturnPartialSuccess = &ordered, &partial
	})
	b.counts = Imported{
		Inserted:       r.GetInsertedCount() + int64(len(written)),
		Unacknowledged: Concern(r.GetWriteConcernError()),
	}
	for _, f := range r.GetWriteErrors() {
		f.Index = indexes[f.GetIndex()]
	}
	return r.GetWriteErrors(), err
}

// replace writes each document in the place of an older one with the same fields.
func (m *importing) replace(ctx context.Context, b *batch) ([]*mooringv1.WriteError, error) {
	models := make([]*mooringv1.WriteModel, len(b.docs))
	upsert, ordered, partial := true, false, true
	for i, r := range b.docs {
		filter := bson.NewBuilder(nil)
		for _, field := range m.UpsertFields {
			v, _ := r.doc.Lookup(strings.Split(field, ".")...)
			filter.OpenDocument(field).Value("$eq", v).Close()
		}
		models[i] = &mooringv1.WriteModel{Kind: &mooringv1.WriteModel_ReplaceOne{
			ReplaceOne: &mooringv1.ReplaceOneModel{
				Filter: document(filter.Finish()), Replacement: document(r.doc), Upsert: &upsert,
			},
		}}
	}
	r, err := m.Collection.BulkWrite(ctx, models, func(r *mooringv1.BulkWriteRequest) {
		r.Ordered, r.ReturnPartialSuccess = &ordered, &partial
	})
	b.counts = Imported{
		Inserted: r.GetUpsertedCount(), Replaced: r.GetMatchedCount(),
		Unacknowledged: Concern(r.GetWriteConcernError()),
	}
	return r.GetWriteErrors(), err
}

// Concern returns why a write concern was not met, as a text for people; "": it was.
func Concern(e *mooringv1.WriteConcernError) string {
	if e == nil {
		return ""
	}
	return fmt.Sprintf("%s (%d): %s", e.GetCodeName(), e.GetCode(), e.GetMessage())
}

func document(d bson.Raw) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: d}}
}

// judge rejects the documents whose writes have failed, but for those that an earlier attempt at
// the batch has written.
func (m *importing) judge(
	ctx context.Context, b *batch, failures []*mooringv1.WriteError,
) error {
	var written map[int64]bool
	if b.again && m.UpsertFields == nil && slices.ContainsFunc(failures, isDuplicate) {
		var err error
		if written, err = m.written(ctx, b); err != nil {
			return fmt.Errorf("documents %d to %d: %w", b.first+1, b.next, err)
		}
	}
	for _, f := range failures {
		if isDuplicate(f) && written[f.GetIndex()] {
			b.counts.Inserted++
			continue
		}
		r := b.docs[f.GetIndex()]
		text, err := extjson.Append(nil, r.doc, extjson.Canonical)
		if err != nil {
			text = nil
		}
		column := 0
		if r.line > 0 {
			column = 1
		}
		reason := f.GetMessage()
		for _, v := range f.GetViolations() {
			reason += "; " + Violation(v)
		}
		b.rejects = append(b.rejects, &Trouble{
			Line: r.line, Column: column, Number: r.number, Reason: reason, Text: clip(text),
		})
	}
	slices.SortStableFunc(b.rejects, func(a, b *Trouble) int { return int(a.Number - b.Number) })
	return nil
}

// Violation returns where a document breaks a validator, and which rule, as a text for people.
func Violation(v *mooringv1.Violation) string {
	where := v.GetPointer()
	if where == "" {
		where = "the document"
	}
	return where + ": " + v.GetMessage()
}

func isDuplicate(f *mooringv1.WriteError) bool { return f.GetCode() == duplicateKey }

// settled returns which documents of the batch exist already, once they do not become more: if only
// some of them exist, the server may still be writing the others.
func (m *importing) settled(ctx context.Context, b *batch) (map[int64]bool, error) {
	for before := 0; ; {
		written, err := m.written(ctx, b)
		n := len(written)
		if err != nil || n == 0 || n == len(b.docs) || n == before {
			return written, err
		}
		before = n
		if err := pause(ctx, 0, time.Second); err != nil {
			return nil, err
		}
	}
}

// written returns which documents of the batch exist already. Of equal ones the first are those.
func (m *importing) written(ctx context.Context, b *batch) (map[int64]bool, error) {
	same := map[string][]int64{} // by the bytes of the document
	for i, r := range b.docs {
		text := string(inOrder(r.doc))
		same[text] = append(same[text], int64(i))
	}
	found := map[int64]bool{}
	find := func(r *mooringv1.FindRequest) { // a secondary may be behind
		primary, local := "primary", "local"
		r.ReadPreference = &mooringv1.ReadPreference{Mode: &primary}
		r.ReadConcern = &mooringv1.ReadConcern{Level: &local}
	}
	for doc, err := range m.Collection.Find(ctx, like(b.docs), find) {
		if err != nil {
			return nil, err
		}
		text := string(inOrder(doc))
		if of := same[text]; len(of) > 0 {
			found[of[0]], same[text] = true, of[1:]
		}
	}
	return found, nil
}

// like returns a filter that finds the documents, and few others, by their _ids and by the dates
// that all of them have: a time series has no index of _id, but knows where a time is.
func like(docs []record) bson.Raw {
	type span struct {
		first, last int64
		docs        int
	}
	spans := map[string]span{}
	filter := bson.NewBuilder(nil)
	in := filter.OpenDocument("_id").OpenArray("$in")
	for _, r := range docs {
		id, _ := r.doc.Lookup("_id")
		if d, _ := id.Document(); !strings.HasPrefix(d.FirstKey(), "$") { // which no server takes
			in.Value("", id)
		}
		for key, v := range r.doc.All() {
			if at, ok := v.DateTime(); ok {
				s, ok := spans[key]
				if !ok {
					s.first, s.last = at, at
				}
				spans[key] = span{min(s.first, at), max(s.last, at), s.docs + 1}
			}
		}
	}
	in.Close().Close()
	for _, key := range slices.Sorted(maps.Keys(spans)) {
		s := spans[key]
		if s.docs == len(docs) && key != "_id" && !strings.ContainsAny(key, ".$") {
			filter.OpenDocument(key).DateTime("$gte", s.first).DateTime("$lte", s.last).Close()
		}
	}
	return filter.Finish()
}

// inOrder returns a document with its fields in the order of their names, as deep as they are: a
// time series returns them in another order than they were inserted in.
func inOrder(d bson.Raw) bson.Raw {
	type field struct {
		key   string
		value bson.Value
	}
	var fields []field
	for key, v := range d.All() {
		if v.Type == bson.TypeDocument || v.Type == bson.TypeArray {
			v.Data = inOrder(v.Data)
		}
		fields = append(fields, field{key, v})
	}
	slices.SortStableFunc(fields, func(a, b field) int { return strings.Compare(a.key, b.key) })
	ordered := bson.NewBuilder(nil)
	for _, f := range fields {
		ordered.Value(f.key, f.value)
	}
	return ordered.Finish()
}
