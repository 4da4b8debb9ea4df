// Package document implements DocumentService: MongoDB's helpers for the documents of a collection.
//
// A handler reads its request, calls the helper of the same name in core/client, and puts the
// result into a response. After it returns, only the state of an open cursor is kept. Pages go
// through service/paging, streams through service/stream.
package document

import (
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/stream"
)

// Config configures a Server. All fields are required.
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

// target lists what every request of this service names.
type target interface {
	GetDatabase() string
	GetCollection() string
}

func namespace(req target) client.Namespace {
	return client.Namespace{Database: req.GetDatabase(), Collection: req.GetCollection()}
}

// source returns where documents of a namespace come from, as they are or through a pipeline.
func source(ns client.Namespace, pipeline bool) batch.Source {
	return batch.Source{Database: ns.Database, Collection: ns.Collection, Pipeline: pipeline}
}

// count returns a count of an acknowledged write. It returns nil if the write is unacknowledged.
func count(acknowledged bool, n int64) *int64 {
	if !acknowledged {
		return nil
	}
	return &n
}
