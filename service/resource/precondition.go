package resource

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// etagBytes is the number of bytes of the digest that an etag has.
const etagBytes = 18

// etag returns the etag of a document: a digest of its BSON.
func etag(doc bson.Raw) string {
	sum := sha256.Sum256(doc)
	return base64.RawURLEncoding.EncodeToString(sum[:etagBytes])
}

// etagUnless returns the etag of a document, nil if partial says that it is not the whole document.
func etagUnless(partial bool, doc bson.Raw) *string {
	if partial {
		return nil
	}
	return new(etag(doc))
}

// precondition holds what a request demands of the document that it changes. The zero value demands
// nothing.
type precondition struct {
	exists bool     // there is one
	etags  []string // it has one of these; empty: any
}

// readPrecondition reads if_match.
func readPrecondition(r *request.Reader, tags []string) precondition {
	p := precondition{exists: len(tags) > 0}
	for _, tag := range tags {
		switch {
		case tag == "":
			r.Refuse("ifMatch", "has an empty etag")
		case tag != "*":
			p.etags = append(p.etags, tag)
		case len(tags) > 1:
			r.Refuse("ifMatch", "has * beside an etag")
		}
	}
	return p
}

// missing returns the error of a call whose document was not found.
func (p precondition) missing() error {
	switch {
	case len(p.etags) > 0:
		return errChanged
	case p.exists:
		return errMissing
	}
	return errNotFound
}

// writing describes a change of one document.
type writing struct {
	ns     client.Namespace
	common client.Common // of the write
	filter bson.Raw      // without the precondition
	// read is how the document was read that has one of the etags; nil: none has.
	read      *client.FindOptions
	id        bson.Value
	condition precondition
}

// simple is the collation that compares texts byte by byte, whatever the collection's is.
var simple = bson.NewBuilder(nil).String("locale", "simple").Finish()

// conditions returns the filter and the collation of the write's command. If the precondition has
// etags, conditions reads the document and finds out whether it has one of them: then the filter
// demands that the document is still the same. It has the document's own _id, since the read finds
// the document by the collection's collation.
//
// A repeated exactly-once call must send its command again, even if the document has changed by
// the first one: the server knows the command and returns its result. Its filter matches nothing,
// in case that the server does not know it.
func (s *Server) conditions(
	ctx context.Context, r *request.Reader, w *writing,
) (filter, collation bson.Raw, err error) {
	if len(w.condition.etags) == 0 {
		return withID(w.id, w.filter), nil, nil
	}
	read := w.reading(r, withID(w.id, w.filter))
	doc, found, err := s.client.FindOne(ctx, w.ns, read)
	id, ok := doc.Lookup("_id")
	if !ok {
		id = w.id
	}
	switch {
	case err != nil:
		return nil, nil, err
	case found && slices.Contains(w.condition.etags, etag(doc)):
		w.read = &read
	case r.IsExact():
		doc = bson.NewBuilder(nil).Finish()
	default:
		return nil, nil, errChanged
	}
	return withID(id, w.filter, isDocument(doc)), simple, nil
}

// reading returns the options of a read that sees what a write sees: not the copy of a secondary,
// and not only what a majority has.
func (w *writing) reading(r *request.Reader, filter bson.Raw) client.FindOptions {
	read := client.FindOptions{
		Filter: filter,
		Common: client.Common{Caller: w.common.Caller, Comment: w.common.Comment},
	}
	if !r.IsExact() {
		read.Session = w.common.Session
	}
	if r.Transaction == nil {
		read.ReadPreference = &selection.ReadPreference{Mode: selection.Primary}
		read.ReadConcern = &client.ReadConcern{Level: "local"}
	}
	return read
}

// compared runs a write that compares texts with a collation. A server without collations compares
// byte by byte anyway: compared runs the write without one then.
func compared[R any](collation *bson.Raw, write func() (R, error)) (R, error) {
	res, err := write()
	if *collation == nil || err == nil || !isNotImplemented(err) ||
		!strings.Contains(err.Error(), "collation") {
		return res, err
	}
	*collation = nil
	return write()
}

// isNotImplemented reports whether a server does not know a part of a command.
func isNotImplemented(err error) bool {
	code := mongoerr.Code(err)
	return code == 238 || code == 115 // NotImplemented, CommandNotSupported
}

// isDocument returns a filter that compares the whole document.
func isDocument(doc bson.Raw) bson.Raw {
	b := bson.NewBuilder(make([]byte, 0, len(doc)+64))
	b.OpenDocument("$expr").OpenArray("$eq").String("", "$$ROOT")
	b.OpenDocument("").Document("$literal", doc).Close()
	return b.Close().Close().Finish()
}

// unmatched returns the error of a write that has found no document. If the document still
// has the etag, the server has compared it wrongly: some take $expr and do not evaluate it.
func (s *Server) unmatched(ctx context.Context, w *writing) error {
	if w.read == nil {
		return w.condition.missing()
	}
	doc, found, err := s.client.FindOne(ctx, w.ns, *w.read)
	if err == nil && found && slices.Contains(w.condition.etags, etag(doc)) {
		return errIncomparable
	}
	return w.condition.missing()
}

// errIncomparable is the error of a deployment that cannot do what an etag needs.
var errIncomparable = &rpcerr.Error{
	Reason: rpcerr.InvalidArgument, Field: "ifMatch",
	Message: "the deployment cannot compare a whole document ($expr): send no etag",
}

// explained returns the error of a write that has failed. It says so where the server cannot
// compare whole documents.
func (w *writing) explained(err error) error {
	if text := err.Error(); len(w.condition.etags) == 0 || !isNotImplemented(err) &&
		!strings.Contains(text, "$expr") && !strings.Contains(text, "$$ROOT") {
		return err
	}
	incomparable := *errIncomparable
	incomparable.Err = err
	return &incomparable
}
