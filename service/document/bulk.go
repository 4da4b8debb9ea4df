package document

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// BulkWrite runs writes of several kinds, on one collection or on many. If a part fails, it returns
// an error that says what was done, or, if the request asks for it, a response that says what was
// not.
func (s *Server) BulkWrite(
	ctx context.Context, req *mooringv1.BulkWriteRequest,
) (*mooringv1.BulkWriteResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	many := req.GetDatabase() == "" && req.GetCollection() == ""
	models := readModels(r, req.GetModels(), many)
	opt := bulkOptions.Read(r, req)
	opt.RunOn = true
	if req.VerboseResults != nil && !many {
		r.Refuse("verboseResults", "is only for writes on many collections")
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	var done bulkOutcome
	if many {
		done = s.bulkWriteMany(ctx, req, models, opt)
	} else {
		done = s.bulkWriteOne(ctx, req, models, opt)
	}
	if done.err == nil || done.onlyWrites && req.GetReturnPartialSuccess() {
		return done.response(r.Encoding)
	}
	return nil, inModel(req.GetModels(), done.Before(done.err))
}

// bulkOutcome holds what a bulk write did, and what ended it.
type bulkOutcome struct {
	rpcerr.Result
	acknowledged bool
	updates      []client.IndexedUpdate
	deletes      []client.IndexedDelete
	err          error
	onlyWrites   bool // nothing has failed but single writes
}

// bulkWriteOne runs writes on one collection.
func (s *Server) bulkWriteOne(
	ctx context.Context, req *mooringv1.BulkWriteRequest, models []client.NamespacedWriteModel,
	opt client.BulkWriteOptions,
) bulkOutcome {
	list := make([]client.WriteModel, len(models))
	for i := range models {
		list[i] = models[i].WriteModel
	}
	res, err := s.cfg.Client.BulkWrite(ctx, namespace(req), list, opt)
	_, onlyWrites := errors.AsType[*mongoerr.WriteException](err)
	return bulkOutcome{
		Result: rpcerr.Result{
			InsertedCount: &res.InsertedCount, MatchedCount: &res.MatchedCount,
			ModifiedCount: &res.ModifiedCount, DeletedCount: &res.DeletedCount,
			UpsertedCount: &res.UpsertedCount,
			InsertedIDs:   res.InsertedIDs, UpsertedIDs: res.UpsertedIDs,
			WriteErrors: res.WriteErrors, WriteConcernError: firstOf(res.WriteConcernErrors),
		},
		acknowledged: res.Acknowledged, err: err, onlyWrites: onlyWrites,
	}
}

// bulkWriteMany runs writes on many collections.
func (s *Server) bulkWriteMany(
	ctx context.Context, req *mooringv1.BulkWriteRequest, models []client.NamespacedWriteModel,
	opt client.BulkWriteOptions,
) bulkOutcome {
	res, err := s.cfg.Client.ClientBulkWrite(ctx, models, client.NamespacedBulkWriteOptions{
		Common: opt.Common, Ordered: opt.Ordered, Let: opt.Let, VerboseResults: req.VerboseResults,
		BypassDocumentValidation: opt.BypassDocumentValidation,
	})
	done := bulkOutcome{
		Result: rpcerr.Result{
			InsertedCount: &res.InsertedCount, MatchedCount: &res.MatchedCount,
			ModifiedCount: &res.ModifiedCount, DeletedCount: &res.DeletedCount,
			UpsertedCount: &res.UpsertedCount, InsertedIDs: res.InsertResults,
		},
		acknowledged: res.Acknowledged, err: err,
		updates: res.UpdateResults, deletes: res.DeleteResults,
	}
	for _, u := range res.UpdateResults {
		if !u.UpsertedID.IsZero() {
			id := client.IndexedID{Index: u.Index, ID: u.UpsertedID}
			done.UpsertedIDs = append(done.UpsertedIDs, id)
		}
	}
	if failed, ok := errors.AsType[*client.NamespacedBulkWriteError](err); ok {
		done.WriteErrors = failed.WriteErrors
		done.WriteConcernError = firstOf(failed.WriteConcernErrors)
		done.onlyWrites = failed.Err == nil
		if failed.Err == nil && len(failed.WriteErrors) == 0 {
			done.err = nil // the writes are done, and the response has why they are not confirmed
		}
	}
	return done
}

// firstOf returns the first of the errors of several commands, nil if there is none.
func firstOf(unconfirmed []*mongoerr.WriteConcernError) *mongoerr.WriteConcernError {
	if len(unconfirmed) == 0 {
		return nil
	}
	return unconfirmed[0]
}

func (o *bulkOutcome) response(enc payload.Encoding) (*mooringv1.BulkWriteResponse, error) {
	response := &mooringv1.BulkWriteResponse{
		Acknowledged:      o.acknowledged,
		WriteConcernError: rpcerr.WriteConcernError(o.WriteConcernError, enc),
	}
	if o.acknowledged {
		response.InsertedCount, response.MatchedCount = o.InsertedCount, o.MatchedCount
		response.ModifiedCount, response.DeletedCount = o.ModifiedCount, o.DeletedCount
		response.UpsertedCount = o.UpsertedCount
	}
	var err error
	if response.InsertedIds, err = indexedIDs(enc, o.InsertedIDs); err != nil {
		return nil, err
	}
	if response.UpsertedIds, err = indexedIDs(enc, o.UpsertedIDs); err != nil {
		return nil, err
	}
	for _, u := range o.updates {
		id, err := enc.Value(u.UpsertedID)
		if err != nil {
			return nil, err
		}
		response.UpdateResults = append(response.UpdateResults, &mooringv1.UpdateResult{
			Index: int64(u.Index), MatchedCount: u.MatchedCount, ModifiedCount: u.ModifiedCount,
			UpsertedId: id,
		})
	}
	for _, d := range o.deletes {
		response.DeleteResults = append(response.DeleteResults, &mooringv1.DeleteResult{
			Index: int64(d.Index), DeletedCount: d.DeletedCount,
		})
	}
	for _, w := range o.WriteErrors {
		response.WriteErrors = append(response.WriteErrors, rpcerr.WriteError(w, enc))
	}
	return response, nil
}

func indexedIDs(
	enc payload.Encoding, ids []client.IndexedID,
) ([]*mooringv1.InsertedId, error) {
	values := make([]bson.Value, len(ids))
	for i, one := range ids {
		values[i] = one.ID
	}
	encoded, err := enc.Values(values)
	if err != nil {
		return nil, err
	}
	messages := make([]mooringv1.InsertedId, len(ids))
	list := make([]*mooringv1.InsertedId, len(ids))
	for i, one := range ids {
		messages[i].Index, messages[i].Id = int64(one.Index), encoded[i]
		list[i] = &messages[i]
	}
	return list, nil
}

// inModel returns an error of core about an argument of a model as one about the request's field,
// such as models.1.updateOne.update.
func inModel(models []*mooringv1.WriteModel, err error) error {
	refused, ok := errors.AsType[*client.ArgumentError](err)
	if !ok {
		return err
	}
	list, path, _ := strings.Cut(refused.Argument, ".")
	if list != "models" && list != "requests" {
		return err
	}
	field := "models"
	index, argument, deep := strings.Cut(path, ".")
	if path != "" {
		field += "." + index
	}
	if i, err := strconv.Atoi(index); err == nil && deep && i < len(models) {
		field += "." + kindOf(models[i]) + "." + argument
	}
	reason := rpcerr.InvalidArgument
	if refused.TooLarge {
		reason = rpcerr.TooLarge
	}
	renamed := &rpcerr.Error{
		Reason: reason, Field: field, Message: refused.Problem, Err: err,
	}
	return renamed
}
