package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/cmd/gateway/internal/app"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestFairness measures what a principal's calls take while another one floods the gateway (make
// fairness): with the queue in front of the pool, and with the pool's own turns only. Neither can
// tell the calls of one principal apart, so calls of the flood's principal show what both prevent.
// The test of the same name in service/admission checks the queue in fake time.
func TestFairness(t *testing.T) {
	if os.Getenv("MOORING_FAIRNESS") == "" {
		t.Skip("set MOORING_FAIRNESS=1, or run make fairness: it measures for half a minute")
	}
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", documents(1, 10)...)
	mongo.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "find" {
			<-time.After(50 * time.Millisecond)
		}
		return next(cmd)
	})
	flood, floodLine := newKey(t, "flood", time.Time{})
	other, otherLine := newKey(t, "other", time.Time{})
	keys := secretFile(t, "api-keys", floodLine+"\n"+otherLine)
	table := "calls in flight  queue  principals  p50      p99      longest\n"
	var alone, queued, pooled, unfair time.Duration
	for _, row := range []struct {
		flood      int
		limit      string
		key        string
		principals int
		p99        *time.Duration
	}{
		{0, "auto", other, 1, &alone},
		{500, "auto", other, 2, &queued},
		{500, "none", other, 2, &pooled},
		{500, "none", flood, 1, &unfair},
	} {
		cfg := load(t, "--uri", mongo.URI(), "--grpc-address=127.0.0.1:0", "--rest-address=none",
			"--drain-linger=0s", "--auth-api-keys-file", keys, "--handle-keys", handleKey,
			"--idempotency-key", handleKey,
			"--requests-max-in-flight", row.limit)
		g, err := app.New(cfg, slog.New(slog.DiscardHandler))
		if err == nil {
			err = g.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		times := callTimes(t, g.Addresses().GRPC, flood, row.flood, row.key)
		if err := g.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		*row.p99 = times[len(times)*99/100]
		table += fmt.Sprintf("%-16d %-6s %-11d %-8s %-8s %s\n", row.flood, row.limit,
			row.principals, times[len(times)/2].Round(100*time.Microsecond),
			row.p99.Round(100*time.Microsecond), times[len(times)-1].Round(100*time.Microsecond))
	}
	t.Logf("\n%s", table)
	for name, p99 := range map[string]time.Duration{
		"with the queue": queued, "with the pool's turns": pooled,
	} {
		if p99 > 3*alone {
			t.Errorf("%s p99 is %v, more than 3 times %v", name, p99, alone)
		}
	}
	if unfair <= 3*alone {
		t.Errorf("without both p99 is %v, no more than 3 times %v", unfair, alone)
	}
}

// floodStreams is how many calls of the flood share a connection. The gateway takes no more than
// connections.maxStreams of one, which would bound the flood.
const floodStreams = 100

// callTimes makes 400 calls with one key, one every 20 ms, while so many calls with another key
// are in flight. It returns how long they took, in order of length.
func callTimes(t *testing.T, address, floodKey string, flood int, key string) []time.Duration {
	t.Helper()
	documents := func() mooringv1.DocumentServiceClient {
		cc, err := grpc.NewClient(address,
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cc.Close() })
		return mooringv1.NewDocumentServiceClient(cc)
	}
	as := func(key string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
	}
	var flooding, calling sync.WaitGroup
	floodContext, stop := context.WithCancel(as(floodKey))
	var flooder mooringv1.DocumentServiceClient
	for i := range flood {
		if i%floodStreams == 0 {
			flooder = documents()
		}
		to := flooder
		flooding.Go(func() {
			for floodContext.Err() == nil {
				_, err := to.Find(floodContext,
					&mooringv1.FindRequest{Database: "db", Collection: "c"})
				if err != nil && floodContext.Err() == nil {
					t.Errorf("flood: %v", err)
					return
				}
			}
		})
	}
	caller, ctx := documents(), as(key)
	times := make([]time.Duration, 400)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 100 { // until all connections are open
		<-tick.C
	}
	for i := range times {
		<-tick.C
		calling.Go(func() {
			begin := time.Now()
			_, err := caller.FindOne(ctx,
				&mooringv1.FindOneRequest{Database: "db", Collection: "c"})
			if err != nil {
				t.Errorf("the other principal: %v", err)
			}
			times[i] = time.Since(begin)
		})
	}
	calling.Wait()
	stop()
	flooding.Wait()
	slices.Sort(times)
	return times
}
