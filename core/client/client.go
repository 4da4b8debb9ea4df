// Package client is a MongoDB driver: a Client serves one deployment, with MongoDB's own helpers.
// Arguments and results are BSON bytes, and the documents of a result are views on the reply's
// buffer. Arguments must be valid BSON, since they are copied into commands as they are.
//
// It holds no state besides the topology and the sessions: core/operation runs commands, and
// core/cursor reads batches. It neither logs nor counts, but emits events to an event.Sink.
package client

import (
	"context"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/aws"
	"github.com/mooringdb/mooring/core/auth/gssapi"
	"github.com/mooringdb/mooring/core/auth/oidc"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/conn/metadata"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/seedlist"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/core/topology"
)

// Options holds the settings that a connection string cannot hold.
type Options struct {
	// Sink receives the events of the driver; nil: none are emitted. If one of its functions
	// panics, the driver recovers.
	Sink *event.Sink
	// SinkPanicked is called for the first panic of Sink, with its value and the stack; nil: panics
	// are dropped.
	SinkPanicked func(value any, stack []byte)
	// Dialer opens a connection, to a server or to the proxy; nil is net.Dialer.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	// Libraries wrap the driver, innermost first. Servers see them after the driver's own name.
	// AppendMetadata adds to them.
	Libraries []metadata.Library
	// Version is the driver's version that servers see; empty: the version that Go recorded for
	// this module.
	Version string
	// Resolver looks up the DNS records of a mongodb+srv string; nil is the resolver of the
	// process.
	Resolver seedlist.Resolver
	// User returns the user of each new connection, in place of the name and password in the
	// connection string, which must ask for authentication. Nil stands for the string's own.
	User auth.UserSource
	// TLS holds what the tls options of the connection string say, so that the caller can read
	// their files again. Nil stands for the connection string's own, which are read once.
	TLS *conn.TLS
	// OIDC obtains the access tokens of MONGODB-OIDC, in place of an ENVIRONMENT in the connection
	// string.
	OIDC oidc.Provider
	// AWS says where MONGODB-AWS finds credentials. The zero value stands for the environment of
	// the process and AWS's endpoints.
	AWS aws.Config
	// Kerberos obtains the tickets of GSSAPI; nil reads the files of MIT Kerberos.
	Kerberos gssapi.Initiator
	// ServerAPI is the stable API that every command declares; nil: none is declared.
	ServerAPI *ServerAPI
	// MaxPinnedShare is the share of maxPoolSize that may be pinned to cursors and transactions at
	// a time, behind a load balancer: from 0, which sets no bound, to 1. A cursor or transaction
	// beyond it fails with a *pool.PinLimitError.
	MaxPinnedShare float64
	// MaxRunOnShare bounds the operations that go on after their contexts are canceled (see
	// Common.RunOn), on all servers together, as a share of maxPoolSize: from 0, which sets no
	// bound, to 1. Beyond it an operation ends with its context, unless it may change data and a
	// read can be ended instead. If Caller is set, each caller has a share of the bound.
	MaxRunOnShare float64
	// AdmitReply, if set, is called before a reply of size bytes is read, if that is at least
	// conn.LargeReply, with the context of the operation; see conn.Config.Admit.
	AdmitReply func(ctx context.Context, size int) (done func(kept bool), err error)
	// AdmitMessage, if set, is called before a message of size bytes is built, if that is at least
	// bson.LargeBuffer; see operation.Runner.Admit.
	AdmitMessage func(ctx context.Context, size int) (done func(), err error)
	// Spare, if set, is called before a message of at least conn.LargeReply bytes is compressed;
	// see conn.Config.Spare.
	Spare func(ctx context.Context, size int) (done func(), ok bool)
	// Turn, if set, returns the turn in which a reply of at least conn.LargeReply bytes is read;
	// see conn.Config.Turn.
	Turn func(context.Context) conn.Turn
	// Caller, if set, returns who runs the operation of a context; see pool.Config.Caller and
	// operation.NewRunOns.
	Caller func(ctx context.Context) any
	// WaitLimit, if set, returns what bounds a wait for a connection unless the connection string
	// has waitQueueTimeoutMS; see pool.Config.WaitLimit.
	WaitLimit func() time.Duration
	// Jitter returns a random number from 0 to 1, by which the wait before a retry is multiplied;
	// nil: math/rand.
	Jitter func() float64
}

// Client runs operations on one deployment. Its methods may be called from many goroutines at
// once.
type Client struct {
	// topology is nil until Start where the servers' names come from DNS.
	topology atomic.Pointer[topology.Topology]
	lookUp   func(context.Context) error // makes the topology in that case, else nil
	life     lifecycle
	runner   operation.Runner
	metadata *metadata.Source
	sessions session.Pool
	clock    session.Clock
	warnings []connstring.Warning

	// What operations inherit, unless their options say otherwise.
	readPreference   *selection.ReadPreference
	readConcernLevel string
	writeConcern     WriteConcern
}

