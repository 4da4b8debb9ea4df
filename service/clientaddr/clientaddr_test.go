package clientaddr_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/clientaddr"
)

func prefixes(t testing.TB, texts ...string) (list []netip.Prefix) {
	t.Helper()
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// TestClient checks whose word on a client's address counts, with the proxies 10.0.0.0/8 and
// 2001:db8:f::/48.
func TestClient(t *testing.T) {
	const proxy, client = "10.0.0.1", "192.0.2.7"
	x, f := clientaddr.XForwardedFor, clientaddr.Forwarded
	for _, row := range []struct {
		name   string
		header clientaddr.Header
		from   string
		lines  []string
		want   string
	}{
		{"no header is read", clientaddr.NoHeader, proxy, []string{client}, proxy},
		{"a stranger's word", x, "203.0.113.5", []string{client}, "203.0.113.5"},
		{"a stranger's word in Forwarded", f, "203.0.113.5", []string{"for=" + client}, "203.0.113.5"},
		{"a proxy without the header", x, proxy, nil, proxy},
		{"a proxy with an empty header", x, proxy, []string{"", " , "}, proxy},
		{"one proxy", x, proxy, []string{client}, client},
		{"a proxy by IPv4 in IPv6", x, "::ffff:10.0.0.1", []string{client}, client},
		{"a proxy of IPv6 with a zone", x, "2001:db8:f::1%eth0", []string{client}, client},
		{"the client's own word", x, proxy, []string{"198.51.100.1, " + client}, client},
		{"the client claims to be a proxy", x, proxy, []string{"198.51.100.1, 10.9.9.9, " + client}, client},
		{"two proxies", x, proxy, []string{"198.51.100.1, " + client + ", 10.0.0.2"}, client},
		{"two lines", x, proxy, []string{"198.51.100.1", client + ",10.0.0.2"}, client},
		{"the last line alone", x, proxy, []string{"198.51.100.1", client}, client},
		{"proxies of both versions of IP", x, proxy, []string{client + ", 2001:db8:f::2"}, client},
		{"only proxies", x, proxy, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"with ports", x, proxy, []string{client + ":4711, [2001:db8:f::2]:443"}, client},
		{"IPv6", x, proxy, []string{"2001:db8::7"}, "2001:db8::7"},
		{"IPv6 in brackets", x, proxy, []string{"[2001:db8::7]"}, "2001:db8::7"},
		{"IPv4 in IPv6", x, proxy, []string{"::ffff:192.0.2.7"}, client},
		{"unknown", x, proxy, []string{client + ", unknown"}, proxy},
		{"a second proxy that does not know", x, proxy, []string{"unknown, 10.0.0.2"}, "10.0.0.2"},
		{"a zone", x, proxy, []string{"fe80::1%eth0"}, proxy},
		{"no port after the colon", x, proxy, []string{client + ":"}, proxy},
		{"IPv4 in brackets", x, proxy, []string{"[192.0.2.7]"}, proxy},
		{"open bracket", x, proxy, []string{"[2001:db8::7"}, proxy},
		{"text behind the bracket", x, proxy, []string{"[2001:db8::7]x"}, proxy},
		{"empty elements", x, proxy, []string{client + ", ,"}, client},
		{"a quote of the client", x, proxy, []string{`"x, ` + client}, client},
		{"Forwarded is not read", x, proxy, []string{"for=" + client}, proxy},

		{"Forwarded", f, proxy, []string{"for=" + client}, client},
		{"any case, other parameters", f, proxy, []string{`proto=https;FOR="` + client + `:80";by=10.0.0.1`}, client},
		{"quoted IPv6", f, proxy, []string{`for="[2001:db8::7]:4711"`}, "2001:db8::7"},
		{"an invented port", f, proxy, []string{`for="192.0.2.7:_x"`}, client},
		{"Forwarded by two proxies", f, proxy, []string{"for=198.51.100.1, for=" + client + `;host="a,b;c", for=10.0.0.2`}, client},
		{"space around parameters", f, proxy, []string{"for=" + client + " ; proto=http"}, client},
		{"space around a quoted parameter", f, proxy, []string{`for="` + client + `" ; proto=http`}, client},
		{"an open quote of the client", f, proxy, []string{`for="x, for=` + client}, client},
		{"an open quote with a backslash", f, proxy, []string{`for="\, for="` + client + `"`}, client},
		{"an escaped quote of the client", f, proxy, []string{`for="\"", for=` + client}, client},
		{"an escaped quote and a comma of the proxy", f, proxy, []string{`for=198.51.100.1, for=` + client + `;host="\",for=1.1.1.1"`}, client},
		{"obfuscated", f, proxy, []string{"for=" + client + ", for=_hidden"}, proxy},
		{"unknown in Forwarded", f, proxy, []string{"for=unknown"}, proxy},
		{"no for", f, proxy, []string{"proto=https"}, proxy},
		{"for twice", f, proxy, []string{"for=" + client + ";for=198.51.100.1"}, proxy},
		{"an empty for, and another", f, proxy, []string{`for="";proto=http`}, proxy},
		{"no pair", f, proxy, []string{client}, proxy},
		{"no name", f, proxy, []string{"=" + client}, proxy},
		{"text behind a quoted string", f, proxy, []string{`for="` + client + `"x`}, proxy},
		{"a quote within a token", f, proxy, []string{`for=192.0.2.7"`}, proxy},
		{"ends with a semicolon", f, proxy, []string{"for=" + client + ";"}, proxy},
	} {
		p := &clientaddr.Proxies{
			Networks: prefixes(t, "10.0.0.0/8", "2001:db8:f::/48"), Header: row.header,
		}
		if got := p.Client(netip.MustParseAddr(row.from),
			row.lines); got != netip.MustParseAddr(row.want) {
			t.Errorf("%s: Client(%s, %q) = %s, want %s", row.name, row.from, row.lines, got,
				row.want)
		}
	}
	var none *clientaddr.Proxies
	if got := none.Client(netip.MustParseAddr("::ffff:10.0.0.1"),
		[]string{client}); got.String() != proxy {
		t.Errorf("without proxies: %s", got)
	}
	some := &clientaddr.Proxies{Networks: prefixes(t, "0.0.0.0/1"), Header: x}
	if got := some.Client(netip.Addr{}, []string{client}); got.IsValid() ||
		none.Lists(netip.MustParseAddr(proxy)) {
		t.Errorf("a Unix domain socket: %s", got)
	}
}

func TestNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1:2:3:4": "2001:db8::",
		"fe80::1%eth0": "fe80::",
	} {
		if got := clientaddr.Network(netip.MustParseAddr(text)); got.String() != want {
			t.Errorf("Network(%s) = %s, want %s", text, got, want)
		}
	}
	if got := clientaddr.Network(netip.Addr{}); got.IsValid() {
		t.Errorf("Network of no address = %s", got)
	}
}

