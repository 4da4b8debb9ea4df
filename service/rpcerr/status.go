package rpcerr

import (
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Domain is the ErrorInfo's domain.
const Domain = "mooring.v1"

// The keys of the ErrorInfo's metadata.
const (
	keyRetry     = "retry"
	keyRequestID = "requestId"
	keyField     = "field"
	keyOffset    = "offset"
	keyHTTP      = "httpStatus"
)

// A status travels in HTTP/2 headers, and clients refuse large ones: message and details together stay under maxStatusBytes.
const (
	maxStatusBytes  = 4096
	maxMessageBytes = 1024 // of the status' message
	maxPartBytes    = 256  // of a write error's message
	maxFieldBytes   = 256
	maxReasonBytes  = 63 // as ErrorInfo asks for
	// sparedBytes are for what comes later (the request id) and for the details' types.
	sparedBytes = 400
)

// retryAfter is when to come back where a retry makes sense: servers are found again, and pools emptied, within about that.
const retryAfter = time.Second

func (x *explanation) status() *status.Status {
	message := cut(x.message, maxMessageBytes)
	info := &errdetails.ErrorInfo{
		Reason: string(x.reason), Domain: Domain,
		Metadata: map[string]string{keyRetry: string(x.retry), keyHTTP: strconv.Itoa(x.http)},
	}
	if x.field != "" {
		info.Metadata[keyField] = cut(x.field, maxFieldBytes)
	}
	if x.offset != nil {
		info.Metadata[keyOffset] = strconv.FormatInt(*x.offset, 10)
	}
	details := []proto.Message{info}
	if x.code == codes.Unavailable || x.code == codes.ResourceExhausted {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
	}
	room := maxStatusBytes - sparedBytes - len(message) - proto.Size(info)
	if x.server != nil {
		x.server.Truncated = len(message) < len(valid(x.message))
		fitted := fitServerError(x.server, room*3/4)
		room -= proto.Size(fitted)
		details = append(details, fitted)
	}
	if x.result != nil {
		details = append(details, fitResult(x.result, room))
	}
	return newStatus(x.code, message, details)
}

func newStatus(code codes.Code, message string, details []proto.Message) *status.Status {
	p := &statuspb.Status{Code: int32(code), Message: message}
	for _, d := range details {
		packed, err := anypb.New(d)
		if err != nil {
			packed = &anypb.Any{} // cannot be: the messages are our own, and their strings were checked
			p.Message += " (" + err.Error() + ")"
		}
		p.Details = append(p.Details, packed)
	}
	return status.FromProto(p)
}

// WithRequestID adds the request's id, and makes sure that there is an ErrorInfo to hold it: statuses from elsewhere have none.
func WithRequestID(st *status.Status, id string) *status.Status {
	if st.Code() == codes.OK {
		return st
	}
	p := st.Proto()
	for i, packed := range p.Details {
		info := &errdetails.ErrorInfo{}
		if !packed.MessageIs(info) || packed.UnmarshalTo(info) != nil || info.Domain != Domain {
			continue
		}
		info.Metadata[keyRequestID] = id
		if packed, err := anypb.New(info); err == nil {
			p.Details[i] = packed
		}
		return status.FromProto(p)
	}
	r := foreign(st.Code())
	info := &errdetails.ErrorInfo{Reason: string(r.reason), Domain: Domain, Metadata: map[string]string{
		keyRetry: string(r.retry), keyHTTP: strconv.Itoa(r.http), keyRequestID: id,
	}}
	if packed, err := anypb.New(info); err == nil {
		p.Details = append([]*anypb.Any{packed}, p.Details...)
	}
	return status.FromProto(p)
}

// fitServerError returns as much of m as fits into room bytes; m itself if it does.
func fitServerError(m *mooringv1.ServerError, room int) *mooringv1.ServerError {
	if proto.Size(m) <= room {
		return m
	}
	fitted := &mooringv1.ServerError{Code: m.Code, CodeName: cut(m.CodeName, maxPartBytes), Truncated: true}
	left := room - proto.Size(fitted)
	take := func(size int) bool { // what a field of that size takes, with its tag and length
		ok := size+4 <= left
		if ok {
			left -= size + 4
		}
		return ok
	}
	for _, label := range m.Labels {
		if take(len(label)) {
			fitted.Labels = append(fitted.Labels, label)
		}
	}
	if wce := m.WriteConcernError; wce != nil {
		short := &mooringv1.WriteConcernError{Code: wce.Code, CodeName: cut(wce.CodeName, maxPartBytes), Message: cut(wce.Message, maxPartBytes)}
		if take(proto.Size(short)) {
			fitted.WriteConcernError = short
		}
	}
	if m.KeyPattern != nil && take(proto.Size(m.KeyPattern)) {
		fitted.KeyPattern = m.KeyPattern
	}
	if m.KeyValue != nil && take(proto.Size(m.KeyValue)) {
		fitted.KeyValue = m.KeyValue
	}
	if m.ErrInfo != nil && take(proto.Size(m.ErrInfo)) {
		fitted.ErrInfo = m.ErrInfo
	}
	for _, w := range m.WriteErrors {
		short := &mooringv1.WriteError{Index: w.Index, Code: w.Code, CodeName: w.CodeName, Message: cut(w.Message, maxPartBytes)}
		if !take(proto.Size(short)) {
			break
		}
		fitted.WriteErrors = append(fitted.WriteErrors, short)
	}
	return fitted
}

// fitResult returns as much of m as fits into room bytes: the counts always, and the first ids.
func fitResult(m *mooringv1.BulkWriteResult, room int) *mooringv1.BulkWriteResult {
	if proto.Size(m) <= room {
		return m
	}
	fitted := &mooringv1.BulkWriteResult{
		InsertedCount: m.InsertedCount, MatchedCount: m.MatchedCount, ModifiedCount: m.ModifiedCount,
		DeletedCount: m.DeletedCount, UpsertedCount: m.UpsertedCount, Truncated: true,
	}
	left := room - proto.Size(fitted)
	for _, id := range m.InsertedIds {
		if left -= proto.Size(id) + 4; left < 0 {
			break
		}
		fitted.InsertedIds = append(fitted.InsertedIds, id)
	}
	return fitted
}

// cut shortens a text to at most n bytes of valid UTF-8.
func cut(s string, n int) string {
	const mark = "…"
	s = valid(s)
	if len(s) <= n {
		return s
	}
	s = s[:n-len(mark)]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + mark
}
