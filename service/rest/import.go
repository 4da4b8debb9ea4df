package rest

import (
	"context"
	"errors"
	"io"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// A client stream has no annotation, because its body is not a message: this file serves Import. It
// cuts the body into documents and passes them on as they are. The service reads and checks them.

const (
	importPath = "/v1/databases/{database}/collections/{collection}/documents:import"
	// importChunk is the number of bytes of a message to the service, in which a document counts
	// perDocument bytes more than it has. Until the service has taken a message, no more than the
	// next one is read.
	importChunk = 256 << 10
	perDocument = 128
	// importCost is charged for what an import has always: the buffer of the body, and two messages
	// of small documents.
	importCost = 3 * importChunk
)

// importParams lists the query parameters of an import, which are the options.
var importParams = map[string]queryParam{
	"ordered":                  asJSON,
	"bypassDocumentValidation": asJSON,
	"returnPartialSuccess":     asJSON,
	"writeConcern":             asJSON,
	"comment":                  asString,
}

// importRoute returns the route of Import.
func importRoute(plans planner) *route {
	r := newRoute(plans, methodOf(mooringv1.File_mooring_v1_document_service_proto,
		mooringv1.DocumentService_Import_FullMethodName))
	r.method, r.path, r.imports = http.MethodPost, importPath, true
	r.params, r.own, r.bodies, r.inflates = importParams, rowParams, importBodies, true
	r.build = func(c *call) (message, error) {
		m := r.requestType.New()
		c.setPath(m)
		return m, nil
	}
	return r
}

// importBodies lists the types of the body: lines of JSON, BSON documents, an array of JSON, and
// rows.
var importBodies = []string{
	media.NDJSON.String(), media.BSON.String(), media.JSON.String(), media.EJSON.String(),
	media.CSV.String(),
}

// runImport passes the documents of the body to the service, and writes the response.
func (c *call) runImport(ctx context.Context, request proto.Message) error {
	first, ok := request.(*mooringv1.ImportRequest)
	if !ok {
		panic("bug: rest: an import of something else")
	}
	in, done, err := c.openImport() //nolint:contextcheck // the request's memory has its context
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.x.Conn().NewStream(c.incoming(ctx),
		&grpc.StreamDesc{ClientStreams: true}, c.route.rpc)
	if err != nil {
		return err
	}
	stop := c.x.Body.While(ctx, stream.Context())
	sent, unread := c.sendBody(stream, first, in) //nolint:contextcheck // the stream has it
	ended := stop()                               // the handler has, and RecvMsg says why
	content, malformed := errors.AsType[*contentError](unread)
	if unread != nil && !malformed {
		cancel()
	} else {
		_ = stream.CloseSend() // never fails
	}
	response := &mooringv1.ImportResponse{}
	err = stream.RecvMsg(response)
	if err == nil {
		// Nothing else comes; the handler has ended then.
		_ = stream.RecvMsg(&mooringv1.ImportResponse{})
	}
	if err != nil || malformed {
		c.x.Response.Header().Set("Connection", "close") // the rest of the body is not read
	}
	switch header, _ := stream.Header(); {
	case unread != nil && !malformed && !ended:
		return rpcerr.BrokenOff(unread, sent, err)
	case err != nil:
		return err
	case malformed:
		return partial(content.err, response)
	default:
		c.metadata = header
		return c.respond(ctx, first, response)
	}
}

// partial returns the error of an import that has ended early, with what was done.
func partial(err error, response *mooringv1.ImportResponse) error {
	done := rpcerr.Result{InsertedCount: response.InsertedCount, Response: response}
	return done.Before(err)
}

// sendBody sends the documents of the body, the first ones with the options, and returns whether it
// has sent any. It returns no error at the end of the body, and if the service takes no more.
// Otherwise it returns why the body cannot be read: a *contentError if the documents before it are
// sent.
func (c *call) sendBody(
	stream grpc.ClientStream, message *mooringv1.ImportRequest, in *cutter,
) (sent bool, err error) {
	lent := int64(0)
	for size, end := 0, error(nil); end == nil; {
		doc, n, err := c.cut(in)
		_, malformed := errors.AsType[*contentError](err)
		switch {
		case errors.Is(err, io.EOF), malformed && in.read > 0:
			end = err
		case err != nil:
			return sent, c.uncut(err)
		default:
			message.Documents, size = append(message.Documents, doc), size+n+perDocument
		}
		if size < importChunk && end == nil {
			continue
		}
		if stream.SendMsg(message) != nil {
			return sent, nil // the handler has ended, and RecvMsg says why
		}
		if malformed {
			return true, err
		}
		c.x.Memory.Release(lent) // the service has used the message before
		lent, in.charged, sent = in.charged, 0, true
		message, size = &mooringv1.ImportRequest{}, 0
	}
	return sent, nil
}

// openImport charges the request with what an import has always, and returns a cutter of the body,
// of which nothing is read yet, and what frees it.
func (c *call) openImport() (in *cutter, done func(), err error) {
	if err := c.x.Memory.Charge(importCost); err != nil {
		return nil, nil, err
	}
	body, done, err := c.openBody()
	if err != nil {
		return nil, nil, err
	}
	if in, err = newCutter(c, body); err != nil {
		done()
		return nil, nil, err
	}
	return in, done, nil
}

// openBody returns a reader of the documents, which inflates a body that is compressed, and what
// frees it.
func (c *call) openBody() (body io.Reader, done func(), err error) {
	in, _ := coding.Of(c.r.Header.Get("Content-Encoding")) // checked before
	if in == coding.Identity {
		return &c.x.Body, func() {}, nil
	}
	if err := c.x.Memory.Charge(in.ReaderCost()); err != nil {
		return nil, nil, err
	}
	z := in.NewReader(&c.x.Body)
	return &inflated{z, &c.x.Memory}, z.Close, nil
}

// inflated reads a body that is compressed. What it inflates is work, which may be much more than
// the client sends.
type inflated struct {
	z      *coding.Reader
	memory *front.Memory
}

func (in *inflated) Read(p []byte) (int, error) {
	n, err := in.z.Read(p)
	_ = in.memory.Do(n) // as Work
	return n, err
}

// cut cuts the next document off.
func (c *call) cut(in *cutter) (doc *mooringv1.Document, n int, err error) {
	err = c.x.Work(0, func() error {
		doc, n, err = in.next()
		return err
	})
	if err == nil {
		in.read++
	}
	return doc, n, err
}

// uncut returns the error of a body that could not be cut to its end.
func (c *call) uncut(err error) error {
	ours, isOurs := errors.AsType[*rpcerr.Error](err)
	switch {
	case errors.Is(err, coding.ErrMalformed):
		return refuse(rpcerr.InvalidArgument, "the body is not what Content-Encoding says: "+
			err.Error())
	case errors.Is(err, coding.ErrTooLarge):
		return refuse(rpcerr.TooLarge, "the body is compressed with a window of more than 8 MiB")
	case isOurs:
		return ours
	}
	return c.x.Body.Unread(err)
}
