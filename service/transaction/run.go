package transaction

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/session"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Run runs operations in a transaction, and commits that.
func (s *Server) Run(
	ctx context.Context, req *mooringv1.TransactionServiceRunRequest,
) (*mooringv1.TransactionServiceRunResponse, error) {
	r, opt := readBeginning(ctx, req)
	ops := readOperations(r, req.GetOperations())
	if err := cmp.Or(r.Err(), s.cfg.Transactions.missing()); err != nil {
		return nil, err
	}
	own, err := s.cfg.Transactions.cfg.Client.StartSession(session.Options{})
	if err != nil {
		return nil, err
	}
	defer own.End(ctx)
	if r.Session != nil {
		request.Inform(own, r.Session)
	}
	r.Transaction = &call.Transaction{Session: own}
	response := &mooringv1.TransactionServiceRunResponse{}
	account := admission.From(ctx)
	before := account.Mark()
	err = own.WithTransaction(ctx, client.WithTransactionOptions{
		TransactionOptions: opt.transaction(), RunOn: true, Caller: r.RequestID,
	}, func(ctx context.Context) error {
		response.Results = nil
		account.ShrinkTo(before) // what a former attempt has read and made
		for _, op := range ops {
			result, err := s.operate(ctx, op)
			if err != nil {
				return &rpcerr.FieldError{Field: op.path, Err: err}
			}
			response.Results = append(response.Results, result)
		}
		return nil
	})
	if len(response.GetResults()) == len(ops) { // no operation has failed
		response.WriteConcernError, err = committed(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

// operation holds one operation of a Run.
type operation struct {
	*mooringv1.TransactionOperation
	path   string // such as operations.1.insertOne
	result protoreflect.FieldDescriptor
}

// readOperations checks the operations of a Run.
func readOperations(r *request.Reader, list []*mooringv1.TransactionOperation) []operation {
	if len(list) == 0 {
		r.Refuse("operations", "is empty")
	}
	ops := make([]operation, len(list))
	for i, op := range list {
		ops[i] = readOperation(r, "operations."+strconv.Itoa(i), op)
	}
	return ops
}

var (
	operationFields = (*mooringv1.TransactionOperation)(nil).ProtoReflect().Descriptor()
	resultFields    = (*mooringv1.TransactionResult)(nil).ProtoReflect().Descriptor().Fields()
)

func readOperation(
	r *request.Reader, path string, op *mooringv1.TransactionOperation,
) operation {
	r.Known(path, op)
	m := op.ProtoReflect()
	kind := m.WhichOneof(operationFields.Oneofs().ByName("operation"))
	if kind == nil {
		r.Refuse(path, "has no operation")
		return operation{}
	}
	o := operation{op, path + "." + kind.JSONName(), resultFields.ByName(kind.Name())}
	within := m.Get(kind).Message()
	for _, name := range []protoreflect.Name{
		"session", "transaction", "statement", "return_partial_success",
	} {
		fd := within.Descriptor().Fields().ByName(name)
		if fd != nil && within.Has(fd) {
			r.Refuse(o.path+"."+fd.JSONName(), "cannot be set in an operation of a transaction")
		}
	}
	if op.GetExpect() != nil {
		o.checkExpectation(r, path+".expect")
	}
	return o
}

// counted has the field of a result that each count of an Expectation is about.
var counted = [...]protoreflect.Name{"matched_count", "modified_count", "deleted_count"}

// checkExpectation refuses what is expected of a field that the result does not have.
func (o *operation) checkExpectation(r *request.Reader, path string) {
	expect := o.GetExpect().ProtoReflect()
	r.Known(path, o.GetExpect())
	fields := o.result.Message().Fields()
	for _, name := range counted {
		fd := expect.Descriptor().Fields().ByName(name)
		if expect.Has(fd) && fields.ByName(name) == nil {
			r.Refuse(path+"."+fd.JSONName(), "the result of this operation does not have "+
				"this count")
		}
	}
	if o.GetExpect().Found != nil && fields.ByName("document") == nil {
		r.Refuse(path+".found", "the result of this operation has no document")
	}
}

// met returns an error if the result is not as expected.
func (o *operation) met(result protoreflect.Message) error {
	expect := o.GetExpect()
	if expect == nil {
		return nil
	}
	m := expect.ProtoReflect()
	for _, name := range counted {
		fd := m.Descriptor().Fields().ByName(name)
		if !m.Has(fd) {
			continue
		}
		got := result.Get(result.Descriptor().Fields().ByName(name)).Int()
		if least := m.Get(fd).Int(); got < least {
			return unmet("%s is %d, expected at least %d", fd.JSONName(), got, least)
		}
	}
	if expect.Found == nil {
		return nil
	}
	found := result.Has(result.Descriptor().Fields().ByName("document"))
	switch {
	case found && !expect.GetFound():
		return unmet("a document was found, expected none")
	case !found && expect.GetFound():
		return unmet("no document was found")
	}
	return nil
}

func unmet(format string, args ...any) error {
	return &rpcerr.Error{
		Reason: rpcerr.ExpectationFailed, Field: "expect", Message: fmt.Sprintf(format, args...),
	}
}

// operate runs one operation, and checks its result.
func (s *Server) operate(
	ctx context.Context, op operation,
) (*mooringv1.TransactionResult, error) {
	response, err := s.dispatch(ctx, op.TransactionOperation)
	if err != nil {
		return nil, err
	}
	m := response.ProtoReflect()
	if err := op.met(m); err != nil {
		return nil, err
	}
	result := &mooringv1.TransactionResult{}
	result.ProtoReflect().Set(op.result, protoreflect.ValueOfMessage(m))
	return result, nil
}

// dispatch runs one operation by the handler of DocumentService.
func (s *Server) dispatch(
	ctx context.Context, op *mooringv1.TransactionOperation,
) (proto.Message, error) {
	d := s.cfg.Documents
	switch o := op.GetOperation().(type) {
	case *mooringv1.TransactionOperation_FindOne:
		return d.FindOne(ctx, o.FindOne)
	case *mooringv1.TransactionOperation_Distinct:
		return d.Distinct(ctx, o.Distinct)
	case *mooringv1.TransactionOperation_CountDocuments:
		return d.CountDocuments(ctx, o.CountDocuments)
	case *mooringv1.TransactionOperation_InsertOne:
		return d.InsertOne(ctx, o.InsertOne)
	case *mooringv1.TransactionOperation_InsertMany:
		return d.InsertMany(ctx, o.InsertMany)
	case *mooringv1.TransactionOperation_UpdateOne:
		return d.UpdateOne(ctx, o.UpdateOne)
	case *mooringv1.TransactionOperation_UpdateMany:
		return d.UpdateMany(ctx, o.UpdateMany)
	case *mooringv1.TransactionOperation_ReplaceOne:
		return d.ReplaceOne(ctx, o.ReplaceOne)
	case *mooringv1.TransactionOperation_DeleteOne:
		return d.DeleteOne(ctx, o.DeleteOne)
	case *mooringv1.TransactionOperation_DeleteMany:
		return d.DeleteMany(ctx, o.DeleteMany)
	case *mooringv1.TransactionOperation_FindOneAndUpdate:
		return d.FindOneAndUpdate(ctx, o.FindOneAndUpdate)
	case *mooringv1.TransactionOperation_FindOneAndReplace:
		return d.FindOneAndReplace(ctx, o.FindOneAndReplace)
	case *mooringv1.TransactionOperation_FindOneAndDelete:
		return d.FindOneAndDelete(ctx, o.FindOneAndDelete)
	case *mooringv1.TransactionOperation_BulkWrite:
		return d.BulkWrite(ctx, o.BulkWrite)
	}
	panic("bug: transaction: an operation that readOperation does not know")
}
