//go:build unix

package conn

import (
	"net"
	"syscall"
)

// isGone says whether the peer has closed nc, without waiting and without taking any data.
func isGone(nc net.Conn) bool {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	// Control and not Read, since an old deadline of the connection must not matter.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)                             // Go keeps sockets non-blocking
		gone = n == 0 && err == nil || err != nil && err != syscall.EAGAIN && err != syscall.EINTR //nolint:errorlint // errnos
	})
	return gone || err != nil
}
