package rest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// fake implements the services that the REST handler calls. It answers what a test gives it, and
// records the requests. An unset answer is a panic.
type fake struct {
	mooringv1.UnsafeCommandServiceServer
	mooringv1.UnimplementedDocumentServiceServer
	mooringv1.UnimplementedCatalogServiceServer
	mooringv1.UnimplementedSessionServiceServer
	mooringv1.UnimplementedCursorServiceServer
	mooringv1.UnimplementedDeploymentServiceServer
	mooringv1.UnsafeChangeStreamServiceServer

	resources  *resources // nil: not in the test
	runCommand func(context.Context, *mooringv1.RunCommandRequest) (*mooringv1.RunCommandResponse,
		error)
	find      func(context.Context, *mooringv1.FindRequest) (*mooringv1.FindResponse, error)
	findOne   func(context.Context, *mooringv1.FindOneRequest) (*mooringv1.FindOneResponse, error)
	aggregate func(context.Context, *mooringv1.AggregateRequest) (*mooringv1.AggregateResponse,
		error)
	updateOne func(context.Context, *mooringv1.UpdateOneRequest) (*mooringv1.UpdateOneResponse,
		error)
	insertMany func(context.Context, *mooringv1.InsertManyRequest) (*mooringv1.InsertManyResponse,
		error)
	distinct func(context.Context, *mooringv1.DistinctRequest) (*mooringv1.DistinctResponse,
		error)
	count func(context.Context,
		*mooringv1.CountDocumentsRequest) (*mooringv1.CountDocumentsResponse, error)
	streamFind func(*mooringv1.StreamFindRequest,
		grpc.ServerStreamingServer[mooringv1.StreamFindResponse]) error
	close func(context.Context, *mooringv1.CloseCursorRequest) (*mooringv1.CloseCursorResponse,
		error)
	watch   func(grpc.ServerStreamingServer[mooringv1.WatchTopologyResponse]) error
	changes func(*mooringv1.WatchRequest, grpc.ServerStreamingServer[mooringv1.WatchResponse]) error
	live    func(*mooringv1.LiveRequest, grpc.ServerStreamingServer[mooringv1.LiveResponse]) error
	ticket  func(*mooringv1.CreateTicketRequest) (*mooringv1.CreateTicketResponse, error)
}

func (f *fake) RunCommand(
	ctx context.Context, r *mooringv1.RunCommandRequest,
) (*mooringv1.RunCommandResponse, error) {
	return f.runCommand(ctx, r)
}

func (f *fake) RunCursorCommand(
	context.Context, *mooringv1.RunCursorCommandRequest,
) (*mooringv1.RunCursorCommandResponse, error) {
	return nil, errors.New("not in these tests")
}

func (f *fake) StreamRunCursorCommand(
	*mooringv1.StreamRunCursorCommandRequest,
	grpc.ServerStreamingServer[mooringv1.StreamRunCursorCommandResponse],
) error {
	return errors.New("not in these tests")
}

func (f *fake) Find(
	ctx context.Context, r *mooringv1.FindRequest,
) (*mooringv1.FindResponse, error) {
	return f.find(ctx, r)
}

func (f *fake) FindOne(
	ctx context.Context, r *mooringv1.FindOneRequest,
) (*mooringv1.FindOneResponse, error) {
	return f.findOne(ctx, r)
}

func (f *fake) Aggregate(
	ctx context.Context, r *mooringv1.AggregateRequest,
) (*mooringv1.AggregateResponse, error) {
	return f.aggregate(ctx, r)
}

func (f *fake) UpdateOne(
	ctx context.Context, r *mooringv1.UpdateOneRequest,
) (*mooringv1.UpdateOneResponse, error) {
	return f.updateOne(ctx, r)
}

func (f *fake) InsertMany(
	ctx context.Context, r *mooringv1.InsertManyRequest,
) (*mooringv1.InsertManyResponse, error) {
	return f.insertMany(ctx, r)
}

func (f *fake) Distinct(
	ctx context.Context, r *mooringv1.DistinctRequest,
) (*mooringv1.DistinctResponse, error) {
	return f.distinct(ctx, r)
}

func (f *fake) CountDocuments(
	ctx context.Context, r *mooringv1.CountDocumentsRequest,
) (*mooringv1.CountDocumentsResponse, error) {
	return f.count(ctx, r)
}

