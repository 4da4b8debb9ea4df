package contender_test

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/contender"
	"github.com/mooringdb/mooring/lab/internal/load"
)

var operations = []load.Operation{
	load.FindOne, load.Find, load.StreamFind, load.InsertOne, load.InsertMany,
}

func newServer(t *testing.T) *canned.Server {
	t.Helper()
	server, err := canned.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// serve serves gRPC and returns the address.
func serve(t *testing.T, s *grpc.Server) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// run has four callers send 40 requests.
func run(t *testing.T, j load.Job) {
	t.Helper()
	j.Collection, j.Documents, j.Requests, j.Callers = "orders_1000", 100, 40, 4
	result, err := load.Run(t.Context(), j)
	if err != nil || result.Requests != 40 || result.Bytes == 0 || result.P99 < result.P50 {
		t.Errorf("Run() = %+v, %v", result, err)
	}
}

// The load generator itself checks the answers, so both are tested together.
func TestContenderUnderLoad(t *testing.T) {
	server := newServer(t)
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	rest := httptest.NewServer(contender.Handler(client))
	t.Cleanup(rest.Close)
	rpc := grpc.NewServer()
	mooringv1.RegisterDocumentServiceServer(rpc, &contender.Documents{Client: client})
	address := serve(t, rpc)
	for _, o := range operations {
		t.Run("REST "+string(o), func(t *testing.T) {
			run(t, load.Job{REST: rest.URL, Operation: o})
		})
		t.Run("gRPC "+string(o), func(t *testing.T) {
			run(t, load.Job{GRPC: address, Operation: o})
		})
	}
	for name, job := range map[string]load.Job{
		"REST": {REST: rest.URL}, "gRPC": {GRPC: address},
	} {
		t.Run("a failure ends the job over "+name, func(t *testing.T) {
			job := job
			job.Operation, job.Collection, job.Requests, job.Callers = load.FindOne, "none", 50, 4
			if result, err := load.Run(t.Context(), job); err == nil {
				t.Errorf("Run() = %+v, want an error", result)
			}
		})
		t.Run("each caller sends one request over "+name, func(t *testing.T) {
			job := job
			job.Operation, job.Collection, job.Callers = load.FindOne, "orders_1", 4
			job.Time = time.Nanosecond
			if result, err := load.Run(t.Context(), job); err != nil || result.Requests != 4 {
				t.Errorf("Run() = %+v, %v, want four requests", result, err)
			}
		})
	}
}

// TestFloor checks that the floor sends its command for each page, and its answer.
func TestFloor(t *testing.T) {
	server := newServer(t)
	floor := contender.NewFloor(server.Addr())
	rest := httptest.NewServer(floor.Handler())
	t.Cleanup(rest.Close)
	address := serve(t, floor.Server())
	command, err := bson.Marshal(bson.D{
		{Key: "find", Value: "orders_1000"},
		{Key: "limit", Value: 500},
		{Key: "batchSize", Value: 500},
		{Key: "singleBatch", Value: true},
		{Key: "$db", Value: "b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	exchange := contender.Exchange{
		Command: wire.Msg(wire.Header{ID: 1}, 0, command, nil), Times: 1,
	}
	documents := make([]*mooringv1.Document, 100)
	for i := range documents {
		documents[i] = &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: []byte{1}}}
	}
	message, err := proto.Marshal(&mooringv1.FindResponse{Documents: documents})
	if err != nil {
		t.Fatal(err)
	}
	sent := int64(0)
	check := func(t *testing.T, commands int64) {
		t.Helper()
		if n := server.Stats().Commands - sent; n != commands {
			t.Errorf("%d commands, want %d", n, commands)
		}
		sent = server.Stats().Commands
	}
	t.Run("REST", func(t *testing.T) {
		exchange.Answer = [][]byte{[]byte("{}")}
		floor.Set(exchange)
		run(t, load.Job{REST: rest.URL, Operation: load.Find})
		check(t, 40)
	})
	t.Run("gRPC", func(t *testing.T) {
		exchange.Answer = [][]byte{message}
		floor.Set(exchange)
		run(t, load.Job{GRPC: address, Operation: load.Find})
		check(t, 40)
	})
	exchange.Times = 3
	t.Run("REST stream", func(t *testing.T) {
		exchange.Answer = [][]byte{[]byte(fmt.Sprintf("%0100d\n", 0))}
		floor.Set(exchange)
		job := load.Job{
			REST: rest.URL, Operation: load.StreamFind, Documents: 3, Requests: 4, Callers: 2,
		}
		if r, err := load.Run(t.Context(), job); err != nil || r.Bytes != 4*3*101 ||
			r.Requests != 4 {
			t.Errorf("Run() = %+v, %v", r, err)
		}
		check(t, 12)
	})
	t.Run("gRPC stream", func(t *testing.T) {
		exchange.Answer = [][]byte{message, message}
		floor.Set(exchange)
		job := load.Job{
			GRPC: address, Operation: load.StreamFind, Documents: 1200, Requests: 4, Callers: 2,
		}
		if r, err := load.Run(t.Context(), job); err != nil || r.Requests != 2 { // halves
			t.Errorf("Run() = %+v, %v", r, err)
		}
		check(t, 12)
	})
}
