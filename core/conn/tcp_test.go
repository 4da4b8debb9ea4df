package conn_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func TestOverTCP(t *testing.T) {
	s := fakemongo.NewTCPServer(t, nil)
	c, err := conn.Dial(t.Context(), s.Address(), conn.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil {
		t.Error(err)
	}
	if _, err := conn.Dial(t.Context(), address.Address("127.0.0.1:1"),
		conn.Config{ConnectTimeout: -1}); err == nil {
		t.Error("Dial of a closed port succeeded")
	}
}

func TestServerGoneWhileIdle(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("cannot be seen there")
	}
	s := fakemongo.NewTCPServer(t, nil)
	c, err := conn.Dial(t.Context(), s.Address(), conn.Config{SocketTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	conn.Expire(c)
	conn.Rest(c)
	if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil {
		t.Fatalf("RoundTrip on an old connection = %v", err)
	}
	s.CutConnections()
	for s.OpenConnections() > 0 { // the server's goroutine has to notice
		runtime.Gosched()
	}
	conn.Expire(c)
	conn.Rest(c)
	_, err = c.RoundTrip(t.Context(), message("ping", 0))
	if netErr, ok := errors.AsType[*mongoerr.NetworkError](err); !ok || netErr.Sent || c.Alive() {
		t.Errorf("RoundTrip on a connection that the server closed = %v, want a network error "+
			"with nothing sent", err)
	}
}

// TestServerGoneAfterReply checks that a connection that has just had a reply is used without a
// look at its socket, unless the next request wants no reply, and so would not find out.
func TestServerGoneAfterReply(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("cannot be seen there")
	}
	for name, row := range map[string]struct {
		send func(*conn.Conn) error
		sent bool
	}{
		"with a reply": {func(c *conn.Conn) error {
			_, err := c.RoundTrip(t.Context(), message("ping", 0))
			return err
		}, true},
		"without a reply": {func(c *conn.Conn) error {
			return c.Write(t.Context(), message("ping", wire.MoreToCome))
		}, false},
	} {
		s := fakemongo.NewTCPServer(t, nil)
		c, err := conn.Dial(t.Context(), s.Address(), conn.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil {
			t.Fatal(err)
		}
		s.CutConnections()
		for s.OpenConnections() > 0 { // the server's goroutine has to notice
			runtime.Gosched()
		}
		conn.JustUsed(c)
		netErr, ok := errors.AsType[*mongoerr.NetworkError](row.send(c))
		if !ok || netErr.Sent != row.sent || c.Alive() {
			t.Errorf("%s: %v, want a network error with Sent %v", name, netErr, row.sent)
		}
	}
}

// TestUnreadBytes checks that unread bytes are noticed before the next request is written: those
// that came with the last reply, and those that came later, in plain and inside TLS.
func TestUnreadBytes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("cannot be seen there")
	}
	ca := certtest.Authority(t, certtest.ECDSA)
	for _, encrypted := range []bool{false, true} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprintf("TLS %v, later %v", encrypted, later), func(t *testing.T) {
				s := fakemongo.NewTCPServer(t, nil)
				var cfg conn.Config
				if encrypted {
					s.UseTLS(presents(ca.Issue(t, "127.0.0.1")))
					cfg = useTLS(t, connstring.TLS{CAFile: caFile(t, ca)})
				}
				cfg.SocketTimeout = time.Minute
				goOn := make(chan struct{})
				s.Handle("ping", func(cmd *fakemongo.Command) fakemongo.Reply {
					reply := wire.Append(nil, wire.Header{ResponseTo: cmd.RequestID},
						&wire.Msg{Body: answer(1)})
					if later {
						return fakemongo.Garbage(reply).Then(goOn, fakemongo.Garbage(reply))
					}
					return fakemongo.Garbage(append(reply, reply...))
				})
				c, err := conn.Dial(t.Context(), s.Address(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil {
					t.Fatal(err)
				}
				if later {
					close(goOn)
					for !conn.HasArrived(c) {
						runtime.Gosched()
					}
				}
				conn.Expire(c)
				if later {
					conn.Rest(c)
				}
				_, err = c.RoundTrip(t.Context(), message("ping", 0))
				netErr, ok := errors.AsType[*mongoerr.NetworkError](err)
				if !ok || netErr.Sent || !mongoerr.IsMalformed(err) || c.Alive() {
					t.Errorf("RoundTrip() = %v, want a network error about the unread bytes with "+
						"nothing sent", err)
				}
				if n := len(s.Commands("ping")); n != 1 {
					t.Errorf("the server got %d requests, want 1", n)
				}
			})
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	reply := fakemongo.Always(fakemongo.Document(answer(1)))
	s := fakemongo.NewTCPServer(b, fakemongo.Handlers{"ping": reply})
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
