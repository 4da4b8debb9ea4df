package rpcerr

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
)

// explanation holds all that a client is told about an error.
type explanation struct {
	row
	message string
	said    bool // the message is the server's
	// terse is the message of a terse call if its reason alone does not decide; else empty.
	terse  string
	kept   bool // the client is told that the server's words are kept back
	hushed bool // the errors of single writes and of the write concern are as the client sees them
	field  string
	offset *int64
	server *mooringv1.ServerError     // if the server answered
	result *mooringv1.BulkWriteResult // if something was done before the failure
	// others holds the details of a status that this package does not know.
	others []*anypb.Any
	// retryAfter is the time after which the client may retry; 0: the response has none.
	retryAfter time.Duration
}

func (x *explanation) at(offset int64) { x.offset = &offset }

// serverRow returns the row of a server's code. A code without a row is FAILED_PRECONDITION.
func serverRow(code int32, name string, labels []string) row {
	r, ok := serverCodes[code]
	if !ok {
		r = refused
		// Servers name a code without a name like this, too.
		r.reason = Reason("Location" + strconv.Itoa(int(code)))
	}
	if name != "" {
		r.reason = Reason(cut(name, maxReasonBytes))
	}
	if slices.Contains(labels, mongoerr.LabelTransientTransaction) {
		r.code, r.http, r.retry = conflict.code, conflict.http, Transaction
	}
	return r
}

// balancerHint names a frequent cause of a CursorNotFound that the server returns at once.
const balancerHint = " (if the server's address is that of a load balancer, " +
	"the connection string needs loadBalanced=true)"

// stateChange makes the error of a server that changes its state UNAVAILABLE. That includes an
// error without a code, which has no row of its own: its message is compared (SDAM, "Parsing a 'not
// writable primary' error").
func (x *explanation) stateChange(err error) {
	if x.code == refused.code && mongoerr.IsStateChange(err) {
		x.code, x.http = unavailable.code, unavailable.http
	}
}

// overload makes the refusal of a server that is overloaded UNAVAILABLE. In a transaction, the
// client repeats the whole transaction.
func (x *explanation) overload(err error) {
	if x.retry != Transaction && mongoerr.IsRetryableOverload(err) {
		x.code, x.http = unavailable.code, unavailable.http
	}
}

// inTransaction explains an error that ends a transaction: the client repeats all of the
// transaction, or the commit whose outcome is unknown. The deadline and the cancellation of a call
// keep their statuses.
func (x *explanation) inTransaction(err error) {
	switch {
	case mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult):
		x.row = reasons[UnknownCommitResult]
		if x.server == nil {
			x.server = &mooringv1.ServerError{}
		}
		x.server.Labels = withLabel(x.server.GetLabels(),
			mongoerr.LabelUnknownTransactionCommitResult)
	case !mongoerr.HasLabel(err, mongoerr.LabelTransientTransaction):
	case x.code == codes.DeadlineExceeded, x.code == codes.Canceled:
		x.retry = Transaction
	default:
		x.code, x.http, x.retry = conflict.code, conflict.http, Transaction
	}
}

func withLabel(labels []string, label string) []string {
	if slices.Contains(labels, label) {
		return labels
	}
	return append(slices.Clip(labels), label)
}

func (x *explanation) command(e *mongoerr.CommandError) {
	x.row = serverRow(e.Code, e.Name, e.Labels)
	x.stateChange(e)
	x.overload(e)
	x.message, x.said = e.Message, true
	if x.reason == CursorNotFound {
		x.message += balancerHint
	}
	x.server = &mooringv1.ServerError{
		Code: e.Code, CodeName: string(x.reason), Labels: valids(e.Labels),
		KeyPattern: documentAt(e.Reply, "keyPattern"),
		KeyValue:   documentAt(e.Reply, "keyValue"),
		ErrInfo:    documentAt(e.Reply, "errInfo"),
	}
	x.server.Violations = violations(e.Code, x.server.GetErrInfo())
}

// login explains the refusal of a command of the gateway's own login, which is no fault of the
// client's command. A state of the server and AuthenticationFailed keep their rows.
func (x *explanation) login(e *mongoerr.CommandError, err error) {
	_, ok := errors.AsType[*auth.Error](err)
	if !ok || passes(x.code) || x.code == codes.Internal {
		return
	}
	x.row, x.server, x.said = reasons[Configuration], nil, false
	x.message = fmt.Sprintf("the MongoDB server refuses the gateway's login (code %d)", e.Code)
}

