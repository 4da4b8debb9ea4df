// Command run shows Mooring at work: it starts the embedded database and a gateway before it,
// fills a small collection through the gateway's own REST API, prints curl and grpcurl lines that
// can be pasted, and keeps both running until Ctrl-C.
//
//	run --gateway bin/mooring --embedded bin/mooring-embedded
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// The gateway's own default addresses; what is taken is replaced by a port of the kernel's choice.
const (
	defaultREST = "127.0.0.1:8080"
	defaultGRPC = "127.0.0.1:27080"
)

// grace is how long the gateway may drain and the database may end, each.
const grace = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	binary := flags.String("gateway", "bin/mooring", "the gateway's `binary`")
	embedded := flags.String("embedded", "bin/mooring-embedded", "the embedded database's `binary`")
	rest := flags.String("rest-address", free(ctx, defaultREST), "`address` for REST")
	grpc := flags.String("grpc-address", free(ctx, defaultGRPC), "`address` for gRPC")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mooring-run-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	db, err := proc.Start(proc.Config{Path: *embedded, Log: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { _ = db.Stop(grace) }()
	uri, err := firstLine(ctx, db)
	if err != nil {
		return err
	}
	g, err := gateway.Start(ctx, gateway.Config{
		Binary: *binary, URI: uri, Directory: dir, REST: *rest, GRPC: *grpc, Log: os.Stderr,
	})
	if err != nil {
		return err
	}
	defer func() { _ = g.Stop(grace) }()
	if err := loadSample(ctx, g.REST); err != nil {
		return fmt.Errorf("load the sample collection: %w", err)
	}
	printLines(os.Stdout, g, uri)

	select {
	case <-ctx.Done():
		fmt.Println("\nstopping ...")
		return nil
	case <-g.Done():
		return errors.New("the gateway has ended")
	case <-db.Done():
		return errors.New("the embedded database has ended")
	}
}

func firstLine(ctx context.Context, p *proc.Process) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gateway.StartTime)
	defer cancel()
	return p.Line(ctx)
}

// free returns the address if no process listens on it, else an address whose port the kernel
// chooses.
func free(ctx context.Context, address string) string {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "127.0.0.1:0"
	}
	if err := l.Close(); err != nil {
		return "127.0.0.1:0"
	}
	return address
}
