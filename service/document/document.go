// Package document is DocumentService: MongoDB's helpers for the documents of a collection.
//
// A handler reads its request, calls the helper of that name in core/client, and puts the result
// into a response. Nothing is kept after it returns but what a cursor needs. Pages go through
// service/handle, streams through service/stream.
package document

import (
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/stream"
)

// Config of a Server; all fields are required.
type Config struct {
	Client  *client.Client
	Handles *paging.Pager
	Streams *stream.Streams
}

// Server serves DocumentService.
type Server struct {
	mooringv1.UnsafeDocumentServiceServer
	cfg Config
}

var _ mooringv1.DocumentServiceServer = (*Server)(nil)

// New returns the service.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// target is what every request of this service names.
type target interface {
	GetDatabase() string
	GetCollection() string
}

func namespace(req target) client.Namespace {
	return client.Namespace{Database: req.GetDatabase(), Collection: req.GetCollection()}
}

// count is a count of an acknowledged write; others have none.
func count(acknowledged bool, n int64) *int64 {
	if !acknowledged {
		return nil
	}
	return &n
}
