package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
)

// NewRequest returns the request of a call, such as DocumentService/Find, with the fields of a
// mapping, which are named as on REST. Documents are Extended JSON.
func NewRequest(call string, fields *yaml.Node) (proto.Message, error) {
	service, method, _ := strings.Cut(call, "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(
		protoreflect.FullName("mooring.v1." + service))
	if err != nil {
		return nil, fmt.Errorf("there is no service %q", service)
	}
	descriptor, ok := found.(protoreflect.ServiceDescriptor)
	if !ok || descriptor.Methods().ByName(protoreflect.Name(method)) == nil {
		return nil, fmt.Errorf("there is no call %q", call)
	}
	input := descriptor.Methods().ByName(protoreflect.Name(method)).Input()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(input.FullName())
	if err != nil {
		return nil, err
	}
	m := kind.New()
	if fields.IsZero() {
		return m.Interface(), nil
	}
	return m.Interface(), fill(m, fields)
}

// fill sets the fields of a message.
func fill(m protoreflect.Message, fields *yaml.Node) error {
	if fields.Kind != yaml.MappingNode {
		return errors.New("the request is not a mapping")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(fields.Content); i += 2 {
		name, node := fields.Content[i].Value, fields.Content[i+1]
		if seen[name] {
			return fmt.Errorf("the request has the field %q twice", name)
		}
		seen[name] = true
		fd := m.Descriptor().Fields().ByJSONName(name)
		if fd == nil {
			return fmt.Errorf("the request has no field %q", name)
		}
		if err := set(m, fd, node); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func set(m protoreflect.Message, fd protoreflect.FieldDescriptor, node *yaml.Node) error {
	if !fd.IsList() {
		v, err := value(m.NewField(fd), fd, node)
		if err == nil {
			m.Set(fd, v)
		}
		return err
	}
	if node.Kind != yaml.SequenceNode {
		return errors.New("must be a list")
	}
	list := m.Mutable(fd).List()
	for _, item := range node.Content {
		v, err := value(list.NewElement(), fd, item)
		if err != nil {
			return err
		}
		list.Append(v)
	}
	return nil
}

// value returns a field's value. empty is a new one.
func value(
	empty protoreflect.Value, fd protoreflect.FieldDescriptor, node *yaml.Node,
) (protoreflect.Value, error) {
	if fd.Kind() == protoreflect.MessageKind {
		return empty, message(empty.Message(), node)
	}
	if node.Kind != yaml.ScalarNode {
		return empty, errors.New("must be a single value")
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(node.Value), nil
	case protoreflect.BoolKind:
		b, err := strconv.ParseBool(node.Value)
		return protoreflect.ValueOfBool(b), err
	case protoreflect.Int32Kind:
		n, err := strconv.ParseInt(node.Value, 10, 32)
		return protoreflect.ValueOfInt32(int32(n)), err
	case protoreflect.Int64Kind:
		n, err := strconv.ParseInt(node.Value, 10, 64)
		return protoreflect.ValueOfInt64(n), err
	default:
		return empty, fmt.Errorf("a field of the type %s cannot be set", fd.Kind())
	}
}

func message(m protoreflect.Message, node *yaml.Node) error {
	switch m := m.Interface().(type) {
	case *mooringv1.Document:
		text, err := toJSON(node)
		m.Encoding = &mooringv1.Document_Json{Json: text}
		return err
	case *mooringv1.Value:
		text, err := toJSON(node)
		m.Encoding = &mooringv1.Value_Json{Json: text}
		return err
	case *mooringv1.Update:
		if node.Kind != yaml.SequenceNode {
			m.Kind = &mooringv1.Update_Operators{Operators: &mooringv1.Document{}}
			return message(m.GetOperators().ProtoReflect(), node)
		}
		p := &mooringv1.Pipeline{}
		m.Kind = &mooringv1.Update_Pipeline{Pipeline: p}
		return set(p.ProtoReflect(), p.ProtoReflect().Descriptor().Fields().ByName("stages"), node)
	}
	return fill(m, node)
}

// toJSON returns a node as JSON, with its keys in order.
func toJSON(node *yaml.Node) (string, error) {
	switch node.Kind {
	case yaml.MappingNode:
		var parts []string
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, err := json.Marshal(node.Content[i].Value)
			if err != nil {
				return "", err
			}
			v, err := toJSON(node.Content[i+1])
			if err != nil {
				return "", err
			}
			parts = append(parts, string(key)+": "+v)
		}
		return "{" + strings.Join(parts, ", ") + "}", nil
	case yaml.SequenceNode:
		var parts []string
		for _, item := range node.Content {
			v, err := toJSON(item)
			if err != nil {
				return "", err
			}
			parts = append(parts, v)
		}
		return "[" + strings.Join(parts, ", ") + "]", nil
	default:
		var v any
		if err := node.Decode(&v); err != nil {
			return "", err
		}
		text, err := json.Marshal(v)
		return string(text), err
	}
}

// show returns a field of a request as text: its documents as Extended JSON.
func show(request proto.Message, field string) (string, error) {
	m := request.ProtoReflect()
	fd := m.Descriptor().Fields().ByJSONName(field)
	if fd == nil {
		return "", fmt.Errorf("the request has no field %q", field)
	}
	if !m.Has(fd) {
		return "nothing", nil
	}
	if !fd.IsList() {
		return showValue(m.Get(fd))
	}
	var parts []string
	for i := range m.Get(fd).List().Len() {
		part, err := showValue(m.Get(fd).List().Get(i))
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	return "[" + strings.Join(parts, ", ") + "]", nil
}

func showValue(v protoreflect.Value) (string, error) {
	m, ok := v.Interface().(protoreflect.Message)
	if !ok {
		return v.String(), nil
	}
	switch m := m.Interface().(type) {
	case *mooringv1.Document:
		raw, err := payload.Decoder{}.Raw("document", m)
		if err != nil {
			return "", err
		}
		text, err := extjson.Append(nil, raw, extjson.Relaxed)
		return string(text), err
	case *mooringv1.Update:
		if p := m.GetPipeline(); p != nil {
			return show(p, "stages")
		}
		return show(m, "operators")
	}
	var parts []string
	var err error
	m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		var part string
		part, err = show(m.Interface(), fd.JSONName())
		parts = append(parts, fd.JSONName()+": "+part)
		return err == nil
	})
	return "{" + strings.Join(parts, ", ") + "}", err
}
