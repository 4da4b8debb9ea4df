package front

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/mooringdb/mooring/service/admission"
)

// Memory charges a request with what it takes. Its methods block until there is memory, or fail if
// there is none for the request. They do nothing if nothing is limited.
type Memory struct {
	x       *Exchange
	account admission.Account // open once it is known who calls
	work    admission.Work
	text    int64 // charged by MakeRoom
}

// open opens the account of the request's client.
func (m *Memory) open() {
	a := m.x.front.config.Admission
	switch who := m.x.identity; {
	case a == nil:
	case who != nil && who.Principal != "":
		a.Open(&m.account, admission.PrincipalOf(who.Principal, netip.Addr{}))
	default:
		a.Open(&m.account, admission.PrincipalOf("", address(m.x.r)))
	}
}

// within sets the context with which the waits for memory end, such as that of a stream's call:
// that of the request does not end while its client is there. The goroutine that charges calls it.
func (m *Memory) within(ctx context.Context) { m.work.Within(ctx) }

// Charge charges the request with memory before it is taken.
func (m *Memory) Charge(bytes int64) error { return m.work.Charge(bytes) }

// ChargeLast charges the request with memory of its response.
func (m *Memory) ChargeLast(bytes int64) error { return m.work.ChargeLast(bytes) }

// Do says that work on so many bytes comes next: see admission.Work. The caller calls it in
// Exchange.Work only.
func (m *Memory) Do(bytes int) error { return m.work.Do(bytes) }

// Spare charges the request with memory that it can do without, and reports whether it fits. It
// does not block.
func (m *Memory) Spare(bytes int64) bool { return m.account.Spare(bytes) }

// Vacate says that nothing is in so many bytes any more that were charged; see admission.Account.
func (m *Memory) Vacate(bytes int64) { m.account.Vacate(bytes) }

// Release returns memory that Charge has charged.
func (m *Memory) Release(bytes int64) { m.account.Shrink(bytes) }

// MakeRoom charges the request with the text of a document before it is written to the end of dst,
// if the document is large, and returns dst with room for it, so that it does not grow meanwhile.
// The texts of a response follow each other in one buffer, and ReleaseRoom returns its memory.
func (m *Memory) MakeRoom(dst, doc []byte) ([]byte, error) {
	if len(doc) < largeDocument {
		return dst, nil
	}
	size := textSize(doc)
	if more := int64(size) - m.text; more > 0 {
		if err := m.ChargeLast(more); err != nil {
			return nil, err
		}
		m.text += more
	}
	return slices.Grow(dst, size), nil
}

// ReleaseRoom returns what MakeRoom has charged, when the text is written and its buffer is not
// used any more.
func (m *Memory) ReleaseRoom() {
	m.account.Shrink(m.text)
	m.text = 0
}

// largeDocument is the size from which a document is large.
const largeDocument = 256 << 10

// textSize returns about the length of a document's JSON, and seldom less. A byte that JSON escapes
// takes six. The small bytes of lengths and numbers stand for the text that JSON has around values.
func textSize(doc []byte) int {
	n := len(doc)
	for _, b := range doc {
		if b < 0x20 || b == '"' || b == '\\' {
			n += 5
		}
	}
	return n
}

// maxPooled is the capacity of the largest buffer that is kept. A few large responses must not
// hold memory forever.
const maxPooled = 1 << 20

// Buffer holds a byte slice that belongs to a pool.
type Buffer struct {
	B  []byte
	of *buffers
	// response is that of the request that has the buffer.
	response *Response
	// charged is the account that is charged with the buffer of a body; nil: none is.
	charged *Memory
}

// Free returns the buffer to its pool. Nothing may point into it any more, but what the Response
// has written.
func (b *Buffer) Free() {
	if b.charged != nil {
		b.charged.Vacate(int64(cap(b.B)))
		b.charged = nil
	}
	if cap(b.B) <= maxPooled && !b.response.IsTorn() {
		b.response = nil
		b.of.pool.Put(b)
	}
}

// buffers provides buffers for request and response bodies.
type buffers struct{ pool sync.Pool }

// get returns an empty buffer for the request of a response.
func (p *buffers) get(of *Response) *Buffer {
	b, _ := p.pool.Get().(*Buffer)
	if b == nil {
		b = &Buffer{of: p}
	}
	b.B, b.response = b.B[:0], of
	return b
}
