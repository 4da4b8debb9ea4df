package conn

import (
	"crypto/tls"

	"github.com/mooringdb/mooring/core/compress"
)

// TLS returns the state of the TLS connection; ok is false on a connection that is not encrypted.
func (c *Conn) TLS() (state tls.ConnectionState, ok bool) {
	nc, ok := c.nc.(*tls.Conn)
	if !ok {
		return tls.ConnectionState{}, false
	}
	return nc.ConnectionState(), true
}

// Compressor returns the name of the compressor of requests, empty if there is none.
func (c *Conn) Compressor() string {
	if c.packer.id == compress.Noop {
		return ""
	}
	return c.packer.id.String()
}
