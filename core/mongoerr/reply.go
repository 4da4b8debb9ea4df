package mongoerr

import (
	"fmt"
	"math"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
)

// FromReply returns the error in a reply: nil for ok: 1 without writeErrors, a *CommandError for
// ok: 0, a *WriteException for ok: 1 with writeErrors, and a *MalformedReplyError where a field
// has a type that it cannot have. A writeConcernError alone is not an error here; see
// WriteConcernErrorOf. The result has views on the reply.
func FromReply(addr address.Address, reply bson.Raw) error {
	r, err := read(addr, reply)
	switch {
	case err != nil:
		return err
	case !r.ok:
		return r.commandError()
	case len(r.writeErrors) > 0:
		return r.writeException()
	}
	return nil
}

// WriteConcernErrorOf returns the write concern error of a reply with ok: 1, nil if it has none or
// a malformed one.
func WriteConcernErrorOf(addr address.Address, reply bson.Raw) *WriteConcernError {
	r, err := read(addr, reply)
	if err != nil || !r.ok {
		return nil
	}
	return r.writeConcernError()
}

// replyFields holds the fields of a reply that concern errors.
type replyFields struct {
	addr            address.Address
	reply           bson.Raw
	ok, hasOK       bool
	code            int32
	name, message   string
	labels          []string
	writeErrors     []WriteError
	concern         bson.Raw
	topologyVersion bson.Raw
}

func (r *replyFields) commandError() *CommandError {
	return &CommandError{
		Code: r.code, Name: nameOf(r.code, r.name), Message: r.message, Labels: r.labels,
		Address: r.addr, TopologyVersion: r.topologyVersion, Reply: r.reply,
	}
}

func (r *replyFields) writeException() *WriteException {
	return &WriteException{
		WriteErrors: r.writeErrors, WriteConcernError: r.writeConcernError(),
		Labels: r.labels, Address: r.addr, Reply: r.reply,
	}
}

func (r *replyFields) writeConcernError() *WriteConcernError {
	if r.concern == nil {
		return nil
	}
	e := &WriteConcernError{
		Labels: r.labels, Address: r.addr, TopologyVersion: r.topologyVersion,
		Raw: r.concern,
	}
	for key, v := range r.concern.All() {
		switch key {
		case "code":
			e.Code, _ = code(v)
		case "codeName":
			e.Name, _ = v.Str()
		case "errmsg":
			e.Message, _ = v.Str()
		case "errInfo":
			e.Details, _ = v.Document()
		}
	}
	e.Name = nameOf(e.Code, e.Name)
	return e
}

// read walks the reply once.
func read(addr address.Address, reply bson.Raw) (replyFields, error) {
	r := replyFields{addr: addr, reply: reply}
	for key, v := range reply.All() {
		if v.IsNull() {
			continue
		}
		if problem := r.set(key, v); problem != "" {
			return r, &MalformedReplyError{Address: addr, Field: key, Problem: problem}
		}
	}
	if !r.hasOK {
		return r, &MalformedReplyError{Address: addr, Field: "ok", Problem: "is missing"}
	}
	return r, nil
}

// set takes one field of the reply. It returns what is wrong with the value, "" if nothing is.
func (r *replyFields) set(key string, v bson.Value) (problem string) {
	switch key {
	case "ok":
		r.ok, r.hasOK = isOne(v), true
		if !isNumber(v) && v.Type != bson.TypeBool {
			problem = notA("a number", v)
		}
	case "code":
		var ok bool
		if r.code, ok = code(v); !ok {
			problem = notA("a 32-bit integer", v)
		}
	case "codeName":
		problem = setString(&r.name, v)
	case "errmsg":
		problem = setString(&r.message, v)
	case "errorLabels":
		r.labels, problem = readLabels(v)
	case "writeErrors":
		r.writeErrors, problem = readWriteErrors(v)
	case "writeConcernError":
		problem = setDocument(&r.concern, v)
	case "topologyVersion":
		// A hint for discovery: without it the reply means the same.
		r.topologyVersion, _ = v.Document()
	}
	return problem
}

func setString(to *string, v bson.Value) string {
	s, ok := v.Str()
	if !ok {
		return notA("a string", v)
	}
	*to = s
	return ""
}

func setDocument(to *bson.Raw, v bson.Value) string {
	d, ok := v.Document()
	if !ok {
		return notA("a document", v)
	}
	*to = d
	return ""
}

func readLabels(v bson.Value) ([]string, string) {
	array, ok := v.Array()
	if !ok {
		return nil, notA("an array", v)
	}
	var labels []string
	for i, v := range array.All() {
		s, ok := v.Str()
		if !ok {
			return nil, fmt.Sprintf("item %d %s", i, notA("a string", v))
		}
		labels = append(labels, s)
	}
	return labels, ""
}

func readWriteErrors(v bson.Value) ([]WriteError, string) {
	array, ok := v.Array()
	if !ok {
		return nil, notA("an array", v)
	}
	var all []WriteError
	for i, v := range array.All() {
		doc, ok := v.Document()
		if !ok {
			return nil, fmt.Sprintf("item %d %s", i, notA("a document", v))
		}
		e, problem := readWriteError(doc)
		if problem != "" {
			return nil, fmt.Sprintf("item %d: %s", i, problem)
		}
		all = append(all, e)
	}
	return all, ""
}

func readWriteError(doc bson.Raw) (WriteError, string) {
	e := WriteError{Raw: doc}
	for key, v := range doc.All() {
		switch key {
		case "index":
			n, ok := v.AsInt64()
			if !ok || n < 0 || n > math.MaxInt32 {
				return e, "index " + notA("a valid index", v)
			}
			e.Index = int(n)
		case "code":
			var ok bool
			if e.Code, ok = code(v); !ok {
				return e, "code " + notA("a 32-bit integer", v)
			}
		case "errmsg":
			if problem := setString(&e.Message, v); problem != "" {
				return e, "errmsg " + problem
			}
		case "errInfo":
			if problem := setDocument(&e.Details, v); problem != "" {
				return e, "errInfo " + problem
			}
		}
	}
	return e, ""
}

func code(v bson.Value) (int32, bool) {
	n, ok := v.AsInt64()
	if !ok || n < math.MinInt32 || n > math.MaxInt32 {
		return 0, false
	}
	return int32(n), true
}

// isOne reports whether v is 1, as an integer or a double, or true.
func isOne(v bson.Value) bool {
	n, ok := v.AsInt64()
	yes, _ := v.Bool()
	return ok && n == 1 || yes
}

func isNumber(v bson.Value) bool {
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return true
	}
	return false
}

func notA(what string, v bson.Value) string {
	return fmt.Sprintf("is not %s: it has the type %v", what, v.Type)
}