// New returns a client that is not started. It reads the files that the tls options name, and does
// no network I/O, not even for mongodb+srv.
func New(cfg connstring.Config, opt Options) (*Client, error) {
	rp, err := ReadPreference(&cfg)
	if err != nil {
		return nil, err
	}
	var ck check
	if checkWriteConcern(&cfg.WriteConcern, &ck); ck.err != nil {
		return nil, ck.err
	}
	if err := checkServerAPI(opt.ServerAPI); err != nil {
		return nil, err
	}
	source, err := newMetadata(&cfg, opt)
	if err != nil {
		return nil, err
	}
	opt.guardSink()
	c := &Client{
		metadata: source,
		runner: operation.Runner{
			Sink: opt.Sink, Timeout: cfg.Timeout, Admit: opt.AdmitMessage,
			API:        serverAPIElements(opt.ServerAPI),
			RetryReads: isOn(cfg.RetryReads), RetryWrites: isOn(cfg.RetryWrites),
			MaxAdaptiveRetries:  operation.DefaultMaxAdaptiveRetries,
			OverloadRetargeting: cfg.EnableOverloadRetargeting,
			Jitter:              opt.Jitter,
		},
		warnings:         warnings(&cfg),
		readPreference:   rp,
		readConcernLevel: cfg.ReadConcernLevel,
		writeConcern:     cfg.WriteConcern,
	}
	if n := shareOf(cfg.MaxPoolSize, opt.MaxRunOnShare); n > 0 {
		c.runner.RunOns = operation.NewRunOns(n, opt.Caller)
	}
	if c.runner.Jitter == nil {
		c.runner.Jitter = rand.Float64
	}
	c.sessions.Life = c.sessionLife
	c.runner.Sessions, c.runner.Clock = &c.sessions, &c.clock
	if n := cfg.MaxAdaptiveRetries; n != nil {
		c.runner.MaxAdaptiveRetries = int(*n)
	}
	c.runner.Deployment = deployment{c}
	if cfg.SRV {
		c.lookUp = func(ctx context.Context) error { return c.resolve(ctx, cfg, opt) }
		_, err = authenticator(&cfg, opt)
	} else {
		err = c.watch(&cfg, opt, nil)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// isOn returns an option that is on by default.
func isOn(option *bool) bool { return option == nil || *option }

// guardSink keeps the panics of the sink from the driver.
func (o *Options) guardSink() {
	if o.Sink != nil {
		o.Sink = event.Join(o.SinkPanicked, o.Sink)
	}
}

// watch creates the topology.
func (c *Client) watch(cfg *connstring.Config, opt Options, srv *seedlist.Poller) error {
	watch, err := topologyConfig(cfg, opt, c.metadata)
	if err != nil {
		return err
	}
	watch.SRV = srv
	t, err := topology.New(watch)
	if err != nil {
		return err
	}
	c.topology.Store(t)
	return nil
}

// Topology returns the current description of the deployment.
func (c *Client) Topology() description.Topology {
	if t := c.topology.Load(); t != nil {
		return t.Description()
	}
	return description.Topology{}
}

// ClusterTime returns the newest cluster time that a server has told this client in any reply.
func (c *Client) ClusterTime() session.ClusterTime { return c.clock.Now() }

// Warnings returns what is deprecated in the connection string, and what has no effect yet.
func (c *Client) Warnings() []connstring.Warning { return c.warnings }

// AppendMetadata adds a library that wraps the driver to the metadata that servers receive, after
// the libraries that it already has. A library equal to one of them is not added again. Only
// connections that are made later send it. If the library is invalid, AppendMetadata returns an
// error and changes nothing.
func (c *Client) AppendMetadata(lib metadata.Library) error { return c.metadata.Append(lib) }

// nearest selects any server that answers for documents.
var nearest = &selection.ReadPreference{Mode: selection.Nearest}

// Ping runs the ping command on any server.
func (c *Client) Ping(ctx context.Context) error {
	op := operation.Operation{
		Database: "admin", Command: ping{}, ReadPreference: nearest, DeadlineAsMaxTime: true,
	}
	_, err := c.run(ctx, &op, &Common{})
	return err
}

type ping struct{}

func (ping) Name() string { return "ping" }

func (ping) Append(b *bson.Builder, _ operation.Target) error {
	b.Int32("ping", 1)
	return nil
}

// run runs an operation of one command.
func (c *Client) run(
	ctx context.Context, op *operation.Operation, o *Common,
) (operation.Result, error) {
	ctx, done := c.runner.Begin(ctx, o.Timeout, time.Time{})
	defer done()
	return c.runner.Run(ctx, op)
}

// timeout returns the timeoutMS of an operation, nil if none is set.
func (c *Client) timeout(o *Common) *time.Duration {
	if o.Timeout != nil {
		return o.Timeout
	}
	return c.runner.Timeout
}

// read returns the operation of a command that reads.
func (c *Client) read(ns Namespace, cmd operation.Command, o *Common) operation.Operation {
	return operation.Operation{
		Database: ns.Database, Collection: ns.Collection, Command: cmd, Session: o.session(),
		Retry:             true,
		ReadPreference:    c.readPreferenceFor(o.ReadPreference),
		ReadConcern:       c.readConcernFor(o.ReadConcern),
		DeadlineAsMaxTime: true, RunOn: o.RunOn, Caller: o.Caller,
	}
}

// write returns the operation of a command that writes.
func write(ns Namespace, cmd operation.Command, wc WriteConcern, o *Common) operation.Operation {
	return operation.Operation{
		Database: ns.Database, Collection: ns.Collection, Command: cmd, Kind: operation.Write,
		Session: o.session(), Unacknowledged: unacknowledged(wc),
		DeadlineAsMaxTime: true, RunOn: o.RunOn, Caller: o.Caller,
	}
}

func (c *Client) readPreferenceFor(opt *selection.ReadPreference) *selection.ReadPreference {
	if opt == nil {
		return c.readPreference
	}
	return opt
}
