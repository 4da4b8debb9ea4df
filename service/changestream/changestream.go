// Package changestream implements ChangeStreamService: streams of changes, and the tickets that
// open them. Streams share the cursors of service/hub if share.go finds that they can; another one
// has a cursor of its own on the server, which ends with the stream. core/changestream reads the
// changes and resumes after errors; service/stream sends them at the pace of the client.
package changestream

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/session"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/hub"
	"github.com/mooringdb/mooring/service/match"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/stream"
)

// Config configures a Server. All fields are required.
type Config struct {
	Client  *client.Client
	Streams *stream.Streams
	Tickets *Tickets
	// Hub is closed by the caller, when all calls have ended.
	Hub *hub.Hub
	// Stopping ends when the gateway begins to stop. Watches, which may have no other end, end
	// then.
	Stopping context.Context //nolint:containedctx // it is the gateway's, not a call's
}

// Server serves ChangeStreamService.
type Server struct {
	mooringv1.UnsafeChangeStreamServiceServer
	cfg Config
	// stopped counts the streams that have ended because the gateway stops.
	stopped atomic.Int64
	// own counts the streams with a cursor of their own.
	own atomic.Int64
	// catchUps counts the streams that catch up, of which each principal has a share.
	catchUps *admission.Count
	// taken counts the bytes of events that streams have taken from shared cursors and not sent.
	taken *admission.Count
}

var _ mooringv1.ChangeStreamServiceServer = (*Server)(nil)

// New returns the service.
func New(cfg Config) *Server {
	return &Server{
		cfg: cfg,
		catchUps: admission.NewCount("change streams that catch up",
			admission.Limits{Total: int64(cfg.Hub.MaxCatchUps())}),
		taken: admission.NewCount("bytes of events that are not sent",
			admission.Limits{Each: cfg.Hub.MaxTaken()}),
	}
}

// errStopping ends the streams of a gateway that stops. A client goes on elsewhere. It is a
// cancellation for an aggregate that has been sent, whose cursor must be closed.
var errStopping = &rpcerr.Error{
	Reason: rpcerr.ShuttingDown,
	Message: "the gateway is shutting down: resume after the last token at " +
		"another replica",
	Err: context.Canceled,
}

// errBehind ends a stream that needs a cursor to catch up, and there is none. Others use them for a
// short time only.
var errBehind = &rpcerr.Error{
	Reason: rpcerr.ChangeStreamBehind,
	Message: "too many streams of this replica are catching up: resume " +
		"after the last token, a little later or at another replica",
	Err: hub.ErrBehind,
}

// Stats says how many streams there are, by their cursors.
type Stats struct {
	hub.Stats

	// Own counts the streams with a cursor of their own.
	Own int
}

// Stats returns the present figures.
func (s *Server) Stats() Stats { return Stats{s.cfg.Hub.Stats(), int(s.own.Load())} }

// Stopped returns the number of open streams that have ended because the gateway stops.
func (s *Server) Stopped() int { return int(s.stopped.Load()) }

// Watch sends changes until the server ends the stream, the client goes away or the gateway stops.
func (s *Server) Watch(
	req *mooringv1.WatchRequest, ss grpc.ServerStreamingServer[mooringv1.WatchResponse],
) error {
	ctx, leave, err := s.enter(ss.Context())
	if err != nil {
		return err
	}
	defer leave()
	r := request.Read(ctx, withoutTransaction{req}, nil)
	ns, opt := read(r, req)
	if err := r.Err(); err != nil {
		return err
	}
	changes, shared, err := s.open(ctx, r, req, ns, opt)
	if err != nil {
		return s.explain(ctx, err)
	}
	out := &sender{ss, shared}
	err = s.cfg.Streams.Watch(ctx, stream.Watch{
		Changes: changes, MaxBatch: req.GetBatchSize(),
		Send: func(events []bson.Raw) error {
			return sendAllowed(r, out, s.cfg.Streams.MessageBytes(), events)
		},
		Progress: func(token bson.Raw) error { return sendProgress(r, out, token) },
	})
	return s.explain(ctx, err)
}

// enter has a call counted as a stream, before its request is read: a stream beyond the count costs
// as little as it can. The context that it returns ends when the gateway stops, too. The caller
// must call leave.
func (s *Server) enter(
	ctx context.Context,
) (until context.Context, leave func(), err error) {
	if s.cfg.Stopping.Err() != nil {
		return nil, nil, errStopping
	}
	account, ticket := admission.From(ctx), call.From(ctx).Ticket
	if err := account.EnterChangeStream(ctx, ticket); err != nil {
		return nil, nil, err
	}
	until, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.cfg.Stopping, func() { cancel(errStopping) })
	return until, func() {
		stop()
		cancel(nil)
		account.LeaveChangeStream(ticket)
	}, nil
}

