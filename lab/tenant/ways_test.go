package tenant

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// call is one call of the API, in the words of all protocols. What a protocol cannot say is empty.
type call struct {
	rpc     string // such as DocumentService/Find
	message proto.Message
	path    string // of REST
	body    string // of REST
	action  string // of the Data API
}

// stream is an open answer. Its next part may be any piece of it.
type stream interface {
	next() ([]byte, error)
	close()
}

// way makes calls in one protocol, for the principal with an API key.
type way struct {
	name string
	// open makes a call; nil: the protocol does not have it. Documents are BSON or JSON in the
	// answer, and no part of it is compressed or in base64.
	open func(ctx context.Context, key string, c call) (stream, error)
	// token returns the cursor in an answer.
	token func(answer []byte) string
}

// ways returns all protocols of a gateway.
func ways(t *testing.T, g *gatewaytest.Gateway) []way {
	t.Helper()
	conn := g.Dial(t)
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	over := func(ctx context.Context, key, path, content string, body []byte) (stream, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.REST+path,
			bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", content)
		r.Header.Set("Api-Key", key)
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		return httpStream{resp}, nil
	}
	binary := func(content string, unary bool) func(context.Context, string, call) (stream, error) {
		return func(ctx context.Context, key string, c call) (stream, error) {
			body, err := proto.Marshal(c.message)
			if err != nil || c.rpc == "" {
				return nil, err
			}
			if unary && !isStreaming(c.rpc) {
				return over(ctx, key, "/mooring.v1."+c.rpc, "application/proto", body)
			}
			return over(ctx, key, "/mooring.v1."+c.rpc, content, frame(body))
		}
	}
	cursorOf := func(text []byte) string {
		var a struct{ Cursor string }
		_ = json.Unmarshal(text, &a)
		return a.Cursor
	}
	cursorIn := func(message []byte) string {
		var page mooringv1.FindResponse // as that of NextPage
		_ = proto.Unmarshal(message, &page)
		return page.GetCursor()
	}
	return []way{
		{"gRPC", func(ctx context.Context, key string, c call) (stream, error) {
			if c.rpc == "" {
				return nil, nil
			}
			return openGRPC(metadata.AppendToOutgoingContext(ctx, "api-key", key), conn, c)
		}, cursorIn},
		{"REST", func(ctx context.Context, key string, c call) (stream, error) {
			if c.path == "" {
				return nil, nil
			}
			return over(ctx, key, c.path, "application/json", []byte(c.body))
		}, cursorOf},
		{"gRPC-Web", binary("application/grpc-web+proto", false), func(answer []byte) string {
			if len(answer) < 5 {
				return ""
			}
			rest := answer[5:]
			return cursorIn(rest[:min(len(rest), int(byteOrder.Uint32(answer[1:])))])
		}},
		{"Connect", binary("application/connect+proto", true), cursorIn},
		{"Data API", func(ctx context.Context, key string, c call) (stream, error) {
			if c.action == "" {
				return nil, nil
			}
			return over(ctx, key, "/action/"+c.action, "application/json", []byte(c.body))
		}, nil},
	}
}

var byteOrder = binary.BigEndian

// frame returns a message as gRPC-Web and the streams of Connect have it.
func frame(message []byte) []byte {
	return append(byteOrder.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

func descriptorOf(rpc string) protoreflect.MethodDescriptor {
	name := protoreflect.FullName("mooring.v1." + strings.Replace(rpc, "/", ".", 1))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		panic(err)
	}
	return d.(protoreflect.MethodDescriptor)
}

func isStreaming(rpc string) bool { return descriptorOf(rpc).IsStreamingServer() }

// openGRPC makes a call of gRPC. All are streams for its client.
func openGRPC(ctx context.Context, conn *grpc.ClientConn, c call) (stream, error) {
	answer, err := protoregistry.GlobalTypes.FindMessageByName(descriptorOf(c.rpc).Output().
		FullName())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ss, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/mooring.v1."+c.rpc)
	if err == nil {
		err = errors.Join(ss.SendMsg(c.message), ss.CloseSend())
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &grpcStream{ss, answer, cancel}, nil
}

type grpcStream struct {
	grpc.ClientStream
	answer protoreflect.MessageType
	cancel func()
}

func (s *grpcStream) next() ([]byte, error) {
	m := s.answer.New().Interface()
	if err := s.RecvMsg(m); err != nil {
		return nil, err
	}
	return proto.Marshal(m)
}

func (s *grpcStream) close() { s.cancel() }

type httpStream struct{ *http.Response }

func (s httpStream) next() ([]byte, error) {
	part := make([]byte, 32<<10)
	n, err := s.Body.Read(part)
	if n > 0 {
		return part[:n], nil
	}
	return nil, err
}

func (s httpStream) close() { _ = s.Body.Close() }

// all returns the answer of a call, the words of an error included, and whether it has
// succeeded.
func (w way) all(ctx context.Context, key string, c call) (answer []byte, ok bool) {
	s, err := w.open(ctx, key, c)
	if err != nil || s == nil {
		return fmt.Append(nil, err), false
	}
	defer s.close()
	for {
		part, err := s.next()
		answer = append(answer, part...)
		if errors.Is(err, io.EOF) {
			return answer, hasSucceeded(s, answer)
		}
		if err != nil {
			return fmt.Append(answer, " ", err), false
		}
	}
}

func hasSucceeded(s stream, answer []byte) bool {
	h, ok := s.(httpStream)
	switch {
	case !ok:
		return true
	case strings.Contains(h.Header.Get("Content-Type"), "grpc-web"):
		return bytes.Contains(answer, []byte("grpc-status: 0"))
	}
	return h.StatusCode/100 == 2
}
