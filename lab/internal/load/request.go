package load

import (
	"encoding/json"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Database is the name of the database that every job reads.
const Database = "bench"

// filter selects documents in both protocols; the canned server ignores it.
func filter(id int32) *mooringv1.Document {
	raw, err := bson.Marshal(bson.D{{Key: "total", Value: bson.D{{Key: "$gt", Value: id}}}})
	if err != nil {
		panic(fmt.Sprintf("bug: %v", err))
	}
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: raw}}
}

// REST gives the job of a findOne (limit 0) or a find as REST sends it. base is http://host:port,
// with a prefix.
func REST(base, collection string, id int32, limit int64) Job {
	body := map[string]any{"filter": map[string]any{"total": map[string]any{"$gt": id}}}
	verb := "findOne"
	if limit > 0 {
		verb, body["limit"] = "find", limit
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("bug: %v", err))
	}
	return Job{
		URL: fmt.Sprintf("%s/v1/databases/%s/collections/%s/documents:%s", base, Database,
			collection, verb), Body: string(text),
	}
}

// Insert gives the job of an insertOne as REST sends it.
func Insert(base, collection string) Job {
	return Job{
		URL: fmt.Sprintf("%s/v1/databases/%s/collections/%s/documents:insertOne", base, Database,
			collection),
		Body: `{"document": {"sku": "A-4711", "quantity": 3, "price": 12.5, "tags": ["a", "b"]}}`,
	}
}

// GRPC gives the job of a findOne (limit 0) or a find as gRPC sends it.
func GRPC(address, collection string, id int32, limit int64) Job {
	return Job{GRPC: address, Collection: collection, ID: id, Limit: limit}
}
