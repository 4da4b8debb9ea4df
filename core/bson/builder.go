package bson

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Builder appends one document to a buffer, element by element. The zero value
// is ready. Its methods return the builder, so that calls can be chained:
//
//	cmd := bson.NewBuilder(nil).String("find", "orders").Int32("limit", 5).Finish()
//
// Inside an array the key is ignored (pass ""): the builder writes the index. An element whose key
// or regular expression has a zero byte is left out, and Err returns that. Keys are not checked for
// duplicates. Misuse, such as an append after Finish, panics. A Builder has one owner at a time.
type Builder struct {
	buf    []byte
	err    error
	depth  int // open documents, the outermost counted; 0: nothing begun, or finished
	frames [8]frame
	deeper []frame // levels beyond frames
	root   int     // where this document begins in buf
	done   bool
	memory Memory // nil: the buffer grows by append
}

// Memory provides the buffer of a Builder once that needs LargeBuffer bytes, so that the memory can
// be accounted for before it is allocated.
type Memory interface {
	// Grow returns a buffer that begins with the bytes of buf and has room for n more. It does not
	// keep buf.
	Grow(buf []byte, n int) ([]byte, error)
}

// LargeBuffer is the length in bytes at which a Builder begins to take its buffer from its Memory.
const LargeBuffer = 64 << 10

// frame describes an open document or array.
type frame struct {
	start int // of its length in buf
	index int // of the next element of an array; -1 in a document
}

// NewBuilder returns a Builder that appends a document to buf, which it owns from then on. buf may
// be nil.
func NewBuilder(buf []byte) *Builder { return &Builder{buf: buf} }

// Reset discards everything and begins a document after the bytes of buf.
func (b *Builder) Reset(buf []byte) { b.ResetIn(buf, nil) }

// ResetIn does what Reset does, and lets m provide the buffer from then on. If m fails, the element
// is left out, and Err returns the error.
func (b *Builder) ResetIn(buf []byte, m Memory) {
	b.buf, b.err, b.depth, b.done, b.memory = buf, nil, 0, false, m
}

// Err returns the first error: that of an element with a zero byte in its key or regular
// expression, or that of the Memory.
func (b *Builder) Err() error { return b.err }

// Finish ends the document and returns it, a view on the buffer. It panics if a document or an
// array inside it is still open. Check Err if a key or a pattern comes from outside.
func (b *Builder) Finish() Raw {
	if !b.done {
		b.begin()
		if b.depth != 1 {
			panic(fmt.Sprintf("bug: bson: Finish with %d open documents", b.depth-1))
		}
		b.close()
		b.done = true
	}
	return b.buf[b.root:len(b.buf):len(b.buf)]
}

// Bytes returns the whole buffer, including what preceded the document.
func (b *Builder) Bytes() []byte { return b.buf }

func (b *Builder) begin() {
	if b.depth == 0 {
		if b.done {
			panic("bug: bson: Builder used after Finish")
		}
		b.root = len(b.buf)
		b.open(-1)
	}
}

func (b *Builder) open(index int) {
	f := frame{start: len(b.buf), index: index}
	if b.depth < len(b.frames) {
		b.frames[b.depth] = f
	} else {
		b.deeper = append(b.deeper[:b.depth-len(b.frames)], f)
	}
	b.depth++
	b.buf = append(b.buf, 0, 0, 0, 0)
}

func (b *Builder) top() *frame {
	if b.depth <= len(b.frames) {
		return &b.frames[b.depth-1]
	}
	return &b.deeper[b.depth-1-len(b.frames)]
}

func (b *Builder) close() {
	b.buf = append(b.buf, 0)
	start := b.top().start
	n := len(b.buf) - start
	if n > math.MaxInt32 {
		panic("bug: bson: document is longer than 2 GiB")
	}
	binary.LittleEndian.PutUint32(b.buf[start:], uint32(n))
	b.depth--
}

// elementRoom is what an element takes beside its key and the bytes of its value: the type, two
// zeros, a length, and a key that is an index.
const elementRoom = 24

// room makes room for an element with n bytes of key and value, and reports whether there is any.
func (b *Builder) room(n int) bool {
	return b.memory == nil || len(b.buf)+n+elementRoom <= cap(b.buf) || b.grow(n+elementRoom)
}

