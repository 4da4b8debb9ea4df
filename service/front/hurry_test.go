package front_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
)

// pausing implements the response writer of a client that reads nothing for a while. A write
// deadline in the past, which is the only one that streams set, ends a write.
type pausing struct {
	*httptest.ResponseRecorder
	until time.Time
	ended context.Context //nolint:containedctx // of the deadline
	end   context.CancelFunc
}

func (p *pausing) Write(b []byte) (int, error) {
	select {
	case <-time.After(time.Until(p.until)):
		return p.ResponseRecorder.Write(b)
	case <-p.ended.Done():
		return 0, os.ErrDeadlineExceeded
	}
}

func (p *pausing) SetWriteDeadline(t time.Time) error {
	if t.Before(time.Now()) {
		p.end()
	}
	return nil
}

// TestHurry has a call end while its stream waits for a client that does not read for five seconds:
// a message is given up after one, but the end of the stream has the time of any write, also if the
// call's end is told late.
func TestHurry(t *testing.T) {
	for name, row := range map[string]struct {
		write func(o *front.Response, text []byte) error
		took  time.Duration
		got   string
	}{
		"a message": {(*front.Response).Send, time.Second, ""},
		"a message after the end of the call": {func(o *front.Response, text []byte) error {
			time.Sleep(time.Millisecond) //nolint:forbidigo // fake time
			return o.Send(text)
		}, time.Second, ""},
		"the end": {func(o *front.Response, text []byte) error {
			o.SendLast(text)
			return nil
		}, 5 * time.Second, "text"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &pausing{ResponseRecorder: httptest.NewRecorder()}
				w.ended, w.end = context.WithCancel(t.Context())
				w.until = time.Now().Add(5 * time.Second)
				defer w.end()
				begun := time.Now()
				h := newHandler(t, nil, func(x *front.Exchange) {
					call, end := context.WithCancel(t.Context())
					stop := context.AfterFunc(call, x.Response.Hurry)
					defer stop()
					time.AfterFunc(time.Microsecond, end) // while it is being written
					err := row.write(&x.Response, []byte("text"))
					if (err != nil) != (row.got == "") {
						t.Errorf("write: %v", err)
					}
				})
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				took := time.Since(begun).Round(time.Millisecond)
				if took != row.took || w.Body.String() != row.got {
					t.Errorf("%q after %s, want %q after %s", w.Body, took, row.got, row.took)
				}
			})
		})
	}
}

// behind takes the header of a stream when a write to the client has ended.
type behind struct{ written chan struct{} }

func (b behind) Header(context.Context, metadata.MD) { <-b.written }

func (behind) Message(context.Context, any) error { return nil }

// streams implements a service with one stream.
type streams struct {
	mooringv1.UnimplementedDocumentServiceServer

	handle func(s grpc.ServerStreamingServer[mooringv1.StreamFindResponse]) error
}

func (f streams) StreamFind(
	_ *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
) error {
	return f.handle(s)
}

// TestHurryBeforeTheFirstMessage checks that what a stream writes of its own, before its header,
// ends soon after its call if the client does not read.
func TestHurryBeforeTheFirstMessage(t *testing.T) {
	for name, row := range map[string]struct {
		handle func(s grpc.ServerStreamingServer[mooringv1.StreamFindResponse]) error
		took   time.Duration
	}{
		"a message until the deadline": {func(
			s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
		) error {
			return s.Send(&mooringv1.StreamFindResponse{})
		}, 3 * time.Second},
		"no message until the deadline": {func(
			s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
		) error {
			<-s.Context().Done()
			return s.Context().Err()
		}, 3 * time.Second},
		"no message": {func(grpc.ServerStreamingServer[mooringv1.StreamFindResponse]) error {
			return nil
		}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := inproc.NewConn(nil, func(
					srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler,
				) error {
					return h(srv, ss)
				})
				mooringv1.RegisterDocumentServiceServer(conn, streams{handle: row.handle})
				h, err := front.New(front.Config{Conn: conn, APIs: []front.API{api(func(
					x *front.Exchange,
				) {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					b := behind{make(chan struct{})}
					go func() {
						defer close(b.written)
						if err := x.Response.Send([]byte("text")); err == nil {
							t.Error("the client has read")
						}
					}()
					synctest.Wait()
					_, _ = x.Serve(x.Incoming(ctx, nil, call.Local{}),
						mooringv1.DocumentService_StreamFind_FullMethodName,
						&mooringv1.StreamFindRequest{}, b)
				})}})
				if err != nil {
					t.Fatal(err)
				}
				w := &pausing{ResponseRecorder: httptest.NewRecorder()}
				w.ended, w.end = context.WithCancel(t.Context())
				w.until = time.Now().Add(time.Minute)
				defer w.end()
				begun := time.Now()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				if took := time.Since(begun); took != row.took {
					t.Errorf("the stream ends after %s, want %s", took, row.took)
				}
			})
		})
	}
}
