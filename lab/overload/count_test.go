package overload_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

// refusal is the error of an overloaded server.
func refusal(base int32) fakemongo.Reply {
	r := fakemongo.Error(462, "IngressRequestRateLimitExceeded", "too many requests",
		"SystemOverloadedError", "RetryableError")
	if base > 0 {
		r = r.With(bson.NewBuilder(nil).Int32("baseBackoffMS", base).Finish())
	}
	return r
}

// TestServerCount has one mongos of two refuse reads, until the operations that wait before another
// attempt are many. If these counted as operations of that mongos, all others would choose the
// other one (Server Selection, operationCount); they choose both.
func TestServerCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.Sharded, deployment.Versions[0])
		hosts := d.Cluster().Hosts()
		var mu sync.Mutex
		refusing, answered := true, map[*fakemongo.Host]int{}
		for _, h := range hosts {
			h.Handle("find", func(*fakemongo.Command) fakemongo.Reply {
				mu.Lock()
				defer mu.Unlock()
				if refusing && h == hosts[0] {
					return refusal(10_000)
				}
				answered[h]++
				return fakemongo.CursorReply(0, "overload.things", "firstBatch")
			})
		}
		c := connect(t, d, nil)
		find := func() {
			if _, _, err := c.FindOne(t.Context(), ns, client.FindOptions{}); err != nil {
				t.Error(err)
			}
		}
		var waiting sync.WaitGroup
		settle := func() {
			time.Sleep(5 * time.Millisecond) //nolint:forbidigo // the time is fake
			synctest.Wait()
		}
		settle() // both servers are known
		for range callers {
			waiting.Go(find)
			settle() // it has its answer, or waits before another attempt
		}
		mu.Lock()
		left := callers - answered[hosts[1]]
		refusing = false
		clear(answered)
		mu.Unlock()
		for range callers {
			find()
		}
		mu.Lock()
		first := answered[hosts[0]]
		mu.Unlock()
		waiting.Wait()
		t.Logf("%d operations waited; %d of %d others chose the server that had refused these",
			left,
			first, callers)
		if left < callers/4 || first < callers/4 {
			t.Errorf("%d operations waited, and %d of %d chose their server", left, first, callers)
		}
	})
}
