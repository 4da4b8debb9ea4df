// Package web serves the RPCs of the API to browsers: as gRPC-Web, binary and text, and in the
// protocol of Connect, unary calls and streams, as protobuf and as JSON. Its calls run on the same
// connection as those of REST, so they pass the same interceptors and have the same limits.
//
// The package implements the two protocols: envelopes, trailers, timeouts, compression and errors.
// It knows no RPC.
package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	servicecall "github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/etag"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/lostpage"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Config configures an API.
type Config struct {
	// Services lists the full names of the services, which the program has descriptors of.
	Services []string
	// MaxSizeOf returns the size of the largest request message of a method; nil: as large as a
	// body may be.
	MaxSizeOf func(method string) int
}

// API serves gRPC-Web and Connect on the port of REST. It is safe for concurrent use. New returns
// one.
type API struct {
	prefixes []string // of paths
	methods  map[string]*method
}

var _ front.API = (*API)(nil)

// method describes one RPC.
type method struct {
	name              string // "/mooring.v1.DocumentService/Find"
	request, response protoreflect.MessageType
	receives, sends   bool // the client, or the server, sends a stream
	most              int  // bytes of a request message; 0: as many as a body may have
}

// New returns an API.
func New(cfg Config) (*API, error) {
	a := &API{methods: map[string]*method{}}
	for _, name := range cfg.Services {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			return nil, fmt.Errorf("web: %s: %w", name, err)
		}
		service, ok := found.(protoreflect.ServiceDescriptor)
		if !ok {
			return nil, fmt.Errorf("web: %s is not a service", name)
		}
		a.prefixes = append(a.prefixes, "/"+name+"/")
		for i := range service.Methods().Len() {
			m, err := newMethod(service.Methods().Get(i))
			if err != nil {
				return nil, err
			}
			if cfg.MaxSizeOf != nil {
				m.most = cfg.MaxSizeOf(m.name)
			}
			a.methods[m.name] = m
		}
	}
	return a, nil
}

func newMethod(d protoreflect.MethodDescriptor) (*method, error) {
	m := &method{
		name:     "/" + string(d.Parent().FullName()) + "/" + string(d.Name()),
		receives: d.IsStreamingClient(), sends: d.IsStreamingServer(),
	}
	var err, err2 error
	m.request, err = protoregistry.GlobalTypes.FindMessageByName(d.Input().FullName())
	m.response, err2 = protoregistry.GlobalTypes.FindMessageByName(d.Output().FullName())
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("web: %s: %w", m.name, err)
	}
	return m, nil
}

// Takes reports whether a path is that of a service.
func (a *API) Takes(r *http.Request) bool {
	for _, p := range a.prefixes {
		if strings.HasPrefix(r.URL.Path, p) {
			return true
		}
	}
	return false
}

// Serve answers a request.
func (a *API) Serve(x *front.Exchange) {
	r := x.Request()
	c := &call{x: x, method: a.methods[r.URL.Path], wire: wireOf(r.Header)}
	err := c.open()
	if err == nil {
		ctx, cancel := x.Context(c.timeout)
		defer cancel()
		err = c.run(ctx)
	}
	c.end(r.Context(), err)
}

// call holds the state of one request.
type call struct {
	x       *front.Exchange
	method  *method
	wire    wire
	timeout time.Duration
	in, out coding.Coding // of messages

	begun           bool // the status is written
	header, trailer metadata.MD
	held            int64 // charged for the last request message
}

var _ inproc.Outlet = (*call)(nil)

