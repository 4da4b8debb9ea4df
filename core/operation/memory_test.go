package operation_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/wire"
)

// grown is a command of several texts and documents, and a sequence if last is not nil.
type grown struct {
	text string
	docs []bson.Raw
}

func (grown) Name() string { return "test" }

func (g grown) Append(b *bson.Builder, _ operation.Target) error {
	b.Int32("test", 1).String("text", g.text).OpenDocument("inner")
	for _, doc := range g.docs {
		b.Document("doc", doc).AppendElements(doc)
	}
	b.Close()
	return nil
}

// withSequence has the documents once more in a sequence.
type withSequence struct{ grown }

func (w withSequence) AppendSequences(msg []byte, to operation.Target) ([]byte, error) {
	size := 16
	for _, doc := range w.docs {
		size += len(doc)
	}
	msg, err := to.Grow(msg, size)
	if err != nil {
		return nil, err
	}
	return wire.AppendSequence(msg, "docs", w.docs), nil
}

// admitted counts the bytes that messages hold.
type admitted struct{ held, peak, asked, limit int }

func (a *admitted) admit(_ context.Context, size int) (func(), error) {
	if a.limit > 0 && a.held+size > a.limit {
		return nil, errFull
	}
	a.asked++
	a.held += size
	a.peak = max(a.peak, a.held)
	return func() { a.held -= size }, nil
}

var errFull = errors.New("no room")

// TestLargeMessagesAreAdmitted checks that all bytes of a large message are admitted before they
// are taken, however it grows, and counted until the reply is there; that a small one asks for
// nothing; and that nothing is sent if there is no room.
func TestLargeMessagesAreAdmitted(t *testing.T) {
	const large = 3 << 20
	doc := bson.NewBuilder(nil).String("a", strings.Repeat("x", large)).Finish()
	long := strings.Repeat("x", large)
	for name, cmd := range map[string]operation.Command{
		"a text":            grown{text: long},
		"documents":         grown{docs: []bson.Raw{doc, doc, doc}},
		"all, and sequence": withSequence{grown{text: long, docs: []bson.Raw{doc, doc}}},
	} {
		t.Run(name, func(t *testing.T) {
			a, f := &admitted{}, &fake{}
			r := operation.Runner{Deployment: f, Admit: a.admit}
			sent := 0
			f.before = func(context.Context) { sent = a.held }
			op := operation.Operation{Database: "d", Command: cmd}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := r.Run(t.Context(), &op)
			runtime.ReadMemStats(&after)
			size := len(wire.Append(nil, wire.Header{}, f.sent[0]))
			if err != nil || sent < size || a.held != 0 {
				t.Errorf("%v: %d bytes are held while %d are sent, %d afterwards", err, sent, size,
					a.held)
			}
			// The fake keeps a copy.
			took := int(after.TotalAlloc-before.TotalAlloc) - size
			if a.peak > 3*size || took > 5*size {
				t.Errorf("%d bytes at the peak, and %d in all, for a message of %d", a.peak, took,
					size)
			}

			a, f = &admitted{limit: size / 2}, &fake{}
			r = operation.Runner{Deployment: f, Admit: a.admit}
			if _, err = r.Run(t.Context(), &op); !errors.Is(err, errFull) || len(f.sent) > 0 ||
				a.held != 0 || f.checkedOut != 0 {
				t.Errorf("without room: %v, %d sent, %d held, %d connections", err, len(f.sent),
					a.held, f.checkedOut)
			}
		})
	}
	a, f := &admitted{}, &fake{}
	r := operation.Runner{Deployment: f, Admit: a.admit}
	small := operation.Operation{Database: "d", Command: grown{text: long[:bson.LargeBuffer/2]}}
	if _, err := r.Run(t.Context(), &small); err != nil || a.asked != 0 {
		t.Errorf("a small message: %v, asked %d times", err, a.asked)
	}
}
