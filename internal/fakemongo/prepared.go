package fakemongo

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

// Prepared answers messages from bytes that it has ready: it appends the reply's document to dst,
// and inserts what is large from where it is. It gets a request as it came, an OP_MSG or an
// OP_QUERY, which is valid until it returns. An error ends the connection. It is called on the
// connections' goroutines.
type Prepared func(dst []byte, request wire.Message, large *Inserted) ([]byte, error)

// ListenPrepared makes a server for measurements, whose own work is small: p answers everything.
// It has no handlers, logins or records. The caller closes it.
func ListenPrepared(addr string, p Prepared) (*Server, error) {
	s := newServer(nil)
	s.prepared = p
	return s, s.listen(addr)
}

// servePrepared answers the messages of one connection until it ends.
func (s *Server) servePrepared(nc net.Conn) {
	r := bufio.NewReaderSize(nc, 64<<10)
	var in, out wire.Message
	for {
		var err error
		if in, err = wire.Read(r, in); err != nil {
			return
		}
		request := in.Header()
		h := wire.Header{ResponseTo: request.ID, OpCode: wire.OpMsg}
		switch request.OpCode {
		case wire.OpMsg:
		case wire.OpQuery:
			h.OpCode = wire.OpReply
		default:
			return
		}
		large := Inserted{turns: &s.large}
		if out, err = s.prepared(wire.Begin(out[:0], h, 0), in, &large); err != nil {
			return
		}
		if request.OpCode == wire.OpMsg && in.Flags()&wire.MoreToCome != 0 {
			continue
		}
		out.SetLength(large.size)
		if err := large.write(nc, out); err != nil {
			return
		}
	}
}

// Inserted holds bytes that are sent from where they are: at each place of a reply, what is
// inserted there.
type Inserted struct {
	places []int
	texts  [][]byte
	size   int // of all texts
	turns  *sync.Mutex
}

// Insert has a text stand behind the first bytes of a reply.
func (in *Inserted) Insert(behind int, text []byte) {
	in.places, in.texts = append(in.places, behind), append(in.texts, text)
	in.size += len(text)
}

// Size returns the size of all texts.
func (in *Inserted) Size() int { return in.size }

// write writes a reply with what is inserted.
func (in *Inserted) write(nc net.Conn, reply []byte) error {
	from := 0
	for i, at := range in.places {
		if _, err := nc.Write(reply[from:at]); err != nil {
			return err
		}
		if err := writeInTurns(nc, in.texts[i], in.turns); err != nil {
			return err
		}
		from = at
	}
	_, err := nc.Write(reply[from:])
	return err
}

// piece is how much of a large text is written at a time. The kernel would take many megabytes at
// once, for milliseconds, in which other connections wait.
const piece = 64 << 10

// writeInTurns writes a large text in pieces. One connection at a time writes a piece, and none
// while it waits for its peer, so that small replies of other connections find a processor: a
// database has a machine of its own, and this server often shares one with the load.
func writeInTurns(nc net.Conn, text []byte, turns *sync.Mutex) error {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return errors.ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	for len(text) > 0 {
		var n int
		var failed error
		err := raw.Write(func(fd uintptr) (done bool) {
			turns.Lock()
			defer turns.Unlock()
			n, failed = syscall.Write(int(fd), text[:min(len(text), piece)])
			return !errors.Is(failed, syscall.EAGAIN)
		})
		if err == nil && failed != nil && !errors.Is(failed, syscall.EINTR) {
			err = failed
		}
		if err != nil {
			return err
		}
		text = text[max(n, 0):]
	}
	return nil
}
