// Package loginbench measures what a connection costs that logs in by SCRAM-SHA-256, beside the
// official driver: processor time of this process alone, since the server is another one. Each
// turn makes a client and sends pings at the same time, each of which needs a connection of its
// own, since the server holds the replies back.
package loginbench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	officialevent "go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
)

// Role is the first argument under which the program is the server.
const Role = "scram"

const (
	turns       = 5
	connections = 300 // of a turn
)

// Run measures both drivers and prints the costs, then the ratio: ours divided by theirs, so that
// less is better.
func Run(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	uri, stop, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer stop()
	contenders := []struct {
		name string
		turn func(ctx context.Context, uri string) error
		cost []float64 // microseconds of a connection, by turn
	}{{name: "core/client", turn: ours}, {name: "official driver", turn: official}}
	for turn := range turns + 1 {
		for i := range contenders {
			c := &contenders[i]
			before := cpu()
			if err := c.turn(ctx, uri); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if turn > 0 { // the first one warms up
				c.cost = append(c.cost, float64((cpu()-before).Microseconds())/connections)
			}
		}
	}
	fmt.Fprintf(w,
		"Connections that log in by SCRAM-SHA-256, %d in a pool; medians of %d turns\n\n",
		connections, turns)
	var medians []float64
	for _, c := range contenders {
		slices.Sort(c.cost)
		medians = append(medians, c.cost[turns/2])
		fmt.Fprintf(w, "%-17s %7.1f µs of processor time (%.1f … %.1f)\n", c.name,
			c.cost[turns/2], c.cost[0], c.cost[turns-1])
	}
	fmt.Fprintf(w, "\nratio login-cpu %.3f\n\n", medians[0]/medians[1])
	return nil
}

// startServer starts the server as a process of its own.
func startServer(ctx context.Context) (uri string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, self, Role)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("server: %w", err)
	}
	return fmt.Sprintf("%s&maxPoolSize=%d&maxConnecting=16", URI(strings.TrimSpace(addr)),
		connections), stop, nil
}

// URI returns the connection string of the server at an address, with its user.
func URI(addr string) string {
	return fmt.Sprintf("mongodb://%s:%s@%s/?directConnection=true", user, password, addr)
}

// cpu returns the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// pings sends the pings, and reports whether each got a connection.
func pings(ctx context.Context, ready *atomic.Int64, ping func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var g errgroup.Group
	for range connections {
		g.Go(func() error { return ping(ctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if n := ready.Load(); n != connections {
		return fmt.Errorf("%d connections, want %d", n, connections)
	}
	return nil
}

func ours(ctx context.Context, uri string) error {
	var ready atomic.Int64
	cfg, err := connstring.Parse(uri)
	if err != nil {
		return err
	}
	c, err := client.New(cfg,
		client.Options{Sink: &event.Sink{ConnectionReady: func(event.ConnectionReady) {
			ready.Add(1)
		}}})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	if err := pings(ctx, &ready, c.Ping); err != nil {
		return err
	}
	return c.Close(ctx)
}

func official(ctx context.Context, uri string) error {
	var ready atomic.Int64
	monitor := &officialevent.PoolMonitor{Event: func(e *officialevent.PoolEvent) {
		if e.Type == officialevent.ConnectionReady {
			ready.Add(1)
		}
	}}
	c, err := mongo.Connect(options.Client().ApplyURI(uri).SetPoolMonitor(monitor))
	if err != nil {
		return err
	}
	if err := pings(ctx, &ready,
		func(ctx context.Context) error { return c.Ping(ctx, nil) }); err != nil {
		return err
	}
	return c.Disconnect(ctx)
}
