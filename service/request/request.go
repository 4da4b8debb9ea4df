// Package request reads the fields that requests of several services share: documents, options
// that are messages, and fields whose feature does not exist yet. A Table maps the fields of
// requests to the options of an operation.
//
// The package checks shapes and presence. An unset field stays unset, so that the gateway sends
// nothing for it. The package does not know what options mean.
package request

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/selection"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Reader reads one request. It keeps the first error; results after an error must not be used.
type Reader struct {
	*call.Call
	err error
	// work has no turn between two methods: who reads a request may wait for other things.
	work admission.Work
}

func newReader(ctx context.Context) *Reader {
	return &Reader{Call: call.From(ctx), work: admission.From(ctx).Work(ctx)}
}

// handles describes requests, all of which can carry these tokens.
type handles interface {
	proto.Message
	GetSession() string
	GetTransaction() string
}

// Read returns a Reader of a request whose context has a call. If the request is in a session, the
// call is, too. Read refuses an idempotency key, which is for ReadWrite. statement is the request's
// field.
func Read(ctx context.Context, req handles, statement *int32) *Reader {
	r := read(ctx, req, statement)
	r.refuseKey(ctx)
	return r
}

func read(ctx context.Context, req handles, statement *int32) *Reader {
	r := newReader(ctx)
	r.Known("", req)
	switch {
	case r.Transaction != nil: // the interceptors have read the fields
	case req.GetTransaction() != "":
		r.unbuilt("transaction")
	case len(metadata.ValueFromIncomingContext(ctx, call.TransactionKey)) > 0:
		r.unbuilt(call.TransactionKey)
	case statement != nil:
		r.Refuse("statement", "is for operations of a transaction, whose token is missing")
	}
	r.openSession(ctx, req.GetSession())
	if r.Transaction != nil && r.Session != nil {
		Inform(r.Transaction.Session, r.Session)
	}
	return r
}

// inSession describes requests that can be in a session.
type inSession interface {
	proto.Message
	GetSession() string
}

// ReadSession returns a Reader of a request that can be in a session and is in no transaction, or
// reads the transaction's token itself.
func ReadSession(ctx context.Context, req inSession) *Reader {
	r := newReader(ctx)
	r.Known("", req)
	r.openSession(ctx, req.GetSession())
	r.refuseKey(ctx)
	return r
}

// RefuseTransaction makes a call fail whose metadata has a transaction's token.
func (r *Reader) RefuseTransaction(ctx context.Context) {
	if len(metadata.ValueFromIncomingContext(ctx, call.TransactionKey)) > 0 {
		r.Refuse(call.TransactionKey, "this call does not take it")
	}
}

// Inform lets one session know the times that another one has seen.
func Inform(to, from *client.Session) {
	to.AdvanceOperationTime(from.OperationTime())
	to.AdvanceClusterTime(from.ClusterTime())
}

// sessionKey is the metadata key of a session's token.
const sessionKey = "mooring-session"

// openSession opens the session of a request whose field has this token, or whose metadata has one.
func (r *Reader) openSession(ctx context.Context, token string) {
	for _, other := range metadata.ValueFromIncomingContext(ctx, sessionKey) {
		if token != "" && other != token {
			r.Refuse(sessionKey, "the request has another session")
		}
		token = other
	}
	if token == "" || r.err != nil {
		return
	}
	if r.Sessions == nil {
		r.unbuilt("session")
		return
	}
	opened, err := r.Sessions.Open(r.Principal, token)
	if err != nil {
		r.fail(err)
		return
	}
	r.Session = opened
}

// TransactionID returns the transaction that the call runs in; zero: none.
func (r *Reader) TransactionID() handle.ID {
	if r.Transaction == nil {
		return handle.ID{}
	}
	return handle.ID(r.Transaction.ID)
}

// closer lists the methods of a registry of handles that Page needs.
type closer interface {
	CloseCursor(ctx context.Context, a paging.Asking) error
}

