package rest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// errorReader fails after its text.
type errorReader struct {
	text io.Reader
	err  error
}

func (r *errorReader) Read(b []byte) (int, error) {
	n, err := r.text.Read(b)
	if errors.Is(err, io.EOF) {
		err = r.err
	}
	return n, err
}

func TestBodiesThatDoNotArrive(t *testing.T) {
	h := newHandler(t, &fake{})
	for _, c := range []struct {
		name    string
		err     error
		code    int
		message string
	}{
		{"the client has gone", io.ErrUnexpectedEOF, 499, "the body could not be read: unexpected EOF"},
		{"bad chunk", errors.New("invalid byte in chunk length"), 400, "the body could not be read: invalid byte in chunk length"},
		{"late", os.ErrDeadlineExceeded, 408, "the body did not arrive in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newPost(documents+":find", &errorReader{strings.NewReader(`{"filter"`), c.err})
			w := serve(h, r)
			if e := errorOf(t, w.Code, w.Body.Bytes(), c.code); e.Message != c.message {
				t.Errorf("message %q, want %q", e.Message, c.message)
			}
		})
	}
}

// The timeout of a call starts with its first byte, so a body that arrives too slowly does not hold
// a goroutine for longer.
func TestTimeoutWhileTheBodyComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found := make(chan struct{}, 1)
		f := &fake{find: func(
			context.Context, *mooringv1.FindRequest,
		) (*mooringv1.FindResponse, error) {
			found <- struct{}{}
			return &mooringv1.FindResponse{}, nil
		}}
		l := listen(t, newHandler(t, f))
		conn := l.dial()
		defer func() { _ = conn.Close() }()
		replies := bufio.NewReader(conn)
		post := func(header, body string) {
			if _, err := io.WriteString(conn,
				"POST "+documents+
					":find HTTP/1.1\r\nHost: db\r\nContent-Type: application/json\r\n"+header+
					"\r\n\r\n"+body); err != nil {
				t.Fatal(err)
			}
		}
		answer := func() int {
			reply, err := http.ReadResponse(replies, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, reply.Body)
			_ = reply.Body.Close()
			return reply.StatusCode
		}
		// After a body in time, no deadline remains, neither for its own call nor for the next one.
		post("Content-Length: 2\r\nRequest-Timeout: 1s", "{}")
		if code := answer(); code != 200 {
			t.Errorf("a body in time: %d", code)
		}
		<-found
		time.Sleep(2 * time.Second) //nolint:forbidigo // fake time
		begin := time.Now()
		post("Content-Length: 20\r\nRequest-Timeout: 300ms", "{")
		if code, took := answer(), time.Since(begin); code != 504 || took != 300*time.Millisecond {
			t.Errorf("a late body: %d after %v", code, took)
		}
		// Without a timeout, the call of a client that stops sending ends, too.
		conn = l.dial()
		defer func() { _ = conn.Close() }()
		replies = bufio.NewReader(conn)
		begin = time.Now()
		post("Content-Length: 20", "{")
		if code, took := answer(), time.Since(begin); code != 408 || took < 30*time.Second ||
			took > 31*time.Second {
			t.Errorf("a body that stops: %d after %v", code, took)
		}
	})
}

