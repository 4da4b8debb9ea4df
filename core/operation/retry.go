package operation

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/internal/timeoutms"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/session"
)

// course holds what the attempts of one operation have in common.
type course struct {
	runner  *Runner
	firstID int32 // of the first command, which is the operation's if that has none
	begun   bool  // the first command has its number
	// implicit is the implicit session, which the course owns; nil while there is none.
	implicit *session.Session
	// txnNumber is that of a retryable write, the same in each attempt; 0: it is none, or there was
	// no connection yet.
	txnNumber int64
	// plain says that the command has writes which must not be repeated.
	plain  bool
	part   part
	ledger ledger
	// avoided are the servers that the next attempt goes to only if there are no others.
	avoided []address.Address

	// server, hello and sent are of the attempt under way: the server that was selected, its hello
	// on the connection, and whether a command was sent.
	server Server
	hello  *description.Server
	sent   bool
}

// end returns the implicit session to the pool.
func (c *course) end() {
	if c.implicit != nil {
		c.runner.Sessions.Release(c.implicit)
	}
}

// outcome holds what an attempt came to.
type outcome struct {
	res Result
	err error
}

// goOn records the first attempt, and makes others as long as the rules allow. It returns the
// outcome of the operation.
func (c *course) goOn(ctx context.Context, op *Operation, last outcome) outcome {
	var kept outcome
	for {
		var (
			keep bool
			v    verdict
		)
		c.ledger, keep = c.ledger.record(c.entry(op, &last))
		if op.trouble(&last) != nil {
			f := c.failure(ctx, op, &last)
			v = c.ledger.after(f, c.runner.rules(ctx, op), c.runner.jitter())
		}
		if v.again || !keep {
			last.discard()
		}
		if keep {
			kept = last
		}
		if !v.again {
			return c.conclude(op, kept, last.err)
		}
		if v.avoid {
			c.avoid(c.server.Description().Address)
		}
		c.announce(op, &last, v.wait)
		if err := pause(ctx, v.wait); err != nil {
			return c.conclude(op, kept, err)
		}
		last = c.attempt(ctx, op)
	}
}

// avoid has the next attempts prefer other servers.
func (c *course) avoid(addr address.Address) {
	if !slices.Contains(c.avoided, addr) {
		c.avoided = append(c.avoided, addr)
	}
}

// conclude returns the outcome of the operation: that of the attempt that was kept, with the error
// that the ledger tells. last is what ended the operation.
func (c *course) conclude(op *Operation, kept outcome, last error) outcome {
	err := kept.err
	if c.ledger.isUnknown() {
		err = op.trouble(&kept)
	}
	kept.err = c.ledger.tell(err, last)
	if c.part.role == Commit && c.ledger.isUnknown() {
		kept.err = mongoerr.WithLabel(kept.err, mongoerr.LabelUnknownTransactionCommitResult)
	}
	return kept.endedBy(last)
}

// entry returns the record of the attempt under way, which has ended.
func (c *course) entry(op *Operation, o *outcome) entry {
	e := ending{
		kind: op.Kind, role: c.part.role, member: c.part.within(), sent: c.sent,
		relayed: op.Relayed || op.Kind == Output ||
			c.hello != nil && c.hello.Kind == description.ServerMongos,
		number: c.txnNumber, err: o.err, concern: o.res.WriteConcernError,
	}
	if m, ok := op.Command.(Mixed); ok {
		e.divisible = !m.Retryable() || !m.Single()
	} else {
		e.divisible = !op.Retry
	}
	if c.part.session != nil {
		e.number = c.part.session.TransactionNumber()
	}
	return e.entry()
}

// announce emits OperationRetried.
func (c *course) announce(op *Operation, failed *outcome, wait time.Duration) {
	if s := c.runner.Sink; s != nil && s.OperationRetried != nil {
		s.OperationRetried(event.OperationRetried{
			Name: op.Command.Name(), Database: op.Database, Caller: op.Caller,
			Attempt: c.ledger.attempts + 1, Wait: wait, Err: op.trouble(failed),
		})
	}
}

