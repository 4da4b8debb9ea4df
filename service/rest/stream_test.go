package rest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

type findStream = grpc.ServerStreamingServer[mooringv1.StreamFindResponse]

// rows streams batches and then returns err.
func rows(tb testing.TB, err error, batches ...[]string) *fake {
	return &fake{streamFind: func(_ *mooringv1.StreamFindRequest, s findStream) error {
		for _, b := range batches {
			if err := s.Send(&mooringv1.StreamFindResponse{Documents: docs(tb, b...)}); err != nil {
				return err
			}
		}
		return err
	}}
}

var (
	errDown    = &mongoerr.SelectionError{}
	errRefused = &mongoerr.CommandError{Code: 2, Name: "BadValue", Message: "no"}
	twoBatches = [][]string{{`{"a": 1}`, `{"a": {"$numberLong": "2"}}`}, {`{"a": 3}`}}
)

// cutError returns an error's body without the parts that vary.
func cutErrors(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if at := strings.Index(l, `{"error":{`); at >= 0 {
			reason := l[strings.Index(l, `"reason":"`)+10:]
			lines[i] = l[:at] + "ERROR " + reason[:strings.Index(reason, `"`)]
		}
	}
	return strings.Join(lines, "\n")
}

func TestStreamForms(t *testing.T) {
	const ndjson, sse = "application/x-ndjson", "text/event-stream"
	for _, c := range []struct {
		name    string
		fake    *fake
		method  string
		header  []string
		code    int
		form    string
		body    string
		aborted bool
	}{
		{
			"NDJSON", rows(t, nil, twoBatches...), "POST", nil, 200, ndjson,
			`{"document":{"a":1}}` + "\n" + `{"document":{"a":2}}` + "\n" + `{"document":{"a":3}}` + "\n" + `{"end":{}}` + "\n", false,
		},
		{"empty NDJSON", rows(t, nil), "POST", []string{"Accept", ndjson}, 200, ndjson, `{"end":{}}` + "\n", false},
		{
			"canonical NDJSON", rows(t, nil, twoBatches[1]), "POST",
			[]string{"Accept", ndjson + ";profile=canonical"},
			200, ndjson,
			`{"document":{"a":{"$numberInt":"3"}}}` + "\n" + `{"end":{}}` + "\n", false,
		},
		{
			"plain NDJSON", rows(t, nil, []string{`{"_id": {"$oid": "56e1fc72e0c917e9c4714161"}, "t": {"$timestamp": {"t": 1, "i": 2}}}`}), "POST",
			[]string{"Accept", ndjson + ";profile=plain"},
			200, ndjson,
			`{"document":{"_id":"56e1fc72e0c917e9c4714161","t":{"T":1,"I":2}}}` + "\n" + `{"end":{}}` + "\n", false,
		},
		{
			"plain events", rows(t, nil, []string{`{"d": {"$date": {"$numberLong": "0"}}}`}), "GET",
			[]string{"Accept", sse + ";profile=plain"},
			200, sse,
			"id: q\ndata: {\"d\":\"1970-01-01T00:00:00.000Z\"}\n\nevent: end\nid: end\ndata: {}\n\n", false,
		},
		{
			"bare NDJSON", rows(t, nil, twoBatches...), "POST",
			[]string{"Accept", ndjson + ";bare=true"},
			200, ndjson,
			`{"a":1}` + "\n" + `{"a":2}` + "\n" + `{"a":3}` + "\n", false,
		},
		{
			"failing NDJSON", rows(t, errDown, twoBatches[1]), "POST", nil, 200, ndjson,
			`{"document":{"a":3}}` + "\n" + `ERROR NoSuitableServer` + "\n", false,
		},
		{
			"failing bare NDJSON", rows(t, errDown, twoBatches[1]), "POST",
			[]string{"Accept", ndjson + ";bare=true"},
			200, ndjson,
			`{"a":3}` + "\n", true,
		},
		{"NDJSON that fails at once", rows(t, errDown), "POST", nil, 503, "application/json", `ERROR NoSuitableServer`, false},
		{"bare NDJSON that fails at once", rows(t, errRefused), "POST", []string{"Accept", ndjson + ";bare=true"}, 400, "application/json", `ERROR BadValue`, false},
		{"NDJSON by GET", rows(t, nil), "GET", nil, 200, ndjson, `{"end":{}}` + "\n", false},

		{
			"events", rows(t, nil, twoBatches...), "GET",
			[]string{"Accept", sse},
			200, sse,
			"id: q\ndata: {\"a\":1}\n\nid: q\ndata: {\"a\":2}\n\nid: q\ndata: {\"a\":3}\n\nevent: end\nid: end\ndata: {}\n\n", false,
		},
		{
			"events by POST", rows(t, nil, twoBatches[1]), "POST",
			[]string{"Accept", sse},
			200, sse,
			"id: q\ndata: {\"a\":3}\n\nevent: end\nid: end\ndata: {}\n\n", false,
		},
		{
			"failing events", rows(t, errDown, twoBatches[1]), "GET",
			[]string{"Accept", sse},
			200, sse,
			"id: q\ndata: {\"a\":3}\n\nevent: failure\nid: q\ndata: ERROR NoSuitableServer\n\n", false,
		},
		{
			"transient failure by GET", rows(t, errDown), "GET",
			[]string{"Accept", sse},
			200, sse,
			"retry: 1000\nevent: failure\ndata: ERROR NoSuitableServer\n\n", false,
		},
		{"final failure by GET", rows(t, errRefused), "GET", []string{"Accept", sse}, 400, "application/json", "ERROR BadValue", false},
		{"transient failure by POST", rows(t, errDown), "POST", []string{"Accept", sse}, 503, "application/json", "ERROR NoSuitableServer", false},
		{"events again", rows(t, errDown), "GET", []string{"Accept", sse, "Last-Event-ID", "q"}, 204, "", "", false},
		{"events after the end", rows(t, errDown), "GET", []string{"Accept", sse, "Last-Event-ID", "end"}, 204, "", "", false},
		{"panic", &fake{streamFind: func(*mooringv1.StreamFindRequest, findStream) error { panic("boom") }}, "POST", nil, 200, "", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHandler(t, c.fake)
			w := httptest.NewRecorder()
			aborted := func() (panicked bool) {
				defer func() { panicked = recover() != nil }()
				r := newPost(documents+":streamFind", nil)
				r.Method = c.method
				for i := 0; i < len(c.header); i += 2 {
					r.Header.Set(c.header[i], c.header[i+1])
				}
				h.ServeHTTP(w, r)
				return false
			}()
			if body := cutErrors(w.Body.String()); aborted != c.aborted || w.Code != c.code ||
				body != c.body {
				t.Errorf("%d, aborted %v: %q\nwant %d, %v: %q", w.Code, aborted, body, c.code,
					c.aborted, c.body)
			}
			if got := w.Header().Get("Content-Type"); got != c.form {
				t.Errorf("Content-Type = %q, want %q", got, c.form)
			}
		})
	}
}