// Page encodes a page. If that fails, the client gets neither the page nor its token, so Page
// closes the cursor. It fails if the page begins with a document that JSON cannot carry: paging
// ends a page before a later one.
func (r *Reader) Page(
	ctx context.Context, handles closer, page paging.Page,
) ([]*mooringv1.Document, error) {
	var docs []*mooringv1.Document
	err := r.encode(page.Documents, func() (err error) { //nolint:contextcheck // a turn comes soon
		docs, err = r.Encoding.Documents(page.Documents)
		return err
	})
	if err != nil && page.Token != "" {
		// If this fails, the cursor is killed later.
		_ = handles.CloseCursor(ctx, paging.Asking{Principal: r.Principal, Token: page.Token})
	}
	if err != nil {
		return nil, err
	}
	return docs, nil
}

// Batches returns a function that sends a stream's documents with send. Documents can be many times
// larger as JSON, so the function splits them again: a message has at most so many bytes, or one
// document. If a document cannot be encoded, the documents before it are sent.
//
// In the native form, messages are used again, so the client's transport must be done with a
// message when send has accepted the second one after it. That is less than stream.Run asks of it.
func (r *Reader) Batches(
	bytes int, send func([]*mooringv1.Document) error,
) func([]bson.Raw) error {
	if r.Encoding == payload.BSON {
		return inTurn(send)
	}
	return func(docs []bson.Raw) error {
		for len(docs) > 0 {
			var messages []*mooringv1.Document
			unencodable := r.encode(docs, func() (err error) {
				messages, err = r.Encoding.Leading(docs, bytes)
				return err
			})
			if len(messages) > 0 {
				if err := send(messages); err != nil {
					return err
				}
			}
			if unencodable != nil {
				return unencodable
			}
			docs = docs[len(messages):]
		}
		return nil
	}
}

// mostKept is for how many documents messages are kept for the next ones.
const mostKept = 2 << 10

// inTurn returns a function that sends documents in their native form, in messages that it uses in
// turn.
func inTurn(send func([]*mooringv1.Document) error) func([]bson.Raw) error {
	var sets [3]payload.Natives
	turn := 0
	return func(docs []bson.Raw) error {
		if len(docs) == 0 {
			return nil
		}
		if len(docs) > mostKept {
			return send(new(payload.Natives).Documents(docs))
		}
		turn = (turn + 1) % len(sets)
		return send(sets[turn].Documents(docs))
	}
}

// encode does the work on documents, which is heavy if they become JSON.
func (r *Reader) encode(docs []bson.Raw, do func() error) error {
	if r.Encoding == payload.BSON {
		return do()
	}
	size := 0
	for _, d := range docs {
		size += len(d)
	}
	_ = r.work.Do(size) // what was read for a client that has gone may be kept until it is back
	defer r.work.Rest()
	return do()
}

// valueCost is what a value of a response takes beside its bytes, in messages and in lists.
const valueCost = 128

// Values encodes the values of a server's answer, and charges the call before.
func (r *Reader) Values(array bson.Array) ([]*mooringv1.Value, error) {
	_ = r.work.Do(len(array)) // as in encode
	defer r.work.Rest()
	n := array.Len()
	if cost := n*valueCost + len(array)*max(r.Inflation(), 1); cost >= largeCopy {
		if err := r.work.Charge(int64(cost)); err != nil {
			return nil, err
		}
	}
	values := make([]bson.Value, 0, n)
	for _, v := range array.All() {
		values = append(values, v)
	}
	return r.Encoding.Values(values)
}

// Inflation returns 0 if the client gets documents as BSON. Otherwise it returns how many times
// larger than BSON a page may become. The size of a page is counted in BSON, but the encoded page
// must fit the limit of a gRPC client. A REST client has no such limit.
func (r *Reader) Inflation() int {
	switch {
	case r.Encoding == payload.CanonicalJSON:
		return 5
	case r.Encoding == payload.JSON:
		return 3
	case r.Text:
		return 1
	default:
		return 0
	}
}

// Err returns the first error, or nil if the request can be run.
func (r *Reader) Err() error { return r.err }

