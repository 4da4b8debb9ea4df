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
	"github.com/mooringdb/mooring/internal/mongotest"
)

// TestFairness measures what a principal's calls take while another one floods the gateway, with
// the queue in front of the pool and without it (make fairness). The test of the same name in
// service/admission checks it in fake time.
func TestFairness(t *testing.T) {
	if os.Getenv("MOORING_FAIRNESS") == "" {
		t.Skip("set MOORING_FAIRNESS=1, or run make fairness: it measures for half a minute")
	}
	mongo := mongotest.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", documents(1, 10)...)
	mongo.Intercept(func(cmd *mongotest.Command, next mongotest.Handler) mongotest.Reply {
		if cmd.Name == "find" {
			<-time.After(50 * time.Millisecond)
		}
		return next(cmd)
	})
	flood, floodLine := newKey(t, "flood", time.Time{})
	other, otherLine := newKey(t, "other", time.Time{})
	keys := secretFile(t, "api-keys", floodLine+"\n"+otherLine)
	table := "calls in flight  queue  p50      p99      longest\n"
	var alone, queued, unqueued time.Duration
	for _, row := range []struct {
		flood int
		limit string
		p99   *time.Duration
	}{{0, "auto", &alone}, {500, "auto", &queued}, {500, "none", &unqueued}} {
		cfg := load(t, "--uri", mongo.URI(), "--grpc-address=127.0.0.1:0", "--rest-address=none",
			"--drain-linger=0s", "--auth-api-keys-file", keys, "--handle-keys", handleKey,
			"--requests-max-in-flight", row.limit)
		g, err := app.New(cfg, slog.New(slog.DiscardHandler))
		if err == nil {
			err = g.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		times := callTimes(t, g.Addresses().GRPC, flood, row.flood, other)
		if err := g.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		*row.p99 = times[len(times)*99/100]
		table += fmt.Sprintf("%-16d %-6s %-8s %-8s %s\n", row.flood, row.limit,
			times[len(times)/2].Round(100*time.Microsecond),
			row.p99.Round(100*time.Microsecond), times[len(times)-1].Round(100*time.Microsecond))
	}
	t.Logf("\n%s", table)
	if queued > 3*alone {
		t.Errorf("with the queue p99 is %v, more than 3 times %v", queued, alone)
	}
	if unqueued <= 3*alone {
		t.Errorf("without the queue p99 is %v, no more than 3 times %v", unqueued, alone)
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
