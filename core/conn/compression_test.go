package conn_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/compress"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// compressing is a proxy of a server that cannot compress: it unpacks requests, records how
// each was compressed, and packs replies.
type compressing struct {
	server *fakemongo.Server
	reply  func(n int) compress.ID // the compressor of the n-th reply

	mu   sync.Mutex
	came []string // "command" or "command by compressor"
}

func (p *compressing) requests() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.came, ", ")
}

// none leaves a reply uncompressed.
const none compress.ID = 255

func dialCompressing(
	t *testing.T, cfg conn.Config, server *fakemongo.Server, reply func(n int) compress.ID,
) (*compressing, *conn.Conn) {
	t.Helper()
	p := &compressing{server: server, reply: reply}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		client, ours := net.Pipe()
		behind, err := server.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		running.Go(func() { p.requestsTo(behind, ours) })
		running.Go(func() { p.repliesTo(ours, behind) })
		return client, nil
	}
	c, err := conn.Dial(t.Context(), server.Address(), cfg)
	if err != nil {
		t.Fatalf("Dial() = %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return p, c
}

func (p *compressing) requestsTo(server, client net.Conn) {
	defer func() { _ = server.Close() }()
	r := bufio.NewReader(client)
	for {
		msg, err := wire.ReadFrom(r, 0)
		if err != nil {
			return
		}
		h, m, err := wire.Parse(msg)
		if err != nil {
			return
		}
		by := ""
		if packed, ok := m.(*wire.Compressed); ok {
			by = " by " + compress.ID(packed.Compressor).String()
			msg, err = compress.Decompress(packed.BeginOriginal(nil, h),
				compress.ID(packed.Compressor), int(packed.UncompressedSize), 1<<26, packed.Data)
			if err != nil {
				return
			}
			_, m, _ = wire.Parse(msg)
		}
		p.mu.Lock()
		p.came = append(p.came, commandOf(m)+by)
		p.mu.Unlock()
		if _, err := server.Write(msg); err != nil {
			return
		}
	}
}

func commandOf(m wire.Message) string {
	switch m := m.(type) {
	case *wire.Msg:
		return m.Body.FirstKey()
	case *wire.Query:
		return m.Query.FirstKey()
	default:
		return "?"
	}
}

func (p *compressing) repliesTo(client, server net.Conn) {
	defer func() { _ = client.Close() }()
	r := bufio.NewReader(server)
	for n := 0; ; n++ {
		msg, err := wire.ReadFrom(r, 0)
		if err != nil {
			return
		}
		if id := p.reply(n); id != none {
			packed := wire.BeginCompressed(nil, msg, uint8(id))
			packed = compress.Compress(packed, id, compress.DefaultLevel, msg[wire.HeaderSize:])
			wire.EndMsg(packed)
			msg = packed
		}
		if _, err := client.Write(msg); err != nil {
			return
		}
	}
}

func always(id compress.ID) func(int) compress.ID { return func(int) compress.ID { return id } }

// supporting returns a server whose hello lists the compressors that it shares with the client,
// in its own order.
func supporting(t *testing.T, names ...string) *fakemongo.Server {
	t.Helper()
	hello := func(cmd *fakemongo.Command) fakemongo.Reply {
		return fakemongo.Hello(cmd, func(b *bson.Builder) {
			offered := offer(cmd.Body)
			if !slices.ContainsFunc(names, func(name string) bool {
				return slices.Contains(offered, name)
			}) {
				return
			}
			b.OpenArray("compression")
			for _, name := range names {
				if slices.Contains(offered, name) {
					b.String("", name)
				}
			}
			b.Close()
		})
	}
	handlers := fakemongo.Handlers{"hello": hello}
	for _, name := range []string{
		"saslStart", "saslContinue", "createUser", "updateUser", "authenticate", "getnonce", "copydb", "serverStatus",
	} {
		handlers[name] = fakemongo.Always(fakemongo.Document(answer(1)))
	}
	return fakemongo.NewServer(t, handlers)
}

func offer(hello bson.Raw) (names []string) {
	v, _ := hello.Lookup("compression")
	array, _ := v.Array()
	for _, v := range array.All() {
		name, _ := v.Str()
		names = append(names, name)
	}
	return names
}

func fromURI(t *testing.T, uri string) (conn.Config, []connstring.Warning) {
	t.Helper()
	cfg, err := connstring.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	return conn.Config{Compressors: cfg.Compressors, ZlibLevel: cfg.ZlibCompressionLevel},
		cfg.Warnings
}

// The connection strings of the specification's test plan, with what the server supports and
// receives.
func TestCompressionProse(t *testing.T) {
	tests := []struct {
		uri, warning string
		server       []string
		offered      string
		want         string
	}{
		{"mongodb://localhost:27017/?compressors=snappy", "", []string{"snappy"}, "snappy", "ping by snappy"},
		{"mongodb://localhost:27017/?compressors=snoopy", "Unsupported compressor: 'snoopy'", []string{"snappy"}, "", "ping"},
		{"mongodb://localhost:27017/?compressors=snappy,zlib", "", []string{"zlib", "snappy"}, "snappy zlib", "ping by snappy"},
		{"mongodb://localhost:27017/?compressors=zlib,snappy", "", []string{"snappy", "zlib"}, "zlib snappy", "ping by zlib"},
		{"mongodb://localhost:27017/?compressors=zlib,snappy", "", []string{"snappy"}, "zlib snappy", "ping by snappy"},
		{"mongodb://localhost:27017/?compressors=zstd", "", []string{"snappy", "zstd", "zlib"}, "zstd", "ping by zstd"},
		{"mongodb://localhost:27017/?compressors=zstd", "", []string{"snappy"}, "zstd", "ping"},
		{"mongodb://localhost:27017/?compressors=zstd", "", nil, "zstd", "ping"},
		{"mongodb://localhost:27017/?compressors=zlib&zlibCompressionLevel=9", "", []string{"zlib"}, "zlib", "ping by zlib"},
		{"mongodb://localhost:27017/?compressors=snappy&zlibCompressionLevel=9", "", []string{"snappy"}, "snappy", "ping by snappy"},
		{"mongodb://localhost:27017/", "", []string{"snappy"}, "", "ping"},
	}
	for _, tt := range tests {
		t.Run(tt.uri+" with "+strings.Join(tt.server, ","), func(t *testing.T) {
			cfg, warnings := fromURI(t, tt.uri)
			if (len(warnings) > 0) != (tt.warning != "") ||
				tt.warning != "" && warnings[0].Problem != tt.warning {
				t.Errorf("warnings %q, want %q", warnings, tt.warning)
			}
			s := supporting(t, tt.server...)
			p, c := dialCompressing(t, cfg, s, always(none))
			if got := offer(s.Commands()[0].Body); strings.Join(got, " ") != tt.offered ||
				!s.Commands()[0].Body.Has("compression") {
				t.Errorf("hello offered %q, want %q", got, tt.offered)
			}
			reply, err := c.RoundTrip(t.Context(), message("ping", 0))
			if v, _ := reply.Lookup("ok"); err != nil || !v.Truthy() {
				t.Errorf("ping = %v, %v", reply, err)
			}
			if got := p.requests(); got != "isMaster, "+tt.want {
				t.Errorf("requests: %s, want isMaster, %s", got, tt.want)
			}
		})
	}
}

// Commands with secrets, and hello, are sent uncompressed from every caller; all others are
// compressed.
func TestForbiddenCommandsAreNotCompressed(t *testing.T) {
	s := supporting(t, "snappy")
	p, c := dialCompressing(t, conn.Config{Compressors: []string{"snappy"}}, s,
		always(compress.Snappy))
	if _, err := c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"saslStart", "saslContinue", "createUser", "updateUser", "authenticate", "getnonce", "copydb", "isMaster", "serverStatus",
	} {
		if _, err := c.RoundTrip(t.Context(), message(name, 0)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := c.Write(t.Context(), message("insert", wire.MoreToCome)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil {
		t.Fatal(err)
	}
	want := "isMaster, hello, saslStart, saslContinue, createUser, updateUser, authenticate, " +
		"getnonce, copydb, isMaster, " +
		"serverStatus by snappy, insert by snappy, ping by snappy"
	if got := p.requests(); got != want {
		t.Errorf("requests:\n%s, want\n%s", got, want)
	}
}

// A reply names its own compressor, whatever was negotiated, also the reply to the first hello.
func TestRepliesNameTheirCompressor(t *testing.T) {
	ids := []compress.ID{
		compress.Zstd, compress.Snappy, none, compress.Zlib, compress.Noop, compress.Zstd,
	}
	for _, offered := range [][]string{nil, {"zlib"}} {
		s := supporting(t, "zlib")
		s.Handle("find", fakemongo.Always(fakemongo.Document(answer(7))))
		_, c := dialCompressing(t, conn.Config{Compressors: offered}, s, func(n int) compress.ID {
			return ids[n]
		})
		for range ids[1:] {
			reply, err := c.RoundTrip(t.Context(), message("find", 0))
			if err != nil || number(t, reply) != 7 {
				t.Fatalf("RoundTrip() = %v, %v", reply, err)
			}
		}
	}
}

// A reply that the server streams may be compressed, too.
func TestStreamedRepliesMayBeCompressed(t *testing.T) {
	_, c := dialCompressing(t, conn.Config{Compressors: []string{"zstd"}}, supporting(t, "zstd"),
		always(compress.Zstd))
	reply, err := c.AwaitHello(t.Context(),
		&description.TopologyVersion{ProcessID: bson.ObjectID{1}, Counter: 1}, time.Second)
	if v, _ := reply.Lookup("isWritablePrimary"); err != nil || !v.Truthy() {
		t.Errorf("AwaitHello() = %v, %v", reply, err)
	}
}

// A compressed reply that is malformed breaks the connection, with an error that says why, also if
// there would be no room for the size that it claims.
func TestBadCompressedReplies(t *testing.T) {
	reply := func(id compress.ID, size int, data []byte) func(*fakemongo.Command) fakemongo.Reply {
		return func(cmd *fakemongo.Command) fakemongo.Reply {
			return fakemongo.Garbage(wire.Append(nil, wire.Header{ResponseTo: cmd.RequestID},
				&wire.Compressed{
					OriginalOpCode: wire.OpMsg, UncompressedSize: int32(size),
					Compressor: uint8(id), Data: data,
				}))
		}
	}
	good := wire.Append(nil, wire.Header{}, &wire.Msg{Body: answer(1)})[wire.HeaderSize:]
	packed := compress.Compress(nil, compress.Zlib, -1, good)
	corrupted := bytes.Clone(packed)
	corrupted[len(corrupted)-1] ^= 1
	tests := []struct {
		name    string
		handler fakemongo.Handler
		want    string
	}{
		{"corrupted", reply(compress.Zlib, len(good), corrupted), "corrupted"},
		{"truncated", reply(compress.Zlib, len(good), packed[:len(packed)-3]), "corrupted"},
		{"longer than announced", reply(compress.Zlib, len(good)-1, packed), "more bytes"},
		{"shorter than announced", reply(compress.Zlib, len(good)+1, packed), "uncompressedSize"},
		{"more than a message may have", reply(compress.Snappy, 48_000_000, packed), "not between"},
		{"impossible", reply(compress.Zlib, 40_000_000, packed), "cannot be"},
		{"unknown compressor", reply(9, len(good), packed), "compressor 9"},
		{"garbage inside", reply(compress.Noop, 3, []byte{1, 2, 3}), "malformed message"},
		{"nothing inside", reply(compress.Noop, 0, nil), "malformed message"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fakemongo.NewServer(t, fakemongo.Handlers{"find": tt.handler})
			a := &admitting{err: errors.New("no room")}
			c := dial(t, s, conn.Config{Admit: a.admit})
			_, err := c.RoundTrip(t.Context(), message("find", 0))
			if e, ok := errors.AsType[*mongoerr.NetworkError](err); !ok || !e.Sent ||
				errors.Is(err, io.EOF) || !strings.Contains(err.Error(), tt.want) || c.Alive() {
				t.Errorf("RoundTrip() = %v, alive %v, want a network error with %q", err, c.Alive(),
					tt.want)
			}
		})
	}
}

// A request that compression makes larger than the server accepts is sent uncompressed.
func TestCompressionNeverExceedsTheLimit(t *testing.T) {
	big := bson.NewBuilder(wire.BeginMsg(nil, 0))
	random := make([]byte, 1000)
	for i, x := range random {
		random[i] = byte(i*i>>3) ^ x
	}
	big.Int32("find", 1).Binary("data", 0, random).String("$db", "db").Finish()
	msg := big.Bytes()
	wire.EndMsg(msg)
	s := fakemongo.NewServer(t, fakemongo.Handlers{"hello": func(
		*fakemongo.Command,
	) fakemongo.Reply {
		return fakemongo.OK(func(b *bson.Builder) {
			b.Bool("ismaster", true).Int32("maxWireVersion", 21).
				Int32("maxMessageSizeBytes", int32(len(msg)))
			b.OpenArray("compression").String("", "zlib").Close()
		})
	}})
	level := int32(0)
	p, c := dialCompressing(t, conn.Config{Compressors: []string{"zlib"}, ZlibLevel: &level}, s,
		always(none))
	for _, m := range [][]byte{msg, message("ping", 0)} {
		if _, err := c.RoundTrip(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := p.requests(), "isMaster, find, ping by zlib"; got != want {
		t.Errorf("requests: %s, want %s", got, want)
	}
}

// TestCompressionIsTold checks the facts of a compressed request, and of a compressed reply, whose
// compressor is the server's choice.
func TestCompressionIsTold(t *testing.T) {
	var facts []event.MessageCompressed
	cfg := conn.Config{
		Compressors: []string{"snappy"},
		Compressed:  func(e event.MessageCompressed) { facts = append(facts, e) },
	}
	_, c := dialCompressing(t, cfg, supporting(t, "snappy"), func(n int) compress.ID {
		return []compress.ID{none, compress.Zlib}[min(n, 1)]
	})
	if len(facts) != 0 {
		t.Errorf("after the handshake: %+v", facts)
	}
	if _, err := c.RoundTrip(t.Context(), message("serverStatus", 0)); err != nil {
		t.Fatal(err)
	}
	if len(facts) != 2 {
		t.Fatalf("%+v, want a request and a reply", facts)
	}
	for i, want := range []event.MessageCompressed{
		{Compressor: "snappy"}, {Compressor: "zlib", Received: true},
	} {
		got := facts[i]
		if got.Compressor != want.Compressor || got.Received != want.Received ||
			got.Original <= wire.HeaderSize || got.Compressed <= wire.HeaderSize {
			t.Errorf("%+v, want %+v and sizes", got, want)
		}
	}
}
