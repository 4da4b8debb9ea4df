package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/seedlist"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// slowZone is DNS that takes a second, whatever becomes of the caller, and fails as often as it is
// told to.
type slowZone struct {
	failures atomic.Int32
	asked    atomic.Int32
}

func (z *slowZone) LookupSRV(context.Context, string) ([]seedlist.SRV, error) {
	z.asked.Add(1)
	time.Sleep(time.Second) //nolint:forbidigo // fake time
	if z.failures.Add(-1) >= 0 {
		return nil, errors.New("server failure")
	}
	return []seedlist.SRV{{Target: "a.example.com.", Port: 27017}}, nil
}

func (z *slowZone) LookupTXT(context.Context, string) ([]string, error) { return nil, nil }

func newInZone(t *testing.T, z *slowZone, cluster *fakemongo.Cluster) *client.Client {
	t.Helper()
	cfg, err := connstring.Parse("mongodb+srv://cluster.example.com/?tls=false")
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Resolver: z, Dialer: cluster.Host(0).Dial})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCloseDuringStart: a client that is closed while its servers are looked up watches nothing
// afterwards.
func TestCloseDuringStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Mongos)
		c := newInZone(t, &slowZone{}, cluster)
		started := make(chan error)
		go func() { started <- c.Start(t.Context()) }()
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // fake time
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-started; !errors.Is(err, topology.ErrClosed) {
			t.Errorf("Start = %v, want ErrClosed", err)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		if n := cluster.Host(0).AcceptedConnections(); n != 0 {
			t.Errorf("%d connections of a client that is closed", n)
		}
		if err := c.Ping(t.Context()); err == nil {
			t.Error("an operation of a closed client succeeded")
		}
		if err := c.Start(t.Context()); !errors.Is(err, topology.ErrClosed) {
			t.Errorf("Start after Close = %v, want ErrClosed", err)
		}
	}) // and no goroutine is left
}

// TestCloseEndsALookupThatHangs: Start returns as soon as the client is closed, if the resolver
// heeds its context.
func TestCloseEndsALookupThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := connstring.Parse("mongodb+srv://cluster.example.com/")
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(cfg, client.Options{Resolver: hangingZone{}})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { _ = c.Close(context.Background()) }) //nolint:usetesting // outlives nothing
		begin := time.Now()
		if err := c.Start(t.Context()); !errors.Is(err, topology.ErrClosed) ||
			time.Since(begin) != time.Second {
			t.Errorf("Start = %v after %v, want ErrClosed after 1s", err, time.Since(begin))
		}
	})
}

type hangingZone struct{}

func (hangingZone) LookupSRV(ctx context.Context, _ string) ([]seedlist.SRV, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hangingZone) LookupTXT(ctx context.Context, _ string) ([]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestStartsAtOnce: one of them starts the client, and the others fail; there is one topology and
// no other.
func TestStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{Polled: true}, fakemongo.Mongos)
		zone := &slowZone{}
		c := newInZone(t, zone, cluster)
		results := make(chan error)
		for range 8 {
			go func() { results <- c.Start(t.Context()) }()
		}
		succeeded := 0
		for range 8 {
			if <-results == nil {
				succeeded++
			}
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		if n := cluster.Host(0).AcceptedConnections(); succeeded != 1 || n != 1 ||
			zone.asked.Load() != 1 {
			t.Errorf("%d calls of Start succeeded, with %d lookups and %d monitors; want "+
				"one of each", succeeded, zone.asked.Load(), n)
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestStartAgainAfterAFailure: DNS may be there a moment later.
func TestStartAgainAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone := &slowZone{}
		zone.failures.Store(1)
		c := newInZone(t, zone,
			fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Mongos))
		if err := c.Start(t.Context()); err == nil {
			t.Error("Start succeeded without DNS")
		}
		if err := c.Start(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
