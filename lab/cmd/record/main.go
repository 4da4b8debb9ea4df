// Command record sends commands to a MongoDB server over a connection of its own and prints what
// went over the wire, as a file of internal/recorded. Requests are framed here and encoded by the
// official driver's BSON package, which also gives the Extended JSON of each document: nothing of
// the product takes part, so that replaying the file checks the product against something else.
//
//	go run ./cmd/record --address 127.0.0.1:27017 --server 'a server and its version'
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013
	timeout = 30 * time.Second
	header  = 16
)

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
	request := frame(r.id, opMsg, append([]byte{0, 0, 0, 0, 0}, body...))
	if e.query {
		payload := append([]byte{4, 0, 0, 0}, "admin.$cmd\x00"...)
		payload = append(payload, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF)
		request = frame(r.id, opQuery, append(payload, body...))
	}
	if len(e.documents) > 0 {
		section, err := sequence("documents", e.documents)
		if err != nil {
			return err
		}
		request = frame(r.id, opMsg, append(append([]byte{0, 0, 0, 0, 0}, body...), section...))
	}
	reply, err := r.roundTrip(request)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		fmt.Fprintf(r.out, "\n# %s: the server closed the connection\n", e.name)
		_ = r.conn.Close() // it is closed already
		r.conn = nil
		return nil
	}
	if err != nil {
		return err
	}
	answer, err := document(reply)
	if err != nil {
		return err
	}
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

func frame(id int32, opcode uint32, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(header+len(payload)))
	b = binary.LittleEndian.AppendUint32(b, uint32(id))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint32(b, opcode)
	return append(b, payload...)
}

func sequence(identifier string, documents []bson.D) ([]byte, error) {
	content := append([]byte(identifier), 0)
	for _, d := range documents {
		b, err := bson.Marshal(d)
		if err != nil {
			return nil, err
		}
		content = append(content, b...)
	}
	section := binary.LittleEndian.AppendUint32([]byte{1}, uint32(4+len(content)))
	return append(section, content...), nil
}

func (r *recorder) roundTrip(request []byte) ([]byte, error) {
	if err := r.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if _, err := r.conn.Write(request); err != nil {
		return nil, err
	}
	reply := make([]byte, 4)
	if _, err := io.ReadFull(r.conn, reply); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(reply)
	if n < header || n > 48<<20 {
		return nil, fmt.Errorf("a reply of %d bytes", n)
	}
	reply = append(reply, make([]byte, n-4)...)
	_, err := io.ReadFull(r.conn, reply[4:])
	return reply, err
}

// document returns the body of an OP_MSG, or the one document of an OP_REPLY.
func document(reply []byte) (bson.Raw, error) {
	switch opcode := binary.LittleEndian.Uint32(reply[12:]); opcode {
	case opMsg:
		return bson.Raw(reply[header+5:]), nil
	case opReply:
		return bson.Raw(reply[header+20:]), nil
	default:
		return nil, fmt.Errorf("opcode %d", opcode)
	}
}
