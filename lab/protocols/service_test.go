package protocols

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// This file has the suite's service as its documents describe it. It reads and writes messages by
// their JSON, since there are only descriptors of them.

func newMessage(name string) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(
		protoreflect.FullName(conformancePackage + name))
	if err != nil {
		panic(err)
	}
	return t.New().Interface()
}

func toJSON(m proto.Message, into any) error {
	text, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func fromJSON(m proto.Message, from any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(text, m)
}

// field is a header or a trailer.
type field struct {
	Name  string   `json:"name"`
	Value []string `json:"value"`
}

// asked is what a request says of its answer.
type asked struct {
	Definition *struct {
		Headers  []field         `json:"responseHeaders"`
		Trailers []field         `json:"responseTrailers"`
		Data     json.RawMessage `json:"responseData"` // a text, or a list of texts
		DelayMs  int             `json:"responseDelayMs"`
		Error    json.RawMessage `json:"error"`
	} `json:"responseDefinition"`
	FullDuplex bool `json:"fullDuplex"`
}

// answers returns the data of each response of a stream.
func (a *asked) answers() (data [][]byte) {
	if a.Definition == nil || a.Definition.Data == nil {
		return nil
	}
	if err := json.Unmarshal(a.Definition.Data, &data); err != nil {
		panic(err)
	}
	return data
}

func (a *asked) wait() {
	if a.Definition != nil {
		<-time.After(time.Duration(a.Definition.DelayMs) * time.Millisecond)
	}
}

// failure returns the error that is asked for, nil if none is. If info is not nil, the error has
// it.
func (a *asked) failure(info proto.Message) error {
	if a.Definition == nil || a.Definition.Error == nil {
		return nil
	}
	m := newMessage("Error")
	if err := protojson.Unmarshal(a.Definition.Error, m); err != nil {
		return err
	}
	of := m.ProtoReflect()
	get := func(name protoreflect.Name) protoreflect.Value {
		return of.Get(of.Descriptor().Fields().ByName(name))
	}
	st := &statuspb.Status{Code: int32(get("code").Enum()), Message: get("message").String()}
	for details, i := get("details").List(), 0; i < details.Len(); i++ {
		text, err := proto.Marshal(details.Get(i).Message().Interface())
		if err != nil {
			return err
		}
		detail := &anypb.Any{}
		if err := proto.Unmarshal(text, detail); err != nil {
			return err
		}
		st.Details = append(st.Details, detail)
	}
	if info != nil {
		detail, err := anypb.New(info)
		if err != nil {
			return err
		}
		st.Details = append(st.Details, detail)
	}
	return status.ErrorProto(st)
}

// metadataOf returns fields as metadata. On the port of REST, headers have another name, and all
// values stay as they are.
func metadataOf(ctx context.Context, fields []field, isHeader bool) metadata.MD {
	md := metadata.MD{}
	for _, f := range fields {
		name, values := strings.ToLower(f.Name), f.Value
		if isWeb(ctx) && isHeader {
			name = strings.ToLower(renamed) + name
		}
		if strings.HasSuffix(name, "-bin") {
			values = nil
			for _, v := range f.Value {
				raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "="))
				if err != nil {
					raw = []byte(v)
				}
				values = append(values, string(raw))
			}
		}
		md.Append(name, values...)
	}
	return md
}

// isWeb reports whether a call has come to the port of REST.
func isWeb(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	return len(md.Get(":authority")) == 0
}

// infoOf returns what is known of a call.
func infoOf(ctx context.Context, requests []proto.Message, whole bool) (proto.Message, error) {
	info := map[string]any{}
	texts := []json.RawMessage{}
	for _, r := range requests {
		packed, err := anypb.New(r)
		if err != nil {
			return nil, err
		}
		text, err := protojson.Marshal(packed)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	info["requests"] = texts
	if whole {
		md, _ := metadata.FromIncomingContext(ctx)
		fields := []field{}
		for name, values := range md {
			if strings.HasSuffix(name, "-bin") {
				values = append([]string(nil), values...)
				for i := range values {
					values[i] = base64.RawStdEncoding.EncodeToString([]byte(values[i]))
				}
			}
			name = strings.TrimPrefix(name, strings.ToLower(renamed))
			fields = append(fields, field{name, values})
		}
		info["requestHeaders"] = fields
		if deadline, ok := ctx.Deadline(); ok {
			info["timeoutMs"] = strconv.FormatInt(max(0, time.Until(deadline).Milliseconds()), 10)
		}
	}
	m := newMessage("ConformancePayload.RequestInfo")
	return m, fromJSON(m, info)
}

// respond fills a response.
func respond(m proto.Message, data []byte, info proto.Message) error {
	payload := map[string]any{"data": data}
	if info != nil {
		text, err := protojson.Marshal(info)
		if err != nil {
			return err
		}
		payload["requestInfo"] = json.RawMessage(text)
	}
	return fromJSON(m, map[string]any{"payload": payload})
}

// answerOnce answers a call that has one response.
func answerOnce(ctx context.Context, a *asked, requests []proto.Message, m proto.Message) error {
	info, err := infoOf(ctx, requests, true)
	if err != nil {
		return err
	}
	a.wait()
	if err := a.failure(info); err != nil {
		return err
	}
	var data []byte
	if a.Definition != nil && a.Definition.Data != nil {
		if err := json.Unmarshal(a.Definition.Data, &data); err != nil {
			return err
		}
	}
	return respond(m, data, info)
}

// registerConformance registers the suite's service. It has no method Unimplemented.
func registerConformance(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: conformanceService, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Unary", Handler: unary("Unary")},
			{MethodName: "IdempotentUnary", Handler: unary("IdempotentUnary")},
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "ClientStream", ClientStreams: true, Handler: clientStream},
			{StreamName: "ServerStream", ServerStreams: true, Handler: serverStream},
			{
				StreamName: "BidiStream", ClientStreams: true, ServerStreams: true,
				Handler: bidiStream,
			},
		},
	}, struct{}{})
}

