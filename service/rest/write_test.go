package rest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
)

// askForAMegabyte asks a gateway whose Find answers with one document of a megabyte.
func askForAMegabyte(t *testing.T) net.Conn {
	t.Helper()
	row := `{"pad": "` + strings.Repeat("x", 1<<20) + `"}`
	h := newHandler(t, &fake{find: func(
		context.Context, *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		return &mooringv1.FindResponse{Documents: docs(t, row)}, nil
	}})
	conn := listen(t, h).dial()
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", documents); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestClientThatReadsNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := askForAMegabyte(t)
		time.Sleep(31 * time.Second) //nolint:forbidigo // fake time
		n, err := io.Copy(io.Discard, conn)
		if n != 0 || err != nil {
			t.Errorf("read %d bytes after 31 s, %v: the connection should be closed", n, err)
		}
	})
}

func TestClientThatReadsSlowlyGetsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := askForAMegabyte(t)
		begin := time.Now()
		slow := &slowReader{r: conn, bytesPerSecond: 4 << 10}
		reply, err := http.ReadResponse(bufio.NewReader(slow), nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, reply.Body)
		if err != nil || n != reply.ContentLength {
			t.Errorf("read %d of %d bytes: %v", n, reply.ContentLength, err)
		}
		if took := time.Since(begin); took < 4*time.Minute {
			t.Errorf("read all within %v: that was not slow", took)
		}
		// No deadline remains: the next answer is written long after it would have passed.
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		go func() { _, _ = fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") }()
		if reply, err = http.ReadResponse(bufio.NewReader(conn), nil); err != nil ||
			reply.StatusCode != http.StatusOK {
			t.Errorf("the next request: %v, %v", reply, err)
		}
	})
}

// slowReader waits a second before each read.
type slowReader struct {
	r              io.Reader
	bytesPerSecond int
}

func (s *slowReader) Read(b []byte) (int, error) {
	time.Sleep(time.Second) //nolint:forbidigo // fake time
	return s.r.Read(b[:min(len(b), s.bytesPerSecond)])
}

// HTTP/2 has deadlines for each stream, and does not announce an empty body. A slow call and a slow
// reader complete nevertheless.
func TestDeadlinesOverHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		row := `{"pad": "` + strings.Repeat("x", 8<<20) + `"}`
		transport := overHTTP2(t, newHandler(t, &fake{
			find: func(
				ctx context.Context, _ *mooringv1.FindRequest,
			) (*mooringv1.FindResponse, error) {
				select {
				case <-time.After(5 * time.Minute):
					return &mooringv1.FindResponse{Documents: docs(t, row)}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
		}))
		for method, body := range map[string]io.Reader{
			http.MethodGet:  io.NopCloser(strings.NewReader("")), // of unknown length
			http.MethodPost: strings.NewReader("{}"),
		} {
			path := documents
			if method == http.MethodPost {
				path += ":find"
			}
			r, err := http.NewRequestWithContext(t.Context(), method, "http://db"+path, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			reply, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatalf("%s: %v", method, err)
			}
			n, err := io.Copy(io.Discard, &slowReader{r: reply.Body, bytesPerSecond: 16 << 10})
			if reply.StatusCode != http.StatusOK || reply.ProtoMajor != 2 ||
				n != reply.ContentLength || err != nil {
				t.Errorf("%s: %s %d, %d of %d bytes, %v", method, reply.Proto, reply.StatusCode, n,
					reply.ContentLength, err)
			}
			_ = reply.Body.Close()
		}
	})
}

// overHTTP2 serves a handler over HTTP/2 on pipes.
func overHTTP2(t *testing.T, h http.Handler) *http.Transport {
	t.Helper()
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Protocols: &http.Protocols{}, Handler: h}
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	transport := &http.Transport{
		DisableCompression: true,
		Protocols:          server.Protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return l.dial(), nil
		},
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-done
	})
	return transport
}

// overHTTP serves a handler over a version of HTTP on pipes.
func overHTTP(t *testing.T, version int, h http.Handler) *http.Transport {
	t.Helper()
	if version == 2 {
		return overHTTP2(t, h)
	}
	l := listen(t, h)
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return l.dial(), nil
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// endless sends the same row after each pause, and reports the end of its stream.
func endless(t *testing.T, pause time.Duration) (*fake, <-chan struct{}) {
	over := make(chan struct{})
	return &fake{streamFind: func(_ *mooringv1.StreamFindRequest, s findStream) error {
		defer close(over)
		for {
			if err := s.Send(&mooringv1.StreamFindResponse{Documents: docs(t,
				`{"a": 1}`)}); err != nil {
				return err
			}
			select {
			case <-time.After(pause):
			case <-s.Context().Done():
				return s.Context().Err()
			}
		}
	}}, over
}

func stallAfterAMinute(c *config) { c.StallTimeout = time.Minute }

// A client that reads nothing of a stream has StallTimeout, as its handler would. Then its
// connection is closed and the goroutine that writes ends.
func TestStalledStreamIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, over := endless(t, time.Second)
		conn := listen(t, newHandler(t, f, stallAfterAMinute)).dial()
		defer func() { _ = conn.Close() }()
		if _, err := fmt.Fprintf(conn,
			"POST %s:streamFind HTTP/1.1\r\nHost: x\r\nContent-Type: "+
				"application/json\r\nContent-Length: 2\r\n\r\n{}", documents); err != nil {
			t.Fatal(err)
		}
		// A slow client gets the stream.
		reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(reply.Body)
		for i := range 5 {
			if !lines.Scan() {
				t.Fatalf("line %d: %v although something was taken each minute", i, lines.Err())
			}
			time.Sleep(59 * time.Second) //nolint:forbidigo // fake time
		}
		begun := time.Now()
		<-over
		if took := time.Since(begun); took > 2*time.Minute {
			t.Errorf("the stream ended %s after the last byte was taken, want a minute or so", took)
		}
	})
}

