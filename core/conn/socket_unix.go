//go:build unix

package conn

import "syscall"

// canPeek says that peek works.
const canPeek = true

// peek returns what there is to read from a socket, which Go keeps non-blocking. It reads
// nothing.
func peek(fd uintptr) arrival {
	var b [1]byte
	n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR: //nolint:errorlint // errnos
		return arrivedNothing
	case n == 0 || err != nil:
		return arrivedEnd
	}
	return arrivedBytes
}
