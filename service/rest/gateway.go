package rest

import (
	"context"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/inproc"
)

// No other file uses the runtime of grpc-gateway to serve calls. The generated handlers build a
// request from body and path, and call the method. Their output is discarded, because the call
// writes the response (for example, grpc-gateway's own stream errors have another shape than its
// unary ones). New uses its routing, which tries one pattern after the other, once, to find the
// handler of each annotation.

// registration registers the generated handlers of one service, which make their calls on a
// connection.
type registration func(context.Context, *runtime.ServeMux, grpc.ClientConnInterface) error

// services lists the services that REST serves: the files with their descriptors, and the generated
// registrations.
var services = []struct {
	file     protoreflect.FileDescriptor
	register registration
}{
	{
		mooringv1.File_mooring_v1_command_service_proto,
		registering(
			mooringv1.RegisterCommandServiceHandlerClient,
			mooringv1.NewCommandServiceClient,
		),
	},
	{
		mooringv1.File_mooring_v1_document_service_proto,
		registering(
			mooringv1.RegisterDocumentServiceHandlerClient,
			mooringv1.NewDocumentServiceClient,
		),
	},
	{
		mooringv1.File_mooring_v1_catalog_service_proto,
		registering(
			mooringv1.RegisterCatalogServiceHandlerClient,
			mooringv1.NewCatalogServiceClient,
		),
	},
	{
		mooringv1.File_mooring_v1_cursor_service_proto,
		registering(
			mooringv1.RegisterCursorServiceHandlerClient,
			mooringv1.NewCursorServiceClient,
		),
	},
	{
		mooringv1.File_mooring_v1_session_service_proto,
		registering(
			mooringv1.RegisterSessionServiceHandlerClient,
			mooringv1.NewSessionServiceClient,
		),
	},
	{
		mooringv1.File_mooring_v1_change_stream_service_proto,
		registering(
			mooringv1.RegisterChangeStreamServiceHandlerClient,
			mooringv1.NewChangeStreamServiceClient,
		),
	},
	{
		mooringv1.File_mooring_v1_transaction_service_proto,
		registering(
			mooringv1.RegisterTransactionServiceHandlerClient,
			mooringv1.NewTransactionServiceClient,
		),
	},
	{
		mooringv1.File_mooring_v1_deployment_service_proto,
		registering(
			mooringv1.RegisterDeploymentServiceHandlerClient,
			mooringv1.NewDeploymentServiceClient,
		),
	},
}

// registering returns the registration of a service with the generated functions of that service.
func registering[C any](
	register func(context.Context, *runtime.ServeMux, C) error,
	client func(grpc.ClientConnInterface) C,
) registration {
	return func(ctx context.Context, mux *runtime.ServeMux, cc grpc.ClientConnInterface) error {
		return register(ctx, mux, client(cc))
	}
}

// newRoutes returns the tree of all annotations, each with its generated handler, which makes its
// calls on cc.
func newRoutes(plans planner, cc callConn) (*node, error) {
	mux := runtime.NewServeMux(
		runtime.WithMiddlewares(answerProbe),
		runtime.WithMarshalerOption(runtime.MIMEWildcard, bodyMarshaler{}),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingTrailerMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithForwardResponseOption(respond),
		runtime.WithErrorHandler(func(
			ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler,
			_ http.ResponseWriter, _ *http.Request, err error,
		) {
			callFrom(ctx).fail(err)
		}),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
	)
	root := newNode()
	for _, s := range services {
		if err := s.register(context.Background(), mux, cc); err != nil {
			return nil, err
		}
		for i := range s.file.Services().Len() {
			service := s.file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				if m.IsStreamingClient() {
					continue // see importRoute
				}
				for _, r := range methodRoutes(plans, m) {
					r.handle = probe(mux, r)
					root.add(r)
				}
			}
		}
	}
	root.add(importRoute(plans, cc))
	root.add(ticketRoute(plans, cc))
	for _, r := range resourceRoutes(plans, cc) {
		root.add(r)
	}
	return root, nil
}

// methodRoutes returns the routes of a method's HTTP annotation.
func methodRoutes(plans planner, m protoreflect.MethodDescriptor) []*route {
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	var routes []*route
	for _, binding := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		r := &route{
			rpc:     "/" + string(m.Parent().FullName()) + "/" + string(m.Name()),
			stream:  m.IsStreamingServer(),
			request: plans.plan(m.Input()),
			reply:   plans.plan(m.Output()),
		}
		var err error
		r.replyType, err = protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
		if err != nil {
			panic("bug: rest: " + err.Error())
		}
		switch pattern := binding.GetPattern().(type) {
		case *annotations.HttpRule_Get:
			r.method, r.path, r.params = http.MethodGet, pattern.Get, queryParams
		case *annotations.HttpRule_Post:
			r.method, r.path, r.bodies = http.MethodPost, pattern.Post, jsonBodies
		default:
			panic("bug: rest: an HTTP annotation of another kind on " + r.rpc)
		}
		switch {
		case r.stream:
			r.offers = offerStream
			r.items = itemsOf(r.reply)
			if r.items.changes && r.method == http.MethodGet {
				r.params = watchParams
			}
		case r.reply.byName["documents"] != nil && r.reply.byName["cursor"] != nil:
			r.offers = offerPage
		default:
			r.offers = offerSingle
		}
		routes = append(routes, r)
	}
	return routes
}

