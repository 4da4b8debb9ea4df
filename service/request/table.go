package request

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/selection"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Table reads the options of an operation from its requests. It has a row for each field. Several
// requests can share a table, as the pages and the stream of one operation do. A row whose field a
// request does not have is ignored for that request.
type Table[O any] struct {
	rows []Row[O]
	// fields has the descriptors of the rows' fields for each request. An entry is nil if the
	// request does not have the field.
	fields map[protoreflect.FullName][]field
	// spare has values of O, all zero. The rows need the address of one, which they do not keep.
	spare sync.Pool
}

// field describes one field of a request that has a row. Its descriptor is nil where the request
// does not have the row's field.
type field struct {
	protoreflect.FieldDescriptor
	// index is that of the field in the generated struct. Most options of a request are not set,
	// and a look at the struct shows that much sooner than protoreflect does.
	index int
}

// Row reads one field into the options of type O. The functions below make rows. They take the
// field's name in the proto file and a function that returns the option's address.
type Row[O any] struct {
	field protoreflect.Name // empty: the row is read for every request
	read  func(r *Reader, name string, v protoreflect.Value, o *O)
}

// own lists the fields that every handler or Read reads itself.
var own = []protoreflect.Name{"database", "collection", "session", "transaction", "statement"}

// NewTable returns the table of the given requests. handled lists the fields that the handlers read
// themselves. NewTable panics if a field of a request is neither handled nor in a row, so that no
// option is dropped. It also panics if a row has a field that no request has.
func NewTable[O any](
	requests []proto.Message, handled []protoreflect.Name, rows ...[]Row[O],
) *Table[O] {
	t := &Table[O]{
		rows:   slices.Concat(rows...),
		fields: map[protoreflect.FullName][]field{},
		spare:  sync.Pool{New: func() any { return new(O) }},
	}
	used := make([]bool, len(t.rows))
	for _, req := range requests {
		d := req.ProtoReflect().Descriptor()
		fields := make([]field, len(t.rows))
		indexes := structIndexes(reflect.TypeOf(req).Elem())
		for i := range d.Fields().Len() {
			fd := d.Fields().Get(i)
			reads := func(row Row[O]) bool { return row.field == fd.Name() }
			at := slices.IndexFunc(t.rows, reads)
			switch {
			case at >= 0:
				index, ok := indexes[fd.Name()]
				if !ok {
					panic("bug: request: no struct field for " + string(fd.FullName()))
				}
				fields[at], used[at] = field{fd, index}, true
			case !slices.Contains(own, fd.Name()) && !slices.Contains(handled, fd.Name()):
				panic("bug: request: no row for " + string(fd.FullName()))
			}
		}
		t.fields[d.FullName()] = fields
	}
	for i, row := range t.rows {
		if row.field != "" && !used[i] {
			panic("bug: request: no request has the field " + string(row.field))
		}
	}
	return t
}

// Read returns the options of a request. Errors are recorded in r.
func (t *Table[O]) Read(r *Reader, req proto.Message) O {
	m := req.ProtoReflect()
	fields, ok := t.fields[m.Descriptor().FullName()]
	if !ok {
		panic("bug: request: a table of other requests than " + string(m.Descriptor().FullName()))
	}
	o, _ := t.spare.Get().(*O) // always
	defer func() {
		*o = *new(O)
		t.spare.Put(o)
	}()
	generated := reflect.ValueOf(req).Elem()
	for i, f := range fields {
		switch {
		case t.rows[i].field == "":
			t.rows[i].read(r, "", protoreflect.Value{}, o)
		case f.FieldDescriptor != nil && !generated.Field(f.index).IsZero() &&
			m.Has(f.FieldDescriptor):
			t.rows[i].read(r, f.JSONName(), m.Get(f.FieldDescriptor), o)
		}
	}
	return *o
}

// structIndexes returns where the fields of a message are in its generated struct. The fields of a
// oneof share one and are not among them; a table refuses them.
func structIndexes(generated reflect.Type) map[protoreflect.Name]int {
	indexes := map[protoreflect.Name]int{}
	for i := range generated.NumField() {
		for part := range strings.SplitSeq(generated.Field(i).Tag.Get("protobuf"), ",") {
			if name, ok := strings.CutPrefix(part, "name="); ok {
				indexes[protoreflect.Name(name)] = i
			}
		}
	}
	return indexes
}

// Rows returns its arguments. It lets the compiler infer their type.
func Rows[O any](rows ...Row[O]) []Row[O] { return rows }

// CommonRead returns the rows that all reads share. They set the Common of the options.
func CommonRead[O any](at func(*O) *client.Common) []Row[O] {
	return append(Common(at), ReadPreference(at), ReadConcern(at))
}

// ReadConcern returns the row of a read concern.
func ReadConcern[O any](at func(*O) *client.Common) Row[O] {
	return message("read_concern",
		func(o *O) **client.ReadConcern { return &at(o).ReadConcern },
		func(r *Reader, _ string, c *mooringv1.ReadConcern) *client.ReadConcern {
			return r.ReadConcern(c)
		})
}

// CommonWrite returns the rows that all writes share. They set the Common of the options.
func CommonWrite[O any](at func(*O) *client.Common) []Row[O] {
	return append(Common(at), WriteConcern(at))
}

// Common returns the rows that all operations share. They set the Common of the options.
func Common[O any](at func(*O) *client.Common) []Row[O] {
	return []Row[O]{
		Caller(at),
		Value("comment", func(o *O) *bson.Value { return &at(o).Comment }),
		OwnComment(at),
		extra(at),
	}
}

