package attack_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// rawClient speaks HTTP/2 as no library would: it opens streams without end, gives no window, and
// sends half messages. A goroutine reads, until the connection ends.
type rawClient struct {
	conn net.Conn
	done chan struct{} // closed when the connection has ended

	wmu    sync.Mutex // guards the framer's writing
	framer *http2.Framer
	next   uint32 // stream

	mu    sync.Mutex // guards the fields below
	ended int        // streams that the server has ended
	least uint32     // how many streams the server allows
}

// dial connects to the gateway's gRPC port. Each stream has a window of that size.
func dial(t testing.TB, address string, window uint32) *rawClient {
	t.Helper()
	nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c := &rawClient{conn: nc, done: make(chan struct{}), framer: http2.NewFramer(nc, nc), next: 1}
	t.Cleanup(func() {
		_ = nc.Close()
		<-c.done
	})
	go c.read()
	_, err = nc.Write([]byte(http2.ClientPreface))
	if err == nil {
		setting := http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}
		err = c.framer.WriteSettings(setting)
	}
	if err != nil {
		t.Logf("dial: %v", err) // the gateway has refused the connection
	}
	return c
}

func (c *rawClient) read() {
	defer close(c.done)
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
				c.mu.Lock()
				c.least = n
				c.mu.Unlock()
			}
		case *http2.HeadersFrame:
			c.end(f.StreamEnded())
		case *http2.RSTStreamFrame:
			c.end(true)
		case *http2.PingFrame:
			if !f.IsAck() {
				c.write(func(w *http2.Framer) error { return w.WritePing(true, f.Data) })
			}
		}
	}
}

func (c *rawClient) end(ended bool) {
	if ended {
		c.mu.Lock()
		c.ended++
		c.mu.Unlock()
	}
}

// over returns how many streams have ended.
func (c *rawClient) over() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// write reports whether the connection has taken the frames.
func (c *rawClient) write(send func(w *http2.Framer) error) bool {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return send(c.framer) == nil
}

// open opens a stream, and returns its number.
func (c *rawClient) open(method string) (id uint32, ok bool) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	ok = c.write(func(w *http2.Framer) error {
		id = c.next
		c.next += 2
		return w.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true,
		})
	})
	return id, ok
}

// call makes a call, whose response the client does not take.
func (c *rawClient) call(t testing.TB, method string, request proto.Message) bool {
	t.Helper()
	text, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	id, ok := c.open(method)
	return ok && c.write(func(w *http2.Framer) error {
		return w.WriteData(id, true, append(prefix(len(text)), text...))
	})
}

// prefix begins a message of grpc.
func prefix(length int) []byte { return binary.BigEndian.AppendUint32([]byte{0}, uint32(length)) }

// isCut waits until the gateway has ended the connection, for at most that time.
func (c *rawClient) isCut(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
		return false
	}
}
