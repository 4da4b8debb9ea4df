//go:build unix

package server

import (
	"net"
	"syscall"
)

// unreadBytes is how much skipUnread reads at most: several frames of HTTP/2.
const unreadBytes = 64 << 10

// skipUnread discards what has arrived on a connection that is about to be closed. If anything is
// left there, the kernel resets the connection, and the client may lose what it was sent before:
// why the connection ends. It does not wait, and another goroutine may read.
func skipUnread(nc net.Conn) {
	raw, err := syscallConn(nc)
	if err != nil {
		return // it is closed, or not one of the kernel's
	}
	// Go keeps sockets non-blocking. An error is that the connection is closed.
	_ = raw.Control(func(fd uintptr) {
		var b [8 << 10]byte
		for left := unreadBytes; left > 0; {
			n, err := syscall.Read(int(fd), b[:])
			if n <= 0 || err != nil {
				return
			}
			left -= n
		}
	})
}
