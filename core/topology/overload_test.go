package topology_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// overloadLabels are those of an error that an overloaded server may have caused.
var overloadLabels = []string{"SystemOverloadedError", "RetryableError"}

// TestOverloadedServerStaysKnown checks that connections which break in their handshake cost only
// the check-outs that they were made for: these, and the published events, have the labels; the
// server stays known, its pool is not cleared, its stream is not interrupted, and the check-outs
// behind wait on and get later connections (CM-101 to CM-103).
func TestOverloadedServerStaysKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		var mu sync.Mutex
		var published []error
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		host := cluster.Host(0)
		cfg := watched(cluster)
		cfg.Pool.MaxConnecting = 2
		sink := j.sink()
		sink.ConnectionClosed = func(e event.ConnectionClosed) {
			mu.Lock()
			defer mu.Unlock()
			published = append(published, e.Err)
		}
		sink.ConnectionCheckOutFailed = func(e event.ConnectionCheckOutFailed) {
			mu.Lock()
			defer mu.Unlock()
			published = append(published, e.Err)
		}
		cfg.Sink = sink
		topo := start(t, cfg)
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		// the monitor streams, and the other connection for round trips is there
		pass(11 * time.Second)
		j.take()
		connections := host.AcceptedConnections()

		drop := refuse(2, fakemongo.Drop().After(time.Second))
		host.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			// The next connections take longer: one of them could serve a check-out whose own
			// connection is about to break.
			return drop(cmd, func(cmd *fakemongo.Command) fakemongo.Reply {
				reply := next(cmd)
				if cmd.Body.Has("client") {
					reply = reply.After(100 * time.Millisecond)
				}
				return reply
			})
		})
		errs := make(chan error, 4)
		for range cap(errs) {
			go func() { errs <- ping(t.Context(), s) }()
		}
		synctest.Wait()
		pass(2 * time.Second)
		var failed int
		for range cap(errs) {
			err := <-errs
			if err == nil {
				continue
			}
			failed++
			if !slices.Equal(mongoerr.Labels(err), overloadLabels) ||
				!mongoerr.Judge(err).Retryable {
				t.Errorf("a check-out failed with %v, labels %v", err, mongoerr.Labels(err))
			}
		}
		if failed != 2 {
			t.Errorf("%d of 4 operations failed, want the two whose connections broke", failed)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(published) != 4 {
			t.Errorf("published: %v, want two closed connections and two failed check-outs",
				published)
		}
		for _, err := range published {
			if _, ok := errors.AsType[*mongoerr.OverloadError](err); !ok ||
				!slices.Equal(mongoerr.Labels(err), overloadLabels) {
				t.Errorf("published: %v (%T), labels %v", err, err, mongoerr.Labels(err))
			}
		}
		j.expect(t)
		if n := host.AcceptedConnections() - connections; n != 4 && n != 3 {
			t.Errorf("%d new connections, want two that broke and one or two that work, and none "+
				"of the monitor", n)
		}
	})
}

// refuse has a server answer the first n first hellos of its connections with a reply, those of
// the excepted connections aside.
func refuse(
	n int64, reply fakemongo.Reply, except ...int,
) func(*fakemongo.Command, fakemongo.Handler) fakemongo.Reply {
	var refused atomic.Int64
	return func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Body.Has("client") && !slices.Contains(except, cmd.Connection) &&
			refused.Add(1) <= n {
			return reply
		}
		return next(cmd)
	}
}

// TestOverloadWhileThePoolIsFilled checks the same of the connections that minPoolSize asks for.
func TestOverloadWhileThePoolIsFilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		host := cluster.Host(0)
		cfg := watched(cluster)
		cfg.Polling = true
		cfg.Pool.MinSize = 1
		cfg.Sink = j.sink()
		host.Intercept(refuse(3, fakemongo.Drop(), 1)) // the first is the monitor's
		topo := start(t, cfg)
		defer stop(t, topo)
		mustSelect(t, topo, selection.Write())
		pass(time.Minute)
		for _, what := range j.take() {
			if strings.Contains(what, "cleared") || strings.Contains(what, "failed") ||
				strings.HasSuffix(what, "→ Unknown") {
				t.Error(what)
			}
		}
		if pools := topo.Pools(); len(pools) != 1 || pools[0].Available != 1 ||
			pools[0].Generation != 0 {
			t.Errorf("pools = %+v, want one that was never cleared, with a connection", pools)
		}
		if host.AcceptedConnections() != 5 {
			t.Errorf("%d connections, want the monitor's, three that were refused and one "+
				"that was not", host.AcceptedConnections())
		}
	})
}
