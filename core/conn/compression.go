package conn

import (
	"context"
	"slices"
	"sync"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/compress"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/wire"
)

// bodyOffset is where the body of an OP_MSG that we build begins: after the flags and the
// section's kind.
const bodyOffset = wire.HeaderSize + 4 + 1

// appendCompression offers the compressors, in their order, in a first hello. An empty list
// offers none.
func appendCompression(b *bson.Builder, names []string) {
	b.OpenArray("compression")
	for _, name := range names {
		if _, ok := compress.ByName(name); ok {
			b.String("", name)
		}
	}
	b.Close()
}

// packer compresses requests as negotiated. The zero value leaves them unchanged.
type packer struct {
	id    compress.ID // Noop: nothing was negotiated
	level int
	name  string
	// tell is called for each message that is compressed or decompressed; nil: nothing is.
	tell func(event.MessageCompressed)
	// spare is asked before a large message is compressed; nil: there is always room.
	spare func(ctx context.Context, size int) (done func(), ok bool)
}

// newPacker takes the first of the client's compressors that is also in the server's hello. The
// server's order does not matter.
func newPacker(cfg Config, hello bson.Raw) packer {
	value, _ := hello.Lookup("compression")
	theirs, _ := value.Array()
	for _, name := range cfg.Compressors {
		id, ok := compress.ByName(name)
		if !ok || !contains(theirs, name) {
			continue
		}
		p := packer{
			id: id, level: compress.DefaultLevel, name: name, tell: cfg.Compressed,
			spare: cfg.Spare,
		}
		if cfg.ZlibLevel != nil {
			p.level = min(max(int(*cfg.ZlibLevel), compress.DefaultLevel), 9)
		}
		return p
	}
	return packer{}
}

func contains(array bson.Array, text string) bool {
	for _, v := range array.All() {
		if s, _ := v.Str(); s == text {
			return true
		}
	}
	return false
}

// packed holds a message to send: the request itself, or a pooled buffer with the compressed one.
type packed struct {
	msg    []byte
	pooled *[]byte
	done   func() // of a large message; nil: nothing was asked for
}

// maxPooled keeps a rare large request from holding its memory forever.
const maxPooled = 1 << 20

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// release ends the use of the message.
func (p packed) release() {
	if p.pooled != nil && cap(p.msg) <= maxPooled {
		*p.pooled = p.msg[:0]
		buffers.Put(p.pooled)
	}
	if p.done != nil {
		p.done()
	}
}

// pack compresses msg, unless its command must not be compressed, there is no room for the result
// or it would be larger than most. The latter only happens to incompressible data near the server's
// size limit.
func (p packer) pack(ctx context.Context, msg []byte, most int) packed {
	if p.id == compress.Noop || !mayCompress(msg) {
		return packed{msg: msg}
	}
	var done func()
	if p.spare != nil && len(msg) >= LargeReply {
		var ok bool
		if done, ok = p.spare(ctx, compress.Cost(p.id, len(msg))); !ok {
			return packed{msg: msg}
		}
	}
	pooled := buffers.Get().(*[]byte)
	out := slices.Grow(wire.BeginCompressed(*pooled, msg, uint8(p.id)), room(p.id, len(msg)))
	out = compress.Compress(out, p.id, p.level, msg[wire.HeaderSize:])
	wire.EndMsg(out)
	if len(out) > most {
		packed{out, pooled, done}.release()
		return packed{msg: msg}
	}
	if p.tell != nil {
		p.tell(event.MessageCompressed{
			Compressor: p.name, Original: len(msg), Compressed: len(out),
		})
	}
	return packed{out, pooled, done}
}

// room returns the room that a large message takes at most when it is compressed, so that its
// buffer does not grow meanwhile, and 0 for a small one, whose buffer is pooled.
func room(id compress.ID, size int) int {
	if size < LargeReply {
		return 0
	}
	return compress.Most(id, size)
}

// mayCompress reports whether the command of a complete OP_MSG may be compressed.
func mayCompress(msg []byte) bool {
	body, _, err := bson.Read(msg[bodyOffset:])
	return err == nil && compress.IsAllowed(body.FirstKey())
}

// unpack returns the message inside a compressed one, of at most replies.max bytes. The message
// itself names its compressor.
func (c *Conn) unpack(
	h wire.Header, m *wire.Compressed, into *wire.Msg, lend bool,
) (wire.Header, wire.Message, *buffer.Buffer, error) {
	var room []byte // else Decompress allocates, once it has checked the size
	var lent *buffer.Buffer
	if lend {
		if lent = buffer.Get(wire.HeaderSize + int(m.UncompressedSize)); lent != nil {
			room = lent.Bytes()[:0]
		}
	}
	msg, err := compress.Decompress(m.BeginOriginal(room, h), compress.ID(m.Compressor),
		int(m.UncompressedSize), int(c.replies.max-wire.HeaderSize), m.Data)
	if err != nil {
		lent.Release()
		return h, nil, nil, err
	}
	if tell := c.packer.tell; tell != nil {
		tell(event.MessageCompressed{
			Compressor: compress.ID(m.Compressor).String(), Received: true, Original: len(msg),
			Compressed: wire.HeaderSize + compressedHeader + len(m.Data),
		})
	}
	h, inner, err := wire.ParseInto(into, msg)
	if err != nil {
		lent.Release()
		return h, nil, nil, err
	}
	return h, inner, lent, nil
}

// compressedHeader is the size of the fields of an OP_COMPRESSED before its data.
const compressedHeader = 9
