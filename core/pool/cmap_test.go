package pool_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/internal/spectest"
)

const suite = "connection-monitoring-and-pooling/tests/cmap-format"

// cmapFile is one file of the specification's own format (cmap-format/README).
type cmapFile struct {
	Style       string
	Description string
	FailPoint   *failPoint
	PoolOptions struct {
		MaxPoolSize                *uint64
		MinPoolSize                uint64
		MaxConnecting              uint64
		MaxIdleTimeMS              int
		WaitQueueTimeoutMS         int
		BackgroundThreadIntervalMS int
		AppName                    string
	}
	Operations []cmapOperation
	Error      *struct {
		Type, Message string
		Address       any
	}
	Events []map[string]any
	Ignore []string
}

type cmapOperation struct {
	Name, Thread, Target, Label, Connection, Event string
	MS, Count, Timeout                             int
	InterruptInUseConnections                      bool
}

// TestSpecification runs the files with style "unit" against fake connections, and those with
// style "integration" against real ones to a scripted server with the fail point.
func TestSpecification(t *testing.T) {
	for _, file := range spectest.Files(t, suite) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c cmapFile
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		spectest.Case(t, suite, file, c.Description, func(t *testing.T) {
			connect, ok := map[string]func(*testing.T, cmapFile) connector{
				"unit": connectFake, "integration": connectServer,
			}[c.Style]
			if !ok {
				t.Fatalf("unknown style %q", c.Style)
			}
			synctest.Test(t, func(t *testing.T) { newCMAPRun(t, c, connect(t, c)).run() })
		})
	}
}

// connector makes connections of any kind.
type connector = func(ctx context.Context, id uint64) (pool.Resource, error)

func connectFake(t *testing.T, c cmapFile) connector {
	if c.FailPoint != nil {
		t.Fatal("a unit test with a fail point")
	}
	return func(context.Context, uint64) (pool.Resource, error) { return newFake(), nil }
}

// cmapRun is one run of a file.
type cmapRun struct {
	t       *testing.T
	file    cmapFile
	pool    *pool.Pool[pool.Resource]
	threads map[string]*cmapThread

	mu        sync.Mutex
	labels    map[string]*pool.Conn[pool.Resource]
	unlabeled []*pool.Conn[pool.Resource]
	events    []map[string]any
}

type cmapThread struct {
	work chan cmapOperation
	done chan struct{}
	err  error
}

func newCMAPRun(t *testing.T, c cmapFile, connect connector) *cmapRun {
	r := &cmapRun{
		t: t, file: c, threads: map[string]*cmapThread{},
		labels: map[string]*pool.Conn[pool.Resource]{},
	}
	o := c.PoolOptions
	r.pool = pool.New(pool.Config[pool.Resource]{
		Address: "a:27017", MaxSize: o.MaxPoolSize, MinSize: o.MinPoolSize,
		MaxConnecting:       o.MaxConnecting,
		MaxIdleTime:         time.Duration(o.MaxIdleTimeMS) * time.Millisecond,
		WaitQueueTimeout:    time.Duration(o.WaitQueueTimeoutMS) * time.Millisecond,
		MaintenanceInterval: time.Duration(o.BackgroundThreadIntervalMS) * time.Millisecond,
		Connect:             connect,
		ConnectFailed: func(_ uint64, err error) bool {
			r.clear(pool.ClearOptions{Cause: err})
			return false
		},
		Sink: r.sink(),
	})
	return r
}

func (r *cmapRun) clear(opt pool.ClearOptions) {
	if r.pool.Clear(opt) {
		r.pool.Deliver()
	}
}

func (r *cmapRun) run() {
	var failure error
	for _, op := range r.file.Operations {
		if op.Thread != "" {
			r.thread(op.Thread).work <- op
			continue
		}
		if failure = r.do(op); failure != nil {
			break
		}
	}
	synctest.Wait()
	r.checkError(failure)
	r.mu.Lock()
	got := slices.Clone(r.events)
	r.mu.Unlock()
	for _, th := range r.threads {
		close(th.work)
	}
	r.checkEvents(got)
	r.pool.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.labels {
		if c != nil {
			r.unlabeled = append(r.unlabeled, c)
		}
	}
	for _, c := range r.unlabeled {
		r.mu.Unlock()
		r.pool.CheckIn(c)
		r.mu.Lock()
	}
}

func (r *cmapRun) thread(name string) *cmapThread {
	th, ok := r.threads[name]
	if !ok {
		// The buffer holds all operations of a file.
		th = &cmapThread{work: make(chan cmapOperation, 100), done: make(chan struct{})}
		r.threads[name] = th
		go func() {
			defer close(th.done)
			for op := range th.work {
				if th.err = r.do(op); th.err != nil {
					return
				}
			}
		}()
	}
	return th
}

func (r *cmapRun) do(op cmapOperation) error {
	switch op.Name {
	case "start":
		r.thread(op.Target)
	case "wait":
		time.Sleep(time.Duration(op.MS) * time.Millisecond) //nolint:forbidigo // fake time
	case "waitForThread":
		th := r.threads[op.Target]
		close(th.work)
		<-th.done
		delete(r.threads, op.Target)
		return th.err
	case "waitForEvent":
		r.waitForEvent(op)
	case "checkOut":
		c, err := r.pool.CheckOut(r.t.Context())
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if op.Label == "" {
			r.unlabeled = append(r.unlabeled, c)
		} else {
			r.labels[op.Label] = c
		}
	case "checkIn":
		r.mu.Lock()
		c := r.labels[op.Connection]
		r.labels[op.Connection] = nil
		r.mu.Unlock()
		r.pool.CheckIn(c)
	case "clear":
		r.clear(pool.ClearOptions{
			Cause: errors.New("test"), InterruptInUse: op.InterruptInUseConnections,
		})
	case "ready":
		if r.pool.Ready() {
			r.pool.Deliver()
		}
	case "close":
		r.pool.Close()
	default:
		r.t.Errorf("unknown operation %q", op.Name)
	}
	return nil
}