func (b *Builder) grow(n int) bool {
	if len(b.buf)+n < LargeBuffer {
		return true
	}
	if b.err != nil {
		b.begin()
		return false // Memory may wait before it refuses: it is asked once
	}
	larger, err := b.memory.Grow(b.buf, n)
	if err != nil {
		b.begin()
		b.fail(err)
		return false
	}
	b.buf = larger
	return true
}

// element makes room for an element whose value has n bytes, appends type and key, and reports
// whether the value may follow.
func (b *Builder) element(t Type, key string, n int) bool {
	return b.room(len(key)+n) && b.head(t, key)
}

func (b *Builder) head(t Type, key string) bool {
	b.begin()
	if f := b.top(); f.index >= 0 {
		b.buf = append(b.buf, byte(t))
		b.buf = appendIndex(b.buf, f.index)
		b.buf = append(b.buf, 0)
		f.index++
		return true
	}
	if strings.IndexByte(key, 0) >= 0 {
		b.fail(fmt.Errorf("bson: zero byte in key %q", key))
		return false
	}
	b.buf = append(b.buf, byte(t))
	b.buf = append(b.buf, key...)
	b.buf = append(b.buf, 0)
	return true
}

func (b *Builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *Builder) fixed32(t Type, key string, n uint32) *Builder {
	if b.element(t, key, 4) {
		b.buf = binary.LittleEndian.AppendUint32(b.buf, n)
	}
	return b
}

func (b *Builder) fixed64(t Type, key string, n uint64) *Builder {
	if b.element(t, key, 8) {
		b.buf = binary.LittleEndian.AppendUint64(b.buf, n)
	}
	return b
}

func (b *Builder) text(t Type, key, s string) *Builder {
	if b.element(t, key, len(s)) {
		b.buf = appendString(b.buf, s)
	}
	return b
}

func (b *Builder) bytes(t Type, key string, data []byte) *Builder {
	if b.element(t, key, len(data)) {
		b.buf = append(b.buf, data...)
	}
	return b
}

// Double appends a double.
func (b *Builder) Double(key string, v float64) *Builder {
	return b.fixed64(TypeDouble, key, math.Float64bits(v))
}

// String appends a string.
func (b *Builder) String(key, v string) *Builder { return b.text(TypeString, key, v) }

// Document appends a whole document; nil is the empty one.
func (b *Builder) Document(key string, v Raw) *Builder {
	if len(v) == 0 {
		v = empty[:]
	}
	return b.bytes(TypeDocument, key, v)
}

// Array appends a whole array; nil is the empty one.
func (b *Builder) Array(key string, v Array) *Builder {
	if len(v) == 0 {
		v = empty[:]
	}
	return b.bytes(TypeArray, key, v)
}

// OpenDocument begins an embedded document: what follows is in it until Close.
func (b *Builder) OpenDocument(key string) *Builder { return b.openElement(TypeDocument, key, -1) }

// OpenArray begins an array: what follows is in it until Close.
func (b *Builder) OpenArray(key string) *Builder { return b.openElement(TypeArray, key, 0) }

func (b *Builder) openElement(t Type, key string, index int) *Builder {
	if !b.element(t, key, 0) {
		b.head(t, "") // somewhere to put what follows; Err says that it is wrong
	}
	b.open(index)
	return b
}

// Close ends what OpenDocument or OpenArray began last. It panics if nothing is open.
func (b *Builder) Close() *Builder {
	if b.depth < 2 {
		panic("bug: bson: Close without an open document")
	}
	b.close()
	return b
}

// Binary appends a binary of a subtype.
func (b *Builder) Binary(key string, subtype byte, data []byte) *Builder {
	if b.element(TypeBinary, key, len(data)) {
		b.buf = appendBinary(b.buf, subtype, data)
	}
	return b
}

// Undefined appends the deprecated undefined.
func (b *Builder) Undefined(key string) *Builder { return b.bytes(TypeUndefined, key, nil) }

// ObjectID appends an ObjectId.
func (b *Builder) ObjectID(key string, id ObjectID) *Builder {
	if b.element(TypeObjectID, key, len(id)) {
		b.buf = append(b.buf, id[:]...)
	}
	return b
}

