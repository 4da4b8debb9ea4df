package interceptor_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/policy"
)

// ledger counts the calls of one replica.
type ledger struct{ ended int }

func (m *ledger) Ended(string, bool, codes.Code, string, time.Duration) { m.ended++ }
func (m *ledger) Refused(codes.Code, string)                            {}

// node is one of two replicas, with all that counts its calls.
type node struct {
	chain *interceptor.Chain
	meter ledger
	log   bytes.Buffer
	limit *admission.Admission
	steps map[string]int
	flush func() // writes the audit log to log
}

func newNode(
	t *testing.T, rules string, transactions call.Transactions, to interceptor.Replicas,
) *node {
	t.Helper()
	p, err := policy.Parse([]byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{
		limit: admission.New(admission.Config{
			Bytes: 1 << 20, Calls: admission.Limits{Each: 1}, Streams: admission.Limits{Each: 1},
		}),
		steps: map[string]int{},
	}
	audited := audit.New(audit.Config{Handler: slog.NewTextHandler(&n.log, nil)})
	t.Cleanup(func() { _ = audited.Close(context.WithoutCancel(t.Context())) })
	n.flush = func() { _ = audited.Flush(t.Context()) }
	n.chain = interceptor.New(interceptor.Config{
		Meter: &n.meter, Audit: audited,
		Callers: caller.New(caller.Config{}), Policy: policy.NewEnforcer(policy.Config{Policy: p}),
		Admission: n.limit, Transactions: transactions, Replicas: to,
	})
	n.chain.Trace(func(step string) { n.steps[step]++ })
	return n
}

// owner is the replica b, which runs the calls that a forwards.
type owner struct {
	*node
	call.Transactions
	ran func(context.Context)
}

func (o *owner) Run(
	ctx context.Context, _ call.InTransaction, handler call.Handler,
) (proto.Message, error) {
	return handler(ctx)
}

func (o *owner) Join(
	ctx context.Context, _ call.InTransaction,
) (context.Context, func(error), error) {
	return ctx, func(error) {}, nil
}

func (o *owner) Forward(ctx context.Context, f *call.Forwarding) (call.Reply, error) {
	ctx = &call.LocalContext{Context: ctx, Local: f.Local}
	if !f.Streams {
		//nolint:contextcheck // it has the context of the first replica
		resp, err := o.chain.Unary()(ctx, f.Request, &grpc.UnaryServerInfo{FullMethod: f.Method},
			func(ctx context.Context, _ any) (any, error) {
				o.ran(ctx)
				return &mooringv1.InsertOneResponse{}, nil
			})
		m, _ := resp.(proto.Message)
		return call.Reply{Response: m}, err
	}
	var sent replies
	//nolint:contextcheck // it has the context of the first replica
	err := o.chain.Stream()(nil, &received{ctx: ctx, message: f.Request},
		&grpc.StreamServerInfo{FullMethod: f.Method, IsServerStream: true},
		func(_ any, ss grpc.ServerStream) error {
			if err := ss.RecvMsg(&mooringv1.StreamFindRequest{}); err != nil {
				return err
			}
			o.ran(ss.Context())
			sent = append(sent, &mooringv1.StreamFindResponse{})
			return nil
		})
	return call.Reply{Stream: &sent}, err
}

// replies are the messages of another replica's stream.
type replies []proto.Message

func (r *replies) Recv() (proto.Message, error) {
	if len(*r) == 0 {
		return nil, io.EOF
	}
	m := (*r)[0]
	*r = (*r)[1:]
	return m, nil
}

func (r *replies) Close() {}

// sending is a stream that notes what is sent to its client.
type sending struct {
	received
	sent []any
}

func (s *sending) SendMsg(m any) error {
	s.sent = append(s.sent, m)
	return nil
}

// TestForwardedCallsPassOnce runs a statement of a transaction, and a stream, through a replica
// that does not keep the transaction. Together the two replicas permit, decide about, admit, audit
// and count it once: the owner would refuse it, and writes no line. The rest runs at both.
func TestForwardedCallsPassOnce(t *testing.T) {
	const nothing = `forbid (principal, action, resource);`
	b := &owner{}
	b.node = newNode(t, nothing, b, nil)
	a := newNode(t, `permit (principal, action, resource);`, &elsewhere{}, b)
	ran := 0
	b.ran = func(ctx context.Context) {
		ran++
		c := call.From(ctx)
		if c.Principal != "key:shop" || c.RequestID != "id" ||
			c.Account.Principal().Name != "key:shop" {
			t.Errorf("the owner runs a call %q of %q, with the account of %v", c.RequestID,
				c.Principal, c.Account.Principal())
		}
		if at := b.limit.Calls().Held + b.limit.Streams().Held; at != 0 {
			t.Errorf("%d calls have a place at the owner", at)
		}
		if at := a.limit.Calls().Held + a.limit.Streams().Held; at != 1 {
			t.Errorf("%d calls have a place at the other replica, want 1", at)
		}
	}
	local := call.Local{RequestID: "id", Identity: &caller.Identity{Principal: "key:shop"}}
	ctx := &call.LocalContext{Context: t.Context(), Local: local}
	const service = "/mooring.v1.DocumentService/"
	insert := &mooringv1.InsertOneRequest{Database: "d", Collection: "c", Transaction: new("t")}
	resp, err := a.chain.Unary()(ctx, insert,
		&grpc.UnaryServerInfo{FullMethod: service + "InsertOne"},
		func(context.Context, any) (any, error) { return nil, errors.New("the handler runs") })
	if _, ok := resp.(*mooringv1.InsertOneResponse); !ok || err != nil || ran != 1 {
		t.Errorf("InsertOne = %v, %v; it ran %d times", resp, err, ran)
	}
	ss := &sending{received: received{
		ctx: ctx,
		message: &mooringv1.StreamFindRequest{
			Database: "d", Collection: "c", Transaction: new("t"),
		},
	}}
	err = a.chain.Stream()(nil, ss,
		&grpc.StreamServerInfo{FullMethod: service + "StreamFind", IsServerStream: true},
		func(_ any, ss grpc.ServerStream) error {
			return ss.RecvMsg(&mooringv1.StreamFindRequest{})
		})
	if err != nil || ran != 2 || len(ss.sent) != 1 {
		t.Errorf("StreamFind = %v, %d messages; %d calls ran", err, len(ss.sent), ran)
	}
	once := map[string]bool{
		"permit": true, "decide": true, "admit": true, "audit": true, "count": true, "route": true,
		"pace": true,
	}
	steps, _ := a.chain.Order()
	for _, name := range steps {
		want := 4 // two calls at two replicas
		if once[name] {
			want = 2
		}
		if got := a.steps[name] + b.steps[name]; got != want {
			t.Errorf("%s ran %d times at a and %d at b, want %d", name, a.steps[name],
				b.steps[name], want)
		}
	}
	if a.meter.ended != 2 || b.meter.ended != 0 {
		t.Errorf("a counts %d calls and b %d, want 2 and none", a.meter.ended, b.meter.ended)
	}
	a.flush()
	b.flush()
	if n := strings.Count(a.log.String(), "msg=audit"); n != 1 || b.log.Len() > 0 {
		t.Errorf("a audits %d calls, want the write; b %q", n, b.log.String())
	}
}

// answering is a replica whose answers have 2 MiB.
type answering struct{}

func (answering) Forward(ctx context.Context, f *call.Forwarding) (call.Reply, error) {
	return call.Reply{Response: f.Answer.New().Interface()},
		admission.From(ctx).GrowLast(ctx, 2<<20)
}

// TestForwardedWritesWaitForMemory checks that the response of a write that another replica has
// done is not refused for lack of memory, and that of a read is.
func TestForwardedWritesWaitForMemory(t *testing.T) {
	n := newNode(t, `permit (principal, action, resource);`, &elsewhere{}, answering{})
	local := call.Local{Identity: &caller.Identity{Principal: "key:shop"}}
	ctx := &call.LocalContext{Context: t.Context(), Local: local}
	for method, row := range map[string]struct {
		request proto.Message
		refused bool
	}{
		"InsertOne": {
			&mooringv1.InsertOneRequest{Database: "d", Collection: "c", Transaction: new("t")}, false,
		},
		"FindOne": {
			&mooringv1.FindOneRequest{Database: "d", Collection: "c", Transaction: new("t")}, true,
		},
	} {
		_, err := n.chain.Unary()(ctx, row.request,
			&grpc.UnaryServerInfo{FullMethod: "/mooring.v1.DocumentService/" + method},
			func(context.Context, any) (any, error) { return nil, errors.New("the handler runs") })
		if (err != nil) != row.refused {
			t.Errorf("%s = %v; want a refusal: %t", method, err, row.refused)
		}
	}
}

// TestOneHop checks that a call that another replica has forwarded goes no further.
func TestOneHop(t *testing.T) {
	there := &elsewhere{}
	x := interceptor.New(interceptor.Config{Transactions: there, Replicas: there})
	ctx := &call.LocalContext{
		Context: t.Context(), Local: call.Local{Forwarded: true, Owner: page.Instance{1}},
	}
	insert := &mooringv1.InsertOneRequest{Transaction: new("t")}
	_, err := x.Unary()(ctx, insert,
		&grpc.UnaryServerInfo{FullMethod: "/mooring.v1.DocumentService/InsertOne"},
		func(context.Context, any) (any, error) { return nil, errors.New("the handler runs") })
	if err == nil || there.asked != nil {
		t.Errorf("InsertOne = %v, and %v was asked", err, there.asked)
	}
}

// returning is the error of a call about a cursor that comes here while another replica is asked.
type returning struct{}

func (returning) Error() string { return "it is elsewhere" }

func (returning) Route(
	ctx context.Context, here func(context.Context) error, _ call.There,
) (call.Reply, error) {
	return call.Reply{}, here(ctx)
}

// TestRouteBackHere checks that a handler runs again, with the same request, if what its call needs
// has come here meanwhile. The policy has decided before, and does not change the request again.
func TestRouteBackHere(t *testing.T) {
	p, err := policy.Parse([]byte(`@filter("{'a': 1}") permit (principal, action, resource);`))
	if err != nil {
		t.Fatal(err)
	}
	x := interceptor.New(interceptor.Config{Policy: policy.NewEnforcer(policy.Config{Policy: p})})
	const service = "/mooring.v1.DocumentService/"
	var runs []proto.Message
	run := func(m any) error {
		request, _ := m.(proto.Message)
		if runs = append(runs, proto.Clone(request)); len(runs) == 1 {
			return returning{}
		}
		return nil
	}
	check := func(name string, err error) {
		t.Helper()
		if err != nil || len(runs) != 2 || !proto.Equal(runs[0], runs[1]) {
			t.Errorf("%s: %v; the handler got %v", name, err, runs)
		}
		runs = nil
	}
	find := &mooringv1.FindOneRequest{Database: "d", Collection: "c"}
	_, err = x.Unary()(t.Context(), find, &grpc.UnaryServerInfo{FullMethod: service + "FindOne"},
		func(_ context.Context, m any) (any, error) { return &mooringv1.FindOneResponse{}, run(m) })
	check("FindOne", err)
	ss := &received{
		ctx: t.Context(), message: &mooringv1.StreamFindRequest{Database: "d", Collection: "c"},
	}
	err = x.Stream()(nil, ss,
		&grpc.StreamServerInfo{FullMethod: service + "StreamFind", IsServerStream: true},
		func(_ any, ss grpc.ServerStream) error {
			m := &mooringv1.StreamFindRequest{}
			if err := ss.RecvMsg(m); err != nil {
				return err
			}
			return run(m)
		})
	check("StreamFind", err)
}

// TestRoutes checks that a call leaves this replica if the options of its method give it a route to
// another, and else does not, whatever its handler returns.
func TestRoutes(t *testing.T) {
	x := interceptor.New(interceptor.Config{})
	leaves := map[mooringv1.Method_Route]bool{
		mooringv1.Method_ROUTE_HERE: false, mooringv1.Method_ROUTE_TRANSACTION: true, mooringv1.Method_ROUTE_OUTCOME: true,
		mooringv1.Method_ROUTE_CURSOR: true, mooringv1.Method_ROUTE_HANDLE: true,
	}
	for _, m := range method.All() {
		want, known := leaves[m.Route]
		runs := 0
		_, err := x.Unary()(t.Context(), m.Descriptor.Input(),
			&grpc.UnaryServerInfo{FullMethod: m.Name},
			func(context.Context, any) (any, error) {
				if runs++; runs == 1 {
					return nil, returning{}
				}
				return &mooringv1.FindOneResponse{}, nil
			})
		if !known || want != (err == nil) || want != (runs == 2) {
			t.Errorf("%s of route %s: it ran %d times, %v", m.Name, m.Route, runs, err)
		}
	}
}

// TestForwardedCallsDuringDrain checks that other replicas reach the cursors and handles of one
// whose gate is closed, and nothing else there: the pager hands the cursors over only then.
func TestForwardedCallsDuringDrain(t *testing.T) {
	gate := interceptor.NewGate()
	x := interceptor.New(interceptor.Config{Gate: gate})
	if err := gate.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		method    string
		forwarded bool
		want      codes.Code
	}{
		{"CursorService/NextPage", true, codes.OK},
		{"CursorService/NextPage", false, codes.Unavailable},
		{"DeploymentService/KillHandle", true, codes.OK},
		{"DeploymentService/KillHandle", false, codes.Unavailable},
		{"DocumentService/FindOne", true, codes.Unavailable},
		{"TransactionService/Commit", true, codes.Unavailable},
	} {
		ctx := &call.LocalContext{Context: t.Context(), Local: call.Local{Forwarded: row.forwarded}}
		_, err := x.Unary()(ctx, &mooringv1.NextPageRequest{},
			&grpc.UnaryServerInfo{FullMethod: "/mooring.v1." + row.method},
			func(context.Context, any) (any, error) { return &mooringv1.NextPageResponse{}, nil })
		if status.Code(err) != row.want || gate.InFlight() != 0 {
			t.Errorf("%s, forwarded %t = %v, want %s", row.method, row.forwarded, err, row.want)
		}
	}
}