// FuzzClient checks that what a client writes into a header changes nothing of what its proxy
// appends, in the same line or in one of its own.
func FuzzClient(f *testing.F) {
	for _, text := range []string{
		"", `"`, `\`, `"\`, `for="`, `for="\",`, "1.2.3.4", "for=10.0.0.1", ",", `a="b;`, "[::1",
	} {
		f.Add(text)
	}
	networks := prefixes(f, "10.0.0.0/8")
	proxy, client := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.7")
	f.Fuzz(func(t *testing.T, text string) {
		for header, appended := range map[clientaddr.Header][]string{
			clientaddr.XForwardedFor: {"192.0.2.7", "192.0.2.7, 10.0.0.2"},
			clientaddr.Forwarded:     {"for=192.0.2.7", `proto=http;for="192.0.2.7:1";host="a,b", for=10.0.0.2`},
		} {
			p := &clientaddr.Proxies{Networks: networks, Header: header}
			for _, end := range appended {
				for _, lines := range [][]string{{text, end}, {text + "," + end}} {
					if got := p.Client(proxy, lines); got != client {
						t.Errorf("Client(%q) = %s", lines, got)
					}
				}
			}
			if got := p.Client(client, []string{text}); got != client {
				t.Errorf("a stranger's %q makes it %s", text, got)
			}
			if got := p.Client(proxy, []string{text}); !got.IsValid() || got.Zone() != "" {
				t.Errorf("Client(%q) = %s", text, got)
			}
		}
	})
}

// header2 returns a header of version 2.
func header2(versionAndCommand, family byte, body string) string {
	return "\r\n\r\n\x00\r\nQUIT\n" +
		string([]byte{versionAndCommand, family, byte(len(body) >> 8), byte(len(body))}) + body
}

const (
	ends4 = "\xc0\x00\x02\x07" + "\x0a\x00\x00\x01" + "\x12\x67" + "\x01\xbb"
	ends6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" + "\x12\x67" + "\x01\xbb"
)

// TestDecode checks the headers of the PROXY protocol, each whole, with data behind it, and cut
// after each of its bytes.
func TestDecode(t *testing.T) {
	mapped := "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x07" + ends6[16:]
	for _, row := range []struct {
		name, header, want string // want: an address, none, or a part of the error
	}{
		{"version 1", "PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n", "192.0.2.7:4711"},
		{"version 1, IPv6", "PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n", "[2001:db8::7]:4711"},
		{"version 1, IPv4 in IPv6", "PROXY TCP6 ::ffff:192.0.2.7 ::ffff:10.0.0.1 4711 443\r\n", "192.0.2.7:4711"},
		{"version 1, unknown", "PROXY UNKNOWN\r\n", "none"},
		{"version 1, unknown with more", "PROXY UNKNOWN ffff:f...f:ffff x 1 2\r\n", "none"},
		{"version 1, the wrong family", "PROXY TCP6 192.0.2.7 10.0.0.1 4711 443\r\n", "malformed"},
		{"version 1, the wrong family of the other end", "PROXY TCP4 192.0.2.7 ::1 4711 443\r\n", "malformed"},
		{"version 1, another protocol", "PROXY UDP4 192.0.2.7 10.0.0.1 4711 443\r\n", "malformed"},
		{"version 1, two spaces", "PROXY TCP4  192.0.2.7 10.0.0.1 4711 443\r\n", "malformed"},
		{"version 1, no ports", "PROXY TCP4 192.0.2.7 10.0.0.1\r\n", "malformed"},
		{"version 1, a port that is none", "PROXY TCP4 192.0.2.7 10.0.0.1 65536 443\r\n", "malformed"},
		{"version 1, a port with a zero", "PROXY TCP4 192.0.2.7 10.0.0.1 0443 443\r\n", "malformed"},
		{"version 1, a zone", "PROXY TCP6 fe80::1%a fe80::2 1 2\r\n", "malformed"},
		{"version 1, a name", "PROXY TCP4 localhost 10.0.0.1 1 2\r\n", "malformed"},
		{"version 1, empty", "PROXY \r\n", "malformed"},
		{"version 1, as long as it may be", "PROXY UNKNOWN " + strings.Repeat("x", 107-16) + "\r\n", "none"},
		{"version 1, too long", "PROXY UNKNOWN " + strings.Repeat("x", 107-15) + "\r\n", "too long"},
		{"version 2", header2(0x21, 0x11, ends4), "192.0.2.7:4711"},
		{"version 2, IPv6", header2(0x21, 0x21, ends6), "[2001:db8::7]:4711"},
		{"version 2, IPv4 in IPv6", header2(0x21, 0x21, mapped), "192.0.2.7:4711"},
		{"version 2, extensions", header2(0x21, 0x11, ends4+"\x04\x00\x01\x00"), "192.0.2.7:4711"},
		{"version 2, local", header2(0x20, 0x00, ""), "none"},
		{"version 2, local with addresses", header2(0x20, 0x11, ends4), "none"},
		{"version 2, unspecified", header2(0x21, 0x00, "\x04\x00\x01\x00"), "none"},
		{"version 2, a Unix domain socket", header2(0x21, 0x31, strings.Repeat("\x00", 216)), "none"},
		{"version 2, short", header2(0x21, 0x11, ends4[:11]), "malformed"},
		{"version 2, short IPv6", header2(0x21, 0x21, ends6[:35]), "malformed"},
		{"version 2, datagrams", header2(0x21, 0x12, ends4), "malformed"},
		{"version 2, another command", header2(0x22, 0x11, ends4), "malformed"},
		{"version 3", header2(0x31, 0x11, ends4), "malformed"},
		{"version 1 in binary", header2(0x11, 0x11, ends4), "malformed"},
		{"version 2, as long as it may be", header2(0x21, 0x11, ends4+strings.Repeat("x", clientaddr.MaxPROXY-16-12)), "192.0.2.7:4711"},
		{"version 2, too long", header2(0x21, 0x11, ends4+strings.Repeat("x", clientaddr.MaxPROXY-15-12)), "too long"},
		{"TLS", "\x16\x03\x01\x02\x00\x01", "does not begin"},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", "does not begin"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "does not begin"},
		{"almost version 2", "\r\n\r\n\x00\r\nQUIT\r" + "\x21\x11\x00\x00", "does not begin"},
	} {
		for _, more := range []string{"", "GET / HTTP/1.1\r\n\r\n"} {
			got, n, err := clientaddr.Decode([]byte(row.header + more))
			if text := described(got, n, err); !strings.Contains(text, row.want) ||
				err == nil && n != len(row.header) {
				t.Errorf("%s: Decode = %s with %d of %d bytes, want %s", row.name, text, n,
					len(row.header), row.want)
			}
		}
		if row.want == "none" || strings.Contains(row.want, ":") {
			for i := range row.header {
				if got, n, err := clientaddr.Decode([]byte(row.header[:i])); described(got, n,
					err) != "more" {
					t.Errorf("%s: Decode of %d bytes = %s, want more", row.name, i,
						described(got, n, err))
				}
			}
		}
	}
}

func described(a netip.AddrPort, n int, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case n == 0:
		return "more"
	case !a.IsValid():
		return "none"
	}
	return a.String()
}

func TestBeginsPROXY(t *testing.T) {
	for text, want := range map[string]bool{
		"PROXY TCP4 ": true, header2(0x21, 0x11, ""): true, "PROXY": false, "\r\n\r\n": false,
		"PRI * HTTP/2.0\r\n": false, "GET / HTTP/1.1\r\n": false, "\x16\x03\x01": false, "": false,
	} {
		if got := clientaddr.BeginsPROXY([]byte(text)); got != want {
			t.Errorf("BeginsPROXY(%q) = %t", text, got)
		}
	}
}

// FuzzDecode checks that a header is not longer than its bytes and the bound, that a longer text
// with the same beginning has the same header, and that no text makes Decode wait beyond the bound.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n", "PROXY UNKNOWN\r\n", header2(0x21, 0x11, ends4),
		header2(0x21, 0x21, ends6), header2(0x20, 0, ""), "GET / HTTP/1.1\r\n",
	} {
		f.Add([]byte(text), []byte("x"))
	}
	f.Fuzz(func(t *testing.T, text, more []byte) {
		a, n, err := clientaddr.Decode(text)
		if n < 0 || n > min(len(text), clientaddr.MaxPROXY) ||
			err != nil && (n != 0 || a.IsValid()) {
			t.Fatalf("Decode = %s, %d, %v", a, n, err)
		}
		if a.Addr().Zone() != "" || a.Addr().Is4In6() {
			t.Errorf("Decode = %s", a)
		}
		if n == 0 && err == nil {
			if len(text) >= clientaddr.MaxPROXY {
				t.Error("Decode waits for more than the bound")
			}
			return
		}
		a2, n2, err2 := clientaddr.Decode(append(text[:len(text):len(text)], more...))
		if a2 != a || n2 != n || (err2 == nil) != (err == nil) {
			t.Errorf("Decode = %s, %d, %v and with more %s, %d, %v", a, n, err, a2, n2, err2)
		}
	})
}
