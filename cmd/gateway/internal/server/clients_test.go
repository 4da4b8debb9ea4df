package server_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/server"
)

// TestStopDoesNotWaitForSilentClients checks that connections without any data do not delay the
// stop.
func TestStopDoesNotWaitForSilentClients(t *testing.T) {
	r := newRig(t, func(cfg *server.Config) { cfg.DrainTimeout = time.Minute })
	close(r.finish)
	r.start(t)
	for _, address := range []string{r.Addresses().GRPC, r.Addresses().REST} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		defer func() {
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the silent connection is still open")
			}
		}()
	}
	// An answer means that the previous connection was accepted.
	if got := get(t, client(t, nil), "http://"+r.Addresses().REST); got != "rest" {
		t.Errorf("REST says %q", got)
	}
	begun := time.Now()
	r.stop(t)
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("Stop took %v", took)
	}
}

// TestStopBreaksHandshakes checks that a client that never completes its handshake delays the
// stop to its time limit, and no longer.
func TestStopBreaksHandshakes(t *testing.T) {
	r := newRig(t, func(cfg *server.Config) { cfg.DrainTimeout = 0 })
	close(r.finish)
	r.start(t)
	c, err := net.Dial("tcp", r.Addresses().GRPC)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PRI * HTTP"); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Read(make([]byte, 1)) // the server's settings, or the end: it has read
	r.stop(t)
}
