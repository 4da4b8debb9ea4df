package client

import (
	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
)

// replyReader reads fields of a reply and keeps the first objection.
type replyReader struct {
	from address.Address
	err  error
}

func (r *replyReader) fail(field, problem string) {
	if r.err == nil {
		r.err = &mongoerr.MalformedReplyError{Address: r.from, Field: field, Problem: problem}
	}
}

func (r *replyReader) wrongType(field string, v bson.Value) {
	r.fail(field, "has the type "+v.Type.String())
}

func (r *replyReader) int64(field string, v bson.Value) int64 {
	n, ok := v.AsInt64()
	if !ok {
		r.wrongType(field, v)
	}
	return n
}

// written returns an unknown outcome for a reply of a write that cannot be read: the server has
// done the write, and what it did is not known.
func (r *replyReader) written() error {
	if r.err == nil {
		return nil
	}
	return &operation.OutcomeUnknownError{Err: r.err}
}

// count returns a field of the document that the server must send. path names the field in the
// error.
func (r *replyReader) count(d bson.Raw, key, path string) int64 {
	v, ok := d.Lookup(key)
	if !ok {
		r.fail(path, "is missing")
		return 0
	}
	return r.int64(path, v)
}
