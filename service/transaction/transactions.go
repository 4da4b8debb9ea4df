package transaction

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/seal"
)

// DefaultIdle is the default of Config.Idle.
const DefaultIdle = time.Minute

// Config configures Transactions. Zero fields mean the defaults.
type Config struct {
	Client  *client.Client // required
	Cursors *paging.Pager  // required; the transactions are in its table
	Keys    *seal.Ring     // required
	// Deployment tells deployments apart. A token is valid for one deployment only.
	Deployment string
	// Idle is how long a transaction waits for its next call.
	Idle time.Duration
}

// Transactions keeps the transactions of this replica, in the table of handles.
//
// The table's lock guards the fields of the transactions, except those of the call that works on
// one, and ended. Nothing blocks while it is held.
type Transactions struct {
	cfg        Config
	table      *handle.Table
	deployment seal.Deployment
	draining   atomic.Bool
	drained    atomic.Int64 // the transactions that Drain has ended

	ended outcomes
}

var _ call.Transactions = (*Transactions)(nil)

// New returns the transactions of a gateway.
func New(cfg Config) *Transactions {
	if cfg.Idle == 0 {
		cfg.Idle = DefaultIdle
	}
	return &Transactions{
		cfg: cfg, table: cfg.Cursors.Table(),
		deployment: seal.NewDeployment(cfg.Deployment),
	}
}

// open holds one transaction. The table's lock guards its fields, except those of the call that
// works on it.
type open struct {
	handle.Handle
	of      *Transactions
	session *client.Session
	// committing says that Commit was called, and that the policy allows it. Only another Commit
	// may follow.
	committing bool
	outcome    outcome
	// remembers is charged with the result in statements, and with the grounds.
	remembers admission.Account

	// The call that works on the transaction, or has removed it, owns the fields below.
	statements statements
	// grounds is what the policy has allowed the operations by. remembers is charged with so many
	// bytes for it. allowed says that Commit has found that it still would.
	grounds policy.Grounds
	charged int64
	allowed bool
}

var _ handle.Thing = (*open)(nil)

// Describe completes what lists show.
func (o *open) Describe(i *handle.Info) {
	i.Replica = o.of.cfg.Cursors.Self().Address
	if server, _, ok := o.session.PinnedTo(); ok {
		i.Server = server
	}
}

// IsEvictable returns false.
func (o *open) IsEvictable() bool { return false }

// Evict returns o, and is not called.
func (o *open) Evict(*handle.Locked) handle.Thing { return o }

// Removed remembers how the transaction has ended.
func (o *open) Removed() {
	o.remembers.Close()
	switch {
	case o.outcome.kind != outcomeNone:
	case o.committing:
		o.become(outcome{kind: outcomeUnknown})
	default:
		o.become(outcome{
			kind: outcomeUnconfirmed, detail: o.whyRemoved(), asked: make(chan struct{}),
		})
	}
}

// become records how the transaction has ended, which calls may wait for. The table's lock is held.
func (o *open) become(end outcome) {
	if o.outcome.asked != nil {
		close(o.outcome.asked)
	}
	o.outcome = end
	o.of.ended.put(o.ID, end, time.Now())
}

// whyRemoved returns why the gateway ends a transaction of its own accord.
func (o *open) whyRemoved() string {
	switch {
	case o.Expired(time.Now()):
		return fmt.Sprintf("no call arrived for %s", o.of.cfg.Idle)
	case o.of.draining.Load():
		return "the gateway is shutting down"
	default:
		return "an operator has killed it, or the gateway had no room for it"
	}
}

func aborted(why string) outcome { return outcome{kind: outcomeAborted, detail: why} }

// End aborts the transaction if it is open, and ends its cursors.
func (o *open) End(ctx context.Context) {
	if o.outcome.asked != nil {
		end := o.abort(ctx, o.outcome.detail, client.EndTransactionOptions{})
		o.of.table.Do(func(*handle.Locked) { o.become(end) })
	}
	if o.outcome.kind == outcomeUnknown || o.outcome.kind == outcomeUnconfirmed {
		o.session.State() // its id does not return to the pool: see isForgotten
	}
	o.session.End(ctx)
	o.of.cfg.Cursors.EndTransaction(ctx, o.ID)
}

