// Package admission decides which calls may use the memory and the time of the process. It has a
// budget of bytes, limits on calls in flight, on open streams and on calls per second, and a fair
// queue between principals for what does not fit.
//
// A call has an Account. Before it allocates memory, it charges the account: for its request, for
// the server's reply, and for the text that its response becomes. What is charged is held until it
// is returned. share.go, queue.go and rate.go decide, on values without a lock or a clock;
// resource.go has both. pace.go delays refusals to a client that repeats refused calls at once.
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
	// Bytes is how many bytes all accounts together may hold: the budget.
	Bytes int64
	// Calls limits the calls in flight.
	Calls Limits
	// Streams limits the open streams.
	Streams Limits
	// ChangeStreams limits the open change streams, and ChangeStreamsPerTicket those of one ticket,
	// which is a URL that opens a stream without further credentials.
	ChangeStreams          Limits
	ChangeStreamsPerTicket int64
	// ChangeCursors limits the cursors of change streams, each of which holds a connection nearly
	// all the time. Many streams can share one.
	ChangeCursors Limits
	// Rate and RateEach limit the calls per second, of all principals and of each.
	Rate, RateEach float64
	// Patience is how long a call waits for what does not fit. If it is 0, nothing waits.
	Patience time.Duration
	// MakeRoom is called after at least Large bytes were charged at once, and before they are
	// allocated. It may block. If it is nil, nothing is done.
	MakeRoom func(bytes int64)
}

// Large is the smallest charge, in bytes, for which Config.MakeRoom is called.
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
	// RetryAfter is the time after which the client may try again. It is known only if the rate of
	// calls was exceeded; otherwise it is 0, since room comes when other calls end.
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

// WaitError reports that the context of a call ended while the call waited for admission, or for
// the memory of its request. Nothing of the call has been sent to a server.
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
	unrated                refused               // by all rates that there were
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
	a.rates.Store(newRates(cfg.Rate, cfg.RateEach, &a.unrated))
	return a
}

// SetLimits changes Patience and all limits but Bytes. Calls that are admitted go on; for those
// that wait, the new limits decide.
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
	a.rates.Store(newRates(cfg.Rate, cfg.RateEach, &a.unrated))
}

// Patience returns how long a call that begins to wait now waits; see Config.
func (a *Admission) Patience() time.Duration { return time.Duration(a.calls.patience.Load()) }

// AddReclaim adds a function that makes room when a call does not fit, by giving up memory that can
// be spared: at least so many of the charged bytes if it can, at once or soon. If only is not nil,
// only memory of that principal helps. The functions are called in the order in which they were
// added, until there is room, and without locks. AddReclaim must be called before the first call.
// If a is nil, it does nothing.
func (a *Admission) AddReclaim(reclaim func(bytes int64, only *Principal)) {
	if a != nil {
		a.bytes.reclaim = append(a.bytes.reclaim, reclaim)
	}
}

// Usage says how much of a resource is held (bytes, calls or streams), how many calls wait for it,
// and how many were refused, by Cause.
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

// ChangeStreams returns how many change streams are open, and how many were refused, by the limits
// on change streams or on tickets.
func (a *Admission) ChangeStreams() Usage {
	u := a.changeStreams.usage()
	for i, n := range a.tickets.usage().Refused {
		u.Refused[i] += n
	}
	return u
}

// ChangeCursors returns how many cursors of change streams are open.
func (a *Admission) ChangeCursors() Usage { return a.changeCursors.usage() }

// Rates returns how many calls were refused because of Config.Rate and Config.RateEach. Its Held
// and Waiting are 0.
func (a *Admission) Rates() Usage {
	u := Usage{Refused: a.unrated.read()}
	if r := a.rates.Load(); r != nil {
		u.Limit = int64(r.total)
	}
	return u
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

// EnterCommand counts a command of a stream as a call in flight, so that a stream has the same
// share of these as a client that reads pages. open is false for the command that opens the stream:
// EnterCommand then blocks for at most Config.Patience and until ctx ends, and its errors are
// *Error and *WaitError. For later commands open is true, and after GoOn it counts as true:
// EnterCommand then blocks until there is room or ctx ends, and its error is the cause of ctx. If
// EnterCommand returns nil, the caller must call LeaveCommand when the server has answered.
func (c *Account) EnterCommand(ctx context.Context, open bool) error {
	if !c.charges() {
		return nil
	}
	if open || c.isOpen() {
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

// EnterChangeStream admits a change stream. ticket is the ticket that opened it; empty: none did.
// It does not block. If it returns nil, the caller must call LeaveChangeStream with the same ticket
// when the stream has ended. Its errors are *Error.
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
