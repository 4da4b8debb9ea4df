package topology_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// deployment is several scripted servers under made-up addresses.
type deployment map[address.Address]*fakemongo.Server

func (d deployment) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	s, ok := d[address.Address(addr)]
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no such host")}
	}
	return s.Dial(ctx, network, addr)
}

// journal is a sink that writes down what it hears, one line a fact.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last take.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func (j *journal) sink() *event.Sink {
	return &event.Sink{
		TopologyOpening: func(event.TopologyOpening) { j.add("topology opening") },
		TopologyClosed:  func(event.TopologyClosed) { j.add("topology closed") },
		TopologyDescriptionChanged: func(e event.TopologyDescriptionChanged) {
			j.add("topology %v/%d → %v/%d", e.Previous.Kind, len(e.Previous.Servers), e.New.Kind,
				len(e.New.Servers))
		},
		ServerOpening: func(e event.ServerOpening) { j.add("%s opening", e.Address.Host()) },
		ServerClosed:  func(e event.ServerClosed) { j.add("%s closed", e.Address.Host()) },
		ServerDescriptionChanged: func(e event.ServerDescriptionChanged) {
			j.add("%s %v → %v", e.Address.Host(), e.Previous.Kind, e.New.Kind)
		},
		ServerHeartbeatStarted: func(e event.ServerHeartbeatStarted) {
			j.add("%s check", e.Address.Host())
		},
		ServerHeartbeatSucceeded: func(e event.ServerHeartbeatSucceeded) {
			j.add("%s check ok", e.Address.Host())
		},
		ServerHeartbeatFailed: func(e event.ServerHeartbeatFailed) {
			j.add("%s check failed", e.Address.Host())
		},
		PoolCreated: func(e event.PoolCreated) { j.add("%s pool created", e.Address.Host()) },
		PoolReady:   func(e event.PoolReady) { j.add("%s pool ready", e.Address.Host()) },
		PoolClosed:  func(e event.PoolClosed) { j.add("%s pool closed", e.Address.Host()) },
		PoolCleared: func(e event.PoolCleared) {
			j.add("%s pool cleared, interrupt %v", e.Address.Host(), e.InterruptInUseConnections)
		},
	}
}

// expect compares what was heard since the last take.
func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := j.take(); !slices.Equal(got, want) {
		t.Errorf("events:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"),
			strings.Join(want, "\n\t"))
	}
}

// pass lets fake time go by.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // all callers are in a bubble

// settle waits for the check that a selection may have asked for while the check that satisfied it
// was still being published.
func settle(j *journal) {
	pass(time.Second)
	synctest.Wait()
	j.take()
}

// bubble runs f in a bubble with fake time; goroutines that f leaves behind fail the test.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func start(t *testing.T, cfg topology.Config) *topology.Topology {
	t.Helper()
	topo, err := topology.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := topo.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return topo
}

func stop(t *testing.T, topo *topology.Topology) {
	t.Helper()
	if err := topo.Close(context.Background()); err != nil { //nolint:usetesting // the test's own context may be over
		t.Error(err)
	}
}

func standalone(s *fakemongo.Server) topology.Config {
	return topology.Config{Seeds: []address.Address{"a:27017"}, Conn: conn.Config{Dialer: s.Dial}}
}

func mustSelect(t *testing.T, topo *topology.Topology, sel selection.Selector) topology.Server {
	t.Helper()
	s, err := topo.Select(t.Context(), sel)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ping runs a command as an operation would.
func ping(ctx context.Context, s topology.Server) error {
	c, err := s.CheckOut(ctx)
	if err != nil {
		return err
	}
	b := bson.NewBuilder(wire.BeginMsg(nil, 0))
	b.Int32("ping", 1).String("$db", "admin").Finish()
	msg := b.Bytes()
	wire.EndMsg(msg)
	reply, err := c.Resource().RoundTrip(ctx, msg)
	if err == nil {
		err = mongoerr.FromReply(s.Address(), reply)
	}
	s.CheckIn(c, err)
	return err
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

func TestStandaloneIsFoundAndEventsComeInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cfg := standalone(fakemongo.NewServer(t, nil))
		cfg.Sink = j.sink()
		topo := start(t, cfg)
		s := mustSelect(t, topo, selection.Write())
		if s.Description().Kind != description.ServerStandalone ||
			s.TopologyKind() != description.KindSingle {
			t.Errorf("selected %v in %v", s.Description(), s.TopologyKind())
		}
		if err := ping(t.Context(), s); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		j.expect(t, "topology opening", "topology Unknown/0 → Unknown/1", "a opening", "a check",
			"a check ok",
			"a pool created", "a Unknown → Standalone", "topology Unknown/1 → Single/1",
			"a pool ready")

		settle(&j)
		pass(10 * time.Second)
		j.expect(t, "a check", "a check ok") // nothing changed

		stop(t, topo)
		j.expect(t, "a pool closed", "a closed", "topology Single/1 → Unknown/0", "topology closed")
	})
}

func TestDirectConnectionTakesAnyServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		secondary := fakemongo.NewServer(t,
			fakemongo.Handlers{"hello": member("secondary", "a:27017")})
		cfg := standalone(secondary)
		cfg.DirectConnection = true
		topo := start(t, cfg)
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		if s.Description().Kind != description.ServerRSSecondary ||
			s.TopologyKind() != description.KindSingle {
			t.Errorf("selected %v in %v", s.Description(), s.TopologyKind())
		}
		if err := ping(t.Context(), s); err != nil {
			t.Error(err)
		}
	})
}

func TestSelectionOfADownServerTakesItsTimeAndChecksEvery500ms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		server := fakemongo.NewServer(t, nil)
		server.SetDown(true)
		cfg := standalone(server)
		cfg.Sink = &event.Sink{ServerHeartbeatFailed: j.sink().ServerHeartbeatFailed}
		cfg.ServerSelectionTimeout = 5 * time.Second
		topo := start(t, cfg)
		defer stop(t, topo)

		begin := time.Now()
		_, err := topo.Select(t.Context(), selection.Read(nil))
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("Select took %v, want 5s", took)
		}
		se, ok := errors.AsType[*mongoerr.SelectionError](err)
		if !ok || !strings.Contains(se.Topology, "connection refused") ||
			!strings.HasPrefix(se.Error(),
				"server selection timed out after 5s: network error on a:27017 (dial): "+
					"connection refused; ") {
			t.Errorf("Select = %v", err)
		}
		if mongoerr.IsTimeout(err) {
			t.Errorf("IsTimeout(%v): the caller's time is not over", err)
		}
		if n := len(j.take()); n < 10 || n > 11 {
			t.Errorf("%d checks in 5 s, want one every 500 ms", n)
		}
		pass(31 * time.Second)
		if n := len(j.take()); n < 3 || n > 4 {
			t.Errorf("%d checks in 31 s while nobody waits, want one every 10 s", n)
		}
	})
}

func TestWaitingSelectionGetsTheServerWhenItComes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := fakemongo.NewServer(t, nil)
		server.SetDown(true)
		topo := start(t, standalone(server))
		defer stop(t, topo)
		time.AfterFunc(7*time.Second+100*time.Millisecond, func() { server.SetDown(false) })
		begin := time.Now()
		mustSelect(t, topo, selection.Write())
		if took := time.Since(begin); took > 7600*time.Millisecond {
			t.Errorf("Select took %v, want at most 500 ms more than 7.1 s", took)
		}
	})
}

func TestSelectionEndsWithItsContext(t *testing.T) {
	for name, test := range map[string]struct {
		context func(context.Context) (context.Context, context.CancelFunc)
		want    error
	}{
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, context.DeadlineExceeded},
		"cancellation": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server := fakemongo.NewServer(t,
					fakemongo.Handlers{"hello": fakemongo.Always(fakemongo.Hang())})
				topo := start(t, standalone(server))
				defer stop(t, topo)
				ctx, cancel := test.context(t.Context())
				defer cancel()
				begin := time.Now()
				_, err := topo.Select(ctx, selection.Write())
				if !errors.Is(err, test.want) {
					t.Errorf("Select = %v, want %v", err, test.want)
				}
				if took := time.Since(begin); took != time.Second {
					t.Errorf("Select took %v, want 1s", took)
				}
			})
		})
	}
}

func TestCloseEndsSelections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := fakemongo.NewServer(t,
			fakemongo.Handlers{"hello": fakemongo.Always(fakemongo.Hang())})
		topo := start(t, standalone(server))
		time.AfterFunc(time.Second, func() { stop(t, topo) })
		_, err := topo.Select(t.Context(), selection.Write())
		if !errors.Is(err, topology.ErrClosed) {
			t.Errorf("Select = %v, want ErrClosed", err)
		}
		if _, err := topo.Select(t.Context(), selection.Write()); !errors.Is(err,
			topology.ErrClosed) {
			t.Errorf("Select on a closed topology = %v, want ErrClosed", err)
		}
		stop(t, topo)
		if err := topo.Start(t.Context()); !errors.Is(err, topology.ErrClosed) {
			t.Errorf("Start after Close = %v, want ErrClosed", err)
		}
	})
}

