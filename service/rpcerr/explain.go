package rpcerr

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
)

// explanation is all that a client is told about an error.
type explanation struct {
	row
	message string
	field   string
	offset  *int64
	server  *mooringv1.ServerError     // if the server answered
	result  *mooringv1.BulkWriteResult // if something was done before
	// others are details of a status that this package does not know.
	others []*anypb.Any
	// retryAfter is when to come back; 0: nothing is said of it.
	retryAfter time.Duration
}

func (x *explanation) at(offset int64) { x.offset = &offset }

// serverRow is the row of a server's code; any other refusal is FAILED_PRECONDITION.
func serverRow(code int32, name string, labels []string) row {
	r, ok := serverCodes[code]
	if !ok {
		r = refused
		r.reason = Reason("Location" + strconv.Itoa(int(code))) // as servers call codes without a name
	}
	if name != "" {
		r.reason = Reason(cut(name, maxReasonBytes))
	}
	switch {
	case slices.Contains(labels, mongoerr.LabelTransientTransaction):
		r.code, r.http, r.retry = conflict.code, conflict.http, Transaction
	case slices.Contains(labels, mongoerr.LabelNoWritesPerformed):
		r.retry = SameRequest
	}
	return r
}

// balancerHint tells what CursorNotFound often means if the server answers it at once.
const balancerHint = " (if the server's address is that of a load balancer, the connection string needs loadBalanced=true)"

// stateChange makes an error of a server that changes its state "unavailable", also if only its
// words say so: an error without a code has no row of its own (SDAM, "Parsing a 'not writable
// primary' error").
func (x *explanation) stateChange(err error) {
	if x.code == refused.code && mongoerr.IsStateChange(err) {
		x.code, x.http = unavailable.code, unavailable.http
	}
}

func (x *explanation) command(e *mongoerr.CommandError) {
	x.row = serverRow(e.Code, e.Name, e.Labels)
	x.stateChange(e)
	if mongoerr.IsNotWritablePrimary(e) { // refused before anything was done
		x.code, x.http, x.retry = unavailable.code, unavailable.http, SameRequest
	}
	x.message = e.Message
	if x.reason == CursorNotFound {
		x.message += balancerHint
	}
	x.server = &mooringv1.ServerError{
		Code: e.Code, CodeName: string(x.reason), Labels: valids(e.Labels),
		KeyPattern: documentAt(e.Reply, "keyPattern"),
		KeyValue:   documentAt(e.Reply, "keyValue"),
		ErrInfo:    documentAt(e.Reply, "errInfo"),
	}
}

func (x *explanation) writes(e *mongoerr.WriteException) {
	x.server = &mooringv1.ServerError{Labels: valids(e.Labels)}
	if e.WriteConcernError != nil {
		x.server.WriteConcernError = newWriteConcernError(e.WriteConcernError)
	}
	if len(e.WriteErrors) == 0 {
		x.row = serverRow(0, "WriteError", e.Labels)
		return
	}
	first := e.WriteErrors[0]
	x.row = serverRow(first.Code, "", e.Labels)
	x.message = first.Message
	x.server.Code, x.server.CodeName = first.Code, string(x.reason)
	x.server.KeyPattern, x.server.KeyValue = documentAt(first.Raw, "keyPattern"), documentAt(first.Raw, "keyValue")
	x.server.ErrInfo = documentAt(first.Raw, "errInfo")
	for _, w := range e.WriteErrors {
		x.server.WriteErrors = append(x.server.WriteErrors, newWriteError(w))
	}
}

func (x *explanation) writeConcern(e *mongoerr.WriteConcernError) {
	x.row = serverRow(e.Code, e.Name, e.Labels)
	x.stateChange(e)
	x.message = e.Message
	x.server = &mooringv1.ServerError{
		Code: e.Code, CodeName: string(x.reason), Labels: valids(e.Labels), WriteConcernError: newWriteConcernError(e),
	}
}

// partial adds what was done before the failure. If anything was, only a transaction, which undoes
// it, may be repeated.
func (x *explanation) partial(r Result) {
	if len(r.InsertedIDs) > 0 && x.retry != Transaction {
		x.retry = Never
	}
	if x.server == nil && len(r.WriteErrors) > 0 {
		x.server = &mooringv1.ServerError{}
	}
	if len(r.WriteErrors) > 0 && len(x.server.GetWriteErrors()) == 0 {
		for _, w := range r.WriteErrors {
			x.server.WriteErrors = append(x.server.WriteErrors, newWriteError(w))
		}
	}
	count := int64(len(r.InsertedIDs))
	x.result = &mooringv1.BulkWriteResult{InsertedCount: &count}
	for _, id := range r.InsertedIDs {
		x.result.InsertedIds = append(x.result.InsertedIds, &mooringv1.InsertedId{Index: int64(id.Index), Id: payload.NewValue(id.ID)})
	}
}

// newWriteError returns the message of one write that failed, in the native form.
func newWriteError(w mongoerr.WriteError) *mooringv1.WriteError {
	m := &mooringv1.WriteError{
		Index: int64(w.Index), Code: w.Code, Message: valid(w.Message),
		KeyPattern: documentAt(w.Raw, "keyPattern"), KeyValue: documentAt(w.Raw, "keyValue"), ErrInfo: documentAt(w.Raw, "errInfo"),
	}
	if r, ok := serverCodes[w.Code]; ok {
		name := string(r.reason)
		m.CodeName = &name
	}
	return m
}

// newWriteConcernError returns the message of a write concern that was not met, in the native
// form; nil for nil.
func newWriteConcernError(e *mongoerr.WriteConcernError) *mooringv1.WriteConcernError {
	if e == nil {
		return nil
	}
	return &mooringv1.WriteConcernError{
		Code: e.Code, CodeName: valid(e.Name), Message: valid(e.Message), ErrInfo: documentAt(e.Raw, "errInfo"), Labels: valids(e.Labels),
	}
}

// documentAt is a reply's field, if it is a document, and a valid one: what servers send is not
// believed.
func documentAt(reply bson.Raw, key string) *mooringv1.Document {
	v, _ := reply.Lookup(key)
	raw, ok := v.Document()
	if !ok || raw.Validate() != nil {
		return nil
	}
	return payload.NewDocument(raw)
}

// valid is s as a proto string can hold it: servers' texts are not checked before they get here.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Text is an error's text as a proto string can hold it, at most as long as a status' message; ""
// for nil. It is for errors that are part of an answer; those that are the answer are a Status.
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