func (r *cmapRun) waitForEvent(op cmapOperation) {
	limit := 10 * time.Second
	if op.Timeout > 0 {
		limit = time.Duration(op.Timeout) * time.Millisecond
	}
	for start := time.Now(); ; time.Sleep(time.Millisecond) { //nolint:forbidigo // fake time
		r.mu.Lock()
		n := 0
		for _, e := range r.events {
			if e["type"] == op.Event {
				n++
			}
		}
		r.mu.Unlock()
		if n >= op.Count {
			return
		}
		if time.Since(start) > limit {
			r.t.Errorf("%d events of %s within %v, want %d", n, op.Event, limit, op.Count)
			return
		}
	}
}

func (r *cmapRun) checkError(err error) {
	want := r.file.Error
	if (err != nil) != (want != nil) {
		r.t.Fatalf("error = %v, want %v", err, want)
	}
	if err == nil {
		return
	}
	var name string
	var addr address.Address
	switch e := err.(type) { //nolint:errorlint // as it is returned
	case *pool.ClosedError:
		name, addr = "PoolClosedError", e.Address
	case *pool.PoolClearedError:
		name, addr = "PoolClearedError", e.Address
	case *pool.WaitQueueTimeoutError:
		name, addr = "WaitQueueTimeoutError", e.Address
	}
	if name != want.Type || want.Message != "" && err.Error() != want.Message ||
		!matches(string(addr), want.Address) {
		r.t.Errorf("error = %s of %q: %v, want %+v", name, addr, err, want)
	}
}

func (r *cmapRun) checkEvents(got []map[string]any) {
	got = slices.DeleteFunc(got, func(e map[string]any) bool {
		return slices.Contains(r.file.Ignore, e["type"].(string))
	})
	if len(got) < len(r.file.Events) {
		r.t.Fatalf("events = %v, want %v", got, r.file.Events)
	}
	for i, want := range r.file.Events {
		if !matches(got[i], want) {
			r.t.Errorf("event %d = %v, want %v", i, got[i], want)
		}
	}
}

// matches is the format's MATCH: 42 stands for any value that is present, and objects may have
// additional fields.
func matches(got, want any) bool {
	switch w := want.(type) {
	case nil:
		return true
	case map[string]any:
		g, ok := got.(map[string]any)
		for key := range w {
			ok = ok && g[key] != nil && matches(g[key], w[key])
		}
		return ok
	case float64:
		return w == 42 && got != nil || got == want
	default:
		return want == "42" || got == want
	}
}

func (r *cmapRun) record(kind string, fields ...any) {
	e := map[string]any{"type": kind, "address": "a:27017"}
	for i := 0; i < len(fields); i += 2 {
		e[fields[i].(string)] = fields[i+1]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *cmapRun) sink() *event.Sink {
	id := func(n uint64) float64 { return float64(n) } // as JSON has it
	return &event.Sink{
		PoolCreated: func(e event.PoolCreated) {
			options := map[string]any{}
			for name, n := range map[string]float64{
				"maxPoolSize": float64(e.Options.MaxSize), "minPoolSize": float64(e.Options.MinSize),
				"maxConnecting":      float64(e.Options.MaxConnecting),
				"maxIdleTimeMS":      float64(e.Options.MaxIdleTime.Milliseconds()),
				"waitQueueTimeoutMS": float64(e.Options.WaitQueueTimeout.Milliseconds()),
			} {
				if n != 0 || e.Options.Unlimited && name == "maxPoolSize" {
					options[name] = n
				}
			}
			r.record("ConnectionPoolCreated", "options", options)
		},
		PoolReady: func(event.PoolReady) { r.record("ConnectionPoolReady") },
		PoolCleared: func(e event.PoolCleared) {
			r.record("ConnectionPoolCleared", "interruptInUseConnections",
				e.InterruptInUseConnections)
		},
		PoolClosed: func(event.PoolClosed) { r.record("ConnectionPoolClosed") },
		ConnectionCreated: func(e event.ConnectionCreated) {
			r.record("ConnectionCreated", "connectionId", id(e.ConnectionID))
		},
		ConnectionReady: func(e event.ConnectionReady) {
			r.record("ConnectionReady", "connectionId", id(e.ConnectionID), "duration", e.Duration)
		},
		ConnectionClosed: func(e event.ConnectionClosed) {
			r.record("ConnectionClosed", "connectionId", id(e.ConnectionID), "reason",
				string(e.Reason))
		},
		ConnectionCheckOutStarted: func(event.ConnectionCheckOutStarted) {
			r.record("ConnectionCheckOutStarted")
		},
		ConnectionCheckOutFailed: func(e event.ConnectionCheckOutFailed) {
			r.record("ConnectionCheckOutFailed", "reason", string(e.Reason), "duration", e.Duration)
		},
		ConnectionCheckedOut: func(e event.ConnectionCheckedOut) {
			r.record("ConnectionCheckedOut", "connectionId", id(e.ConnectionID), "duration",
				e.Duration)
		},
		ConnectionCheckedIn: func(e event.ConnectionCheckedIn) {
			r.record("ConnectionCheckedIn", "connectionId", id(e.ConnectionID))
		},
	}
}
