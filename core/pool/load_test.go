package pool_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/pool"
)

// TestConcurrency runs all operations at once under the race detector and compares the counts at
// the end.
func TestConcurrency(t *testing.T) {
	var connects, failed atomic.Int64
	var closes atomic.Int64
	cfg := pool.Config[*counted]{
		Address: "a:1", MaxSize: new(uint64(8)), MinSize: 2,
		MaintenanceInterval: time.Millisecond,
		Connect: func(ctx context.Context, id uint64) (*counted, error) {
			if id%7 == 0 {
				return nil, errors.New("refused")
			}
			connects.Add(1)
			return &counted{closes: &closes}, nil
		},
		Sink: &event.Sink{
			ConnectionCheckedOut: func(event.ConnectionCheckedOut) {},
			ConnectionClosed:     func(event.ConnectionClosed) {},
		},
	}
	p := pool.New(cfg)
	p.Ready()
	p.Deliver()
	var wg sync.WaitGroup
	var inUse atomic.Int64
	for range 32 {
		wg.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithTimeout(context.Background(),
					time.Duration(rand.IntN(3))*time.Millisecond+10*time.Microsecond)
				c, err := p.CheckOut(ctx)
				if err == nil {
					if n := inUse.Add(1); n > 8 {
						t.Errorf("%d connections are in use", n)
					}
					if i%50 == 0 {
						c.Resource().Interrupt(nil)
					}
					inUse.Add(-1)
					p.CheckIn(c)
				} else {
					failed.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			if p.Clear(pool.ClearOptions{
				Cause: errors.New("test"), InterruptInUse: rand.IntN(2) == 0,
			}) {
				p.Deliver()
			}
			if p.Ready() {
				p.Deliver()
			}
		}
	})
	wg.Wait()
	p.Close()
	if s := p.Stats(); s.Total != 0 || s.InUse != 0 || s.Pending != 0 || s.Waiting != 0 {
		t.Errorf("Stats() after Close = %+v", s)
	}
	if connects.Load() != closes.Load() {
		t.Errorf("%d connections were made and %d closed (%d check-outs failed)", connects.Load(),
			closes.Load(), failed.Load())
	}
}

// counted is a connection that counts how often connections are closed.
type counted struct {
	broken atomic.Bool
	closes *atomic.Int64
}

func (c *counted) Alive() bool     { return !c.broken.Load() }
func (c *counted) Interrupt(error) { c.broken.Store(true) }
func (c *counted) Close() error    { c.closes.Add(1); return nil }

func BenchmarkCheckOutCheckIn(b *testing.B) {
	for name, sink := range map[string]*event.Sink{
		"no sink": nil,
		"sink": {
			ConnectionCheckedOut: func(event.ConnectionCheckedOut) {},
			ConnectionCheckedIn:  func(event.ConnectionCheckedIn) {},
		},
	} {
		b.Run(name, func(b *testing.B) {
			p := benchmarkPool(b, sink)
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				use(b, ctx, p)
			}
		})
	}
}

// BenchmarkContended has 64 goroutines use 16 connections.
func BenchmarkContended(b *testing.B) {
	p := benchmarkPool(b, nil)
	ctx := b.Context()
	b.ReportAllocs()
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			use(b, ctx, p)
		}
	})
}

func benchmarkPool(b testing.TB, sink *event.Sink) *pool.Pool[*fake] {
	p := pool.New(pool.Config[*fake]{
		MaxSize: new(uint64(16)), Sink: sink,
		Connect: func(context.Context, uint64) (*fake, error) { return newFake(), nil },
	})
	b.Cleanup(p.Close)
	p.Ready()
	p.Deliver()
	return p
}

func use(b testing.TB, ctx context.Context, p *pool.Pool[*fake]) { //nolint:revive // b reports
	c, err := p.CheckOut(ctx)
	if err != nil {
		b.Error(err)
		return
	}
	p.CheckIn(c)
}
