package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

// canned is a connection on which every command but the hello is answered with the same reply,
// without a goroutine and without a copy that would count.
type canned struct {
	net.Conn
	legacy, hello, reply wire.Message
	pending              []byte
	closed               chan struct{}
}

func (c *canned) Write(p []byte) (int, error) {
	reply := c.hello
	request := wire.Message(p)
	if request.Header().OpCode != wire.OpMsg {
		reply = c.legacy
	} else if key := firstKey(request); key != "hello" && key != "isMaster" && key != "ismaster" {
		reply = c.reply
	}
	reply.Answer(request.Header().ID)
	c.pending = reply
	return len(p), nil
}

// firstKey returns the name of a command.
func firstKey(request wire.Message) string {
	for section, err := range request.Sections() {
		if err != nil {
			break
		}
		return bson.Raw(section.Documents).FirstKey()
	}
	return ""
}

func (c *canned) Read(p []byte) (int, error) {
	if len(c.pending) == 0 {
		<-c.closed
		return 0, io.EOF
	}
	n := copy(p, c.pending)
	c.pending = c.pending[n:]
	return n, nil
}

func (c *canned) Close() error {
	defer func() { _ = recover() }()
	close(c.closed)
	return nil
}

func (*canned) SetDeadline(time.Time) error      { return nil }
func (*canned) SetReadDeadline(time.Time) error  { return nil }
func (*canned) SetWriteDeadline(time.Time) error { return nil }
func (*canned) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*canned) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// found is the reply to a find, with docs of 1 KB.
func found(docs int) bson.Raw {
	reply := bson.NewBuilder(nil).OpenDocument("cursor").OpenArray("firstBatch")
	for i := range docs {
		reply.OpenDocument("").Int32("_id", int32(i)).String("pad", string(make([]byte, 1000))).
			Close()
	}
	return reply.Close().Int64("id", 0).String("ns", "shop.orders").Close().Int32("ok", 1).Finish()
}

// cannedClient returns a client whose commands are all answered with the reply.
func cannedClient(b testing.TB, reply bson.Raw) *client.Client {
	hello := bson.NewBuilder(nil).Bool("isWritablePrimary", true).Int32("minWireVersion", 6).
		Int32("maxWireVersion", 21).
		Int32("maxBsonObjectSize", 16<<20).Int32("maxMessageSizeBytes", 48_000_000).
		Int32("maxWriteBatchSize", 100_000).
		Bool("helloOk", true).Int32("logicalSessionTimeoutMinutes", 30).Int32("ok", 1).Finish()
	dial := func(context.Context, string, string) (net.Conn, error) {
		return &canned{
			legacy: wire.Reply(wire.Header{}, hello), hello: wire.Msg(wire.Header{}, 0, hello, nil),
			reply: wire.Msg(wire.Header{}, 0, reply, nil), closed: make(chan struct{}),
		}, nil
	}
	c, err := client.New(connstring.Config{Hosts: []address.Address{"canned:27017"}},
		client.Options{Dialer: dial})
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// BenchmarkFindOne is a findOne with a filter by _id, through selection, pool and connection.
func BenchmarkFindOne(b *testing.B) {
	c := cannedClient(b, found(1))
	opt := client.FindOptions{Filter: bson.NewBuilder(nil).Int32("_id", 0).Finish()}
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if _, found, err := c.FindOne(ctx, orders, opt); err != nil || !found {
			b.Fatal(found, err)
		}
	}
}

// BenchmarkFind100 is a find whose 100 documents come in the first batch.
func BenchmarkFind100(b *testing.B) {
	c := cannedClient(b, found(100))
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		cur, err := c.Find(ctx, orders, client.FindOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if batch, err := cur.Next(ctx); err != nil && !errors.Is(err, io.EOF) ||
			len(batch.Documents) != 100 {
			b.Fatal(len(batch.Documents), err)
		}
	}
}

// BenchmarkInsert is what an insert of small documents without _id costs: of one, of 100 with
// InsertMany, and of 100 with BulkWrite.
func BenchmarkInsert(b *testing.B) {
	docs, models := make([]bson.Raw, 100), make([]client.WriteModel, 100)
	for i := range docs {
		docs[i] = bson.NewBuilder(nil).Int32("i", int32(i)).Finish()
		models[i] = client.WriteModel{Kind: client.InsertOne, Document: docs[i]}
	}
	for name, bench := range map[string]func(ctx context.Context, c *client.Client) error{
		"One": func(ctx context.Context, c *client.Client) error {
			_, err := c.InsertOne(ctx, orders, docs[0], client.InsertOneOptions{})
			return err
		},
		"Many": func(ctx context.Context, c *client.Client) error {
			_, err := c.InsertMany(ctx, orders, docs, client.InsertManyOptions{})
			return err
		},
		"Bulk": func(ctx context.Context, c *client.Client) error {
			_, err := c.BulkWrite(ctx, orders, models, client.BulkWriteOptions{})
			return err
		},
		"UnorderedBulk": func(ctx context.Context, c *client.Client) error {
			_, err := c.BulkWrite(ctx, orders, models, client.BulkWriteOptions{Ordered: new(false)})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			c := cannedClient(b, bson.NewBuilder(nil).Int32("n", 1).Int32("ok", 1).Finish())
			ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if err := bench(ctx, c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLentBatch reads batches of 100 KB in lent memory.
func BenchmarkLentBatch(b *testing.B) {
	cur := endless(b, 100)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		batch, err := cur.NextLent(ctx)
		if err != nil || len(batch.Documents) != 100 {
			b.Fatal(len(batch.Documents), err)
		}
		batch.Lent.Release()
	}
}

// endless returns a cursor whose batches all have docs documents of 1 KB.
func endless(tb testing.TB, docs int) *cursor.Cursor {
	reply := bson.NewBuilder(nil).OpenDocument("cursor")
	for _, name := range []string{"firstBatch", "nextBatch"} {
		reply.OpenArray(name)
		for i := range docs {
			reply.OpenDocument("").Int32("_id", int32(i)).String("pad", string(make([]byte, 1000))).
				Close()
		}
		reply.Close()
	}
	c := cannedClient(tb,
		reply.Int64("id", 5).String("ns", "shop.orders").Close().Int32("ok", 1).Finish())
	cur, err := c.Find(tb.Context(), client.Namespace{Database: "shop", Collection: "orders"},
		client.FindOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return cur
}

// TestAllocationsOfABatch checks what a batch costs beside its documents: what holds the selected
// server and the connection, and, if the context can end, package context's two for being told.
// With -race there is one more, since pools lose a part then.
func TestAllocationsOfABatch(t *testing.T) {
	if buffer.Poisoned {
		t.Skip("nothing is used again in this build")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cur := endless(t, 100)
	for _, row := range []struct {
		name string
		ctx  context.Context //nolint:containedctx // a parameter
		most float64
	}{{"a context that cannot end", context.Background(), 2}, {"another one", ctx, 4}} {
		if n := testing.AllocsPerRun(100, func() {
			batch, err := cur.NextLent(row.ctx)
			if err != nil {
				t.Fatal(err)
			}
			batch.Lent.Release()
		}); n > row.most {
			t.Errorf("%s: %v allocations, want %v at most", row.name, n, row.most)
		}
	}
}
