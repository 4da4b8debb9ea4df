package method_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
)

// TestMissing checks that the table cannot be made where an option is missing, or two methods
// cannot be told apart.
func TestMissing(t *testing.T) {
	for _, row := range []struct {
		name, want string
		change     func(*descriptorpb.FileDescriptorProto)
	}{
		{"as it is", "", func(*descriptorpb.FileDescriptorProto) {}},
		{
			"a method without options", "/mooring.v1.CursorService/NextPage has not all options",
			func(f *descriptorpb.FileDescriptorProto) { f.Service[0].Method[0].Options = nil },
		},
		{
			"a method without one option", "/mooring.v1.CursorService/NextPage has not all options",
			func(f *descriptorpb.FileDescriptorProto) { optionsOf(f.Service[0].Method[0]).Repeat = 0 },
		},
		{
			"a field without an option", "mooring.v1.NextPageRequest.session does not have the option",
			func(f *descriptorpb.FileDescriptorProto) { f.MessageType[0].Field[0].Options = nil },
		},
		{
			"a check of another type", "mooring.v1.NextPageRequest.session is a string, which CHECK_FILTER",
			checked(mooringv1.Check_CHECK_FILTER),
		},
		{
			"parts of a text", "mooring.v1.NextPageRequest.session is not a message",
			checked(mooringv1.Check_CHECK_PARTS),
		},
		{
			"a request of two methods",
			"/mooring.v1.CursorService/Stream takes the request of /mooring.v1.CursorService/NextPage",
			func(f *descriptorpb.FileDescriptorProto) {
				f.Service[0].Method[1].InputType = f.Service[0].Method[0].InputType
			},
		},
		{
			"an action of two methods",
			"/mooring.v1.CursorService/Stream is the action of /mooring.v1.CursorService/NextPage",
			func(f *descriptorpb.FileDescriptorProto) {
				optionsOf(f.Service[0].Method[1]).Action = "NextPage"
			},
		},
	} {
		changed := protodesc.ToFileDescriptorProto(mooringv1.File_mooring_v1_cursor_service_proto)
		row.change(changed)
		file, err := protodesc.NewFile(changed, protoregistry.GlobalFiles)
		if err != nil {
			t.Fatal(err)
		}
		err = method.Read(file)
		if (err == nil) != (row.want == "") ||
			err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// checked returns a change of what is checked in the first field of a file.
func checked(as mooringv1.Check) func(*descriptorpb.FileDescriptorProto) {
	return func(f *descriptorpb.FileDescriptorProto) {
		o := &descriptorpb.FieldOptions{}
		proto.SetExtension(o, mooringv1.E_Check, as)
		f.MessageType[0].Field[0].Options = o
	}
}

// optionsOf returns the options of a method, which are its own copy.
func optionsOf(m *descriptorpb.MethodDescriptorProto) *mooringv1.Method {
	m.Options = proto.CloneOf(m.Options)
	o, _ := proto.GetExtension(m.Options, mooringv1.E_Method).(*mooringv1.Method)
	return o
}

// TestMissingInPart checks that the fields of a request's parts need the option, too.
func TestMissingInPart(t *testing.T) {
	changed := protodesc.ToFileDescriptorProto(mooringv1.File_mooring_v1_document_service_proto)
	for _, m := range changed.GetMessageType() {
		if m.GetName() == "UpdateOneModel" {
			m.Field[0].Options = nil
		}
	}
	file, err := protodesc.NewFile(changed, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	const want = "mooring.v1.UpdateOneModel.filter does not have the option mooring.v1.check"
	if err := method.Read(file); err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestLookups checks that each method is found by its name, its action and its request, and that
// others are not.
func TestLookups(t *testing.T) {
	all := method.All()
	if len(all) < 50 {
		t.Errorf("%d methods", len(all))
	}
	for _, m := range all {
		request := m.Descriptor.Input().FullName()
		if method.Of(m.Name) != m || method.OfAction(m.Action) != m ||
			method.OfRequest(request) != m {
			t.Errorf("%s is not found by its name, its action %s or its request", m.Name, m.Action)
		}
	}
	if m := method.Of("/grpc.health.v1.Health/Check"); m != nil {
		t.Errorf("health is %v", m)
	}
	if m := method.OfAction("StreamCursor"); m == nil ||
		m.Name != "/mooring.v1.CursorService/Stream" {
		t.Errorf("StreamCursor is %v", m)
	}
}

// TestOptionsAgree checks that the options of a method agree with one another and with the fields
// of its request.
func TestOptionsAgree(t *testing.T) {
	for _, m := range method.All() {
		has := func(field protoreflect.Name) bool {
			return m.Descriptor.Input().Fields().ByName(field) != nil
		}
		for what, holds := range map[string]bool{
			"only writes need a key": (m.Repeat == mooringv1.Method_REPEAT_KEY) ==
				(m.Group == mooringv1.Method_GROUP_WRITE),
			"what can be repeated changes nothing": m.Repeat != mooringv1.Method_REPEAT_READ ||
				m.Audit == mooringv1.Method_AUDIT_READ || m.Group == mooringv1.Method_GROUP_OPERATE,
			"writes are in the audit log": m.Group != mooringv1.Method_GROUP_WRITE ||
				m.Audit == mooringv1.Method_AUDIT_WRITE,
			"a call with a transaction has a route": !has("transaction") ||
				m.Route != mooringv1.Method_ROUTE_HERE && m.Route != mooringv1.Method_ROUTE_HANDLE,
			"a route needs a transaction": has("transaction") ||
				m.Route == mooringv1.Method_ROUTE_HERE || m.Route == mooringv1.Method_ROUTE_HANDLE,
			"the route to a cursor needs one": m.Route != mooringv1.Method_ROUTE_CURSOR ||
				has("cursor"),
			"a request about a collection names one": has("database") && has("collection") ||
				m.Scope != mooringv1.Method_SCOPE_DOCUMENTS &&
					m.Scope != mooringv1.Method_SCOPE_COLLECTION,
			"a command is one": has("command") == (m.Scope == mooringv1.Method_SCOPE_COMMAND),
		} {
			if !holds {
				t.Errorf("%s: it does not hold that %s", m.Name, what)
			}
		}
	}
}

// TestChecked checks which fields of a request a policy looks at, and that it looks at all fields
// of other messages.
func TestChecked(t *testing.T) {
	names := func(m proto.Message) (text string) {
		for _, f := range method.Checked(m.ProtoReflect().Descriptor()) {
			text += string(f.Name()) + " " + f.Check.String() + ", "
		}
		return text
	}
	for want, m := range map[string]proto.Message{
		"options CHECK_OPTIONS, documents CHECK_INSERT, ":                    &mooringv1.ImportRequest{},
		"cursor CHECK_WHOLE, ":                                               &mooringv1.NextPageRequest{},
		"options CHECK_OPTIONS, let CHECK_EXPRESSIONS, models CHECK_PARTS, ": &mooringv1.BulkWriteRequest{},
		"index CHECK_UNSPECIFIED, id CHECK_UNSPECIFIED, ":                    &mooringv1.InsertedId{},
	} {
		if got := names(m); got != want {
			t.Errorf("%T: %s, want %s", m, got, want)
		}
	}
}
