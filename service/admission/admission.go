// Package admission decides which calls may use the memory and the time of the process. It has a
// budget of bytes, limits on calls in flight, on open streams and on calls per second, and a fair
// queue between principals for what does not fit.
//
// A call has an Account. Before it takes memory, it charges the account: the size of its request,
// the size of the server's reply, and the text that its response becomes. What the decisions are
// is in share.go, queue.go and rate.go: values without a lock and a clock. resource.go has both.
// The refusals of a client that does not wait after them are held back, in pace.go.
//
// The package reads and writes no message, and knows no RPC.
package admission

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
)

// Config configures an Admission. A limit that is 0 does not limit anything.
type Config struct {
	// Bytes is what all calls together may hold.
	Bytes int64
	// Calls limits the calls in flight.
	Calls Limits
	// Streams limits the open streams.
	Streams Limits
	// ChangeStreams limits the open change streams, and ChangeStreamsPerTicket those of one ticket.
	ChangeStreams          Limits
	ChangeStreamsPerTicket int64
	// ChangeCursors limits the cursors of change streams, each of which holds a connection nearly
	// all the time. Many streams can share one.
	ChangeCursors Limits
	// Rate and RateEach limit the calls per second, of all principals and of each.
	Rate, RateEach float64
	// Patience is how long a call waits for what does not fit. If it is 0, nothing waits.
	Patience time.Duration
	// MakeRoom is called before at least Large bytes that are charged are allocated. It may block.
	// If it is nil, nothing is done.
	MakeRoom func(bytes int64)
}

// Large is the number of bytes from which Config.MakeRoom is called.
const Large = 8 << 20

// allocates calls Config.MakeRoom for a large number of bytes.
func (a *Admission) allocates(n int64) {
	if n >= Large && a.makeRoom != nil {
		a.makeRoom(n)
	}
}

// Cause says why a call is refused.
type Cause uint8

// The causes.
const (
	// OwnShare: the principal holds, or asks for, more than its share.
	OwnShare Cause = iota
	// Full: the process has no room.
	Full
	// TooMuch: the call asks for more than the process ever has.
	TooMuch
)

const numCauses = int(TooMuch) + 1

// Error refuses a call.
type Error struct {
	Cause Cause
	// What names the resource, such as "calls in flight".
	What string
	// RetryAfter is the time after which the client may try again; 0: not known, since what is used
	// up comes back when other calls end. The rate is known.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	switch e.Cause {
	case OwnShare:
		return fmt.Sprintf("the client has used its share of the gateway's %s", e.What)
	case Full:
		return fmt.Sprintf("the gateway has no %s left", e.What)
	default:
		return fmt.Sprintf("the call needs more %s than the gateway has", e.What)
	}
}

// WaitError reports that the context of a call ended while the call waited for its place, or for
// the memory of its request: the servers have got nothing of it.
type WaitError struct {
	// What names the resource, such as "calls in flight".
	What string
	// Err is the cause of the context's end.
	Err error
}

func (e *WaitError) Error() string {
	return e.Err.Error() + " while the call waited for the gateway's " + e.What
}

// Unwrap returns the cause of the context's end.
func (e *WaitError) Unwrap() error { return e.Err }

// Delivery returns mongoerr.Unsent.
func (e *WaitError) Delivery() mongoerr.Delivery { return mongoerr.Unsent }

// Admission admits calls. It is safe for concurrent use.
type Admission struct {
	bytes, calls, streams  *resource
	changeStreams, tickets *resource
	changeCursors          *resource
	rates                  atomic.Pointer[rates] // nil: there are no limits on rates
	// overdraft is held by the one call that reads a reply for which there was no room.
	overdraft chan struct{}
	turns     *resource   // of heavy work; nothing is refused
	makeRoom  func(int64) // Config.MakeRoom
	pace      *pace       // of refusals
}

// New returns an Admission that holds nothing.
func New(cfg Config) *Admission {
	a := &Admission{
		bytes:         newResource("memory", Limits{Total: cfg.Bytes}, cfg.Patience),
		calls:         newResource("calls in flight", cfg.Calls, cfg.Patience),
		streams:       newResource("open streams", cfg.Streams, 0),
		changeStreams: newResource("change streams", cfg.ChangeStreams, 0),
		tickets: newResource("change streams for one ticket",
			Limits{Each: cfg.ChangeStreamsPerTicket}, 0),
		changeCursors: newResource("cursors of change streams, of which a larger maxPoolSize "+
			"allows more", cfg.ChangeCursors, 0),
		overdraft: make(chan struct{}, 1),
		turns:     newTurns(),
		makeRoom:  cfg.MakeRoom,
		pace:      newPace(),
	}
	a.rates.Store(newRates(cfg.Rate, cfg.RateEach))
	return a
}

// SetLimits changes the limits, all but that on bytes, and the patience. Calls that are admitted go
// on; those that wait are judged by the new limits.
func (a *Admission) SetLimits(cfg Config) {
	a.bytes.set(Limits{Total: a.bytes.usage().Limit}, cfg.Patience)
	a.calls.set(cfg.Calls, cfg.Patience)
	a.streams.set(cfg.Streams, 0)
	a.changeStreams.set(cfg.ChangeStreams, 0)
	a.tickets.set(Limits{Each: cfg.ChangeStreamsPerTicket}, 0)
	a.changeCursors.set(cfg.ChangeCursors, 0)
	if r := a.rates.Load(); r != nil && r.total == cfg.Rate && r.each == cfg.RateEach {
		return // the calls of the last second still count
	}
	a.rates.Store(newRates(cfg.Rate, cfg.RateEach))
}

