// Package interceptor provides the interceptors of all calls, gRPC and REST alike. They give a call
// an id, a principal and a deadline, log and count it, and convert its errors and panics to a
// status. When the gateway shuts down, calls can be refused and canceled (see Gate).
//
// The package decides nothing about what a call does.
package interceptor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/recent"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Config configures the interceptors.
type Config struct {
	// Logger gets one debug line for each call, and summaries (see log). If it is nil, nothing is
	// logged.
	Logger *slog.Logger
	// SlowRequest is how long a unary call may take until it is logged as slow; 0: none is.
	SlowRequest time.Duration
	// Recent remembers the unary calls that were slow and all that were refused; nil: nothing does.
	Recent *recent.List
	// Meter counts the calls. If it is nil, nothing does.
	Meter Meter
	// Sessions opens the tokens of sessions. If it is nil, calls in sessions are refused.
	Sessions call.Sessions
	// Idempotency makes writes with a key exactly-once. If it is nil, such calls are refused.
	Idempotency call.Idempotency
	// Transactions runs calls in transactions. If it is nil, such calls are refused.
	Transactions call.Transactions
	// Replicas reaches the other replicas. If it is nil, there are none.
	Replicas Replicas
	// Audit gets the calls that belong to the log of what was changed and refused; nil: none.
	Audit *audit.Log
	// Gate counts the calls. If it is nil, the interceptors use a gate that is never closed.
	Gate *Gate
	// Callers finds out who makes the calls of the network, before they are read (see
	// Chain.Authenticate). If it is nil, clients are not authenticated.
	Callers *caller.Authenticator
	// Policy decides what clients may do. If it is nil, they may do everything, but see Operators.
	Policy *policy.Enforcer
	// Operators lists the principals that may call DeploymentService if there is no Policy. If it
	// is nil, all clients may; if it is empty, none.
	Operators []string
	// Admission limits what calls use. If it is nil, nothing is limited.
	Admission *admission.Admission
	// Comment returns the comment of a call's commands, unless the client gives one. If it is nil,
	// or returns nil, they have none.
	Comment func(context.Context) *bson.Value
	// Terse sets call.Call.Terse of all calls.
	Terse bool
	// OperatorTexts makes an exception of Terse: for clients that may see the servers of the
	// deployment by the Policy, or without one as Operators.
	OperatorTexts bool
	// DefaultTimeout limits unary calls that have no deadline; 0 means no limit.
	DefaultTimeout time.Duration
	// MaxTimeout limits unary calls, whatever deadline they have; 0 means no limit.
	MaxTimeout time.Duration
	// StallTimeout is how long the client of a stream may leave a message unread. A client that
	// has stopped reading must not hold a cursor, and perhaps its connection, forever. 0 means
	// DefaultStallTimeout.
	StallTimeout time.Duration
}

// Meter counts calls. Its methods must not block.
type Meter interface {
	// Ended counts a call of a method that has ended with a code and, unless it succeeded, a
	// reason.
	Ended(method string, stream bool, code codes.Code, reason string, took time.Duration)
	// Refused counts a request that was refused before it was a call.
	Refused(code codes.Code, reason string)
}

// DefaultStallTimeout is the default of Config.StallTimeout.
const DefaultStallTimeout = 10 * time.Minute

// Chain combines all interceptors, in their order, into one.
type Chain struct {
	cfg     Config
	limits  atomic.Pointer[Timeouts]
	steps   []step // of the calls of clients
	onward  []step // of the calls that other replicas forward
	stalled error  // ends a stream whose client does not read
	silent  error  // ends a stream whose client does not send
	live    live
}

// Timeouts holds Config.DefaultTimeout and Config.MaxTimeout.
type Timeouts struct{ Default, Max time.Duration }

// SetTimeouts changes the timeouts of calls that begin from now on.
func (x *Chain) SetTimeouts(t Timeouts) { x.limits.Store(&t) }

// step represents one interceptor, for unary calls and streams alike.
type step struct {
	name string
	// run runs the rest of the call with c.next.
	run func(ctx context.Context, c *pass) error
	at  runsAt
}

// runsAt says which replicas run a step of a call that one forwards to another.
type runsAt uint8

const (
	// each replica that the call comes to.
	each runsAt = iota
	// first is only the replica that the client has called. If a call waited for its place at
	// both, two replicas whose calls all wait for a place at the other would wait for each other.
	first
)

