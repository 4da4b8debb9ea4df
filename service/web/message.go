package web

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// An envelope is a message with flags and its length before it.
const (
	headerBytes    = 5
	flagCompressed = 0x01
	flagEnd        = 0x02 // Connect's last message
	flagTrailers   = 0x80 // gRPC-Web's
)

// readOnly reads the request of a call that has exactly one.
func (c *call) readOnly() (proto.Message, error) {
	read, err := c.x.Body.ReadAll()
	if err != nil {
		return nil, err
	}
	defer read.Free() // the message keeps nothing of it
	if c.wire.protocol == connectUnary {
		return c.decode(c.in, read.B)
	}
	data, err := c.binary(read.B)
	if err != nil {
		return nil, err
	}
	from := bytes.NewReader(data)
	request, err := (&body{call: c, from: from}).next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, wrongNumber("the call has no request")
	case err != nil:
		return nil, err
	case from.Len() > 0:
		return nil, wrongNumber("the call has more than one request")
	}
	return request, nil
}

// binary returns the bytes of a body, which may be base64. Each of its parts may be padded.
func (c *call) binary(data []byte) ([]byte, error) {
	if !c.wire.text {
		return data, nil
	}
	size := base64.StdEncoding.DecodedLen(len(data))
	if err := c.x.Memory.Charge(int64(size)); err != nil {
		return nil, err
	}
	out := make([]byte, 0, size)
	err := c.x.Work(size, func() (err error) {
		for len(data) > 0 && err == nil {
			n := len(data)
			if pad := bytes.IndexByte(data, '='); pad >= 0 {
				n = min(n, (pad/4+1)*4) // a group has four digits
			}
			out, err = base64.StdEncoding.AppendDecode(out, data[:n])
			data = data[n:]
		}
		return err
	})
	if err != nil {
		return nil, wrong("the body is not base64: " + err.Error())
	}
	return out, nil
}

// newBody returns the messages of a client's stream. A text is read as a whole.
func (c *call) newBody() (*body, error) {
	if !c.wire.text {
		return &body{call: c, from: &c.x.Body, charges: true}, nil
	}
	read, err := c.x.Body.ReadAll()
	if err != nil {
		return nil, err
	}
	defer read.Free()
	data, err := c.binary(read.B)
	return &body{call: c, from: bytes.NewReader(data)}, err
}

// body reads the envelopes of a request.
type body struct {
	call *call
	from io.Reader
	// charges says that nothing of the body is charged yet.
	charges bool
}

// messageCost is what a message in memory takes, for each of its bytes on the wire.
const messageCost = 2

// next reads the next message. It returns io.EOF at the end of the body. A message is charged until
// the next one is read, when the handler has taken it.
func (b *body) next() (proto.Message, error) {
	b.call.x.Memory.Release(b.call.held)
	b.call.held = 0
	var header [headerBytes]byte
	if n, err := io.ReadFull(b.from, header[:]); err != nil {
		if errors.Is(err, io.EOF) && n == 0 {
			return nil, io.EOF
		}
		return nil, b.unread(err)
	}
	length := int64(binary.BigEndian.Uint32(header[1:]))
	if err := b.call.checkSize(length); err != nil {
		return nil, err
	}
	if whole, ok := b.from.(*bytes.Reader); ok && length > int64(whole.Len()) {
		return nil, b.unread(io.ErrUnexpectedEOF) // nothing is allocated for what is not there
	}
	data, err := b.read(int(length))
	if err != nil {
		return nil, b.unread(err)
	}
	switch header[0] {
	case 0:
		return b.call.decode(coding.Identity, data)
	case flagCompressed:
		if b.call.in == coding.Identity {
			return nil, wrong("a message is compressed, and no header says how")
		}
		return b.call.decode(b.call.in, data)
	}
	return nil, wrong(fmt.Sprintf("a message has the flags %#x", header[0]))
}

// read reads the bytes of a message. If nothing of the body is charged yet, they are charged as
// they arrive.
func (b *body) read(length int) ([]byte, error) {
	if !b.charges {
		data := make([]byte, length)
		_, err := io.ReadFull(b.from, data)
		return data, err
	}
	var piece front.Piece
	err := piece.ReadFull(&b.call.x.Memory, b.from, length, messageCost)
	b.call.held += piece.Charged
	if err == nil {
		b.call.x.Body.Advance()
	}
	return piece.B, err
}

func (b *body) unread(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return wrong("the body ends within a message")
	}
	return b.call.x.Body.Unread(err)
}

// checkSize refuses a message that is too large.
func (c *call) checkSize(bytes int64) error {
	if most := c.most(); bytes > most {
		return &rpcerr.Error{
			Reason:  rpcerr.MessageTooLarge,
			Message: fmt.Sprintf("the message has %d bytes, of at most %d", bytes, most),
		}
	}
	return nil
}

func (c *call) most() int64 {
	most := c.x.Body.MaxBytes()
	if c.method.most > 0 {
		most = min(most, int64(c.method.most))
	}
	return most
}

