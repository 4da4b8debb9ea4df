package conn

import (
	"sync"

	"github.com/mooringdb/mooring/core/bson"
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
		p := packer{id: id, level: compress.DefaultLevel, name: name, tell: cfg.Compressed}
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
}

// pack compresses msg, unless its command must not be compressed or the result would be larger
// than most. The latter only happens to incompressible data near the server's size limit.
func (p packer) pack(msg []byte, most int) packed {
	if p.id == compress.Noop || !mayCompress(msg) {
		return packed{msg: msg}
	}
	pooled := buffers.Get().(*[]byte)
	out := wire.BeginCompressed(*pooled, msg, uint8(p.id))
	out = compress.Compress(out, p.id, p.level, msg[wire.HeaderSize:])
	wire.EndMsg(out)
	if len(out) > most {
		packed{out, pooled}.release()
		return packed{msg: msg}
	}
	if p.tell != nil {
		p.tell(event.MessageCompressed{
			Compressor: p.name, Original: len(msg), Compressed: len(out),
		})
	}
	return packed{out, pooled}
}

// mayCompress reports whether the command of a complete OP_MSG may be compressed.
func mayCompress(msg []byte) bool {
	body, _, err := bson.Read(msg[bodyOffset:])
	return err == nil && compress.IsAllowed(body.FirstKey())
}

// unpack returns the message inside a compressed one, of at most maxReply bytes. The message itself
// names its compressor.
func (c *Conn) unpack(
	h wire.Header, m *wire.Compressed, into *wire.Msg,
) (wire.Header, wire.Message, error) {
	msg, err := compress.Decompress(m.BeginOriginal(nil, h), compress.ID(m.Compressor),
		int(m.UncompressedSize), int(c.maxReply-wire.HeaderSize), m.Data)
	if err != nil {
		return h, nil, err
	}
	if tell := c.packer.tell; tell != nil {
		tell(event.MessageCompressed{
			Compressor: compress.ID(m.Compressor).String(), Received: true, Original: len(msg),
			Compressed: wire.HeaderSize + compressedHeader + len(m.Data),
		})
	}
	return wire.ParseInto(into, msg)
}

// compressedHeader is the size of the fields of an OP_COMPRESSED before its data.
const compressedHeader = 9