// abort aborts the transaction on the servers, and returns how it has ended.
func (o *open) abort(ctx context.Context, why string, opt client.EndTransactionOptions) outcome {
	return o.of.outcomeBy(abortNow(ctx, o.session, opt), why)
}

// outcomeBy returns how a transaction has ended, by the answer of the servers to abortTransaction.
func (s *Transactions) outcomeBy(answer error, why string) outcome {
	kind := abortedBy(answer)
	switch {
	case kind == outcomeCommitted, // by another replica, which could not reach this one
		errors.Is(answer, session.ErrAbortAfterCommit): // a commit of this one was sent
		return outcome{kind: outcomeUnknown}
	case kind == outcomeUnknown && s.canResume():
		return outcome{kind: outcomeUnconfirmed, detail: why}
	default:
		return aborted(why) // without a commit, servers abort it themselves
	}
}

// confirm returns how a transaction has ended that was to be aborted, once the servers were asked.
// If they have not answered yet, it asks them again.
func (s *Transactions) confirm(ctx context.Context, c claim, ended outcome) (outcome, error) {
	if ended.asked != nil {
		err := ended.wait(ctx)
		s.table.Do(func(*handle.Locked) {
			if told, known := s.ended.get(c.id, time.Now()); known {
				ended = told
			}
		})
		return ended, err
	}
	answer, err := s.abortAgain(ctx, c)
	if err != nil {
		return ended, err
	}
	ended = s.outcomeBy(answer, ended.detail)
	s.table.Do(func(*handle.Locked) { s.ended.put(c.id, ended, time.Now()) })
	return ended, nil
}

// Start begins a transaction, and returns its token and when it expires. A transaction has a
// session of its own, because no other process may use the session's id meanwhile. The transaction
// sees what the session after has seen, if that is not nil.
func (s *Transactions) Start(
	ctx context.Context, principal string, opt client.TransactionOptions, after *client.Session,
) (token string, expires time.Time, err error) {
	own, err := s.session(ctx, opt, after)
	if err != nil {
		return "", time.Time{}, err
	}
	o := &open{
		Handle: handle.Handle{
			Kind: handle.KindTransaction, Principal: principal, Opened: handle.Now(),
			Owner: admission.PrincipalOf(principal, admission.AddressFrom(ctx)),
		},
		of: s, session: own,
	}
	_, _ = rand.Read(o.ID[:]) // never fails
	c := claim{
		id: o.ID, owner: s.cfg.Cursors.Self(), begun: o.Opened,
		session: own.ID(), number: own.TransactionNumber(),
	}
	admission.From(ctx).OpenFor(&o.remembers)
	if err := s.add(o); err != nil {
		own.End(ctx)
		return "", time.Time{}, err
	}
	return s.cfg.Keys.Seal(principal, seal.Claim{
		Kind: seal.KindTransaction, Deployment: s.deployment, Body: c.encode(),
	}), time.Now().Add(s.cfg.Idle), nil
}

// missing returns an error if the deployment is known to have no transactions. If no server has
// answered yet, the first operation of a transaction finds out.
func (s *Transactions) missing() error {
	servers := s.cfg.Client.Topology().Servers
	if slices.ContainsFunc(servers, func(server *description.Server) bool {
		return server.Kind == description.ServerStandalone
	}) {
		return errStandalone
	}
	return nil
}

// add puts a new transaction into the table, if its principal may have one more.
func (s *Transactions) add(o *open) (err error) {
	s.table.Do(func(t *handle.Locked) {
		if t.Refusing() || s.draining.Load() {
			err = handle.ErrClosing
			return
		}
		err = t.HasRoom(o.Owner, func(handle.Thing) bool { return false })
		if err == nil {
			t.Evict(o.Owner)
			s.settle(t, o)
		}
	})
	return err
}

