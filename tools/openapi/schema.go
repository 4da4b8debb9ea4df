package main

import (
	"maps"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// schemas makes the schemas of messages, each once.
type schemas struct {
	files *protoregistry.Files
	made  object            // by name
	ids   map[string]string // of operations, by Service.Method
	// answers are the messages of responses, whose fields are there unless they can be missing.
	answers map[protoreflect.FullName]bool
	// sparse are the messages of errors, in which nothing empty is written.
	sparse map[protoreflect.FullName]bool
}

const errorMessage = "mooring.v1.ErrorResponse"

func newSchemas(files *protoregistry.Files) *schemas {
	s := &schemas{
		files: files, made: object{}, ids: map[string]string{},
		answers: map[protoreflect.FullName]bool{}, sparse: map[protoreflect.FullName]bool{},
	}
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Messages().Len() {
			if m := file.Messages().Get(i); strings.HasSuffix(string(m.Name()), "Response") {
				reach(m, s.answers)
			}
		}
		return true
	})
	reach(s.message(errorMessage), s.sparse)
	return s
}

// reach collects a message and all messages in it.
func reach(m protoreflect.MessageDescriptor, found map[protoreflect.FullName]bool) {
	if found[m.FullName()] {
		return
	}
	found[m.FullName()] = true
	for i := range m.Fields().Len() {
		if fd := m.Fields().Get(i); fd.Kind() == protoreflect.MessageKind {
			reach(fd.Message(), found)
		}
	}
}

// message finds a message by its name, which the API has.
func (s *schemas) message(name protoreflect.FullName) protoreflect.MessageDescriptor {
	d, err := s.files.FindDescriptorByName(name)
	if err != nil {
		panic("bug: " + err.Error())
	}
	m, _ := d.(protoreflect.MessageDescriptor)
	return m
}

