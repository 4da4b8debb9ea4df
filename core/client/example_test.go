package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
)

// dial returns a started client of the deployment that MONGODB_URI names.
func dial(ctx context.Context) (*client.Client, error) {
	cfg, err := connstring.Parse(os.Getenv("MONGODB_URI"))
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, err
	}
	return c, c.Start(ctx)
}

// A client is made of a connection string, started once, shared by all goroutines, and closed at
// the end.
func Example() {
	ctx := context.Background()
	cfg, err := connstring.Parse("mongodb://localhost:27017/?timeoutMS=10000")
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.New(cfg, client.Options{Sink: &event.Sink{
		CommandFailed: func(e event.CommandFailed) {
			fmt.Println(e.Name, "failed on", e.Address, e.Err)
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close(ctx) }()

	fmt.Println("reachable:", c.Ping(ctx) == nil)
}

// Find returns a cursor. Its documents are views on the replies: nothing is decoded before you
// ask.
func ExampleClient_Find() {
	ctx := context.Background()
	c, err := dial(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close(ctx) }()

	cur, err := c.Find(ctx, client.Namespace{Database: "shop", Collection: "orders"},
		client.FindOptions{
			Filter:    bson.NewBuilder(nil).OpenDocument("total").Int32("$gt", 10).Close().Finish(),
			Sort:      bson.NewBuilder(nil).Int32("total", -1).Finish(),
			BatchSize: new(int32(100)),
			Common:    client.Common{Timeout: new(5 * time.Second)},
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	for batch, err := range cur.Batches(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, doc := range batch.Documents {
			total, _ := doc.Lookup("total")
			fmt.Println(total.AsInt64())
		}
	}
}

// With an error, InsertMany returns what was done nevertheless.
func ExampleClient_InsertMany() {
	ctx := context.Background()
	c, err := dial(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close(ctx) }()

	docs := []bson.Raw{
		bson.NewBuilder(nil).Int32("_id", 1).String("name", "anchor").Finish(),
		bson.NewBuilder(nil).Int32("_id", 2).String("name", "buoy").Finish(),
	}
	ns := client.Namespace{Database: "shop", Collection: "goods"}
	res, err := c.InsertMany(ctx, ns, docs, client.InsertManyOptions{Ordered: new(false)})
	if failed, ok := errors.AsType[*mongoerr.WriteException](err); ok {
		for _, e := range failed.WriteErrors {
			fmt.Printf("document %d: %s\n", e.Index, e.Message)
		}
	}
	if _, ok := errors.AsType[*operation.OutcomeUnknownError](err); ok {
		fmt.Println("the last command may have been carried out")
	}
	fmt.Println(len(res.InsertedIDs), "inserted")
}

// State is what another client of the same deployment needs to continue a cursor.
func ExampleClient_ContinueCursor() {
	ctx := context.Background()
	c, err := dial(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close(ctx) }()

	ns := client.Namespace{Database: "shop", Collection: "orders"}
	cur, err := c.Find(ctx, ns, client.FindOptions{TimeoutMode: client.Iteration})
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := cur.Next(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	state := cur.State() // store it, or send it to another process

	rest := c.ContinueCursor(state)
	second, err := rest.Next(ctx)
	fmt.Println(len(first.Documents), len(second.Documents), err)
}
