package rpcerr

import (
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
)

// The details of an explanation are in the native form, or already in JSON if another replica has
// made them so for the call. The functions below return them in the form that the call asks for, as
// copies. They leave out a document that has no such form.

func encodeServerError(m *mooringv1.ServerError, enc payload.Encoding) *mooringv1.ServerError {
	if enc == payload.BSON {
		return m
	}
	e := encoder{enc: enc}
	out := &mooringv1.ServerError{
		Code: m.GetCode(), CodeName: m.GetCodeName(), Labels: m.GetLabels(),
		KeyPattern: e.document(m.GetKeyPattern()), KeyValue: e.document(m.GetKeyValue()),
		ErrInfo:           e.document(m.GetErrInfo()),
		Violations:        m.GetViolations(),
		WriteConcernError: e.writeConcernError(m.GetWriteConcernError()),
	}
	if proto.Size(m) > maxStatusBytes {
		out.WriteErrors = m.GetWriteErrors() // their documents do not fit anyway
	} else {
		for _, w := range m.GetWriteErrors() {
			out.WriteErrors = append(out.WriteErrors, e.writeError(w))
		}
	}
	out.Truncated = m.GetTruncated() || e.lossy
	return out
}

// encoder changes the form of documents. lossy is true once it has left a document out.
type encoder struct {
	enc   payload.Encoding
	lossy bool
}

func (e *encoder) document(d *mooringv1.Document) *mooringv1.Document {
	if _, ok := d.GetEncoding().(*mooringv1.Document_Json); ok {
		return d
	}
	out, err := e.enc.Document(d.GetBson())
	e.lossy = e.lossy || err != nil
	return out
}

func (e *encoder) value(v *mooringv1.Value) *mooringv1.Value {
	if _, ok := v.GetEncoding().(*mooringv1.Value_Json); ok || e.enc == payload.BSON {
		return v
	}
	native, _ := bson.Raw(v.GetBson()).Lookup(payload.ValueKey)
	out, err := e.enc.Value(native)
	e.lossy = e.lossy || err != nil
	return out
}

func (e *encoder) writeError(w *mooringv1.WriteError) *mooringv1.WriteError {
	return &mooringv1.WriteError{
		Index: w.GetIndex(), Code: w.GetCode(), CodeName: w.CodeName, Message: w.GetMessage(),
		KeyPattern: e.document(w.GetKeyPattern()), KeyValue: e.document(w.GetKeyValue()),
		ErrInfo: e.document(w.GetErrInfo()), Violations: w.GetViolations(),
	}
}

func (e *encoder) writeConcernError(w *mooringv1.WriteConcernError) *mooringv1.WriteConcernError {
	if w == nil {
		return nil
	}
	return &mooringv1.WriteConcernError{
		Code: w.GetCode(), CodeName: w.GetCodeName(), Message: w.GetMessage(),
		ErrInfo: e.document(w.GetErrInfo()), Labels: w.GetLabels(),
	}
}

// WriteError returns the message of one write that failed, for a response.
func WriteError(w mongoerr.WriteError, enc payload.Encoding) *mooringv1.WriteError {
	e := encoder{enc: enc}
	return e.writeError(newWriteError(w))
}

// WriteConcernError returns the message of a write concern that was not met, for a response. It
// returns nil for nil.
func WriteConcernError(
	w *mongoerr.WriteConcernError, enc payload.Encoding,
) *mooringv1.WriteConcernError {
	e := encoder{enc: enc}
	return e.writeConcernError(newWriteConcernError(w))
}
