package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/front"
)

// endless sends messages until the client takes no more.
type endless struct {
	mooringv1.UnimplementedDocumentServiceServer

	ended atomic.Bool // a Send has failed
}

func (e *endless) StreamFind(
	r *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
) error {
	for {
		err := s.Send(&mooringv1.StreamFindResponse{
			Documents: []*mooringv1.Document{r.GetFilter()},
		})
		if err != nil {
			e.ended.Store(true)
			return err
		}
	}
}

// oneConn listens for one connection.
type oneConn struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.ended) })
	return nil
}

func (*oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// dial connects a client to a handler, in a bubble.
func dial(h http.Handler, change ...func(*http.Server)) (near net.Conn, end func()) {
	l := &oneConn{conns: make(chan net.Conn, 1), ended: make(chan struct{})}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Hour}
	for _, c := range change {
		c(s)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	near, far := net.Pipe()
	l.conns <- far
	return near, func() {
		_ = near.Close()
		_ = s.Close()
		serving.Wait()
		time.Sleep(time.Second) //nolint:forbidigo // fake time, for net/http, which lingers
	}
}

// TestStalledClients checks that a client which reads nothing of a stream loses its connection
// after the stall timeout, that its handler ends then, and that nothing stays charged.
func TestStalledClients(t *testing.T) {
	for _, f := range append(streams, webs...) {
		synctest.Test(t, func(t *testing.T) {
			e, a := &endless{}, admission.New(admission.Config{Bytes: 1 << 20})
			h := newHandlerOf(t, e, func(c *front.Config) {
				c.StallTimeout, c.Admission = time.Minute, a
			})
			l := &oneConn{conns: make(chan net.Conn, 1), ended: make(chan struct{})}
			s := &http.Server{Handler: h}
			var serving sync.WaitGroup
			serving.Go(func() { _ = s.Serve(l) })
			near, far := net.Pipe()
			l.conns <- far
			body := f.request(t, coding.Identity,
				&mooringv1.StreamFindRequest{Filter: filter(64 << 10)})
			_, _ = fmt.Fprintf(near,
				"POST /mooring.v1.DocumentService/StreamFind HTTP/1.1\r\nHost: "+
					"x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
				f.contentType, len(body), body)
			time.Sleep(50 * time.Second) //nolint:forbidigo // fake time
			synctest.Wait()
			if e.ended.Load() || a.Bytes().Held == 0 {
				t.Errorf("%s: before the timeout: ended %t, %d bytes are charged", f.contentType,
					e.ended.Load(), a.Bytes().Held)
			}
			time.Sleep(time.Minute) //nolint:forbidigo // fake time
			synctest.Wait()
			if !e.ended.Load() {
				t.Errorf("%s: the handler goes on", f.contentType)
			}
			if _, err := io.Copy(io.Discard, near); err != nil {
				t.Errorf("%s: the connection is still there: %v", f.contentType, err)
			}
			synctest.Wait()
			if held := a.Bytes().Held; held != 0 {
				t.Errorf("%s: %d bytes are still charged", f.contentType, held)
			}
			_ = near.Close()
			_ = s.Close()
			serving.Wait()
		})
	}
}

// TestStalledAnswers checks that a client which reads nothing of the answer of a call that is no
// stream loses its connection as on REST, and that nothing stays charged.
func TestStalledAnswers(t *testing.T) {
	for _, f := range append(unary, webs...) {
		synctest.Test(t, func(t *testing.T) {
			a := admission.New(admission.Config{Bytes: 1 << 20})
			b := &backend{document: filter(64 << 10)}
			near, end := dial(newHandler(t, b, func(c *front.Config) {
				c.StallTimeout, c.Admission = time.Hour, a
			}))
			defer end()
			body := f.request(t, coding.Identity, &mooringv1.FindOneRequest{})
			_, _ = fmt.Fprintf(near,
				"POST /mooring.v1.DocumentService/FindOne HTTP/1.1\r\nHost: x\r\n"+
					"Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
				f.contentType, len(body), body)
			time.Sleep(29 * time.Second) //nolint:forbidigo // fake time
			synctest.Wait()
			early := a.Bytes().Held
			time.Sleep(2 * time.Second) //nolint:forbidigo // fake time
			synctest.Wait()
			if late := a.Bytes().Held; early == 0 || late != 0 {
				t.Errorf("%s: %d bytes are charged after 29 s, %d after 31 s", f.contentType, early,
					late)
				return
			}
			if _, err := io.Copy(io.Discard, near); err != nil {
				t.Errorf("%s: the connection is still there: %v", f.contentType, err)
			}
		})
	}
}

// TestUnreadWhenTheCallEnds checks that a stream whose client reads nothing holds no memory soon
// after its call has ended.
func TestUnreadWhenTheCallEnds(t *testing.T) {
	for _, f := range append(streams, webs...) {
		synctest.Test(t, func(t *testing.T) {
			e, a := &endless{}, admission.New(admission.Config{Bytes: 1 << 20})
			near, end := dial(newHandlerOf(t, e, func(c *front.Config) { c.Admission = a }))
			defer end()
			body := f.request(t, coding.Identity,
				&mooringv1.StreamFindRequest{Filter: filter(64 << 10)})
			_, _ = fmt.Fprintf(near,
				"POST /mooring.v1.DocumentService/StreamFind HTTP/1.1\r\nHost: x\r\nContent-Type: "+
					"%s\r\nContent-Length: %d\r\nConnect-Timeout-Ms: 1000\r\n\r\n%s",
				f.contentType, len(body), body)
			time.Sleep(3 * time.Second) //nolint:forbidigo // fake time
			synctest.Wait()
			if held := a.Bytes().Held; !e.ended.Load() || held != 0 {
				t.Errorf("%s: ended %t, %d bytes are charged", f.contentType, e.ended.Load(), held)
			}
		})
	}
}

// TestNoRoomWhenTheCallEnds checks that a stream's wait for memory ends with its call.
func TestNoRoomWhenTheCallEnds(t *testing.T) {
	for _, f := range append(streams, webs...) {
		synctest.Test(t, func(t *testing.T) {
			over := errors.New("the credential has expired")
			failed := make(chan error, 1)
			a := admission.New(admission.Config{Bytes: 8 << 20, Patience: time.Minute})
			var all admission.Account
			a.Open(&all, admission.Principal{})
			all.Force(8<<20 - 64<<10) // the rest is for the request
			defer all.Close()
			h := newHandlerOf(t, ending{over: over, failed: failed}, func(c *front.Config) {
				c.Admission = a
			})
			begun := time.Now()
			send(h, "StreamFind", f.contentType,
				f.request(t, coding.Identity, &mooringv1.StreamFindRequest{}))
			took, err := time.Since(begun), <-failed
			if took != time.Second || !errors.Is(err, over) {
				t.Errorf("%s: the wait took %s and ended with %v, want 1s and %v", f.contentType,
					took, err, over)
			}
		})
	}
}

// ending sends a message in a context that ends after a second.
type ending struct {
	mooringv1.UnimplementedDocumentServiceServer

	over   error
	failed chan error
}

func (e ending) StreamFind(
	_ *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
) error {
	ctx, end := context.WithCancelCause(s.Context())
	time.AfterFunc(time.Second, func() { end(e.over) })
	send := s.(*grpc.GenericServerStream[
		mooringv1.StreamFindRequest, mooringv1.StreamFindResponse,
	]).ServerStream.(interface {
		SendMsgContext(ctx context.Context, m any) error
	})
	err := send.SendMsgContext(ctx, &mooringv1.StreamFindResponse{
		Documents: []*mooringv1.Document{filter(1 << 20)},
	})
	e.failed <- err
	return err
}

// TestDrippingMessages checks that a message of a client's stream that comes a byte at a time has
// the time of one piece, whatever its length, and is charged as it arrives.
func TestDrippingMessages(t *testing.T) {
	const wait = 30 * time.Second
	for _, f := range []form{streams[0], webs[0]} {
		synctest.Test(t, func(t *testing.T) {
			a := admission.New(admission.Config{Bytes: 64 << 20})
			h := newHandler(t, &backend{}, func(c *front.Config) { c.Admission = a })
			l := &oneConn{conns: make(chan net.Conn, 1), ended: make(chan struct{})}
			s := &http.Server{Handler: h}
			var working sync.WaitGroup
			working.Go(func() { _ = s.Serve(l) })
			near, far := net.Pipe()
			l.conns <- far
			begin := time.Now()
			working.Go(func() {
				_, err := fmt.Fprintf(near,
					"POST /mooring.v1.DocumentService/Import HTTP/1.1\r\nHost: x\r\n"+
						"Content-Type: %s\r\nContent-Length: 1000000\r\n\r\n\x00\x00\x08\x00\x00",
					f.contentType)
				for err == nil && time.Since(begin) < 10*wait {
					time.Sleep(time.Second) //nolint:forbidigo // fake time
					_, err = near.Write([]byte{0})
				}
				_ = near.Close()
			})
			time.Sleep(wait / 2) //nolint:forbidigo // fake time
			synctest.Wait()
			if held := a.Bytes().Held; held == 0 || held > 256<<10 {
				t.Errorf("%s: %d bytes are charged for 15", f.contentType, held)
			}
			_, _ = io.Copy(io.Discard, near)
			if took := time.Since(begin); took < wait || took > wait+time.Second {
				t.Errorf("%s: the connection was there for %v, want %v", f.contentType, took, wait)
			}
			_ = near.Close()
			_ = s.Close()
			working.Wait()
			if held := a.Bytes().Held; held != 0 {
				t.Errorf("%s: %d bytes are still charged", f.contentType, held)
			}
		})
	}
}
