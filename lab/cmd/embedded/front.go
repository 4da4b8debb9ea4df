package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"sync"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

// FerretDB v1 closes the connection on BSON types that it does not have, so that a client cannot
// know what became of its command. The front stands before it: it answers such a command with an
// error, and passes everything else on.

const notImplemented = 238 // the server's code of that name

// front passes connections on to the backend until ctx ends.
func front(ctx context.Context, l net.Listener, backend string) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		client, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		serving.Go(func() { serve(ctx, client, backend) })
	}
}

// serve passes one connection on. The replies come back on a goroutine of their own, which ends
// with the backend's connection.
func serve(ctx context.Context, client net.Conn, backend string) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", backend)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	out := &lockedWriter{w: client}
	var replies sync.WaitGroup
	defer replies.Wait()
	defer server.Close()
	replies.Go(func() {
		defer client.Close()
		for {
			reply, err := wire.Read(server, nil)
			if err != nil {
				return
			}
			if _, err := out.Write(reply); err != nil {
				return
			}
		}
	})
	for {
		msg, err := wire.Read(client, nil)
		if err != nil {
			return
		}
		to := io.Writer(server)
		if lacking := lacks(msg); lacking != "" {
			if msg = refusal(msg, lacking); msg == nil {
				continue // the client wants no reply
			}
			to = out
		}
		if _, err := to.Write(msg); err != nil {
			return
		}
	}
}

// lockedWriter keeps the messages of two goroutines apart.
type lockedWriter struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// lacks returns what the backend lacks of what a message needs; "" if nothing, or if the message is
// none that can be read here.
func lacks(m wire.Message) string {
	if m.Header().OpCode != wire.OpMsg {
		return ""
	}
	for section, err := range m.Sections() {
		if err != nil {
			return "" // the backend says what is wrong
		}
		for doc, err := range wire.Documents(section.Documents) {
			if err != nil {
				return ""
			}
			if what := lacksDocument(doc); what != "" {
				return what
			}
		}
	}
	return ""
}

func lacksDocument(doc bson.Raw) string {
	if doc.Validate() != nil {
		return "" // the backend says what is wrong
	}
	return lacksElements(doc)
}

func lacksElements(doc bson.Raw) string {
	for _, v := range doc.All() {
		if what := lacksValue(v); what != "" {
			return what
		}
	}
	return ""
}

// missing are the types that FerretDB v1 does not have.
var missing = map[bson.Type]string{
	bson.TypeDecimal128: "Decimal128", bson.TypeMinKey: "MinKey", bson.TypeMaxKey: "MaxKey",
	bson.TypeUndefined: "undefined", bson.TypeSymbol: "symbol", bson.TypeJavaScript: "code",
	bson.TypeCodeWithScope: "code with scope", bson.TypeDBPointer: "DBPointer",
}

func lacksValue(v bson.Value) string {
	if name, ok := missing[v.Type]; ok {
		return "the BSON type " + name
	}
	if f, ok := v.Double(); ok && math.IsNaN(f) {
		return "NaN"
	}
	if doc, ok := v.Document(); ok {
		return lacksElements(doc)
	}
	if a, ok := v.Array(); ok {
		return lacksElements(bson.Raw(a))
	}
	return ""
}

// refusal returns the reply to a message that is not passed on; nil if its client wants none.
func refusal(m wire.Message, what string) wire.Message {
	if m.Flags()&wire.MoreToCome != 0 {
		return nil
	}
	text := fmt.Sprintf("the embedded database does not have %s: see lab/README.md", what)
	body := bson.NewBuilder(nil).Double("ok", 0).String("errmsg", text).
		Int32("code", notImplemented).String("codeName", "NotImplemented").Finish()
	return wire.Msg(wire.Header{ResponseTo: m.Header().ID}, 0, body, nil)
}