// New returns the interceptors.
func New(cfg Config) *Chain {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Gate == nil {
		cfg.Gate = NewGate()
	}
	if cfg.StallTimeout == 0 {
		cfg.StallTimeout = DefaultStallTimeout
	}
	x := &Chain{cfg: cfg, stalled: &rpcerr.Error{
		Reason: rpcerr.StreamStalled,
		Message: fmt.Sprintf("the stream has ended: the client has read nothing for %s",
			cfg.StallTimeout),
	}}
	x.SetTimeouts(Timeouts{cfg.DefaultTimeout, cfg.MaxTimeout})
	x.silent = &rpcerr.Error{
		Reason: rpcerr.StreamStalled,
		Message: fmt.Sprintf("the stream has ended: the client has sent nothing for %s",
			cfg.StallTimeout),
	}
	x.steps = []step{
		{"identify", x.identify, each}, // the request's id, and the client's name
		{"pace", x.pace, first},        // holds back refusals of a client that has had many
		{"count", x.count, first},      // the metrics, with the status that the client gets
		{"log", x.log, each},           // one line, with the status that the client gets
		{"audit", x.audit, first},      // one line for a write and a refusal
		{"explain", x.explain, each},   // errors become a status
		{"recover", x.recover, each},   // panics become errors
		{"permit", x.permit, first},    // refuses clients that the listener has not authenticated
		{"gate", x.gate, each},         // refuses and cancels calls during shutdown
		{"deadline", x.deadline, each}, // the shortest of all timeouts and deadlines
		{"charge", x.charge, each},     // opens the account of the memory that the call uses
		{"admit", x.admit, first},      // waits for a place among the calls in flight
		{"inform", x.inform, each},     // puts the call into the handler's context
		{"decide", x.decide, first},    // refuses or changes the request, as the policy says
		{"route", x.route, first},      // has another replica make the call, if it has to
		{"transact", x.transact, each}, // runs the call in its transaction
	}
	if cfg.Policy != nil {
		cfg.Policy.Follow(x.review)
	}
	if cfg.Callers != nil {
		cfg.Callers.Follow(x.review)
	}
	x.onward = slices.DeleteFunc(slices.Clone(x.steps), func(s step) bool { return s.at == first })
	return x
}

// stepsOf returns the steps of a call.
func (x *Chain) stepsOf(ctx context.Context) []step {
	if call.LocalFrom(ctx).Forwarded {
		return x.onward
	}
	return x.steps
}

// pass holds the state of one call while it passes through the steps. It is one value, so that a
// request needs one allocation.
type pass struct {
	call    call.Context // its Context is set for the handler, in inform
	method  string
	steps   []step            // that have not run yet
	place   place             // in the gate
	account admission.Account // of calls whose listener has opened none
	queued  time.Duration     // in admit

	// policy checks the requests of the call; it is used if Config.Policy is set.
	policy  policy.Call
	grounds policy.Grounds // what it has decided; review reads it
	checked bool           // policy is set
	settled bool           // call.Terse is what the policy says: see isTerse

	chain *Chain
	// Of a unary call:
	request, response any
	unary             grpc.UnaryHandler
	// Of a stream:
	server any
	wire   grpc.ServerStream
	stream grpc.StreamHandler // nil: the call is unary
	// receives says that the client sends a stream.
	receives bool
	// replay is the message that the handler of a stream receives when it runs again: see route.
	replay proto.Message
}

func (c *pass) next(ctx context.Context) error {
	if len(c.steps) == 0 {
		return c.handle(ctx)
	}
	s := c.steps[0]
	c.steps = c.steps[1:]
	return s.run(ctx, c)
}

func (c *pass) handle(ctx context.Context) (err error) {
	if c.stream != nil {
		s := &stream{ServerStream: c.wire, ctx: ctx, call: c, leave: func(error) {}}
		defer func() {
			s.sends.close()
			s.receives.close()
			s.leave(err)
		}()
		return c.stream(c.server, s)
	}
	if c.response, err = c.unary(ctx, c.request); err == nil {
		c.finish(c.response)
	}
	return err
}

// finish completes a response: with the renewed token of the session, and, if the call is quiet,
// without the server's words. What a call has done that must not be done again is not hidden behind
// a lack of memory for the response: that waits.
func (c *pass) finish(response any) {
	if c.isOnce() {
		c.call.Account.GoOn()
	}
	c.renewSession(response)
	if m, ok := response.(proto.Message); ok && (c.call.Quiet || c.call.Terse) {
		rpcerr.Hush(m, c)
	}
}

// isOnce reports whether the call must not be made again without a key once it is done.
func (c *pass) isOnce() bool {
	m := method.Of(c.method)
	return m != nil && (m.Repeat == mooringv1.Method_REPEAT_NEVER ||
		m.Repeat == mooringv1.Method_REPEAT_KEY)
}

