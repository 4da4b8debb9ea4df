package web_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/web"
)

// backend answers a few calls, and records what it learns of them.
type backend struct {
	mooringv1.UnimplementedDocumentServiceServer

	err      error
	filter   bson.Raw
	encoding string
	deadline bool
	who      string
	imported int
	document *mooringv1.Document // of the response; nil: the filter
	during   func()              // called by FindOne; nil: nothing is
}

func (b *backend) learn(ctx context.Context) {
	b.encoding = strings.Join(metadata.ValueFromIncomingContext(ctx, "mooring-document-encoding"),
		",")
	_, b.deadline = ctx.Deadline()
	if id := call.LocalFrom(ctx).Identity; id != nil {
		b.who = id.Principal
	}
}

func (b *backend) FindOne(
	ctx context.Context, r *mooringv1.FindOneRequest,
) (*mooringv1.FindOneResponse, error) {
	b.learn(ctx)
	b.filter = r.GetFilter().GetBson()
	if b.during != nil {
		b.during()
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs("mooring-session", "renewed", "other", "hidden"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("mooring-end", "yes"))
	if b.err != nil {
		return nil, b.err
	}
	if b.document != nil {
		return &mooringv1.FindOneResponse{Document: b.document}, nil
	}
	return &mooringv1.FindOneResponse{Document: r.GetFilter()}, nil
}

func (b *backend) StreamFind(
	r *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
) error {
	b.learn(s.Context())
	for range 2 {
		if err := s.Send(&mooringv1.StreamFindResponse{
			Documents: []*mooringv1.Document{r.GetFilter()},
		}); err != nil {
			return err
		}
	}
	return b.err
}

func (b *backend) Import(
	s grpc.ClientStreamingServer[mooringv1.ImportRequest, mooringv1.ImportResponse],
) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&mooringv1.ImportResponse{InsertedCount: new(int64(b.imported))})
		}
		if err != nil {
			return err
		}
		b.imported += len(r.GetDocuments())
	}
}

func explain(err error) error {
	if err == nil {
		return nil
	}
	return rpcerr.Explain(err, call.Call{})
}

func newHandler(tb testing.TB, b *backend, change ...func(*front.Config)) http.Handler {
	tb.Helper()
	return newHandlerOf(tb, b, change...)
}

func newHandlerOf(
	tb testing.TB, service mooringv1.DocumentServiceServer, change ...func(*front.Config),
) http.Handler {
	tb.Helper()
	conn := inproc.NewConn(func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		response, err := handler(ctx, req)
		return response, explain(err)
	}, func(
		srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
	) error {
		return explain(handler(srv, ss))
	})
	mooringv1.RegisterDocumentServiceServer(conn, service)
	if cursors, ok := service.(mooringv1.CursorServiceServer); ok {
		mooringv1.RegisterCursorServiceServer(conn, cursors)
	}
	api, err := web.New(web.Config{
		Services: []string{mooringv1.DocumentService_ServiceDesc.ServiceName},
		MaxSizeOf: func(method string) int {
			if strings.HasSuffix(method, "/FindOne") {
				return 100 << 10
			}
			return 1 << 30
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	cfg := front.Config{Conn: conn, APIs: []front.API{api}, MaxBodyBytes: 1 << 20}
	for _, c := range change {
		c(&cfg)
	}
	h, err := front.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// send sends a POST; header is name, value, name, value, …
func send(
	h http.Handler, method, contentType string, body []byte, header ...string,
) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/mooring.v1.DocumentService/"+method,
		bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