// TestBodiesMustKeepPace checks how long the call waits for a body that stops after some bytes, or
// comes slowly, with a length and chunked.
func TestBodiesMustKeepPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listen(t, newHandler(t, &fake{find: func(
			context.Context, *mooringv1.FindRequest,
		) (*mooringv1.FindResponse, error) {
			return &mooringv1.FindResponse{}, nil
		}}))
		for _, row := range []struct {
			name          string
			pieces, bytes int // that are sent, one each second
			code          int
			from, to      time.Duration // when the answer comes
		}{
			{"nothing", 0, 0, 408, 30 * time.Second, 31 * time.Second},
			{"much at once, and no more", 1, 4 << 20, 408, 29 * time.Second, 33 * time.Second},
			{"bytes", 60, 1, 408, 29 * time.Second, 31 * time.Second},
			{"8 KiB a second", 120, 8 << 10, 408, 35 * time.Second, 70 * time.Second},
			{"32 KiB a second", 120, 32 << 10, 200, 119 * time.Second, 121 * time.Second},
		} {
			for _, chunked := range []bool{false, true} {
				conn := l.dial()
				length := fmt.Sprintf("Content-Length: %d", 32<<20)
				if row.code == 200 {
					length = fmt.Sprintf("Content-Length: %d", row.pieces*row.bytes)
				}
				if chunked {
					length = "Transfer-Encoding: chunked"
				}
				begin := time.Now()
				go func() {
					send := func(text string) {
						if chunked && text != "" {
							text = fmt.Sprintf("%x\r\n%s\r\n", len(text), text)
						}
						_, _ = io.WriteString(conn, text) // the server may have given up
					}
					_, _ = io.WriteString(conn,
						"POST "+documents+
							":find HTTP/1.1\r\nHost: db\r\nContent-Type: application/json\r\n"+
							length+"\r\n\r\n")
					for range row.pieces {
						send(strings.Repeat(" ", row.bytes))
						time.Sleep(time.Second) //nolint:forbidigo // fake time
					}
					if chunked && row.code == 200 {
						_, _ = io.WriteString(conn, "0\r\n\r\n")
					}
				}()
				reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("%s: %v", row.name, err)
				}
				_ = reply.Body.Close()
				if took := time.Since(begin); reply.StatusCode != row.code || took < row.from ||
					took > row.to {
					t.Errorf("%s, chunked %v: %d after %v, want %d after %v to %v", row.name,
						chunked, reply.StatusCode, took, row.code, row.from, row.to)
				}
				_ = conn.Close()
			}
		}
	})
}

// net/http itself waits for a body that no handler reads. Its client cannot hold the connection's
// goroutine for longer than the client of a body that is read.
func TestBodiesThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{find: func(
			context.Context, *mooringv1.FindRequest,
		) (*mooringv1.FindResponse, error) {
			return &mooringv1.FindResponse{}, nil
		}}
		l := listen(t, newHandler(t, f))
		for _, c := range []struct {
			name, request string
			code          int
			after         time.Duration
		}{
			{"no route", "POST /v1/nothing HTTP/1.1\r\nContent-Length: 20", 404, 10 * time.Second},
			{"another method", "POST /healthz HTTP/1.1\r\nContent-Length: 20", 405, 10 * time.Second},
			{"a page", "GET /healthz HTTP/1.1\r\nContent-Length: 20", 200, 10 * time.Second},
			{"a content type", "POST " + documents + ":find HTTP/1.1\r\nContent-Type: text/html\r\nContent-Length: 20", 415, 10 * time.Second},
			{"a GET", "GET " + documents + " HTTP/1.1\r\nContent-Length: 20", 408, 30 * time.Second},
		} {
			conn := l.dial()
			begin := time.Now()
			if _, err := io.WriteString(conn, c.request+"\r\nHost: db\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			replies := bufio.NewReader(conn)
			reply, err := http.ReadResponse(replies, nil)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			_, _ = io.Copy(io.Discard, reply.Body)
			_ = reply.Body.Close()
			if _, err := replies.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("%s: the connection is open: %v", c.name, err)
			}
			if took := time.Since(begin); reply.StatusCode != c.code || took > c.after+time.Second {
				t.Errorf("%s: %d, and closed after %v", c.name, reply.StatusCode, took)
			}
			_ = conn.Close()
		}
	})
}

// A GET with a body is refused, because its body would be ignored.
func TestBodiesOfGETs(t *testing.T) {
	f := &fake{find: func(
		context.Context, *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		return &mooringv1.FindResponse{}, nil
	}}
	h := newHandler(t, f)
	for _, c := range []struct {
		body   io.Reader
		length int64
		code   int
	}{
		{nil, 0, 200},
		{strings.NewReader(""), -1, 200}, // as over HTTP/2: no length
		{strings.NewReader("{}"), 2, 400},
		{strings.NewReader("{}"), -1, 400},
		{&errorReader{strings.NewReader(""), io.ErrUnexpectedEOF}, 2, 499},
	} {
		r := httptest.NewRequest(http.MethodGet, documents, c.body)
		r.ContentLength = c.length
		if w := serve(h, r); w.Code != c.code {
			t.Errorf("a body of length %d: %d %s, want %d", c.length, w.Code, w.Body, c.code)
		}
	}
}
