//go:build unix

package client_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestFailover measures, over TCP and with 64 writers, how long it takes until each writer's next
// write is at the new primary, from the moment at which that becomes known to it.
// MOORING_FAILOVER=1 (make failover) makes 20 elections and holds the figures to what is promised;
// else there are few, and only what is far off fails, since the machine may be busy.
func TestFailover(t *testing.T) {
	elections, limit := 3, 5*time.Second
	measuring := os.Getenv("MOORING_FAILOVER") != ""
	for _, mode := range []struct {
		name    string
		polled  bool
		options string
		within  time.Duration
	}{
		{"streaming", false, "", 150 * time.Millisecond},
		{"polling", true, "heartbeatFrequencyMS=1000", time.Second},
	} {
		t.Run(mode.name, func(t *testing.T) {
			if measuring {
				elections, limit = 20, mode.within
			}
			cluster := fakemongo.NewCluster(t,
				fakemongo.ClusterConfig{TCP: true, Discard: true, Polled: mode.polled},
				fakemongo.Primary, fakemongo.Secondary, fakemongo.Secondary)
			f := startWriters(t, cluster, mode.options)
			var all []time.Duration
			for i := range elections {
				all = append(all, f.elect(t, cluster.Host((i+1)%3))...)
			}
			f.stop()
			slices.Sort(all)
			t.Logf("%d elections, %d writers: half of the next writes at the new primary within "+
				"%v, 99%% within %v, all within %v",
				elections, writers, at(all, 0.5), at(all, 0.99), all[len(all)-1])
			t.Logf("%d writes succeeded, %d failed", f.succeeded.Load(), f.failed.Load())
			if worst := all[len(all)-1]; worst > limit {
				t.Errorf("the last writer found the new primary after %v, want %v", worst, limit)
			}
		})
	}
}

const writers = 64

func at(sorted []time.Duration, part float64) time.Duration {
	return sorted[int(float64(len(sorted)-1)*part)].Round(10 * time.Microsecond)
}

// failover is writers at work, and where their writes arrive.
type failover struct {
	succeeded, failed atomic.Int64
	stop              func()

	// mu guards the fields below.
	mu      sync.Mutex
	primary *fakemongo.Host
	elected time.Time
	arrived map[int32]time.Duration // by writer, since the election
	all     chan struct{}           // closed when every writer has arrived
}

// startWriters starts writers that write every 10 ms each.
func startWriters(t *testing.T, cluster *fakemongo.Cluster, options string) *failover {
	t.Helper()
	f := &failover{}
	for _, h := range cluster.Hosts() {
		h.Handle("insert", func(cmd *fakemongo.Command) fakemongo.Reply {
			f.note(h, cmd)
			return h.WriteHandler()(cmd)
		})
	}
	c := dialCluster(t, cluster, options)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range int32(writers) {
		wg.Go(func() {
			document := bson.NewBuilder(nil).Int32("_id", i).Finish()
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for ctx.Err() == nil {
				if _, err := c.InsertOne(ctx, items, document,
					client.InsertOneOptions{}); err == nil {
					f.succeeded.Add(1)
				} else {
					f.failed.Add(1)
				}
				<-pace.C
			}
		})
	}
	f.stop = func() {
		cancel()
		wg.Wait()
		if err := c.Close(context.Background()); err != nil { //nolint:usetesting // the test's own context may be over
			t.Error(err)
		}
	}
	for f.succeeded.Load() < 10*writers {
		<-time.After(10 * time.Millisecond)
	}
	return f
}

// dialCluster is a client over TCP.
func dialCluster(t *testing.T, cluster *fakemongo.Cluster, options string) *client.Client {
	t.Helper()
	cfg, err := connstring.Parse(cluster.URI(options))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *failover) note(h *fakemongo.Host, cmd *fakemongo.Command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.primary != h {
		return
	}
	v, _ := cmd.Documents("documents")[0].Lookup("_id")
	writer, _ := v.Int32()
	if _, ok := f.arrived[writer]; ok {
		return
	}
	f.arrived[writer] = time.Since(f.elected)
	if len(f.arrived) == writers {
		close(f.all)
	}
}

// elect makes h the primary and waits until each writer has written to it.
func (f *failover) elect(t *testing.T, h *fakemongo.Host) (took []time.Duration) {
	t.Helper()
	f.mu.Lock()
	f.primary, f.elected = h, time.Now()
	f.arrived, f.all = map[int32]time.Duration{}, make(chan struct{})
	all := f.all
	f.mu.Unlock()
	h.Elect()
	select {
	case <-all:
	case <-time.After(30 * time.Second):
		t.Fatal("not every writer found the new primary within 30 s")
	}
	<-time.After(100 * time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.arrived {
		took = append(took, d)
	}
	return took
}

// TestWaitingForAPrimaryIsIdle: operations that wait for a primary use no CPU, and fail when
// serverSelectionTimeoutMS is over.
func TestWaitingForAPrimaryIsIdle(t *testing.T) {
	timeout, slack := time.Second, 5*time.Second // the machine may be busy
	if os.Getenv("MOORING_FAILOVER") != "" {
		timeout, slack = 5*time.Second, 500*time.Millisecond
	}
	for name, polled := range map[string]bool{"streaming": false, "polling": true} {
		t.Run(name, func(t *testing.T) {
			cluster := fakemongo.NewCluster(t,
				fakemongo.ClusterConfig{TCP: true, Discard: true, Polled: polled},
				fakemongo.Secondary, fakemongo.Secondary, fakemongo.Secondary)
			c := dialCluster(t, cluster,
				fmt.Sprintf("serverSelectionTimeoutMS=%d", timeout.Milliseconds()))
			defer func() { _ = c.Close(context.Background()) }() //nolint:usetesting // the test's own context may be over
			var wg sync.WaitGroup
			var mu sync.Mutex
			var took []time.Duration
			document := bson.NewBuilder(nil).Int32("_id", 1).Finish()
			used := cpu(t)
			for range writers {
				wg.Go(func() {
					begin := time.Now()
					_, err := c.InsertOne(t.Context(), items, document, client.InsertOneOptions{})
					if err == nil ||
						!strings.Contains(err.Error(),
							fmt.Sprintf("server selection timed out after %v: No servers are "+
								"suitable for writes; topology: ReplicaSetNoPrimary rs", timeout)) {
						t.Errorf("InsertOne = %v", err)
					}
					mu.Lock()
					defer mu.Unlock()
					took = append(took, time.Since(begin))
				})
			}
			wg.Wait()
			used = cpu(t) - used
			slices.Sort(took)
			share := float64(used) / float64(timeout)
			t.Logf("%d operations waited %v to %v; CPU: %v, %.2f%% of one core", writers, took[0],
				took[writers-1], used, 100*share)
			if took[0] < timeout || took[writers-1] > timeout+slack {
				t.Errorf("operations waited from %v to %v, want %v", took[0], took[writers-1],
					timeout)
			}
			if share > 0.2 {
				t.Errorf("waiting took %.2f of a core", share)
			}
		})
	}
}

// cpu is the process's time so far.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
