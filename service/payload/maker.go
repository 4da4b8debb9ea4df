package payload

import (
	"errors"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Worker does the work of a call, such as an admission.Work.
type Worker interface {
	// Do says that work on so many bytes comes next. It may block until it is the call's turn.
	Do(bytes int) error
	// Charge charges the call with memory before it is taken.
	Charge(bytes int64) error
	// Vacate says that so many bytes that were charged are for the messages to servers.
	Vacate(bytes int64)
}

// Maker makes the BSON of the documents and values of a JSON text, which can become several times
// longer. It charges the call before it takes memory. Its zero value charges nothing.
//
// Many small documents share a buffer, a chunk. A document that does not fit begins the next one,
// which grows with it.
type Maker struct {
	by Worker // nil: nothing is charged
	// paid is how many bytes are charged already, and not taken.
	paid  int64
	chunk []byte
	// scratch is the buffer of the last value.
	scratch []byte
	// Legacy is that of the parser.
	Legacy bool
}

const (
	minChunk = 128
	maxChunk = 256 << 10
	// freeBSON is what a call may take and is not charged for.
	freeBSON = 32 << 10
	// bsonCost is what a byte of BSON costs: it is in the message to the server once more.
	bsonCost = 2
)

// NewMaker returns the Maker of a text of so many bytes, for which the call is charged twice: for
// the text, in whose place the message to the server comes later, and for as much BSON.
func NewMaker(by Worker, text int) Maker { return Maker{by: by, paid: int64(text) + freeBSON} }

// Take charges the call with n more bytes.
func (m *Maker) Take(n int) error {
	if m.by == nil {
		return nil
	}
	used := min(m.paid, int64(n))
	if more := int64(n) - used; more > 0 {
		if err := m.by.Charge(bsonCost * more); err != nil {
			return err
		}
		m.by.Vacate((bsonCost - 1) * more)
	}
	m.paid -= used
	return nil
}

// Document reads the object at the beginning of json, and returns how many bytes of it were read.
// Its errors are *extjson.SyntaxError, and those of the Worker.
func (m *Maker) Document(json []byte) (doc bson.Raw, n int, err error) {
	return m.document(json, m.parser().ParsePrefix)
}

// Keys does what Document does for a document whose order matters, which may be an array of pairs.
func (m *Maker) Keys(json []byte) (doc bson.Raw, n int, err error) {
	if IsPairs(json) {
		return m.document(json, AppendPairs)
	}
	return m.Document(json)
}

func (m *Maker) parser() extjson.Parser {
	return extjson.Parser{Limit: MaxDocument, Memory: m, Legacy: m.Legacy}
}

func (m *Maker) document(
	json []byte, read func(dst, json []byte) ([]byte, int, error),
) (bson.Raw, int, error) {
	if cap(m.chunk)-len(m.chunk) < minChunk {
		if err := m.newChunk(len(json)); err != nil {
			return nil, 0, err
		}
	}
	begin := len(m.chunk)
	out, n, err := read(m.chunk, json)
	if errors.Is(err, errFull) {
		begin = 0
		if err := m.newChunk(len(json)); err != nil {
			return nil, 0, err
		}
		out, n, err = read(m.chunk, json)
	}
	if err != nil {
		return nil, 0, err
	}
	m.chunk = out
	if m.by != nil {
		if err := m.by.Do(document + n); err != nil {
			return nil, 0, err
		}
	}
	return out[begin:len(out):len(out)], n, nil
}

// newChunk begins a chunk for a text of so many bytes.
func (m *Maker) newChunk(text int) error {
	room := min(text+text/2+minChunk, maxChunk)
	if err := m.Take(room); err != nil {
		return err
	}
	m.chunk = make([]byte, 0, room)
	return nil
}

// Value reads the value at the beginning of json, and returns how many bytes were read. The value
// is valid until the next one is read.
func (m *Maker) Value(json []byte) (v bson.Value, n int, err error) {
	v, out, n, err := m.parser().ParseValuePrefix(m.scratch[:0], json)
	if err != nil {
		return bson.Value{}, 0, err
	}
	m.scratch = out
	return v, n, nil
}

// errFull says that a document does not fit the rest of a chunk.
var errFull = errors.New("the chunk is full")

// Grow implements extjson.Memory. A buffer that has documents already does not grow.
func (m *Maker) Grow(dst []byte, start, n int) ([]byte, error) {
	if start > 0 {
		return nil, errFull
	}
	larger := len(dst) + n
	if n < cap(dst)/2 { // one of many small values, and not a long text
		larger = max(larger, min(2*cap(dst), int(MaxDocument)))
	}
	if err := m.Take(larger - cap(dst)); err != nil { // nothing else is in dst
		return nil, err
	}
	return append(make([]byte, 0, larger), dst...), nil
}