// Refuse makes the request fail with INVALID_ARGUMENT for a field.
func (r *Reader) Refuse(field, format string, args ...any) {
	r.fail(&rpcerr.Error{
		Reason: rpcerr.InvalidArgument, Field: field, Message: fmt.Sprintf(format, args...),
	})
}

// Within makes the request's error one about a field of the given field.
func (r *Reader) Within(field string) {
	if e, ok := errors.AsType[*rpcerr.Error](r.err); ok {
		e.Field = join(field, e.Field)
	}
	if e, ok := errors.AsType[*payload.Error](r.err); ok {
		e.Field = join(field, e.Field)
	}
}

func join(field, within string) string {
	if within == "" {
		return field
	}
	return field + "." + within
}

func (r *Reader) unbuilt(field string) {
	r.fail(&rpcerr.Error{
		Reason: rpcerr.Unimplemented, Field: field,
		Message: "is not supported by this version of the gateway",
	})
}

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Known refuses a message with fields that this version does not have, because dropping them would
// ignore an option.
func (r *Reader) Known(field string, m proto.Message) {
	if len(m.ProtoReflect().GetUnknown()) == 0 {
		return
	}
	if field == "" {
		field = "request"
	}
	r.Refuse(field, "has a field that this version of the gateway does not know%s", hint(m))
}

// hint returns what to say of a field that earlier versions knew, and this one does not.
func hint(m proto.Message) string {
	switch m.(type) {
	case *mooringv1.NextPageRequest, *mooringv1.CursorServiceStreamRequest:
	default:
		return ""
	}
	for rest := m.ProtoReflect().GetUnknown(); len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			break
		}
		if number == rpcerr.AllowGapNumber {
			return ": " + rpcerr.AllowGapGone
		}
		rest = rest[n:]
	}
	return ""
}

func (r *Reader) decoder() payload.Decoder { return payload.Decoder{Built: r.Built, By: &r.work} }

// Release returns what was charged, when nothing uses what was read any more. Otherwise it is
// returned at the end of the call.
func (r *Reader) Release() { r.work.Release() }

// Document reads an optional document. It returns nil if the field is unset.
func (r *Reader) Document(field string, d *mooringv1.Document) bson.Raw {
	if d == nil {
		return nil
	}
	r.Known(field, d)
	defer r.work.Rest()
	raw, err := r.decoder().Raw(field, d)
	if err != nil {
		r.fail(err)
	}
	return raw
}

// Keys reads an optional document whose order matters. It accepts an array of pairs, too.
func (r *Reader) Keys(field string, d *mooringv1.Document) bson.Raw {
	if d == nil {
		return nil
	}
	r.Known(field, d)
	defer r.work.Rest()
	raw, err := r.decoder().Keys(field, d)
	if err != nil {
		r.fail(err)
	}
	return raw
}

// Required reads a document that must be set.
func (r *Reader) Required(field string, d *mooringv1.Document) bson.Raw {
	if d == nil {
		r.Refuse(field, "is required")
	}
	return r.Document(field, d)
}

// Documents reads a list of documents. It returns nil if the list is empty.
func (r *Reader) Documents(field string, docs []*mooringv1.Document) []bson.Raw {
	for _, d := range docs {
		if d != nil {
			r.Known(field, d)
		}
	}
	defer r.work.Rest()
	raws, err := r.decoder().List(field, docs)
	if err != nil {
		r.fail(err)
	}
	return raws
}

// Each reads the documents of a list that goes on from message to message, of which the first one
// here has the number first. It calls add with each, until one cannot be read.
func (r *Reader) Each(
	field string, first int, docs []*mooringv1.Document, add func(bson.Raw),
) {
	defer r.work.Rest()
	for i, d := range docs {
		raw := r.listed(d)
		if r.err != nil {
			r.Within(field + "." + strconv.Itoa(first+i))
			return
		}
		add(raw)
	}
}

