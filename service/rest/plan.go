package rest

import (
	"reflect"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// plan describes how one message is read from and written as JSON. It holds what New has looked up
// in the descriptor, and never changes.
type plan struct {
	shape  shape
	fields []*field          // in the order of their numbers
	byName map[string]*field // by the JSON name and by the proto name
}

// field describes one field of a plan.
type field struct {
	fd       fieldDescriptor
	name     string // its JSON name
	quoted   string // `"name":`
	kind     kind
	repeated bool
	ordered  bool  // a document that may come as pairs
	inPath   bool  // never in a body: the path has it
	omitted  bool  // a list that is left out of responses when it is empty
	message  *plan // of kindMessage
	// oneof is the union beside other fields that the field belongs to, nil for none.
	oneof protoreflect.OneofDescriptor
	// text is the place of a plain string in the generated struct, nil for other fields. Setting it
	// there costs no allocation; protoreflect makes two for a string.
	text []int
}

// setText sets a field of kindString.
func (f *field) setText(m message, s string) {
	if f.text == nil {
		m.Set(f.fd, protoreflect.ValueOfString(s))
		return
	}
	reflect.ValueOf(m.Interface()).Elem().FieldByIndex(f.text).SetString(s)
}

// textPlace returns the place of a plain string in the struct of its message.
func textPlace(fd fieldDescriptor) []int {
	t := reflect.TypeOf(typeOf(fd.ContainingMessage()).Zero().Interface()).Elem()
	for i := range t.NumField() {
		f := t.Field(i)
		_, tag, ok := strings.Cut(f.Tag.Get("protobuf"), "name="+string(fd.Name())+",")
		if ok && tag != "" && f.Type.Kind() == reflect.String {
			return f.Index
		}
	}
	return nil
}

// shape selects how a message is represented in JSON.
type shape uint8

const (
	shapeObject   shape = iota // {"field": …}
	shapeUnion                 // the value of whichever field its type belongs to
	shapeBare                  // the value of its only field
	shapeModeOnly              // an object, or the string of its first field
)

// kind distinguishes the types of fields that have different forms in JSON.
type kind uint8

const (
	kindUnsupported kind = iota
	kindString
	kindBool
	kindInt32
	kindInt64
	kindMessage
	kindDocument
	kindValue
	kindTextMap // map<string, string>
	kindTime    // a timestamp, in responses only
)

var scalarKinds = map[protoreflect.Kind]kind{
	protoreflect.StringKind: kindString,
	protoreflect.BoolKind:   kindBool,
	protoreflect.Int32Kind:  kindInt32,
	protoreflect.Int64Kind:  kindInt64,
}

var (
	documentName = (*mooringv1.Document)(nil).ProtoReflect().Descriptor().FullName()
	valueName    = (*mooringv1.Value)(nil).ProtoReflect().Descriptor().FullName()
	timeName     = (*timestamppb.Timestamp)(nil).ProtoReflect().Descriptor().FullName()
)

// shapes lists the messages whose JSON is not an object. Unions are recognised by their oneof.
var shapes = map[protoreflect.FullName]shape{
	(*mooringv1.Pipeline)(nil).ProtoReflect().Descriptor().FullName():       shapeBare,
	(*mooringv1.TagSet)(nil).ProtoReflect().Descriptor().FullName():         shapeBare,
	(*mooringv1.ReadPreference)(nil).ProtoReflect().Descriptor().FullName(): shapeModeOnly,
	(*mooringv1.ReadConcern)(nil).ProtoReflect().Descriptor().FullName():    shapeModeOnly,
}

// planner makes plans, one for each message type.
type planner map[protoreflect.FullName]*plan

func (ps planner) plan(d messageDescriptor) *plan {
	if p := ps[d.FullName()]; p != nil {
		return p
	}
	p := &plan{shape: shapeOf(d), byName: make(map[string]*field, 2*d.Fields().Len())}
	ps[d.FullName()] = p
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		name := fd.JSONName()
		f := &field{fd: fd, name: name, quoted: `"` + name + `":`, repeated: fd.IsList()}
		if f.kind = kindOf(fd); f.kind == kindString && !f.repeated {
			f.text = textPlace(fd)
		}
		f.ordered, _ = proto.GetExtension(fd.Options(), mooringv1.E_OrderedKeys).(bool)
		f.omitted, _ = proto.GetExtension(fd.Options(), mooringv1.E_OmitEmpty).(bool)
		f.inPath = fd.Name() == "database" && fd.Number() == 1 ||
			fd.Name() == "collection" && fd.Number() == 2
		if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() {
			f.oneof = one
		}
		if f.kind == kindMessage {
			f.message = ps.plan(fd.Message())
		}
		p.fields = append(p.fields, f)
		p.byName[f.name] = f
		p.byName[string(fd.Name())] = f
	}
	return p
}

func shapeOf(d messageDescriptor) shape {
	if s, ok := shapes[d.FullName()]; ok {
		return s
	}
	if d.Oneofs().Len() != 1 {
		return shapeObject
	}
	only := d.Oneofs().Get(0)
	if only.Fields().Len() == d.Fields().Len() && !only.IsSynthetic() {
		return shapeUnion
	}
	return shapeObject
}

func kindOf(fd fieldDescriptor) kind {
	k := scalarKinds[fd.Kind()]
	switch {
	case fd.IsMap():
		if fd.MapKey().Kind() == protoreflect.StringKind &&
			fd.MapValue().Kind() == protoreflect.StringKind {
			k = kindTextMap
		}
	case fd.Kind() == protoreflect.MessageKind && fd.Message().FullName() == documentName:
		k = kindDocument
	case fd.Kind() == protoreflect.MessageKind && fd.Message().FullName() == valueName:
		k = kindValue
	case fd.Kind() == protoreflect.MessageKind && fd.Message().FullName() == timeName:
		k = kindTime
	case fd.Kind() == protoreflect.MessageKind:
		k = kindMessage
	}
	if k == kindUnsupported {
		panic("bug: rest: no JSON form for " + string(fd.FullName()))
	}
	return k
}

// isNumber reports whether the field is one integer.
func (f *field) isNumber() bool {
	return !f.repeated && (f.kind == kindInt32 || f.kind == kindInt64)
}

// expected lists the JSON values that a union accepts: "a string, an object or an array of pairs".
func (p *plan) expected() string {
	var names []string
	for _, f := range p.fields {
		switch {
		case f.kind == kindString:
			names = append(names, "a string")
		case f.isNumber():
			names = append(names, "an integer")
		case f.kind == kindDocument && f.ordered:
			names = append(names, "an object", "an array of pairs")
		case f.kind == kindMessage && f.message.shape == shapeBare:
			names = append(names, "an array")
		default:
			names = append(names, "an object")
		}
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// takes reports whether a JSON value that begins with c can be the field's.
func (f *field) takes(c byte) bool {
	switch {
	case f.repeated:
		return c == '['
	case f.kind == kindString:
		return c == '"'
	case f.isNumber():
		// An object is Extended JSON's wrapper: no union has another object beside an integer.
		return c == '-' || '0' <= c && c <= '9' || c == '{'
	case f.kind == kindDocument:
		return c == '{' || f.ordered && c == '['
	case f.kind == kindMessage && f.message.shape == shapeBare:
		return f.message.fields[0].takes(c)
	}
	return c == '{'
}
