package replica_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestEachDocumentOnce: clients ask random replicas, and repeat questions at random, while answers
// between the replicas are lost and connections are cut. They read every document once, or get one
// of the named errors.
func TestEachDocumentOnce(t *testing.T) {
	const total, clients = 400, 30
	d := single(t, fakemongo.Numbered(0, total, 10)...)
	var gateways []*gateway
	var ways []*proxy
	for range 3 {
		way := newProxy(t, "")
		g := join(t, d, way.address())
		way.lead(g.Address())
		gateways, ways = append(gateways, g), append(ways, way)
	}
	stop := make(chan struct{})
	var chaos, reading sync.WaitGroup
	chaos.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			way := ways[rand.IntN(len(ways))]
			switch i % 8 {
			case 0:
				way.setMute(true) // its answers are lost
			case 4:
				way.cut()
			default:
				for _, way := range ways {
					way.setMute(false)
				}
			}
		}
	})
	var mu sync.Mutex
	ends := map[string]int{}
	for range clients {
		reading.Go(func() {
			end := readAll(t, gateways, total)
			mu.Lock()
			ends[end]++
			mu.Unlock()
		})
	}
	reading.Wait()
	close(stop)
	chaos.Wait()
	t.Logf("how the readings ended: %v", ends)
	if ends["complete"] == 0 {
		t.Errorf("no client has read all: %v", ends)
	}
}