func unary(name string) grpc.MethodHandler {
	return func(
		srv any, ctx context.Context, decode func(any) error, around grpc.UnaryServerInterceptor,
	) (any, error) {
		request := newMessage(name + "Request")
		if err := decode(request); err != nil {
			return nil, withoutOurs(err)
		}
		handle := func(ctx context.Context, request any) (any, error) {
			m, ok := request.(proto.Message)
			if !ok {
				return nil, errors.New("no message")
			}
			var a asked
			if err := toJSON(m, &a); err != nil {
				return nil, err
			}
			if d := a.Definition; d != nil {
				_ = grpc.SendHeader(ctx, metadataOf(ctx, d.Headers, true))
				_ = grpc.SetTrailer(ctx, metadataOf(ctx, d.Trailers, false))
			}
			response := newMessage(name + "Response")
			if err := answerOnce(ctx, &a, []proto.Message{m}, response); err != nil {
				return nil, err
			}
			return response, nil
		}
		if around == nil {
			return handle(ctx, request)
		}
		info := &grpc.UnaryServerInfo{
			Server: srv, FullMethod: "/" + conformanceService + "/" + name,
		}
		return around(ctx, request, info, handle)
	}
}

// receiveAll returns the requests that the client still sends.
func receiveAll(ss grpc.ServerStream, name string) (all []proto.Message, err error) {
	for {
		m := newMessage(name)
		if err := ss.RecvMsg(m); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, withoutOurs(err)
		}
		all = append(all, m)
	}
}

func announce(ss grpc.ServerStream, a *asked, send bool) error {
	d := a.Definition
	if d == nil {
		return nil
	}
	ss.SetTrailer(metadataOf(ss.Context(), d.Trailers, false))
	if !send {
		return ss.SetHeader(metadataOf(ss.Context(), d.Headers, true))
	}
	return ss.SendHeader(metadataOf(ss.Context(), d.Headers, true))
}

func clientStream(_ any, ss grpc.ServerStream) error {
	requests, err := receiveAll(ss, "ClientStreamRequest")
	if err != nil {
		return err
	}
	var a asked
	if len(requests) > 0 {
		if err := toJSON(requests[0], &a); err != nil {
			return err
		}
	}
	if err := announce(ss, &a, true); err != nil {
		return err
	}
	response := newMessage("ClientStreamResponse")
	if err := answerOnce(ss.Context(), &a, requests, response); err != nil {
		return err
	}
	return ss.SendMsg(response)
}

func serverStream(_ any, ss grpc.ServerStream) error {
	request := newMessage("ServerStreamRequest")
	var a asked
	if err := ss.RecvMsg(request); err != nil {
		return withoutOurs(err)
	}
	if err := errors.Join(toJSON(request, &a), announce(ss, &a, true)); err != nil {
		return err
	}
	return sendRest(ss, "ServerStreamResponse", &a, []proto.Message{request}, 0)
}

// sendRest sends the responses from number n on, and the error that is asked for. The first of all
// responses has what is known of the call.
func sendRest(
	ss grpc.ServerStream, name string, a *asked, requests []proto.Message, n int,
) error {
	info, err := infoOf(ss.Context(), requests, true)
	if err != nil {
		return err
	}
	for ; n < len(a.answers()); n++ {
		of := info
		if n > 0 {
			of = nil
		}
		if err := sendOne(ss, name, a, n, of); err != nil {
			return err
		}
	}
	if n > 0 {
		info = nil
	}
	return a.failure(info)
}

func sendOne(ss grpc.ServerStream, name string, a *asked, n int, info proto.Message) error {
	a.wait()
	m := newMessage(name)
	if err := respond(m, a.answers()[n], info); err != nil {
		return err
	}
	return ss.SendMsg(m)
}

func bidiStream(_ any, ss grpc.ServerStream) error {
	const request, response = "BidiStreamRequest", "BidiStreamResponse"
	var a asked
	first := newMessage(request)
	switch err := ss.RecvMsg(first); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return withoutOurs(err)
	}
	if err := errors.Join(toJSON(first, &a), announce(ss, &a, a.FullDuplex)); err != nil {
		return err
	}
	if !a.FullDuplex {
		others, err := receiveAll(ss, request)
		if err != nil {
			return err
		}
		return sendRest(ss, response, &a, append([]proto.Message{first}, others...), 0)
	}
	n, last := 0, first
	for ; last != nil && n < len(a.answers()); n++ {
		info, err := infoOf(ss.Context(), []proto.Message{last}, n == 0)
		if err != nil {
			return err
		}
		if err := sendOne(ss, response, &a, n, info); err != nil {
			return err
		}
		last = newMessage(request)
		if err := ss.RecvMsg(last); errors.Is(err, io.EOF) {
			last = nil
		} else if err != nil {
			return withoutOurs(err)
		}
	}
	var requests []proto.Message
	if n == 0 {
		requests = []proto.Message{first}
	}
	return sendRest(ss, response, &a, requests, n)
}