func (f *fake) StreamFind(
	r *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
) error {
	return f.streamFind(r, s)
}

func (f *fake) CloseCursor(
	ctx context.Context, r *mooringv1.CloseCursorRequest,
) (*mooringv1.CloseCursorResponse, error) {
	return f.close(ctx, r)
}

func (f *fake) WatchTopology(
	_ *mooringv1.WatchTopologyRequest,
	s grpc.ServerStreamingServer[mooringv1.WatchTopologyResponse],
) error {
	return f.watch(s)
}

func (f *fake) Watch(
	r *mooringv1.WatchRequest, s grpc.ServerStreamingServer[mooringv1.WatchResponse],
) error {
	return f.changes(r, s)
}

func (f *fake) Live(
	r *mooringv1.LiveRequest, s grpc.ServerStreamingServer[mooringv1.LiveResponse],
) error {
	if f.live == nil {
		return nil
	}
	return f.live(r, s)
}

func (f *fake) CreateTicket(
	_ context.Context, r *mooringv1.CreateTicketRequest,
) (*mooringv1.CreateTicketResponse, error) {
	return f.ticket(r)
}

// mapErrors does what the real interceptors do last.
func mapErrors(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	resp, err := handler(ctx, req)
	return resp, explain(err)
}

func mapStreamErrors(
	srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	return explain(handler(srv, ss))
}

func explain(err error) error {
	if err == nil {
		return nil
	}
	return rpcerr.Explain(err, call.Call{})
}

func newConn(f *fake) *inproc.Conn {
	conn := inproc.NewConn(mapErrors, mapStreamErrors)
	mooringv1.RegisterCommandServiceServer(conn, f)
	mooringv1.RegisterDocumentServiceServer(conn, f)
	if f.resources == nil {
		f.resources = &resources{}
	}
	mooringv1.RegisterDocumentResourceServiceServer(conn, f.resources)
	mooringv1.RegisterCatalogServiceServer(conn, f)
	mooringv1.RegisterSessionServiceServer(conn, f)
	mooringv1.RegisterCursorServiceServer(conn, f)
	mooringv1.RegisterDeploymentServiceServer(conn, f)
	mooringv1.RegisterChangeStreamServiceServer(conn, f)
	return conn
}

// config configures a front with REST behind other APIs.
type config struct {
	front.Config
	REST rest.Config
}

func newHandler(tb testing.TB, f *fake, change ...func(*config)) http.Handler {
	tb.Helper()
	var c config
	if f != nil {
		c.Conn = newConn(f)
	}
	for _, ch := range change {
		ch(&c)
	}
	c.APIs = append(c.APIs, rest.New(c.REST))
	h, err := front.New(c.Config)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// do sends one request; header is name, value, name, value, …  A POST is JSON.
func do(h http.Handler, method, url, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, url, strings.NewReader(body))
	if method == http.MethodPost {
		r = newPost(url, strings.NewReader(body))
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const documents = "/v1/databases/shop/collections/orders/documents"

// ejson returns a document from its JSON.
func ejson(tb testing.TB, text string) bson.Raw {
	tb.Helper()
	raw, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return raw
}

// canonical returns a document's JSON for comparisons, or "-" if there is no document.
func canonical(tb testing.TB, d *mooringv1.Document) string {
	tb.Helper()
	if d == nil {
		return "-"
	}
	text, err := extjson.Append(nil, d.GetBson(), extjson.Canonical)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

func docs(tb testing.TB, texts ...string) []*mooringv1.Document {
	tb.Helper()
	var list []*mooringv1.Document
	for _, t := range texts {
		list = append(list, payload.NewDocument(ejson(tb, t)))
	}
	return list
}

func incoming(ctx context.Context, key string) string {
	return strings.Join(metadata.ValueFromIncomingContext(ctx, key), ",")
}

// newPost returns a POST of JSON.
func newPost(path string, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, body)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// requestOf returns a request for any path, or nil if no server would receive it.
func requestOf(method, path string) *http.Request {
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil
	}
	return &http.Request{
		Method: method, URL: u, RequestURI: path, Header: http.Header{}, Body: http.NoBody,
	}
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