// listed reads a document of a list.
func (r *Reader) listed(d *mooringv1.Document) bson.Raw {
	if d == nil {
		r.Refuse("", "is required")
		return nil
	}
	r.Known("", d)
	raw, err := r.decoder().Raw("", d)
	if err != nil {
		r.fail(err)
	}
	return raw
}

// Array reads a list of documents as an array. It returns nil if the list is empty.
func (r *Reader) Array(field string, docs []*mooringv1.Document) bson.Array {
	return r.array(r.Documents(field, docs))
}

// largeCopy is the size from which an array or another copy of the request, and what Values makes,
// is charged.
const largeCopy = 64 << 10

func (r *Reader) array(docs []bson.Raw) bson.Array {
	if len(docs) == 0 {
		return nil
	}
	size := 16
	for _, doc := range docs {
		size += len(doc) + 8
	}
	if size >= largeCopy {
		if err := r.work.Charge(int64(size)); err != nil {
			r.fail(err)
			return nil
		}
	}
	b := bson.NewBuilder(make([]byte, 0, size)).OpenArray("a")
	for _, doc := range docs {
		b.Document("", doc)
	}
	v, _ := b.Close().Finish().Lookup("a")
	a, _ := v.Array()
	return a
}

// Value reads an optional value. It returns the zero Value if the field is unset, else a copy,
// because comments are used after their request has ended.
func (r *Reader) Value(field string, v *mooringv1.Value) bson.Value {
	if v == nil {
		return bson.Value{}
	}
	r.Known(field, v)
	defer r.work.Rest()
	value, err := r.decoder().Value(field, v)
	if err != nil {
		r.fail(err)
	}
	if len(value.Data) >= largeCopy && r.err == nil {
		if err := r.work.Charge(int64(len(value.Data))); err != nil {
			r.fail(err)
			return bson.Value{}
		}
	}
	return bson.Value{Type: value.Type, Data: append([]byte(nil), value.Data...)}
}

// Hint reads the name or the keys of an index. It returns the zero Value if the field is unset.
func (r *Reader) Hint(field string, h *mooringv1.Hint) bson.Value {
	if h == nil {
		return bson.Value{}
	}
	r.Known(field, h)
	switch kind := h.GetKind().(type) {
	case *mooringv1.Hint_Name:
		return bson.StringValue(kind.Name)
	case *mooringv1.Hint_Keys:
		return bson.DocumentValue(r.member(field, kind.Keys, r.Keys))
	default:
		r.Refuse(field, "has neither name nor keys")
		return bson.Value{}
	}
}

// member reads a document that is the set member of a oneof. A nil document is malformed there.
func (r *Reader) member(
	field string, d *mooringv1.Document, read func(string, *mooringv1.Document) bson.Raw,
) bson.Raw {
	if d == nil {
		d = &mooringv1.Document{}
	}
	return read(field, d)
}

// Update reads operators or a pipeline. core checks the operators before anything is sent.
func (r *Reader) Update(field string, u *mooringv1.Update) bson.Value {
	if u == nil {
		r.Refuse(field, "is required")
		return bson.Value{}
	}
	r.Known(field, u)
	switch kind := u.GetKind().(type) {
	case *mooringv1.Update_Operators:
		return bson.DocumentValue(r.member(field, kind.Operators, r.Document))
	case *mooringv1.Update_Pipeline:
		if kind.Pipeline != nil {
			r.Known(field, kind.Pipeline)
		}
		return bson.ArrayValue(r.Array(field, kind.Pipeline.GetStages()))
	default:
		r.Refuse(field, "has neither operators nor a pipeline")
		return bson.Value{}
	}
}

