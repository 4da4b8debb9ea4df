package conn

import (
	"bufio"
	"context"
	"net"

	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/wire"
)

// replies reads the messages of the server as bytes: large ones when there is room for them, and in
// turns with other work.
type replies struct {
	reader *bufio.Reader
	socket *socket // nil with TLS, of which a part of a record may have arrived: no turns
	max    int32
	admit  func(ctx context.Context, size int) (done func(kept bool), err error) // may be nil
	turn   func(ctx context.Context) Turn                                        // may be nil
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

// read reads the bytes of the next message. With lend it reads them into lent memory, unless the
// message is small or huge. The caller has the reference, and must call done: see Config.Admit.
func (r *replies) read(ctx context.Context, lend bool) (
	msg []byte, lent *buffer.Buffer, done func(kept bool), err error,
) {
	length, err := wire.Length(r.reader, r.max)
	if err != nil {
		return nil, nil, nil, err
	}
	done, err = r.admitted(ctx, length)
	if err != nil {
		return nil, nil, nil, err
	}
	msg, lent = take(int(length), lend)
	if r.admit != nil && r.turn != nil && length >= LargeReply && r.socket != nil {
		err = r.inTurns(ctx, msg)
	} else {
		err = wire.ReadInto(r.reader, msg)
	}
	if err != nil {
		lent.Release()
		done(false)
		return nil, nil, nil, err
	}
	return msg, lent, done, nil
}

// take returns memory for a message.
func take(n int, lend bool) ([]byte, *buffer.Buffer) {
	if lend {
		if lent := buffer.Get(n); lent != nil {
			return lent.Bytes(), lent
		}
	}
	return make([]byte, n), nil
}

// inTurns reads a message. In its turn it reads what has arrived, and it waits for more outside of
// it.
func (r *replies) inTurns(ctx context.Context, msg []byte) error {
	const piece = 256 << 10 // takes far less time than a turn
	turn := r.turn(ctx)
	turn.Take()
	defer turn.Leave()
	for at := 0; at < len(msg); {
		if r.reader.Buffered() == 0 && r.socket.arrival() == arrivedNothing {
			turn.Leave()
			if _, err := r.reader.Peek(1); err != nil {
				return err
			}
			turn.Take()
		}
		turn.Yield()
		n, err := r.reader.Read(msg[at:min(at+piece, len(msg))])
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

// admitted asks for leave to read a reply of that size.
func (r *replies) admitted(ctx context.Context, size int32) (done func(kept bool), err error) {
	if r.admit == nil || size < LargeReply {
		return nothing, nil
	}
	return r.admit(ctx, int(size))
}

func nothing(bool) {}
