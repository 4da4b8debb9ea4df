package app_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestWhatIsNoRequest sends bytes that net/http answers itself. The answers have the shape of all
// errors.
func TestWhatIsNoRequest(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	g := start(t, mongo.URI())
	authority := certtest.Authority(t, certtest.ECDSA).Issue(t, "127.0.0.1")
	secure := start(t, mongo.URI(),
		"--tls-certificate-file", certtest.File(t, "crt", authority.CertificateBlock()),
		"--tls-key-file", certtest.File(t, "key", authority.KeyBlock(t)))
	long := strings.Repeat("x", 100<<10)
	for _, row := range []struct {
		name, bytes string
		of          *gateway
		code        int
		reason, why string
	}{
		{"no HTTP", "nonsense\r\n\r\n", g, 400, "InvalidArgument", "Bad Request"},
		{"no Host", "GET / HTTP/1.1\r\n\r\n", g, 400, "InvalidArgument", "missing required Host"},
		{
			"malformed Host", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", g, 400, "InvalidArgument",
			"malformed Host header",
		},
		{
			"a header's value", "GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", g, 400,
			"InvalidArgument", "Bad Request",
		},
		{
			"a long header", "GET / HTTP/1.1\r\nHost: a\r\nX: " + long + "\r\n\r\n", g, 431,
			"HeaderTooLarge", "Request Header Fields Too Large",
		},
		{
			"an encoding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n", g, 501,
			"Unimplemented", "Unsupported transfer encoding",
		},
		{
			"a version", "GET / HTTP/7.0\r\nHost: a\r\n\r\n", g, 505, "InvalidArgument",
			"unsupported protocol version",
		},
		{
			"Expect", "GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", g, 417,
			"InvalidArgument", "100-continue",
		},
		{
			"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", g, 404, "RouteNotFound",
			"",
		},
		{
			"behind a request that was answered",
			"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nnonsense\r\n\r\n", g, 400,
			"InvalidArgument", "Bad Request",
		},
		{
			"plain text to TLS", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", secure, 400,
			"InvalidArgument", "HTTP request to an HTTPS server",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", row.of.Addresses().REST)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, row.bytes); err != nil {
				t.Fatal(err)
			}
			from := bufio.NewReader(conn)
			resp, err := http.ReadResponse(from, nil)
			if err == nil && resp.StatusCode == http.StatusOK { // of the request before
				_, _ = io.Copy(io.Discard, resp.Body)
				resp, err = http.ReadResponse(from, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var body struct {
				Error struct{ Reason, Message, RequestID string }
			}
			if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
				t.Fatalf("%s: %v", resp.Status, err)
			}
			if resp.StatusCode != row.code || body.Error.Reason != row.reason ||
				!strings.Contains(body.Error.Message, row.why) {
				t.Errorf("%s %+v, want %d %s: … %s", resp.Status, body.Error, row.code,
					row.reason, row.why)
			}
			id := resp.Header.Get("Mooring-Request-Id")
			if id == "" || id != body.Error.RequestID {
				t.Errorf("id %q in the header, %q in the body", id, body.Error.RequestID)
			}
		})
	}
	g.stop()
	secure.stop()
}