// ReadPreference reads a read preference. It returns nil if the field is unset.
func (r *Reader) ReadPreference(p *mooringv1.ReadPreference) *selection.ReadPreference {
	if p == nil {
		return nil
	}
	r.Known("readPreference", p)
	rp := &selection.ReadPreference{MaxStalenessSeconds: p.MaxStalenessSeconds}
	if p.Mode != nil {
		mode, err := selection.ParseMode(p.GetMode())
		switch {
		case err != nil:
			r.Refuse("readPreference.mode", "%v", err)
		case mode.String() != p.GetMode(): // a connection string may have it in any case
			r.Refuse("readPreference.mode", "%q is written %s", p.GetMode(), mode)
		}
		rp.Mode = mode
	}
	for _, set := range p.GetTags() {
		r.Known("readPreference.tags", set)
		var tags []description.Tag
		for name, value := range set.GetTags() {
			tags = append(tags, description.Tag{Name: name, Value: value})
		}
		rp.TagSets = append(rp.TagSets, description.NewTagSet(tags...))
	}
	return rp
}

// ReadConcern reads a read concern. It returns nil if the field is unset.
func (r *Reader) ReadConcern(c *mooringv1.ReadConcern) *client.ReadConcern {
	if c == nil {
		return nil
	}
	r.Known("readConcern", c)
	return &client.ReadConcern{Level: c.GetLevel()}
}

// WriteConcern reads a write concern. It returns nil if the field is unset.
func (r *Reader) WriteConcern(c *mooringv1.WriteConcern) *client.WriteConcern {
	if c == nil {
		return nil
	}
	r.Known("writeConcern", c)
	wc := &client.WriteConcern{Journal: c.J, WTimeoutMS: c.WtimeoutMs}
	if c.W == nil {
		return wc
	}
	r.Known("writeConcern.w", c.W)
	switch kind := c.W.GetKind().(type) {
	case *mooringv1.W_Nodes:
		wc.Nodes = &kind.Nodes
		if kind.Nodes == 0 && r.Exact != nil {
			r.RefuseKey("a write that is not acknowledged does not take a key")
		}
	case *mooringv1.W_Tag:
		if wc.Tag = kind.Tag; wc.Tag == "" {
			r.Refuse("writeConcern.w", "is empty")
		}
	default:
		r.Refuse("writeConcern.w", "has neither nodes nor a tag")
	}
	return wc
}

// ReturnDocument reads "before" or "after".
func (r *Reader) ReturnDocument(text *string) client.ReturnDocument {
	switch {
	case text == nil:
		return client.ReturnUnset
	case *text == "before":
		return client.ReturnBefore
	case *text == "after":
		return client.ReturnAfter
	}
	r.Refuse("returnDocument", "%q is not before or after", *text)
	return client.ReturnUnset
}

// CursorType reads "nonTailable", "tailable" or "tailableAwait".
func (r *Reader) CursorType(text *string) client.CursorType {
	switch {
	case text == nil, *text == "nonTailable":
		return client.NonTailable
	case *text == "tailable":
		return client.Tailable
	case *text == "tailableAwait":
		return client.TailableAwait
	}
	r.Refuse("cursorType", "%q is not nonTailable, tailable or tailableAwait", *text)
	return client.NonTailable
}

// BatchSize refuses numbers below 0, which getMore does not accept. It returns a copy.
func (r *Reader) BatchSize(n *int32) *int32 {
	if n != nil && *n < 0 {
		r.Refuse("batchSize", "is negative")
	}
	return Copy(n)
}

// NonNegative refuses numbers below 0, which servers treat differently.
func (r *Reader) NonNegative(field string, n *int64) *int64 {
	if n != nil && *n < 0 {
		r.Refuse(field, "is negative")
	}
	return n
}

// MaxTimeMS reads how long the server may work on an operation.
func (r *Reader) MaxTimeMS(n *int64) *int64 { return r.NonNegative("maxTimeMS", n) }

// MaxAwaitTimeMS reads how long a tailable cursor may wait. It returns a copy, because a cursor is
// used after its request has ended.
func (r *Reader) MaxAwaitTimeMS(n *int64) *int64 { return Copy(r.NonNegative("maxAwaitTimeMS", n)) }

// Cursor reads a cursor's token.
func (r *Reader) Cursor(token string) string {
	if token == "" {
		r.Refuse("cursor", "is required")
	}
	return token
}

// Copy returns a copy of an option that is used after its request has ended, or nil for nil.
func Copy[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