// open checks everything in the request except the body.
func (c *call) open() error {
	if err := c.x.Admit(nil); err != nil {
		return err
	}
	r := c.x.Request()
	if c.method == nil {
		return &rpcerr.Error{
			Reason: rpcerr.Unimplemented, Message: "there is no method " + r.URL.Path,
		}
	}
	r.Pattern = c.method.name // for those in front of the handler
	if r.Method != http.MethodPost {
		c.x.Response.Header().Set("Allow", http.MethodPost)
		return &rpcerr.Error{
			Reason: rpcerr.MethodNotAllowed, Message: "a call is a POST, not a " + r.Method,
		}
	}
	c.x.Calls(c.method.name)
	switch {
	case c.wire.isUnknown(), c.wire.protocol == connectUnary && c.method.isStream(),
		c.wire.protocol == connectStream && !c.method.isStream():
		c.x.Response.Header().Set("Accept-Post", c.method.types())
		return &rpcerr.Error{
			Reason:  rpcerr.UnsupportedMediaType,
			Message: "this call takes the Content-Types " + c.method.types(),
		}
	}
	if err := etag.Refuse(r.Method, r.Header); err != nil {
		return err
	}
	names := c.wire.codings()
	var ok bool
	if c.in, ok = coding.Of(r.Header.Get(names.content)); !ok {
		return &rpcerr.Error{
			Reason: rpcerr.Unimplemented, Message: "the " + names.content + " is not one of " +
				coding.All,
		}
	}
	c.out = coding.Choose(r.Header.Values(names.accept))
	var err error
	c.timeout, err = c.readTimeout()
	return err
}

func (m *method) isStream() bool { return m.receives || m.sends }

// isStream reports whether the call is a stream. That of an unknown method is none.
func (c *call) isStream() bool { return c.method != nil && c.method.isStream() }

// readTimeout returns the shortest of the timeouts that the request has, or 0.
func (c *call) readTimeout() (time.Duration, error) {
	const header, maxDigits = "Connect-Timeout-Ms", 10
	timeout, err := c.x.Timeout(c.x.Request().URL.Query())
	text := c.x.Request().Header.Get(header)
	if err != nil || text == "" {
		return timeout, err
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms <= 0 || len(text) > maxDigits {
		return 0, &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: header,
			Message: strconv.Quote(text) + " is not a positive number of milliseconds",
		}
	}
	if d := time.Duration(ms) * time.Millisecond; timeout == 0 || d < timeout {
		timeout = d
	}
	return timeout, nil
}

// run makes the call.
func (c *call) run(ctx context.Context) error {
	if c.method.receives {
		return c.stream(ctx)
	}
	request, err := c.readOnly() //nolint:contextcheck // of the request
	if err != nil {
		return err
	}
	if c.method.sends {
		c.trailer, err = c.x.Serve(c.incoming(ctx), c.method.name, request, c)
		return err
	}
	reply, err := c.x.Conn().Call(c.incoming(ctx), c.method.name, request)
	c.header, c.trailer = reply.Header, reply.Trailer
	if err != nil {
		return err
	}
	m, _ := reply.Message.(proto.Message) // always
	err = c.write(m)                      //nolint:contextcheck // of the request
	if err != nil && !c.begun {
		lostpage.Close(ctx, c.x, request, m, err)
	}
	return err
}

// Header implements inproc.Outlet.
func (c *call) Header(_ context.Context, md metadata.MD) { c.header = md }

// Message implements inproc.Outlet.
func (c *call) Message(_ context.Context, m any) error {
	message, _ := m.(proto.Message) // always
	return c.write(message)         //nolint:contextcheck // a turn comes soon
}

// stream makes a call in which the client sends a stream.
func (c *call) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.x.Conn().NewStream(c.incoming(ctx), &grpc.StreamDesc{
		ClientStreams: true, ServerStreams: c.method.sends,
	}, c.method.name)
	if err != nil {
		return err
	}
	stop := c.x.Body.While(ctx, s.Context())
	taken, unread := c.send(s) //nolint:contextcheck // of the request
	ended := stop()            // the handler has, and the stream says why
	if unread != nil {
		cancel()
	} else {
		_ = s.CloseSend() // never fails
	}
	err = c.receive(s, cancel) //nolint:contextcheck // of the request
	c.header, _ = s.Header()   // does not block after the end
	c.trailer = s.Trailer()
	if unread != nil && !ended {
		return rpcerr.BrokenOff(unread, taken, err)
	}
	return err
}