// discard returns the connection of an outcome that another one replaces.
func (o *outcome) discard() {
	if o.res.Pin != nil {
		o.res.Pin.Release()
		o.res.Pin = nil
	}
}

// endedBy returns the outcome of an operation whose last attempt ended with err: if time ran out or
// the caller went away, the error says so besides.
func (o outcome) endedBy(err error) outcome {
	switch {
	case o.err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		if !errors.Is(o.err, context.DeadlineExceeded) {
			o.err = &TimeoutError{Err: o.err}
		}
	case mongoerr.IsCanceled(err):
		o.err = Interrupted(err, o.err)
	}
	return o
}

// Interrupted returns the error of a caller that went away, with that cause, before another attempt
// after err. It has the labels of err, and mongoerr.Judge says the same of it.
func Interrupted(cause, err error) error {
	if errors.Is(err, cause) {
		return err
	}
	return &interruptedError{cause, err}
}

// interruptedError reports that the caller went away before another attempt, after err.
type interruptedError struct{ cause, err error }

func (e *interruptedError) Error() string { return e.cause.Error() + ", after: " + e.err.Error() }

func (e *interruptedError) Unwrap() []error { return []error{e.cause, e.err} }

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// trouble returns what may call for another attempt: the error or, of a write that was carried out,
// that of its write concern.
func (op *Operation) trouble(o *outcome) error {
	if o.err == nil && o.res.WriteConcernError != nil && op.Kind != Generic {
		return o.res.WriteConcernError
	}
	return o.err
}

// mayRetry reports whether the rules of retryable reads or writes apply to the operation.
func (r *Runner) mayRetry(op *Operation) bool {
	switch {
	case !op.Retry || op.Unacknowledged:
		return false
	case op.Kind == Write:
		return r.RetryWrites
	}
	return r.RetryReads && op.Kind == Read
}

// mayRetry reports the same for the operation in its transaction: a commit and an abort are always
// repeated, and no other operation is.
func (c *course) mayRetry(op *Operation) bool {
	switch {
	case c.part.within():
		return false
	case c.part.role != Member:
		return true
	}
	return c.runner.mayRetry(op)
}

func (r *Runner) rules(ctx context.Context, op *Operation) rules {
	reads, writes := op.Kind == Read || op.Kind == Generic, op.Kind != Read
	return rules{
		overload:  (r.RetryReads || !reads) && (r.RetryWrites || !writes),
		unlimited: timeoutms.Governs(ctx),
		adaptive:  r.MaxAdaptiveRetries, retarget: r.OverloadRetargeting,
	}
}

func (r *Runner) jitter() float64 {
	if r.Jitter != nil {
		return r.Jitter()
	}
	return rand.Float64()
}

// failure returns what matters about the attempt under way, which has failed.
func (c *course) failure(ctx context.Context, op *Operation, o *outcome) failure {
	err := op.trouble(o)
	f := failure{
		overloaded: mongoerr.HasLabel(err, mongoerr.LabelSystemOverloaded),
		retryable:  mongoerr.HasLabel(err, mongoerr.LabelRetryable),
		base:       baseBackoffOf(o.res.Reply),
		sharded:    c.server != nil && c.server.TopologyKind() == description.KindSharded,
	}
	if deadline, ok := ctx.Deadline(); ok {
		f.timed, f.left = true, time.Until(deadline)
	}
	numbered := c.txnNumber != 0 || c.part.session != nil
	switch {
	case c.server == nil: // it was not selected
		f.retryable = false
	case op.Kind != Read && !numbered && mongoerr.Judge(err).Delivery == mongoerr.Executed:
		f.retryable = false // the server would carry out again what it did
	case !c.mayRetry(op):
	case op.Kind == Write:
		f.transient = !c.plain && mongoerr.HasLabel(err, mongoerr.LabelRetryableWrite)
	default:
		f.transient = mongoerr.Judge(err).Retryable
	}
	return f
}

