package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// window is how much a server may send on a stream, and on the connection, for all of the time.
const window = 1 << 30

// readBytes is how much of a connection is read at a time.
const readBytes = 64 << 10

// multiplexed represents a connection with several streams, over HTTP/2. It reads frames and has no
// goroutine, channel or buffer for each stream, as an http2.Transport would.
type multiplexed struct {
	o      *options
	counts tally
	conn   *tls.Conn
	frames *http2.Framer
}

func newMultiplexed(o *options) *multiplexed {
	return &multiplexed{o: o, counts: newTally(o.streams, o.events)}
}

func (c *multiplexed) tally() *tally { return &c.counts }

func (c *multiplexed) open() (err error) {
	if c.conn, err = tls.Dial("tcp", c.o.address, c.o.secure); err != nil {
		return err
	}
	var first bytes.Buffer
	first.WriteString(http2.ClientPreface)
	c.frames = http2.NewFramer(&first, bufio.NewReaderSize(c.conn, readBytes))
	c.frames.SetReuseFrames()
	c.frames.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	_ = c.frames.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	_ = c.frames.WriteWindowUpdate(0, window)
	for i := range c.o.streams {
		_ = c.frames.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: c.request(),
			EndStream: true, EndHeaders: true,
		})
	}
	if _, err := c.conn.Write(first.Bytes()); err != nil {
		return err
	}
	return c.until(c.counts.isOpen)
}

// request returns the fields of a request.
func (c *multiplexed) request() []byte {
	var b bytes.Buffer
	fields := hpack.NewEncoder(&b)
	fields.SetMaxDynamicTableSize(0)
	for _, f := range [][2]string{
		{":method", "GET"},
		{":scheme", "https"},
		{":authority", c.o.address},
		{":path", c.o.path},
		{"accept", "text/event-stream"},
	} {
		_ = fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return b.Bytes()
}

func (c *multiplexed) read() error {
	defer func() { _ = c.conn.Close() }()
	return c.until(c.counts.isDone)
}

func (c *multiplexed) until(done func() bool) error {
	for !done() {
		f, err := c.frames.ReadFrame()
		if err != nil {
			return fmt.Errorf("a connection over HTTP/2 has ended: %w", err)
		}
		if err := c.frame(f); err != nil {
			return err
		}
	}
	return nil
}

func (c *multiplexed) frame(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		if f.StreamEnded() {
			return fmt.Errorf("a stream over HTTP/2 has ended: %q", f.Data())
		}
		return c.counts.add(int(f.StreamID/2), f.Data())
	case *http2.MetaHeadersFrame:
		if f.PseudoValue("status") != "200" || f.StreamEnded() {
			return fmt.Errorf("a stream is refused: %v", f.Fields)
		}
	case *http2.RSTStreamFrame:
		return fmt.Errorf("a stream is reset: %v", f.ErrCode)
	case *http2.GoAwayFrame:
		return fmt.Errorf("a connection is not to be used any more: %v", f.ErrCode)
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return c.write(func(to *http2.Framer) error { return to.WriteSettingsAck() })
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.write(func(to *http2.Framer) error { return to.WritePing(true, f.Data) })
		}
	}
	return nil
}

func (c *multiplexed) write(frame func(*http2.Framer) error) error {
	return frame(http2.NewFramer(c.conn, nil))
}