func TestStreamHeadersAndSession(t *testing.T) {
	h := newHandler(t, &fake{streamFind: func(r *mooringv1.StreamFindRequest, s findStream) error {
		_ = s.SetHeader(metadata.Pairs("mooring-transaction", r.GetTransaction()))
		return s.Send(&mooringv1.StreamFindResponse{Session: new(r.GetSession() + "2")})
	}})
	w := do(h, "POST", documents+":streamFind", `{"session": "s"}`, "Mooring-Transaction", "t")
	if w.Body.String() != `{"end":{"session":"s2"}}`+"\n" ||
		w.Header().Get("Mooring-Session") != "s2" || w.Header().Get("Mooring-Transaction") != "t" {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
}

// counter counts writes and flushes.
type counter struct {
	*httptest.ResponseRecorder
	writes, flushes int
}

func (c *counter) Write(b []byte) (int, error) { c.writes++; return c.ResponseRecorder.Write(b) }
func (c *counter) Flush()                      { c.flushes++; c.ResponseRecorder.Flush() }

func TestOneWriteAndFlushPerBatch(t *testing.T) {
	w := &counter{ResponseRecorder: httptest.NewRecorder()}
	newHandler(t, rows(t, nil, twoBatches...)).ServeHTTP(w, newPost(documents+":streamFind", nil))
	if w.writes != 3 || w.flushes != 3 { // two batches and the end
		t.Errorf("%d writes, %d flushes, want 3 and 3", w.writes, w.flushes)
	}
}

func TestBadRequestReachesNoStreamHandler(t *testing.T) {
	h := newHandler(t, &fake{streamFind: func(*mooringv1.StreamFindRequest, findStream) error {
		t.Error("the handler was called")
		return nil
	}})
	for _, url := range []string{
		documents + ":streamFind?filter=x", documents + ":streamFind?x=gtt.1",
	} {
		if w := do(h, "GET", url, "", "Accept", "text/event-stream"); w.Code != 400 {
			t.Errorf("%s: %d %s", url, w.Code, w.Body)
		}
	}
	if w := do(h, "POST", documents+":streamFind", `{"filter": 1}`); w.Code != 400 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// pipeListener implements a listener on net.Pipes, without buffers and without ports.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

// listen serves h until the test ends.
func listen(t *testing.T, h http.Handler) *pipeListener {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return l
}

func TestSlowClientHoldsTheHandlerBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		var ended error
		row := `{"pad": "` + strings.Repeat("x", 64<<10) + `"}`
		h := newHandler(t, &fake{streamFind: func(
			_ *mooringv1.StreamFindRequest, s findStream,
		) error {
			for {
				if ended = s.Send(&mooringv1.StreamFindResponse{Documents: docs(t,
					row)}); ended != nil {
					return ended
				}
				sent++
			}
		}}, func(c *config) { c.StallTimeout = 2 * time.Hour })
		conn := listen(t, h).dial()
		_, _ = fmt.Fprintf(conn, "GET %s:streamFind HTTP/1.1\r\nHost: x\r\n\r\n", documents)
		synctest.Wait()
		if sent != 0 { // the first is being written
			t.Errorf("%d batches taken before the client reads", sent)
		}
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		synctest.Wait()
		if sent != 0 || ended != nil {
			t.Errorf("an hour later: %d batches, %v", sent, ended)
		}
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, resp.Body, 10*64<<10); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if sent < 9 || sent > 12 {
			t.Errorf("%d batches taken after the client has read ten", sent)
		}
		_ = conn.Close() // the client disconnects
		synctest.Wait()
		if ended == nil {
			t.Error("the handler goes on without its client")
		}
	})
}

func TestClientGoesAwayWhileHandlerWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		wait := func(ctx context.Context) error {
			<-ctx.Done()
			cause = ctx.Err()
			return cause
		}
		h := newHandler(t, &fake{
			streamFind: func(_ *mooringv1.StreamFindRequest, s findStream) error {
				return wait(s.Context())
			},
			findOne: func(
				ctx context.Context, _ *mooringv1.FindOneRequest,
			) (*mooringv1.FindOneResponse, error) {
				return nil, wait(ctx)
			},
		})
		l := listen(t, h)
		for _, verb := range []string{"streamFind", "findOne"} {
			cause = nil
			conn := l.dial()
			_, _ = fmt.Fprintf(conn,
				"POST %s:%s HTTP/1.1\r\nHost: x\r\nContent-Type: "+
					"application/json\r\nContent-Length: 0\r\n\r\n", documents, verb)
			synctest.Wait()
			if cause != nil {
				t.Errorf("%s: %v before the client has gone", verb, cause)
			}
			_ = conn.Close()
			synctest.Wait()
			if !errors.Is(cause, context.Canceled) {
				t.Errorf("%s: the handler saw %v", verb, cause)
			}
		}
	})
}

func TestEventsAreKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, &fake{streamFind: func(
			_ *mooringv1.StreamFindRequest, s findStream,
		) error {
			time.Sleep(40 * time.Second) //nolint:forbidigo // fake time
			if err := s.Send(&mooringv1.StreamFindResponse{Documents: docs(t,
				`{"a": 1}`)}); err != nil {
				return err
			}
			time.Sleep(20 * time.Second) //nolint:forbidigo // fake time
			return &rpcerr.Error{Reason: rpcerr.ShuttingDown, Message: "bye"}
		}})
		w := do(h, "GET", documents+":streamFind", "", "Accept", "text/event-stream")
		want := ":\n\n:\n\nid: q\ndata: {\"a\":1}\n\n:\n\nevent: failure\nid: q\ndata: ERROR " +
			"ShuttingDown\n\n"
		if got := cutErrors(w.Body.String()); w.Code != 200 || got != want {
			t.Errorf("GET: %d %q, want %q", w.Code, got, want)
		}
		w = do(h, "POST", documents+":streamFind", "", "Accept", "text/event-stream")
		if got := cutErrors(w.Body.String()); got != strings.TrimPrefix(want, ":\n\n:\n\n") {
			t.Errorf("POST: %q", got)
		}
		w = do(h, "POST", documents+":streamFind?timeout=30s", "", "Accept", "text/event-stream")
		if w.Code != 200 && w.Code != 504 {
			t.Errorf("POST with a timeout: %d %q", w.Code, w.Body)
		}
	})
}

func TestLateTransientFailureOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, &fake{streamFind: func(*mooringv1.StreamFindRequest, findStream) error {
			time.Sleep(20 * time.Second) //nolint:forbidigo // fake time
			return errDown
		}})
		w := do(h, "GET", documents+":streamFind", "", "Accept", "text/event-stream")
		want := ":\n\nretry: 1000\nevent: failure\ndata: ERROR NoSuitableServer\n\n"
		if got := cutErrors(w.Body.String()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A panic that no interceptor recovers ends the request. After that, no goroutine may write to the
// connection, because another request can use it.
func TestPanicEndsTheKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, &fake{streamFind: func(
			_ *mooringv1.StreamFindRequest, s findStream,
		) error {
			time.Sleep(20 * time.Second) //nolint:forbidigo // fake time
			panic("oh")
		}})
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if p := recover(); p != "oh" {
					t.Errorf("the panic is %v", p)
				}
			}()
			r := httptest.NewRequest(http.MethodGet, documents+":streamFind", nil)
			r.Header.Set("Accept", "text/event-stream")
			h.ServeHTTP(w, r)
		}()
		written := w.Body.Len()
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		if w.Body.Len() != written {
			t.Errorf("%q is written after the end", w.Body.String()[written:])
		}
	})
}

// pieces records the largest write of a response.
type pieces struct {
	*httptest.ResponseRecorder
	largest int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	return p.ResponseRecorder.Write(b)
}

// TestStreamsAreWrittenInPieces streams a message whose JSON is six times larger than its BSON. The
// memory that a client that does not read holds is limited in bytes of JSON, not in the bytes of
// BSON that the budget counts.
func TestStreamsAreWrittenInPieces(t *testing.T) {
	const count, size = 1000, 1000
	control := payload.NewDocument(bson.NewBuilder(nil).String("a", strings.Repeat("\x01", size)).
		Finish())
	batch := make([]*mooringv1.Document, count)
	for i := range batch {
		batch[i] = control
	}
	h := newHandler(t, &fake{streamFind: func(_ *mooringv1.StreamFindRequest, s findStream) error {
		return s.Send(&mooringv1.StreamFindResponse{Documents: batch})
	}})
	for _, accept := range []string{"application/x-ndjson", "text/event-stream"} {
		w := &pieces{ResponseRecorder: httptest.NewRecorder()}
		r := newPost(documents+":streamFind", strings.NewReader(`{}`))
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
		if n := strings.Count(w.Body.String(), `{"a":`); n != count || w.Body.Len() < 6*count*size {
			t.Errorf("%s: %d documents, %d bytes", accept, n, w.Body.Len())
		}
		if most := 64<<10 + 7*size; w.largest > most {
			t.Errorf("%s: a write of %d bytes, want %d at most", accept, w.largest, most)
		}
	}
}
