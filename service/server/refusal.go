package server

import (
	"bytes"
	"strconv"
	"strings"
)

// net/http answers what is not HTTP, or breaks its limits, itself: as plain text, in one write to
// the connection, and without a hook. These answers are found by their first lines and replaced,
// while no handler answers on the connection. It cannot be done within TLS, where net/http needs
// tls.Conn itself.

// Refuse returns a whole HTTP/1.1 response that closes the connection.
type Refuse func(code int, why string) []byte

const (
	httpVersion = "HTTP/1.1 "
	// plainHeader follows the status line of net/http's answers, except for the next two.
	plainHeader = "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	// notTLS is the answer to plain text on a TLS connection, and unexpected the beginning of the
	// answer to a header Expect that net/http does not know.
	notTLS     = "HTTP/1.0 400 Bad Request\r\n\r\n"
	unexpected = "HTTP/1.1 417 Expectation Failed\r\n"
)

// readRefusal returns what an answer of net/http says. It reports whether the bytes of a write are
// such an answer.
func readRefusal(b []byte) (code int, why string, ok bool) {
	if text, ok := bytes.CutPrefix(b, []byte(notTLS)); ok {
		return 400, strings.TrimSpace(string(text)), true
	}
	if bytes.HasPrefix(b, []byte(unexpected)) {
		return 417, "the only Expect that the gateway supports is 100-continue", true
	}
	rest, ok := bytes.CutPrefix(b, []byte(httpVersion))
	status, rest, found := bytes.Cut(rest, []byte("\r\n"))
	text, plain := bytes.CutPrefix(rest, []byte(plainHeader))
	if !ok || !found || !plain || len(status) < 4 {
		return 0, "", false
	}
	code, err := strconv.Atoi(string(status[:3]))
	if err != nil {
		return 0, "", false
	}
	if _, after, ok := bytes.Cut(text, []byte(": ")); ok {
		text = after
	} else if bytes.Equal(text, status) {
		text = status[4:]
	}
	return code, string(text), true
}

// replace returns the bytes to write in place of b, which are b unless they are an answer of
// net/http.
func (r Refuse) replace(b []byte) []byte {
	if r == nil || len(b) < len(httpVersion) || b[0] != 'H' {
		return b
	}
	if code, why, ok := readRefusal(b); ok {
		return r(code, why)
	}
	return b
}
