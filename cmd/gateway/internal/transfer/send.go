package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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

// write makes the call, and returns the writes that failed.
func (m *importing) write(
	ctx context.Context, b *batch, keyed bool,
) ([]*mooringv1.WriteError, error) {
	if keyed {
		// A batch of a file that has grown is another one: it has more documents, or more of the
		// last.
		hash := sha256.New()
		for _, r := range b.docs {
			hash.Write(r.doc)
		}
		key := fmt.Sprintf("%s-%d-%x", m.state.ID, b.first, hash.Sum(nil)[:8])
		ctx = client.WithIdempotencyKey(ctx, key)
	}
	ordered, partial := m.UpsertFields != nil, true
	if ordered {
		return m.replace(ctx, b)
	}
	docs := make([]bson.Raw, len(b.docs))
	for i, r := range b.docs {
		docs[i] = r.doc
	}
	r, err := m.Collection.InsertMany(ctx, docs, func(r *mooringv1.InsertManyRequest) {
		r.Ordered, r.ReturnPartialSuccess = &ordered, &partial
	})
	b.counts = Imported{
		Inserted: r.GetInsertedCount(), Unacknowledged: Concern(r.GetWriteConcernError()),
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
	if b.again && m.UpsertFields == nil {
		var err error
		if written, err = m.written(ctx, b, failures); err != nil {
			return err
		}
	}
	for _, f := range failures {
		if written[f.GetIndex()] {
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

// written returns which of the documents that exist already are equal to those of the batch.
func (m *importing) written(
	ctx context.Context, b *batch, failures []*mooringv1.WriteError,
) (map[int64]bool, error) {
	ids := bson.NewBuilder(nil)
	in := ids.OpenDocument("_id").OpenArray("$in")
	same := map[string][]int64{} // by the bytes of the document
	for _, f := range failures {
		if f.GetCode() == duplicateKey {
			doc := b.docs[f.GetIndex()].doc
			id, _ := doc.Lookup("_id")
			in.Value("", id)
			same[string(doc)] = append(same[string(doc)], f.GetIndex())
		}
	}
	found := map[int64]bool{}
	if len(same) == 0 {
		return found, nil
	}
	filter := in.Close().Close().Finish()
	for doc, err := range m.Collection.Find(ctx, filter) {
		if err != nil {
			return nil, fmt.Errorf("documents %d to %d: %w", b.first+1, b.next, err)
		}
		if of := same[string(doc)]; len(of) > 0 {
			found[of[0]] = true // an equal document that follows is a duplicate in the file
		}
	}
	return found, nil
}
