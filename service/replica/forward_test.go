package replica_test

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/transaction"
)

// calls answers the calls that other replicas forward.
type calls struct {
	got      transaction.Forwarding
	messages []string
	err      error
}

func (c *calls) Answer(_ context.Context, f transaction.Forwarding) ([]byte, error) {
	c.got = f
	return []byte("response"), c.err
}

func (c *calls) AnswerStream(_ context.Context, f transaction.Forwarding, send func([]byte) error) error {
	c.got = f
	for _, m := range c.messages {
		if err := send([]byte(m)); err != nil {
			return err
		}
	}
	return c.err
}

// TestForward: every field of a call arrives, and so do its response, its messages and its errors.
func TestForward(t *testing.T) {
	peer := bind(t, "a")
	made := &calls{messages: []string{"one", "", "three"}}
	peer.SetCalls(made)
	peer.Serve(&fake{})
	n, idle := start(t, "a", nil), start(t, "a", nil)
	ctx, address := t.Context(), peer.Advertised()
	f := transaction.Forwarding{
		Owner: [16]byte{1, 2}, Method: "/a/b", Request: []byte("request"), RequestID: "id",
		Identity: &caller.Identity{Principal: "ann", Groups: []string{"g"}, Claims: map[string]any{"a": []any{"b", 1.5}}},
		Metadata: metadata.Pairs("x", "1", "x", "2", "y", "3"), Text: true, Casual: true, Quiet: true,
		Client: netip.MustParseAddr("192.0.2.1"),
	}
	response, err := n.Forward(ctx, address, f)
	if err != nil || string(response) != "response" || !reflect.DeepEqual(made.got, f) {
		t.Errorf("Forward = %q, %v; arrived %+v, want %+v", response, err, made.got, f)
	}
	made.got = transaction.Forwarding{}
	var messages []string
	receive := func(b []byte) error {
		messages = append(messages, string(b))
		return nil
	}
	if err := n.ForwardStream(ctx, address, f, receive); err != nil || !slices.Equal(messages, made.messages) || !reflect.DeepEqual(made.got, f) {
		t.Errorf("ForwardStream = %q, %v; arrived %+v, want %+v", messages, err, made.got, f)
	}
	for _, row := range []struct {
		name string
		err  error
		want func(error) bool
	}{
		{"a named error", paging.ErrNotHere, func(err error) bool { return errors.Is(err, paging.ErrNotHere) }},
		{"another error", &rpcerr.Error{Reason: rpcerr.TransactionBusy, Message: "busy"}, func(err error) bool {
			return status.Code(err) == codes.Aborted && rpcerr.HTTP(err).Body.GetError().GetReason() == string(rpcerr.TransactionBusy)
		}},
	} {
		made.err, made.messages = row.err, nil
		if _, err := n.Forward(ctx, address, f); !row.want(err) {
			t.Errorf("%s: Forward = %v", row.name, err)
		}
		if err := n.ForwardStream(ctx, address, f, receive); !row.want(err) {
			t.Errorf("%s: ForwardStream = %v", row.name, err)
		}
	}
	if _, err := n.Forward(ctx, idle.Advertised(), f); status.Code(err) != codes.Unimplemented {
		t.Errorf("Forward to a replica that makes no calls = %v", err)
	}
	if err := n.ForwardStream(ctx, idle.Advertised(), f, receive); status.Code(err) != codes.Unimplemented {
		t.Errorf("ForwardStream to a replica that makes no calls = %v", err)
	}
	// The last one: the peer still reads what it answers with when the call has ended here.
	made.err, made.messages = nil, []string{"one", "two"}
	full := errors.New("full")
	if err := n.ForwardStream(ctx, address, f, func([]byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("ForwardStream whose message is not taken = %v", err)
	}
}

// traceKey is the key of the name of a trace, in a context.
type traceKey struct{}

func traceOf(ctx context.Context) string {
	name, _ := ctx.Value(traceKey{}).(string)
	return name
}

// tracedCalls answers the calls that other replicas forward with the name of their trace.
type tracedCalls struct{ err error }

func (c tracedCalls) Answer(ctx context.Context, _ transaction.Forwarding) ([]byte, error) {
	return []byte(traceOf(ctx)), c.err
}

func (c tracedCalls) AnswerStream(
	ctx context.Context, _ transaction.Forwarding, send func([]byte) error,
) error {
	if err := send([]byte(traceOf(ctx))); err != nil {
		return err
	}
	return c.err
}

// TestTraceOfForwardedCalls checks that a call that is forwarded is part of its client's trace at
// the replica that makes it, and that the trace learns how the call ends there.
func TestTraceOfForwardedCalls(t *testing.T) {
	type ended struct {
		method, trace string
		code          codes.Code
	}
	const header = "traceparent"
	for _, row := range []struct {
		name string
		err  error
		code codes.Code
	}{
		{"success", nil, codes.OK},
		{"error", &rpcerr.Error{Reason: rpcerr.TransactionBusy, Message: "busy"}, codes.Aborted},
	} {
		t.Run(row.name, func(t *testing.T) {
			ends := make(chan ended, 2)
			peer := bind(t, "a", func(c *replica.Config) {
				c.Trace = func(ctx context.Context, method string) (context.Context, func(error)) {
					name := strings.Join(metadata.ValueFromIncomingContext(ctx, header), ",")
					return context.WithValue(ctx, traceKey{}, name), func(err error) {
						ends <- ended{method, name, status.Code(err)}
					}
				}
			})
			peer.SetCalls(tracedCalls{row.err})
			peer.Serve(&fake{})
			n := start(t, "a", nil, func(c *replica.Config) {
				c.Inject = func(ctx context.Context, md metadata.MD) { md.Set(header, traceOf(ctx)) }
			})
			ctx := context.WithValue(t.Context(), traceKey{}, "one")
			response, err := n.Forward(ctx, peer.Advertised(), transaction.Forwarding{})
			if status.Code(err) != row.code || err == nil && string(response) != "one" {
				t.Errorf("Forward = %q, %v; want the trace one, %v", response, err, row.code)
			}
			want := ended{replicav1.ReplicaService_Forward_FullMethodName, "one", row.code}
			if got := <-ends; got != want {
				t.Errorf("Forward: the trace has %+v, want %+v", got, want)
			}

			ctx = context.WithValue(t.Context(), traceKey{}, "two")
			var message string
			err = n.ForwardStream(ctx, peer.Advertised(), transaction.Forwarding{}, func(b []byte) error {
				message = string(b)
				return nil
			})
			if status.Code(err) != row.code || message != "two" {
				t.Errorf("ForwardStream = %v, message %q; want the trace two, %v", err, message, row.code)
			}
			want = ended{replicav1.ReplicaService_ForwardStream_FullMethodName, "two", row.code}
			if got := <-ends; got != want {
				t.Errorf("ForwardStream: the trace has %+v, want %+v", got, want)
			}
		})
	}
}
