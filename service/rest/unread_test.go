package rest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/rest"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// TestUnreadStreams checks that a stream whose client takes nothing is cut when calls need its
// memory, and only then, and that one whose client reads slowly goes on.
func TestUnreadStreams(t *testing.T) {
	const waits = 45 * time.Second
	for _, row := range []struct {
		name    string
		version int
		rate    int // bytes that the client reads every second
		waits   time.Duration
		needs   int64 // bytes of another call
		cut     bool
	}{
		{"takes nothing", 1, 0, waits, 3 << 20, true},
		{"takes nothing, HTTP/2", 2, 0, waits, 3 << 20, true},
		{"takes nothing, there is room", 1, 0, waits, 1 << 20, false},
		{"takes nothing yet", 1, 0, waits / 2, 3 << 20, false},
		{"reads slowly", 1, 4 << 10, waits, 3 << 20, false},
		{"reads slowly, HTTP/2", 2, 4 << 10, waits, 3 << 20, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := admission.New(admission.Config{Bytes: 4 << 20, Patience: time.Second})
				over := make(chan struct{})
				f := &fake{streamFind: func(_ *mooringv1.StreamFindRequest, s findStream) error {
					defer close(over)
					return s.Send(&mooringv1.StreamFindResponse{Documents: pads(1, 2<<20, "x")})
				}}
				reply := openStream(t, newHandler(t, f, func(c *rest.Config) { c.Admission = a }),
					row.version)
				defer func() { _ = reply.Body.Close() }()
				var reading sync.WaitGroup
				if row.rate > 0 {
					reading.Go(func() {
						slow := &slowReader{r: reply.Body, bytesPerSecond: row.rate}
						_, _ = io.Copy(io.Discard, slow)
					})
				}
				time.Sleep(row.waits) //nolint:forbidigo // fake time
				if a.Bytes().Held < 2<<20 {
					t.Fatalf("%d bytes are charged, want those of the text", a.Bytes().Held)
				}
				var other admission.Account
				a.Open(&other, admission.PrincipalOf("another", netip.Addr{}))
				err := other.Grow(t.Context(), row.needs)
				if isGranted := row.cut || row.needs == 1<<20; (err == nil) != isGranted {
					t.Errorf("Grow() = %v, want the bytes: %t", err, isGranted)
				}
				synctest.Wait()
				other.Close()
				if isCut := a.Bytes().Held == 0; isCut != row.cut {
					t.Errorf("%d bytes are charged, want that the stream is cut: %t",
						a.Bytes().Held, row.cut)
				}
				_ = reply.Body.Close()
				reading.Wait()
				<-over
			})
		})
	}
}

// TestStreamsOfOthers checks that a principal ends no stream of another if that would not help it.
func TestStreamsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 10 << 20})
		over := make(chan struct{})
		f := &fake{streamFind: func(_ *mooringv1.StreamFindRequest, s findStream) error {
			defer close(over)
			return s.Send(&mooringv1.StreamFindResponse{Documents: pads(1, 1<<20, "x")})
		}}
		reply := openStream(t, newHandler(t, f, func(c *rest.Config) { c.Admission = a }), 1)
		time.Sleep(45 * time.Second) //nolint:forbidigo // fake time
		stream := a.Bytes().Held
		var other admission.Account
		a.Open(&other, admission.PrincipalOf("another", netip.Addr{}))
		if err := other.Grow(t.Context(), 6<<20); err != nil {
			t.Fatal(err)
		}
		if err := other.Grow(t.Context(), 5<<20); err == nil {
			t.Error("Grow(), want that it holds too much itself")
		}
		synctest.Wait()
		if got := a.Bytes().Held; got != stream+6<<20 || stream < 1<<20 {
			t.Errorf("%d bytes are charged, want %d of the stream and 6 MiB", got, stream)
		}
		other.Close()
		_ = reply.Body.Close()
		<-over
	})
}

// TestStreamWaitsForItsTurn checks that a stream that waits for its turn does not count as one that
// waits for its client.
func TestStreamWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{})
		over := make(chan error, 1)
		h := newHandler(t, &fake{streamFind: func(
			_ *mooringv1.StreamFindRequest, s findStream,
		) error {
			err := s.Send(&mooringv1.StreamFindResponse{Documents: pads(1, 2<<20, "x")})
			over <- err
			return err
		}}, func(c *rest.Config) { c.Admission = a })
		reply := openStream(t, h, 1)
		synctest.Wait()
		if got := rest.Unread(h); got != 1 {
			t.Errorf("%d streams wait for their clients, want 1", got)
		}
		turns := make([]admission.Turn, max(1, runtime.GOMAXPROCS(0)-1))
		for i := range turns {
			turns[i] = a.Turn()
			turns[i].Take()
		}
		var reading sync.WaitGroup
		reading.Go(func() { _, _ = io.Copy(io.Discard, reply.Body) })
		synctest.Wait()
		if got := rest.Unread(h); got != 0 {
			t.Errorf("%d streams wait for their clients, want that this one waits for its turn", got)
		}
		for i := range turns {
			turns[i].Leave()
		}
		if err := <-over; err != nil {
			t.Errorf("the stream ends with %v", err)
		}
		reading.Wait()
		_ = reply.Body.Close()
	})
}

// TestStreamsAreForgotten checks that a stream that has ended is not among those that wait, also if
// it was compressed: the end of the compression comes last.
func TestStreamsAreForgotten(t *testing.T) {
	for _, coding := range []string{"identity", "gzip", "zstd"} {
		h := newHandler(t, &fake{streamFind: func(
			_ *mooringv1.StreamFindRequest, s findStream,
		) error {
			return s.Send(&mooringv1.StreamFindResponse{Documents: pads(1, 1<<10, "x")})
		}})
		w := do(h, http.MethodPost, documents+":streamFind", "{}", "Accept-Encoding", coding)
		if w.Code != http.StatusOK || rest.Unread(h) != 0 {
			t.Errorf("%s: status %d, %d streams wait after their end", coding, w.Code, rest.Unread(h))
		}
	}
}

// openStream begins a stream, and returns its response.
func openStream(t *testing.T, h http.Handler, version int) *http.Response {
	t.Helper()
	transport := &http.Transport{ReadBufferSize: 4 << 10, DisableCompression: true}
	if version == 2 {
		transport = overHTTP2(t, h)
		transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
	} else {
		l := listen(t, h)
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			return l.dial(), nil
		}
		t.Cleanup(transport.CloseIdleConnections)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		fmt.Sprintf("http://db%s:streamFind", documents), strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	reply, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}
