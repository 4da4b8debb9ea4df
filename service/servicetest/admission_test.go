package servicetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/admission"
	calls "github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/servicetest"
)

// TestEveryCallIsAdmitted makes a call of every RPC, over gRPC and in the process, as REST and the
// other protocols do. A principal that has its share of the calls and streams is refused, with the
// time to wait; another one is not. At the end nothing is held.
func TestEveryCallIsAdmitted(t *testing.T) {
	a := admission.New(admission.Config{
		Calls: admission.Limits{Total: 10, Each: 1}, StreamsEach: 1,
	})
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{Admission: a})
	greedy := admission.Principal{Name: "greedy"}
	if err := errors.Join(
		a.EnterCall(t.Context(), greedy), a.EnterStream(t.Context(), greedy),
	); err != nil {
		t.Fatal(err)
	}
	ways := map[string]asking{
		"gRPC": {conn: g.Conn, as: servicetest.As},
		"in the process": {conn: g.Local, as: func(
			ctx context.Context, name string,
		) context.Context {
			who := &caller.Identity{Principal: name}
			return inproc.WithIncoming(ctx, calls.Local{Identity: who}, metadata.MD{})
		}},
	}
	n := 0
	for _, rpc := range methods() {
		for way, of := range ways {
			n++
			// A name of its own: the stream before may still be ending.
			for name, refused := range map[string]bool{
				greedy.Name: true, fmt.Sprint("quiet", n): false,
			} {
				err := call(t.Context(), asking{of.conn, of.as, name}, rpc, empty(t, rpc))
				if got := status.Code(err) == codes.ResourceExhausted; got != refused {
					t.Errorf("%s, %s, of %s: %v", rpc.FullName(), way, name, err)
				}
				if refused && !saysWhen(err) {
					t.Errorf("%s, %s: the error does not say when to come again", rpc.FullName(), way)
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("%d calls were made: the test shows little", n)
	}
	a.LeaveCall(greedy)
	a.LeaveStream(greedy)
	servicetest.Eventually(t, "nothing to be held", func() bool {
		return a.Calls().Held+a.Streams().Held+a.ChangeStreams().Held == 0
	})
}

// asking makes the calls of a client with a name.
type asking struct {
	conn grpc.ClientConnInterface
	as   func(ctx context.Context, name string) context.Context
	name string
}

func (c asking) Invoke(
	ctx context.Context, method string, args, reply any, opts ...grpc.CallOption,
) error {
	return c.conn.Invoke(c.as(ctx, c.name), method, args, reply, opts...)
}

func (c asking) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return c.conn.NewStream(c.as(ctx, c.name), desc, method, opts...)
}

// empty returns the empty request of an RPC.
func empty(t *testing.T, rpc protoreflect.MethodDescriptor) proto.Message {
	t.Helper()
	input, err := protoregistry.GlobalTypes.FindMessageByName(rpc.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	return input.New().Interface()
}

// saysWhen reports whether an error has the time after which a client may come again.
func saysWhen(err error) bool {
	for _, d := range status.Convert(err).Details() {
		if when, ok := d.(*errdetails.RetryInfo); ok {
			return when.GetRetryDelay().AsDuration() > 0
		}
	}
	return false
}
