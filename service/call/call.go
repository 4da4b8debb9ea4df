// Package call holds what a handler knows of a call besides its request: the principal, the id of
// the request and the form of the response. The interceptors make the value and put it into the
// call's context. service/request takes it from there. The deadline and the cancellation are the
// context's own.
package call

import (
	"context"
	"crypto/sha256"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/ctxwatch"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/payload"
)

// Call holds what is known of a call.
type Call struct {
	// Local holds what a caller within the process says of the call.
	Local
	// Principal names the client. It is empty for clients that are not authenticated.
	Principal string
	// Encoding is the form of documents in the response and in the details of an error.
	Encoding payload.Encoding
	// Sessions opens the tokens of sessions; nil: there are none.
	Sessions Sessions
	// Idempotency makes writes with a key exactly-once; nil: there are none.
	Idempotency Idempotency
	// Session is the session that the call runs in, nil for none. The reader of the request sets
	// it, and the interceptors put its renewed token into the response.
	Session *client.Session
	// Transaction is the transaction that the call runs in, nil for none. The interceptors set it.
	Transaction *Transaction
	// Exact is set if the call is a write with an idempotency key. Repeating it cannot apply the
	// write twice. The reader of the request sets it, and the interceptors call its End.
	Exact *ExactWrite
	// Asked is the Digest of the request as the client has sent it, if the call has an idempotency
	// key and the policy may have changed the request since; nil: that is what the handler gets.
	Asked *Digest
	// Timeout limits each part of a call that comes in parts, if the call has no deadline; 0: there
	// is no limit.
	Timeout time.Duration
	// Comment is the comment of the commands of a call that gives none; nil: they have none.
	Comment *bson.Value
	// Inside decides about what the call lists or drops; nil: no rule of the policy is against any.
	Inside Inside
	// Events decides about each event of a change stream; nil: its client may see all of them.
	Events Events
	// Answers limits the documents that writes answer with; nil: no policy does.
	Answers Answers
	// Rights is what the policy allows; nil: there is none.
	Rights Rights
	// Terse is true if errors tell the client neither addresses of servers nor their texts.
	Terse bool
}

// Inside decides about each database or collection that a call lists or drops with others.
type Inside interface {
	// Decide returns an error if a rule of the policy is against it.
	Decide(database, collection string) error
}

// Events decides about the events of a change stream.
type Events interface {
	// Event returns what the client may see of an event, and false if that is nothing.
	Event(event bson.Raw) (bson.Raw, bool)
}

// Answers limits the documents that writes answer with. A server that repeats its answer to a write
// does not do so.
type Answers interface {
	// Answer returns what the client may see of the document that a request is answered with. It
	// returns an error if that is nothing. repeated says that it is the whole document, as it was
	// when the server was first asked.
	Answer(request proto.Message, document bson.Raw, repeated bool) (bson.Raw, error)
}

// IdempotencyKey is the metadata key of the key of an exactly-once write.
const IdempotencyKey = "idempotency-key"

// Idempotency makes exactly-once writes.
type Idempotency interface {
	// Begin returns the write of a call with a key.
	Begin(principal, key, operation string, request Digest) (*ExactWrite, error)
}

// Digest stands for a request. Two requests with the same fields have the same.
type Digest [sha256.Size]byte

// DigestOf returns the Digest of a request.
func DigestOf(request proto.Message) (Digest, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	return sha256.Sum256(b), err
}

// ExactWrite holds what a write needs to be exactly-once.
type ExactWrite struct {
	// Session is what it runs in.
	Session *client.Session
	// NewID makes the _ids that are generated for it.
	NewID func(document int) bson.ObjectID
	// End ends the write. If nothing was sent, the key is free for another call.
	End func()
}

// Sessions makes sessions of tokens, and tokens of sessions.
type Sessions interface {
	// Open returns the session that a principal's token continues.
	Open(principal, token string) (*client.Session, error)
	// Seal returns a token that continues the session.
	Seal(principal string, of *client.Session) string
}

// TransactionKey is the metadata key of a transaction's token.
const TransactionKey = "mooring-transaction"

// Transaction holds a transaction that calls run in, one after the other.
type Transaction struct {
	// ID is that of its handle.
	ID [16]byte
	// Session is the transaction's own session.
	Session *client.Session
}

// Transactions runs calls in transactions.
type Transactions interface {
	// Run runs a unary call in the transaction that its token names: by handler, with a context
	// whose call has the transaction. If another replica keeps it, the error is an Elsewhere.
	Run(ctx context.Context, in InTransaction, handler Handler) (proto.Message, error)
	// Join begins a stream in a transaction. The caller must call leave with the error of the
	// stream when that has ended. If another replica keeps the transaction, the error is an
	// Elsewhere.
	Join(ctx context.Context, in InTransaction) (
		joined context.Context, leave func(error), err error)
}

