package client

import (
	"context"
	"errors"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
)

// deployment makes a client's topology an operation.Deployment.
type deployment struct{ client *Client }

// errNotStarted is the error of an operation on a client whose servers are not looked up yet.
var errNotStarted = errors.New("the servers' names are not looked up yet")

var (
	_ operation.Deployment = deployment{}
	_ operation.Server     = (*lease)(nil)
	_ operation.Conn       = (*lease)(nil)
)

func (d deployment) Select(ctx context.Context, sel selection.Selector) (operation.Server, error) {
	t := d.client.topology.Load()
	if t == nil {
		return nil, &mongoerr.SelectionError{Selector: sel.String(), Err: errNotStarted}
	}
	s, err := t.Select(ctx, sel)
	if err != nil {
		return nil, err
	}
	return &lease{server: s}, nil
}

// lease holds a selected server and, after CheckOut, a connection to it. It is one value because
// every operation needs one.
type lease struct {
	server topology.Server
	conn   *pool.Conn[*conn.Conn]
}

func (l *lease) Description() *description.Server { return l.server.Description() }

func (l *lease) TopologyKind() description.Kind { return l.server.TopologyKind() }

func (l *lease) CheckOut(ctx context.Context) (operation.Conn, error) {
	c, err := l.server.CheckOut(ctx)
	if err != nil {
		return nil, err
	}
	l.conn = c
	return l, nil
}

func (l *lease) Hello() *description.Server { return l.conn.Resource().Description() }

func (l *lease) ID() uint64 { return l.conn.ID() }

func (l *lease) RoundTrip(
	ctx context.Context, msg []byte, lend bool,
) (bson.Raw, *buffer.Buffer, error) {
	if lend {
		return l.conn.Resource().RoundTripLent(ctx, msg)
	}
	reply, err := l.conn.Resource().RoundTrip(ctx, msg)
	return reply, nil, err
}

func (l *lease) Write(ctx context.Context, msg []byte) error {
	return l.conn.Resource().Write(ctx, msg)
}

func (l *lease) Reauthenticate(ctx context.Context, cause error) error {
	return l.conn.Resource().Reauthenticate(ctx, cause)
}

func (l *lease) Learn(err error) { l.server.Fail(l.conn, err) }

func (l *lease) PinForCursor() error { return l.server.Pin(l.conn, pool.PurposeCursor) }

func (l *lease) PinForTransaction() error { return l.server.Pin(l.conn, pool.PurposeTransaction) }

func (l *lease) CheckIn(err error) { l.server.CheckIn(l.conn, err) }
