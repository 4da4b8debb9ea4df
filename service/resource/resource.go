// Package resource implements DocumentResourceService: one document, which its _id names, with
// etags and preconditions. It knows nothing of HTTP.
package resource

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Server serves DocumentResourceService.
type Server struct {
	mooringv1.UnsafeDocumentResourceServiceServer
	client *client.Client
}

var _ mooringv1.DocumentResourceServiceServer = (*Server)(nil)

// New returns the service.
func New(c *client.Client) *Server { return &Server{client: c} }

// target lists what every request of this service has.
type target interface {
	GetDatabase() string
	GetCollection() string
	GetId() *mooringv1.Value
}

func namespace(req target) client.Namespace {
	return client.Namespace{Database: req.GetDatabase(), Collection: req.GetCollection()}
}

// readID reads the _id, which must be set.
func readID(r *request.Reader, req target) bson.Value {
	if req.GetId() == nil {
		r.Refuse("id", "is required")
	}
	return r.Value("id", req.GetId())
}

// withID returns a filter that matches the document with the id if it matches the others, too. The
// id stands at the top level, where all servers look for the _id of an upsert, and it stands there
// alone: an upsert fails if two conditions demand the _id.
func withID(id bson.Value, others ...bson.Raw) bson.Raw {
	b := bson.NewBuilder(make([]byte, 0, len(id.Data)+64))
	isValue := id.Type != bson.TypeDocument && id.Type != bson.TypeRegex
	if isValue {
		b.Value("_id", id)
	} else {
		b.OpenDocument("_id").Value("$eq", id).Close() // it is not a condition
	}
	var all []bson.Raw
	for _, f := range others {
		if own, ok := f.Lookup("_id"); ok && isValue && own.Equal(id) {
			f = bson.Without(f, "_id")
		}
		if !f.IsEmpty() {
			all = append(all, f)
		}
	}
	if len(all) > 0 {
		b.OpenArray("$and")
		for _, f := range all {
			b.Document("", f)
		}
		b.Close()
	}
	return b.Finish()
}

// GetDocument returns the document.
func (s *Server) GetDocument(
	ctx context.Context, req *mooringv1.GetDocumentRequest,
) (*mooringv1.GetDocumentResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	id := readID(r, req)
	opt := getOptions.Read(r, req)
	if err := r.Err(); err != nil {
		return nil, err
	}
	opt.Filter = withID(id, opt.Filter)
	doc, found, err := s.client.FindOne(ctx, namespace(req), opt)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errNotFound
	}
	message, err := r.Encoding.Document(doc)
	if err != nil {
		return nil, err
	}
	return &mooringv1.GetDocumentResponse{
		Document: message, Etag: etagUnless(opt.Projection != nil, doc),
	}, nil
}

var (
	errNotFound = &rpcerr.Error{
		Reason: rpcerr.DocumentNotFound, Message: "there is no such document",
	}
	errMissing = &rpcerr.Error{
		Reason: rpcerr.PreconditionFailed, Message: "there is no document that meets if_match",
	}
	errChanged = &rpcerr.Error{
		Reason: rpcerr.PreconditionFailed, Message: "the document has another etag",
	}
	errExists = &rpcerr.Error{
		Reason: rpcerr.PreconditionFailed, Message: "the document exists already",
	}
)
