// Package catalog implements CatalogService: MongoDB's helpers for databases, collections and
// indexes.
//
// A handler reads its request, calls the helper of the same name in core/client, and puts the
// result into a response. Lists are pages and go through service/paging.
package catalog

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/request"
)

// Config configures a Server. All fields are required.
type Config struct {
	Client  *client.Client
	Handles *paging.Pager
}

// Server serves CatalogService.
type Server struct {
	mooringv1.UnsafeCatalogServiceServer
	cfg Config
}

var _ mooringv1.CatalogServiceServer = (*Server)(nil)

// New returns the service.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// target lists what requests about a collection name.
type target interface {
	GetDatabase() string
	GetCollection() string
}

func namespace(req target) client.Namespace {
	return client.Namespace{Database: req.GetDatabase(), Collection: req.GetCollection()}
}

type (
	fields   = []protoreflect.Name
	requests = []proto.Message
)

// list opens a cursor and returns its first page.
func (s *Server) list(
	ctx context.Context, r *request.Reader, ns client.Namespace, batchSize *int32,
	run func(context.Context, int32) (paging.Cursor, error),
) ([]*mooringv1.Document, *string, error) {
	if err := r.Err(); err != nil {
		return nil, nil, err
	}
	page, err := s.cfg.Handles.Open(ctx, paging.Opening{
		Principal:   r.Principal,
		Transaction: r.TransactionID(), Namespace: paging.Namespace(ns), BatchSize: batchSize,
		Inflation: r.Inflation(), Casual: r.Casual, Run: run,
	})
	if err != nil {
		return nil, nil, err
	}
	docs, err := r.Page(ctx, s.cfg.Handles, page)
	return docs, page.Cursor(), err
}
