package contender_test

import (
	"context"
	"net"
	"net/http/httptest"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"google.golang.org/grpc"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/contender"
	"github.com/mooringdb/mooring/lab/internal/load"
)

// The load generator itself checks the answers, so both are tested together.
func TestContenderUnderLoad(t *testing.T) {
	server, err := canned.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) }()
	rest := httptest.NewServer(contender.Handler(client))
	defer rest.Close()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer()
	mooringv1.RegisterDocumentServiceServer(rpc, &contender.Documents{Client: client})
	go func() { _ = rpc.Serve(listener) }()
	defer rpc.Stop()

	const collection = "orders_1000"
	for name, job := range map[string]load.Job{
		"raw findOne":   load.REST(rest.URL+contender.RawPrefix, collection, 1, 0),
		"raw find":      load.REST(rest.URL+contender.RawPrefix, collection, 1, 100),
		"bson.M find":   load.REST(rest.URL+contender.MapPrefix, collection, 1, 100),
		"gRPC find one": load.GRPC(listener.Addr().String(), collection, 1, 0),
		"gRPC find":     load.GRPC(listener.Addr().String(), collection, 1, 100),
	} {
		t.Run(name, func(t *testing.T) {
			job.Requests, job.Callers = 50, 4
			result, err := load.Run(t.Context(), job)
			if err != nil || result.Bytes == 0 {
				t.Errorf("Run() = %+v, %v", result, err)
			}
		})
	}
	t.Run("a failure ends the job", func(t *testing.T) {
		job := load.REST(rest.URL+contender.RawPrefix, "nothing", 1, 0)
		job.Requests, job.Callers = 50, 4
		if result, err := load.Run(t.Context(), job); err == nil {
			t.Errorf("Run() = %+v, want an error", result)
		}
	})
}
