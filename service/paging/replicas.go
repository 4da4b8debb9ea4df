package paging

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// Replicas reaches the other replicas.
//
// The sentinels of this package and of handle come back as themselves. Any other error of a replica
// comes back as one that the table of errors shows to a client like the original. If a replica did
// not answer, the error is an *UnreachableError; if ctx has ended, it is the cause of ctx instead.
// Once a call has returned an error, a late answer is not used.
type Replicas interface {
	// Ask puts a question. The deadline of ctx goes with it.
	Ask(ctx context.Context, address string, q Question) (Answer, error)
	// Stream asks the replica that holds a cursor for all pages from one on. It returns when that
	// replica has agreed.
	Stream(ctx context.Context, address string, q Question) (PageStream, error)
	// Push hands records over, and returns the replica that has accepted all of them.
	Push(ctx context.Context, address string, records iter.Seq[Record]) (page.Replica, error)
	// Kill is Pager.Kill of another replica.
	Kill(ctx context.Context, address, id string) error
	// Announce tells a replica where the cursors of this one went.
	Announce(ctx context.Context, address string, to page.Replica) error
	// Others returns the addresses of the other replicas. If again is set, it looks up names anew.
	Others(ctx context.Context, again bool) []string
}

// Purpose says what is asked of a cursor.
type Purpose uint8

const (
	// ForPage asks for a page.
	ForPage Purpose = iota
	// ForStream asks whether all pages from one on could be had as a stream.
	ForStream
	// ForClose closes the cursor.
	ForClose
)

func (p Purpose) String() string { return [...]string{"page", "stream", "close"}[p] }

// Question describes what one replica asks another. The replica that is asked answers with what it
// has, and passes nothing on.
type Question struct {
	// Asker is the replica that asks.
	Asker page.Replica
	// Holder is the instance that should hold the cursor; zero means unknown.
	Holder  page.Instance
	Purpose Purpose

	Principal, Token string
	BatchSize        *int32
	MaxAwaitTimeMS   *int64
	Inflation        int
}

func (q Question) asking() Asking {
	return Asking{
		Principal: q.Principal, Token: q.Token, BatchSize: q.BatchSize,
		MaxAwaitTimeMS: q.MaxAwaitTimeMS, Inflation: q.Inflation,
	}
}

// Answer has exactly one of these.
type Answer struct {
	// Page is the page itself.
	Page *Page
	// Moved names the replica to ask instead.
	Moved *page.Replica
	// Streams: the replica would stream it.
	Streams bool
	// Closed: the cursor was closed.
	Closed bool
}

// Holding describes what a replica holds of a cursor between two pages.
type Holding struct {
	State cursor.State
	// Leftover is what is left of the last batch. It comes before the next one.
	Leftover []bson.Raw
	// Chosen is the client's batch size, or 0 if it has none. Mean and Count say what is known of
	// the documents' sizes.
	Chosen int32
	Mean   int
	Count  int32
}

// Record describes one cursor that a draining replica knows and pushes to another.
type Record struct {
	ID        handle.ID
	Principal string
	Client    netip.Addr // of a principal without a name; invalid: not known
	Namespace Namespace
	Opened    time.Time
	Pages     uint64 // that were delivered
	Asked     bool   // for the second page, or for a later one
	Ledger    page.Record
	Holding   *Holding // nil: nothing is left of it
	// Undelivered is the last page, if no call has sent it to the client yet; nil: one has.
	Undelivered *Page
}

// PageStream brings what a stream of a cursor sends, from the replica that holds it.
type PageStream interface {
	// Recv returns the next documents, or io.EOF at the end. It ends with the stream's context.
	Recv() ([]bson.Raw, error)
	// Close ends the stream, and the cursor with it. It may be repeated.
	Close()
}

// UnreachableError reports that a replica gave no answer.
type UnreachableError struct {
	Address string
	// Sent: the question may have arrived, and may have been acted upon.
	Sent bool
	// Refused: no process listens there. Then nothing was sent.
	Refused bool
	Err     error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("ask the gateway replica at %s: %v", e.Address, e.Err)
}

// Unwrap returns the reason.
func (e *UnreachableError) Unwrap() error { return e.Err }