// OwnComment returns the row that sets the gateway's own comment where the client gives none. It
// comes after that of the client's. An exactly-once write gets none: not every attempt has one, and
// its length is part of what decides how many writes a command has.
func OwnComment[O any](at func(*O) *client.Common) Row[O] {
	return Row[O]{"", func(r *Reader, _ string, _ protoreflect.Value, o *O) {
		if r.Comment != nil && r.Exact == nil && at(o).Comment.IsZero() {
			at(o).Comment = *r.Comment
		}
	}}
}

// Caller returns the row that puts the call's session into the options, and names the call there,
// for the log of commands. An operation of a transaction goes on without its client: an operation
// that is cut off ends the transaction.
func Caller[O any](at func(*O) *client.Common) Row[O] {
	return Row[O]{"", func(r *Reader, _ string, _ protoreflect.Value, o *O) {
		at(o).Caller, at(o).Session = r.RequestID, r.Session
		switch {
		case r.Exact != nil:
			at(o).Session = r.Exact.Session
		case r.Transaction != nil:
			at(o).Session, at(o).RunOn = r.Transaction.Session, true
		}
	}}
}

// ReadPreference returns the row of a read preference.
func ReadPreference[O any](at func(*O) *client.Common) Row[O] {
	return message("read_preference",
		func(o *O) **selection.ReadPreference { return &at(o).ReadPreference },
		func(r *Reader, _ string, p *mooringv1.ReadPreference) *selection.ReadPreference {
			return r.ReadPreference(p)
		})
}

// WriteConcern returns the row of a write concern.
func WriteConcern[O any](at func(*O) *client.Common) Row[O] {
	return message("write_concern",
		func(o *O) **client.WriteConcern { return &at(o).WriteConcern },
		func(r *Reader, _ string, c *mooringv1.WriteConcern) *client.WriteConcern {
			return r.WriteConcern(c)
		})
}

// Document returns the row of a document.
func Document[O any](field protoreflect.Name, at func(*O) *bson.Raw) Row[O] {
	return message(field, at, (*Reader).Document)
}

// Keys returns the row of a document whose order matters.
func Keys[O any](field protoreflect.Name, at func(*O) *bson.Raw) Row[O] {
	return message(field, at, (*Reader).Keys)
}

// Value returns the row of a value.
func Value[O any](field protoreflect.Name, at func(*O) *bson.Value) Row[O] {
	return message(field, at, (*Reader).Value)
}

// Hint returns the row of a hint.
func Hint[O any](at func(*O) *bson.Value) Row[O] {
	return message("hint", at, (*Reader).Hint)
}

// Array returns the row of a list of documents.
func Array[O any](field protoreflect.Name, at func(*O) *bson.Array) Row[O] {
	return Row[O]{field, func(r *Reader, name string, v protoreflect.Value, o *O) {
		list := v.List()
		docs := make([]*mooringv1.Document, list.Len())
		for i := range docs {
			docs[i], _ = list.Get(i).Message().Interface().(*mooringv1.Document)
		}
		*at(o) = r.Array(name, docs)
	}}
}

// Bool returns the row of a switch.
func Bool[O any](field protoreflect.Name, at func(*O) **bool) Row[O] {
	return Row[O]{field, func(_ *Reader, _ string, v protoreflect.Value, o *O) {
		*at(o) = new(v.Bool())
	}}
}

// String returns the row of a text. An empty one is refused, because options send none for it.
func String[O any](field protoreflect.Name, at func(*O) *string) Row[O] {
	return Row[O]{field, func(r *Reader, name string, v protoreflect.Value, o *O) {
		if *at(o) = v.String(); *at(o) == "" {
			r.Refuse(name, "is empty")
		}
	}}
}

// Int64 returns the row of a number that may be negative.
func Int64[O any](field protoreflect.Name, at func(*O) **int64) Row[O] {
	return Row[O]{field, func(_ *Reader, _ string, v protoreflect.Value, o *O) {
		*at(o) = new(v.Int())
	}}
}

// NonNegative returns the row of a number that is refused if it is below 0.
func NonNegative[O any](field protoreflect.Name, at func(*O) **int64) Row[O] {
	return Row[O]{field, func(r *Reader, name string, v protoreflect.Value, o *O) {
		*at(o) = r.NonNegative(name, new(v.Int()))
	}}
}

// BatchSize returns the row of the batch size.
func BatchSize[O any](at func(*O) **int32) Row[O] {
	return Row[O]{"batch_size", func(r *Reader, _ string, v protoreflect.Value, o *O) {
		*at(o) = r.BatchSize(new(int32(v.Int())))
	}}
}

// Word returns the row of a text that is one of a few words. read converts the text.
func Word[O, V any](field protoreflect.Name, at func(*O) *V, read func(*Reader, *string) V) Row[O] {
	return Row[O]{field, func(r *Reader, _ string, v protoreflect.Value, o *O) {
		*at(o) = read(r, new(v.String()))
	}}
}

// message returns the row of a field that is a message.
func message[O, V any, M proto.Message](
	field protoreflect.Name, at func(*O) *V, read func(*Reader, string, M) V,
) Row[O] {
	return Row[O]{field, func(r *Reader, name string, v protoreflect.Value, o *O) {
		m, _ := v.Message().Interface().(M)
		*at(o) = read(r, name, m)
	}}
}
