// Command go inserts documents through the gateway's gRPC API, reads them page by page, then as one
// stream. It uses package client, with documents as BSON.
//
//	go run ./examples/go                          (the gateway of `make run`)
//	MOORING_GRPC=host:port go run ./examples/go
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

const count = 2500

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	address := cmp.Or(os.Getenv("MOORING_GRPC"), "127.0.0.1:27080")
	cc, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), client.Keepalive())
	if err != nil {
		return err
	}
	defer func() { _ = cc.Close() }()
	c := client.New(cc, client.Options{Token: os.Getenv("MOORING_KEY")})
	database := cmp.Or(os.Getenv("MOORING_DATABASE"), "example")
	orders := client.In[bson.Raw](c, database, "go")

	if _, err := orders.DeleteMany(ctx, client.JSON(`{}`)); err != nil {
		return err
	}
	var documents []bson.Raw
	for i := range int32(count) {
		order := bson.NewBuilder(nil).Int32("_id", i).Int64("cents", 1<<60).Finish()
		documents = append(documents, order)
	}
	inserted, err := orders.InsertMany(ctx, documents)
	if err != nil {
		return err
	}
	fmt.Printf("inserted %d documents\n", inserted.GetInsertedCount())

	paged := 0
	for _, err := range orders.Find(ctx, client.JSON(`{"cents": {"$gt": 0}}`),
		func(r *mooringv1.FindRequest) { r.BatchSize = proto.Int32(500) }) {
		if err != nil {
			return err
		}
		paged++
	}
	fmt.Printf("read %d documents in pages\n", paged)

	streamed := 0
	for document, err := range orders.Stream(ctx, nil) {
		if err != nil {
			return err
		}
		if cents, _ := document.Lookup("cents"); cents.Type != bson.TypeInt64 {
			return fmt.Errorf("cents is %v", cents.Type)
		}
		streamed++
	}
	fmt.Printf("streamed %d documents\n", streamed)

	_, err = orders.InsertOne(ctx, documents[1])
	failed, ok := errors.AsType[*client.Error](err)
	if !ok {
		return fmt.Errorf("a duplicate _id: %w", err)
	}
	fmt.Printf("a duplicate _id is %s, retry %s\n", failed.Reason, failed.Retry)
	return nil
}
