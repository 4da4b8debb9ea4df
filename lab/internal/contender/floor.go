package contender

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

const (
	// floorConnections is how many connections a floor keeps to its server, as many as a pool has.
	floorConnections = 100
	// floorBuffer is what requests and replies are read into.
	floorBuffer = 64 << 10
)

// Exchange holds what a floor does for every request.
type Exchange struct {
	Command []byte   // the message that is sent to the server
	Answer  [][]byte // what the client gets then: one body, or messages
	Times   int      // how often both are done: once, or once for each page of a stream
}

// Floor does the least that a gateway can do. It reads the request, sends one prepared command over
// a kept connection, reads the whole reply, and writes as many prepared bytes as the answer of the
// gateway has. It decodes nothing.
type Floor struct {
	server   string
	exchange atomic.Pointer[Exchange]
	kept     chan *kept
}

// kept holds a connection to the server, nil until it is used first, and a buffer for replies.
type kept struct {
	net.Conn
	buf []byte
}

// NewFloor returns a floor before the server at an address of TCP.
func NewFloor(server string) *Floor {
	f := &Floor{server: server, kept: make(chan *kept, floorConnections)}
	for range floorConnections {
		f.kept <- &kept{}
	}
	return f
}

// Set sets what is done for every request from now on.
func (f *Floor) Set(e Exchange) { f.exchange.Store(&e) }

// Handler serves REST. What is PUT to /exchange is Set.
func (f *Floor) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /exchange", func(w http.ResponseWriter, r *http.Request) {
		var e Exchange
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f.Set(e)
	})
	mux.Handle("/", f)
	return mux
}

// ServeHTTP answers with the bodies of the exchange.
func (f *Floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := f.exchange.Load()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if e.Times == 1 {
		w.Header().Set("Content-Length", strconv.Itoa(len(e.Answer[0])))
	}
	for range e.Times {
		if err := f.ask(e.Command); err != nil {
			panic(http.ErrAbortHandler)
		}
		if _, err := w.Write(e.Answer[0]); err != nil {
			return
		}
	}
}

// ask sends the command and reads the reply to its end.
func (f *Floor) ask(command []byte) error {
	c := <-f.kept
	defer func() { f.kept <- c }()
	if c.Conn == nil {
		var err error
		if c.Conn, err = net.Dial("tcp", f.server); err != nil {
			return err
		}
		c.buf = make([]byte, floorBuffer)
	}
	if _, err := c.Write(command); err != nil {
		return err
	}
	n, err := io.ReadAtLeast(c, c.buf, 4)
	if err != nil {
		return err
	}
	for left := int(binary.LittleEndian.Uint32(c.buf)) - n; left > 0; left -= n {
		if n, err = c.Read(c.buf[:min(left, len(c.buf))]); err != nil {
			return err
		}
	}
	return nil
}

// Server returns a gRPC server that answers all RPCs of the documents with the exchange's messages.
func (f *Floor) Server() *grpc.Server {
	s := grpc.NewServer(grpc.ForceServerCodecV2(Codec{}), grpc.MaxRecvMsgSize(64<<20))
	documents := mooringv1.DocumentService_ServiceDesc
	desc := grpc.ServiceDesc{ServiceName: documents.ServiceName, HandlerType: (*any)(nil)}
	for _, m := range documents.Methods {
		m.Handler = func(
			_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor,
		) (any, error) {
			var request mem.BufferSlice
			if err := read(&request); err != nil {
				return nil, err
			}
			request.Free()
			e := f.exchange.Load()
			return mem.BufferSlice{mem.SliceBuffer(e.Answer[0])}, f.ask(e.Command)
		}
		desc.Methods = append(desc.Methods, m)
	}
	for _, m := range documents.Streams {
		m.Handler = func(_ any, stream grpc.ServerStream) error { return f.stream(stream) }
		desc.Streams = append(desc.Streams, m)
	}
	s.RegisterService(&desc, f)
	return s
}

func (f *Floor) stream(stream grpc.ServerStream) error {
	var request mem.BufferSlice
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	request.Free()
	e := f.exchange.Load()
	for range e.Times {
		if err := f.ask(e.Command); err != nil {
			return err
		}
		for _, message := range e.Answer {
			if err := stream.SendMsg(mem.BufferSlice{mem.SliceBuffer(message)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Codec leaves messages as they are, a mem.BufferSlice.
type Codec struct{}

// Name returns the name of the encoding that both ends agree on.
func (Codec) Name() string { return "proto" }

// Marshal returns v.
func (Codec) Marshal(v any) (mem.BufferSlice, error) { return v.(mem.BufferSlice), nil }

// Unmarshal sets v to data, which the receiver frees.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	*v.(*mem.BufferSlice) = data
	return nil
}
