package conn_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// hooked is a transport that calls hooks after a read or a write, and whose deadlines take effect
// late.
type hooked struct {
	net.Conn
	read, written atomic.Pointer[func()]
}

func (h *hooked) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if hook := h.read.Swap(nil); hook != nil {
		(*hook)()
	}
	return n, err
}

func (h *hooked) Write(p []byte) (int, error) {
	n, err := h.Conn.Write(p)
	if hook := h.written.Swap(nil); hook != nil {
		(*hook)()
	}
	return n, err
}

func (h *hooked) SetDeadline(at time.Time) error {
	if !at.IsZero() && at.Before(time.Now()) {
		time.Sleep(time.Millisecond) //nolint:forbidigo // fake time
	}
	return h.Conn.SetDeadline(at)
}

func dialHooked(t *testing.T, s *fakemongo.Server, cfg conn.Config) (*conn.Conn, *hooked) {
	t.Helper()
	h := &hooked{}
	cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := s.Dial(ctx, network, addr)
		h.Conn = nc
		return h, err
	}
	c, err := conn.Dial(t.Context(), s.Address(), cfg)
	if err != nil {
		t.Fatalf("Dial() = %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, h
}

// A context that ends between the last byte of the reply and the end of the call changes nothing:
// the reply is returned and the connection stays usable.
func TestContextThatEndsAfterTheReply(t *testing.T) {
	known := &description.TopologyVersion{}
	calls := []struct {
		name string
		call func(ctx context.Context, c *conn.Conn) error
	}{
		{"RoundTrip", func(ctx context.Context, c *conn.Conn) error {
			_, err := c.RoundTrip(ctx, message("count", 0))
			return err
		}},
		{"Write", func(ctx context.Context, c *conn.Conn) error { return c.Write(ctx, message("quiet", wire.MoreToCome)) }},
		{"Hello", func(ctx context.Context, c *conn.Conn) error {
			_, err := c.Hello(ctx)
			return err
		}},
		{"AwaitHello", func(ctx context.Context, c *conn.Conn) error {
			_, err := c.AwaitHello(ctx, known, time.Second)
			return err
		}},
	}
	for _, tt := range calls {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(tt.name+" "+timeout.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := fakemongo.NewServer(t, fakemongo.Handlers{
						"count": fakemongo.Always(fakemongo.Document(answer(5))),
						"quiet": fakemongo.Always(fakemongo.Silent()),
					})
					c, h := dialHooked(t, s, conn.Config{SocketTimeout: timeout})
					ctx, cancel := context.WithCancel(t.Context())
					hook := cancel
					if h.read.Store((*func())(&hook)); tt.name == "Write" {
						h.read.Store(nil)
						h.written.Store((*func())(&hook))
					}
					if err := tt.call(ctx, c); err != nil || ctx.Err() == nil {
						t.Fatalf("%s = %v, its context %v, want the reply, and a context that "+
							"has ended", tt.name, err, ctx.Err())
					}
					if !c.Alive() {
						t.Errorf("the connection is broken: %v", c.Err())
					}
					if reply, err := c.RoundTrip(t.Context(), message("count", 0)); err != nil ||
						number(t, reply) != 5 {
						t.Errorf("RoundTrip of the next caller = %v, %v", reply, err)
					}
				})
			})
		}
	}
}

// The same for the first hello.
func TestContextThatEndsAfterTheFirstHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		h := &hooked{}
		h.read.Store((*func())(&cancel))
		c, err := conn.Dial(ctx, s.Address(), conn.Config{Dialer: func(
			ctx context.Context, network, addr string,
		) (net.Conn, error) {
			nc, err := s.Dial(ctx, network, addr)
			h.Conn = nc
			return h, err
		}})
		if err != nil {
			t.Fatalf("Dial() = %v", err)
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Hello(t.Context()); err != nil || !c.Alive() {
			t.Errorf("Hello() = %v, want a connection to use", err)
		}
	})
}

// Interrupt breaks the connection at any moment, also after the reply.
func TestInterruptAfterTheReply(t *testing.T) {
	cause := errors.New("cleared")
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := fakemongo.NewServer(t, nil)
			c, h := dialHooked(t, s, conn.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			hook := func() {
				if ends {
					cancel()
				}
				c.Interrupt(cause)
			}
			h.read.Store(&hook)
			if _, err := c.RoundTrip(ctx, message("ping", 0)); err != nil {
				t.Errorf("RoundTrip() = %v, want the reply that had come", err)
			}
			if _, err := c.RoundTrip(t.Context(), message("ping", 0)); !errors.Is(err, cause) ||
				c.Alive() {
				t.Errorf("RoundTrip() after Interrupt = %v, want %v", err, cause)
			}
		})
	}
}

// If a caller's context ends during a request, the next caller's error says why the connection is
// broken, but is not a cancellation.
func TestErrorAfterAnotherCallersEnd(t *testing.T) {
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			s := fakemongo.NewServer(t,
				fakemongo.Handlers{"slow": fakemongo.Always(fakemongo.Hang())})
			c := dial(t, s, conn.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if errors.Is(end, context.Canceled) {
				time.AfterFunc(time.Millisecond, cancel)
			}
			if _, err := c.RoundTrip(ctx, message("slow", 0)); !errors.Is(err, end) {
				t.Errorf("RoundTrip() = %v, want %v", err, end)
			}
			_, err := c.RoundTrip(t.Context(), message("ping", 0))
			if !mongoerr.IsNetwork(err) || errors.Is(err, end) ||
				!strings.Contains(err.Error(), end.Error()) {
				t.Errorf("RoundTrip() of the next caller = %v, want a network error that is not %v",
					err, end)
			}
			if !mongoerr.IsTimeout(err) {
				t.Errorf("%v is not a timeout: it would count against the server", err)
			}
		})
	}
}

// A panic in the middle of an exchange breaks the connection.
func TestPanicBreaksTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		c, h := dialHooked(t, s, conn.Config{})
		hook := func() { panic("bug: in a test") }
		h.read.Store(&hook)
		func() {
			defer func() { _ = recover() }()
			_, _ = c.RoundTrip(t.Context(), message("ping", 0))
		}()
		if c.Alive() {
			t.Error("the connection is alive, with a reply unread")
		}
		if _, err := c.RoundTrip(t.Context(), message("ping", 0)); !mongoerr.IsNetwork(err) {
			t.Errorf("RoundTrip() = %v, want a network error", err)
		}
	})
}
