// Command run shows Mooring at work: it starts the embedded database and a gateway before it,
// fills small collections, prints curl and grpcurl lines that can be pasted, and keeps both running
// until Ctrl-C.
//
//	run --gateway bin/mooring --embedded bin/lab/embedded
//
// Arguments after -- are options of the gateway.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// The gateway's own default ports.
const (
	defaultREST = 8080
	defaultGRPC = 27080
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
	embedded := flags.String("embedded", "bin/lab/embedded", "the embedded database's `binary`")
	restPort := flags.Uint("port", defaultREST, "`port` for REST")
	grpcPort := flags.Uint("grpc-port", defaultGRPC, "`port` for gRPC")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rest, grpc := choose(ctx, "PORT", *restPort), choose(ctx, "GRPC_PORT", *grpcPort)
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
	if err := loadSample(ctx, *binary, uri); err != nil {
		return fmt.Errorf("load the sample collections: %w", err)
	}
	g, err := gateway.Start(ctx, gateway.Config{
		Binary: *binary, URI: uri, Directory: dir, Log: os.Stderr,
		REST: rest.address, GRPC: grpc.address,
		Args: append([]string{"--console-enabled"}, flags.Args()...),
	})
	if err != nil {
		return err
	}
	defer func() { _ = g.Stop(grace) }()
	printLines(os.Stdout, g, uri, rest.notes(g.REST), grpc.notes(g.GRPC), credentials(ctx, g.REST))

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

// credentials says what the lines to paste lack if the gateway asks for a credential. It returns
// nothing if the gateway does not, or cannot be asked over plain HTTP.
func credentials(ctx context.Context, rest string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rest+"/v1/databases", http.NoBody)
	if err != nil {
		return ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		return ""
	}
	return "The gateway asks for a credential: add -H 'Authorization: Bearer KEY' to these lines."
}

func firstLine(ctx context.Context, p *proc.Process) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gateway.StartTime)
	defer cancel()
	return p.Line(ctx)
}

// port holds the address for a listener, and the reason if it is not the port that was asked for.
type port struct {
	address  string
	variable string // of make run
	asked    uint
	refused  error
}

// choose returns the address with the port, or one whose port the kernel chooses if no process can
// listen there now.
func choose(ctx context.Context, variable string, asked uint) port {
	p := port{address: fmt.Sprintf("127.0.0.1:%d", asked), variable: variable, asked: asked}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", p.address)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		p.address, p.refused = "127.0.0.1:0", err
	}
	return p
}

// notes says where the listener is instead of the port that was asked for, and why. It returns
// nothing if the listener is there.
func (p port) notes(at string) string {
	if p.refused == nil {
		return ""
	}
	why := p.refused.Error()
	var call *os.SyscallError
	if errors.As(p.refused, &call) {
		why = call.Err.Error()
	}
	return fmt.Sprintf("Port %d cannot be used (%s), so it is %s instead. "+
		"Choose another with make run %s=...", p.asked, why, at, p.variable)
}
