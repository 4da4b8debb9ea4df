package attack_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/net/http2"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

const methods = "/mooring.v1.DocumentService/"

var grpcAttacks = []attack{
	{"connections", func(t *testing.T, g *target) string {
		n, refused := of(6000, 2500), 0
		for i := range n {
			c, err := connect(t, g.GRPC)
			if err != nil {
				refused++
				continue
			}
			defer func() { _ = c.Close() }()
			if i < n-100 {
				continue
			}
			_ = c.SetReadDeadline(time.Now().Add(slack))
			if _, err := c.Read(make([]byte, 1)); err != nil {
				refused++
			}
		}
		if refused == 0 {
			t.Errorf("none of %d connections was refused", n)
		}
		return "the last ones are reset"
	}},
	{"headers of calls on 1 connection", func(t *testing.T, g *target) string {
		return floodHeaders(t, g, of(100_000, 5_000), 1)
	}},
	{"headers of calls on 40 connections", func(t *testing.T, g *target) string {
		return floodHeaders(t, g, of(100_000, 5_000), 40)
	}},
	{"gRPC responses not taken", func(t *testing.T, g *target) string {
		c := dial(t, g.GRPC, 0)
		n := of(60, 4)
		for range n {
			c.call(t, methods+"Find",
				&mooringv1.FindRequest{Database: "d", Collection: "docs_1_15500000"})
		}
		begun := time.Now()
		if !c.isCut(patience + slack) {
			t.Error("the connection goes on")
		}
		return fmt.Sprintf("connection closed after %s", since(begun))
	}},
	{"half gRPC messages", func(t *testing.T, g *target) string {
		n, size := of(12, 2), of(64<<20, 8<<20)
		c := dial(t, g.GRPC, 1<<20)
		piece := make([]byte, 16<<10)
		for range n {
			id, ok := c.open(documents + "InsertMany")
			ok = ok && c.write(func(w *http2.Framer) error {
				return w.WriteData(id, false, prefix(size))
			})
			// It sends without regard to windows: the gateway resets what is beyond them.
			for left := size - 1; ok && left > 0; left -= len(piece) {
				ok = c.write(func(w *http2.Framer) error {
					return w.WriteData(id, false, piece[:min(left, len(piece))])
				})
			}
		}
		begun := time.Now()
		for c.over() < n && time.Since(begun) < patience+slack && !c.isCut(100*time.Millisecond) {
		}
		if c.over() < n && !c.isCut(0) {
			t.Errorf("%d of %d calls have ended", c.over(), n)
		}
		return fmt.Sprintf("all calls end, the last after %s", since(begun))
	}},
	{"half gRPC messages, in pace", func(t *testing.T, g *target) string {
		n, size := of(12, 2), of(64<<20, 8<<20)
		var clients []*rawClient
		for range n {
			c := dial(t, g.GRPC, 1<<20)
			clients = append(clients, c)
			go c.sendHalf(methods+"InsertMany", size)
		}
		begun, ended := time.Now(), 0
		for ended < n && time.Since(begun) < 2*(patience+slack) {
			<-time.After(100 * time.Millisecond)
			ended = 0
			for _, c := range clients {
				if c.over() > 0 || c.isCut(0) {
					ended++
				}
			}
		}
		if ended < n {
			t.Errorf("%d of %d calls have ended", ended, n)
		}
		return fmt.Sprintf("all calls end, the last after %s", since(begun))
	}},
	{"gRPC InsertMany of 1,000,000 {}", func(t *testing.T, g *target) string {
		n := of(1_000_000, 200_000)
		many := &mooringv1.InsertManyRequest{Database: "d", Collection: "orders_1"}
		one := &mooringv1.Document{
			Encoding: &mooringv1.Document_Bson{Bson: []byte{5, 0, 0, 0, 0}},
		}
		for range n {
			many.Documents = append(many.Documents, one)
		}
		c := dial(t, g.GRPC, 1<<20)
		calls := of(5, 1)
		for range calls {
			if !c.callInPace(t, methods+"InsertMany", many) {
				t.Error("the connection has ended")
			}
		}
		begun := time.Now()
		for c.over() < calls && time.Since(begun) < slack {
			<-time.After(10 * time.Millisecond)
		}
		if got := c.statuses(); len(got) != 1 || got["8"] != calls {
			t.Errorf("by status: %v, want RESOURCE_EXHAUSTED only", got)
		}
		return "RESOURCE_EXHAUSTED"
	}},
}

// floodHeaders opens calls and sends no request, and waits until all have ended.
func floodHeaders(t *testing.T, g *target, n, connections int) string {
	t.Helper()
	var clients []*rawClient
	for range connections {
		clients = append(clients, dial(t, g.GRPC, 1<<20))
	}
	begun := time.Now()
	for i := range n {
		clients[i%connections].open(documents + "Find")
	}
	sent := since(begun)
	ended := 0
	for time.Since(begun) < patience+slack && ended < n {
		<-time.After(100 * time.Millisecond)
		ended = 0
		for _, c := range clients {
			select {
			case <-c.done:
				ended += n / connections
			default:
				ended += c.over()
			}
		}
	}
	if ended < n {
		t.Errorf("%d of %d calls have ended", ended, n)
	}
	return fmt.Sprintf("opened in %s; all calls end, the last after %s", sent, since(begun))
}

func since(begun time.Time) time.Duration {
	return time.Since(begun).Round(100 * time.Millisecond)
}