// Handler runs the rest of a unary call.
type Handler func(context.Context) (proto.Message, error)

// InTransaction describes a call that has a transaction's token.
type InTransaction struct {
	Token string
	// Statement is the number of the call in its transaction; nil: it has none.
	Statement *int32
	// Method is the full name of the RPC.
	Method  string
	Request proto.Message
}

// Local holds what only a caller within the process can say of a call. It is not metadata, so a
// client on the network cannot set it. For calls from the network, the interceptors set RequestID,
// Identity, Account, Lent and Client alone.
type Local struct {
	// RequestID is the id of the request in logs and errors.
	RequestID string
	// Identity says who the client is, as the listener has found out; nil: not authenticated.
	Identity *caller.Identity
	// Account is charged with the memory of the call. Nil: the interceptors open one.
	Account *admission.Account
	// Lent gets the memory that the response has views of, and releases it when the response is
	// written. Nil: the caller does not say when that is.
	Lent *Lent
	// Casual is true if the client may read only the first page of a result, such as after a plain
	// GET.
	Casual bool
	// Whole is true if the caller makes one response of the messages of a stream. Each batch then
	// has the timeout of a unary call, since the call has none.
	Whole bool
	// Text is true if the caller turns the documents of the response into JSON, as REST does.
	Text bool
	// Texts, if Text is set, makes the text of a first page while the page is cut: it is a
	// batch.Texts, and is called on the caller's goroutine. Nil: the caller makes the text of the
	// response.
	Texts interface {
		Make(docs []bson.Raw, bytes int) int
	}
	// Built is true if the caller has itself built the BSON of every document and value in the
	// request, from JSON. Such BSON is valid, and handlers do not validate it.
	Built bool
	// Forwarded is true if the client has called another replica, which has decided about the call,
	// forwards it and audits it.
	Forwarded bool
	// Owner is the life of the replica that a forwarded call is meant for; zero: any.
	Owner page.Instance
	// Quiet is true if the client may not see what the server says in errors. The policy's decision
	// sets it, here or at the replica that forwards the call.
	Quiet bool
	// Taken is what the replica that forwards the call has allowed it by; empty: nothing.
	Taken string
	// Ticket is the ticket of a change stream that has opened the call; empty: there is none.
	Ticket string
	// Client is the client's address; zero: not known.
	Client netip.Addr
}

type (
	key      struct{}
	localKey struct{}
)

// LocalContext carries a Local from a caller within the process to the interceptors.
type LocalContext struct {
	context.Context //nolint:containedctx // it is a context
	Local
}

// Value returns the Local for the key of LocalFrom, and the value of the inner context for other
// keys.
func (c *LocalContext) Value(k any) any {
	if k == (localKey{}) {
		return &c.Local
	}
	return c.Context.Value(k)
}

// LocalFrom returns the Local of the LocalContext that ctx is, or is derived from. It returns the
// zero Local if there is none.
func LocalFrom(ctx context.Context) Local {
	if l, ok := ctx.Value(localKey{}).(*Local); ok {
		return *l
	}
	return Local{}
}

// Context carries a call. It is a struct, so that the value that an interceptor makes for a call
// can also be the handler's context.
type Context struct {
	context.Context //nolint:containedctx // it is a context, of the call that it stands beside
	Call
	// Spent adds up where the call's operations spend their time.
	Spent operation.Spent
}

// Value returns the call for the key of From, its account for admission.AccountKey, its Spent for
// operation.SpentKey, and the value of the inner context for other keys.
func (c *Context) Value(k any) any {
	switch k {
	case key{}:
		return &c.Call
	case admission.AccountKey{}:
		return c.Account
	case operation.SpentKey{}:
		return &c.Spent
	}
	return c.Context.Value(k)
}

// Watch does what that of ctxwatch.Watchable does, if the context below can.
func (c *Context) Watch(interrupt func()) bool {
	w, ok := c.Context.(ctxwatch.Watchable)
	return ok && w.Watch(interrupt)
}

// Unwatch ends what a Watch that reported true has begun.
func (c *Context) Unwatch() bool {
	w, ok := c.Context.(ctxwatch.Watchable)
	return ok && w.Unwatch()
}

// From returns the call of the Context that ctx is, or is derived from. It panics if there is none:
// a handler without interceptors would serve every client as the same principal.
func From(ctx context.Context) *Call {
	c, ok := ctx.Value(key{}).(*Call)
	if !ok {
		panic("bug: call: the context has no call")
	}
	return c
}
