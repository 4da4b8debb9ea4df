// Package servicetest is a gateway for tests: the services over a real core/client, whose server
// is scripted, behind a real gRPC transport in memory. Tests count what may be left over:
// connections and cursors by Idle, goroutines at the end of the package's tests.
package servicetest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	corecursor "github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/event"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/mongotest"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/command"
	"github.com/mooringdb/mooring/service/cursor"
	"github.com/mooringdb/mooring/service/deployment"
	"github.com/mooringdb/mooring/service/document"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/seal"
	"github.com/mooringdb/mooring/service/stream"
)

// Gateway is one.
type Gateway struct {
	Server     *mongotest.Server
	Client     *client.Client
	Handles    *paging.Pager
	Gate       *interceptor.Gate
	Conn       *grpc.ClientConn
	Document   mooringv1.DocumentServiceClient
	Command    mooringv1.CommandServiceClient
	Cursor     mooringv1.CursorServiceClient
	Deployment mooringv1.DeploymentServiceClient

	// Callers maps the names of commands to the last Caller that events had.
	Callers sync.Map

	checkedOut atomic.Int64
	t          testing.TB
}

// Config changes what the defaults are; zero fields change nothing.
type Config struct {
	URIOptions string // such as "serverSelectionTimeoutMS=100"
	Handles    paging.Config
	Streams    stream.Config
}

// Start starts a gateway. It ends with the test.
func Start(t testing.TB, server *mongotest.Server, cfg Config) *Gateway {
	t.Helper()
	g := &Gateway{Server: server, t: t}
	g.startClient(cfg.URIOptions)
	g.startHandles(cfg.Handles)
	g.Gate = interceptor.NewGate()
	g.startServer(stream.New(cfg.Streams))
	return g
}

func (g *Gateway) startClient(options string) {
	g.t.Helper()
	cfg, err := connstring.Parse("mongodb://db.test/?directConnection=true&" + options)
	if err != nil {
		g.t.Fatal(err)
	}
	g.Client, err = client.New(cfg, client.Options{Dialer: g.Server.Dial, Sink: &event.Sink{
		CommandStarted:       func(e event.CommandStarted) { g.Callers.Store(e.Name, e.Caller) },
		ConnectionCheckedOut: func(event.ConnectionCheckedOut) { g.checkedOut.Add(1) },
		ConnectionCheckedIn:  func(event.ConnectionCheckedIn) { g.checkedOut.Add(-1) },
	}})
	if err != nil {
		g.t.Fatal(err)
	}
	if err := g.Client.Start(context.Background()); err != nil {
		g.t.Fatal(err)
	}
	g.atEnd(g.Client.Close)
}

func (g *Gateway) startHandles(cfg paging.Config) {
	g.t.Helper()
	if cfg.Keys == nil {
		keys, err := seal.NewRing()
		if err != nil {
			g.t.Fatal(err)
		}
		cfg.Keys = keys
	}
	cfg.Continue = func(s corecursor.State) paging.Cursor { return g.Client.ContinueCursor(s) }
	g.Handles = paging.New(cfg)
	if err := g.Handles.Start(context.Background()); err != nil {
		g.t.Fatal(err)
	}
	g.atEnd(g.Handles.Close)
}

func (g *Gateway) startServer(streams *stream.Streams) {
	g.t.Helper()
	x := interceptor.New(interceptor.Config{Gate: g.Gate})
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(x.Unary(), becomeUnary), grpc.ChainStreamInterceptor(x.Stream(), becomeStream),
		grpc.MaxRecvMsgSize(64<<20))
	mooringv1.RegisterDocumentServiceServer(s, document.New(document.Config{Client: g.Client, Handles: g.Handles, Streams: streams}))
	mooringv1.RegisterCommandServiceServer(s, command.New(command.Config{Client: g.Client, Handles: g.Handles, Streams: streams}))
	mooringv1.RegisterCursorServiceServer(s, cursor.New(cursor.Config{Handles: g.Handles, Streams: streams}))
	mooringv1.RegisterDeploymentServiceServer(s, deployment.New(deployment.Config{Client: g.Client, Handles: g.Handles}))
	listener := bufconn.Listen(64 << 10)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:///gateway", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		g.t.Fatal(err)
	}
	g.Conn = conn
	g.Document, g.Command, g.Cursor = mooringv1.NewDocumentServiceClient(conn), mooringv1.NewCommandServiceClient(conn), mooringv1.NewCursorServiceClient(conn)
	g.Deployment = mooringv1.NewDeploymentServiceClient(conn)
	g.atEnd(func(context.Context) error {
		_ = conn.Close()
		s.Stop()
		<-served
		return nil
	})
}

func (g *Gateway) atEnd(f func(context.Context) error) {
	g.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := f(ctx); err != nil {
			g.t.Error(err)
		}
	})
}

// principalKey is the metadata that As sets.
const principalKey = "servicetest-principal"

// As returns a context whose calls are those of a principal.
func As(ctx context.Context, principal string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, principalKey, principal)
}

// become makes a call that of the principal whom As has named.
func become(ctx context.Context) {
	if principals := metadata.ValueFromIncomingContext(ctx, principalKey); len(principals) == 1 {
		call.From(ctx).Principal = principals[0]
	}
}

func becomeUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	become(ctx)
	return handler(ctx, req)
}

func becomeStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	become(ss.Context())
	return handler(srv, ss)
}

// Idle waits until no connection is checked out, no call runs and, on the server, no cursor is
// open but that many.
func (g *Gateway) Idle(cursors int) {
	g.t.Helper()
	Eventually(g.t, "an idle gateway", func() bool {
		return g.checkedOut.Load() == 0 && g.Gate.InFlight() == 0 && g.Server.OpenCursors() == cursors
	})
}

// Eventually waits for a condition that another goroutine brings about.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(10 * time.Second)
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Doc makes a document: {_id: n, pad: <size bytes>}.
func Doc(n, size int) bson.Raw {
	return bson.NewBuilder(nil).Int32("_id", int32(n)).Binary("pad", 0, make([]byte, size)).Finish()
}

// Docs makes so many.
func Docs(n, size int) []bson.Raw {
	docs := make([]bson.Raw, n)
	for i := range docs {
		docs[i] = Doc(i, size)
	}
	return docs
}
