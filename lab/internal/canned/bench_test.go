package canned_test

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
	"github.com/mooringdb/mooring/lab/internal/canned"
)

// BenchmarkServer is a command and its reply over a Unix socket, with the least that a client can
// do: what it costs is the server and the kernel.
func BenchmarkServer(b *testing.B) {
	s, err := canned.Listen(filepath.Join(b.TempDir(), "canned.sock"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	nc, err := net.Dial("unix", s.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	for name, command := range map[string]*bson.Builder{
		"findOne": bson.NewBuilder(nil).String("find", "orders_1").OpenDocument("filter").
			Int32("_id", 0).Close().Int64("limit", 1).Bool("singleBatch", true),
		"find100":   bson.NewBuilder(nil).String("find", "orders_100"),
		"find10000": bson.NewBuilder(nil).String("find", "orders_10000").Int32("batchSize", 10_000),
		"insert": bson.NewBuilder(nil).String("insert", "orders_1").OpenArray("documents").
			OpenDocument("").Int32("_id", 1).Close().Close(),
	} {
		request := wire.Msg(wire.Header{ID: 1}, 0, command.String("$db", "lab").Finish(), nil)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var buf wire.Message
			for b.Loop() {
				if _, err := nc.Write(request); err != nil {
					b.Fatal(err)
				}
				if buf, err = wire.Read(nc, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
