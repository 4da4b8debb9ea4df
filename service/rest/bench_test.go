package rest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/request"
)

// sink implements a response writer that discards the response.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Flush()                      {}

// As a connection has it.
func (s *sink) SetReadDeadline(time.Time) error  { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

const order = `{"_id":{"$oid":"65a1b2c3d4e5f60718293a4b"},"customer":"Ada Lovelace","total":129.95,"currency":"EUR","paid":true,` +
	`"created":{"$date":"2026-11-20T12:00:00Z"},"items":[{"sku":"A-1","qty":2,"price":49.5},{"sku":"B-7","qty":1,"price":30.95}],` +
	`"ship":{"street":"Main St 1","city":"Oslo","zip":"0150"},"note":null,"version":{"$numberLong":"12"}}`

func bench(b *testing.B, h http.Handler, url, body string) {
	b.Helper()
	b.ReportAllocs()
	reader := strings.NewReader(body)
	r := httptest.NewRequest("POST", url, nil)
	r.Header.Set("Content-Type", "application/json")
	r.Body = io.NopCloser(reader)
	r.ContentLength = int64(len(body))
	for b.Loop() {
		reader.Reset(body)
		w := &sink{header: make(http.Header, 8)}
		h.ServeHTTP(w, r)
	}
}

func BenchmarkFindOne(b *testing.B) {
	resp := &mooringv1.FindOneResponse{Document: docs(b, order)[0]}
	h := newHandler(b, &fake{findOne: func(
		context.Context, *mooringv1.FindOneRequest,
	) (*mooringv1.FindOneResponse, error) {
		return resp, nil
	}})
	bench(b, h, documents+":findOne", `{"filter":{"_id":{"$oid":"65a1b2c3d4e5f60718293a4b"}}}`)
}

func BenchmarkFind100(b *testing.B) {
	texts := make([]string, 100)
	for i := range texts {
		texts[i] = order
	}
	resp := &mooringv1.FindResponse{Documents: docs(b, texts...), Cursor: new("token")}
	h := newHandler(b, &fake{find: func(
		context.Context, *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		return resp, nil
	}})
	bench(b, h, documents+":find", `{"filter":{"total":{"$gt":10}},"limit":1000,"batchSize":100}`)
}

func BenchmarkStream100x100(b *testing.B) {
	texts := make([]string, 100)
	for i := range texts {
		texts[i] = order
	}
	resp := &mooringv1.StreamFindResponse{Documents: docs(b, texts...)}
	h := newHandler(b, &fake{streamFind: func(_ *mooringv1.StreamFindRequest, s findStream) error {
		for range 100 {
			if err := s.Send(resp); err != nil {
				return err
			}
		}
		return nil
	}})
	bench(b, h, documents+":streamFind", `{}`)
}

func BenchmarkInsertMany100(b *testing.B) {
	resp := &mooringv1.InsertManyResponse{Acknowledged: true}
	h := newHandler(b, &fake{insertMany: func(
		context.Context, *mooringv1.InsertManyRequest,
	) (*mooringv1.InsertManyResponse, error) {
		return resp, nil
	}})
	bench(b, h, documents+":insertMany",
		`{"documents":[`+strings.TrimSuffix(strings.Repeat(order+",", 100), ",")+`]}`)
}

// BenchmarkRead passes requests through the interceptors to a handler that reads their documents.
func BenchmarkRead(b *testing.B) {
	resp := &mooringv1.InsertManyResponse{Acknowledged: true}
	chain := interceptor.New(interceptor.Config{})
	conn := inproc.NewConn(chain.Unary(), chain.Stream())
	mooringv1.RegisterDocumentServiceServer(conn, &fake{insertMany: func(
		ctx context.Context, r *mooringv1.InsertManyRequest,
	) (*mooringv1.InsertManyResponse, error) {
		reader := request.Read(ctx, r, nil)
		if n := len(reader.Documents("documents", r.GetDocuments())); n == 0 ||
			reader.Err() != nil {
			b.Errorf("%d documents, %v", n, reader.Err())
		}
		return resp, nil
	}})
	h := newHandler(b, nil, func(c *config) { c.Conn = conn })
	for _, n := range []int{1, 100} {
		body := `{"documents":[` + strings.TrimSuffix(strings.Repeat(order+",", n), ",") + `]}`
		b.Run(strconv.Itoa(n), func(b *testing.B) { bench(b, h, documents+":insertMany", body) })
	}
}

func BenchmarkUnaryCall(b *testing.B) {
	resp := &mooringv1.FindOneResponse{Document: docs(b, order)[0]}
	client := mooringv1.NewDocumentServiceClient(newConn(&fake{findOne: func(
		context.Context, *mooringv1.FindOneRequest,
	) (*mooringv1.FindOneResponse, error) {
		return resp, nil
	}}))
	request := &mooringv1.FindOneRequest{}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.FindOne(b.Context(), request); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefusal(b *testing.B) {
	bench(b, newHandler(b, &fake{}), "/v1/nothing", ``)
}
