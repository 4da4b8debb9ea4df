// Package servicetest provides a gateway for tests: the services over a real core/client, whose
// server is scripted, behind the gateway's own gRPC server on a connection in memory. Idle counts
// leftover connections and cursors. Goroutines are counted at the end of the package's tests.
package servicetest

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	corecursor "github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/event"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/api"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/seal"
	"github.com/mooringdb/mooring/service/server"
	"github.com/mooringdb/mooring/service/session"
	"github.com/mooringdb/mooring/service/stream"
	"github.com/mooringdb/mooring/service/transaction"
)

// Gateway runs the services of a gateway for a test.
type Gateway struct {
	Server     *fakemongo.Server
	Client     *client.Client
	Handles    *paging.Pager
	Gate       *interceptor.Gate
	Conn       *grpc.ClientConn
	Document   mooringv1.DocumentServiceClient
	Resource   mooringv1.DocumentResourceServiceClient
	Command    mooringv1.CommandServiceClient
	Catalog    mooringv1.CatalogServiceClient
	Cursor     mooringv1.CursorServiceClient
	Deployment mooringv1.DeploymentServiceClient
	Session    mooringv1.SessionServiceClient
	// Dial opens a connection of another client.
	Dial func(context.Context) (net.Conn, error)
	// Local makes calls within the process, and REST serves them.
	Local        *inproc.Conn
	REST         *front.Handler
	Transaction  mooringv1.TransactionServiceClient
	Transactions *transaction.Transactions
	Exact        *idempotency.Keys

	// Callers maps the name of each command to the Caller in its last event.
	Callers sync.Map

	keys       *seal.Ring
	checkedOut atomic.Int64
	t          testing.TB
}

// Config changes the defaults. Zero fields change nothing.
type Config struct {
	URIOptions string // such as "serverSelectionTimeoutMS=100"
	Handles    paging.Config
	// Idempotency is the gateway's own key of calls with a key; zero: all gateways have the same.
	Idempotency idempotency.Schedule
	Streams     stream.Config
	// Policy decides what clients may do, who are not authenticated; nil: they may do everything.
	Policy *policy.Enforcer
	// Operators are the only clients that are told the server's words, unless Policy says which
	// these are; nil: all are.
	Operators []string
	// DefaultTimeout is that of the interceptors.
	DefaultTimeout time.Duration
	// Admission limits what calls use, each for the principal that As has set.
	Admission *admission.Admission
	// Idle is how long a transaction waits for its next call.
	Idle time.Duration
	// Begun is called for each call that has its place, before the policy decides; nil: nothing is.
	Begun func(context.Context)
	// Comment returns the gateway's own comment for the commands of a call; nil: they have none.
	Comment func(context.Context) *bson.Value
	// Replicas reaches the other gateways.
	Replicas interceptor.Replicas
}

// JSON returns the document of a JSON text.
func JSON(json string) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: json}}
}

// Start starts a gateway, which stops at the end of the test.
func Start(t testing.TB, server *fakemongo.Server, cfg Config) *Gateway {
	t.Helper()
	g := &Gateway{Server: server, t: t}
	g.start("mongodb://db.test/?directConnection=true&", server.Dial, cfg)
	return g
}

// Dialer opens connections to a deployment.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// StartOn starts a gateway before another deployment than a single server. uri may end with
// options; dial reaches the deployment. The gateway stops at the end of the test.
func StartOn(t testing.TB, uri string, dial Dialer, cfg Config) *Gateway {
	t.Helper()
	g := &Gateway{t: t}
	g.start(uri, dial, cfg)
	return g
}

// running counts the gateways of this process: what is lent is not known to be of one of them.
var running atomic.Int32

func (g *Gateway) start(uri string, dial Dialer, cfg Config) {
	g.t.Helper()
	running.Add(1)
	g.t.Cleanup(func() { // after all others
		if n := buffer.Lent(); running.Add(-1) == 0 && n != 0 {
			g.t.Errorf("%d buffers of replies are lent after all", n)
		}
	})
	g.startClient(uri+cfg.URIOptions, dial, cfg.Admission)
	cfg.Handles.Sizes = batch.NewSizes()
	cfg.Streams.Sizes = cfg.Handles.Sizes
	g.startHandles(cfg.Handles)
	g.Transactions = transaction.New(transaction.Config{
		Client: g.Client, Cursors: g.Handles, Keys: g.keys, Deployment: "test", Idle: cfg.Idle,
	})
	g.atEnd(g.Transactions.Drain)
	g.Gate = interceptor.NewGate()
	g.startServer(cfg, session.NewSessions(g.Client, g.keys, "test"))
}

