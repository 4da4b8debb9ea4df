package resource

import (
	"context"
	"errors"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// PutDocument replaces the document, or creates it.
func (s *Server) PutDocument(
	ctx context.Context, req *mooringv1.PutDocumentRequest,
) (*mooringv1.PutDocumentResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	opt := changeOptions.Read(r, req)
	w := newWriting(r, req, &opt.Common)
	doc := withoutID(r, w.id, r.Required("replacement", req.GetReplacement()))
	if req.GetOnlyCreate() {
		switch {
		case w.condition.exists:
			r.Refuse("onlyCreate", "cannot be used together with if_match")
		case w.filter != nil:
			r.Refuse("filter", "cannot be used together with only_create: a new document has "+
				"nothing to match")
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	if req.GetOnlyCreate() {
		return s.create(ctx, r, w, doc, opt)
	}
	var err error
	filter := bson.Raw(nil)
	if filter, opt.Collation, err = s.conditions(ctx, r, w); err != nil {
		return nil, err
	}
	opt.ReturnDocument = client.ReturnAfter
	if !w.condition.exists {
		opt.Upsert = new(true)
	}
	res, err := compared(&opt.Collation, func() (client.FindOneAndResult, error) {
		return s.client.FindOneAndReplace(ctx, w.ns, filter, doc, opt)
	})
	if err = s.done(ctx, w, err, res); err != nil {
		return nil, err
	}
	message, err := r.Answer(req, res, opt.Projection)
	if err != nil {
		return nil, err
	}
	return &mooringv1.PutDocumentResponse{
		Document: message, Etag: new(etag(res.Document)), Created: !res.UpsertedID.IsZero(),
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}

// create inserts the document.
func (s *Server) create(
	ctx context.Context, r *request.Reader, w *writing, doc bson.Raw, opt client.FindOneAndOptions,
) (*mooringv1.PutDocumentResponse, error) {
	b := bson.NewBuilder(make([]byte, 0, len(doc)+len(w.id.Data)+8))
	doc = b.Value("_id", w.id).AppendElements(doc).Finish()
	res, err := s.client.InsertOne(ctx, w.ns, doc, client.InsertOneOptions{
		Common: opt.Common, BypassDocumentValidation: opt.BypassDocumentValidation,
	})
	switch {
	case err == nil && !res.Acknowledged:
		return nil, errUnacknowledged
	case err != nil:
		return nil, s.taken(ctx, r, w, err)
	}
	message, err := r.Encoding.Document(doc)
	if err != nil {
		return nil, err
	}
	return &mooringv1.PutDocumentResponse{
		Document: message, Etag: etagUnless(serverSets(doc), doc), Created: true,
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}

// serverSets reports whether the server changes a document that it inserts: it sets a timestamp of
// zero at the top level.
func serverSets(doc bson.Raw) bool {
	for _, v := range doc.All() {
		if t, increment, ok := v.Timestamp(); ok && t == 0 && increment == 0 {
			return true
		}
	}
	return false
}

// taken returns the error of an insert that has failed with err: errExists if there is a document
// with its _id. Servers before 4.4 say only in words which index has the key, and others not even
// that: then taken looks for the document.
func (s *Server) taken(
	ctx context.Context, r *request.Reader, w *writing, err error,
) error {
	failed, ok := errors.AsType[*mongoerr.WriteException](err)
	if !ok || len(failed.WriteErrors) == 0 {
		return err
	}
	first := failed.WriteErrors[0]
	if first.Code != 11000 && first.Code != 11001 { // DuplicateKey
		return err
	}
	v, _ := first.Raw.Lookup("keyPattern")
	keys, isNamed := v.Document()
	isID := keys.FirstKey() == "_id" && keys.Len() == 1
	if !isNamed {
		isNamed = strings.Contains(first.Message, " index: ")
		isID = strings.Contains(first.Message+" ", " index: _id_ ")
	}
	if !isNamed {
		_, isID, _ = s.client.FindOne(ctx, w.ns, w.reading(r, withID(w.id)))
	}
	if isID {
		return errExists
	}
	return err
}

// PatchDocument changes the document.
func (s *Server) PatchDocument(
	ctx context.Context, req *mooringv1.PatchDocumentRequest,
) (*mooringv1.PatchDocumentResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	opt := changeOptions.Read(r, req)
	w := newWriting(r, req, &opt.Common)
	update := r.Update("update", req.GetUpdate())
	if err := r.Err(); err != nil {
		return nil, err
	}
	var err error
	filter := bson.Raw(nil)
	if filter, opt.Collation, err = s.conditions(ctx, r, w); err != nil {
		return nil, err
	}
	opt.ReturnDocument = client.ReturnAfter
	res, err := compared(&opt.Collation, func() (client.FindOneAndResult, error) {
		return s.client.FindOneAndUpdate(ctx, w.ns, filter, update, opt)
	})
	if err = s.done(ctx, w, err, res); err != nil {
		return nil, err
	}
	message, err := r.Answer(req, res, opt.Projection)
	if err != nil {
		return nil, err
	}
	return &mooringv1.PatchDocumentResponse{
		Document: message, Etag: etagUnless(opt.Projection != nil, res.Document),
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}

// DeleteDocument deletes the document.
func (s *Server) DeleteDocument(
	ctx context.Context, req *mooringv1.DeleteDocumentRequest,
) (*mooringv1.DeleteDocumentResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	opt := deleteOptions.Read(r, req)
	w := newWriting(r, req, &opt.Common)
	if err := r.Err(); err != nil {
		return nil, err
	}
	var err error
	filter := bson.Raw(nil)
	if filter, opt.Collation, err = s.conditions(ctx, r, w); err != nil {
		return nil, err
	}
	res, err := compared(&opt.Collation, func() (client.DeleteResult, error) {
		return s.client.DeleteOne(ctx, w.ns, filter, opt)
	})
	switch {
	case err != nil:
		return nil, w.explained(err)
	case !res.Acknowledged:
		return nil, errUnacknowledged
	case res.DeletedCount == 0:
		return nil, s.unmatched(ctx, w)
	}
	return &mooringv1.DeleteDocumentResponse{
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}

// change lists what every request that changes a document has.
type change interface {
	target
	GetFilter() *mooringv1.Document
}

// newWriting reads what all changes have in common.
func newWriting(r *request.Reader, req change, common *client.Common) *writing {
	w := &writing{ns: namespace(req), id: readID(r, req)}
	w.filter = r.Document("filter", req.GetFilter())
	if conditional, ok := req.(interface{ GetIfMatch() []string }); ok {
		w.condition = readPrecondition(r, conditional.GetIfMatch())
	}
	if c := common.WriteConcern; c != nil && c.Nodes != nil && *c.Nodes == 0 {
		r.Refuse("writeConcern.w", "is 0, and the outcome of this call would not be known")
	}
	common.RunOn = true
	w.common = *common
	return w
}

// withoutID returns a document without its _id, which must be the given one if it is there. The
// server keeps the _id that a document has, whose type can be another number's.
func withoutID(r *request.Reader, id bson.Value, doc bson.Raw) bson.Raw {
	own, ok := doc.Lookup("_id")
	if !ok || r.Err() != nil {
		return doc
	}
	if !sameID(own, id) {
		r.Refuse("replacement._id", "differs from that of the resource")
	}
	return bson.Without(doc, "_id")
}

// sameID reports whether two ids are the same to a server.
func sameID(a, b bson.Value) bool {
	n, isNumber := a.AsInt64()
	m, isNumberToo := b.AsInt64()
	return a.Equal(b) || isNumber && isNumberToo && n == m
}

// done returns the error of a change that is made: its own, or that no document was found.
func (s *Server) done(
	ctx context.Context, w *writing, err error, res client.FindOneAndResult,
) error {
	switch {
	case err != nil:
		return w.explained(err)
	case !res.Acknowledged:
		return errUnacknowledged
	case res.Document == nil:
		return s.unmatched(ctx, w)
	}
	return nil
}

// errUnacknowledged is the error of a write where the deployment's own write concern is 0.
var errUnacknowledged = &rpcerr.Error{
	Reason: rpcerr.WriteOutcomeUnknown,
	Message: "the write was sent, but its outcome is unknown: the deployment's write " +
		"concern is w: 0",
}
