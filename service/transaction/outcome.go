package transaction

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// The limits of what is remembered of transactions that have ended.
const (
	remembered  = 10 * time.Minute
	maxOutcomes = 10_000
)

// outcome says how a transaction has ended.
type outcome struct {
	kind   outcomeKind
	detail string // of outcomeAborted and outcomeUnconfirmed: why
	// unmet is the error of a commit that was made, but not acknowledged as asked; nil: it was.
	unmet error
	// asked, of outcomeUnconfirmed, is closed once the servers were asked; nil: they were.
	asked chan struct{}
	until time.Time
}

// wait waits until the servers were asked whether it is aborted, for abortTime at most.
func (o outcome) wait(ctx context.Context) error {
	late := time.NewTimer(abortTime)
	defer late.Stop()
	select {
	case <-o.asked:
	case <-late.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

type outcomeKind uint8

const (
	// outcomeNone says that the transaction has not ended.
	outcomeNone outcomeKind = iota
	// outcomeCommitted says that it is committed.
	outcomeCommitted
	// outcomeAborted says that it is aborted.
	outcomeAborted
	// outcomeUnknown says that Commit was called, here or at another replica, and not that the
	// majority has confirmed it: repeated, it asks the servers.
	outcomeUnknown
	// outcomeUnconfirmed says that the transaction was to be aborted, and that no server has
	// confirmed that: another replica, which could not reach this one, may have committed it.
	outcomeUnconfirmed
)

// refusal returns the error of an operation of a transaction that has ended so.
func (o outcome) refusal() error {
	switch o.kind {
	case outcomeCommitted:
		return &rpcerr.Error{
			Reason: rpcerr.TransactionCommitted, Message: "the transaction is committed",
		}
	case outcomeUnknown:
		return errCommitting
	case outcomeUnconfirmed:
		return &rpcerr.Error{
			Reason: rpcerr.UnknownCommitResult, Field: "transaction",
			Message: "no server has confirmed that the transaction is aborted: " + o.detail,
		}
	default:
		return &rpcerr.Error{
			Reason: rpcerr.TransactionAborted, Message: "the transaction is aborted: " + o.detail,
		}
	}
}

// withCode returns what all clients may see of an error, for the end of a message: its text has
// addresses and the server's words. It returns "" if no server has answered.
func withCode(err error) string {
	if code := mongoerr.Code(err); code != 0 {
		return fmt.Sprintf(" (code %d)", code)
	}
	return ""
}

// unmetConcern returns the error of a commit that was made although no members can meet its write
// concern, nil for any other error.
func unmetConcern(err error) *mongoerr.WriteConcernError {
	e, ok := errors.AsType[*mongoerr.WriteConcernError](err)
	if !ok || mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult) {
		return nil
	}
	return e
}

// committed returns the field of a response for a commit that unmetConcern knows to be made, and
// any other error as it is.
func committed(ctx context.Context, err error) (*mooringv1.WriteConcernError, error) {
	if unmet := unmetConcern(err); unmet != nil {
		return rpcerr.WriteConcernError(unmet, call.From(ctx).Encoding), nil
	}
	return nil, err
}

var errCommitting = &rpcerr.Error{
	Reason: rpcerr.TransactionCommitted,
	Message: "Commit was called, and it is not known whether the transaction is committed: " +
		"repeat Commit",
}

// outcomes remembers how transactions have ended, for calls that come afterwards. The table's lock
// guards it.
type outcomes struct {
	of    map[handle.ID]outcome
	order []handle.ID // the oldest first
}

// get returns how a transaction has ended, if that is remembered.
func (m *outcomes) get(id handle.ID, now time.Time) (outcome, bool) {
	o, ok := m.of[id]
	return o, ok && now.Before(o.until)
}

// put remembers how a transaction has ended, and forgets the oldest ones.
func (m *outcomes) put(id handle.ID, o outcome, now time.Time) {
	if m.of == nil {
		m.of = map[handle.ID]outcome{}
	}
	o.until = now.Add(remembered)
	if _, known := m.of[id]; !known {
		m.order = append(m.order, id)
	}
	m.of[id] = o
	for len(m.order) > maxOutcomes || !now.Before(m.of[m.order[0]].until) {
		delete(m.of, m.order[0])
		m.order = m.order[1:]
	}
}
