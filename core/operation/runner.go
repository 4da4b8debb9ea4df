package operation

import (
	"context"
	"errors"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/session"
)

// Runner runs operations on a deployment. Its fields must not change after the first operation.
type Runner struct {
	Deployment Deployment
	// Sink receives command events; nil: none are emitted.
	Sink *event.Sink
	// Timeout is timeoutMS: how long an operation may take, with all its commands. 0 sets no limit,
	// and with nil the older limits apply. Begin applies it; Run does not.
	Timeout *time.Duration
	// RetryReads and RetryWrites allow a further attempt after an error: see Operation.Retry.
	RetryReads, RetryWrites bool
	// MaxAdaptiveRetries is how often an operation is retried at most once it has met an overloaded
	// server. OverloadRetargeting has such a retry prefer other servers.
	MaxAdaptiveRetries  int
	OverloadRetargeting bool
	// Jitter returns a random number from 0 to 1, for waits; nil: math/rand.
	Jitter func() float64
	// API is what every command carries to declare the stable API; nil: nothing.
	API bson.Raw
	// Sessions has the server sessions of implicit sessions; nil: commands run in none.
	Sessions *session.Pool
	// Clock has the newest cluster time of the deployment; nil: commands carry none.
	Clock *session.Clock
	// Admit, if set, is called before the buffer of a message of at least bson.LargeBuffer bytes is
	// taken, with the context of the operation. It may block. If it fails, so does the operation,
	// with nothing sent. Otherwise done is called when the buffer is not used any more.
	Admit func(ctx context.Context, size int) (done func(), err error)
	// RunOns limits the operations with Operation.RunOn that go on without their callers; nil: all
	// do. One more ends with its caller, or a read ends for one that is not a read.
	RunOns *RunOns
}

// Run runs an operation, with another attempt after an error where the specifications allow one:
// see Operation.Retry. It blocks until the operation or ctx, which Begin has made, has ended. While
// it waits before another attempt, it holds no connection.
//
// A reply with ok: 0 is a *mongoerr.CommandError, and one with writeErrors a
// *mongoerr.WriteException beside the Result; for a Generic operation no reply with ok: 1 is an
// error. The error of the command's Append is inside Run's, and nothing has been sent then. If time
// ran out, here or on the server, errors.Is(err, context.DeadlineExceeded) holds.
//
// mongoerr.Judge says of the error how far all attempts together got. If it is not known whether a
// command that may change data did so, the error is an *OutcomeUnknownError.
func (r *Runner) Run(ctx context.Context, op *Operation) (res Result, err error) {
	if op.Session != nil {
		op.Session.Enter()
		defer op.Session.Leave()
	}
	c := course{runner: r, firstID: nextRequestID(), part: joinTransaction(op)}
	c.ledger = c.part.ledger(op)
	defer c.end()
	if op.ID == 0 && r.Sink.HearsOperations() {
		t := r.trace(ctx, op, int64(c.firstID))
		defer func() { t.end(err) }()
	}
	o := c.attempt(ctx, op)
	if op.trouble(&o) != nil {
		o = c.goOn(ctx, op, o)
	}
	c.part.finish(c.ledger, o.err)
	if o.err == nil && op.Keep {
		o.res.Session, c.implicit = c.implicit, nil
	}
	return o.res, o.err
}

func (c *course) attempt(ctx context.Context, op *Operation) outcome {
	res, err := c.exchange(ctx, op)
	o := outcome{res, err}
	if op.trouble(&o) != nil {
		c.label(op, &o)
	}
	c.part.conclude(&o)
	return o
}

// exchange selects a server, and exchanges command and reply on a connection to it.
func (c *course) exchange(ctx context.Context, op *Operation) (Result, error) {
	c.server, c.hello, c.sent = nil, nil, false
	if err := ended(ctx); err != nil {
		return Result{}, err
	}
	if op.Session != nil && op.Session.Err() != nil {
		return Result{}, op.Session.Err()
	}
	preference, err := c.part.preference(op)
	if err != nil {
		return Result{}, err
	}
	r := c.runner
	x := exchange{runner: r, preference: preference, requestID: c.nextID()}
	pin, sel := c.part.pinned()
	if op.On != nil {
		pin = op.On
	}
	defer x.endTurn()
	if pin != nil {
		if err := pin.begin(ctx); err != nil {
			return Result{}, err
		}
		x.server, x.conn, x.pin, x.pinned = pin.server, pin.conn, pin, true
		return x.run(ctx, c, op)
	}
	if sel == nil || op.Selector != nil {
		sel = op.selector(preference)
	}
	named := selection.Deprioritize(sel, c.avoided...)
	if r.Sink.HearsSelection() {
		named = selection.For(named, op.Command.Name(), c.operationID(op))
	}
	watch := startWatch(ctx)
	server, err := r.Deployment.Select(ctx, named)
	watch.selected()
	if err != nil {
		return Result{}, err
	}
	c.server = server // also that of a check-out that fails
	conn, err := server.CheckOut(ctx)
	watch.checkedOut()
	if err != nil {
		return Result{}, err
	}
	if out, ok := sel.(*output); ok {
		x.preference = out.used
	}
	x.server, x.conn = server, conn
	return x.run(ctx, c, op)
}

// nextID returns the number of the next command: that of the first is the course's.
func (c *course) nextID() int32 {
	if c.begun {
		return nextRequestID()
	}
	c.begun = true
	return c.firstID
}

func (op *Operation) selector(rp *selection.ReadPreference) selection.Selector {
	switch {
	case op.Selector != nil:
		return op.Selector
	case op.Kind == Write:
		return selection.Write()
	case op.Kind == Output:
		return &output{preference: rp}
	default:
		return selection.Read(rp)
	}
}

