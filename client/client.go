// Package client is a typed client of the gateway, over gRPC. Documents travel as BSON: as
// bson.Raw, or as the values of any marshaller, such as that of the official driver:
//
//	cc, err := grpc.NewClient("127.0.0.1:27080", client.Keepalive(), …)
//	c := client.New(cc, client.Options{Marshal: bson.Marshal, Unmarshal: bson.Unmarshal})
//	orders := client.In[Order](c, "shop", "orders")
//	for order, err := range orders.Find(ctx, client.JSON(`{"total": {"$gt": 10}}`)) { … }
//
// Results that have many documents are iterators, over pages or over a stream. A call that fails
// returns an *Error, and is repeated if that says that this is safe. A call that gets no answer is
// repeated only if it is a read, a commit, an abort, a numbered statement of a transaction, or a
// write with an idempotency key; Options.ExactlyOnce gives each write a key. For RPCs without a
// method here, use Call with the generated clients of package mooringv1. The package keeps no state
// and starts no goroutine.
package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Options configures a Client. The zero value is for documents as bson.Raw.
type Options struct {
	// Token is sent with each call: an API key, or a JSON Web Token. Empty: none.
	Token string
	// Marshal makes BSON of a document. Nil: documents are bson.Raw, []byte or JSON.
	Marshal func(document any) ([]byte, error)
	// Unmarshal decodes BSON into document, a pointer. Nil: documents are bson.Raw or []byte.
	Unmarshal func(doc []byte, document any) error
	// Retries is how often a call is repeated where its error allows that. 0 means 3, and a
	// negative number never.
	Retries int
	// ExactlyOnce gives each write an idempotency key of its own, so that it can be repeated if it
	// gets no answer. Each key costs the server a session for 30 minutes. The gateway refuses
	// writes that take no key: updateMany, deleteMany, and writes in a session. Writes in a
	// transaction are sent without one. See WithExactlyOnce.
	ExactlyOnce bool
}

const defaultRetries = 3

// largest lets the answer of each call and stream have the largest document: grpc refuses messages
// over 4 MiB.
var largest = grpc.MaxCallRecvMsgSize(64 << 20)

// Keepalive returns an option of the connection: one that has become silent, as when a machine
// loses its power, is lost after 50 seconds. Without it, calls and streams on it may wait forever.
func Keepalive() grpc.DialOption {
	// Where a proxy cuts the connection because of too many pings, grpc sends the next one fewer.
	return grpc.WithKeepaliveParams(keepalive.ClientParameters{
		Time: 30 * time.Second, Timeout: 20 * time.Second,
	})
}

// Client makes calls on a connection. It is safe for concurrent use.
type Client struct {
	options   Options
	documents mooringv1.DocumentServiceClient
	cursors   mooringv1.CursorServiceClient
	changes   mooringv1.ChangeStreamServiceClient
	commands  mooringv1.CommandServiceClient
	resources mooringv1.DocumentResourceServiceClient
	// wall is a clock that also runs while the machine is suspended.
	wall func() time.Time
}

// New returns a client that makes its calls on cc. The caller closes cc.
func New(cc grpc.ClientConnInterface, options Options) *Client {
	if options.Retries == 0 {
		options.Retries = defaultRetries
	}
	return &Client{
		options:   options,
		documents: mooringv1.NewDocumentServiceClient(cc),
		cursors:   mooringv1.NewCursorServiceClient(cc),
		changes:   mooringv1.NewChangeStreamServiceClient(cc),
		commands:  mooringv1.NewCommandServiceClient(cc),
		resources: mooringv1.NewDocumentResourceServiceClient(cc),
		wall:      func() time.Time { return time.Now().Round(0) },
	}
}

// JSON represents a document as Extended JSON. It can stand for a filter, an update or another
// document of a request.
type JSON string

// Document encodes v as a document of a request, such as the sort that an option sets. v is a
// bson.Raw, []byte, JSON or what Options.Marshal takes; nil leaves the document unset.
func (c *Client) Document(v any) (*mooringv1.Document, error) {
	var doc []byte
	switch v := v.(type) {
	case nil:
		return nil, nil
	case JSON:
		return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: string(v)}}, nil
	case bson.Raw:
		doc = v
	case []byte:
		doc = v
	default:
		if c.options.Marshal == nil {
			return nil, fmt.Errorf("client: a document is %T, and Options has no Marshal", v)
		}
		var err error
		if doc, err = c.options.Marshal(v); err != nil {
			return nil, fmt.Errorf("client: marshal a document: %w", err)
		}
	}
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: doc}}, nil
}

// Value encodes v as a value of a request, such as the _id of a document. v is a bson.Value, JSON,
// or what Options.Marshal takes as a field of a document.
func (c *Client) Value(v any) (*mooringv1.Value, error) {
	switch v := v.(type) {
	case JSON:
		return &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: string(v)}}, nil
	case bson.Value:
		b := bson.NewBuilder(nil).Value(valueKey, v).Finish()
		return &mooringv1.Value{Encoding: &mooringv1.Value_Bson{Bson: b}}, nil
	}
	if c.options.Marshal == nil {
		return nil, fmt.Errorf("client: a value is %T, and Options has no Marshal", v)
	}
	b, err := c.options.Marshal(map[string]any{valueKey: v})
	if err != nil {
		return nil, fmt.Errorf("client: marshal a value: %w", err)
	}
	return &mooringv1.Value{Encoding: &mooringv1.Value_Bson{Bson: b}}, nil
}

// valueKey is the name of the element in the document that a Value is.
const valueKey = "v"

// every makes documents of a list.
func every[T any](c *Client, list []T) ([]*mooringv1.Document, error) {
	docs := make([]*mooringv1.Document, len(list))
	for i, v := range list {
		doc, err := c.Document(v)
		if err != nil {
			return nil, err
		}
		docs[i] = doc
	}
	return docs, nil
}

// decode reads a document of a response.
func decode[T any](c *Client, d *mooringv1.Document) (T, error) {
	var v T
	switch to := any(&v).(type) {
	case *bson.Raw:
		*to = d.GetBson()
	case *[]byte:
		*to = d.GetBson()
	default:
		if c.options.Unmarshal == nil {
			return v, fmt.Errorf("client: a document is %T, and Options has no Unmarshal", v)
		}
		if err := c.options.Unmarshal(d.GetBson(), &v); err != nil {
			return v, fmt.Errorf("client: unmarshal a document: %w", err)
		}
	}
	return v, nil
}

// outgoing returns the context of a call, which has the client's credential.
func (c *Client) outgoing(ctx context.Context) context.Context {
	if c.options.Token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.options.Token)
}

// ErrNoDocument is what FindOne and the FindOneAnd… methods return if no document matches.
var ErrNoDocument = errors.New("client: no document matches")
