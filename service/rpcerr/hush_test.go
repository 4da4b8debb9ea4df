package rpcerr_test

import (
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// hider says whether all of the server's words are hidden.
type hider bool

func (h hider) Hides() bool { return bool(h) }

// TestQuiet checks that a client whose call is quiet gets the code and its name, and nothing else
// of what the server says.
func TestQuiet(t *testing.T) {
	secret := bson.NewBuilder(nil).String("email", "secret").Finish()
	raw := bson.NewBuilder(nil).Document("keyValue", secret).Document("keyPattern", secret).
		Document("errInfo", secret).Finish()
	write := mongoerr.WriteError{Index: 1, Code: 11000, Message: "dup key: secret", Raw: raw}
	concern := &mongoerr.WriteConcernError{
		Code: 64, Name: "WriteConcernFailed", Message: "secret", Raw: raw,
	}
	for name, err := range map[string]error{
		"command": &mongoerr.CommandError{Code: 241, Name: "ConversionFailure", Message: "secret", Reply: raw},
		"write":   &mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{write}, WriteConcernError: concern},
		"concern": concern,
		"partial": &rpcerr.PartialError{Err: &mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{write}}, Result: rpcerr.Result{WriteErrors: []mongoerr.WriteError{write}}},
	} {
		loud := rpcerr.Explain(err, call.Call{})
		quiet := rpcerr.Explain(err, call.Call{Local: call.Local{Quiet: true}})
		text := func(f *rpcerr.Failure) string {
			return prototext.Format(rpcerr.HTTP(f).Body) + f.GRPCStatus().String() +
				prototext.Format(f.GRPCStatus().Proto())
		}
		if !strings.Contains(text(loud), "secret") {
			t.Errorf("%s: nothing to hide", name)
		}
		if strings.Contains(text(quiet), "secret") {
			t.Errorf("%s tells %s", name, text(quiet))
		}
		if loud.Code() != quiet.Code() ||
			rpcerr.HTTP(quiet).Body.GetError().GetServer().GetCode() == 0 {
			t.Errorf("%s: the code is gone: %s", name, text(quiet))
		}
	}
	response := &mooringv1.InsertManyResponse{
		WriteErrors:       []*mooringv1.WriteError{rpcerr.WriteError(write, payload.BSON)},
		WriteConcernError: rpcerr.WriteConcernError(concern, payload.BSON),
		InsertedIds:       []*mooringv1.InsertedId{{Index: 3}},
	}
	nested := &mooringv1.ErrorResponse{
		Error: &mooringv1.Error{
			WriteErrors: []*mooringv1.WriteError{rpcerr.WriteError(write, payload.BSON)},
		},
	}
	rpcerr.Hush(response, hider(false))
	if text := prototext.Format(response); !strings.Contains(text, "secret") {
		t.Errorf("a response whose words need not be hidden: %s", text)
	}
	rpcerr.Hush(nested, hider(true))
	if text := prototext.Format(nested); strings.Contains(text, "secret") ||
		!strings.Contains(text, "11000") {
		t.Errorf("nested %s", text)
	}
	rpcerr.Hush(response, hider(true))
	if text := prototext.Format(response); strings.Contains(text, "secret") ||
		!strings.Contains(text, "11000") || !strings.Contains(text, "exists") {
		t.Errorf("response %s", text)
	}
}

