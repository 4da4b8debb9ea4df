package document

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

const (
	// importBatch is the number of bytes of documents that make a batch, in which a document counts
	// perDocument bytes more than it has. The documents of a message are never split, so a batch
	// may be larger.
	importBatch = 1 << 20
	perDocument = 128
	// importCost is charged for what an import has always: the documents of a batch, and the
	// message that they become.
	importCost = 2 * importBatch
	// maxImportErrors is how many write errors of an import are kept.
	maxImportErrors = 1000
)

// Import inserts the documents of a stream. It holds one batch, and receives no message while a
// batch is inserted.
func (s *Server) Import(
	ss grpc.ClientStreamingServer[mooringv1.ImportRequest, mooringv1.ImportResponse],
) error {
	first, err := ss.Recv()
	if errors.Is(err, io.EOF) {
		return &rpcerr.Error{Reason: rpcerr.InvalidArgument, Message: "the stream has no message"}
	}
	if err != nil {
		return err
	}
	r := request.Read(ss.Context(), first, first.Statement)
	account := admission.From(ss.Context())
	if err := account.Grow(ss.Context(), importCost); err != nil {
		return err
	}
	account.Vacate(importBatch) // for the message
	im := importing{
		server: s, stream: ss, reader: r, ns: namespace(first),
		opt: insertManyOptions.Read(r, first),
	}
	im.opt.RunOn, im.opt.Timeout = true, batchTimeout(ss.Context(), r.Timeout)
	if err := r.Err(); err != nil {
		return err
	}
	err = im.run(first)
	_, writesFailed := errors.AsType[*mongoerr.WriteException](err)
	if err != nil && !(writesFailed && first.GetReturnPartialSuccess()) {
		return im.failure(err)
	}
	return ss.SendAndClose(im.response(r.Encoding))
}

// batchTimeout returns the limit of one batch, nil for none. The deadline of the call limits all
// batches together.
func batchTimeout(ctx context.Context, each time.Duration) *time.Duration {
	if _, timed := ctx.Deadline(); timed || each == 0 {
		return nil
	}
	return &each
}

// importing holds the state of one Import.
type importing struct {
	server *Server
	stream grpc.ClientStreamingServer[mooringv1.ImportRequest, mooringv1.ImportResponse]
	reader *request.Reader
	ns     client.Namespace
	opt    client.InsertManyOptions

	batch []bson.Raw
	bytes int // of the batch, with perDocument
	// read is the number of documents so far, and sent of those that were passed on.
	read, sent int

	acknowledged bool
	inserted     int64
	failed       int64
	writeErrors  []mongoerr.WriteError // the first ones
	unconfirmed  *mongoerr.WriteConcernError
}

// run inserts the documents of all messages, of which the first is there. It returns the error that
// ends the import, or, if there are only write errors, these.
func (im *importing) run(message *mooringv1.ImportRequest) error {
	r := im.reader
	for {
		r.Each("documents", im.read, message.GetDocuments(), im.add)
		if r.Err() != nil {
			if err := im.flush(); err != nil {
				return err
			}
			return r.Err()
		}
		if im.bytes >= importBatch {
			if err := im.flush(); err != nil {
				return err
			}
		}
		next, err := im.stream.Recv()
		if errors.Is(err, io.EOF) {
			return im.end()
		}
		if err != nil {
			return err
		}
		if message = next; !isPlain(next) {
			r.Refuse("request", "only the first message of the stream has more than documents")
			return r.Err()
		}
	}
}

// isPlain reports whether a message has documents alone.
func isPlain(m *mooringv1.ImportRequest) bool {
	plain := len(m.ProtoReflect().GetUnknown()) == 0
	m.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		plain = plain && fd.Name() == "documents"
		return plain
	})
	return plain
}

// add adds a document to the batch.
func (im *importing) add(raw bson.Raw) {
	im.batch = append(im.batch, raw)
	im.bytes += len(raw) + perDocument
	im.read++
}

// end inserts the last batch, and returns the write errors of all.
func (im *importing) end() error {
	if im.read == 0 {
		return &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: "documents", Message: "is empty",
		}
	}
	if err := im.flush(); err != nil {
		return err
	}
	if len(im.writeErrors) > 0 {
		return &mongoerr.WriteException{WriteErrors: im.writeErrors}
	}
	return nil
}

// flush inserts the batch.
func (im *importing) flush() error {
	if len(im.batch) == 0 {
		return nil
	}
	batch := im.batch
	im.batch, im.bytes = nil, 0
	res, err := im.insert(batch)
	im.reader.Release()
	im.acknowledged = res.Acknowledged
	im.inserted += int64(len(res.InsertedIDs))
	im.failed += int64(len(res.WriteErrors))
	for _, w := range res.WriteErrors {
		if len(im.writeErrors) == maxImportErrors {
			break
		}
		w.Index += im.sent
		im.writeErrors = append(im.writeErrors, w)
	}
	if im.unconfirmed == nil {
		im.unconfirmed = firstOf(res.WriteConcernErrors)
	}
	im.sent += len(batch)
	failed, writesFailed := errors.AsType[*mongoerr.WriteException](err)
	switch {
	case err == nil:
		return nil
	case !writesFailed:
		return inImport(err, im.sent-len(batch))
	case im.opt.Ordered == nil || *im.opt.Ordered:
		return &mongoerr.WriteException{
			WriteErrors: im.writeErrors, WriteConcernError: failed.WriteConcernError,
			Labels: failed.Labels, Address: failed.Address, Reply: failed.Reply,
		}
	}
	return nil
}

// insert inserts a batch, in a place among the calls in flight.
func (im *importing) insert(batch []bson.Raw) (client.InsertManyResult, error) {
	ctx := im.stream.Context()
	account := admission.From(ctx)
	if err := account.EnterCommand(ctx, im.sent > 0); err != nil {
		return client.InsertManyResult{}, err
	}
	defer account.LeaveCommand()
	return im.server.cfg.Client.InsertMany(ctx, im.ns, batch, im.opt)
}

// inImport returns an error of core about a document of a batch as one about a document of the
// stream. The batch begins at the offset.
func inImport(err error, offset int) error {
	refused, ok := errors.AsType[*client.ArgumentError](err)
	if !ok {
		return err
	}
	list, index, _ := strings.Cut(refused.Argument, ".")
	n, bad := strconv.Atoi(index)
	if list != "documents" || bad != nil {
		return err
	}
	return &client.ArgumentError{
		Argument: "documents." + strconv.Itoa(offset+n), Problem: refused.Problem,
		TooLarge: refused.TooLarge,
	}
}

// failure returns the error of an import, with what was done.
func (im *importing) failure(err error) error {
	done := rpcerr.Result{
		InsertedCount: &im.inserted, WriteErrors: im.writeErrors, WriteConcernError: im.unconfirmed,
	}
	return done.Before(err)
}

func (im *importing) response(enc payload.Encoding) *mooringv1.ImportResponse {
	response := &mooringv1.ImportResponse{
		Acknowledged:      im.acknowledged,
		InsertedCount:     count(im.acknowledged, im.inserted),
		FailedCount:       count(im.acknowledged, im.failed),
		WriteConcernError: rpcerr.WriteConcernError(im.unconfirmed, enc),
	}
	for _, w := range im.writeErrors {
		response.WriteErrors = append(response.WriteErrors, rpcerr.WriteError(w, enc))
	}
	return response
}
