package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// callersPerConnection is how many callers share a connection, as the goroutines of a service do.
const callersPerConnection = 100

// Message returns the request over gRPC.
func (j Job) Message() proto.Message {
	database, limit, batch := Database, int64(j.Documents), int32(j.Documents)
	switch j.Operation {
	case FindOne:
		return &mooringv1.FindOneRequest{
			Database: database, Collection: j.Collection, Filter: filter,
		}
	case Find:
		return &mooringv1.FindRequest{
			Database: database, Collection: j.Collection, Filter: filter, Limit: &limit,
			BatchSize: &batch,
		}
	case StreamFind:
		return &mooringv1.StreamFindRequest{
			Database: database, Collection: j.Collection, Filter: filter, Limit: &limit,
		}
	case InsertOne:
		return &mooringv1.InsertOneRequest{
			Database: database, Collection: j.Collection, Document: inserted,
		}
	case InsertMany:
	}
	documents := make([]*mooringv1.Document, j.Documents)
	for i := range documents {
		documents[i] = inserted
	}
	return &mooringv1.InsertManyRequest{
		Database: database, Collection: j.Collection, Documents: documents,
	}
}

// Method returns the full name of the RPC.
func (j Job) Method() string {
	return "/" + mooringv1.DocumentService_ServiceDesc.ServiceName + "/" + string(j.Operation)
}

var (
	filter   = document(bson.D{{Key: "total", Value: bson.D{{Key: "$gt", Value: int32(42)}}}})
	inserted = document(bson.D{
		{Key: "sku", Value: "A-4711"},
		{Key: "quantity", Value: int32(3)},
		{Key: "price", Value: 12.5},
		{Key: "tags", Value: bson.A{"a", "b"}},
	})
)

func document(d bson.D) *mooringv1.Document {
	raw, err := bson.Marshal(d)
	if err != nil {
		panic(fmt.Sprintf("bug: %v", err))
	}
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: raw}}
}

// grpc returns the call over gRPC.
func (j Job) grpc() (_ call, stop func(), _ error) {
	connections := make(chan *grpc.ClientConn, (j.Callers-1)/callersPerConnection+1)
	stop = func() {
		for range len(connections) {
			_ = (<-connections).Close()
		}
	}
	for range cap(connections) {
		c, err := grpc.NewClient(j.GRPC,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20),
				grpc.MaxCallSendMsgSize(64<<20)))
		if err != nil {
			stop()
			return nil, nil, err
		}
		connections <- c
	}
	next := func() *grpc.ClientConn {
		c := <-connections
		connections <- c
		return c
	}
	req := j.Message()
	return func(ctx context.Context) (answer, error) {
		if j.Key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+j.Key)
		}
		if j.Operation == StreamFind {
			return j.stream(ctx, next(), req)
		}
		return j.unary(ctx, next(), req)
	}, stop, nil
}

// unary sends one request and checks the answer.
func (j Job) unary(
	ctx context.Context, c *grpc.ClientConn, req proto.Message,
) (answer, error) {
	var resp proto.Message
	var good func() bool
	switch j.Operation {
	case FindOne:
		r := &mooringv1.FindOneResponse{}
		resp, good = r, func() bool { return len(r.GetDocument().GetBson()) > 0 }
	case Find:
		r := &mooringv1.FindResponse{}
		resp, good = r, func() bool { return len(r.GetDocuments()) == j.Documents }
	case InsertOne:
		r := &mooringv1.InsertOneResponse{}
		resp, good = r, func() bool { return r.GetInsertedId() != nil }
	default:
		r := &mooringv1.InsertManyResponse{}
		resp, good = r, func() bool { return len(r.GetInsertedIds()) == j.Documents }
	}
	if err := c.Invoke(ctx, j.Method(), req, resp); err != nil {
		return answer{}, err
	}
	if !good() {
		return answer{}, fmt.Errorf("%s of %s: the answer is not a whole one", j.Operation,
			j.Collection)
	}
	return answer{bytes: proto.Size(resp)}, nil
}

// stream reads a stream to its end.
func (j Job) stream(
	ctx context.Context, c *grpc.ClientConn, req proto.Message,
) (a answer, err error) {
	start := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, j.Method())
	if err != nil {
		return a, err
	}
	if err := s.SendMsg(req); err != nil {
		return a, err
	}
	if err := s.CloseSend(); err != nil {
		return a, err
	}
	for {
		var page mooringv1.StreamFindResponse
		err := s.RecvMsg(&page)
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return a, err
		}
		if a.documents == 0 {
			a.first = time.Since(start)
		}
		a.documents += len(page.GetDocuments())
		a.bytes += proto.Size(&page)
	}
}