// exchange represents one request on one connection, which is returned at its end unless it is
// pinned. The operation and its course are not part of it, so that they stay on the stack of their
// callers.
type exchange struct {
	runner *Runner
	conn   Conn
	server Server
	req    *request
	// preference is what the server was selected by.
	preference *selection.ReadPreference
	// session is what the command is sent as; nil: nothing.
	session identity

	requestID       int32 // of the command in events
	deadlineSent    bool  // maxTimeMS was sent for the context's deadline
	reauthenticated bool  // the server had asked for it

	pin    *Pin // of the connection, whose turn the exchange has; nil: it has none
	pinned bool // the connection is another's, and stays checked out
	left   bool // the exchange is done with the connection
}

// operationID returns the number of the operation in events. With one command only, that is the
// number of its request.
func (c *course) operationID(op *Operation) int64 {
	if op.ID == 0 {
		return int64(c.firstID)
	}
	return op.ID
}

func (x *exchange) run(ctx context.Context, c *course, op *Operation) (Result, error) {
	x.req = requests.Get().(*request)
	defer x.req.release()
	// A refused command, or a bug that panics, must not cost the pool a connection.
	defer x.leave(nil)
	c.server, c.hello = x.server, x.conn.Hello()
	if err := x.join(c, op); err != nil {
		return Result{}, err
	}
	if err := x.pinTransaction(&c.part); err != nil {
		return Result{}, err
	}
	if err := x.req.build(ctx, op, x, c); err != nil {
		return Result{}, err
	}
	ctx, done := op.exchangeContext(ctx, x.runner.RunOns)
	defer done()
	return x.send(ctx, c, op)
}

// leave ends the use of the connection, once. It sets left first: the topology learns from the
// error, and a listener of its events may panic when the connection has been returned.
func (x *exchange) leave(lesson error) {
	if x.left {
		return
	}
	x.left = true
	if x.pinned {
		x.conn.Learn(lesson)
	} else {
		x.conn.CheckIn(lesson)
	}
}

// endTurn ends the turn of the exchange on a pinned connection.
func (x *exchange) endTurn() {
	if x.pin != nil {
		x.pin.end()
	}
}

func (x *exchange) send(ctx context.Context, c *course, op *Operation) (Result, error) {
	res := Result{
		Server: x.server.Description().Address, Hello: x.conn.Hello(), DeadlineSent: x.deadlineSent,
	}
	c.part.send()
	if op.isExact() {
		op.Session.MarkSent()
	}
	ev := x.runner.begin(x, c.operationID(op), op)
	c.sent = true
	if op.Unacknowledged {
		err := x.conn.Write(ctx, x.req.msg)
		x.leave(err)
		ev.end(unacknowledgedReply, err)
		return res, err
	}
	watch := startWatch(ctx)
	reply, lent, err := x.conn.RoundTrip(ctx, x.req.msg, op.Lend)
	watch.answered()
	if err != nil {
		x.markDirty(err)
		x.leave(err)
		ev.end(nil, err)
		return res, err
	}
	x.observe(&c.part, op, reply)
	res.Reply = reply
	err = mongoerr.FromReply(res.Server, reply)
	if x.wantsReauthentication(err) {
		lent.Keep()
		ev.end(nil, err)
		return x.sendAgain(ctx, c, op, err)
	}
	if op.Kind != Read && err == nil {
		res.WriteConcernError = mongoerr.WriteConcernErrorOf(res.Server, reply)
	}
	if err != nil || res.WriteConcernError != nil {
		lent.Keep() // the error has views of the reply
	} else {
		res.Lent = lent
	}
	if err == nil && op.Keep && op.On == nil && pins(x.server) {
		x.conn.Learn(lesson(nil, res.WriteConcernError))
		ev.end(reply, nil)
		x.left, res.Pin = true, x.keep()
		return res, nil
	}
	x.leave(lesson(err, res.WriteConcernError))
	if err != nil {
		return op.refused(res, err, &ev)
	}
	ev.end(reply, nil)
	return res, nil
}

// refused returns the outcome of a reply that carries an error.
func (op *Operation) refused(res Result, err error, ev *observation) (Result, error) {
	if malformed, ok := errors.AsType[*mongoerr.MalformedReplyError](err); ok {
		ev.end(nil, malformed)
		return res, malformed
	}
	if failed, ok := errors.AsType[*mongoerr.CommandError](err); ok {
		ev.end(nil, failed)
		if res.DeadlineSent {
			return res, Expired(failed)
		}
		return res, failed
	}
	ev.end(res.Reply, nil)
	if writes, ok := errors.AsType[*mongoerr.WriteException](err); ok {
		res.WriteConcernError = writes.WriteConcernError
		if op.Kind == Generic {
			return res, nil
		}
	}
	return res, err
}

// lesson returns the error from which the topology may learn something about the server.
func lesson(err error, wce *mongoerr.WriteConcernError) error {
	if err == nil && wce != nil {
		return wce
	}
	return err
}

// codeMaxTimeMSExpired is the code for a maxTimeMS that ran out. Its name and text differ between
// versions.
const codeMaxTimeMSExpired = 50

// Expired returns a *TimeoutError for a server's report that maxTimeMS ran out, and any other
// error as it is. It is for commands that run on the time of a deadline, not on a limit that the
// caller set.
func Expired(err error) error {
	if mongoerr.Code(err) == codeMaxTimeMSExpired {
		return &TimeoutError{Err: err}
	}
	return err
}
