package rest

import "sync"

// maxPooled is the largest buffer that is kept: a few large responses must not hold memory for
// ever.
const maxPooled = 1 << 20

// buffer is a byte slice that comes from a pool and goes back.
type buffer struct{ b []byte }

// buffers lends buffers for bodies in and out. Nothing may point into one after it has been put
// back.
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
