package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	corebson "github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
	"github.com/mooringdb/mooring/lab/internal/contender"
	"github.com/mooringdb/mooring/lab/internal/load"
)

// prepare tells the floor what to do in a case: to send the command that the request comes to, and
// to answer what ours does.
func (b *bench) prepare(ctx context.Context, s scenario) error {
	ours, times := s.to(b.ours), 1
	if ours.Operation == load.StreamFind {
		page := min(ours.Documents, streamPage)
		times, ours.Documents = ours.Documents/page, page
	}
	answer := askGRPC
	if s.rest {
		answer = askREST
	}
	e := contender.Exchange{Command: command(ours), Times: times}
	var err error
	if e.Answer, err = answer(ctx, ours); err != nil {
		return fmt.Errorf("what %s answers: %w", b.ours.name, err)
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, b.floor.rest+"/exchange",
		bytes.NewReader(text))
	if err != nil {
		return err
	}
	_, err = do(req)
	return err
}

// command returns the message to the server that a request comes to.
func command(j load.Job) []byte {
	var body bson.D
	var sequences map[string][]corebson.Raw
	documents := max(j.Documents, 1)
	switch j.Operation {
	case load.InsertOne, load.InsertMany:
		body = bson.D{{Key: "insert", Value: j.Collection}}
		sequences = map[string][]corebson.Raw{}
		for range documents {
			sequences["documents"] = append(sequences["documents"], marshal(bson.D{
				{Key: "_id", Value: bson.NewObjectID()},
				{Key: "sku", Value: "A-4711"},
				{Key: "quantity", Value: int32(3)},
				{Key: "price", Value: 12.5},
				{Key: "tags", Value: bson.A{"a", "b"}},
			}))
		}
	default:
		body = bson.D{
			{Key: "find", Value: j.Collection},
			{Key: "filter", Value: bson.D{{Key: "total", Value: bson.D{{Key: "$gt", Value: 42}}}}},
			{Key: "limit", Value: documents},
			{Key: "batchSize", Value: documents},
			{Key: "singleBatch", Value: true},
		}
	}
	body = append(body, bson.E{Key: "$db", Value: load.Database})
	return wire.Msg(wire.Header{ID: 1}, 0, marshal(body), sequences)
}

func marshal(d bson.D) []byte {
	raw, err := bson.Marshal(d)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return raw
}

// askREST returns the body of the answer to a request.
func askREST(ctx context.Context, j load.Job) ([][]byte, error) {
	req, err := j.Post(ctx)
	if err != nil {
		return nil, err
	}
	body, err := do(req)
	return [][]byte{body}, err
}

// do sends a request and returns the body of the answer.
func do(req *http.Request) ([]byte, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", req.URL, resp.Status, body)
	}
	return body, err
}

// askGRPC returns the messages of the answer to a request.
func askGRPC(ctx context.Context, j load.Job) (messages [][]byte, err error) {
	c, err := grpc.NewClient(j.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(contender.Codec{}),
			grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A unary call is a stream with one message.
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, j.Method())
	if err != nil {
		return nil, err
	}
	request, err := proto.Marshal(j.Message())
	if err != nil {
		return nil, err
	}
	if err := s.SendMsg(mem.BufferSlice{mem.SliceBuffer(request)}); err != nil {
		return nil, err
	}
	if err := s.CloseSend(); err != nil {
		return nil, err
	}
	for {
		var m mem.BufferSlice
		err := s.RecvMsg(&m)
		if errors.Is(err, io.EOF) {
			return messages, nil
		}
		if err != nil {
			return nil, err
		}
		messages = append(messages, m.Materialize())
		m.Free()
	}
}
