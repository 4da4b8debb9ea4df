package cursor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/session"
)

// Options holds what a new cursor needs besides the operation and its reply; see State.
type Options struct {
	BatchSize int32
	// Limit is the number of documents over all batches; 0: no limit.
	Limit          int64
	MaxAwaitTimeMS *int64
	Comment        bson.Value
	// Timeout is the operation's timeoutMS; nil: the Runner's. It begins anew with each call of
	// Next, unless Lifetime says that the deadline of the operation is that of all calls.
	Timeout  *time.Duration
	Lifetime bool
}

// Open runs an operation whose reply has a cursor, and returns the cursor. A reply without one is
// a *mongoerr.MalformedReplyError. An operation of the kind Output or Write has written by then, so
// its error is an *operation.OutcomeUnknownError around that.
//
// Behind a load balancer, a cursor that stays open keeps the connection of the operation. If no
// more connections may be kept, Open closes the cursor on the server and returns an error.
func Open(
	ctx context.Context, r *operation.Runner, op operation.Operation, opt Options,
) (*Cursor, error) {
	op.Lend = true
	c, _, err := OpenResult(ctx, r, op, opt)
	return c, err
}

// OpenResult does what Open does, for replies with more than a cursor. It returns the operation's
// Result beside an error, too.
func OpenResult(
	ctx context.Context, r *operation.Runner, op operation.Operation, opt Options,
) (_ *Cursor, res operation.Result, err error) {
	op.Keep = true
	ctx, done := r.Begin(ctx, opt.Timeout, time.Time{})
	defer done()
	if res, err = r.Run(ctx, &op); err != nil {
		return nil, res, err
	}
	defer release(r, &res)
	c := &Cursor{
		runner: r, runOn: op.RunOn, pin: res.Pin, unconfirmed: res.WriteConcernError,
		timeout: opt.Timeout, expires: res.DeadlineSent, hello: res.Hello, session: op.Session,
	}
	if opt.Lifetime {
		c.deadline, _ = ctx.Deadline()
	}
	if s := op.Session; s != nil && s.IsExact() { // which is for writes alone
		c.session = r.Sessions.ResumeImplicit(s.ID())
	}
	opened := false
	defer func() { // by a panic, too
		if !opened {
			_ = c.Close(ctx)
		}
	}()
	if err := c.open(ctx, &res, opt); err != nil {
		if op.Kind == operation.Output || op.Kind == operation.Write {
			err = &operation.OutcomeUnknownError{Err: err}
		}
		return nil, res, err
	}
	opened = true
	return c, res, nil
}

// One runs an operation whose reply has all of the result in its first batch, and returns the
// first document of that, if there is one, and the server that answered. A cursor that the server
// leaves open nevertheless is killed.
func One(
	ctx context.Context, r *operation.Runner, op operation.Operation, timeout *time.Duration,
) (doc bson.Raw, found bool, from address.Address, err error) {
	op.Keep = true
	ctx, done := r.Begin(ctx, timeout, time.Time{})
	defer done()
	res, err := r.Run(ctx, &op)
	if err != nil {
		return nil, false, res.Server, err
	}
	if s := remains(res.Server, res.Reply); s.ID != 0 || res.Pin != nil {
		left := &Cursor{runner: r, timeout: timeout, pin: res.Pin, state: s, session: op.Session}
		left.takeSession(&res)
		_ = left.Close(ctx)
	}
	release(r, &res)
	doc, err = first(&res)
	return doc, doc != nil, res.Server, err
}

// takeSession takes the implicit session of the operation that opened the cursor, if it has one.
func (c *Cursor) takeSession(res *operation.Result) {
	if res.Session != nil {
		c.session, res.Session = c.runner.Sessions.Implicit(res.Session), nil
	}
}

// release returns the implicit session of an operation, unless a cursor has taken it.
func release(r *operation.Runner, res *operation.Result) {
	if res.Session != nil {
		r.Sessions.Release(res.Session)
		res.Session = nil
	}
}

// first returns the first document of the reply's batch, nil if that is empty.
func first(res *operation.Result) (bson.Raw, error) {
	p := parser{from: res.Server, batchName: firstBatch, firstOnly: true}
	err := p.parse(res.Reply)
	if err != nil {
		return nil, err
	}
	return p.first, nil
}