// inflation is about how many times a compressed message grows.
const inflation = 8

// decode inflates and reads a message.
func (c *call) decode(how coding.Coding, data []byte) (m proto.Message, err error) {
	size := len(data)
	if how != coding.Identity {
		size *= inflation
	}
	if err := c.x.Work(size, func() (err error) {
		data, err = c.inflate(how, data)
		return err
	}); err != nil {
		return nil, err
	}
	err = c.x.Work(len(data), func() error {
		m, err = c.parse(data)
		return err
	})
	return m, err
}

func (c *call) inflate(how coding.Coding, data []byte) ([]byte, error) {
	data, err := how.Inflate(data, int(c.most()), c.charge)
	switch {
	case errors.Is(err, coding.ErrTooLarge):
		return nil, &rpcerr.Error{
			Reason:  rpcerr.MessageTooLarge,
			Message: fmt.Sprintf("the message has more than %d bytes", c.most()),
		}
	case errors.Is(err, coding.ErrMalformed):
		return nil, wrong(err.Error())
	case err != nil:
		return nil, err
	}
	if how != coding.Identity { // the inflated bytes are charged once
		if err := c.charge((messageCost - 1) * int64(len(data))); err != nil {
			return nil, err
		}
	}
	return data, nil
}

func (c *call) parse(data []byte) (proto.Message, error) {
	if err := c.checkItems(data); err != nil {
		return nil, err
	}
	m := c.method.request.New().Interface()
	var err error
	if c.wire.json {
		if len(data) == 0 {
			data = []byte("{}")
		}
		err = protojson.Unmarshal(data, m)
	} else {
		err = proto.Unmarshal(data, m)
	}
	if err != nil {
		return nil, &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Err: err,
			Message: "the message is not one of this call: " + err.Error(),
		}
	}
	if most := c.x.MaxItems(); c.wire.json && len(data)/leastItem > most &&
		coding.Items(m.ProtoReflect(), most) > most {
		return nil, tooManyItems(most)
	}
	return m, nil
}

// The items of a message are limited and charged as on the other paths: an item of three bytes
// takes hundreds of bytes in memory. JSON has commas in their place, of which an item has about
// commasOfItem; the items themselves are counted when it is decoded. An item takes at least
// leastItem bytes.
const (
	itemCost     = 512
	commasOfItem = 4
	leastItem    = 2
	smallRequest = 16 << 10
)

// checkItems counts the items of a message, and charges the call with them if they are many.
func (c *call) checkItems(data []byte) error {
	most, n := c.x.MaxItems(), 0
	if len(data)/leastItem <= min(most, smallRequest/itemCost) {
		return nil
	}
	if c.wire.json {
		n = (commas(data) + commasOfItem - 1) / commasOfItem
	} else {
		n = coding.CountItems(c.method.request.Descriptor(), data, most)
	}
	switch {
	case n > most:
		return tooManyItems(most)
	case n*itemCost <= smallRequest:
		return nil
	}
	return c.charge(int64(n * itemCost))
}

func tooManyItems(most int) error {
	return &rpcerr.Error{
		Reason:  rpcerr.MessageTooLarge,
		Message: fmt.Sprintf("the request has more than %d items", most),
	}
}

// charge charges the call with a request message. A negative number is released.
func (c *call) charge(bytes int64) error {
	if bytes < 0 {
		c.x.Memory.Release(-bytes)
	} else if err := c.x.Memory.Charge(bytes); err != nil {
		return err
	}
	c.held += bytes
	return nil
}

// commas returns the number of commas in JSON, outside of its texts.
func commas(data []byte) (n int) {
	inText := false
	for i := 0; i < len(data); i++ {
		switch b := data[i]; {
		case b == '"':
			inText = !inText
		case inText && b == '\\':
			i++
		case b == ',' && !inText:
			n++
		}
	}
	return n
}

func wrong(message string) error {
	return &rpcerr.Error{Reason: rpcerr.InvalidArgument, Message: message}
}

// wrongNumber returns the error of a call whose number of requests is not that of its method: gRPC
// and Connect have one code for it.
func wrongNumber(message string) error {
	return &rpcerr.Error{Reason: rpcerr.Unimplemented, Message: message}
}

// encode returns the bytes of a message.
func (c *call) encode(m proto.Message) ([]byte, error) {
	if c.wire.json {
		return protojson.Marshal(m)
	}
	return proto.Marshal(m)
}

// room returns how much memory a response message of that size takes while it is written: for its
// bytes as they are encoded, compressed, in an envelope, and as base64, which is longer.
func (c *call) room(size int) int64 {
	n := 1
	if c.out != coding.Identity {
		n++
	}
	if c.wire.protocol != connectUnary {
		n++
	}
	if c.wire.text {
		n += 2
	}
	if c.wire.json {
		n *= messageCost // documents are base64
	}
	return int64(n * size)
}

// envelope appends an envelope to dst.
func envelope(dst []byte, flags byte, data []byte) []byte {
	dst = append(dst, flags)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(data)))
	return append(dst, data...)
}
