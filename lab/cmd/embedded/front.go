package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"

	"github.com/mooringdb/mooring/core/bson"
)

// FerretDB v1 closes the connection on BSON types that it does not have, so that a client cannot
// know what became of its command. The front stands before it: it answers such a command with an
// error, and passes everything else on.

const (
	headerBytes     = 16
	opMsg           = 2013
	maxMessageBytes = 48_000_000 + headerBytes

	checksumPresent = 1
	moreToCome      = 2

	notImplemented = 238 // the server's code of that name
)

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
			reply, err := readMessage(server)
			if err != nil {
				return
			}
			if _, err := out.Write(reply); err != nil {
				return
			}
		}
	})
	for {
		msg, err := readMessage(client)
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

// readMessage reads one message of the wire protocol with its header.
func readMessage(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n < headerBytes || n > maxMessageBytes {
		return nil, errors.New("a message of a wrong length")
	}
	msg := make([]byte, n)
	copy(msg, head[:])
	_, err := io.ReadFull(r, msg[4:])
	return msg, err
}

// lacks returns what the backend lacks of what a message needs; "" if nothing, or if the message is
// none that can be read here.
func lacks(msg []byte) string {
	if binary.LittleEndian.Uint32(msg[12:]) != opMsg || len(msg) < headerBytes+4 {
		return ""
	}
	flags, rest := binary.LittleEndian.Uint32(msg[headerBytes:]), msg[headerBytes+4:]
	if flags&checksumPresent != 0 && len(rest) >= 4 {
		rest = rest[:len(rest)-4]
	}
	for len(rest) > 5 {
		kind, size := rest[0], int(binary.LittleEndian.Uint32(rest[1:]))
		if size < 5 || size > len(rest)-1 {
			return ""
		}
		section := rest[1 : 1+size]
		rest = rest[1+size:]
		if kind == 0 {
			if what := lacksDocument(section); what != "" {
				return what
			}
			continue
		}
		if what := lacksSequence(section); what != "" {
			return what
		}
	}
	return ""
}

// lacksSequence looks into the documents of a section of kind 1: its length, its name, and they.
func lacksSequence(section []byte) string {
	at := 4
	for at < len(section) && section[at] != 0 {
		at++
	}
	for at++; at+4 < len(section); {
		size := int(binary.LittleEndian.Uint32(section[at:]))
		if size < 5 || size > len(section)-at {
			return ""
		}
		if what := lacksDocument(section[at : at+size]); what != "" {
			return what
		}
		at += size
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
func refusal(msg []byte, what string) []byte {
	if binary.LittleEndian.Uint32(msg[headerBytes:])&moreToCome != 0 {
		return nil
	}
	text := fmt.Sprintf("the embedded database does not have %s: see lab/README.md", what)
	body := bson.NewBuilder(nil).Double("ok", 0).String("errmsg", text).
		Int32("code", notImplemented).String("codeName", "NotImplemented").Finish()
	reply := make([]byte, headerBytes+5, headerBytes+5+len(body))
	reply = append(reply, body...)
	binary.LittleEndian.PutUint32(reply, uint32(len(reply)))
	copy(reply[8:12], msg[4:8]) // responseTo is the request's id
	binary.LittleEndian.PutUint32(reply[12:], opMsg)
	return reply
}
