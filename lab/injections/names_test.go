package injections

import "encoding/binary"

// segments has what is written into a path as it is: for a database, a collection, a document's id
// or a ticket. It is percent-encoded where the attacker would.
var segments = []string{
	"", ".", "..", "%2e", "%2e%2e", "..%2f@other", "%2e%2e%2f%2e%2e", "@other%2forders",
	"@other%252forders", "..%5c@other", "@other%00", "%00", "%0d%0aInjected:%201", "%0a", "%20",
	"%c0%af", "%c0%ae%c0%ae", "%ff", "%ed%a0%80", "%e2%80%ae", "%ef%bc%8f", "%zz", "%", "%2",
	"~", "~Lw", "~Li4", "~!", "~JGNtZA", "~AA", "~" + "AAAA", "%7eLw", "$cmd", "%24cmd",
	"$cmd.listCollections", "system.users", "system.views", "SYSTEM.users", "System.Profile",
	"system.buckets.vault", "admin", "Admin", "local", "config", "$external", "@other", "@OTHER",
	"@other.orders", "@shared", "a.b", ".a", "a.", "a..b", "orders:drop", "orders%3adrop",
	"orders:find:drop", ":drop", "orders;x=1", "orders?x=%00", "orders%3fx", "*", "{database}",
	"orders/../vault", "orders/%2e%2e/vault", "orders%2f..%2fvault", "orders//", "'", "\"",
	"%22%24ne%22", "{%22$ne%22:1}", "%7b%22%24gt%22%3a%22%22%7d", "[1]", "null", "1e400",
	"%7b%22%24oid%22%3a%22x%22%7d", "0123456789abcdef01234567", "1001", "1001%00", "%221001%22",
	"%7b%22%24where%22%3a%22true%22%7d", "__proto__", "constructor", "vault", "Orders", "orders%20",
}

// names has names as gRPC and the Data API have them, in fields of their own.
var names = []string{
	"", ".", "..", "/", "\\", "@other/orders", "@other.orders", "orders.@other", "@other\x00",
	"\x00", "orders\x00x", "\r\nInjected: 1", " ", "$", "$cmd", "$cmd.listCollections",
	"@other.$cmd.listCollections", "orders.$cmd", "system.users", "system.views",
	"system.buckets.vault", "SYSTEM.users", "admin", "local", "config", "$external", "@other",
	"@shared", "vault", "a..b", ".a", "a.", "orders$", "\u202e", "ord\u0435rs", "\uff0fx",
	"a\"b", "*", "<>|", "oplog.rs", "__proto__", "{\"$ne\": 1}",
}

