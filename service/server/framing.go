package server

import (
	"bytes"
	"net/http"
	"sync/atomic"
)

// A request of HTTP/1.1 with both Content-Length and Transfer-Encoding ends elsewhere for a proxy
// that goes by the length: what follows it on the connection may be one client's request in another
// one's name. The connection must end with it (RFC 9112, 6.1). net/http removes the length before a
// handler sees the request, so the fields are counted as they are read. That cannot be done within
// TLS, where net/http needs tls.Conn itself.

// lengthField is how a Content-Length begins on the wire. Upper case letters count as lower case.
const lengthField = "\ncontent-length"

// lengths counts the fields named Content-Length in what is read of a connection, and what looks
// like one in a body. Its zero value has counted none. One goroutine at a time
// scans.
type lengths struct {
	n       atomic.Int64
	matched int // bytes of lengthField, at the end of what was scanned
}

func (l *lengths) scan(b []byte) {
	for i := 0; i < len(b); i++ {
		if l.matched == 0 {
			next := bytes.IndexByte(b[i:], lengthField[0])
			if next < 0 {
				return
			}
			i += next
			l.matched = 1
			continue
		}
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		switch c {
		case lengthField[l.matched]:
			l.matched++
		case lengthField[0]:
			l.matched = 1
		default:
			l.matched = 0
		}
		if l.matched == len(lengthField) {
			l.n.Add(1)
			l.matched = 0
		}
	}
}

// isAmbiguous reports whether a request of the connection may end elsewhere for a proxy. It is
// called once for each request, in their order.
func (c *connection) isAmbiguous(r *http.Request) bool {
	if r.ProtoMajor != 1 || c.client == nil {
		return false
	}
	c.lengths += int64(len(r.Header["Content-Length"]))
	if r.ProtoMinor == 0 {
		return true // it may have a Transfer-Encoding, which net/http takes away, too
	}
	return len(r.TransferEncoding) > 0 && c.client.lengths.n.Load() > c.lengths
}
