package rest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
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
	h := newHandler(b, &fake{findOne: func(context.Context, *mooringv1.FindOneRequest) (*mooringv1.FindOneResponse, error) { return resp, nil }})
	bench(b, h, documents+":findOne", `{"filter":{"_id":{"$oid":"65a1b2c3d4e5f60718293a4b"}}}`)
}

func BenchmarkFind100(b *testing.B) {
	texts := make([]string, 100)
	for i := range texts {
		texts[i] = order
	}
	resp := &mooringv1.FindResponse{Documents: docs(b, texts...), Cursor: new("token")}
	h := newHandler(b, &fake{find: func(context.Context, *mooringv1.FindRequest) (*mooringv1.FindResponse, error) { return resp, nil }})
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
	h := newHandler(b, &fake{insertMany: func(context.Context, *mooringv1.InsertManyRequest) (*mooringv1.InsertManyResponse, error) {
		return resp, nil
	}})
	bench(b, h, documents+":insertMany", `{"documents":[`+strings.TrimSuffix(strings.Repeat(order+",", 100), ",")+`]}`)
}

func BenchmarkUnaryCall(b *testing.B) {
	resp := &mooringv1.FindOneResponse{Document: docs(b, order)[0]}
	client := mooringv1.NewDocumentServiceClient(newConn(&fake{findOne: func(context.Context, *mooringv1.FindOneRequest) (*mooringv1.FindOneResponse, error) {
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