func (g *Gateway) startClient(uri string, dial Dialer, admitted *admission.Admission) {
	g.t.Helper()
	cfg, err := connstring.Parse(uri)
	if err != nil {
		g.t.Fatal(err)
	}
	opt := client.Options{Dialer: dial, Sink: &event.Sink{
		CommandStarted:       func(e event.CommandStarted) { g.Callers.Store(e.Name, e.Caller) },
		ConnectionCheckedOut: func(event.ConnectionCheckedOut) { g.checkedOut.Add(1) },
		ConnectionCheckedIn:  func(event.ConnectionCheckedIn) { g.checkedOut.Add(-1) },
	}}
	if admitted != nil {
		opt.AdmitReply = admitted.AdmitReply
		opt.AdmitMessage, opt.Spare = admitted.AdmitMessage, admitted.SpareFor
		opt.Turn = func(ctx context.Context) conn.Turn {
			turn := admission.From(ctx).Turn()
			return &turn
		}
	}
	g.Client, err = client.New(cfg, opt)
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
	g.keys = cfg.Keys
	cfg.Continue = func(s corecursor.State) paging.Cursor { return g.Client.ContinueCursor(s) }
	g.Handles = paging.New(cfg)
	if err := g.Handles.Start(context.Background()); err != nil {
		g.t.Fatal(err)
	}
	g.atEnd(g.Handles.Close)
}