// session returns a new session in which a transaction has started.
func (s *Transactions) session(
	ctx context.Context, opt client.TransactionOptions, after *client.Session,
) (*client.Session, error) {
	own, err := s.cfg.Client.StartSession(session.Options{})
	if err != nil {
		return nil, err
	}
	if after != nil {
		request.Inform(own, after)
	}
	if err := own.StartTransaction(opt); err != nil {
		own.End(ctx)
		return nil, err
	}
	return own, nil
}

// settle puts a transaction among those that wait for their clients.
func (s *Transactions) settle(t *handle.Locked, o *open) {
	_, _, pinned := o.session.PinnedTo()
	t.Settle(o, handle.Settled{
		Open: true, Continues: true, Pinned: pinned, Idle: s.cfg.Idle,
	})
}

// errStandalone is the error of a transaction that cannot begin.
var errStandalone = &rpcerr.Error{
	Reason:  rpcerr.InvalidArgument,
	Message: "the deployment is a standalone server, which has no transactions",
}

// The errors of tokens and of calls that come at once.
var (
	errNotFound = notFound(nil)
	errBusy     = &rpcerr.Error{
		Reason: rpcerr.TransactionBusy, Field: "transaction",
		Message: "another call of the transaction is running",
	}
)

// errStopping is the error of a repeated Commit: the first one may have been made.
var errStopping = &rpcerr.Error{
	Reason: rpcerr.UnknownCommitResult, Field: "transaction",
	Message: "the gateway is shutting down",
}

// notFound refuses a token that does not open because of err, or whose transaction is not known.
func notFound(err error) *rpcerr.Error {
	return &rpcerr.Error{
		Reason: rpcerr.TransactionNotFound, Field: "transaction",
		Message: seal.Explain(err,
			"the token is wrong, or the transaction ended some time ago"),
	}
}

// claim opens a token.
func (s *Transactions) claim(principal, token string) (claim, error) {
	sealed, err := s.cfg.Keys.Open(principal, token, seal.KindTransaction, s.deployment)
	if err != nil {
		return claim{}, notFound(err)
	}
	c, err := decodeClaim(sealed.Body)
	if err != nil {
		return claim{}, errNotFound
	}
	return c, nil
}

// isHere reports whether this replica keeps the transaction.
func (s *Transactions) isHere(c claim) bool { return c.owner.Instance == s.self().Instance }

func (s *Transactions) self() page.Replica { return s.cfg.Cursors.Self() }

// begin begins a call's work on a transaction that is here, which may be to commit it. If the
// transaction has ended, it returns the outcome and no transaction. The caller must call finish.
func (s *Transactions) begin(
	ctx context.Context, c claim, commit bool,
) (working context.Context, o *open, ended outcome, err error) {
	var expired *open
	s.table.Do(func(t *handle.Locked) {
		found, _ := t.Get(c.id).(*open)
		now := time.Now()
		switch {
		case found == nil:
			known := false
			if ended, known = s.ended.get(c.id, now); !known {
				err = errNotFound
			}
		case found.Working():
			err = errBusy
		case found.Expired(now):
			expired = found
			t.Remove(found, nil)
		case (t.Refusing() || s.draining.Load()) && commit && found.committing:
			err = errStopping
		case t.Refusing() || s.draining.Load():
			err = handle.ErrClosing
		default:
			o = found
			working, _ = t.Begin(ctx, o, false)
		}
	})
	switch {
	case expired != nil:
		expired.End(ctx)
		ended = expired.outcome
	case ended.kind == outcomeUnconfirmed:
		ended, err = s.confirm(ctx, c, ended)
	}
	return working, o, ended, err
}

