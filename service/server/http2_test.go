package server_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/service/server"
)

// uploader is a client of HTTP/2 that sends as much as the server lets it.
type uploader struct {
	conn    *tls.Conn
	framer  *http2.Framer
	begins  int            // the window of a new stream
	whole   int            // the window of the connection
	windows map[uint32]int // of streams
	ends    map[uint32]bool
	ponged  bool
}

// newUploader connects to the port of REST, and returns the server's settings.
func newUploader(t *testing.T, r *rig) (*uploader, *http2.SettingsFrame) {
	t.Helper()
	nc, err := tls.Dial("tcp", r.Addresses().REST, &tls.Config{
		NextProtos: []string{"h2"}, InsecureSkipVerify: true, //nolint:gosec // of this test's own
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	u := &uploader{
		conn: nc, framer: http2.NewFramer(nc, nc), begins: 1<<16 - 1, whole: 1<<16 - 1,
		windows: map[uint32]int{}, ends: map[uint32]bool{},
	}
	_, _ = io.WriteString(nc, http2.ClientPreface)
	_ = u.framer.WriteSettings()
	settings, ok := u.read(t).(*http2.SettingsFrame)
	if !ok {
		t.Fatal("the server does not begin with its settings")
	}
	if n, ok := settings.Value(http2.SettingInitialWindowSize); ok {
		u.begins = int(n)
	}
	return u, settings
}

func (u *uploader) read(t *testing.T) http2.Frame {
	t.Helper()
	f, err := u.framer.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	switch f := f.(type) {
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			u.whole += int(f.Increment)
		} else {
			u.windows[f.StreamID] += int(f.Increment)
		}
	case *http2.PingFrame:
		u.ponged = f.IsAck()
	case *http2.DataFrame:
		u.ends[f.StreamID] = f.StreamEnded()
	}
	return f
}

// open begins a POST whose body does not end. All that the server has sent until now is read.
func (u *uploader) open(t *testing.T, id uint32, path string) {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":path", path}, {":authority", "localhost"},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_ = u.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true,
	})
	u.windows[id] = u.begins
	_ = u.framer.WritePing(false, [8]byte{})
	for u.ponged = false; !u.ponged; {
		u.read(t)
	}
}

// send sends up to n bytes of a body, as many as the windows have room for.
func (u *uploader) send(t *testing.T, id uint32, n int) (sent int) {
	t.Helper()
	for {
		piece := make([]byte, min(n-sent, u.windows[id], u.whole, 16<<10))
		if len(piece) == 0 {
			return sent
		}
		if err := u.framer.WriteData(id, false, piece); err != nil {
			t.Fatal(err)
		}
		sent += len(piece)
		u.windows[id] -= len(piece)
		u.whole -= len(piece)
	}
}

// secureRig returns a server with TLS that has begun.
func secureRig(t *testing.T) *rig {
	t.Helper()
	pair := certtest.Authority(t, certtest.ECDSA).Issue(t, "localhost").TLS(nil)
	r := newRig(t, func(c *server.Config) {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	})
	close(r.finish)
	r.start(t)
	return r
}

// TestLargeFrames checks that a frame of HTTP/2 on the port of REST makes the server hold no more
// than on that of gRPC, whatever length its header announces.
func TestLargeFrames(t *testing.T) {
	r := secureRig(t)
	defer r.stop(t)
	u, settings := newUploader(t, r)
	defer func() { _ = u.conn.Close() }()
	for id, most := range map[http2.SettingID]uint32{
		http2.SettingMaxFrameSize: 16 << 10, http2.SettingInitialWindowSize: 64 << 10,
	} {
		if n, ok := settings.Value(id); !ok || n > most {
			t.Errorf("%s is %d, want at most %d", id, n, most)
		}
	}
	// The header of a frame of 1 MiB less a byte, of an unknown type.
	if _, err := u.conn.Write([]byte{0x0f, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	for {
		if f, ok := u.read(t).(*http2.GoAwayFrame); ok {
			if f.ErrCode != http2.ErrCodeFrameSize {
				t.Errorf("the connection ends with %s", f.ErrCode)
			}
			break
		}
	}
}

// TestUnreadUploads checks that bodies which no handler reads leave room for another one on their
// connection.
func TestUnreadUploads(t *testing.T) {
	r, done := secureRig(t), make(chan struct{})
	defer r.stop(t)
	defer close(done)
	server.SetREST(r.Server, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/unread" {
			<-done
			return
		}
		_, _ = io.CopyN(w, req.Body, 1)
		_, _ = io.Copy(io.Discard, req.Body)
	}))
	u, _ := newUploader(t, r)
	defer func() { _ = u.conn.Close() }()
	const size = 1 << 20
	for _, id := range []uint32{1, 3, 5} {
		u.open(t, id, "/unread")
		u.send(t, id, size)
	}
	const read = 7
	u.open(t, read, "/read")
	for sent := u.send(t, read, size); sent < size; sent += u.send(t, read, size-sent) {
		u.read(t)
	}
	_ = u.framer.WriteData(read, true, nil)
	for !u.ends[read] {
		u.read(t)
	}
}
