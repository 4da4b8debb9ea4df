package server_test

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/mooringdb/mooring/service/server"
)

// TestEndWithoutReset checks that a connection that gRPC ends because of a frame that is too large
// ends as one without an error, so that the client gets all that it was sent before. It would be
// reset if some of the frame were left unread.
func TestEndWithoutReset(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testEndWithoutReset(t, nil) })
	t.Run("behind proxies", func(t *testing.T) {
		testEndWithoutReset(t, func(c *server.Config) { c.GRPCProxied = true })
	})
}

func testEndWithoutReset(t *testing.T, change func(*server.Config)) {
	t.Helper()
	r := newRig(t, change)
	close(r.finish)
	r.start(t)
	defer r.stop(t)
	c, err := net.Dial("tcp", r.Addresses().GRPC)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(c, c)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	const largest = 16 << 10 // that may be sent, since the server names no other
	if err := framer.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1,
		make([]byte, largest+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("the connection ends with %v", err)
	}
}
