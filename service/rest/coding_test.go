package rest_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/gen/openapi"
	"github.com/mooringdb/mooring/service/payload"
)

// decompress returns the text of a body.
func decompress(t *testing.T, coding string, body io.Reader) io.Reader {
	t.Helper()
	switch coding {
	case "gzip":
		r, err := gzip.NewReader(body)
		if err != nil {
			t.Fatal(err)
		}
		return r
	case "zstd":
		r, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return r
	}
	return body
}

// TestCoding: which coding an Accept-Encoding chooses, and that the text is the same.
func TestCoding(t *testing.T) {
	long := `{"_id": 7, "text": "` + strings.Repeat("long ", 1000) + `"}`
	r := &resources{document: long, etag: new("E"), t: t}
	h := newHandler(t, &fake{resources: r})
	plain := do(h, "GET", documents+"/7", "").Body.String()
	for _, row := range []struct{ accept, want, etag string }{
		{"", "", `"E.s"`},
		{"gzip", "gzip", `"E.s.gzip"`},
		{"zstd", "zstd", `"E.s.zstd"`},
		{"gzip, deflate, br, zstd", "zstd", `"E.s.zstd"`},
		{"gzip;q=1.0, zstd;q=0.5", "gzip", `"E.s.gzip"`},
		{"GZIP ; q=0.1", "gzip", `"E.s.gzip"`},
		{"x-gzip", "gzip", `"E.s.gzip"`},
		{"*", "zstd", `"E.s.zstd"`},
		{"*, zstd;q=0", "gzip", `"E.s.gzip"`},
		{"br, deflate", "", `"E.s"`},
		{"gzip;q=0", "", `"E.s"`},
		{"gzip;q=x", "", `"E.s"`},
		{"gzip;q=2", "", `"E.s"`},
		{"gzip;q=NaN", "", `"E.s"`},
		{"identity;q=0.9, gzip;q=0.5", "", `"E.s"`},
		{"identity", "", `"E.s"`},
		{",;,q=1", "", `"E.s"`},
	} {
		w := do(h, "GET", documents+"/7", "", "Accept-Encoding", row.accept)
		if got := w.Header().Get("Content-Encoding"); got != row.want ||
			w.Header().Get("Etag") != row.etag ||
			!strings.Contains(w.Header().Get("Vary"), "Accept-Encoding") {
			t.Errorf("%q: %q, etag %s, vary %s; want %q, %s", row.accept, got,
				w.Header().Get("Etag"), w.Header().Get("Vary"), row.want, row.etag)
			continue
		}
		if row.want != "" && w.Body.Len() > len(plain)/4 {
			t.Errorf("%q: %d bytes of %d", row.accept, w.Body.Len(), len(plain))
		}
		text, err := io.ReadAll(decompress(t, row.want, w.Body))
		if err != nil || string(text) != plain {
			t.Errorf("%q: %d bytes, %v", row.accept, len(text), err)
		}
		again := do(h, "GET", documents+"/7", "", "Accept-Encoding", row.accept, "If-None-Match",
			row.etag)
		if again.Code != 304 || again.Header().Get("Content-Encoding") != "" {
			t.Errorf("%q: again %d", row.accept, again.Code)
		}
		head := do(h, "HEAD", documents+"/7", "", "Accept-Encoding", row.accept)
		if head.Body.Len() > 0 || head.Header().Get("Etag") != row.etag ||
			head.Header().Get("Content-Encoding") != row.want {
			t.Errorf("%q: HEAD %v", row.accept, head.Header())
		}
	}
	larger := newHandler(t, &fake{resources: r}, func(c *config) { c.MinCompressed = 4 << 10 })
	for _, row := range []struct {
		h      http.Handler
		length int
		want   string
	}{
		{h, 2<<10 - 1, ""}, {h, 2 << 10, "gzip"}, {larger, 4<<10 - 1, ""}, {larger, 4 << 10, "gzip"},
	} {
		const around = len(`{"_id":7,"a":""}`)
		r.document = `{"_id":7,"a":"` + strings.Repeat("x", row.length-around) + `"}`
		w := do(row.h, "GET", documents+"/7", "", "Accept-Encoding", "gzip")
		if got := w.Header().Get("Content-Encoding"); got != row.want {
			t.Errorf("a text of %d bytes is in %q, want %q", row.length, got, row.want)
		}
	}
	for _, coding := range []string{"gzip", "zstd"} {
		w := do(h, "GET", "/openapi.json", "", "Accept-Encoding", coding)
		length := strconv.Itoa(w.Body.Len())
		text, err := io.ReadAll(decompress(t, coding, w.Body))
		if err != nil || !bytes.Equal(text, openapi.JSON) ||
			w.Header().Get("Content-Encoding") != coding ||
			w.Header().Get("Content-Length") != length {
			t.Errorf("openapi.json in %s: %v, %v", coding, err, w.Header())
		}
	}
}