var _ rpcerr.Hider = (*pass)(nil)

// Hides reports whether the client does not see the server's words in a response.
func (c *pass) Hides() bool { return c.call.Quiet || c.isTerse() }

// isTerse reports whether errors tell the client neither addresses of servers nor their texts. It
// asks the policy once, so only calls that have an error call it.
func (c *pass) isTerse() bool {
	if c.call.Terse && !c.settled {
		c.settled = true
		c.call.Terse = !c.chain.cfg.OperatorTexts || !c.isOperator()
	}
	return c.call.Terse
}

// renewSession puts the token that continues the call's session into a response.
func (c *pass) renewSession(response any) {
	if c.call.Session == nil {
		return
	}
	m, ok := response.(proto.Message)
	if !ok {
		return
	}
	field := m.ProtoReflect().Descriptor().Fields().ByName("session")
	if field == nil || m.ProtoReflect().Has(field) { // by the replica that has made the call
		return
	}
	if t := c.call.Transaction; t != nil {
		request.Inform(c.call.Session, t.Session)
	}
	token := c.call.Sessions.Seal(c.call.Principal, c.call.Session)
	m.ProtoReflect().Set(field, protoreflect.ValueOfString(token))
}

// Unary returns the interceptor of unary calls.
func (x *Chain) Unary() grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		c := &pass{
			method: LogPath(info.FullMethod), steps: x.stepsOf(ctx), chain: x, request: req,
			unary: handler,
		}
		if err := c.next(ctx); err != nil {
			return nil, err
		}
		return c.response, nil
	}
}

// Stream returns the interceptor of streams.
func (x *Chain) Stream() grpc.StreamServerInterceptor {
	return func(
		srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
	) error {
		c := &pass{
			method: LogPath(info.FullMethod), steps: x.stepsOf(ss.Context()),
			chain: x, server: srv, wire: ss, stream: handler, receives: info.IsClientStream,
		}
		return c.next(ss.Context())
	}
}

// stream wraps a stream and has the context that the steps have made.
type stream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // as grpc has it
	call *pass
	// joined says that the first message was received, which may have joined a transaction. leave
	// ends the stream's part in it.
	joined bool
	leave  func(error)
	// sends and receives pass the messages; nil: none has passed yet.
	sends, receives *lane
}

func (s *stream) Context() context.Context { return s.ctx }

// SendMsg sends a message. It blocks until the transport has accepted the message, the context ends
// or StallTimeout has passed. Without these limits, a client that does not read would block the
// handler, and hold its cursor, after the end of a drain or forever.
func (s *stream) SendMsg(m any) error {
	chain := s.call.chain
	s.call.finish(m)
	if s.sends == nil {
		s.sends = newLane(s.ctx, chain.cfg.StallTimeout, chain.stalled)
		if x, ok := s.ServerStream.(interruptible); ok {
			s.sends.direct = x.SendMsgContext
		} else {
			s.sends.start(s.ServerStream.SendMsg)
		}
	}
	return s.sends.pass(m)
}

// RecvMsg receives a message, and runs the steps that need it: decide and, with the first message,
// transact. On a stream that the client sends, it blocks until the message is there, the context
// ends or StallTimeout has passed: otherwise a client that sends nothing would block the handler
// after the end of a drain, or forever. The transport may still write to m then.
//
// If the first message has a transaction's token, the stream runs in that transaction, and has
// another context.
func (s *stream) RecvMsg(m any) error {
	if again := s.call.replay; again != nil {
		s.call.replay, s.joined = nil, true
		to, _ := m.(proto.Message) // always
		proto.Merge(to, again)
		return nil
	}
	if err := s.receive(m); err != nil {
		return err // the transport may still write to m
	}
	if s.call.request == nil {
		s.call.request = m
	}
	if err := s.call.check(s.ctx, m); err != nil || s.joined {
		return err
	}
	s.joined = true
	return s.join(m)
}

func (s *stream) receive(m any) error {
	if !s.call.receives {
		return s.ServerStream.RecvMsg(m)
	}
	if s.receives == nil {
		chain := s.call.chain
		s.receives = newLane(s.ctx, chain.cfg.StallTimeout, chain.silent)
		if x, ok := s.ServerStream.(interruptible); ok {
			s.receives.direct = x.RecvMsgContext
		} else {
			s.receives.start(s.ServerStream.RecvMsg)
		}
	}
	return s.receives.pass(m)
}
