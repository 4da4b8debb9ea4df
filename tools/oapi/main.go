// Command oapi inserts, finds and reads an error with the client that oapi-codegen makes of
// openapi.json beside this file. TestOapiCodegen runs it.
//
//	oapi http://127.0.0.1:8080 database
package main

import (
	"context"
	"fmt"
	"log"
	"os"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, database string) error {
	const collection = "oapi"
	client, err := NewClientWithResponses(url)
	if err != nil {
		return err
	}
	insert := InsertOneRequest{Document: Document{"_id": 1, "customer": "Ada"}}
	inserted, err := client.InsertOneWithResponse(ctx, database, collection, nil, insert)
	if err != nil || inserted.JSON200 == nil {
		return fmt.Errorf("insert: %w: %s", err, inserted.Body)
	}
	fmt.Println("inserted", *inserted.JSON200.InsertedId)

	found, err := client.FindWithResponse(ctx, database, collection, nil,
		FindRequest{Filter: &Document{"customer": "Ada"}})
	if err != nil || found.JSON200 == nil {
		return fmt.Errorf("find: %w: %s", err, found.Body)
	}
	for _, document := range found.JSON200.Documents {
		fmt.Println("read", document["customer"])
	}

	again, err := client.InsertOneWithResponse(ctx, database, collection, nil, insert)
	if err != nil || again.JSON409 == nil {
		return fmt.Errorf("insert again: %w: %s", err, again.Body)
	}
	failure := again.JSON409.Error
	fmt.Println("refused", again.StatusCode(), failure.Reason, failure.Retry)
	return nil
}
