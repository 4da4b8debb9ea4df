package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// endless is a collection that no test reads to its end.
const endless = "docs_50000000_1024"

// TestDisconnect leaves clients in the middle of their streams, in each way that a client can
// leave, and counts what is left in the gateway and on the server.
func TestDisconnect(t *testing.T) {
	const clients = 10
	for name, leave := range map[string]func(*testing.T, *gatewaytest.Gateway, *canned.Server){
		"gRPC, cancelled call":       leaveGRPC(true),
		"gRPC, cut connection":       leaveGRPC(false),
		"NDJSON":                     leaveNDJSON("application/x-ndjson"),
		"SSE":                        leaveNDJSON("text/event-stream"),
		"NDJSON, never read a thing": leaveUnread,
		"during the find":            leaveDuring(0),
		"during a getMore":           leaveDuring(1),
	} {
		t.Run(name, func(t *testing.T) {
			server := startCanned(t)
			g := suite.Start(t, server.URI())
			// The cursor of the last find may open, and end, after its client has left.
			round := func() {
				before := server.Stats()
				for range clients {
					leave(t, g, server)
				}
				gatewaytest.Eventually(t, 15*time.Second, func() error {
					s := server.Stats()
					opened, killed := s.CursorsOpened-before.CursorsOpened,
						s.CursorsKilled-before.CursorsKilled
					if opened < clients || killed < opened {
						return fmt.Errorf("%d cursors opened and %d killed, want %d", opened,
							killed, clients)
					}
					return nil
				})
			}
			// One round warms up what stays: pooled connections, lazily started helpers.
			round()
			waitUntilIdle(t, g, server.Stats, 1<<30)
			settled := g.Vars(t).Goroutines
			before := server.Stats()

			round()
			waitUntilIdle(t, g, server.Stats, settled)
			after := server.Stats()
			opened, killed := after.CursorsOpened-before.CursorsOpened,
				after.CursorsKilled-before.CursorsKilled
			if opened != clients || killed != clients {
				t.Errorf("%d cursors opened and %d killed, want %d", opened, killed, clients)
			}
			t.Logf("%d goroutines, %d connections to the server, %d new ones", g.Vars(t).Goroutines,
				after.Connections, after.Connected-before.Connected)
		})
	}
}

// waitUntilIdle waits until the gateway holds nothing for any client: no cursor on the server, no
// connection checked out, and no more goroutines than it had.
func waitUntilIdle(t testing.TB, g *gatewaytest.Gateway, stats func() canned.Stats,
	goroutines int,
) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	gatewaytest.Eventually(t, 15*time.Second, func() error {
		s, v := stats(), g.Vars(t)
		switch {
		case s.CursorsOpen > 0:
			return fmt.Errorf("%d cursors are open on the server: %+v", s.CursorsOpen, s)
		case len(v.Pools) == 0:
			return fmt.Errorf("the gateway shows no pool: %+v", v)
		case v.CheckedOut() > 0:
			return fmt.Errorf("%d connections are checked out: %+v", v.CheckedOut(), v.Pools)
		case v.Goroutines > goroutines:
			return fmt.Errorf("%d goroutines, there were %d", v.Goroutines, goroutines)
		}
		return nil
	})
}

// leaveGRPC reads a little of a stream, then cancels the call or closes the connection.
func leaveGRPC(cancelCall bool) func(*testing.T, *gatewaytest.Gateway, *canned.Server) {
	return func(t *testing.T, g *gatewaytest.Gateway, _ *canned.Server) {
		conn := dial(t, g)
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := mooringv1.NewDocumentServiceClient(conn).
			StreamFind(ctx, &mooringv1.StreamFindRequest{Database: "lab", Collection: endless})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		if cancelCall {
			cancel()
		}
	}
}

// leaveNDJSON reads a little of a stream, then closes the connection.
func leaveNDJSON(accept string) func(*testing.T, *gatewaytest.Gateway, *canned.Server) {
	return func(t *testing.T, g *gatewaytest.Gateway, _ *canned.Server) {
		resp := openStream(t, g, accept)
		defer resp.Body.Close()
		if _, err := io.CopyN(io.Discard, resp.Body, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
}

// leaveUnread sends the request and leaves when the first byte is there.
func leaveUnread(t *testing.T, g *gatewaytest.Gateway, _ *canned.Server) {
	openStream(t, g, "application/x-ndjson").Body.Close()
}

// dial connects a client of its own, which the caller closes.
func dial(t testing.TB, g *gatewaytest.Gateway) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(g.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// leaveDuring leaves a stream while the server works: at its find, or at the getMore after so
// many messages.
func leaveDuring(messages int) func(*testing.T, *gatewaytest.Gateway, *canned.Server) {
	return func(t *testing.T, g *gatewaytest.Gateway, server *canned.Server) {
		before := server.Stats()
		conn := dial(t, g)
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := mooringv1.NewDocumentServiceClient(conn).
			StreamFind(ctx, &mooringv1.StreamFindRequest{
				Database: "lab", Collection: "late_1000_100", BatchSize: new(int32(10)),
			})
		if err != nil {
			t.Fatal(err)
		}
		for range messages {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		gatewaytest.Eventually(t, 15*time.Second, func() error {
			s := server.Stats()
			if s.Delayed == before.Delayed || s.GetMores < before.GetMores+int64(messages) {
				return fmt.Errorf("the server has not got what it works at: %+v", s)
			}
			return nil
		})
	}
}

// openStream opens an endless stream on a connection of its own, which closes with the body.
func openStream(t testing.TB, g *gatewaytest.Gateway, accept string) *http.Response {
	t.Helper()
	req, err := newRequest(t.Context(), g.REST+gatewaytest.Documents("lab", endless, "streamFind"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	return resp
}

// TestPagesDoNotHoldConnections leaves cursors open between their pages, on a pool of one
// connection.
func TestPagesDoNotHoldConnections(t *testing.T) {
	server := startCanned(t)
	g := suite.Start(t, server.URI()+"?maxPoolSize=1")
	find := gatewaytest.Documents("lab", "docs_1000_100", "find")
	var cursors []string
	for range 20 {
		cursors = append(cursors, readPage(t, g.Post(t, find, `{"batchSize": 10}`)).Cursor)
	}
	if v := g.Vars(t); v.CheckedOut() != 0 {
		t.Errorf("%+v, want no connection checked out", v.Pools)
	}
	for _, c := range cursors {
		if got := g.Post(t, "/v1/cursors:close",
			fmt.Sprintf(`{"cursor": %q}`, c)); got.Status != 200 {
			t.Errorf("close: %d %s", got.Status, got.Body)
		}
	}
	if s := server.Stats(); s.CursorsOpen != 0 || s.CursorsKilled != 20 {
		t.Errorf("%+v, want 20 cursors killed", s)
	}
}
