package rest

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/front"
)

var _ batch.Texts = (*texts)(nil)

// texts makes the JSON of a first page while the page is cut: what can be written need not be
// checked before. The response is then written around it.
type texts struct {
	c     *call
	count int   // of the documents whose text is there
	first *byte // of the first of them
	// text has the text of a small page, behind margin bytes for what the response has before it.
	text *front.Buffer
	// large has the text of a large page but its end, which is in tail.
	large *pieces
	tail  []byte
}

// margin has room for the beginning of a response, with the name of its documents.
const margin = 64

// Make implements batch.Texts.
func (t *texts) Make(docs []bson.Raw, bytes int) int {
	t.free()
	if len(docs) == 0 || len(docs[0]) == 0 {
		return 0
	}
	t.first = &docs[0][0]
	if bytes < largeResponse {
		t.count = t.makeSmall(docs)
	} else {
		_ = t.c.x.Work(largeResponse, func() error {
			t.count = t.makeLarge(docs, bytes)
			return nil
		})
	}
	return t.count
}

func (t *texts) makeSmall(docs []bson.Raw) int {
	t.text = t.c.x.Buffer()
	t.text.B = slices.Grow(t.text.B, margin)[:margin]
	for n, doc := range docs {
		var err error
		if t.text.B, err = t.append(t.text.B, doc, n); err != nil {
			return n
		}
	}
	return len(docs)
}

// makeLarge returns 0 if the text cannot be kept.
func (t *texts) makeLarge(docs []bson.Raw, bytes int) int {
	t.large = t.c.newPieces()
	t.large.reserve(bytes)
	t.tail = t.c.api.texts.empty()
	n := 0
	for t.large.isKept() && n < len(docs) && len(docs[n]) < pieceSize {
		var err error
		if t.tail, err = t.append(t.tail, docs[n], n); err != nil {
			return n
		}
		if len(t.tail) >= front.Chunk {
			_ = t.c.x.Memory.Do(len(t.tail)) // as Work
			t.tail = t.large.next(t.tail)
		}
		n++
	}
	if n < len(docs) || !t.large.isKept() {
		t.free()
		return 0
	}
	return n
}

// append appends the text of document n to buf. On error buf is returned as it was.
func (t *texts) append(buf []byte, doc bson.Raw, n int) ([]byte, error) {
	end := len(buf)
	if n > 0 {
		buf = append(buf, ',')
	}
	buf, err := extjson.Append(buf, doc, t.c.format.Mode)
	if err != nil {
		return buf[:end], err
	}
	return buf, nil
}

// of returns t if its text is that of the documents of a response, and nil otherwise.
func (t *texts) of(m proto.Message) *texts {
	if page, ok := m.(hasDocuments); ok && t.count > 0 {
		docs := page.GetDocuments()
		if t.count == len(docs) && t.isFirst(docs[0]) {
			return t
		}
	}
	return nil
}

func (t *texts) isFirst(d *mooringv1.Document) bool {
	b := d.GetBson()
	return len(b) > 0 && &b[0] == t.first
}

// around returns the end of a response that begins with before and goes on with the documents: all
// of it, or what follows the pieces of a large one.
func (t *texts) around(before []byte) (end []byte) {
	before = append(before, '[')
	if t.large != nil {
		t.large.put(before)
		end, t.tail = t.tail, nil
	} else {
		start := margin - len(before)
		copy(t.text.B[start:], before)
		end = t.text.B[start:]
	}
	t.count = 0
	return append(end, ']')
}

// free returns the memory. The response is written, or has another text.
func (t *texts) free() {
	t.count = 0
	if t.text != nil {
		t.text.Free()
	}
	if t.large != nil {
		t.large.free()
		t.c.api.texts.recycle(t.tail)
	}
	t.text, t.large, t.tail = nil, nil, nil
}
