package rest

import (
	"bytes"
	"sync/atomic"

	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

const (
	// keptTexts is how many texts are kept, and maxShared the size of the largest document that has
	// one.
	keptTexts = 8
	maxShared = 32 << 10
)

// sharedTexts keeps the texts of the last documents that streams which share a cursor have sent.
// Many of them send the same document at about the same time, of which the text is made once. Its
// zero value is empty. It is safe for concurrent use, and blocks nothing.
type sharedTexts struct {
	last atomic.Uint32
	kept [keptTexts]atomic.Pointer[sharedText]
}

// sharedText holds the text of a document. It does not change.
type sharedText struct {
	mode           extjson.Mode
	document, text []byte
}

// append writes a document with e.
func (t *sharedTexts) append(e *encoder, d *mooringv1.Document) error {
	document := d.GetBson()
	if len(document) > maxShared {
		return e.document(d)
	}
	for i := range t.kept {
		kept := t.kept[i].Load()
		if kept != nil && kept.mode == e.mode && bytes.Equal(kept.document, document) {
			e.buf = append(e.buf, kept.text...)
			return nil
		}
	}
	begin := len(e.buf)
	if err := e.document(d); err != nil {
		return err
	}
	t.kept[t.last.Add(1)%keptTexts].Store(&sharedText{
		e.mode, bytes.Clone(document), bytes.Clone(e.buf[begin:]),
	})
	return nil
}