// tokens has values of headers and of fields that name a cursor, a session, a transaction, a
// ticket, an ETag or a key. @cursor, @session and @ticket are the other tenant's.
var tokens = []string{
	"@cursor", "@cursor=", "@cursor.@cursor", "A@cursor", "@session", "@sessionx", "@ticket",
	"@ticket%00", "@key", "", "0", "-1", "null", "*", `""`, `"`, `W/"x"`, `"x", "y"`, `"*"`,
	"AAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "../../x", "{\"$ne\": 1}", "[]",
	"$cmd", "%00", "%0d%0aInjected: 1", "'; return true; //", "a,b", "a;b=c", "=?utf-8?q?x?=",
	"\u202e", "return=minimal", "()", "1e400", "9223372036854775808", "5 s", "infinity", "@other",
	"Bearer @cursor", "Basic YTpi",
}

// splits has headers that end early, as raw bytes after the request's first line.
var splits = []string{
	"Mooring-Request-Id: x\r\nInjected: 1", "Mooring-Request-Id: x\nInjected: 1",
	"Mooring-Request-Id: x\rInjected: 1", "Mooring-Request-Id: x\x00Injected: 1",
	"Mooring-Request-Id: x\r\n Injected: 1", "Mooring-Request-Id : x", "Mooring-Request-Id",
	": x", "Idempotency-Key: a\r\nIdempotency-Key: b", "Api-Key: \r\n", "Host: @other",
	"Transfer-Encoding: chunked", "Transfer-Encoding: x, chunked", "Content-Length: -1",
	"Content-Length: 2\r\nContent-Length: 3", "Content-Type: application/json\x0b",
	"Content-Type: text/x;\u00e9", "X-Http-Method-Override: DELETE", "X-Original-Url: /v1/databases",
	"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: @other", "Connection: api-key",
	"Expect: 100-continue", "Expect: x", "Upgrade: h2c\r\nConnection: Upgrade", "Range: bytes=0-0",
	"Accept: */*;q=\x7f", "Accept-Encoding: \xff", "Cookie: $Version=1; api-key=x", "Trailer: Api-Key",
	"Mooring-Session: \xc0\xaf", "If-Match: \"\x80\"", "Last-Event-Id: \r\nInjected: 1",
	"Traceparent: 00-00000000000000000000000000000000-0000000000000000-ff", "Origin: null",
	"Request-Timeout: 0x10", "Forwarded: for=\"[::1]\";host=@other", "Te: trailers, \x01",
}

// documents has BSON of gRPC, valid and malformed.
var documents = [][]byte{
	nil,
	{0},
	{5, 0, 0, 0},
	{5, 0, 0, 0, 1},
	{4, 0, 0, 0, 0},
	{6, 0, 0, 0, 0, 0},
	{255, 255, 255, 255, 0},
	{255, 255, 255, 127, 0},
	{0, 0, 0, 128, 0},
	document(0x10, "a", 1, 0, 0), document(0x10, "$where", 1, 0, 0, 0),
	document(0x10, "", 1, 0, 0, 0), document(0x02, "s", 0, 0, 0, 0),
	document(0x02, "s", 255, 255, 255, 255, 0), document(0x02, "s", 255, 255, 255, 127, 0),
	document(0x02, "s", 2, 0, 0, 0, 'a', 'b'), document(0x02, "s", 3, 0, 0, 0, 0xc0, 0xaf, 0),
	document(0x02, "\xff", 1, 0, 0, 0, 0), document(0x02, "$where", 5, 0, 0, 0, 't', 'r', 'u', 'e', 0),
	document(0x03, "a", 5, 0, 0, 0, 1), document(0x03, "a", 255, 255, 255, 255, 0),
	document(0x04, "$or", 5, 0, 0, 0, 0), document(0x04, "$or", 13, 0, 0, 0, 3, 'x', 0, 5, 0, 0, 0, 0, 0),
	document(0x05, "b", 255, 255, 255, 255, 0), document(0x05, "b", 4, 0, 0, 0, 2, 9, 0, 0, 0),
	document(0x05, "b", 0, 0, 0, 0, 6), document(0x05, "b", 2, 0, 0, 0, 9, 0x10, 9),
	document(0x06, "u"), document(0x07, "o", 1, 2, 3), document(0x08, "t", 2), document(0x09, "d", 1),
	document(0x0b, "r", 'a', 0, 'z', 'i', 0), document(0x0b, "r", 'a'), document(0x0b, "r", '(', 0, 0),
	document(0x0c, "p", 1, 0, 0, 0, 0, 1, 2), document(0x0d, "$where", 2, 0, 0, 0, '1', 0),
	document(0x0e, "y", 2, 0, 0, 0, 'y', 0), document(0x0f, "c", 4, 0, 0, 0),
	document(0x0f, "c", 15, 0, 0, 0, 2, 0, 0, 0, '1', 0, 5, 0, 0, 0, 0), document(0x11, "t", 1),
	document(0x12, "l", 1), document(0x13, "d", 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
		255, 255, 255, 255, 255), document(0x14, "x"), document(0x7f, "m"), document(0xff, "m"),
	document(0x80, "m"), document(0x0a, "a\x00b"), append(document(0x0a, "n"), 0),
}

// document returns a document of one element, with its length.
func document(kind byte, key string, value ...byte) []byte {
	d := append([]byte{0, 0, 0, 0, kind}, key...)
	d = append(append(append(d, 0), value...), 0)
	binary.LittleEndian.PutUint32(d, uint32(len(d)))
	return d
}