// baseBackoffOf returns the baseBackoffMS of a reply, 0 if it has none.
func baseBackoffOf(reply bson.Raw) time.Duration {
	v, _ := reply.Lookup("baseBackoffMS")
	ms, _ := v.AsInt64()
	return time.Duration(min(max(ms, 0), maxBackoff.Milliseconds())) * time.Millisecond
}

// supportsRetryableWrites reports whether a server runs writes that carry a transaction number.
func supportsRetryableWrites(s *description.Server, kind description.Kind) bool {
	if kind == description.KindLoadBalanced {
		return true
	}
	return s.LogicalSessionTimeoutMinutes != nil && s.Kind != description.ServerStandalone
}

// number gives a retryable write its number, once it has a connection and a session (Retryable
// Writes, "Executing Retryable Write Commands").
func (x *exchange) number(c *course, op *Operation) error {
	if op.Kind != Write || c.part.session != nil || !c.mayRetry(op) || c.plain {
		return nil // a transaction has a number of its own
	}
	hello := x.conn.Hello()
	if x.session == nil || !supportsRetryableWrites(hello, x.server.TopologyKind()) {
		if c.txnNumber != 0 {
			return errNoRetryableWrites
		}
		c.plain = true
		return nil
	}
	if c.txnNumber == 0 {
		c.txnNumber = x.session.NextTxnNumber()
	}
	return nil
}

var errNoRetryableWrites = errors.New("the server does not support retryable writes")

// label adds RetryableWriteError to the error of a retryable write, where the specification leaves
// that to drivers: to errors of connections, and to those of servers before 4.4 (Retryable Writes,
// "Determining Retryable Errors").
func (c *course) label(op *Operation, o *outcome) {
	if op.Kind != Write || !c.mayRetry(op) || c.plain || c.server == nil {
		return
	}
	switch {
	case c.hello == nil:
		s := c.server.Description()
		if supportsRetryableWrites(s, c.server.TopologyKind()) && mongoerr.Judge(o.err).Retryable {
			o.err = mongoerr.WithLabel(o.err, mongoerr.LabelRetryableWrite)
		}
	case mongoerr.IsNetwork(o.err) && !mongoerr.IsCanceled(o.err):
		o.err = mongoerr.WithLabel(o.err, mongoerr.LabelRetryableWrite)
	case c.hello.MaxWireVersion < wireVersion44:
		c.labelReply(o)
	}
	if failed, ok := errors.AsType[*mongoerr.CommandError](o.err); ok {
		o.err = explained(failed, o.err)
	}
}

// wireVersion44 is the first whose servers label their errors.
const wireVersion44 = 9

// labelReply labels the error in a reply. A mongos's write concern errors do not count.
func (c *course) labelReply(o *outcome) {
	if failed, ok := errors.AsType[*mongoerr.CommandError](o.err); ok &&
		mongoerr.IsRetryableWriteCode(failed.Code) {
		o.err = mongoerr.WithLabel(o.err, mongoerr.LabelRetryableWrite)
	}
	wce := o.res.WriteConcernError
	if wce == nil || c.hello.Kind == description.ServerMongos ||
		!mongoerr.IsRetryableWriteCode(wce.Code) {
		return
	}
	labeled := *wce
	labeled.Labels = append(labeled.Labels[:len(labeled.Labels):len(labeled.Labels)],
		mongoerr.LabelRetryableWrite)
	o.res.WriteConcernError = &labeled
	if o.err != nil {
		o.err = mongoerr.WithLabel(o.err, mongoerr.LabelRetryableWrite)
	}
}

// codeIllegalOperation is the code of a storage engine without retryable writes.
const codeIllegalOperation = 20

// explained returns err, or a clearer one where the storage engine has no retryable writes.
func explained(failed *mongoerr.CommandError, err error) error {
	if failed.Code != codeIllegalOperation ||
		!strings.HasPrefix(failed.Message, "Transaction numbers") {
		return err
	}
	better := *failed
	better.Message = "This MongoDB deployment does not support retryable writes. " +
		"Please add retryWrites=false to your connection string."
	return &better
}
