package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/cmd/gateway/internal/transfer"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/spelling"
)

var call = &Command{
	Name: "call", Operands: "[RPC] [REQUEST]", run: runCall,
	Synopsis: "call any RPC by its name, with JSON",
	Doc: `Calls an RPC of the API and prints its response, or each message of a stream, as JSON.
RPC is its name, with its service where services share it: SessionService.Start. REQUEST is the JSON
that REST has, and the fields of the path are in it. @FILE stands for a file that has it, and -
for standard input. Without words, it lists the RPCs. docs/api.md describes them.

  mooring call ListDatabases
  mooring call FindOne '{"database": "shop", "collection": "orders", "filter": {"_id": 7}}'`,
	Flags: func(flags *pflag.FlagSet) {
		flags.Bool("canonical", false, "write canonical Extended JSON, which keeps all types")
	},
}

func runCall(ctx context.Context, s *session) error {
	if len(s.Operands) == 0 {
		for _, name := range rpcNames() {
			if _, err := fmt.Fprintln(s.Stdout, name); err != nil {
				return err
			}
		}
		return nil
	}
	m, err := rpcNamed(s.operand(0))
	if err != nil {
		return err
	}
	request, response, err := messages(m.Descriptor)
	if err != nil {
		return err
	}
	text := []byte("{}")
	if word := s.operand(1); word != "" {
		if text, err = s.word(word); err != nil {
			return err
		}
	}
	if err := rest.Decode(request, text); err != nil {
		return usage("REQUEST: %v", err)
	}
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	if m.Descriptor.IsStreamingClient() || m.Descriptor.IsStreamingServer() {
		return s.stream(ctx, c, m, request, response)
	}
	answer, err := client.Call(ctx, c.Client, func(
		ctx context.Context, in proto.Message, opts ...grpc.CallOption,
	) (proto.Message, error) {
		return response, c.conn.Invoke(ctx, m.Name, in, response, opts...)
	}, request)
	if err != nil {
		return err
	}
	return s.printAnswer(answer)
}

// stream makes a call with one request, and prints the messages that come.
func (s *session) stream(
	ctx context.Context, c *connection, m *method.Method, request, response proto.Message,
) error {
	if c.key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.key)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{
		ClientStreams: m.Descriptor.IsStreamingClient(),
		ServerStreams: m.Descriptor.IsStreamingServer(),
	}, m.Name)
	if err != nil {
		return client.Explain(err)
	}
	_ = stream.SendMsg(request) // RecvMsg returns the reason
	_ = stream.CloseSend()      // it never fails
	for {
		proto.Reset(response)
		switch err := stream.RecvMsg(response); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return client.Explain(err)
		}
		if err := s.printAnswer(response); err != nil || !m.Descriptor.IsStreamingServer() {
			return err
		}
	}
}

// printAnswer prints a message. It also fails if the message tells of a write that is not
// acknowledged.
func (s *session) printAnswer(m proto.Message) error {
	text, err := rest.Append(nil, m, s.mode())
	if err != nil {
		return err
	}
	if _, err := s.Stdout.Write(append(text, '\n')); err != nil {
		return err
	}
	if w, ok := m.(interface {
		GetWriteConcernError() *mooringv1.WriteConcernError
	}); ok {
		return unacknowledged(transfer.Concern(w.GetWriteConcernError()))
	}
	return nil
}

// messages returns an empty request and an empty response.
func messages(rpc protoreflect.MethodDescriptor) (request, response proto.Message, err error) {
	in, err := protoregistry.GlobalTypes.FindMessageByName(rpc.Input().FullName())
	if err != nil {
		return nil, nil, err
	}
	out, err := protoregistry.GlobalTypes.FindMessageByName(rpc.Output().FullName())
	if err != nil {
		return nil, nil, err
	}
	return in.New().Interface(), out.New().Interface(), nil
}

// rpcNamed returns the method that a word names: in full, with its service, or without.
func rpcNamed(word string) (*method.Method, error) {
	word = strings.ReplaceAll(strings.TrimPrefix(word, "/"), "/", ".")
	var found []*method.Method
	for _, m := range method.All() {
		if full := "." + string(m.Descriptor.FullName()); strings.HasSuffix(full, "."+word) {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 0:
		if like := rpcsLike(word); len(like) > 0 {
			return nil, usage("there is no RPC %q: did you mean %s?", word,
				strings.Join(like, " or "))
		}
		return nil, usage("there is no RPC %q: mooring call lists them", word)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, m := range found {
		names = append(names, shortName(m))
	}
	return nil, usage("%s may be %s", word, strings.Join(names, " or "))
}

// rpcsLike returns the names, with their services, of the methods that a word is most like: of one
// name that several services can have.
func rpcsLike(word string) (like []string) {
	byName := map[string][]string{}
	for _, m := range method.All() {
		name := string(m.Descriptor.Name())
		if strings.Contains(word, ".") {
			name = shortName(m)
		}
		byName[name] = append(byName[name], shortName(m))
	}
	return byName[spelling.Nearest(word, maps.Keys(byName))]
}

// rpcNames returns the names of all methods, with their services.
func rpcNames() []string {
	var names []string
	for _, m := range method.All() {
		names = append(names, shortName(m))
	}
	return names
}

func shortName(m *method.Method) string {
	return string(m.Descriptor.Parent().Name()) + "." + string(m.Descriptor.Name())
}
