package servicetest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

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

// answer is what a client learns of a call that a limit has refused.
type answer struct {
	refused bool
	says    bool // when to come again
}

// way is a protocol in which clients, who have numbers, make calls.
type way struct {
	name string
	// principal returns whose share the calls of a client use.
	principal func(client int) admission.Principal
	// send makes a call, and returns when it has ended. It reports false if the protocol has none
	// of the RPC.
	send send
}

type send func(
	ctx context.Context, client int, rpc protoreflect.MethodDescriptor, request proto.Message,
) (answer, bool)

// ways returns all protocols.
func ways(t *testing.T, g *servicetest.Gateway, a *admission.Admission) []way {
	t.Helper()
	named := func(client int) admission.Principal {
		return admission.Principal{Name: fmt.Sprint("client", client)}
	}
	onConn := func(
		conn grpc.ClientConnInterface, as func(context.Context, string) context.Context,
	) send {
		return func(
			ctx context.Context, client int, rpc protoreflect.MethodDescriptor,
			request proto.Message,
		) (answer, bool) {
			err := call(ctx, asking{conn, as, named(client).Name}, rpc, request)
			code := status.Code(err)
			return answer{
				code == codes.ResourceExhausted || code == codes.Unavailable, saysWhen(err),
			}, true
		}
	}
	all := []way{
		{"gRPC", named, onConn(g.Conn, servicetest.As)},
		{"in the process", named, onConn(g.Local, func(
			ctx context.Context, name string,
		) context.Context {
			who := &caller.Identity{Principal: name}
			return inproc.WithIncoming(ctx, calls.Local{Identity: who}, metadata.MD{})
		})},
	}
	h := handler(t, g, a)
	for name, of := range map[string]func(
		protoreflect.MethodDescriptor, proto.Message,
	) *http.Request{
		"REST": restRequest, "Data API": dataAPIRequest, "Connect": connectRequest,
		"gRPC-Web": webRequest,
	} {
		all = append(all, way{name, addressed, func(
			ctx context.Context, client int, rpc protoreflect.MethodDescriptor,
			request proto.Message,
		) (answer, bool) {
			r := of(rpc, request)
			if r == nil {
				return answer{}, false
			}
			r.RemoteAddr = netip.AddrPortFrom(addressed(client).Address, 1).String()
			return serve(h, r.WithContext(ctx)), true
		}})
	}
	return all
}

// addressed returns the principal of a client without a name.
func addressed(client int) admission.Principal {
	return admission.Principal{
		Address: netip.AddrFrom4([4]byte{10, byte(client >> 16), byte(client >> 8), byte(client)}),
	}
}

// eachCall calls f with each RPC in each protocol, and a number of its own. The requests are empty,
// but for those of the Data API, which would not become calls.
func eachCall(
	t *testing.T, g *servicetest.Gateway, a *admission.Admission,
	f func(n int, of way, rpc protoreflect.MethodDescriptor, request proto.Message),
) {
	t.Helper()
	n := 0
	for _, of := range ways(t, g, a) {
		for _, rpc := range methods() {
			request := empty(t, rpc)
			switch of.name {
			case "REST":
				if restRequest(rpc, request) == nil {
					t.Errorf("%s has no path on REST: the test needs one", rpc.FullName())
				}
			case "Data API":
				if !actions[rpc.FullName()] {
					continue
				}
				request = requestOf(t, rpc)
			}
			n++
			f(n, of, rpc, request)
		}
	}
	if n < 5*53+len(actions) {
		t.Errorf("%d calls were made: the test shows little", n)
	}
}

