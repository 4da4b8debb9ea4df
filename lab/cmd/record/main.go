// Command record sends commands to a MongoDB server over a connection of its own and prints what
// went over the wire, as a file of internal/recorded. Requests are encoded by the official driver's
// BSON package, which also gives the Extended JSON of each document: nothing of the product takes
// part, so that replaying the file checks the product against something else.
//
//	go run ./cmd/record --address 127.0.0.1:27017 --server 'a server and its version'
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	mooringbson "github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

const timeout = 30 * time.Second

func main() {
	address := flag.String("address", "127.0.0.1:27017", "where the server listens")
	server := flag.String("server", "", "the server's name and version, for the file's first line")
	flag.Parse()
	r := &recorder{address: *address, out: bufio.NewWriter(os.Stdout)}
	fmt.Fprintf(r.out, "# Recorded from %s by lab/cmd/record.\n", *server)
	for _, e := range exchanges() {
		if err := r.record(e); err != nil {
			fmt.Fprintf(os.Stderr, "record: %s: %v\n", e.name, err)
			os.Exit(1)
		}
	}
	if err := r.out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// recorder holds the connection; nil: none yet, or the server closed it.
type recorder struct {
	address string
	conn    net.Conn
	id      int32
	cursor  int64 // of the last reply that had one
	out     *bufio.Writer
}

// record runs one exchange. A server that closes the connection instead of answering is noted.
func (r *recorder) record(e exchange) error {
	if r.conn == nil {
		conn, err := net.Dial("tcp", r.address)
		if err != nil {
			return err
		}
		r.conn = conn
	}
	command := e.command(r.cursor)
	body, err := bson.Marshal(command)
	if err != nil {
		return err
	}
	r.id++
	sequences := map[string][]mooringbson.Raw{}
	for _, d := range e.documents {
		b, err := bson.Marshal(d)
		if err != nil {
			return err
		}
		sequences["documents"] = append(sequences["documents"], b)
	}
	request := wire.Msg(wire.Header{ID: r.id}, 0, body, sequences)
	if e.query {
		request = wire.Query(r.id, body)
	}
	if err := r.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	reply, err := wire.RoundTrip(r.conn, request)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		fmt.Fprintf(r.out, "\n# %s: the server closed the connection\n", e.name)
		_ = r.conn.Close() // it is closed already
		r.conn = nil
		return nil
	}
	if err != nil {
		return err
	}
	document, err := reply.Document()
	if err != nil {
		return err
	}
	answer := bson.Raw(document)
	if id, ok := answer.Lookup("cursor", "id").Int64OK(); ok && id != 0 {
		r.cursor = id
	}
	text, err := bson.MarshalExtJSON(answer, true, false)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "\n== %s\nrequest %x\nreply %x\njson %s\n", e.name, request, reply, text)
	return nil
}