type probeKey struct{}

// answerProbe wraps each generated handler so that a probe gets the handler instead of calling it.
func answerProbe(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		if found, ok := r.Context().Value(probeKey{}).(*runtime.HandlerFunc); ok {
			*found = next
			return
		}
		next(w, r, params)
	}
}

// probe returns the handler that the mux has for a route. It sends a request whose path is the
// route's template.
func probe(mux *runtime.ServeMux, r *route) runtime.HandlerFunc {
	var found runtime.HandlerFunc
	ctx := context.WithValue(context.Background(), probeKey{}, &found)
	request, err := http.NewRequestWithContext(ctx, r.method, "/", nil)
	if err == nil {
		request.URL.Path = r.path
		mux.ServeHTTP(&discard{}, request)
	}
	if found == nil {
		panic("bug: rest: grpc-gateway has no handler for " + r.method + " " + r.path)
	}
	return found
}

type callKey struct{}

// callFrom returns the call that a context belongs to. Every context that grpc-gateway passes on
// has a call.
func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// respond passes a response from grpc-gateway to the call. grpc-gateway calls it once for a unary
// call, for each message of a stream, and with nil at a stream's beginning.
func respond(ctx context.Context, _ http.ResponseWriter, m proto.Message) error {
	if m == nil {
		return nil
	}
	return callFrom(ctx).respond(ctx, m)
}

// callConn implements the connection on which the generated handlers make their calls. It completes
// the requests and records how streams end.
type callConn struct{ conn *inproc.Conn }

func (cc callConn) Invoke(
	ctx context.Context, method string, args, reply any, opts ...grpc.CallOption,
) error {
	c := callFrom(ctx)
	if err := c.complete(args); err != nil {
		return err
	}
	c.called = true
	err := cc.conn.Invoke(c.incoming(ctx), method, args, reply, opts...)
	for _, o := range opts {
		if header, ok := o.(grpc.HeaderCallOption); ok {
			c.setMetadata(*header.HeaderAddr)
		}
	}
	return err
}

// NewStream opens the stream with its first request, so that a request that cannot be completed
// reaches no handler.
func (cc callConn) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	c := callFrom(ctx)
	open := func() (grpc.ClientStream, error) {
		return cc.conn.NewStream(c.incoming(ctx), desc, method, opts...)
	}
	return &callStream{call: c, open: open}, nil
}

// callStream wraps a stream so that it always ends without an error for grpc-gateway. The call
// records the error.
type callStream struct {
	grpc.ClientStream // once it is open
	call              *call
	open              func() (grpc.ClientStream, error)
}

func (s *callStream) SendMsg(m any) error {
	if err := s.call.complete(m); err != nil {
		return err
	}
	stream, err := s.open()
	if err != nil {
		return err
	}
	s.ClientStream = stream
	s.call.streaming = stream
	s.call.called = true
	return stream.SendMsg(m)
}

// Header returns nil and does not block. The call reads the header when it needs it.
func (s *callStream) Header() (metadata.MD, error) { return nil, nil }

func (s *callStream) RecvMsg(m any) error {
	if s.call.receive(s.ClientStream, m) != nil {
		return io.EOF
	}
	return nil
}

// bodyMarshaler reads request bodies. It writes nothing.
type bodyMarshaler struct{}

var (
	_ runtime.Marshaler = bodyMarshaler{}
	_ runtime.Delimited = bodyMarshaler{}
)

func (bodyMarshaler) Marshal(any) ([]byte, error) { return nil, nil }
func (bodyMarshaler) Unmarshal([]byte, any) error { return nil }
func (bodyMarshaler) NewEncoder(io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(any) error { return nil })
}
func (bodyMarshaler) ContentType(any) string { return "" }
func (bodyMarshaler) Delimiter() []byte      { return nil }

func (bodyMarshaler) NewDecoder(r io.Reader) runtime.Decoder {
	body, _ := r.(*requestBody)
	return body
}

// requestBody represents the body of a call's request for grpc-gateway. It is its own decoder, and
// its Read returns io.EOF.
type requestBody struct{ call *call }

func (*requestBody) Read([]byte) (int, error) { return 0, io.EOF }
func (*requestBody) Close() error             { return nil }

// Decode reads the body into a message.
func (b *requestBody) Decode(v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		panic("bug: rest: no annotation has a body but *")
	}
	err := b.call.decode(m.ProtoReflect())
	if err != nil {
		b.call.fail(err)
	}
	return err
}

// discard implements the response writer that grpc-gateway gets. It discards the output.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Flush()                      {}
