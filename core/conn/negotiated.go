package conn

import (
	"crypto/tls"

	"github.com/mooringdb/mooring/core/compress"
)

// TLS is what the TLS handshake came to; ok is false on a connection that is not encrypted.
func (c *Conn) TLS() (state tls.ConnectionState, ok bool) {
	nc, ok := c.nc.(*tls.Conn)
	if !ok {
		return tls.ConnectionState{}, false
	}
	return nc.ConnectionState(), true
}

// Compressor is the name of the one that requests are compressed with, empty where there is none.
func (c *Conn) Compressor() string {
	if c.packer.id == compress.Noop {
		return ""
	}
	return c.packer.id.String()
}