// finish ends a call's work on a transaction. end is how the call has ended it, if it has: that
// counts also if the transaction was removed meanwhile. If the transaction has ended, finish ends
// the session and the cursors, and returns the outcome.
func (s *Transactions) finish(ctx context.Context, o *open, end outcome) (ended outcome) {
	var w *handle.Work
	over := false
	s.table.Do(func(t *handle.Locked) {
		w = o.Work()
		if end.kind != outcomeNone {
			o.become(end)
			if !o.IsRemoved() {
				t.Remove(o, nil)
			}
		}
		if over = o.IsRemoved(); over {
			t.EndWork(o)
		} else {
			s.settle(t, o)
		}
	})
	if over {
		o.End(ctx)
		ended = o.outcome
	}
	w.Finish()
	return ended
}

// enter begins an operation of a transaction that is here.
func (s *Transactions) enter(ctx context.Context, c claim) (context.Context, *open, error) {
	ctx, o, ended, err := s.begin(ctx, c, false)
	switch {
	case err != nil:
		return nil, nil, err
	case o == nil:
		return nil, nil, ended.refusal()
	case o.committing:
		s.finish(ctx, o, outcome{})
		return nil, nil, errCommitting
	}
	call.From(ctx).Transaction = &call.Transaction{ID: o.ID, Session: o.session}
	return ctx, o, nil
}

// leave ends an operation, and returns its error: if the transaction was ended meanwhile, why.
func (s *Transactions) leave(ctx context.Context, o *open, err error) error {
	ended := s.finish(ctx, o, outcome{})
	if err != nil && ended.kind != outcomeNone {
		return ended.refusal()
	}
	return err
}

// Run implements call.Transactions.
func (s *Transactions) Run(
	ctx context.Context, in call.InTransaction, handler call.Handler,
) (response proto.Message, err error) {
	c, err := s.claim(call.From(ctx).Principal, in.Token)
	if err != nil {
		return nil, err
	}
	if !s.isHere(c) {
		return nil, s.elsewhere(ctx, c, operationFailed(in))
	}
	ctx, o, err := s.enter(ctx, c)
	if err != nil {
		return nil, err
	}
	returned := false
	defer func() {
		if !returned { // a panic
			_ = s.leave(ctx, o, nil)
		}
	}()
	if err = o.take(ctx); err == nil {
		response, err = o.run(ctx, in, handler)
	}
	returned = true
	return response, s.leave(ctx, o, err)
}

// Join implements call.Transactions.
func (s *Transactions) Join(
	ctx context.Context, in call.InTransaction,
) (joined context.Context, leave func(error), err error) {
	c, err := s.claim(call.From(ctx).Principal, in.Token)
	if err != nil {
		return nil, nil, err
	}
	if !s.isHere(c) {
		return nil, nil, s.elsewhere(ctx, c, operationFailed(in))
	}
	ctx, o, err := s.enter(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	err = o.take(ctx)
	var ended func(context.Context, error)
	if err == nil {
		ended, err = o.stream(in)
	}
	if err != nil {
		_ = s.leave(ctx, o, nil)
		return nil, nil, err
	}
	return ctx, func(err error) {
		ended(ctx, err)
		_ = s.leave(ctx, o, nil)
	}, nil
}

// take adds what the policy has allowed an operation by, and charges it until the transaction ends.
func (o *open) take(ctx context.Context) error {
	if err := o.grounds.Add(call.Taken(ctx)); err != nil {
		return err
	}
	more := int64(o.grounds.Size()) - o.charged
	err := o.remembers.Grow(ctx, more)
	if err == nil {
		o.charged += more
	}
	return err
}

var errOwnerGone = &rpcerr.Error{
	Reason: rpcerr.TransactionOwnerGone, Field: "transaction",
	Message: "the gateway replica that kept the transaction is gone: the transaction is aborted",
}

// commit commits a transaction that is here. It may be repeated. With an error that unmetConcern
// knows, it is committed.
func (s *Transactions) commit(ctx context.Context, c claim) error {
	work, o, ended, err := s.begin(ctx, c, true)
	switch {
	case err != nil:
		return err
	case o == nil && ended.kind == outcomeCommitted:
		return ended.unmet
	case o == nil && ended.kind == outcomeUnknown:
		return s.recoverCommit(ctx, c)
	case o == nil:
		return ended.refusal()
	}
	end := outcome{}
	defer func() { s.finish(work, o, end) }() // also after a panic
	defer informCaller(ctx, o.session)
	if err = o.mayCommit(ctx); err != nil {
		end = outcome{kind: outcomeUnconfirmed, detail: err.Error()} // after a panic
		end = o.abort(work, end.detail, endOptions(work))
		switch end.kind {
		case outcomeUnknown:
			return s.recoverCommit(ctx, c)
		case outcomeUnconfirmed:
			return end.refusal()
		default:
			return err
		}
	}
	removed := false
	s.table.Do(func(*handle.Locked) {
		removed = o.IsRemoved() && !o.committing
		o.committing = !removed
	})
	if removed { // meanwhile, and no commit was ever sent
		if end = o.abort(work, o.outcome.detail, endOptions(work)); end.kind == outcomeUnknown {
			return s.recoverCommit(ctx, c)
		}
		return end.refusal()
	}
	err = o.session.CommitTransaction(work, endOptions(ctx))
	unmet := unmetConcern(err)
	switch {
	case err == nil:
		end.kind = outcomeCommitted
	case unmet != nil:
		end = outcome{kind: outcomeCommitted, unmet: &mongoerr.WriteConcernError{
			Code: unmet.Code, Name: unmet.Name, Message: "the write concern was not met",
		}}
	case mongoerr.HasLabel(err, mongoerr.LabelTransientTransaction) &&
		!mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult):
		end = aborted("the server says so" + withCode(err))
	}
	return err
}

