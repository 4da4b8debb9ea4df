package handle

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
)

type (
	// InstanceID is one life of a replica: after a restart it is another, at the same address.
	InstanceID [16]byte
	// CursorID is the registries' own name of a cursor.
	CursorID [16]byte
)

// Replica is one gateway of several that share their keys.
type Replica struct {
	Address  string // at which the others reach it
	Instance InstanceID
}

// Peers reaches the other replicas.
//
// What a replica has answered comes back as it was said: the sentinels of this package as themselves, any other error as one that the table of
// errors shows to a client like the original. A replica that did not answer is an *UnreachableError, unless ctx has ended: then that is its
// cause. A call that has returned an error is over: its answer is not used, however late it comes.
type Peers interface {
	// Ask puts a question for a page or for a closing. The deadline of ctx goes with it.
	Ask(ctx context.Context, address string, q Question) (Answer, error)
	// Stream asks the owner of a pinned cursor for all pages from one on. It returns when the owner has agreed.
	Stream(ctx context.Context, address string, q Question) (PageStream, error)
	// Push hands records over, and returns who has accepted all of them.
	Push(ctx context.Context, address string, records iter.Seq[Record]) (Replica, error)
	// List and Kill are Registry.Handles and Registry.Kill of that replica.
	List(ctx context.Context, address string, q Query) ([]Info, error)
	Kill(ctx context.Context, address string, id string) error
	// Others are the addresses of the other replicas that are known now.
	Others(ctx context.Context) []string
}

// Purpose is what a page is asked for.
type Purpose uint8

const (
	// ForPage is for the page alone.
	ForPage Purpose = iota
	// ForStream is for the page and all that follow.
	ForStream
	// ForClose is for no page: the cursor is to be closed.
	ForClose
)

func (p Purpose) String() string { return [...]string{"page", "stream", "close"}[p] }

// Question is a call that one replica puts to another. It is never passed on.
type Question struct {
	Asker Replica
	// Owner is whom the asker takes for the holder; zero: whoever is asked.
	Owner InstanceID
	// Attempt tells the askings of one replica apart: a grant whose answer was lost is given again to the same one only.
	Attempt uint64
	Purpose Purpose

	Principal, Token string
	AllowGap         bool
	BatchSize        *int32
	MaxAwaitTimeMS   *int64
	Inflation        int
}

// Answer has exactly one of these.
type Answer struct {
	// Page is the page itself.
	Page *Page
	// Grant hands the cursor over, from the page on that was asked for.
	Grant *Holding
	// Moved names the replica to ask instead.
	Moved *Moved
	// Closed: the cursor was closed.
	Closed bool
}

// Moved is what a replica knows of a cursor that it has handed over.
type Moved struct {
	To Replica
	// Next is the number of the page behind the one that was granted then.
	Next uint64
	// Moves counts the cursor's moves up to that one: of two such records, the one with more is newer.
	Moves uint64
}

// Holding is what a replica holds of a cursor between two pages.
type Holding struct {
	State cursor.State
	// Rest is what is left of the last batch. It comes before the next one.
	Rest []bson.Raw
	// Chosen is the client's batch size, 0 if it has none; Mean and Count are what is known of the documents' sizes.
	Chosen int32
	Mean   int
	Count  int32
	Opened time.Time
	Pages  uint64 // that were delivered
	// Moves counts how often the cursor has gone from replica to replica, this time included.
	Moves uint64
}

// Record is what a replica that drains pushes to another, one for each cursor that it knows.
type Record struct {
	ID        CursorID
	Principal string
	Namespace Namespace
	// Next and Phase are what is known about its pages; Phase is opaque.
	Next  uint64
	Phase uint8
	// Moves counts how often the cursor has gone from replica to replica: what brings it to the receiver is one of them, too.
	Moves uint64
	// To, if it is set, has the cursor; else Holding, unless nothing is left of it. Its instance is zero if it may not have it.
	To      *Replica
	Holding *Holding
}

// PageStream brings what a stream of a pinned cursor sends, from its owner.
type PageStream interface {
	// Recv returns the next documents, or io.EOF at the end. It ends with the stream's context.
	Recv() ([]bson.Raw, error)
	// Close ends the stream, and the cursor with it. It may be repeated.
	Close()
}

// UnreachableError is a replica that gave no answer.
type UnreachableError struct {
	Address string
	// Sent: what was asked may have arrived, and may have been done.
	Sent bool
	// Refused: nobody listens there. Then nothing was sent.
	Refused bool
	Err     error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("ask the gateway replica at %s: %v", e.Address, e.Err)
}

// Unwrap returns the reason.
func (e *UnreachableError) Unwrap() error { return e.Err }
