package rest

import "sync"

// maxPooled is the capacity of the largest buffer that is kept. A few large responses must not
// hold memory forever.
const maxPooled = 1 << 20

// buffer holds a byte slice that belongs to a pool.
type buffer struct{ b []byte }

// buffers provides buffers for request and response bodies. Nothing may point into a buffer after
// it has been put back.
type buffers struct{ pool sync.Pool }

// get returns an empty buffer with room for at least n bytes.
func (p *buffers) get(n int) *buffer {
	b, _ := p.pool.Get().(*buffer)
	if b == nil {
		b = &buffer{}
	}
	if cap(b.b) < n {
		b.b = make([]byte, 0, n)
	}
	b.b = b.b[:0]
	return b
}

func (p *buffers) put(b *buffer) {
	if cap(b.b) <= maxPooled {
		p.pool.Put(b)
	}
}
