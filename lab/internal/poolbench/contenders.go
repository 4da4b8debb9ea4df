package poolbench

import (
	"context"
	"fmt"
	"net"

	"github.com/jackc/puddle/v2"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	official "go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	officialtopology "go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/lab/internal/canned"
)

// contender describes one pool.
type contender struct {
	name, short string
	ours        bool
	lease       lease
}

// open makes the pools, ours first. stop closes those that there are.
func open(
	ctx context.Context, server *canned.Server,
) (contenders []contender, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	for _, c := range []struct {
		name, short string
		ours        bool
		open        func(context.Context, *canned.Server) (lease, func(), error)
	}{
		{"core/pool", "pool", true, openPool},
		// What an operation of ours calls, and next to it what one of the official driver calls.
		{"core/topology", "topology", true, openTopology},
		{"official driver", "official", false, openOfficial},
		{"puddle", "puddle", false, openPuddle},
	} {
		l, closePool, err := c.open(ctx, server)
		if err != nil {
			return nil, stop, fmt.Errorf("%s: %w", c.name, err)
		}
		stops = append(stops, closePool)
		contenders = append(contenders, contender{c.name, c.short, c.ours, l})
	}
	return contenders, stop, nil
}

func hold(use func()) {
	if use != nil {
		use()
	}
}

func openPool(_ context.Context, server *canned.Server) (lease, func(), error) {
	size := uint64(connections)
	p := pool.New(pool.Config[*conn.Conn]{
		MaxSize: &size,
		Connect: func(ctx context.Context, id uint64) (*conn.Conn, error) {
			return conn.Dial(ctx, address.Address(server.Addr()), conn.Config{ID: id})
		},
	})
	p.Ready()
	p.Deliver()
	return func(ctx context.Context, use func()) error {
		c, err := p.CheckOut(ctx)
		if err != nil {
			return err
		}
		hold(use)
		p.CheckIn(c)
		return nil
	}, p.Close, nil
}

func openTopology(ctx context.Context, server *canned.Server) (lease, func(), error) {
	size := uint64(connections)
	t, err := topology.New(topology.Config{
		Seeds: []address.Address{address.Address(server.Addr())}, DirectConnection: true,
		Pool: topology.PoolConfig{MaxSize: &size},
	})
	if err != nil {
		return nil, nil, err
	}
	closeTopology := func() { _ = t.Close(context.WithoutCancel(ctx)) }
	if err := t.Start(ctx); err != nil {
		return nil, nil, err
	}
	s, err := t.Select(ctx, selection.Write())
	if err != nil {
		closeTopology()
		return nil, nil, err
	}
	return func(ctx context.Context, use func()) error {
		c, err := s.CheckOut(ctx)
		if err != nil {
			return err
		}
		hold(use)
		s.CheckIn(c, nil)
		return nil
	}, closeTopology, nil
}

// anyServer selects a server for the official driver.
type anyServer struct{}

func (anyServer) SelectServer(
	_ official.Topology, candidates []official.Server,
) ([]official.Server, error) {
	return candidates, nil
}

func openOfficial(ctx context.Context, server *canned.Server) (lease, func(), error) {
	opts := options.Client().ApplyURI(server.URI() +
		"?directConnection=true").SetMaxPoolSize(connections)
	cfg, err := officialtopology.NewConfig(opts, nil)
	if err != nil {
		return nil, nil, err
	}
	t, err := officialtopology.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	if err := t.Connect(); err != nil {
		return nil, nil, err
	}
	closeTopology := func() { _ = t.Disconnect(context.WithoutCancel(ctx)) }
	s, err := t.SelectServer(ctx, anyServer{})
	if err != nil {
		closeTopology()
		return nil, nil, err
	}
	return func(ctx context.Context, use func()) error {
		c, err := s.Connection(ctx)
		if err != nil {
			return err
		}
		hold(use)
		return c.Close()
	}, closeTopology, nil
}

func openPuddle(_ context.Context, server *canned.Server) (lease, func(), error) {
	p, err := puddle.NewPool(&puddle.Config[net.Conn]{
		Constructor: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server.Addr())
		},
		Destructor: func(nc net.Conn) { _ = nc.Close() },
		MaxSize:    connections,
	})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, use func()) error {
		c, err := p.Acquire(ctx)
		if err != nil {
			return err
		}
		hold(use)
		c.Release()
		return nil
	}, p.Close, nil
}
