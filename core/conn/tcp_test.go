package conn_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/mongotest"
)

func TestOverTCP(t *testing.T) {
	s := mongotest.NewTCPServer(t, nil)
	c, err := conn.Dial(t.Context(), s.Address(), conn.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil {
		t.Error(err)
	}
	if _, err := conn.Dial(t.Context(), address.Address("127.0.0.1:1"), conn.Config{ConnectTimeout: -1}); err == nil {
		t.Error("Dial of a closed port succeeded")
	}
}

func TestServerGoneWhileIdle(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("cannot be seen there")
	}
	s := mongotest.NewTCPServer(t, nil)
	c, err := conn.Dial(t.Context(), s.Address(), conn.Config{SocketTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	conn.Age(c, time.Minute)
	if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil {
		t.Fatalf("RoundTrip on an old connection = %v", err)
	}
	s.CutConnections()
	for s.OpenConnections() > 0 { // the server's goroutine has to notice
		runtime.Gosched()
	}
	conn.Age(c, time.Minute)
	_, err = c.RoundTrip(t.Context(), message("ping", 0))
	if netErr, ok := errors.AsType[*mongoerr.NetworkError](err); !ok || netErr.Sent || c.Alive() {
		t.Errorf("RoundTrip on a connection that the server closed = %v, want a network error with nothing sent", err)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	reply := mongotest.Always(mongotest.Document(answer(1)))
	s := mongotest.NewTCPServer(b, mongotest.Handlers{"ping": reply})
	c, err := conn.Dial(b.Context(), s.Address(), conn.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	msg := message("ping", 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.RoundTrip(b.Context(), msg); err != nil {
			b.Fatal(err)
		}
	}
}
