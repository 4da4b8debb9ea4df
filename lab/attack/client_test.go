package attack_test

import (
	"bytes"
	"encoding/binary"
	"maps"
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

	// mu guards the fields below.
	mu      sync.Mutex
	ended   int              // streams that the server has ended
	codes   map[string]int   // how many calls have each grpc-status
	windows map[uint32]int64 // what the server takes of a stream; 0: of the connection
	initial int64            // the window of a new stream
	grown   *sync.Cond       // a window has grown, or the connection has ended
}

// dial connects to the gateway's gRPC port. Each stream has a window of that size.
func dial(t testing.TB, address string, window uint32) *rawClient {
	t.Helper()
	nc, err := connect(t, address)
	if err != nil {
		t.Fatal(err)
	}
	c := &rawClient{
		conn: nc, done: make(chan struct{}), framer: http2.NewFramer(nc, nc), next: 1,
		codes: map[string]int{}, windows: map[uint32]int64{0: 65535}, initial: 65535,
	}
	c.grown = sync.NewCond(&c.mu)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	t.Cleanup(func() {
		_ = nc.Close()
		<-c.done
	})
	_, err = nc.Write([]byte(http2.ClientPreface))
	if err == nil {
		setting := http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}
		err = c.framer.WriteSettings(setting)
	}
	if err != nil {
		t.Logf("dial: %v", err) // the gateway has refused the connection
	}
	go c.read() // once nothing else writes without the lock
	return c
}

func (c *rawClient) read() {
	defer func() {
		close(c.done)
		c.grown.Broadcast()
	}()
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		if p, ok := f.(*http2.PingFrame); ok && !p.IsAck() {
			c.write(func(w *http2.Framer) error { return w.WritePing(true, p.Data) })
		}
		c.note(f)
	}
}

// note records what a frame says.
func (c *rawClient) note(f http2.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if n, ok := f.Value(http2.SettingInitialWindowSize); ok {
			c.initial = int64(n)
		}
	case *http2.WindowUpdateFrame:
		if _, known := c.windows[f.StreamID]; known {
			c.windows[f.StreamID] += int64(f.Increment)
			c.grown.Broadcast()
		}
	case *http2.MetaHeadersFrame:
		if !f.StreamEnded() {
			return
		}
		for _, field := range f.Fields {
			if field.Name == "grpc-status" {
				c.codes[field.Value]++
			}
		}
		c.endLocked(f.StreamID)
	case *http2.RSTStreamFrame:
		c.endLocked(f.StreamID)
	}
}

func (c *rawClient) endLocked(id uint32) {
	if _, open := c.windows[id]; !open {
		return // a stream that is refused ends with a status, and then with a reset
	}
	c.ended++
	delete(c.windows, id)
	c.grown.Broadcast()
}

// statuses returns how many calls have ended with each status.
func (c *rawClient) statuses() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.codes)
}

// send sends a text of a stream as the windows allow, and reports whether it has sent all.
func (c *rawClient) send(id uint32, text []byte, end bool) bool {
	for len(text) > 0 {
		n := c.allowed(id, min(len(text), 16<<10))
		if n == 0 {
			return false
		}
		piece := text[:n]
		text = text[n:]
		if !c.write(func(w *http2.Framer) error {
			return w.WriteData(id, end && len(text) == 0, piece)
		}) {
			return false
		}
	}
	return true
}

// allowed takes at most n bytes of the windows. It blocks until there are some, and returns 0 if
// the stream or the connection has ended.
func (c *rawClient) allowed(id uint32, n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		window, open := c.windows[id]
		if !open || c.isOver() {
			return 0
		}
		if got := min(window, c.windows[0], int64(n)); got > 0 {
			c.windows[0] -= got
			c.windows[id] -= got
			return int(got)
		}
		c.grown.Wait()
	}
}

func (c *rawClient) isOver() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// sendHalf begins a call and sends a message of that size but for its last byte, as the windows
// allow.
func (c *rawClient) sendHalf(method string, size int) {
	id, ok := c.open(method)
	ok = ok && c.send(id, prefix(size), false)
	piece := make([]byte, 16<<10)
	for left := size - 1; ok && left > 0; left -= len(piece) {
		ok = c.send(id, piece[:min(left, len(piece))], false)
	}
}

// callInPace makes a call whose request it sends as the windows allow.
func (c *rawClient) callInPace(t testing.TB, method string, request proto.Message) bool {
	t.Helper()
	text, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	id, ok := c.open(method)
	// The gateway may refuse the call before it has all.
	return ok && (c.send(id, append(prefix(len(text)), text...), true) || !c.isOver())
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
		c.mu.Lock()
		c.windows[id] = c.initial
		c.mu.Unlock()
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
	if c.isOver() {
		return true
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
		return false
	}
}