// open opens the stream of a request, and reports whether it shares a cursor.
func (s *Server) open(
	ctx context.Context, r *request.Reader, req *mooringv1.WatchRequest,
	ns client.Namespace, opt client.WatchOptions,
) (changes stream.Changes, shared bool, err error) {
	topology, _ := s.cfg.Client.WatchTopology()
	of, ok := sharing(req, ns, &opt, topology.Servers)
	if !ok || r.Session != nil {
		changes, err = s.openOwn(ctx, ns, opt)
		return changes, false, err
	}
	if err := charge(ctx, of.filter); err != nil {
		return nil, true, err
	}
	of.marks = r.Events != nil
	var since session.Timestamp
	if of.after == nil {
		since = s.cfg.Client.ClusterTime().Timestamp()
	}
	subscription, err := s.subscribe(ctx, of, s.newOpener(ctx, ns, &opt))
	switch {
	case of.needNot(err):
		changes, err = s.openOwn(ctx, ns, opt)
		return changes, false, err
	case err != nil:
		return nil, true, err
	}
	return &sharedChanges{subscription, of, since, func(
		ctx context.Context, after bson.Raw,
	) (stream.Changes, error) {
		opt.ResumeAfter, opt.StartAfter = nil, after
		return s.openOwn(ctx, ns, opt)
	}}, true, nil
}

// charge has a call charged for its filter, nil if it has none, until the call ends.
func charge(ctx context.Context, filter *match.Filter) error {
	if filter == nil {
		return nil
	}
	return admission.From(ctx).Grow(ctx, int64(filter.Size()))
}

// reserved is how many connections of a pool change streams leave to other calls, or a fifth of a
// smaller pool.
const reserved = 20

// MaxCursors returns how many cursors of streams may be open at a time where pools have this
// maximum size; 0 stands for no maximum, and the result 0 for any number. Each cursor uses a
// connection while the server waits for changes, so other calls have only what is left of the pool.
func MaxCursors(maxPoolSize uint64) int64 {
	if maxPoolSize == 0 {
		return 0
	}
	most := maxPoolSize - min(reserved, maxPoolSize/5)
	return int64(min(most, math.MaxInt64))
}

// explain returns the error of a stream that ended with err. If timeoutMS was over, the stream can
// go on after its last token, other than at the deadline of the call.
func (s *Server) explain(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		s.stopped.Add(1)
		return errStopping
	}
	switch {
	case errors.Is(err, hub.ErrClosed):
		return errStopping
	case errors.Is(err, hub.ErrBehind):
		return errBehind
	}
	_, timedOut := errors.AsType[*operation.TimeoutError](err)
	if (timedOut || errors.Is(err, context.DeadlineExceeded)) && !isOver(ctx) {
		return &rpcerr.Error{
			Reason: rpcerr.DeadlineExceeded, Message: err.Error(), Retry: rpcerr.Restart, Err: err,
		}
	}
	return err
}

// isOver reports whether ctx has ended, or is about to since its deadline has passed.
func isOver(ctx context.Context) bool {
	deadline, timed := ctx.Deadline()
	return ctx.Err() != nil || timed && !time.Now().Before(deadline)
}

// sender sends the messages of a stream.
type sender struct {
	ss grpc.ServerStreamingServer[mooringv1.WatchResponse]
	// shared is what the first message says, and false after it.
	shared bool
}

func (s *sender) send(m *mooringv1.WatchResponse) error {
	m.Shared, s.shared = s.shared, false
	if err := s.ss.Send(m); err != nil {
		return err
	}
	admission.From(s.ss.Context()).GoOn() // the client has a part of the result
	return nil
}

// sendAllowed sends what the client may see of events. Their tokens name documents, so that none is
// sent of an event that it may not see: Progress follows with one that is no event's.
func sendAllowed(
	r *request.Reader, ss *sender, bytes int, events []bson.Raw,
) error {
	if r.Events == nil {
		return sendEvents(r, ss, bytes, events)
	}
	allowed := make([]bson.Raw, 0, len(events))
	for _, event := range events {
		if limited, ok := r.Events.Event(event); ok {
			allowed = append(allowed, limited)
		}
	}
	if len(allowed) == 0 {
		return nil
	}
	return sendEvents(r, ss, bytes, allowed)
}

// sendEvents sends events, in messages with at most so many bytes, or one event.
func sendEvents(
	r *request.Reader, ss *sender, bytes int, events []bson.Raw,
) error {
	send := r.Batches(bytes, func(docs []*mooringv1.Document) error {
		last, _ := events[len(docs)-1].Lookup("_id")
		events = events[len(docs):]
		id, _ := last.Document()
		token, err := r.Encoding.Document(id)
		if err != nil {
			return err
		}
		return ss.send(&mooringv1.WatchResponse{Documents: docs, ResumeToken: token})
	})
	return send(events)
}

// sendProgress sends a message without events.
func sendProgress(
	r *request.Reader, ss *sender, token bson.Raw,
) error {
	encoded, err := r.Encoding.Document(token)
	if err != nil {
		return err
	}
	return ss.send(&mooringv1.WatchResponse{ResumeToken: encoded})
}

// withoutTransaction represents a request that no transaction can have.
type withoutTransaction struct{ *mooringv1.WatchRequest }

// GetTransaction returns no token.
func (withoutTransaction) GetTransaction() string { return "" }
