package rest

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/urlquery"
)

// A GET of documents takes conditions on fields beside its parameters: status=paid&total=gt.10.
// They become the filter, sort and projection of the find that any other client could send.

const (
	countParam = "count"
	countExact = "exact"
)

// takeConditions has the route take conditions, if it is the GET of a find.
func (r *route) takeConditions() {
	_, isFind := r.requestType.Zero().Interface().(*mooringv1.FindRequest)
	_, isStream := r.requestType.Zero().Interface().(*mooringv1.StreamFindRequest)
	if r.method != http.MethodGet || !isFind && !isStream {
		return
	}
	r.fields = true
	r.own = append([]string{urlquery.Order, urlquery.Select, countParam}, r.own...)
}

// bodyNames lists the fields of the request that a query cannot have.
func (r *route) bodyNames() []string {
	var names []string
	for name := range r.request.byName {
		if !r.hasParam(name) {
			names = append(names, name)
		}
	}
	return names
}

// readConditions reads what the query of a find says of fields. The other parameters are checked.
func (c *call) readConditions(r *route) (err error) {
	if !r.fields || c.query == nil {
		return nil
	}
	c.find, err = urlquery.Parse(c.query, r.queryNames(), r.bodyNames())
	if wrong, ok := errors.AsType[*urlquery.Error](err); ok {
		return refuseField(wrong.Param, wrong.Problem)
	}
	for _, both := range [...]struct{ short, long string }{
		{urlquery.Order, "sort"}, {urlquery.Select, "projection"},
	} {
		if c.query.Has(both.short) && c.query.Has(both.long) {
			return refuseField(both.short, "sets the same as "+both.long+": send only one of them")
		}
	}
	switch text := c.query.Get(countParam); {
	case !c.query.Has(countParam):
	case text != countExact:
		return refuseField(countParam, quoted(text)+" is not "+countExact)
	case r.stream:
		return refuseField(countParam, "is only for pages, not for streams")
	}
	return nil
}

// applyConditions sets the fields of a find that the query's conditions are. A filter counts, too.
func (c *call) applyConditions(m message) error {
	for _, part := range [...]struct {
		name string
		doc  bson.Raw
	}{{"filter", c.find.Filter}, {"sort", c.find.Sort}, {"projection", c.find.Projection}} {
		if part.doc == nil {
			continue
		}
		f, doc := c.route.request.byName[part.name], part.doc
		if m.Has(f.fd) {
			given, _ := m.Get(f.fd).Message().Interface().(*mooringv1.Document)
			doc = bson.NewBuilder(nil).OpenArray("$and").
				Document("", given.GetBson()).Document("", doc).Close().Finish()
		}
		m.Set(f.fd, protoreflect.ValueOfMessage(payload.NewDocument(doc).ProtoReflect()))
	}
	return nil
}

// count counts the documents of a find, without its limit, in a call of its own.
func (c *call) count(ctx context.Context, request proto.Message) error {
	find, ok := request.(*mooringv1.FindRequest)
	if !ok {
		panic("bug: rest: a count of something else")
	}
	reply, err := c.x.Conn().Call(c.incoming(ctx),
		mooringv1.DocumentService_CountDocuments_FullMethodName, &mooringv1.CountDocumentsRequest{
			Database: find.GetDatabase(), Collection: find.GetCollection(),
			Session: find.Session, Transaction: find.Transaction,
			Comment: find.GetComment(), ReadPreference: find.GetReadPreference(),
			ReadConcern: find.GetReadConcern(), MaxTimeMs: find.MaxTimeMs,
			Collation: find.GetCollation(), Hint: find.GetHint(), Filter: find.GetFilter(),
		})
	c.metadata = reply.Header
	if err != nil {
		return err
	}
	counted, ok := reply.Message.(*mooringv1.CountDocumentsResponse)
	if !ok {
		return refuse(rpcerr.Internal, "bug: a count has another response")
	}
	c.total = strconv.FormatInt(counted.GetCount(), 10)
	return nil
}
