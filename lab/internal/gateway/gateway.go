// Package gateway starts the gateway as a process and finds out where it listens. It knows the
// command line of the gateway and nothing of its packages.
package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/lab/internal/proc"
)

// StartTime is how long a program may take until it is ready; a slow machine that tests under
// -race is the measure.
const StartTime = 30 * time.Second

// anyPort lets the kernel choose the port.
const anyPort = "127.0.0.1:0"

// Config says what to start.
type Config struct {
	Binary    string
	URI       string    // of the server behind it
	Directory string    // for the file in which the gateway names its addresses
	GRPC      string    // address to listen on; empty: a port of the kernel's choice
	REST      string    // the same
	Args      []string  // more flags
	Env       []string  // more environment variables
	Log       io.Writer // nil: only the end of the log is kept
}

// Gateway represents a running gateway.
type Gateway struct {
	*proc.Process
	REST string // http://host:port
	GRPC string // host:port
	// Debug and Admin have the form of REST, Replica that of GRPC. They are of no use unless the
	// flags turned them on.
	Debug, Admin, Replica string
}

// Start starts a gateway and waits until it listens.
func Start(ctx context.Context, c Config) (*Gateway, error) {
	file := filepath.Join(c.Directory, "addresses.json")
	p, err := proc.Start(proc.Config{
		Path: c.Binary, Env: append(environment(), c.Env...), Log: c.Log,
		Args: append([]string{
			"serve",
			"--uri", c.URI,
			"--grpc-address", cmp.Or(c.GRPC, anyPort),
			"--rest-address", cmp.Or(c.REST, anyPort),
			"--addresses-file", file,
		}, c.Args...),
	})
	if err != nil {
		return nil, err
	}
	p.Drain()
	var addresses struct{ GRPC, REST, Debug, Admin, Replica string }
	if err := waitForJSON(ctx, p, file, &addresses); err != nil {
		_ = p.Stop(time.Second)
		return nil, fmt.Errorf("the gateway does not start: %w\n%s", err, p.Tail())
	}
	return &Gateway{
		Process: p,
		GRPC:    addresses.GRPC,
		REST:    "http://" + addresses.REST,
		Debug:   "http://" + addresses.Debug,
		Admin:   "http://" + addresses.Admin,
		Replica: addresses.Replica,
	}, nil
}

// environment returns the caller's, without the variables that configure the gateway. The gateway
// stops without waiting for load balancers, which are not there.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MOORING_") || strings.HasPrefix(v, "OTEL_")
	})
	return append(env, "MOORING_DRAIN_LINGER=0s")
}

// waitForJSON waits until the process has renamed the file into its place.
func waitForJSON(ctx context.Context, p *proc.Process, file string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, StartTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(file); err == nil {
			return json.Unmarshal(b, v)
		}
		select {
		case <-tick.C:
		case <-p.Done():
			return errors.New("it ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