// Bool appends a boolean.
func (b *Builder) Bool(key string, v bool) *Builder {
	if b.element(TypeBool, key, 1) {
		b.buf = appendBool(b.buf, v)
	}
	return b
}

// DateTime appends a date in milliseconds since 1970.
func (b *Builder) DateTime(key string, ms int64) *Builder {
	return b.fixed64(TypeDateTime, key, uint64(ms))
}

// Time appends a date; what is finer than a millisecond is cut off.
func (b *Builder) Time(key string, t time.Time) *Builder { return b.DateTime(key, t.UnixMilli()) }

// Null appends a null.
func (b *Builder) Null(key string) *Builder { return b.bytes(TypeNull, key, nil) }

// Regex appends a regular expression, its options sorted.
func (b *Builder) Regex(key, pattern, options string) *Builder {
	if strings.IndexByte(pattern, 0) >= 0 || strings.IndexByte(options, 0) >= 0 {
		b.begin()
		b.fail(errRegexNUL)
		return b
	}
	if b.element(TypeRegex, key, len(pattern)+len(options)) {
		b.buf, _ = appendRegex(b.buf, pattern, options) // checked above
	}
	return b
}

// DBPointer appends the deprecated DBPointer.
func (b *Builder) DBPointer(key, namespace string, id ObjectID) *Builder {
	if b.element(TypeDBPointer, key, len(namespace)+len(id)) {
		b.buf = append(appendString(b.buf, namespace), id[:]...)
	}
	return b
}

// JavaScript appends code without scope.
func (b *Builder) JavaScript(key, code string) *Builder { return b.text(TypeJavaScript, key, code) }

// Symbol appends the deprecated symbol.
func (b *Builder) Symbol(key, v string) *Builder { return b.text(TypeSymbol, key, v) }

// CodeWithScope appends code with its scope.
func (b *Builder) CodeWithScope(key, code string, scope Raw) *Builder {
	if b.element(TypeCodeWithScope, key, len(code)+max(len(scope), minDocument)) {
		b.buf = appendCodeWithScope(b.buf, code, scope)
	}
	return b
}

// Int32 appends a 32-bit integer.
func (b *Builder) Int32(key string, v int32) *Builder {
	return b.fixed32(TypeInt32, key, uint32(v))
}

// Timestamp appends the internal timestamp: seconds and increment.
func (b *Builder) Timestamp(key string, t, i uint32) *Builder {
	return b.fixed64(TypeTimestamp, key, uint64(t)<<32|uint64(i))
}

// Int64 appends a 64-bit integer.
func (b *Builder) Int64(key string, v int64) *Builder {
	return b.fixed64(TypeInt64, key, uint64(v))
}

// Decimal128 appends a decimal number.
func (b *Builder) Decimal128(key string, v Decimal128) *Builder {
	if b.element(TypeDecimal128, key, 16) {
		b.buf = appendDecimal128(b.buf, v)
	}
	return b
}

// MinKey appends MinKey, which sorts before all other values.
func (b *Builder) MinKey(key string) *Builder { return b.bytes(TypeMinKey, key, nil) }

// MaxKey appends MaxKey, which sorts after all other values.
func (b *Builder) MaxKey(key string) *Builder { return b.bytes(TypeMaxKey, key, nil) }

// Value appends a value of any type. It panics if v is the zero Value.
func (b *Builder) Value(key string, v Value) *Builder {
	if v.IsZero() {
		panic("bug: bson: no value for key " + key)
	}
	return b.bytes(v.Type, key, v.Data)
}

// AppendElements appends all elements of d as they are; inside an array their
// values, with indexes for keys.
func (b *Builder) AppendElements(d Raw) *Builder {
	b.begin()
	if b.top().index < 0 {
		if len(d) > minDocument && b.room(len(d)) {
			b.buf = append(b.buf, d[4:len(d)-1]...)
		}
		return b
	}
	for it := d.Iter(); it.Next(); {
		b.Value("", it.Value())
	}
	return b
}

// Grow makes room for n more bytes.
func (b *Builder) Grow(n int) { b.buf = slices.Grow(b.buf, n) }

// Len returns the number of bytes in the whole buffer.
func (b *Builder) Len() int { return len(b.buf) }
