package injections

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// part is a field of a call's request, or of what is in it: the last of path.
type part struct {
	method protoreflect.MethodDescriptor
	path   []protoreflect.FieldDescriptor
}

// endless has the calls whose answer has no end.
var endless = []string{"Watch", "WatchTopology", "Live"}

// parts returns all fields of all calls that hold a text, a document or a value.
func parts() (all []part) {
	services := mooringv1.File_mooring_v1_document_service_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(services, func(
		f protoreflect.FileDescriptor,
	) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				for _, path := range leaves(m.Input(), 4) {
					all = append(all, part{m, path})
				}
			}
		}
		return true
	})
	slices.SortFunc(all, func(a, b part) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// String returns the part as a failure names it.
func (p part) String() string {
	text := string(p.method.FullName())
	for _, f := range p.path {
		text += "." + string(f.Name())
	}
	return text
}

// leaves returns the paths of the fields that hold a text, a document or a value.
func leaves(in protoreflect.MessageDescriptor, depth int) (paths [][]protoreflect.FieldDescriptor) {
	for i := range in.Fields().Len() {
		f := in.Fields().Get(i)
		switch {
		case f.IsMap():
		case f.Kind() == protoreflect.StringKind || isDocument(f):
			paths = append(paths, []protoreflect.FieldDescriptor{f})
		case f.Kind() == protoreflect.MessageKind && depth > 1:
			for _, rest := range leaves(f.Message(), depth-1) {
				paths = append(paths, append([]protoreflect.FieldDescriptor{f}, rest...))
			}
		}
	}
	return paths
}

// isDocument reports whether the field is a document or a value.
func isDocument(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.MessageKind &&
		(f.Message().Name() == "Document" || f.Message().Name() == "Value")
}

// usual has what a call needs beside the field in question, by the names of fields.
var usual = map[string]string{
	"database": "@own", "collection": "orders", "filter": `{}`, "document": `{}`, "replacement": `{}`,
	"operators": `{"$set": {"z": 5}}`, "command": `{"ping": 1}`, "field_name": "s", "to": "loot", "id": `1001`,
	"namespace": "@own.orders", "documents": `{}`,
}

// base sets what the message needs.
func (r *run) base(m protoreflect.Message, a attacker) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		text, known := usual[string(f.Name())]
		if f.Name() == "update" && f.Kind() == protoreflect.MessageKind &&
			f.Message().Name() == "Update" {
			r.base(m.Mutable(f).Message(), a)
		}
		if known && (f.Kind() == protoreflect.StringKind || isDocument(f)) &&
			(f.Name() != "namespace" || f.HasPresence()) {
			set(m, f, r.texts(a).Replace(text), nil)
		}
	}
}

// set sets a field to a text, or a document to JSON or, if it is not nil, to BSON.
func set(m protoreflect.Message, f protoreflect.FieldDescriptor, text string, bson []byte) {
	if f.Kind() == protoreflect.StringKind {
		if f.IsList() {
			m.Mutable(f).List().Append(protoreflect.ValueOfString(text))
			return
		}
		m.Set(f, protoreflect.ValueOfString(text))
		return
	}
	into := inside(m, f)
	encodings := into.Descriptor().Fields()
	if bson != nil {
		into.Set(encodings.ByName("bson"), protoreflect.ValueOfBytes(bson))
		return
	}
	into.Set(encodings.ByName("json"), protoreflect.ValueOfString(text))
}

// inside returns the message in the field, of a list a new one.
func inside(m protoreflect.Message, f protoreflect.FieldDescriptor) protoreflect.Message {
	if f.IsList() {
		return m.Mutable(f).List().AppendMutable().Message()
	}
	return m.Mutable(f).Message()
}

// message returns the request with a value in the part.
func (r *run) message(p part, a attacker, text string, bson []byte) proto.Message {
	whole := dynamicpb.NewMessage(p.method.Input())
	m := whole.ProtoReflect()
	r.base(m, a)
	for _, f := range p.path[:len(p.path)-1] {
		m = inside(m, f)
		r.base(m, a)
	}
	last := p.path[len(p.path)-1]
	if last.IsList() {
		m.Clear(last)
	}
	set(m, last, text, bson)
	return whole
}

// calls puts so many values in each part of each call of gRPC, in the next part the next ones, and
// returns how many parts there are.
func (r *run) calls(t *testing.T, perPart int) int {
	conn := r.Dial(t)
	all := parts()
	json := slices.DeleteFunc(slices.Concat(operators, scripts, stages, commands, wrappers, texts),
		func(text string) bool { return !utf8.ValidString(text) }) // no client could send it
	named := slices.Concat(names, tokens)
	for i, p := range all {
		each(perPart, func(j int) {
			a := []attacker{r.ann, r.cal}[j%2]
			text, bson := json[(i*perPart+j)%len(json)], []byte(nil)
			if !isDocument(p.path[len(p.path)-1]) {
				text = named[(i*perPart+j)%len(named)]
			} else if j%3 == 2 {
				bson = append([]byte{}, documents[(i*perPart+j)/3%len(documents)]...)
				text = fmt.Sprintf("%x", bson)
			}
			r.call(t, conn, p, a, r.texts(a).Replace(text), bson)
		})
		r.look(t, p.String(), false)
	}
	r.look(t, "the calls", true)
	return len(all)
}

// call makes a call, and reads at most two messages.
func (r *run) call(
	t *testing.T, conn *grpc.ClientConn, p part, a attacker, text string, bson []byte,
) {
	ctx, cancel := request(t)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "api-key", a.key)
	path := fmt.Sprintf("/%s/%s", p.method.Parent().FullName(), p.method.Name())
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		path)
	if err == nil {
		err = stream.SendMsg(r.message(p, a, text, bson))
	}
	if err == nil || errors.Is(err, io.EOF) {
		_ = stream.CloseSend() // the answer says what is wrong
	}
	var got strings.Builder
	for range 2 {
		if err != nil && !errors.Is(err, io.EOF) {
			break
		}
		answer := dynamicpb.NewMessage(p.method.Output())
		if err = stream.RecvMsg(answer); err != nil {
			break
		}
		fmt.Fprint(&got, answer)
		if p.method.IsStreamingServer() && slices.Contains(endless, string(p.method.Name())) {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	r.found(judgeCall(err, got.String()), a.name+" "+p.String(), text,
		fmt.Sprint(err, got.String()), err == nil)
}