// send sends all messages of the body. It returns whether the handler has taken one, and no error
// if it takes no more, since the stream then says why.
func (c *call) send(s grpc.ClientStream) (taken bool, err error) {
	body, err := c.newBody()
	if err != nil {
		return false, err
	}
	for {
		m, err := body.next()
		switch {
		case errors.Is(err, io.EOF):
			return taken, nil
		case err != nil:
			return taken, err
		case s.SendMsg(m) != nil:
			return taken, nil
		}
		taken = true
	}
}

// receive writes what the handler sends. If that fails, it calls cancel and blocks until the
// handler has ended.
func (c *call) receive(s grpc.ClientStream, cancel func()) (failed error) {
	for {
		m := c.method.response.New().Interface()
		if err := s.RecvMsg(m); err != nil {
			if failed == nil && !errors.Is(err, io.EOF) {
				failed = err
			}
			return failed
		}
		if failed != nil {
			continue
		}
		if c.header == nil {
			c.header, _ = s.Header() // does not block after a message
		}
		if failed = c.write(m); failed != nil {
			cancel()
		}
	}
}

// incoming returns the context of the call, with the headers that are metadata.
func (c *call) incoming(ctx context.Context) context.Context {
	md := metadata.MD{}
	for name, values := range c.x.Request().Header {
		name = strings.ToLower(name)
		if strings.HasPrefix(name, "mooring-") && name != "mooring-request-id" {
			md[name] = values
		}
	}
	return c.x.Incoming(ctx, md, servicecall.Local{})
}

// protocol names the form of messages and errors.
type protocol uint8

const (
	unknown protocol = iota
	grpcWeb
	connectUnary
	connectStream
)

// wire describes what a Content-Type says.
type wire struct {
	protocol protocol
	json     bool // else protobuf
	text     bool // of gRPC-Web: all of it is base64
}

var wires = map[string]wire{
	"application/grpc-web":            {protocol: grpcWeb},
	"application/grpc-web+proto":      {protocol: grpcWeb},
	"application/grpc-web-text":       {protocol: grpcWeb, text: true},
	"application/grpc-web-text+proto": {protocol: grpcWeb, text: true},
	"application/proto":               {protocol: connectUnary},
	"application/json":                {protocol: connectUnary, json: true},
	"application/connect+proto":       {protocol: connectStream},
	"application/connect+json":        {protocol: connectStream, json: true},
}

func wireOf(h http.Header) wire {
	name, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if charset := params["charset"]; err != nil || charset != "" && !isUTF8(charset) {
		return wire{}
	}
	return wires[name]
}

func isUTF8(charset string) bool {
	return strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8")
}

func (w wire) isUnknown() bool { return w.protocol == unknown }

// contentType returns that of the response.
func (w wire) contentType() string {
	switch {
	case w.protocol == grpcWeb && w.text:
		return "application/grpc-web-text+proto"
	case w.protocol == grpcWeb:
		return "application/grpc-web+proto"
	case w.protocol == connectStream && w.json:
		return "application/connect+json"
	case w.protocol == connectStream:
		return "application/connect+proto"
	case w.json:
		return "application/json"
	}
	return "application/proto"
}

// types lists the Content-Types of the call.
func (m *method) types() string {
	const web = ", application/grpc-web+proto, application/grpc-web-text+proto"
	if m.isStream() {
		return "application/connect+proto, application/connect+json" + web
	}
	return "application/proto, application/json" + web
}

// codingNames holds the names of the headers about compression.
type codingNames struct{ content, accept string }

func (w wire) codings() codingNames {
	switch w.protocol {
	case grpcWeb:
		return codingNames{"Grpc-Encoding", "Grpc-Accept-Encoding"}
	case connectStream:
		return codingNames{"Connect-Content-Encoding", "Connect-Accept-Encoding"}
	default:
		return codingNames{"Content-Encoding", "Accept-Encoding"}
	}
}
