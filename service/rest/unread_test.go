package rest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/admission"

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
				reply := openStream(t, newHandler(t, f, func(c *config) { c.Admission = a }),
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
		reply := openStream(t, newHandler(t, f, func(c *config) { c.Admission = a }), 1)
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
