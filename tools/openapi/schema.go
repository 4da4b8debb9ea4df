package main

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// schemas makes the schemas of messages, each once.
type schemas struct {
	files *protoregistry.Files
	made  object // by the message's name
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

// ref returns a reference to a message's schema, and makes the schema if it is new.
func (s *schemas) ref(m protoreflect.MessageDescriptor) object {
	name := string(m.Name())
	if _, ok := s.made[name]; !ok {
		s.made[name] = object{} // a message may hold itself
		schema := s.schema(m)
		describe(schema, comment(m))
		s.made[name] = schema
	}
	return object{"$ref": "#/components/schemas/" + name}
}

func (s *schemas) schema(m protoreflect.MessageDescriptor) object {
	switch m.FullName() {
	case "mooring.v1.Document":
		return object{"type": "object", "additionalProperties": true}
	case "mooring.v1.Value":
		return object{} // anything
	case "mooring.v1.Pipeline", "mooring.v1.TagSet": // the value of the only field
		return s.field(m.Fields().Get(0))
	case "mooring.v1.ReadPreference": // also the bare mode
		return object{"oneOf": []any{s.object(m), s.field(m.Fields().ByName("mode"))}}
	}
	if m.Oneofs().Len() == 1 && !m.Oneofs().Get(0).IsSynthetic() &&
		m.Oneofs().Get(0).Fields().Len() == m.Fields().Len() {
		var arms []any
		for i := range m.Fields().Len() {
			arms = append(arms, s.field(m.Fields().Get(i)))
		}
		return object{"oneOf": arms}
	}
	return s.object(m)
}

// object returns a message with its fields, except those in the path.
func (s *schemas) object(m protoreflect.MessageDescriptor) object {
	properties := object{}
	var required []string
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		if fd.Number() <= 2 && (fd.Name() == "database" || fd.Name() == "collection") {
			continue
		}
		schema := s.field(fd)
		if nullable(fd) {
			schema = object{"oneOf": []any{schema, object{"type": "null"}}}
		}
		describe(schema, comment(fd))
		properties[fd.JSONName()] = schema
		if isRequired(fd) {
			required = append(required, fd.JSONName())
		}
	}
	schema := object{"type": "object", "properties": properties}
	if strings.HasSuffix(string(m.Name()), "Request") {
		schema["additionalProperties"] = false
	}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// nullable returns a response's own document: null when there is none.
func nullable(fd protoreflect.FieldDescriptor) bool {
	return strings.HasSuffix(string(fd.Parent().Name()), "Response") && !fd.IsList() &&
		!fd.HasOptionalKeyword() &&
		fd.Kind() == protoreflect.MessageKind && fd.Message().FullName() == "mooring.v1.Document"
}

// isRequired reports whether a field is required: in a request, if it has no presence marker and
// says so; in a response, if it is always there.
func isRequired(fd protoreflect.FieldDescriptor) bool {
	switch {
	case strings.HasSuffix(string(fd.Parent().Name()), "Request"):
		return strings.Contains(comment(fd), "Required.")
	case strings.HasSuffix(string(fd.Parent().Name()), "Response"):
		return !fd.HasPresence() && !hasOption(fd, omitEmpty) || nullable(fd)
	}
	return false
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
		clone := object{}
		for k, v := range scalar {
			clone[k] = v
		}
		return clone
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
	pair := object{
		"type": "array", "prefixItems": []any{
			object{"type": "string"},
			object{},
		}, "minItems": 2, "maxItems": 2,
	}
	return object{"oneOf": []any{ref, object{"type": "array", "items": pair}}}
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

// describe adds a text to a schema.
func describe(schema object, text string) {
	if text != "" {
		schema["description"] = text
	}
}

// comment returns the text before a declaration in the proto file, unwrapped.
func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	var paragraphs []string
	for p := range strings.SplitSeq(text, "\n\n") {
		if p = strings.Join(strings.Fields(p), " "); p != "" {
			paragraphs = append(paragraphs, p)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}
