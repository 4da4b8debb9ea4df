package metrics_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/service/payload"
)

// unknown is the label of what has no series of its own.
const unknown = "_OTHER"

// kind describes a kind of request, and what it is to be counted as.
type kind struct {
	name  string
	send  func(*request) error
	calls []call // none: it is refused before it is a call
	// reason and code are those of its error; no reason: it succeeds.
	reason string
	code   codes.Code
}

// call is one call that a request makes.
type call struct {
	method string // such as DocumentService/Find
	stream bool
	code   codes.Code
}

// request is one request of a random principal about a random collection.
type request struct {
	*crowd
	ctx                              context.Context //nolint:containedctx // lives as long as this value
	database, collection, credential string
}

const jsonType = "application/json"

func one(method string) []call    { return []call{{method: method}} }
func stream(method string) []call { return []call{{method: method, stream: true}} }

// failed returns a call that fails with a code.
func failed(method string, code codes.Code) []call { return []call{{method: method, code: code}} }

// kinds lists all kinds.
var kinds = []kind{
	{name: "REST find", send: rest("find", "{}", http.StatusOK), calls: one("DocumentService/Find")},
	{
		name: "REST insertOne", calls: one("DocumentService/InsertOne"),
		send: rest("insertOne", `{"document": {"a": 1}}`, http.StatusOK),
	},
	{
		name: "REST bad query", calls: failed("DocumentService/Find", codes.InvalidArgument),
		reason: "BadValue", code: codes.InvalidArgument,
		send: rest("find", `{"filter": {"$nonsense": 1}}`, http.StatusBadRequest),
	},
	{
		name: "REST refused by the policy", calls: failed("DocumentService/Find", codes.PermissionDenied),
		reason: "PolicyRefused", code: codes.PermissionDenied,
		send: func(r *request) error {
			r.database = "secret"
			return rest("find", "{}", http.StatusForbidden)(r)
		},
	},
	{
		name: "REST without a credential", reason: "Unauthenticated", code: codes.Unauthenticated,
		send: func(r *request) error {
			r.credential = ""
			return rest("find", "{}", http.StatusUnauthorized)(r)
		},
	},
	{
		name: "REST no JSON", reason: "MalformedDocument", code: codes.InvalidArgument,
		send: rest("find", "{", http.StatusBadRequest),
	},
	{
		name: "REST unknown path", reason: "RouteNotFound", code: codes.NotFound,
		send: func(r *request) error {
			_, err := r.post(http.StatusNotFound, "/v1/"+r.collection, jsonType, nil)
			return err
		},
	},
	{
		name: "REST stream", calls: stream("DocumentService/StreamFind"),
		send: rest("streamFind", "{}", http.StatusOK),
	},
	{
		name: "REST cursor", send: cursor,
		calls: []call{{method: "DocumentService/Find"}, {method: "CursorService/CloseCursor"}},
	},
	{name: "Data API", send: dataAPI, calls: one("DocumentService/FindOne")},
	{name: "Connect", send: connect, calls: one("DocumentService/EstimatedDocumentCount")},
	{name: "gRPC-Web", send: grpcWeb, calls: one("DocumentService/FindOne")},
	{name: "gRPC findOne", send: findOne(codes.OK), calls: one("DocumentService/FindOne")},
	{
		name: "gRPC without a credential", reason: "Unauthenticated", code: codes.Unauthenticated,
		send: func(r *request) error {
			r.credential = ""
			return findOne(codes.Unauthenticated)(r)
		},
	},
	{
		name: "gRPC unknown command", calls: failed("CommandService/RunCommand", codes.Unimplemented),
		reason: "CommandNotFound", code: codes.Unimplemented, send: runCommand,
	},
	{
		name: "gRPC unknown method", send: unknownMethod,
		calls:  []call{{method: unknown, stream: true, code: codes.Unimplemented}},
		reason: "Unimplemented", code: codes.Unimplemented,
	},
	{name: "gRPC stream", send: streamFind, calls: stream("DocumentService/StreamFind")},
	{
		name: "gRPC transaction", send: transaction,
		calls: []call{{method: "TransactionService/Begin"}, {method: "TransactionService/Abort"}},
	},
}

