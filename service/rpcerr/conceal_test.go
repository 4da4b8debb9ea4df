package rpcerr_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestConceal checks that a terse call tells nothing of the deployment, on gRPC and REST, but the
// code, its name and the advice.
func TestConceal(t *testing.T) {
	const secret = "hunter2"
	reply := bson.NewBuilder(nil).OpenDocument("keyPattern").Int32(secret, 1).Close().
		OpenDocument("keyValue").String(secret, secret).Close().
		OpenDocument("errInfo").String(secret, secret).Close().Finish()
	write := mongoerr.WriteError{Code: 11000, Message: secret, Raw: reply}
	concern := &mongoerr.WriteConcernError{
		Code: 64, Name: "WriteConcernFailed", Message: secret, Raw: reply,
	}
	for _, row := range []struct {
		err    error
		reason string
		kept   string // of the message
	}{
		{&mongoerr.CommandError{Code: 11000, Name: "DuplicateKey", Message: secret, Reply: reply}, "DuplicateKey", "a document with this key exists"},
		{&mongoerr.CommandError{Code: 99999, Message: secret}, "Location99999", "the server refuses"},
		{&mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{write}, WriteConcernError: concern}, "DuplicateKey", "exists"},
		{concern, "WriteConcernFailed", "the server refuses"},
		{&mongoerr.NetworkError{Address: secret, Err: errors.New(secret)}, "NetworkError", "connection"},
		{&mongoerr.SelectionError{Selector: secret, Topology: secret, Err: errors.New(secret)}, "NoSuitableServer", "no MongoDB server"},
		{&pool.WaitQueueTimeoutError{Address: secret}, "ConnectionPoolFull", "in use"},
		{fmt.Errorf("wait for %s: %w", secret, context.DeadlineExceeded), "DeadlineExceeded", "deadline"},
		{&operation.OutcomeUnknownError{Err: errors.New(secret)}, "WriteOutcomeUnknown", "may or may not"},
		{&operation.OutcomeUnknownError{Err: &operation.TimeoutError{Err: &mongoerr.CommandError{Code: 50, Message: secret}}}, "WriteOutcomeUnknown", "may or may not"},
		{mongoerr.WithLabel(&mongoerr.NetworkError{Address: secret, Err: io.EOF}, mongoerr.LabelUnknownTransactionCommitResult), "UnknownTransactionCommitResult", "may or may not be committed"},
		{&mongoerr.NetworkError{Address: secret, Err: context.Canceled}, "Canceled", "context canceled"},
		{&mongoerr.NetworkError{Address: secret, Err: errors.Join(context.Canceled, cursor.ErrClosed)}, "CursorNotFound", "cursor was closed"},
		{&mongoerr.NetworkError{Address: secret, Err: handle.ErrKilled}, "CursorNotFound", "killed"},
		{&mongoerr.NetworkError{Address: secret, Err: handle.ErrClosing}, "ShuttingDown", "shutting down"},
		{&mongoerr.SelectionError{Topology: secret, Err: topology.ErrClosed}, "ShuttingDown", "topology is closed"},
		{&conn.TooLargeError{Address: secret, Size: 3, Max: 2}, "TooLarge", "limit of 2 bytes"},
		{errors.New(secret), "Internal", "internal error"},
		{&rpcerr.Error{Reason: rpcerr.InvalidArgument, Field: "filter", Message: "is odd"}, "InvalidArgument", "filter: is odd"},
	} {
		done := rpcerr.Result{
			WriteErrors: []mongoerr.WriteError{write}, WriteConcernError: concern,
		}
		for name, cause := range map[string]error{
			"alone": row.err, "with parts": done.Before(row.err),
		} {
			f := rpcerr.Explain(cause, call.Call{Terse: true})
			shown, err := json.Marshal(f.HTTP().Body)
			if err != nil {
				t.Fatal(err)
			}
			details, err := protojson.Marshal(f.GRPCStatus().Proto())
			if err != nil {
				t.Fatal(err)
			}
			body := f.HTTP().Body.GetError()
			if body.GetReason() != row.reason || !strings.Contains(body.GetMessage(), row.kept) ||
				f.GRPCStatus().Message() != body.GetMessage() {
				t.Errorf("%v, %s: %s %q, want %s %q", row.err, name, body.GetReason(),
					body.GetMessage(), row.reason, row.kept)
			}
			if strings.Contains(string(shown)+string(details), secret) {
				t.Errorf("%v, %s: shows the server's text: %s, %s", row.err, name, shown, details)
			}
			whole := rpcerr.Explain(cause, call.Call{})
			if f.Code() != whole.Code() || f.HTTP().Code != whole.HTTP().Code {
				t.Errorf("%v, %s: %v, want %v", row.err, name, f.Code(), whole.Code())
			}
		}
	}
}

// TestLogged checks what the log has of an error: all of it but the words of servers.
func TestLogged(t *testing.T) {
	command := &mongoerr.CommandError{
		Code: 13, Name: "Unauthorized", Message: "hunter2", Address: "h:1",
	}
	const outline = "command failed on h:1: error (Unauthorized, code 13)"
	for _, row := range []struct {
		err  error
		want string
	}{
		{command, outline},
		{fmt.Errorf("find: %w", command), "find: " + outline},
		{
			&mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{{Code: 11000, Message: "hunter2"}}, Address: "h:1"},
			"write failed on h:1: write 0: error (DuplicateKey, code 11000)",
		},
		// as another replica says it
		{rpcerr.Status(command).Err(), "the server refuses the request; its message is withheld (errors.serverTexts)"},
		{&mongoerr.NetworkError{Address: "h:1", Op: "read", Err: io.EOF}, "network error on h:1 (read): EOF"},
		{
			mongoerr.WithLabel(&mongoerr.NetworkError{Address: "h:1", Op: "read", Err: io.EOF}, mongoerr.LabelUnknownTransactionCommitResult),
			"network error on h:1 (read): EOF",
		},
		{&rpcerr.Error{Reason: rpcerr.InvalidArgument, Field: "filter", Message: "is odd"}, "filter: is odd"},
	} {
		for _, of := range []call.Call{{}, {Terse: true}, {Local: call.Local{Quiet: true}}} {
			if got := rpcerr.Explain(row.err, of).Logged(); got != row.want {
				t.Errorf("%v: the log has %q, want %q", row.err, got, row.want)
			}
		}
	}
}
