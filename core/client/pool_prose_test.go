package client_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// The prose tests of Connection Monitoring and Pooling.

// poolsOf starts a client of a replica set, and tells with what options each pool of it was
// created.
func poolsOf(t *testing.T, uri string) map[address.Address]event.PoolOptions {
	t.Helper()
	var mu sync.Mutex
	pools := map[address.Address]event.PoolOptions{}
	connect(t,
		fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary, fakemongo.Secondary,
			fakemongo.Secondary), uri, client.Options{
			Sink: &event.Sink{PoolCreated: func(e event.PoolCreated) {
				mu.Lock()
				defer mu.Unlock()
				pools[e.Address] = e.Options
			}},
		})
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(pools) != 3 {
		t.Fatalf("pools = %v, want three", pools)
	}
	return pools
}

// 1: all options are the client's. Two clients of the same servers have each their own.
func TestCMAPProse1OptionsBelongToTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, another := poolsOf(t, "maxPoolSize=7"), poolsOf(t, "maxConnecting=3&minPoolSize=1")
		for addr := range one {
			if one[addr] != (event.PoolOptions{MaxSize: 7}) ||
				another[addr] != (event.PoolOptions{MaxConnecting: 3, MinSize: 1}) {
				t.Errorf("options for %s = %+v and %+v", addr, one[addr], another[addr])
			}
		}
	})
}

// 2 and 3: all options can be given in the URI, and are the same for all pools of a client.
func TestCMAPProse2And3OptionsInTheURIForAllPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := event.PoolOptions{
			MaxSize: 9, MinSize: 2, MaxConnecting: 4, MaxIdleTime: 5 * time.Minute,
			WaitQueueTimeout: 6 * time.Second,
		}
		for addr, got := range poolsOf(t,
			"maxPoolSize=9&minPoolSize=2&maxConnecting=4&maxIdleTimeMS=300000&waitQueueTimeoutMS=6000") {
			if got != want {
				t.Errorf("options for %s = %+v, want %+v", addr, got, want)
			}
		}
	})
}

// happened is what a pool told a client's sink.
type happened struct {
	mu     sync.Mutex
	events []string
	failed []event.ConnectionCheckOutFailed
}

func (h *happened) tell(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, what)
}

func (h *happened) sink() *event.Sink {
	return &event.Sink{
		PoolCreated:       func(event.PoolCreated) { h.tell("pool created") },
		PoolReady:         func(event.PoolReady) { h.tell("pool ready") },
		PoolCleared:       func(event.PoolCleared) { h.tell("pool cleared") },
		PoolClosed:        func(event.PoolClosed) { h.tell("pool closed") },
		ConnectionCreated: func(event.ConnectionCreated) { h.tell("created") },
		ConnectionReady:   func(event.ConnectionReady) { h.tell("ready") },
		ConnectionClosed: func(e event.ConnectionClosed) {
			h.tell("closed: " + string(e.Reason))
		},
		ConnectionCheckOutStarted: func(event.ConnectionCheckOutStarted) { h.tell("started") },
		ConnectionCheckOutFailed: func(e event.ConnectionCheckOutFailed) {
			h.tell("failed: " + string(e.Reason))
			h.mu.Lock()
			defer h.mu.Unlock()
			h.failed = append(h.failed, e)
		},
		ConnectionCheckedOut: func(event.ConnectionCheckedOut) { h.tell("out") },
		ConnectionCheckedIn:  func(event.ConnectionCheckedIn) { h.tell("in") },
	}
}

func (h *happened) want(t *testing.T, events ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.events, events) {
		t.Errorf("events = %q, want %q", h.events, events)
	}
}

// 4: users can subscribe to the events: each is a function of the Sink in the client's options.
func TestCMAPProse4UsersSubscribeToEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h happened
		c := start(t, fakemongo.NewServer(t, nil), connstring.Config{},
			client.Options{Sink: h.sink()})
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.want(t, "pool created", "pool ready", "started", "created", "ready", "out", "in",
			"started", "out", "in", "closed: poolClosed", "pool closed")
	})
}

// 5: a check-out whose connection cannot be set up fails with the reason connectionError.
func TestCMAPProse5CheckOutFailsByConnectionError(t *testing.T) {
	for name, test := range map[string]struct {
		hello fakemongo.Reply
		want  []string // after "created"
	}{
		// The order of CMAP-096: the pool is cleared before the connection is closed, and then the
		// check-out fails.
		"refused": {fakemongo.Error(91, "ShutdownInProgress", "bye"), []string{"pool cleared", "closed: error", "failed: connectionError"}},
		// The server may be overloaded, so the pool is not cleared (CM-102).
		"dropped": {fakemongo.Drop(), []string{"closed: error", "failed: connectionError"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h happened
				srv := fakemongo.NewServer(t, nil)
				c := start(t, srv, connstring.Config{
					ServerMonitoringMode: "poll", RetryReads: new(false),
				}, client.Options{Sink: h.sink()})
				synctest.Wait() // the first check is over
				srv.Handle("hello", fakemongo.Always(test.hello))
				if err := c.Ping(t.Context()); err == nil {
					t.Error("Ping() = nil, want an error")
				}
				h.want(t, append([]string{
					"pool created", "pool ready", "started", "created",
				}, test.want...)...)
				if len(h.failed) != 1 || h.failed[0].Reason != event.CheckOutConnectionError ||
					h.failed[0].Err == nil {
					t.Errorf("ConnectionCheckOutFailed = %+v, want one with its error", h.failed)
				}
			})
		})
	}
}
