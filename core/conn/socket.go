package conn

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// socket wraps a connection's transport. While it is dry, Read takes what has arrived and does not
// block.
type socket struct {
	net.Conn
	dry bool // belongs to the connection's owner, which alone reads

	raw   syscall.RawConn // nil if peeking is not possible
	look  func(fd uintptr)
	found arrival // set by look
}

// arrival says what there is to read from a socket.
type arrival uint8

const (
	arrivedNothing arrival = iota
	arrivedBytes
	arrivedEnd // the peer has closed or reset the connection
)

func newSocket(nc net.Conn) *socket {
	s := &socket{Conn: nc}
	if sc, ok := nc.(syscall.Conn); ok && canPeek {
		s.raw, _ = sc.SyscallConn() // the first request reports an error, of a closed connection
		s.look = func(fd uintptr) { s.found = peek(fd) }
	}
	return s
}

// arrival returns what there is to read. It neither blocks nor reads.
func (s *socket) arrival() arrival {
	if s.raw == nil {
		return arrivedNothing
	}
	// Control rather than Read: an old deadline of the connection must not matter.
	if err := s.raw.Control(s.look); err != nil {
		return arrivedEnd
	}
	return s.found
}

// Read returns what has arrived, or blocks. On a dry socket it returns os.ErrDeadlineExceeded if
// nothing has arrived, after which crypto/tls allows another Read.
func (s *socket) Read(p []byte) (int, error) {
	if s.dry {
		switch s.arrival() {
		case arrivedNothing:
			return 0, os.ErrDeadlineExceeded
		case arrivedEnd:
			return 0, io.EOF
		case arrivedBytes:
			_ = s.SetReadDeadline(time.Time{}) // of an old request; Read reports an error
		}
	}
	return s.Conn.Read(p)
}
