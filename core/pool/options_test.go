package pool_test

import (
	"context"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/pool"
)

// CMAP-090: PoolCreated has the address and the options that are not the defaults.
func TestPoolCreatedOptions(t *testing.T) {
	for name, test := range map[string]struct {
		cfg  pool.Config[*fake]
		want event.PoolOptions
	}{
		"defaults":                 {},
		"defaults, but configured": {cfg: pool.Config[*fake]{MaxSize: new(uint64(100)), MaxConnecting: 2}},
		"no maximum":               {pool.Config[*fake]{MaxSize: new(uint64(0))}, event.PoolOptions{Unlimited: true}},
		"all": {
			pool.Config[*fake]{MaxSize: new(uint64(5)), MinSize: 1, MaxConnecting: 3, MaxIdleTime: time.Minute, WaitQueueTimeout: time.Hour},
			event.PoolOptions{MaxSize: 5, MinSize: 1, MaxConnecting: 3, MaxIdleTime: time.Minute, WaitQueueTimeout: time.Hour},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []event.PoolCreated
			test.cfg.Address = "a:1"
			test.cfg.Connect = func(context.Context, uint64) (*fake, error) {
				return newFake(), nil
			}
			test.cfg.Sink = &event.Sink{PoolCreated: func(e event.PoolCreated) {
				got = append(got, e)
			}}
			p := pool.New(test.cfg)
			p.Close()
			if len(got) != 1 || got[0] != (event.PoolCreated{Address: "a:1", Options: test.want}) {
				t.Errorf("PoolCreated = %+v, want %+v", got, test.want)
			}
			if s := p.Stats(); name == "no maximum" && s.MaxSize != 0 {
				t.Errorf("Stats().MaxSize = %d, want 0", s.MaxSize)
			}
		})
	}
}

// CMAP-001: 0 means no maximum.
func TestNoMaximum(t *testing.T) {
	p := pool.New(pool.Config[*fake]{
		MaxSize: new(uint64(0)), Connect: func(context.Context, uint64) (*fake, error) {
			return newFake(), nil
		},
	})
	defer p.Close()
	p.Ready()
	for range pool.DefaultMaxSize + 50 {
		c, err := p.CheckOut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer p.CheckIn(c)
	}
	if s := p.Stats(); s.InUse != 150 {
		t.Errorf("Stats() = %+v, want 150 in use", s)
	}
}