// TestDescriptionIsCompressedOnce checks that a client makes the gateway compress openapi.json
// once, not as often as it asks: what is written is the same bytes.
func TestDescriptionIsCompressedOnce(t *testing.T) {
	h := newHandler(t, &fake{})
	for _, coding := range []string{"identity", "gzip", "zstd"} {
		var first *byte
		for range 2 {
			w := &lastWrite{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequest("GET", "/openapi.json", nil)
			r.Header.Set("Accept-Encoding", coding)
			h.ServeHTTP(w, r)
			if first == nil {
				first = w.at
			} else if first != w.at {
				t.Errorf("openapi.json in %s is made anew", coding)
			}
		}
	}
}

// lastWrite says where the bytes of the last write are.
type lastWrite struct {
	*httptest.ResponseRecorder
	at *byte
}

func (w *lastWrite) Write(b []byte) (int, error) {
	w.at = unsafe.SliceData(b)
	return w.ResponseRecorder.Write(b)
}

// TestCodingOfLargePages: a page that is written in pieces.
func TestCodingOfLargePages(t *testing.T) {
	page := docs(t, `{"text": "`+strings.Repeat("a long text ", 40_000)+`"}`, `{"_id": 2}`)
	h := newHandler(t, &fake{find: func(
		context.Context, *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		return &mooringv1.FindResponse{Documents: page}, nil
	}})
	plain := do(h, "POST", documents+":find", "{}").Body.String()
	for range 3 { // the compressors are used again
		for _, coding := range []string{"gzip", "zstd"} {
			w := do(h, "POST", documents+":find", "{}", "Accept-Encoding", coding)
			text, err := io.ReadAll(decompress(t, coding, w.Body))
			if err != nil || string(text) != plain || w.Header().Get("Content-Encoding") != coding {
				t.Errorf("%s: %d bytes of %d, %v", coding, len(text), len(plain), err)
			}
		}
	}
}

// TestCodingOfStreams: a client can read each message before the next one is sent, and the end.
func TestCodingOfStreams(t *testing.T) {
	for _, coding := range []string{"gzip", "zstd"} {
		for _, accept := range []string{"application/x-ndjson", "text/event-stream"} {
			t.Run(coding+" "+accept, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { streamCompressed(t, coding, accept) })
			})
		}
	}
}

func streamCompressed(t *testing.T, coding, accept string) {
	read := make(chan struct{})
	h := newHandler(t, &fake{streamFind: func(
		_ *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
	) error {
		for i := range 3 {
			m := &mooringv1.StreamFindResponse{
				Documents: []*mooringv1.Document{payload.NewDocument(ejson(t, `{"a": 1}`))},
			}
			if err := s.Send(m); err != nil {
				return err
			}
			if i < 2 {
				<-read
			}
		}
		return nil
	}})
	l := listen(t, h)
	transport := &http.Transport{DisableCompression: true, DialContext: func(
		context.Context, string, string,
	) (net.Conn, error) {
		return l.dial(), nil
	}}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://gateway"+documents+":streamFind", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", coding)
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Encoding"); got != coding {
		t.Fatalf("coding %q", got)
	}
	body := decompress(t, coding, resp.Body)
	text := ""
	part := make([]byte, 1024)
	for i := range 3 {
		for strings.Count(text, `{"a":1}`) <= i {
			n, err := body.Read(part)
			if text += string(part[:n]); err != nil {
				t.Fatalf("%q, %v", text, err)
			}
		}
		if i < 2 {
			read <- struct{}{}
		}
	}
	rest, err := io.ReadAll(body)
	if text += string(rest); err != nil || !strings.Contains(text, "end") {
		t.Errorf("%q, %v: want the end", text, err)
	}
	_ = resp.Body.Close()
	transport.CloseIdleConnections()
}
