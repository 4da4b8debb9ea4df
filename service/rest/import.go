package rest

import (
	"context"
	"errors"
	"io"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// A client stream has no annotation, because its body is no message: this file serves Import. It
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
	r.params, r.bodies = importParams, importBodies
	r.build = func(c *call) (message, error) {
		m := r.requestType.New()
		c.setPath(m)
		return m, nil
	}
	return r
}

// importBodies lists the types of the body: lines of JSON, or BSON documents.
var importBodies = []string{media.NDJSON.String(), media.BSON.String()}

// runImport passes the documents of the body to the service, and writes the response.
func (c *call) runImport(ctx context.Context, request proto.Message) error {
	first, ok := request.(*mooringv1.ImportRequest)
	if !ok {
		panic("bug: rest: an import of something else")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.x.Conn().NewStream(c.incoming(ctx),
		&grpc.StreamDesc{ClientStreams: true}, c.route.rpc)
	if err != nil {
		return err
	}
	stop := c.x.Body.While(ctx, stream.Context())
	unread := c.sendBody(stream, first) //nolint:contextcheck // the stream has it
	ended := stop()                     // the handler has, and RecvMsg says why
	if unread != nil {
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
	switch header, _ := stream.Header(); {
	case unread != nil && !ended:
		return unread
	case err != nil:
		c.x.Response.Header().Set("Connection", "close") // the rest of the body is not read
		return err
	default:
		c.metadata = header
		return c.respond(ctx, response)
	}
}

// sendBody sends the documents of the body, the first ones with the options. It returns nil at the
// end of the body, and if the service takes no more. Otherwise it returns why the body cannot be
// read.
func (c *call) sendBody(stream grpc.ClientStream, message *mooringv1.ImportRequest) error {
	if err := c.x.Memory.Charge(importCost); err != nil {
		return err
	}
	in, lent, sent := newCutter(c), int64(0), false
	for size, done := 0, false; !done; {
		doc, n, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			done = true
		case err != nil:
			return c.uncut(err, sent)
		default:
			message.Documents, size = append(message.Documents, doc), size+n+perDocument
		}
		if size < importChunk && !done {
			continue
		}
		if stream.SendMsg(message) != nil {
			return nil // the handler has ended, and RecvMsg says why
		}
		c.x.Memory.Release(lent) // the service has used the message before
		lent, in.charged, sent = in.charged, 0, true
		message, size = &mooringv1.ImportRequest{}, 0
	}
	return nil
}

// uncut returns the error of a body that could not be cut to its end. If some of its documents were
// sent, the error does not say that nothing was done.
func (c *call) uncut(err error, sent bool) error {
	if _, ours := errors.AsType[*rpcerr.Error](err); !ours {
		err = c.x.Body.Unread(err)
	}
	if sent {
		return mongoerr.WithDelivery(err, mongoerr.Executed)
	}
	return err
}
