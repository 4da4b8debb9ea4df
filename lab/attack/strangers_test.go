package attack_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mooringdb/mooring/internal/issuertest"
)

// strangerAttacks are those that need no credential.
var strangerAttacks = []attack{
	{"health watches", func(t *testing.T, g *target) string {
		n, streams := of(300, 20), 250
		var clients []*rawClient
		begun := time.Now()
		for range n {
			c := dial(t, g.GRPC, 1<<20)
			clients = append(clients, c)
			for range streams {
				if !c.call(t, "/grpc.health.v1.Health/Watch", &healthpb.HealthCheckRequest{}) {
					break
				}
			}
		}
		opened := since(begun)
		<-time.After(seconds(10, 1))
		left := watching(clients, streams)
		for left > mostWatches && time.Since(begun) < slack {
			<-time.After(100 * time.Millisecond) // the gateway has not read them all
			left = watching(clients, streams)
		}
		if left > mostWatches {
			t.Errorf("%d streams are open, want at most %d", left, mostWatches)
		}
		return fmt.Sprintf("opened in %s; %d of %d are open after %s", opened, left, n*streams,
			since(begun))
	}},
	{"rapid reset", func(t *testing.T, g *target) string {
		const connections = 40
		n := of(400_000, 20_000) / connections
		var cut atomic.Int64
		begun := time.Now()
		together(connections, 0, func() {
			c := dial(t, g.GRPC, 1<<20)
			for range n {
				id, ok := c.open(methods + "Find")
				ok = ok && c.write(func(w *http2.Framer) error {
					return w.WriteRSTStream(id, http2.ErrCodeCancel)
				})
				if !ok {
					cut.Add(1)
					c = dial(t, g.GRPC, 1<<20)
				}
			}
		})
		return fmt.Sprintf("sent in %s; %d connections are cut", since(begun), cut.Load())
	}},
	{"tokens of strangers", func(t *testing.T, g *target) string {
		ctx, cancel := context.WithTimeout(t.Context(), seconds(10, 1))
		defer cancel()
		// Another issuer of the same name: all is as it should be but the signatures.
		other := issuertest.New(t, g.issuer)
		var n atomic.Int64
		return tally(repeat(40, ctx, func() string {
			return g.send(ctx, http.MethodPost, collections+"orders_1/documents:findOne",
				[]byte("{}"), "Authorization",
				"Bearer "+other.Token(t, strconv.FormatInt(n.Add(1), 10)))
		}))
	}},
}

// mostWatches is how many streams of health clients of one address may hold.
const mostWatches = 512

// watching returns how many streams have not ended, of the clients that have opened so many each:
// those that the gateway holds, and those that it has not read yet.
func watching(clients []*rawClient, streams int) (n int) {
	for _, c := range clients {
		if !c.isCut(0) {
			n += streams - c.over()
		}
	}
	return n
}
