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
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/payload"
)

// Domain is the domain of the ErrorInfo.
const Domain = "mooring.v1"

// The keys of the ErrorInfo's metadata.
const (
	keyRetry  = "retry"
	keyOffset = "offset"
	keyHTTP   = "httpStatus"
)

// A status is sent in HTTP/2 headers, and clients refuse large headers. So message and details
// together stay under maxStatusBytes.
const (
	maxStatusBytes  = 4096
	maxMessageBytes = 1024 // of the status' message
	maxPartBytes    = 256  // of a write error's message
	maxFieldBytes   = 256
	maxReasonBytes  = 63 // the limit that ErrorInfo documents
	// sparedBytes is the room for the names of the details' types.
	sparedBytes = 400
)

// retryAfter is the time after which a client may retry an error that can pass. Within about that
// time servers are found again, and pools have free connections again.
const retryAfter = time.Second

// status returns the gRPC status, with as much of the details as fits.
func (x *explanation) status(of call.Call) *status.Status {
	message := cut(x.message, maxMessageBytes)
	info := &errdetails.ErrorInfo{
		Reason: string(x.reason), Domain: Domain,
		Metadata: map[string]string{keyRetry: string(x.retry), keyHTTP: strconv.Itoa(x.http)},
	}
	if x.offset != nil {
		info.Metadata[keyOffset] = strconv.FormatInt(*x.offset, 10)
	}
	details := []proto.Message{info}
	if x.field != "" {
		violation := &errdetails.BadRequest_FieldViolation{
			Field: cut(x.field, maxFieldBytes), Description: cut(x.message, maxPartBytes),
		}
		details = append(details, &errdetails.BadRequest{
			FieldViolations: []*errdetails.BadRequest_FieldViolation{violation},
		})
	}
	if of.RequestID != "" {
		details = append(details, &errdetails.RequestInfo{RequestId: of.RequestID})
	}
	if x.retryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(x.retryAfter)})
	}
	room := maxStatusBytes - sparedBytes - len(message)
	for _, d := range details {
		room -= proto.Size(d)
	}
	for _, other := range x.others {
		room -= proto.Size(other)
	}
	if x.server != nil {
		server := fitServerError(encodeServerError(x.server, of.Encoding), room*3/4)
		if len(message) < len(valid(x.message)) {
			server = truncated(server)
		}
		room -= proto.Size(server)
		details = append(details, server)
	}
	if x.result != nil {
		details = append(details, fitResult(x.result, room, of.Encoding))
	}
	return newStatus(x.code, message, details, x.others)
}

func newStatus(
	code codes.Code, message string, details []proto.Message, others []*anypb.Any,
) *status.Status {
	p := &statuspb.Status{Code: int32(code), Message: message}
	for _, d := range details {
		packed, err := anypb.New(d)
		if err != nil {
			// Cannot be: the messages are our own, and their strings were checked.
			packed = &anypb.Any{}
			p.Message += " (" + err.Error() + ")"
		}
		p.Details = append(p.Details, packed)
	}
	p.Details = append(p.Details, others...)
	return status.FromProto(p)
}

// fitServerError returns as much of m as fits into room bytes. If all of m fits, it returns m.
func fitServerError(m *mooringv1.ServerError, room int) *mooringv1.ServerError {
	if proto.Size(m) <= room {
		return m
	}
	fitted := &mooringv1.ServerError{
		Code: m.Code, CodeName: cut(m.CodeName, maxPartBytes), Truncated: true,
	}
	left := room - proto.Size(fitted)
	take := func(size int) bool { // takes the room for a field, with its tag and length
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
		short := &mooringv1.WriteConcernError{
			Code: wce.Code, CodeName: cut(wce.CodeName, maxPartBytes),
			Message: cut(wce.Message, maxPartBytes),
		}
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
	spared := left / 2 // for errInfo and the writes that failed
	for _, v := range m.Violations {
		if size := proto.Size(v); left-size-4 < spared || !take(size) {
			break
		}
		fitted.Violations = append(fitted.Violations, v)
	}
	if m.ErrInfo != nil && take(proto.Size(m.ErrInfo)) {
		fitted.ErrInfo = m.ErrInfo
	}
	for _, w := range m.WriteErrors {
		short := &mooringv1.WriteError{
			Index: w.Index, Code: w.Code, CodeName: w.CodeName,
			Message: cut(w.Message, maxPartBytes),
		}
		if !take(proto.Size(short)) {
			break
		}
		fitted.WriteErrors = append(fitted.WriteErrors, short)
	}
	return fitted
}

// truncated returns a copy of m with Truncated set.
func truncated(m *mooringv1.ServerError) *mooringv1.ServerError {
	return &mooringv1.ServerError{
		Code: m.GetCode(), CodeName: m.GetCodeName(), Labels: m.GetLabels(),
		KeyPattern: m.GetKeyPattern(), KeyValue: m.GetKeyValue(), ErrInfo: m.GetErrInfo(),
		WriteErrors: m.GetWriteErrors(), WriteConcernError: m.GetWriteConcernError(),
		Violations: m.GetViolations(), Truncated: true,
	}
}

// fitResult returns as much of m as fits into room bytes: the counts always, and the first ids.
func fitResult(
	m *mooringv1.BulkWriteResult, room int, enc payload.Encoding,
) *mooringv1.BulkWriteResult {
	fitted := &mooringv1.BulkWriteResult{
		InsertedCount: m.InsertedCount, MatchedCount: m.MatchedCount,
		ModifiedCount: m.ModifiedCount, DeletedCount: m.DeletedCount,
		UpsertedCount: m.UpsertedCount, Truncated: m.GetTruncated(),
	}
	e := encoder{enc: enc}
	left := room - proto.Size(fitted)
	fit := func(ids []*mooringv1.InsertedId) (fitting []*mooringv1.InsertedId) {
		for _, one := range ids {
			id := &mooringv1.InsertedId{Index: one.GetIndex(), Id: e.value(one.GetId())}
			if left -= proto.Size(id) + 4; left < 0 {
				fitted.Truncated = true
				break
			}
			fitting = append(fitting, id)
		}
		return fitting
	}
	fitted.InsertedIds = fit(m.GetInsertedIds())
	fitted.UpsertedIds = fit(m.GetUpsertedIds())
	fitted.Truncated = fitted.Truncated || e.lossy
	return fitted
}

// cut returns s as valid UTF-8, shortened to at most n bytes.
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