// TestOwnMessages checks that what the gateway itself says is told beside the errors of single
// writes, of which the server's words are hushed, also by a replica that has it from another.
func TestOwnMessages(t *testing.T) {
	raw := bson.NewBuilder(nil).OpenDocument("keyValue").String("a", "secret").Close().Finish()
	write := mongoerr.WriteError{Code: 11000, Message: "dup key: secret", Raw: raw}
	concern := &mongoerr.WriteConcernError{Code: 64, Message: "secret"}
	for _, err := range []error{
		&rpcerr.Error{Reason: rpcerr.MalformedDocument, Field: "documents.2", Message: "is odd"},
		&admission.Error{Cause: admission.Full, What: "memory"},
		&policy.Refusal{Principal: "ann", Action: "InsertMany"},
	} {
		for name, done := range map[string]rpcerr.Result{
			"writes":  {WriteErrors: []mongoerr.WriteError{write}},
			"concern": {WriteConcernError: concern},
			"response": {Response: &mooringv1.ImportResponse{
				WriteErrors: []*mooringv1.WriteError{{Code: 11000, Message: "hushed before"}},
			}},
		} {
			for _, of := range []call.Call{{Terse: true}, {Local: call.Local{Quiet: true}}} {
				f := rpcerr.Explain(done.Before(err), of)
				loud := rpcerr.Status(done.Before(err)).Err()
				for form, f := range map[string]*rpcerr.Failure{
					"the error": f, "its status": rpcerr.Explain(f.GRPCStatus().Err(), of),
					"a loud status": rpcerr.Explain(loud, of),
				} {
					text := prototext.Format(f.HTTP().Body) +
						prototext.Format(f.GRPCStatus().Proto())
					if f.Message() != err.Error() || f.Logged() != err.Error() || f.IsKept() ||
						strings.Contains(text, "secret") || f.HTTP().Body.GetError().Server != nil {
						t.Errorf("%v, %s, %s: kept %t, logged %q: %s", err, name, form, f.IsKept(),
							f.Logged(), text)
					}
				}
			}
		}
	}
}

// TestQuietStatuses checks that the server's words are known as such in the status of another
// replica, also if it has no code of the server.
func TestQuietStatuses(t *testing.T) {
	concern := &mongoerr.WriteConcernError{Code: 64, Message: "secret"}
	for _, err := range []error{
		concern, &mongoerr.WriteException{WriteConcernError: concern},
		&mongoerr.CommandError{Code: 99999, Message: "secret"},
		mongoerr.WithLabel(&mongoerr.CommandError{Code: 91, Message: "secret"},
			mongoerr.LabelUnknownTransactionCommitResult),
	} {
		for _, of := range []call.Call{{Terse: true}, {Local: call.Local{Quiet: true}}} {
			f := rpcerr.Explain(rpcerr.Status(err).Err(), of)
			text := prototext.Format(f.HTTP().Body) + prototext.Format(f.GRPCStatus().Proto())
			if !f.IsKept() || strings.Contains(text+f.Logged(), "secret") {
				t.Errorf("%v: kept %t, logged %q: %s", err, f.IsKept(), f.Logged(), text)
			}
		}
	}
}

// TestUnknownOutcomes checks that what is told of a write whose outcome is not known has none of
// the server's words.
func TestUnknownOutcomes(t *testing.T) {
	refused := &mongoerr.CommandError{Code: 91, Message: "secret"}
	for _, err := range []error{
		&operation.OutcomeUnknownError{Err: refused},
		&operation.OutcomeUnknownError{Err: io.EOF, Later: refused},
		&operation.OutcomeUnknownError{Err: &operation.TimeoutError{Err: refused}},
		&client.NamespacedBulkWriteError{
			Err:         &operation.OutcomeUnknownError{Err: io.EOF},
			WriteErrors: []mongoerr.WriteError{{Code: 11000, Message: "secret"}},
		},
		&client.NamespacedBulkWriteError{
			Err:         handle.ErrClosing,
			WriteErrors: []mongoerr.WriteError{{Code: 11000, Message: "secret"}},
		},
	} {
		f := rpcerr.Explain(err, call.Call{Local: call.Local{Quiet: true}})
		if strings.Contains(f.Message()+f.Logged(), "secret") {
			t.Errorf("%v: %q, logged %q", err, f.Message(), f.Logged())
		}
	}
}

