package conn

import (
	"bufio"
	"context"
	"net"

	"github.com/mooringdb/mooring/core/wire"
)

// replies reads the messages of the server as bytes: large ones when there is room for them, and in
// turns with other work.
type replies struct {
	reader *bufio.Reader
	socket *socket // nil with TLS, of which a part of a record may have arrived: no turns
	max    int32
	admit  func(ctx context.Context, size int) (done func(), err error) // may be nil
	turn   func() Turn                                                  // may be nil
}

// newReplies returns what reads nc, which is the transport, or TLS on it.
func newReplies(cfg *Config, transport *socket, nc net.Conn) replies {
	r := replies{
		reader: bufio.NewReaderSize(nc, readBuffer), max: cfg.MaxMessageSize,
		admit: cfg.Admit, turn: cfg.Turn,
	}
	if nc == net.Conn(transport) {
		r.socket = transport
	}
	if r.max <= 0 {
		r.max = wire.DefaultMaxMessageSize
	}
	return r
}

// read reads the bytes of the next message.
func (r *replies) read(ctx context.Context) ([]byte, error) {
	if r.admit != nil {
		length, err := wire.Length(r.reader, r.max)
		if err != nil {
			return nil, err
		}
		done, err := r.admitted(ctx, length)
		if err != nil {
			return nil, err
		}
		defer done()
		if r.turn != nil && length >= LargeReply && r.socket != nil {
			return r.inTurns(int(length))
		}
	}
	return wire.ReadFrom(r.reader, r.max)
}

// inTurns reads a message. In its turn it reads what has arrived, and it waits for more outside of
// it.
func (r *replies) inTurns(length int) ([]byte, error) {
	const piece = 256 << 10 // takes far less time than a turn
	turn := r.turn()
	turn.Take()
	defer turn.Leave()
	msg := make([]byte, length)
	for at := 0; at < length; {
		if r.reader.Buffered() == 0 && r.socket.arrival() == arrivedNothing {
			turn.Leave()
			if _, err := r.reader.Peek(1); err != nil {
				return nil, err
			}
			turn.Take()
		}
		turn.Yield()
		n, err := r.reader.Read(msg[at:min(at+piece, length)])
		if err != nil {
			return nil, err
		}
		at += n
	}
	return msg, nil
}

// admitted asks for leave to read a reply of that size.
func (r *replies) admitted(ctx context.Context, size int32) (done func(), err error) {
	if r.admit == nil || size < LargeReply {
		return func() {}, nil
	}
	return r.admit(ctx, int(size))
}
