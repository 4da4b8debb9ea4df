package admission_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/servicetest"
)

const (
	answerTime = 50 * time.Millisecond // of the server
	floodSize  = 500                   // finds at a time
)

// TestFairness runs 500 finds of one principal at a time, beside the calls of another one that
// come at a fixed rate, in fake time. With the queue in front of the pool, the other's calls take
// no more than three times what they take alone; without it, they do. The test of the same name in
// cmd/gateway/internal/app measures it in real time.
func TestFairness(t *testing.T) {
	alone := slowest(t, nil, 0)
	if alone != answerTime {
		t.Fatalf("alone, a call takes %v, want %v", alone, answerTime)
	}
	limits := admission.Limits{Total: 100} // of maxPoolSize=100
	a := admission.New(admission.Config{Calls: limits, Patience: 5 * time.Second})
	if got := slowest(t, a, floodSize); got > 3*alone {
		t.Errorf("beside a flood, a call takes up to %v, want at most 3 times %v", got, alone)
	}
	if got := slowest(t, nil, floodSize); got <= 3*alone {
		t.Errorf("without the queue, a call takes up to %v: the flood does not show", got)
	}
}

// slowest returns the longest time of 30 calls of a principal, one every 20 ms, while another
// principal has so many calls in flight.
func slowest(t *testing.T, a *admission.Admission, flood int) (longest time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := fakemongo.NewServer(t, nil)
		server.SetDocuments("db.c", servicetest.Doc(1, 10))
		server.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == "find" {
				time.Sleep(answerTime) //nolint:forbidigo // fake time
			}
			return next(cmd)
		})
		g := servicetest.Start(t, server, servicetest.Config{Admission: a})
		ctx, stop := context.WithCancel(t.Context())
		var flooding, calling sync.WaitGroup
		for range flood {
			flooding.Go(func() {
				for ctx.Err() == nil {
					_, err := g.Document.Find(servicetest.As(ctx, "flood"),
						&mooringv1.FindRequest{Database: "db", Collection: "c"})
					if err != nil && ctx.Err() == nil {
						t.Errorf("flood: %v", err)
						return
					}
				}
			})
		}
		const calls = 30
		times := make([]time.Duration, calls)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for range 10 { // until all connections are open
			<-tick.C
		}
		for i := range times {
			<-tick.C
			calling.Go(func() {
				start := time.Now()
				_, err := g.Document.FindOne(servicetest.As(t.Context(), "other"),
					&mooringv1.FindOneRequest{Database: "db", Collection: "c"})
				if err != nil {
					t.Errorf("the other principal: %v", err)
				}
				times[i] = time.Since(start)
			})
		}
		calling.Wait()
		stop()
		flooding.Wait()
		longest = slices.Max(times)
	})
	return longest
}