// rest returns what sends a call about the collection to the REST port.
func rest(verb, body string, want int) func(*request) error {
	return func(r *request) error {
		_, err := r.post(want, gatewaytest.Documents(r.database, r.collection, verb), jsonType,
			[]byte(body))
		return err
	}
}

func cursor(r *request) error {
	r.database, r.collection = "many", "documents"
	page, err := r.post(http.StatusOK, gatewaytest.Documents(r.database, r.collection, "find"),
		jsonType,
		[]byte(`{"batchSize": 1}`))
	if err != nil {
		return err
	}
	var opened struct{ Cursor string }
	if err := json.Unmarshal(page, &opened); err != nil || opened.Cursor == "" {
		return fmt.Errorf("no cursor: %s, %w", page, err)
	}
	_, err = r.post(http.StatusOK, "/v1/cursors:close", jsonType,
		[]byte(`{"cursor": "`+opened.Cursor+`"}`))
	return err
}

func dataAPI(r *request) error {
	_, err := r.post(http.StatusOK, "/app/data-abcde/endpoint/data/v1/action/findOne", jsonType,
		fmt.Appendf(nil, `{"dataSource": "cluster", "database": %q, "collection": %q}`, r.database,
			r.collection))
	return err
}

func connect(r *request) error {
	_, err := r.post(http.StatusOK, "/mooring.v1.DocumentService/EstimatedDocumentCount", jsonType,
		fmt.Appendf(nil, `{"database": %q, "collection": %q}`, r.database, r.collection))
	return err
}

func grpcWeb(r *request) error {
	message, err := proto.Marshal(&mooringv1.FindOneRequest{
		Database: r.database, Collection: r.collection,
	})
	if err != nil {
		return err
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	b, err := r.post(http.StatusOK, "/mooring.v1.DocumentService/FindOne",
		"application/grpc-web+proto",
		append(frame, message...))
	if err == nil && !bytes.Contains(b, []byte("grpc-status: 0")) {
		err = fmt.Errorf("the trailer is not that of a success: %q", b)
	}
	return err
}

// authorized returns the context of a gRPC call with the credential.
func (r *request) authorized() context.Context {
	if r.credential == "" {
		return r.ctx
	}
	return metadata.AppendToOutgoingContext(r.ctx, "authorization", r.credential)
}

// want returns nil if err has the code.
func want(code codes.Code, err error) error {
	if got := status.Code(err); got != code {
		return fmt.Errorf("%v %w, want %v", got, err, code)
	}
	return nil
}

func findOne(code codes.Code) func(*request) error {
	return func(r *request) error {
		_, err := mooringv1.NewDocumentServiceClient(r.conn).FindOne(r.authorized(),
			&mooringv1.FindOneRequest{Database: r.database, Collection: r.collection})
		return want(code, err)
	}
}

// numCommands is how many commands that no server knows are sent.
const numCommands = 100

// commands returns their names.
func commands() (names []string) {
	for i := range numCommands {
		names = append(names, fmt.Sprintf("command%d", i))
	}
	return names
}

func runCommand(r *request) error {
	name := commands()[rand.IntN(numCommands)]
	_, err := mooringv1.NewCommandServiceClient(r.conn).RunCommand(r.authorized(),
		&mooringv1.RunCommandRequest{
			Database: r.database,
			Command:  payload.NewDocument(bson.NewBuilder(nil).Int32(name, 1).Finish()),
		})
	return want(codes.Unimplemented, err)
}

func unknownMethod(r *request) error {
	err := r.conn.Invoke(r.authorized(), fmt.Sprintf("/a.b/M%x", rand.Uint64()), &emptypb.Empty{},
		&emptypb.Empty{})
	return want(codes.Unimplemented, err)
}

func streamFind(r *request) error {
	s, err := mooringv1.NewDocumentServiceClient(r.conn).StreamFind(r.authorized(),
		&mooringv1.StreamFindRequest{Database: r.database, Collection: r.collection})
	for err == nil {
		_, err = s.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func transaction(r *request) error {
	c := mooringv1.NewTransactionServiceClient(r.conn)
	begun, err := c.Begin(r.authorized(), &mooringv1.TransactionServiceBeginRequest{})
	if err != nil {
		return err
	}
	_, err = c.Abort(r.authorized(),
		&mooringv1.TransactionServiceAbortRequest{Transaction: new(begun.GetTransaction())})
	return err
}