func reference(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// ref returns a reference to the schema of a message within a body, and makes the schema if it is
// new. A request within another one has a database and a collection, which the path of its own
// operation has: it is an Operation.
func (s *schemas) ref(m protoreflect.MessageDescriptor) object {
	name := messageName(m)
	if request, ok := strings.CutSuffix(name, "Request"); ok {
		name = request + "Operation"
	}
	return s.named(name, m, func() object { return s.schema(m) })
}

// messageName returns the name of a message's schema. A message whose name begins with that of a
// service is named as the operation is: SessionServiceStartRequest is StartSessionRequest.
func messageName(m protoreflect.MessageDescriptor) string {
	noun, rest, ok := strings.Cut(string(m.Name()), "Service")
	for _, suffix := range []string{"Request", "Response"} {
		if verb, found := strings.CutSuffix(rest, suffix); ok && found && verb != "" {
			return verb + noun + suffix
		}
	}
	return string(m.Name())
}

// body returns a reference to the schema of a request's body, which has no field of the path.
func (s *schemas) body(m protoreflect.MessageDescriptor) object {
	return s.named(messageName(m), m, func() object { return s.object(m, asBody) })
}

func (s *schemas) named(name string, m protoreflect.MessageDescriptor, make func() object) object {
	if _, ok := s.made[name]; !ok {
		s.made[name] = object{} // a message may hold itself
		schema := make()
		describe(schema, s.text(m))
		s.made[name] = schema
	}
	return reference(name)
}

func (s *schemas) schema(m protoreflect.MessageDescriptor) object {
	switch m.FullName() {
	case "mooring.v1.Document":
		return object{"type": "object", "additionalProperties": true}
	case "mooring.v1.Value":
		return object{} // anything
	case "mooring.v1.Pipeline", "mooring.v1.TagSet": // the value of the only field
		return s.field(m.Fields().Get(0))
	case "mooring.v1.ReadPreference", "mooring.v1.ReadConcern": // also the bare mode, or level
		return object{"oneOf": []any{s.object(m, within), s.field(m.Fields().Get(0))}}
	}
	if m.Oneofs().Len() == 1 && !m.Oneofs().Get(0).IsSynthetic() &&
		m.Oneofs().Get(0).Fields().Len() == m.Fields().Len() {
		var arms []any
		for i := range m.Fields().Len() {
			arms = append(arms, s.field(m.Fields().Get(i)))
		}
		return object{"oneOf": arms}
	}
	return s.object(m, within)
}

// place says where a message stands.
type place bool

const (
	within place = false // in another message
	asBody place = true  // as a request's body
)

// hasField reports whether a message has a field in its place. A body has no field of the path. A
// request within another one has neither session nor transaction, and what the transaction decides
// for all of its operations.
func (p place) hasField(fd protoreflect.FieldDescriptor) bool {
	parent := fd.ContainingMessage()
	if !strings.HasSuffix(string(parent.Name()), "Request") {
		return true
	}
	switch fd.Name() {
	case "database", "collection":
		return p == within
	case "session", "transaction", "statement":
		return p == asBody
	case "read_concern", "write_concern", "read_preference":
		return p == asBody || parent.Fields().ByName("transaction") == nil
	}
	return true
}

// object returns a message with the fields that it has in its place.
func (s *schemas) object(m protoreflect.MessageDescriptor, at place) object {
	properties := object{}
	var required []string
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		if !at.hasField(fd) {
			continue
		}
		schema := s.field(fd)
		if nullable(fd) {
			schema = object{"oneOf": []any{schema, object{"type": "null"}}}
		}
		if values, ok := enums[string(fd.FullName())]; ok {
			schema["enum"] = values
		}
		if fd.FullName() == "mooring.v1.Error.reason" {
			schema["examples"] = []string{"DuplicateKey", "InvalidArgument", "CursorNotFound"}
		}
		describe(schema, s.text(fd))
		properties[fd.JSONName()] = schema
		if s.isRequired(fd) {
			required = append(required, fd.JSONName())
		}
	}
	schema := object{"type": "object", "properties": properties}
	if !s.answers[m.FullName()] {
		schema["additionalProperties"] = false
	}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// enums are the closed lists of words, by field. Words that MongoDB owns are no such list, since a
// newer server may have more.
var enums = map[string][]string{
	"mooring.v1.Error.status": {
		"CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
		"ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
		"ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
		"UNAUTHENTICATED",
	},
	"mooring.v1.Error.retry": {"never", "same-request", "transaction", "restart"},
}

// nullable returns a response's own document: null when there is none.
func nullable(fd protoreflect.FieldDescriptor) bool {
	return strings.HasSuffix(string(fd.Parent().Name()), "Response") && !fd.IsList() &&
		!fd.HasOptionalKeyword() &&
		fd.Kind() == protoreflect.MessageKind && fd.Message().FullName() == "mooring.v1.Document"
}

// isRequired reports whether a field must be there in a request, or always is there in a response.
func (s *schemas) isRequired(fd protoreflect.FieldDescriptor) bool {
	parent, text := fd.ContainingMessage(), comment(fd)
	one := fd.ContainingOneof()
	switch {
	case one != nil, fd.HasOptionalKeyword():
		return false
	case parent.FullName() == "mooring.v1.Error":
		// Lists and messages are left out when they are empty, and so is what is false.
		return fd.Kind() != protoreflect.BoolKind && fd.Kind() != protoreflect.MessageKind
	case s.sparse[parent.FullName()]:
		return parent.FullName() == errorMessage || isNumber(fd) ||
			fd.FullName() == "mooring.v1.InsertedId.id"
	case s.answers[parent.FullName()]:
		isMissing := strings.Contains(strings.ToLower(text), "missing") ||
			parent.FullName() == "mooring.v1.TransactionResult"
		return !hasOption(fd, omitEmpty) && (!fd.HasPresence() || !isMissing)
	case fd.IsList(), fd.IsMap():
		return strings.Contains(text, "Required.")
	}
	return !strings.Contains(text, "Unset")
}

func isNumber(fd protoreflect.FieldDescriptor) bool {
	return !fd.IsList() &&
		(fd.Kind() == protoreflect.Int32Kind || fd.Kind() == protoreflect.Int64Kind)
}

func (s *schemas) field(fd protoreflect.FieldDescriptor) object {
	if fd.IsMap() {
		return object{"type": "object", "additionalProperties": s.single(fd.MapValue())}
	}
	if fd.IsList() {
		return object{"type": "array", "items": s.single(fd)}
	}
	return s.single(fd)
}

var scalars = map[protoreflect.Kind]object{
	protoreflect.StringKind: {"type": "string"},
	protoreflect.BoolKind:   {"type": "boolean"},
	protoreflect.Int32Kind:  {"type": "integer", "format": "int32"},
	protoreflect.Int64Kind:  {"type": "integer", "format": "int64"},
}

func (s *schemas) single(fd protoreflect.FieldDescriptor) object {
	if scalar, ok := scalars[fd.Kind()]; ok {
		return maps.Clone(scalar)
	}
	if fd.Kind() != protoreflect.MessageKind {
		panic("bug: no schema for " + string(fd.FullName()))
	}
	if fd.Message().FullName() == "google.protobuf.Timestamp" {
		return object{"type": "string", "format": "date-time"}
	}
	ref := s.ref(fd.Message())
	if !hasOption(fd, orderedKeys) {
		return ref
	}
	s.made["Pairs"] = object{
		"type": "array", "items": object{
			"type": "array", "prefixItems": []any{object{"type": "string"}, object{}},
			"minItems": 2, "maxItems": 2, "items": object{},
		},
		"description": "A document as pairs of key and value, in order: " +
			"`[[\"b\", 1], [\"2\", -1]]`.",
	}
	return object{"oneOf": []any{ref, reference("Pairs")}}
}

// line returns a reference to the schema of a stream's lines.
func (s *schemas) line(m protoreflect.MethodDescriptor) object {
	out := m.Output()
	name, item := "document", s.ref(s.message("mooring.v1.Document"))
	if out.Fields().ByName("documents") == nil {
		fd := out.Fields().Get(0)
		name, item = fd.JSONName(), s.field(fd)
	}
	properties := object{
		name: item,
		"end": object{
			"type": "object", "description": "The stream went well, and this is its last line.",
			"properties": object{"session": object{
				"type": "string", "description": "The session's renewed token.",
			}},
		},
		"error": reference("Error"),
	}
	kind := capital(name)
	if isLive(m) {
		kind = "Live"
		delete(properties, name)
		delete(properties, "end")
		properties["added"] = described(item, "It matches, and the client does not have it yet.")
		properties["changed"] = described(item, "It has changed, and matches as before.")
		properties["removed"] = described(item, "It does not match any more: its `_id`.")
		properties["ready"] = object{
			"type": "object", "additionalProperties": false,
			"description": "The client has all documents that match.",
		}
	}
	if token := out.Fields().ByName("resume_token"); token != nil {
		kind = "Change"
		progress := object{"resumeToken": s.field(token)}
		if shared := out.Fields().ByName("shared"); shared != nil {
			progress[shared.JSONName()] = s.field(shared)
		}
		properties["progress"] = object{
			"type": "object", "properties": progress,
			"required":    []string{"resumeToken"},
			"description": "Nothing has changed; a stream can go on after this token.",
		}
	}
	s.made[kind+"Line"] = object{
		"type": "object", "properties": properties, "additionalProperties": false,
		"minProperties": 1, "maxProperties": 1,
		"description": "A line of a stream: it has exactly one of these.",
	}
	s.ref(s.message(errorMessage))
	return reference(kind + "Line")
}

// described returns a schema with a description of its own.
func described(schema object, description string) object {
	return object{"allOf": []any{schema}, "description": description}
}

// The numbers of the field options mooring.v1.ordered_keys and mooring.v1.omit_empty.
const (
	orderedKeys = 50001
	omitEmpty   = 50002
)

// hasOption reports whether the field has an option. The image's own options are unknown fields
// here, since nothing generated is linked.
func hasOption(fd protoreflect.FieldDescriptor, option protowire.Number) bool {
	for rest := fd.Options().ProtoReflect().GetUnknown(); len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return false
		}
		if number == option {
			return true
		}
		rest = rest[n:]
	}
	return false
}

// repeat returns the value of a method's option mooring.v1.method.repeat, without its prefix. The
// option's type is taken from the image.
func (s *schemas) repeat(m protoreflect.MethodDescriptor) string {
	types, known := dynamicpb.NewTypes(s.files), &descriptorpb.MethodOptions{}
	text := m.Options().ProtoReflect().GetUnknown()
	if err := (proto.UnmarshalOptions{Resolver: types}).Unmarshal(text, known); err != nil {
		panic("bug: the options of " + string(m.FullName()) + ": " + err.Error())
	}
	option, err := types.FindExtensionByName("mooring.v1.method")
	if err != nil {
		panic("bug: there is no option mooring.v1.method")
	}
	of := known.ProtoReflect().Get(option.TypeDescriptor()).Message()
	fd := of.Descriptor().Fields().ByName("repeat")
	value := fd.Enum().Values().ByNumber(of.Get(fd).Enum())
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), "REPEAT_"))
}

// describe adds a text to a schema.
func describe(schema object, text string) {
	if text != "" {
		schema["description"] = text
	}
}