// mayCommit returns an error if the policy does not allow the client any more what the operations
// have done. A commit that has begun may be repeated: it may have been made.
func (o *open) mayCommit(ctx context.Context) error {
	if o.allowed {
		return nil
	}
	err := call.CheckTaken(ctx, o.grounds.Text())
	o.allowed = err == nil
	return err
}

// abort aborts a transaction that is here. It may be repeated.
func (s *Transactions) abort(ctx context.Context, c claim) error {
	work, o, ended, err := s.begin(ctx, c, false)
	switch {
	case err != nil:
		return err
	case o == nil && ended.kind == outcomeAborted:
		return nil
	case o == nil:
		return ended.refusal()
	case o.committing:
		s.finish(work, o, outcome{})
		return errCommitting
	}
	end := outcome{kind: outcomeUnconfirmed, detail: "Abort was called"} // after a panic
	defer func() { s.finish(work, o, end) }()
	defer informCaller(ctx, o.session)
	if end = o.abort(work, end.detail, endOptions(work)); end.kind == outcomeAborted {
		return nil
	}
	return end.refusal()
}

// abortTime bounds an abort on the server.
const abortTime = 5 * time.Second

// abortNow aborts a transaction on the server, with time of its own: that of ctx may be over, and
// the transaction would keep its locks until the server ends it. It returns what the server has
// answered, or that there was nothing to abort.
func abortNow(
	ctx context.Context, own *client.Session, opt client.EndTransactionOptions,
) (answer error) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	answer, err := own.ConfirmAbort(within, opt)
	return cmp.Or(err, answer)
}

// informCaller lets the session of a call know the times that a transaction has seen.
func informCaller(ctx context.Context, own *client.Session) {
	if after := call.From(ctx).Session; after != nil {
		request.Inform(after, own)
	}
}

// Drained returns the number of transactions that were open when Drain ended them.
func (s *Transactions) Drained() int { return int(s.drained.Load()) }

// Drain aborts all transactions, and refuses their calls from now on. No call works on them any
// more, or it is told to stop. Drain blocks until they are aborted, or ctx ends.
func (s *Transactions) Drain(ctx context.Context) error {
	s.draining.Store(true)
	idle, works := handle.RemoveAll(s.table, handle.ErrClosing, func(*open) bool { return true })
	s.drained.Add(int64(len(idle) + len(works)))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		handle.EndAll(ctx, idle)
	}()
	select {
	case <-ended:
	case <-ctx.Done(): // each End has a time of its own
		return context.Cause(ctx)
	}
	for _, w := range works {
		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
