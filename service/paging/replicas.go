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
	// Push hands records over, and returns the replica that has accepted all of them.
	Push(ctx context.Context, address string, records iter.Seq[Record]) (page.Replica, error)
	// Kill is Pager.Kill of another replica.
	Kill(ctx context.Context, address, id string) error
	// Announce tells a replica where the cursors of this one went.
	Announce(ctx context.Context, address string, to page.Replica) error
	// Others returns the addresses of the other replicas. If again is set, it looks up names anew.
	Others(ctx context.Context, again bool) []string
}

// MovedError refuses a call that another replica forwards: To has the cursor now.
type MovedError struct{ To page.Replica }

func (e *MovedError) Error() string {
	return "the gateway replica at " + e.To.Address + " has the cursor"
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
	// Taken is what the policy has allowed the cursor by (call.Taken).
	Taken string
}

// UnreachableError reports that a replica gave no answer.
type UnreachableError struct {
	Address string
	// Sent: the question may have arrived, and may have been acted upon.
	Sent bool
	// Refused: no process listens there, or that of the replica has ended. Then nothing was sent.
	Refused bool
	Err     error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("ask the gateway replica at %s: %v", e.Address, e.Err)
}

// Unwrap returns the reason.
func (e *UnreachableError) Unwrap() error { return e.Err }