func (x *explanation) writes(e *mongoerr.WriteException) {
	x.said = true
	x.server = &mooringv1.ServerError{Labels: valids(e.Labels)}
	if e.WriteConcernError != nil {
		x.server.WriteConcernError = newWriteConcernError(e.WriteConcernError)
	}
	if len(e.WriteErrors) == 0 {
		x.row, x.message = serverRow(0, "WriteError", e.Labels), e.Error()
		return
	}
	first := e.WriteErrors[0]
	x.row = serverRow(first.Code, "", e.Labels)
	x.message = first.Message
	x.server.Code, x.server.CodeName = first.Code, string(x.reason)
	x.server.KeyPattern = documentAt(first.Raw, "keyPattern")
	x.server.KeyValue = documentAt(first.Raw, "keyValue")
	x.server.ErrInfo = documentAt(first.Raw, "errInfo")
	x.server.Violations = violations(first.Code, x.server.GetErrInfo())
	for _, w := range e.WriteErrors {
		x.server.WriteErrors = append(x.server.WriteErrors, newWriteError(w))
	}
}

func (x *explanation) writeConcern(e *mongoerr.WriteConcernError) {
	x.row = serverRow(e.Code, e.Name, e.Labels)
	x.stateChange(e)
	x.message, x.said = e.Message, true
	x.server = &mooringv1.ServerError{
		Code: e.Code, CodeName: string(x.reason), Labels: valids(e.Labels),
		WriteConcernError: newWriteConcernError(e),
	}
}

// partial adds what was done before the failure.
func (x *explanation) partial(r Result) {
	if r.hasErrors() {
		x.addErrors(r)
	}
	x.result = &mooringv1.BulkWriteResult{
		InsertedCount: r.InsertedCount, MatchedCount: r.MatchedCount,
		ModifiedCount: r.ModifiedCount, DeletedCount: r.DeletedCount,
		UpsertedCount: r.UpsertedCount,
		InsertedIds:   newIDs(r.InsertedIDs), UpsertedIds: newIDs(r.UpsertedIDs),
	}
}

func (x *explanation) addErrors(r Result) {
	if x.server == nil {
		x.server = &mooringv1.ServerError{}
	}
	if r.Response != nil {
		x.server.WriteErrors = r.Response.GetWriteErrors()
		x.server.WriteConcernError = r.Response.GetWriteConcernError()
		x.hushed = true // by Hush, which knows the client
		return
	}
	if r.WriteConcernError != nil && x.server.WriteConcernError == nil {
		x.server.WriteConcernError = newWriteConcernError(r.WriteConcernError)
	}
	if len(x.server.GetWriteErrors()) == 0 {
		for _, w := range r.WriteErrors {
			x.server.WriteErrors = append(x.server.WriteErrors, newWriteError(w))
		}
	}
}

// newIDs returns the messages of ids, in the native form.
func newIDs(ids []client.IndexedID) (messages []*mooringv1.InsertedId) {
	for _, id := range ids {
		message := &mooringv1.InsertedId{Index: int64(id.Index), Id: payload.NewValue(id.ID)}
		messages = append(messages, message)
	}
	return messages
}

// newWriteError returns the message of one write that failed, in the native form.
func newWriteError(w mongoerr.WriteError) *mooringv1.WriteError {
	m := &mooringv1.WriteError{
		Index: int64(w.Index), Code: w.Code, Message: valid(w.Message),
		KeyPattern: documentAt(w.Raw, "keyPattern"), KeyValue: documentAt(w.Raw, "keyValue"),
		ErrInfo: documentAt(w.Raw, "errInfo"),
	}
	m.Violations = violations(w.Code, m.GetErrInfo())
	if r, ok := serverCodes[w.Code]; ok {
		name := string(r.reason)
		m.CodeName = &name
	}
	return m
}

// newWriteConcernError returns the message of a write concern that was not met, in the native
// form. It returns nil for nil.
func newWriteConcernError(e *mongoerr.WriteConcernError) *mooringv1.WriteConcernError {
	if e == nil {
		return nil
	}
	return &mooringv1.WriteConcernError{
		Code: e.Code, CodeName: valid(e.Name), Message: valid(e.Message),
		ErrInfo: documentAt(e.Raw, "errInfo"), Labels: valids(e.Labels),
	}
}

// documentAt returns a field of a reply if it is a valid document, else nil. It validates the
// field because replies are not validated before.
func documentAt(reply bson.Raw, key string) *mooringv1.Document {
	v, _ := reply.Lookup(key)
	raw, ok := v.Document()
	if !ok || raw.Validate() != nil {
		return nil
	}
	return payload.NewDocument(raw)
}

// valid returns s as valid UTF-8, which a proto string needs. Texts of servers are not checked
// before.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Text returns an error's text as valid UTF-8, cut to the longest message that a status may have.
// It returns "" for nil. Text is for an error that is part of a response; for an error that ends
// the call, see Status.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return cut(err.Error(), maxMessageBytes)
}

func valids(list []string) []string {
	if !slices.ContainsFunc(list, func(s string) bool { return !utf8.ValidString(s) }) {
		return list
	}
	fixed := make([]string, len(list))
	for i, s := range list {
		fixed[i] = valid(s)
	}
	return fixed
}