// AddReclaim adds what makes room for calls that do not fit: it ends the use of bytes that are
// charged and can be missed, at least so many if there are, at once or soon. What was added first
// is asked first, and the next one if there is still no room. It is called without locks.
// If only is not nil, only the use of that principal can make room.
// AddReclaim is called before the first call. If a is nil, it does nothing.
func (a *Admission) AddReclaim(reclaim func(bytes int64, only *Principal)) {
	if a != nil {
		a.bytes.reclaim = append(a.bytes.reclaim, reclaim)
	}
}

// Usage says what is held of a resource, how many calls wait for it, and how many were refused, by
// Cause.
type Usage struct {
	Held, Limit int64
	Waiting     int
	Refused     [numCauses]uint64
}

// Bytes returns how the budget of bytes is used.
func (a *Admission) Bytes() Usage { return a.bytes.usage() }

// Calls returns how many calls and commands of streams are in flight.
func (a *Admission) Calls() Usage { return a.calls.usage() }

// Streams returns how many streams are open.
func (a *Admission) Streams() Usage { return a.streams.usage() }

// ChangeStreams returns how many change streams are open, and how many were refused for their
// principals or all, or for their tickets.
func (a *Admission) ChangeStreams() Usage {
	u := a.changeStreams.usage()
	for i, n := range a.tickets.usage().Refused {
		u.Refused[i] += n
	}
	return u
}

// ChangeCursors returns how many cursors of change streams are open.
func (a *Admission) ChangeCursors() Usage { return a.changeCursors.usage() }

// Rates returns how many calls were refused since there were too many in one second. Nothing is
// held, and nothing waits.
func (a *Admission) Rates() Usage {
	r := a.rates.Load()
	if r == nil {
		return Usage{}
	}
	return Usage{Limit: int64(r.total), Refused: r.refused.read()}
}

// EnterCall admits a unary call of a principal. It blocks for at most Config.Patience, and until
// ctx ends. If it returns nil, the caller must call LeaveCall when the call has ended. Its errors
// are *Error and *WaitError.
func (a *Admission) EnterCall(ctx context.Context, p Principal) error {
	if err := a.rates.Load().take(p, time.Now()); err != nil {
		return err
	}
	return a.calls.unsent(a.calls.take(ctx, p, 1))
}

// LeaveCall ends a call that EnterCall has admitted.
func (a *Admission) LeaveCall(p Principal) { a.calls.give(p, 1) }

// EnterStream admits a stream of a principal. It does not block. If it returns nil, the caller
// must call LeaveStream when the stream has ended. Its errors are *Error.
func (a *Admission) EnterStream(ctx context.Context, p Principal) error {
	if err := a.rates.Load().take(p, time.Now()); err != nil {
		return err
	}
	return a.streams.take(ctx, p, 1)
}

// LeaveStream ends a stream that EnterStream has admitted.
func (a *Admission) LeaveStream(p Principal) { a.streams.give(p, 1) }

// EnterCommand admits a command of a stream to the calls in flight, among which streams so have the
// same shares as pages. The command opens the stream, or is the next command of an open stream. To
// open one it blocks for at most Config.Patience, and otherwise until there is room; both until ctx
// ends.
// If it returns nil, the caller must call LeaveCommand when the server has answered. Its errors are
// *Error and *WaitError, and for an open stream the cause of ctx.
func (c *Account) EnterCommand(ctx context.Context, open bool) error {
	if !c.charges() {
		return nil
	}
	if open {
		_, err := c.admission.calls.await(ctx, c.principal, 1, false, nil)
		return err
	}
	return c.admission.calls.unsent(c.admission.calls.take(ctx, c.principal, 1))
}

// LeaveCommand ends a command that EnterCommand has admitted.
func (c *Account) LeaveCommand() {
	if c.charges() {
		c.admission.calls.give(c.principal, 1)
	}
}

// EnterChangeStream admits a change stream, which a ticket has opened unless that is empty. It does
// not block. If it returns nil, the caller must call LeaveChangeStream when the stream has ended.
// Its errors are *Error.
func (c *Account) EnterChangeStream(ctx context.Context, ticket string) error {
	if !c.charges() {
		return nil
	}
	if err := c.admission.changeStreams.take(ctx, c.principal, 1); err != nil {
		return err
	}
	if ticket == "" {
		return nil
	}
	err := c.admission.tickets.take(ctx, Principal{Name: ticket}, 1)
	if err != nil {
		c.admission.changeStreams.give(c.principal, 1)
	}
	return err
}

// LeaveChangeStream ends a stream that EnterChangeStream has admitted.
func (c *Account) LeaveChangeStream(ticket string) {
	if !c.charges() {
		return
	}
	c.admission.changeStreams.give(c.principal, 1)
	if ticket != "" {
		c.admission.tickets.give(Principal{Name: ticket}, 1)
	}
}

// EnterChangeCursor admits the cursor of a change stream. It does not block. If it returns nil, the
// caller must call LeaveChangeCursor when the cursor is closed. Its errors are *Error.
func (c *Account) EnterChangeCursor(ctx context.Context) error {
	if !c.charges() {
		return nil
	}
	return c.admission.changeCursors.take(ctx, c.principal, 1)
}

// LeaveChangeCursor ends a cursor that EnterChangeCursor has admitted. It may be called after
// Close.
func (c *Account) LeaveChangeCursor() {
	if c.charges() {
		c.admission.changeCursors.give(c.principal, 1)
	}
}
