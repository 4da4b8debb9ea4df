package main

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"google.golang.org/grpc"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/contender"
	"github.com/mooringdb/mooring/lab/internal/load"
)

// runCanned runs the server behind everything that is measured. It prints its connection string. It
// leaves the processors to what is measured, as far as it can: it uses one of them at a time, and
// collects little garbage. Its argument is an address, by default a free port of the loopback
// interface.
func runCanned(ctx context.Context, args []string) error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(1000)
	addr := "127.0.0.1:0"
	if len(args) > 0 {
		addr = args[0]
	}
	s, err := canned.Listen(addr)
	if err != nil {
		return err
	}
	fmt.Println(s.URI())
	<-ctx.Done()
	return s.Close()
}

// addresses holds what the contender prints when it is ready.
type addresses struct{ REST, GRPC string }

// runThin runs the thin gateway. Its argument is the connection string.
func runThin(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("thin: want the connection string")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(args[0]))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	mooringv1.RegisterDocumentServiceServer(server, &contender.Documents{Client: client})
	return serveContender(ctx, contender.Handler(client), server)
}

// runFloor runs the floor. Its argument is the server's address.
func runFloor(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("floor: want the server's address")
	}
	floor := contender.NewFloor(args[0])
	return serveContender(ctx, floor.Handler(), floor.Server())
}

// serveContender serves a contender and its figures, and prints where.
func serveContender(ctx context.Context, h http.Handler, server *grpc.Server) error {
	rest, err := listen(ctx)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle("/debug/vars", expvar.Handler())
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = web.Serve(rest) }()
	defer func() { _ = web.Close() }()

	rpc, err := listen(ctx)
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(rpc) }()
	defer server.Stop()

	if err := json.NewEncoder(os.Stdout).Encode(addresses{
		rest.Addr().String(),
		rpc.Addr().String(),
	}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func listen(ctx context.Context) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
}

// runLoad does one job, its argument, and prints the result.
func runLoad(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("load: want a job")
	}
	var job load.Job
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return err
	}
	result, err := load.Run(ctx, job)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}
