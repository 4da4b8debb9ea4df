// Package contender is the gateway that a day's work gives: net/http, or grpc-go, directly over
// the official driver. The benchmark compares Mooring with it. It is written to be quick where
// that costs nothing (documents stay bson.Raw until they are marshaled, buffers are sized,
// nothing is logged), and does nothing else: no limits, no cursors that outlive a request, no
// errors worth their name.
package contender

import (
	"context"
	"io"
	"net/http"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The prefixes of the two REST contenders; after them the paths are the gateway's own.
const (
	RawPrefix = "/raw"   // bson.Raw passed to MarshalExtJSON: the fastest ordinary wrapper
	MapPrefix = "/bsonm" // bson.M in between: the usual one
)

// Handler serves findOne and find over the official driver.
func Handler(c *mongo.Client) http.Handler {
	mux := http.NewServeMux()
	const documents = "/v1/databases/{database}/collections/{collection}/"
	mux.Handle("POST "+RawPrefix+documents+"documents:findOne", handler{c, findOne[bson.Raw]})
	mux.Handle("POST "+RawPrefix+documents+"documents:find", handler{c, find[bson.Raw]})
	mux.Handle("POST "+MapPrefix+documents+"documents:findOne", handler{c, findOne[bson.M]})
	mux.Handle("POST "+MapPrefix+documents+"documents:find", handler{c, find[bson.M]})
	return mux
}

// request holds the parameters of both operations.
type request struct {
	Filter bson.D `bson:"filter"`
	Limit  int64  `bson:"limit"`
}

type operation func(context.Context, *mongo.Collection, request) ([]byte, error)

type handler struct {
	client *mongo.Client
	run    operation
}

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req := request{Filter: bson.D{}}
	if err := bson.UnmarshalExtJSON(body, false, &req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	collection := h.client.Database(r.PathValue("database")).Collection(r.PathValue("collection"))
	out, err := h.run(r.Context(), collection, req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out)
}

func findOne[D bson.Raw | bson.M](
	ctx context.Context, c *mongo.Collection, req request,
) ([]byte, error) {
	var doc D
	if err := c.FindOne(ctx, req.Filter).Decode(&doc); err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, 1<<10), `{"document":`...)
	json, err := bson.MarshalExtJSON(doc, false, false)
	if err != nil {
		return nil, err
	}
	return append(append(out, json...), '}'), nil
}

func find[D bson.Raw | bson.M](
	ctx context.Context, c *mongo.Collection, req request,
) ([]byte, error) {
	cursor, err := c.Find(ctx, req.Filter, options.Find().SetLimit(req.Limit))
	if err != nil {
		return nil, err
	}
	var docs []D
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, 1<<10*(len(docs)+1)), `{"documents":[`...)
	for i, doc := range docs {
		json, err := bson.MarshalExtJSON(doc, false, false)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, json...)
	}
	return append(out, "]}"...), nil
}
