package rpcerr_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestQuiet checks that a client whose call is quiet gets the code and its name, and nothing else
// of what the server says.
func TestQuiet(t *testing.T) {
	secret := bson.NewBuilder(nil).String("email", "secret").Finish()
	raw := bson.NewBuilder(nil).Document("keyValue", secret).Document("keyPattern", secret).Document("errInfo", secret).Finish()
	write := mongoerr.WriteError{Index: 1, Code: 11000, Message: "dup key: secret", Raw: raw}
	concern := &mongoerr.WriteConcernError{Code: 64, Name: "WriteConcernFailed", Message: "secret", Raw: raw}
	for name, err := range map[string]error{
		"command": &mongoerr.CommandError{Code: 241, Name: "ConversionFailure", Message: "secret", Reply: raw},
		"write":   &mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{write}, WriteConcernError: concern},
		"concern": concern,
		"partial": &rpcerr.PartialError{Err: &mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{write}}, Result: rpcerr.Result{WriteErrors: []mongoerr.WriteError{write}}},
	} {
		loud := rpcerr.Explain(err, call.Call{})
		quiet := rpcerr.Explain(err, call.Call{Quiet: true})
		text := func(f *rpcerr.Failure) string {
			return prototext.Format(rpcerr.HTTP(f).Body) + f.GRPCStatus().String() + prototext.Format(f.GRPCStatus().Proto())
		}
		if !strings.Contains(text(loud), "secret") {
			t.Errorf("%s: nothing to hide", name)
		}
		if strings.Contains(text(quiet), "secret") {
			t.Errorf("%s tells %s", name, text(quiet))
		}
		if loud.Code() != quiet.Code() || rpcerr.HTTP(quiet).Body.GetError().GetServer().GetCode() == 0 {
			t.Errorf("%s: the code is gone: %s", name, text(quiet))
		}
	}
	response := &mooringv1.InsertManyResponse{
		WriteErrors:       []*mooringv1.WriteError{rpcerr.WriteError(write, payload.BSON)},
		WriteConcernError: rpcerr.WriteConcernError(concern, payload.BSON),
		InsertedIds:       []*mooringv1.InsertedId{{Index: 3}},
	}
	nested := &mooringv1.ErrorResponse{Error: &mooringv1.Error{WriteErrors: []*mooringv1.WriteError{rpcerr.WriteError(write, payload.BSON)}}}
	always := func() bool { return true }
	rpcerr.Hush(response, func() bool { return false })
	if text := prototext.Format(response); !strings.Contains(text, "secret") {
		t.Errorf("a response whose words need not be hidden: %s", text)
	}
	rpcerr.Hush(nested, always)
	if text := prototext.Format(nested); strings.Contains(text, "secret") || !strings.Contains(text, "11000") {
		t.Errorf("nested %s", text)
	}
	rpcerr.Hush(response, always)
	if text := prototext.Format(response); strings.Contains(text, "secret") || !strings.Contains(text, "11000") || !strings.Contains(text, "exists") {
		t.Errorf("response %s", text)
	}
}