// An idle stream has no deadline, not even over HTTP/2.
func TestQuietStream(t *testing.T) {
	for _, version := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			f, _ := endless(t, 5*time.Minute)
			h := newHandler(t, f, stallAfterAMinute)
			transport := overHTTP(t, version, h)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://db"+documents+":streamFind", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			reply, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(reply.Body)
			for i := range 4 {
				if !lines.Scan() || lines.Text() != `{"document":{"a":1}}` ||
					reply.ProtoMajor != version {
					t.Errorf("%s: line %d is %q, %v", reply.Proto, i, lines.Text(), lines.Err())
				}
			}
			_ = reply.Body.Close()
		})
	}
}

// importOver sends an import over a version of HTTP.
func importOver(
	t *testing.T, version int, h http.Handler, body io.Reader,
) (reply *http.Response, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://db"+documents+":import", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-ndjson")
	if reply, err = overHTTP(t, version, h).RoundTrip(r); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	all, err := io.ReadAll(reply.Body)
	if err != nil || reply.ProtoMajor != version {
		t.Errorf("%s: %v", reply.Proto, err)
	}
	return reply, string(all)
}

// largeImport returns a body with more bytes than net/http reads ahead.
func largeImport() (body io.Reader, lines int) {
	lines = 64
	line := `{"pad": "` + strings.Repeat("x", 64<<10) + "\"}\n"
	return strings.NewReader(strings.Repeat(line, lines)), lines
}

// slowServer takes longer for each message of an import than a client has for a piece of it.
type slowServer struct{ importStream }

func (s slowServer) Recv() (*mooringv1.ImportRequest, error) {
	m, err := s.importStream.Recv()
	time.Sleep(40 * time.Second) //nolint:forbidigo // fake time
	return m, err
}

// The time that the server takes is not the client's, also over HTTP/2, where a deadline counts
// between reads, too.
func TestSlowServerOfAnImport(t *testing.T) {
	for _, version := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			var got received
			h := newImporter(t, func(ss importStream) error { return got.run(slowServer{ss}) })
			body, lines := largeImport()
			reply, text := importOver(t, version, h, body)
			if reply.StatusCode != http.StatusOK || len(got.documents) != lines {
				t.Errorf("%s: %d %s, %d documents", reply.Proto, reply.StatusCode, text,
					len(got.documents))
			}
		})
	}
}

// Nor is the time that a call waits for memory before it reads the body.
func TestWaitBeforeAnImport(t *testing.T) {
	for _, version := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			a := admission.New(admission.Config{Bytes: 8 << 20, Patience: time.Minute})
			var others admission.Account
			a.Open(&others, admission.Principal{Name: "others"})
			others.Force(8 << 20)
			time.AfterFunc(20*time.Second, others.Close)
			var got received
			h := newImporter(t, got.run, func(c *config) { c.Admission = a })
			body, lines := largeImport()
			reply, text := importOver(t, version, h, body)
			if reply.StatusCode != http.StatusOK || len(got.documents) != lines {
				t.Errorf("%s: %d %s, %d documents", reply.Proto, reply.StatusCode, text,
					len(got.documents))
			}
		})
	}
}

// A client that sends an import too slowly has its time, and no more.
func TestImportOfASlowClient(t *testing.T) {
	for _, version := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			body, w := io.Pipe()
			defer func() { _ = w.Close() }()
			go func() {
				for range 100 {
					_, _ = io.WriteString(w, "{}\n") // the server may have given up
					time.Sleep(time.Second / 4)      //nolint:forbidigo // fake time
				}
			}()
			begun := time.Now()
			var got received
			reply, text := importOver(t, version, newImporter(t, got.run), body)
			took := time.Since(begun)
			if reply.StatusCode != http.StatusRequestTimeout || took < 30*time.Second ||
				took > 31*time.Second {
				t.Errorf("%s: %d %s after %s", reply.Proto, reply.StatusCode, text, took)
			}
		})
	}
}