// TestHushEverywhere fills each message of the API, with each member of its oneofs in turn, and
// checks that none of the server's words is left in it.
func TestHushEverywhere(t *testing.T) {
	hushed := 0
	file := mooringv1.File_mooring_v1_error_proto
	protoregistry.GlobalFiles.RangeFilesByPackage(file.Package(), func(
		f protoreflect.FileDescriptor,
	) bool {
		for i := range f.Messages().Len() {
			kind, err := protoregistry.GlobalTypes.FindMessageByName(f.Messages().Get(i).FullName())
			if err != nil {
				t.Fatal(err)
			}
			switch kind.Zero().Interface().(type) {
			case *mooringv1.WriteError, *mooringv1.WriteConcernError:
				continue // no response: they are in those
			}
			found := false
			for member := range mostMembers {
				m := kind.New()
				fill(m, member, 0)
				found = found || strings.Contains(prototext.Format(m.Interface()), "secret")
				rpcerr.Hush(m.Interface(), hider(true))
				if text := prototext.Format(m.Interface()); strings.Contains(text, "secret") {
					t.Errorf("%s, member %d of oneofs: %s", m.Descriptor().Name(), member, text)
				}
			}
			if found {
				hushed++
			}
		}
		return true
	})
	if hushed < 10 {
		t.Errorf("%d messages have words of the server", hushed)
	}
}

// TestFill checks that fill sets each field that is a message, also those of oneofs.
func TestFill(t *testing.T) {
	file := mooringv1.File_mooring_v1_error_proto
	protoregistry.GlobalFiles.RangeFilesByPackage(file.Package(), func(
		f protoreflect.FileDescriptor,
	) bool {
		for i := range f.Messages().Len() {
			kind, err := protoregistry.GlobalTypes.FindMessageByName(f.Messages().Get(i).FullName())
			if err != nil {
				t.Fatal(err)
			}
			set := map[protoreflect.FullName]bool{}
			for member := range mostMembers {
				m := kind.New()
				fill(m, member, 0)
				m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
					set[fd.FullName()] = true
					return true
				})
			}
			switch kind.Zero().Interface().(type) {
			case *mooringv1.WriteError, *mooringv1.WriteConcernError:
				continue
			}
			for i := range kind.Descriptor().Fields().Len() {
				fd := kind.Descriptor().Fields().Get(i)
				if fd.Message() != nil && !fd.IsMap() && !set[fd.FullName()] {
					t.Errorf("%s is never set", fd.FullName())
				}
			}
		}
		return true
	})
}

// mostMembers is at least the number of the members of each oneof of the API.
const mostMembers = 16

// fill sets all fields that are messages, down to the errors, which have a secret. Of a oneof it
// sets only the member of that number, counted again from 0 after the last.
func fill(m protoreflect.Message, member, depth int) {
	switch m := m.Interface().(type) {
	case *mooringv1.WriteError:
		m.Message = "secret"
		return
	case *mooringv1.WriteConcernError:
		m.Message = "secret"
		return
	}
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		switch {
		case fd.Message() == nil || fd.IsMap() || depth == 6 || !isChosen(fd, member):
		case fd.IsList():
			fill(m.Mutable(fd).List().AppendMutable().Message(), member, depth+1)
		default:
			fill(m.Mutable(fd).Message(), member, depth+1)
		}
	}
}

// isChosen reports whether a field is in no oneof, or is the member of that number.
func isChosen(fd protoreflect.FieldDescriptor, member int) bool {
	of := fd.ContainingOneof()
	if of == nil {
		return true
	}
	return of.Fields().Get(member%of.Fields().Len()).Number() == fd.Number()
}

// TestHushCost checks that a response without errors of the server costs nothing.
func TestHushCost(t *testing.T) {
	docs := make([]*mooringv1.Document, 100)
	for i := range docs {
		docs[i] = payload.NewDocument(bson.NewBuilder(nil).Finish())
	}
	response := &mooringv1.FindResponse{Documents: docs}
	if n := testing.AllocsPerRun(100, func() { rpcerr.Hush(response, hider(true)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHush(b *testing.B) {
	response := &mooringv1.FindOneResponse{
		Document: payload.NewDocument(bson.NewBuilder(nil).Finish()),
	}
	b.ReportAllocs()
	for b.Loop() {
		rpcerr.Hush(response, hider(true))
	}
}
