package rest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/payload"
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
	unread := c.sendBody(stream, first)
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
	case unread != nil:
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
	body := bufio.NewReaderSize(&c.x.Body, 64<<10)
	next := nextLine
	kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if kind == media.BSON.String() {
		next = nextBSON
	}
	for size, done := 0, false; !done; {
		doc, n, err := next(body, int(c.x.Body.MaxBytes()))
		switch {
		case errors.Is(err, io.EOF):
			done = true
		case err != nil:
			if _, ours := errors.AsType[*rpcerr.Error](err); ours {
				return err
			}
			return c.x.Body.Unread(err)
		default:
			message.Documents, size = append(message.Documents, doc), size+n+perDocument
		}
		if size < importChunk && !done {
			continue
		}
		if stream.SendMsg(message) != nil {
			return nil // the handler has ended, and RecvMsg says why
		}
		message, size = &mooringv1.ImportRequest{}, 0
	}
	return nil
}

// nextLine cuts the next line off that is not empty. n is its length.
func nextLine(body *bufio.Reader, most int) (doc *mooringv1.Document, n int, err error) {
	for {
		var line []byte
		part, err := body.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			if line = append(line, part...); len(line) > most {
				return nil, 0, refuse(rpcerr.TooLarge, "a line is longer than "+
					strconv.Itoa(most)+" bytes")
			}
			part, err = body.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		line = bytes.TrimSpace(append(line, part...))
		if len(line) > 0 {
			text := &mooringv1.Document_Json{Json: string(line)}
			return &mooringv1.Document{Encoding: text}, len(line), nil
		}
		if err != nil {
			return nil, 0, io.EOF
		}
	}
}

// nextBSON cuts the next document off. If the body ends within it, or its length is none, it
// returns the bytes that are there, and the service refuses them by their index.
func nextBSON(body *bufio.Reader, _ int) (doc *mooringv1.Document, n int, err error) {
	const lengthBytes, least = 4, 5
	head, err := body.Peek(lengthBytes)
	size := lengthBytes
	if err == nil {
		size = int(int32(binary.LittleEndian.Uint32(head)))
	}
	if size < least || size > int(payload.MaxDocument) {
		size = len(head)
	}
	if err != nil && (!errors.Is(err, io.EOF) || size == 0) {
		return nil, 0, err
	}
	raw := make([]byte, size)
	n, err = io.ReadFull(body, raw)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, 0, err
	}
	return payload.NewDocument(raw[:n]), n, nil
}
