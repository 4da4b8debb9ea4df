package pool_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/pool"
)

// line is a connection that is always alive.
type line struct{}

func (line) Alive() bool     { return true }
func (line) Close() error    { return nil }
func (line) Interrupt(error) {}

// A pool begins paused. Its owner makes it ready once the server is known to be available.
func Example() {
	p := pool.New(pool.Config[line]{
		Address: "a:27017",
		Connect: func(context.Context, uint64) (line, error) { return line{}, nil },
		Sink: &event.Sink{
			ConnectionCreated: func(e event.ConnectionCreated) {
				fmt.Println("created", e.ConnectionID)
			},
			ConnectionCheckedOut: func(e event.ConnectionCheckedOut) {
				fmt.Println("out", e.ConnectionID)
			},
			ConnectionCheckedIn: func(e event.ConnectionCheckedIn) {
				fmt.Println("in", e.ConnectionID)
			},
		},
	})
	defer p.Close()
	ctx := context.Background()

	_, err := p.CheckOut(ctx)
	fmt.Println(err)

	p.Ready()
	p.Deliver()
	for range 2 { // the connection that was used last is used again
		c, err := p.CheckOut(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		p.CheckIn(c)
	}
	// Output:
	// Connection pool for a:27017 is paused
	// created 1
	// out 1
	// in 1
	// out 1
	// in 1
}

// Clear makes all connections stale. Check-outs fail until the next Ready, with an error that may
// be retried.
func ExamplePool_Clear() {
	p := pool.New(pool.Config[line]{
		Address: "a:27017",
		Connect: func(context.Context, uint64) (line, error) { return line{}, nil },
	})
	defer p.Close()
	p.Ready()
	p.Deliver()

	p.Clear(pool.ClearOptions{Cause: errors.New("reset")})
	p.Deliver()
	_, err := p.CheckOut(context.Background())
	cleared, ok := errors.AsType[*pool.PoolClearedError](err)
	fmt.Println(ok, cleared)
	fmt.Println(p.Stats().State, p.Generation())
	// Output:
	// true Connection pool for a:27017 was cleared because another operation failed with: reset
	// paused 1
}
