package conn

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// socket is a connection's transport. While it is dry, a Read takes what has arrived and never waits.
type socket struct {
	net.Conn
	dry bool // owned by the connection's owner, who alone reads

	raw   syscall.RawConn // nil if nothing can be seen without reading
	look  func(fd uintptr)
	found arrival // by look
}

// arrival is what lies on a socket.
type arrival uint8

const (
	arrivedNothing arrival = iota
	arrivedBytes
	arrivedEnd // the peer has closed or reset the connection
)

func newSocket(nc net.Conn) *socket {
	s := &socket{Conn: nc}
	if sc, ok := nc.(syscall.Conn); ok && canPeek {
		s.raw, _ = sc.SyscallConn() // an error, of a closed connection, shows in the first request
		s.look = func(fd uintptr) { s.found = peek(fd) }
	}
	return s
}

// arrival returns what lies on the socket. It neither waits nor takes anything.
func (s *socket) arrival() arrival {
	if s.raw == nil {
		return arrivedNothing
	}
	// Control and not Read, since an old deadline of the connection must not matter.
	if err := s.raw.Control(s.look); err != nil {
		return arrivedEnd
	}
	return s.found
}

// Read reads. On a dry socket it returns os.ErrDeadlineExceeded if nothing has arrived, which crypto/tls
// takes for a Read that may be repeated.
func (s *socket) Read(p []byte) (int, error) {
	if s.dry {
		switch s.arrival() {
		case arrivedNothing:
			return 0, os.ErrDeadlineExceeded
		case arrivedEnd:
			return 0, io.EOF
		case arrivedBytes:
			_ = s.SetReadDeadline(time.Time{}) // that of an old request; an error shows in Read
		}
	}
	return s.Conn.Read(p)
}
