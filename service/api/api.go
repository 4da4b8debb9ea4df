// Package api joins the handlers of the API's services to one list, which every listener serves.
// It makes the handlers and knows how large their requests may be. It serves nothing itself.
package api

import (
	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/catalog"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/command"
	"github.com/mooringdb/mooring/service/cursor"
	"github.com/mooringdb/mooring/service/deployment"
	"github.com/mooringdb/mooring/service/document"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/recent"
	"github.com/mooringdb/mooring/service/resource"
	"github.com/mooringdb/mooring/service/session"
	"github.com/mooringdb/mooring/service/stream"
	"github.com/mooringdb/mooring/service/transaction"
)

// Config holds what the handlers share. All fields up to ChangeStreams are required.
type Config struct {
	Client        *client.Client
	Handles       *paging.Pager
	Streams       *stream.Streams
	Sessions      *session.Sessions
	Transactions  *transaction.Transactions
	ChangeStreams *changestream.Server
	// Replicas reaches the other replicas of the gateway. Nil: there are none.
	Replicas deployment.Replicas
	// Policy, Operators and Callers are what ExplainPolicy asks; see deployment.Config.
	Policy    deployment.Policy
	Operators []string
	Callers   deployment.Callers
	// Recent remembers slow and refused calls. Nil: nothing does.
	Recent *recent.List
	// Stopping is closed when the gateway begins to stop. Watches of the deployment end then.
	Stopping <-chan struct{}
}

// API lists the services.
type API []service

type service struct {
	desc   *grpc.ServiceDesc
	server any
}

// New returns the services.
func New(cfg Config) API {
	c, handles, streams := cfg.Client, cfg.Handles, cfg.Streams
	documents := document.New(document.Config{Client: c, Handles: handles, Streams: streams})
	return API{
		{&mooringv1.CommandService_ServiceDesc, command.New(command.Config{
			Client: c, Handles: handles, Streams: streams,
		})},
		{&mooringv1.DocumentService_ServiceDesc, documents},
		{&mooringv1.DocumentResourceService_ServiceDesc, resource.New(c)},
		{&mooringv1.CatalogService_ServiceDesc, catalog.New(catalog.Config{
			Client: c, Handles: handles,
		})},
		{&mooringv1.CursorService_ServiceDesc, cursor.New(cursor.Config{
			Handles: handles, Streams: streams,
		})},
		{&mooringv1.SessionService_ServiceDesc, session.New(session.Config{
			Client: c, Sessions: cfg.Sessions,
		})},
		{&mooringv1.TransactionService_ServiceDesc, transaction.NewServer(transaction.ServerConfig{
			Transactions: cfg.Transactions, Documents: documents,
		})},
		{&mooringv1.ChangeStreamService_ServiceDesc, cfg.ChangeStreams},
		{&mooringv1.DeploymentService_ServiceDesc, deployment.New(deployment.Config{
			Client: c, Handles: handles, Replicas: cfg.Replicas, Policy: cfg.Policy,
			Operators: cfg.Operators, Callers: cfg.Callers, Recent: cfg.Recent,
			Stopping: cfg.Stopping,
		})},
	}
}

// Register registers the services on a server.
func (a API) Register(r grpc.ServiceRegistrar) {
	for _, s := range a {
		r.RegisterService(s.desc, s.server)
	}
}

// Names returns the names of the services, in the order of New.
func Names() []string {
	return []string{
		mooringv1.CommandService_ServiceDesc.ServiceName,
		mooringv1.DocumentService_ServiceDesc.ServiceName,
		mooringv1.DocumentResourceService_ServiceDesc.ServiceName,
		mooringv1.CatalogService_ServiceDesc.ServiceName,
		mooringv1.CursorService_ServiceDesc.ServiceName,
		mooringv1.SessionService_ServiceDesc.ServiceName,
		mooringv1.TransactionService_ServiceDesc.ServiceName,
		mooringv1.ChangeStreamService_ServiceDesc.ServiceName,
		mooringv1.DeploymentService_ServiceDesc.ServiceName,
	}
}