// open takes the cursor from the reply of the command. No other goroutine may have the cursor yet.
func (c *Cursor) open(ctx context.Context, res *operation.Result, opt Options) error {
	end, err := c.begin(res, opt)
	if err != nil {
		return err
	}
	_ = end.run(ctx)
	if c.pin != nil {
		return c.pin.HoldForCursor()
	}
	return nil
}

// begin sets the state and the first batch, and returns what is left to do if the cursor has ended.
func (c *Cursor) begin(res *operation.Result, opt Options) (end ending, err error) {
	p, err := parse(res.Server, res.Reply, firstBatch, res.Lent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.state = remains(res.Server, res.Reply)
		c.takeSession(res)
		return ending{}, err
	}
	if p.id != 0 {
		c.takeSession(res)
	}
	c.state = State{
		Server: res.Server, BatchSize: opt.BatchSize, Remaining: opt.Limit,
		MaxAwaitTimeMS: opt.MaxAwaitTimeMS, Comment: opt.Comment,
	}
	c.hasFirst = true
	c.first, end = c.acceptLocked(p)
	return end, nil
}

// remains returns what killCursors needs of a reply that is malformed elsewhere, since the server
// holds the cursor nevertheless.
func remains(from address.Address, doc bson.Raw) State {
	p := parser{from: from}
	for _, key := range []string{"id", "ns"} {
		v, ok := doc.Lookup("cursor", key)
		if !ok || p.element(key, v) != nil {
			return State{}
		}
	}
	if p.collection == "" {
		return State{}
	}
	return State{Server: from, ID: p.id, Database: p.database, Collection: p.collection}
}

// ending holds what is left to do for a cursor that has ended.
type ending struct {
	runner  *operation.Runner
	timeout *time.Duration
	server  address.Address
	command killCursors
	kill    bool // the server still has the cursor, and can be told
	// atOnce says that the server is told within the caller's context, if it is known to be there,
	// and that the session goes on.
	atOnce  bool
	pin     *operation.Pin
	session *session.Client
}

// endLocked takes what is left to do from the cursor, so that it is done once.
func (c *Cursor) endLocked() ending {
	e := ending{
		runner: c.runner, timeout: c.timeout, server: c.state.Server, command: killCursors(c.state),
		pin:     c.pin,
		kill:    c.state.ID != 0 && !c.lost,
		session: c.session,
	}
	c.state.ID, c.pin, c.session = 0, nil, nil
	return e
}

// run kills the cursor, with a time limit of its own, and returns its connection and its implicit
// session in any case. The error is that of killCursors.
func (e *ending) run(ctx context.Context) error {
	if e.session != nil && e.session.IsImplicit() && !e.atOnce {
		defer e.session.End()
	}
	if e.pin != nil {
		defer e.pin.Release()
	}
	if !e.kill {
		return nil
	}
	if !e.atOnce {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, done := e.runner.Begin(ctx, e.timeout, time.Now().Add(killTimeout))
	defer done()
	command := e.command // a copy, so that an ending that kills nothing costs no allocation
	_, err := e.runner.Run(ctx, &operation.Operation{
		Database: command.Database, Collection: command.Collection, Command: &command, On: e.pin,
		Session:           e.alive(),
		Selector:          present{selection.Address(e.server), e.server, e.atOnce},
		DeadlineAsMaxTime: e.runner.Limited(e.timeout),
	})
	return err
}

// alive returns the session, or nil if its user has ended it before the cursor.
func (e *ending) alive() *session.Client {
	if e.session == nil || e.session.Err() != nil {
		return nil
	}
	return e.session
}

// present selects a server of the deployment, and waits only while the server may come back. Once
// the deployment is known and the server is not part of it, the cursor is gone. With atOnce it does
// not wait.
type present struct {
	selection.Selector
	address address.Address
	atOnce  bool
}

func (p present) Select(
	t description.Topology, candidates []*description.Server,
) ([]*description.Server, error) {
	server := t.Server(p.address)
	switch {
	case server == nil && slices.ContainsFunc(t.Servers, (*description.Server).IsAvailable):
		return nil, errServerLeft
	case p.atOnce && (server == nil || !server.IsAvailable()):
		return nil, errServerAway
	}
	return p.Selector.Select(t, candidates)
}

var (
	errServerLeft = errors.New("the server that held the cursor has left the deployment")
	errServerAway = errors.New("the server that holds the cursor is not available")
)
