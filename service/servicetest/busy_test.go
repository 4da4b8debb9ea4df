package servicetest_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/internal/issuertest"
	"github.com/mooringdb/mooring/internal/memhttp"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestBusyVerifications checks what clients of gRPC and of REST are told while new tokens of other
// addresses fill the queue of verifications: that the gateway has no room, and for how long.
func TestBusyVerifications(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const url = "https://issuer.example"
		issuer := issuertest.New(t, url)
		callers := caller.New(caller.Config{Tokens: &caller.TokenConfig{
			Issuer: url, Audience: issuertest.Audience, Claim: "sub",
			Algorithms: []string{"ES256"}, Transport: memhttp.New(t, issuer, "issuer.example"),
		}})
		t.Cleanup(callers.Close)
		ctx, leave := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		defer flood.Wait()
		defer leave()
		forged := "Bearer " + issuer.Forge(t, "eve")
		for i := range 3000 {
			p := caller.Presented{
				Authorization: []string{forged},
				Address:       netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
			}
			flood.Go(func() { _, _ = callers.Authenticate(ctx, &p) })
		}
		synctest.Wait()

		fresh := "Bearer " + issuer.Token(t, "ann")
		incoming := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", fresh))
		incoming = peer.NewContext(incoming, &peer.Peer{
			Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1},
		})
		x := interceptor.New(interceptor.Config{Callers: callers})
		_, err := x.Authenticate(incoming, "/mooring.v1.DocumentService/Find")
		got := rpcerr.HTTP(err)
		if reason := got.Body.GetError().GetReason(); status.Code(err) != codes.Unavailable ||
			reason != "Overloaded" || got.RetryAfter != time.Second {
			t.Errorf("gRPC: %v, %s, retry after %s", err, reason, got.RetryAfter)
		}

		h, err := front.New(front.Config{
			Callers: callers, Conn: inproc.NewConn(x.Unary(), x.Stream()),
			APIs: []front.API{rest.New(rest.Config{})},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, "http://localhost/v1/databases", nil)
		r.RemoteAddr = "192.0.2.1:1"
		r.Header.Set("Authorization", fresh)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" ||
			w.Header().Get("WWW-Authenticate") != "" || !hasReason(w.Body.String(), "Overloaded") {
			t.Errorf("REST: %d, %v, %s", w.Code, w.Header(), w.Body)
		}
	})
}

// hasReason reports whether the body of an error has the reason.
func hasReason(body, reason string) bool {
	return strings.Contains(strings.ReplaceAll(body, " ", ""), `"reason":"`+reason+`"`)
}