func TestCloseWithoutStart(t *testing.T) {
	topo, err := topology.New(topology.Config{Seeds: []address.Address{"a:27017"}})
	if err != nil {
		t.Fatal(err)
	}
	stop(t, topo)
}

func TestIncompatibleServerFailsSelectionAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := fakemongo.NewServer(t,
			fakemongo.Handlers{"hello": fakemongo.Always(fakemongo.OK(func(
				b *bson.Builder,
			) {
				b.Bool("isWritablePrimary", true).Int32("maxWireVersion", 5)
			}))})
		topo := start(t, standalone(server))
		defer stop(t, topo)
		begin := time.Now()
		_, err := topo.Select(t.Context(), selection.Write())
		const want = "Server at a:27017 reports wire version 5, but this version of Mooring " +
			"requires at least 6 (MongoDB 3.6)."
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Select = %v, want %q", err, want)
		}
		if took := time.Since(begin); took > time.Millisecond {
			t.Errorf("Select took %v", took)
		}
	})
}

func TestSelectionErrorOfASelector(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := deployment{
			"a:27017": fakemongo.NewServer(t,
				fakemongo.Handlers{"hello": member("primary", "a:27017")}),
		}
		topo := start(t, topology.Config{
			Seeds: []address.Address{"a:27017"}, ReplicaSet: "rs",
			Conn: conn.Config{Dialer: d.dial},
		})
		defer stop(t, topo)
		_, err := topo.Select(t.Context(), selection.Read(&selection.ReadPreference{
			Mode: selection.Secondary, MaxStalenessSeconds: new(int64(1)),
		}))
		if err == nil ||
			!strings.Contains(err.Error(), "maxStalenessSeconds is 1, must be at least 90") {
			t.Errorf("Select = %v", err)
		}
	})
}

func TestSinkMayLookBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var topo *topology.Topology
		var kinds []description.Kind
		started := make(chan struct{})
		cfg := standalone(fakemongo.NewServer(t, nil))
		cfg.Sink = &event.Sink{TopologyDescriptionChanged: func(
			e event.TopologyDescriptionChanged,
		) {
			<-started
			kinds = append(kinds, topo.Description().Kind)
			if e.New.Kind == description.KindSingle {
				if _, err := topo.Select(context.Background(), selection.Write()); err != nil { //nolint:usetesting // a sink has none
					t.Error(err)
				}
			}
		}}
		var err error
		if topo, err = topology.New(cfg); err != nil {
			t.Fatal(err)
		}
		close(started)
		if err := topo.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustSelect(t, topo, selection.Write())
		synctest.Wait() // the sink has selected, too
		stop(t, topo)
		if len(kinds) != 3 {
			t.Errorf("%d changes were told, want 3: start, found, end", len(kinds))
		}
	})
}

func TestNewRefuses(t *testing.T) {
	ab := []address.Address{"a:27017", "b:27017"}
	for name, cfg := range map[string]topology.Config{
		"direct connection to two":     {Seeds: ab, DirectConnection: true},
		"load balancer of two":         {Seeds: ab, LoadBalanced: true},
		"load balanced replica set":    {Seeds: ab[:1], LoadBalanced: true, ReplicaSet: "rs"},
		"load balanced and direct":     {Seeds: ab[:1], LoadBalanced: true, DirectConnection: true},
		"heartbeat faster than 500 ms": {Seeds: ab, HeartbeatInterval: 499 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := topology.New(cfg); err == nil {
				t.Error("New succeeded")
			}
		})
	}
}

func BenchmarkSelectStandalone(b *testing.B) {
	topo, err := topology.New(topology.Config{
		Seeds: []address.Address{"a:27017"},
		Conn: conn.Config{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := topo.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	topo.Apply(&description.Server{
		Address: "a:27017", Kind: description.ServerStandalone, MaxWireVersion: 21,
	})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := topo.Select(b.Context(), selection.Write()); err != nil {
				b.Error(err)
			}
		}
	})
	if err := topo.Close(context.Background()); err != nil { //nolint:usetesting // the benchmark's own context may be over
		b.Error(err)
	}
}