func (g *Gateway) startServer(cfg Config, sessions *session.Sessions) {
	g.t.Helper()
	g.Exact = idempotency.New(g.Client, schedule(g.t, cfg.Idempotency))
	x := interceptor.New(interceptor.Config{
		Gate: g.Gate, Sessions: sessions, Transactions: g.Transactions,
		Idempotency:    g.Exact,
		Policy:         cfg.Policy,
		Terse:          cfg.Operators != nil,
		OperatorTexts:  true,
		Operators:      cfg.Operators,
		Logger:         slog.New(slog.DiscardHandler),
		DefaultTimeout: cfg.DefaultTimeout,
		Admission:      cfg.Admission,
		Replicas:       cfg.Replicas,
		Comment: func(ctx context.Context) *bson.Value {
			if cfg.Begun != nil {
				cfg.Begun(ctx)
			}
			if cfg.Comment != nil {
				return cfg.Comment(ctx)
			}
			return nil
		},
	})
	streams := stream.New(cfg.Streams)
	hub := changestream.NewHub(cfg.Admission, 0)
	g.atEnd(func(context.Context) error { hub.Close(); return nil })
	services := api.New(api.Config{
		Client: g.Client, Handles: g.Handles, Streams: streams,
		Sessions: sessions, Transactions: g.Transactions,
		ChangeStreams: changestream.New(changestream.Config{
			Client: g.Client, Streams: streams, Stopping: context.Background(),
			Tickets: changestream.NewTickets(g.keys, "test"), Hub: hub,
		}),
	})
	s, wire := server.NewGRPC(server.GRPCConfig{
		MaxRequestSize: maxRequestSize, MaxSizeOf: api.MaxSizeOf(maxRequestSize),
		Authenticate: authenticate, OpenAccount: x.OpenAccount,
		Unary: x.Unary(), Stream: x.Stream(), Refuse: x.Refuse,
	})
	services.Register(wire)
	g.Local = inproc.NewConn(x.Unary(), x.Stream())
	services.Register(g.Local)
	var err error
	g.REST, err = front.New(front.Config{
		Conn: g.Local, APIs: []front.API{rest.New(rest.Config{})},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	listener := bufconn.Listen(64 << 10)
	g.Dial = listener.DialContext
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(server.Watched(listener))
	}()
	clientConn, err := grpc.NewClient("passthrough:///gateway",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		g.t.Fatal(err)
	}
	g.Conn = clientConn
	g.Document = mooringv1.NewDocumentServiceClient(clientConn)
	g.Resource = mooringv1.NewDocumentResourceServiceClient(clientConn)
	g.Command = mooringv1.NewCommandServiceClient(clientConn)
	g.Catalog = mooringv1.NewCatalogServiceClient(clientConn)
	g.Cursor = mooringv1.NewCursorServiceClient(clientConn)
	g.Session = mooringv1.NewSessionServiceClient(clientConn)
	g.Transaction = mooringv1.NewTransactionServiceClient(clientConn)
	g.Deployment = mooringv1.NewDeploymentServiceClient(clientConn)
	g.atEnd(func(context.Context) error {
		_ = clientConn.Close()
		s.Stop()
		<-served
		return nil
	})
}

// schedule returns a schedule, or that of the gateways that have none of their own.
func schedule(t testing.TB, own idempotency.Schedule) idempotency.Schedule {
	t.Helper()
	if own.Len() > 0 {
		return own
	}
	key, err := seal.NewKey([]byte("the idempotency key of all gateways"))
	if err != nil {
		t.Fatal(err)
	}
	if own, err = idempotency.NewSchedule(key); err != nil {
		t.Fatal(err)
	}
	return own
}

// Answer makes a call that another gateway forwards to this one.
func (g *Gateway) Answer(ctx context.Context, f *call.Forwarding) (call.Reply, error) {
	if !f.Streams {
		response := f.Answer.New().Interface()
		err := g.Local.Invoke(
			inproc.WithIncoming(ctx, f.Local, metadata.MD(f.Metadata).Copy()),
			f.Method, f.Request, response)
		return call.Reply{Response: response}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ss, err := g.Local.NewStream(
		inproc.WithIncoming(ctx, f.Local, metadata.MD(f.Metadata).Copy()), nil, f.Method)
	if err != nil {
		cancel()
		return call.Reply{}, err
	}
	_ = ss.SendMsg(f.Request) // RecvMsg returns the reason
	_ = ss.CloseSend()        // never fails
	return call.Reply{Stream: &relayed{ss, f, cancel}}, nil
}

// relayed represents a stream that this gateway makes for another.
type relayed struct {
	wire   grpc.ClientStream
	of     *call.Forwarding
	cancel func()
}

// Recv returns the next message.
func (r *relayed) Recv() (proto.Message, error) {
	m := r.of.Answer.New().Interface()
	err := r.wire.RecvMsg(m)
	if err != nil {
		r.cancel()
		return nil, err
	}
	return m, nil
}

// Close ends the stream, and returns when its handler has ended.
func (r *relayed) Close() {
	r.cancel()
	for r.wire.RecvMsg(r.of.Answer.New().Interface()) == nil {
	}
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

// maxRequestSize is the default of a gateway.
const maxRequestSize = 64 << 20

// principalKey is the key of the metadata that As sets.
const principalKey = "servicetest-principal"

// As returns a context whose calls have the principal.
func As(ctx context.Context, principal string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, principalKey, principal)
}

// authenticate returns the context of a call with the principal that As has set.
func authenticate(ctx context.Context, _ string) (context.Context, error) {
	name := strings.Join(metadata.ValueFromIncomingContext(ctx, principalKey), "")
	if name == "" {
		return ctx, nil
	}
	local := call.Local{Identity: &caller.Identity{Principal: name}}
	return &call.LocalContext{Context: ctx, Local: local}, nil
}

// Idle blocks until no connection is checked out, no call is in flight and the server has exactly
// that many open cursors.
func (g *Gateway) Idle(cursors int) {
	g.t.Helper()
	Eventually(g.t, "an idle gateway", func() bool {
		return g.checkedOut.Load() == 0 && g.Gate.InFlight() == 0 &&
			g.Server.OpenCursors() == cursors
	})
}

// Eventually blocks until a condition holds that other goroutines change. It fails the test after
// 10 s.
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

// Doc returns a document: {_id: n, pad: <size bytes>}.
func Doc(n, size int) bson.Raw {
	return bson.NewBuilder(nil).Int32("_id", int32(n)).Binary("pad", 0, make([]byte, size)).Finish()
}

// Docs returns n documents with pads of size bytes.
func Docs(n, size int) []bson.Raw {
	docs := make([]bson.Raw, n)
	for i := range docs {
		docs[i] = Doc(i, size)
	}
	return docs
}
