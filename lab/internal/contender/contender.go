// Package contender is what the benchmark compares Mooring with. The thin gateway is what
// a day's work gives: net/http, or grpc-go, directly over the official driver. It is written to be
// quick where that costs nothing (documents stay bson.Raw until they are marshaled, buffers are
// sized, nothing is logged), and does nothing else: no limits, no cursors that outlive a request,
// no errors worth their name. The floor is the least that any gateway can do.
package contender

import (
	"bufio"
	"context"
	"io"
	"net/http"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Handler serves findOne, find, streamFind, insertOne and insertMany over the official driver.
func Handler(c *mongo.Client) http.Handler {
	mux := http.NewServeMux()
	for name, run := range map[string]operation{
		"findOne":    findOne,
		"find":       find,
		"streamFind": streamFind,
		"insertOne":  insertOne,
		"insertMany": insertMany,
	} {
		mux.Handle("POST /v1/databases/{database}/collections/{collection}/documents:"+name,
			handler{c, run})
	}
	return mux
}

// request holds the parameters of all operations.
type request struct {
	Filter    bson.D     `bson:"filter"`
	Limit     int64      `bson:"limit"`
	BatchSize int32      `bson:"batchSize"`
	Document  bson.Raw   `bson:"document"`
	Documents []bson.Raw `bson:"documents"`
}

// operation returns the body of the response, or the rest of what it has not written itself.
type operation func(context.Context, *mongo.Collection, request, io.Writer) ([]byte, error)

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
	w.Header().Set("Content-Type", "application/json")
	out, err := h.run(r.Context(), collection, req, w)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(out)
}

func findOne(
	ctx context.Context, c *mongo.Collection, req request, _ io.Writer,
) ([]byte, error) {
	doc, err := c.FindOne(ctx, req.Filter).Raw()
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, 1<<10), `{"document":`...)
	json, err := bson.MarshalExtJSON(doc, false, false)
	if err != nil {
		return nil, err
	}
	return append(append(out, json...), '}'), nil
}

func find(ctx context.Context, c *mongo.Collection, req request, _ io.Writer) ([]byte, error) {
	cursor, err := c.Find(ctx, req.Filter,
		options.Find().SetLimit(req.Limit).SetBatchSize(req.BatchSize))
	if err != nil {
		return nil, err
	}
	var docs []bson.Raw
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

// streamFind writes documents as they come, a line each.
func streamFind(
	ctx context.Context, c *mongo.Collection, req request, w io.Writer,
) ([]byte, error) {
	cursor, err := c.Find(ctx, req.Filter, options.Find().SetLimit(req.Limit))
	if err != nil {
		return nil, err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	lines := bufio.NewWriterSize(w, 64<<10)
	for cursor.Next(ctx) {
		json, err := bson.MarshalExtJSON(cursor.Current, false, false)
		if err != nil {
			return nil, err
		}
		if _, err := lines.Write(append(json, '\n')); err != nil {
			return nil, err
		}
	}
	if err := lines.Flush(); err != nil {
		return nil, err
	}
	return nil, cursor.Err()
}

func insertOne(
	ctx context.Context, c *mongo.Collection, req request, _ io.Writer,
) ([]byte, error) {
	result, err := c.InsertOne(ctx, req.Document)
	if err != nil {
		return nil, err
	}
	return bson.MarshalExtJSON(bson.D{{Key: "insertedId", Value: result.InsertedID}}, false, false)
}

func insertMany(
	ctx context.Context, c *mongo.Collection, req request, _ io.Writer,
) ([]byte, error) {
	result, err := c.InsertMany(ctx, req.Documents)
	if err != nil {
		return nil, err
	}
	ids := bson.D{{Key: "insertedIds", Value: result.InsertedIDs}}
	return bson.MarshalExtJSON(ids, false, false)
}