// TestEveryCallIsAdmitted makes a call of every RPC in every protocol. A principal that has its
// share of the calls and streams is refused, with the time to wait; another one is not. At the end
// nothing is held.
func TestEveryCallIsAdmitted(t *testing.T) {
	a := admission.New(admission.Config{
		Calls:   admission.Limits{Total: 20, Each: 1},
		Streams: admission.Limits{Each: 1},
	})
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{Admission: a})
	const greedy = 0
	for _, p := range []admission.Principal{addressed(greedy), {Name: "client0"}} {
		if err := errors.Join(
			a.EnterCall(t.Context(), p), a.EnterStream(t.Context(), p),
		); err != nil {
			t.Fatal(err)
		}
		defer a.LeaveCall(p)
		defer a.LeaveStream(p)
	}
	eachCall(t, g, a, func(
		n int, of way, rpc protoreflect.MethodDescriptor, request proto.Message,
	) {
		if got, _ := of.send(t.Context(), greedy, rpc, request); !got.refused || !got.says {
			t.Errorf("%s, %s, of a greedy client: %+v", rpc.FullName(), of.name, got)
		}
		if got, _ := of.send(t.Context(), n, rpc, request); got.refused {
			t.Errorf("%s, %s, of a quiet client: refused", rpc.FullName(), of.name)
		}
	})
	servicetest.Eventually(t, "nothing else to be held", func() bool {
		return a.Calls().Held+a.Streams().Held+a.ChangeStreams().Held == 4
	})
}

// TestHeldCallsCount holds a call of every RPC in every protocol open, as a server that does not
// answer would: it counts as its principal's share for so long, and not longer.
func TestHeldCallsCount(t *testing.T) {
	a := admission.New(admission.Config{
		Calls: admission.Limits{Each: 1}, Streams: admission.Limits{Each: 1},
	})
	var holds atomic.Pointer[hold] // the next call
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{
		Admission: a,
		Begun: func(ctx context.Context) {
			if h := holds.Swap(nil); h != nil {
				close(h.begun)
				select {
				case <-h.end:
				case <-ctx.Done():
				}
			}
		},
	})
	eachCall(t, g, a, func(
		n int, of way, rpc protoreflect.MethodDescriptor, request proto.Message,
	) {
		h := &hold{make(chan struct{}), make(chan struct{})}
		holds.Store(h)
		ended := make(chan answer)
		go func() {
			got, _ := of.send(t.Context(), n, rpc, request)
			ended <- got
		}()
		select {
		case <-h.begun:
		case got := <-ended:
			t.Fatalf("%s, %s: %+v, and the call has not begun", rpc.FullName(), of.name, got)
		case <-time.After(10 * time.Second):
			t.Fatalf("%s, %s: the call does not begin", rpc.FullName(), of.name)
		}
		if got, _ := of.send(t.Context(), n, rpc, request); !got.refused || !got.says {
			t.Errorf("%s, %s, beside one that is held: %+v", rpc.FullName(), of.name, got)
		}
		if got, _ := of.send(t.Context(), n+1_000, rpc, request); got.refused {
			t.Errorf("%s, %s, of another client: refused", rpc.FullName(), of.name)
		}
		close(h.end)
		if got := <-ended; got.refused {
			t.Errorf("%s, %s: the call that was held is refused", rpc.FullName(), of.name)
		}
		servicetest.Eventually(t, "nothing to be held", func() bool {
			return a.Calls().Held+a.Streams().Held+a.ChangeStreams().Held == 0
		})
	})
}

// hold holds a call open.
type hold struct{ begun, end chan struct{} }

// TestStreamsOfAllCount has as many streams open as there may be in all: one more of any principal
// is refused in every protocol, and says when to come again. Other calls go on.
func TestStreamsOfAllCount(t *testing.T) {
	a := admission.New(admission.Config{Streams: admission.Limits{Total: 2}})
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{Admission: a})
	for _, name := range []string{"one", "two"} {
		p := admission.Principal{Name: name}
		if err := a.EnterStream(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		defer a.LeaveStream(p)
	}
	streams := 0
	eachCall(t, g, a, func(
		n int, of way, rpc protoreflect.MethodDescriptor, request proto.Message,
	) {
		isStream := rpc.IsStreamingClient() || rpc.IsStreamingServer()
		if name := rpc.Name(); of.name == "Data API" && (name == "Find" || name == "Aggregate") {
			isStream = true // it reads all
		}
		if isStream {
			streams++
		}
		got, _ := of.send(t.Context(), n, rpc, request)
		if got.refused != isStream || got.says != isStream {
			t.Errorf("%s, %s, beside all streams: %+v", rpc.FullName(), of.name, got)
		}
	})
	if streams < 5*7 {
		t.Errorf("%d streams were tried: the test shows little", streams)
	}
	if got := a.Streams(); got.Held != 2 || got.Refused[admission.Full] != uint64(streams) {
		t.Errorf("Streams() = %+v after %d refusals", got, streams)
	}
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
