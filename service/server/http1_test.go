package server_test

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/server"
)

// echo answers with what it has got of a request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, "<"+r.Method+" "+r.Host+" "+r.URL.Path+" "+string(body)+">")
}

var statusLine = regexp.MustCompile(`HTTP/1\.[01] (\d{3})`)

// TestFraming sends bytes to the port of REST, and then a request that is a probe: what is
// answered, and does the connection go on? A proxy in front may see the end of a request elsewhere,
// so a request whose end is in doubt must be the last one.
func TestFraming(t *testing.T) {
	r := newRig(t, nil)
	server.SetREST(r.Server, http.HandlerFunc(echo))
	r.start(t)
	defer func() {
		close(r.finish)
		r.stop(t)
	}()
	const (
		host    = " HTTP/1.1\r\nHost: h\r\n"
		end     = "\r\n"
		length  = "Content-Length: 3\r\n"
		chunked = "Transfer-Encoding: chunked\r\n"
		chunks  = "3\r\nabc\r\n0\r\n\r\n"
		get     = "GET /a" + host + end
		post    = "POST /a" + host
	)
	for _, row := range []struct {
		name, send string
		status     []string
		has        string // in the answer
		goesOn     bool
	}{
		{"GET", get, []string{"200"}, "<GET h /a >", true},
		{"two at once", get + get, []string{"200", "200"}, "", true},
		{"HEAD", "HEAD /a" + host + end, []string{"200"}, "Content-Length: 12\r\n", true},
		{"a length", post + length + end + "abc", []string{"200"}, "<POST h /a abc>", true},
		{"chunks", post + chunked + end + chunks, []string{"200"}, "<POST h /a abc>", true},
		{"chunks after a length", post + length + end + "abc" + post + chunked + end + chunks, []string{"200", "200"}, "", true},
		{"trailers", post + chunked + "Trailer: x\r\n" + end + "3\r\nabc\r\n0\r\nx: y\r\n\r\n", []string{"200"}, "abc>", true},
		{"both", post + length + chunked + end + chunks, []string{"200"}, "<POST h /a abc>", false},
		{"both, the other way round", post + chunked + length + end + chunks, []string{"200"}, "abc>", false},
		{"both, in other letters", post + chunked + "cOnTeNt-LENGTH:3\r\n" + end + chunks, []string{"200"}, "abc>", false},
		{"both, at once after others", get + post + length + end + "abc" + post + length + chunked + end + chunks, []string{"200", "200", "200"}, "", false},
		{"HTTP/1.0 with both", "POST /a HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n" + length + chunked + end + "abc", []string{"200"}, "abc>", false},
		{"HTTP/1.0", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", []string{"200"}, "", false},
		{"two lengths", post + length + "Content-Length: 4\r\n" + end + "abcd", []string{"400"}, "", false},
		{"a length with a sign", post + "Content-Length: +3\r\n" + end + "abc", []string{"400"}, "", false},
		{"a list of lengths", post + "Content-Length: 3, 3\r\n" + end + "abc", []string{"400"}, "", false},
		{"chunks of chunks", post + "Transfer-Encoding: chunked, chunked\r\n" + end + chunks, []string{"501"}, "", false},
		{"another coding", post + "Transfer-Encoding: gzip, chunked\r\n" + end + chunks, []string{"501"}, "", false},
		{"two codings", post + chunked + "Transfer-Encoding: identity\r\n" + end + chunks, []string{"501"}, "", false},
		{"a space before the colon", post + "Content-Length : 3\r\n" + end + "abc", []string{"400"}, "", false},
		{"a field of two lines", post + "X: a\r\n b\r\n" + length + end + "abc", []string{"200"}, "abc>", true},
		{"a chunk of no size", post + chunked + end + "x\r\nabc\r\n0\r\n\r\n", []string{"400"}, "", false},
		{"a chunk that is too large", post + chunked + end + "fffffffffffffffff\r\nabc", []string{"400"}, "", false},
		{"a chunk that is longer than its size", post + chunked + end + "3\r\nabcd\r\n0\r\n\r\n", []string{"400"}, "", false},
		{"two hosts", "GET /a" + host + "Host: i\r\n" + end, []string{"400"}, "", false},
		{"no host", "GET /a HTTP/1.1\r\n\r\n", []string{"400"}, "", false},
		{"a whole URL", "GET http://i/a" + host + end, []string{"200"}, "<GET i /a >", true},
		{"100-continue", post + length + "Expect: 100-continue\r\n" + end + "abc", []string{"100", "200"}, "abc>", true},
		{"an unknown expectation", post + length + "Expect: x\r\n" + end + "abc", []string{"417"}, "", false},
		{"an upgrade to HTTP/2", "GET /a" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n" + end, []string{"200"}, "<GET h /a >", true},
		{"all options", "OPTIONS *" + host + end, []string{"200"}, "<OPTIONS h * >", true},
		{"long fields", "GET /a" + host + "X: " + strings.Repeat("x", 100<<10) + "\r\n" + end, []string{"431"}, "", false},
		{"many fields", "GET /a" + host + strings.Repeat("X:y\r\n", 20<<10) + end, []string{"431"}, "", false},
		{"no HTTP", "hello\r\n\r\n", []string{"400"}, "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			nc, err := net.Dial("tcp", r.Addresses().REST)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = nc.Close() }()
			probe := "GET /probe" + host + "Connection: close\r\n" + end
			if _, err := io.WriteString(nc, row.send+probe); err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(nc) // the server may reset the connection
			var status []string
			for _, m := range statusLine.FindAllSubmatch(answer, -1) {
				status = append(status, string(m[1]))
			}
			want := row.status
			if row.goesOn {
				want = append(want, "200")
			}
			goesOn := strings.Contains(string(answer), "<GET h /probe >")
			if !slices.Equal(status, want) || goesOn != row.goesOn ||
				!strings.Contains(string(answer), row.has) {
				t.Errorf("status %q, want %q; the connection goes on: %t\n%.500s", status, want,
					goesOn, answer)
			}
		})
	}
}

// TestLengths checks that a field is counted however it is split.
func TestLengths(t *testing.T) {
	text := "POST / HTTP/1.1\r\nContent-Length: 1\nX: " +
		"content-length\r\n\ncontent-lengtx\n\nCONTENT-LENGTH\r\ncontent\rlength"
	for size := 1; size <= len(text); size++ {
		var pieces []string
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if n := server.Lengths(pieces); n != 2 {
			t.Errorf("in pieces of %d bytes there are %d fields, want 2", size, n)
		}
	}
}
