package replica_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// answers serves the calls that other replicas forward.
type answers struct {
	mooringv1.UnimplementedDocumentServiceServer
	local    call.Local
	metadata metadata.MD
	request  proto.Message
	document string
	messages []string
	begun    bool  // streams wait for memory
	batch    int64 // that they are charged with
	err      error
	admitted *admission.Admission
	held     int64 // by admitted, while a call runs
}

func (a *answers) note(ctx context.Context, request proto.Message) {
	a.local, a.request = call.LocalFrom(ctx), request
	a.local.Account, a.local.Lent = nil, nil // of the listener
	a.metadata, _ = metadata.FromIncomingContext(ctx)
	if a.admitted != nil {
		a.held = a.admitted.Bytes().Held
	}
}

func (a *answers) InsertMany(
	ctx context.Context, req *mooringv1.InsertManyRequest,
) (*mooringv1.InsertManyResponse, error) {
	a.note(ctx, req)
	return &mooringv1.InsertManyResponse{}, a.err
}

func (a *answers) FindOne(
	ctx context.Context, req *mooringv1.FindOneRequest,
) (*mooringv1.FindOneResponse, error) {
	a.note(ctx, req)
	return &mooringv1.FindOneResponse{Document: bsonOf(traceOf(ctx) + a.document)}, a.err
}

func (a *answers) StreamFind(
	req *mooringv1.StreamFindRequest, ss grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
) error {
	a.note(ss.Context(), req)
	if a.begun {
		account := call.LocalFrom(ss.Context()).Account
		account.GoOn()
		if err := account.GrowLast(ss.Context(), a.batch); err != nil {
			return err
		}
	}
	for _, m := range append(a.messages, traceOf(ss.Context())) {
		if err := ss.Send(&mooringv1.StreamFindResponse{
			Documents: []*mooringv1.Document{bsonOf(m)},
		}); err != nil {
			return err
		}
	}
	return a.err
}

func bsonOf(text string) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: text}}
}

// serve has a replica answer the calls of the API.
func (a *answers) serve(n *node) {
	api := plain(func(r grpc.ServiceRegistrar) { mooringv1.RegisterDocumentServiceServer(r, a) })
	if a.admitted != nil {
		api.OpenAccount = func(ctx context.Context, c *admission.Account) {
			a.admitted.Open(c, admission.PrincipalOf("", call.LocalFrom(ctx).Client))
		}
	}
	n.SetAPI(api)
	n.Serve(&fake{})
}

// findOne is a call that is forwarded to a replica, and streamFind one that answers with a stream.
func findOne(to *node, local call.Local, md metadata.MD) *call.Forwarding {
	return &call.Forwarding{
		To:      page.Replica{Address: to.Advertised(), Instance: local.Owner},
		Method:  mooringv1.DocumentService_FindOne_FullMethodName,
		Request: &mooringv1.FindOneRequest{Database: "d"},
		Answer:  (&mooringv1.FindOneResponse{}).ProtoReflect().Type(), Local: local, Metadata: md,
	}
}

func streamFind(to *node, local call.Local, md metadata.MD) *call.Forwarding {
	return &call.Forwarding{
		To:      page.Replica{Address: to.Advertised(), Instance: local.Owner},
		Method:  mooringv1.DocumentService_StreamFind_FullMethodName,
		Request: &mooringv1.StreamFindRequest{Database: "d"},
		Streams: true, Answer: (&mooringv1.StreamFindResponse{}).ProtoReflect().Type(),
		Local: local, Metadata: md,
	}
}

// receive returns the texts of a stream's messages, and the error that ended it.
func receive(s call.Stream) (texts []string, err error) {
	defer s.Close()
	for {
		m, err := s.Recv()
		if err != nil {
			return texts, err
		}
		found, _ := m.(*mooringv1.StreamFindResponse)
		texts = append(texts, found.GetDocuments()[0].GetJson())
	}
}

// isWhole returns an error if a stream does not bring the messages, and then the end.
func isWhole(s call.Stream, messages []string) error {
	texts, err := receive(s)
	if errors.Is(err, io.EOF) && slices.Equal(texts, append(slices.Clone(messages), "")) {
		return nil
	}
	return fmt.Errorf("%d messages arrive, then %w", len(texts), err)
}

// TestForward checks that all that a replica says of a call arrives, and so do its response, its
// messages and its errors.
func TestForward(t *testing.T) {
	peer := bind(t, "a")
	made := &answers{messages: []string{"one", "", "three"}}
	made.serve(peer)
	n := start(t, "a", nil)
	local := call.Local{
		Forwarded: true, Owner: [16]byte{1, 2}, RequestID: "id",
		Identity: &caller.Identity{
			Principal: "ann", Groups: []string{"g"},
			Claims: map[string]any{"a": []any{strings.Repeat("b", 16<<10), 1.5}},
		},
		Text: true, Casual: true, Quiet: true, Whole: true,
		Client: netip.MustParseAddr("192.0.2.1"),
	}
	md := metadata.Pairs("x", "1", "x", "2", "y", "3")
	arrived := func(f *call.Forwarding) {
		t.Helper()
		if !reflect.DeepEqual(made.local, local) || !proto.Equal(made.request, f.Request) {
			t.Errorf("arrived %+v, %v; want %+v, %v", made.local, made.request, local, f.Request)
		}
		if !slices.Equal(made.metadata["x"], md["x"]) ||
			!slices.Equal(made.metadata["y"], md["y"]) {
			t.Errorf("arrived %v, want %v", made.metadata, md)
		}
	}
	f := findOne(peer, local, md)
	if reply, err := n.Forward(t.Context(), f); err != nil || reply.Stream != nil ||
		reply.Response == nil {
		t.Errorf("Forward = %v, %v", reply, err)
	}
	arrived(f)
	made.local = call.Local{}
	f = streamFind(peer, local, md)
	reply, err := n.Forward(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := receive(reply.Stream)
	if !errors.Is(err, io.EOF) || !slices.Equal(texts, append(made.messages, "")) {
		t.Errorf("a stream = %q, %v; want %q", texts, err, made.messages)
	}
	arrived(f)
	for _, row := range []struct {
		name string
		err  error
		want func(error) bool
	}{
		{"a named error", paging.ErrNotHere, func(err error) bool { return errors.Is(err, paging.ErrNotHere) }},
		{"a replica that ends", handle.ErrClosing, func(err error) bool { return errors.Is(err, handle.ErrClosing) }},
		{"another error", &rpcerr.Error{Reason: rpcerr.TransactionBusy, Message: "busy"}, func(
			err error,
		) bool {
			return status.Code(err) == codes.Aborted &&
				rpcerr.HTTP(err).Body.GetError().GetReason() == string(rpcerr.TransactionBusy)
		}},
	} {
		made.err = row.err
		if _, err := n.Forward(t.Context(), findOne(peer, local, md)); !row.want(err) {
			t.Errorf("%s: Forward = %v", row.name, err)
		}
		reply, err := n.Forward(t.Context(), streamFind(peer, local, md))
		if err == nil {
			_, err = receive(reply.Stream)
		}
		if !row.want(err) {
			t.Errorf("%s: a stream ends with %v", row.name, err)
		}
	}
}

// TestUnsendable checks that a request that has no encoding is not taken for a call that was lost.
func TestUnsendable(t *testing.T) {
	peer := bind(t, "a")
	made := &answers{}
	made.serve(peer)
	n := start(t, "a", nil)
	for name, f := range map[string]*call.Forwarding{
		"unary": findOne(peer, call.Local{}, nil), "stream": streamFind(peer, call.Local{}, nil),
	} {
		f.Request = &mooringv1.FindOneRequest{Database: "\xff"}
		_, err := n.Forward(t.Context(), f)
		if _, lost := errors.AsType[*paging.UnreachableError](err); lost || err == nil ||
			!strings.Contains(err.Error(), "invalid UTF-8") {
			t.Errorf("%s: %v, want that it is not UTF-8", name, err)
		}
		if made.request != nil {
			t.Errorf("%s: %v arrived", name, made.request)
		}
	}
	if got := n.Stats().Unreachable; got != 0 {
		t.Errorf("%d replicas count as lost", got)
	}
}

// TestForwardedRequestsAreCharged checks that a request is charged until the end of its call, as
// one that comes from a client; that one without room is refused, and its replica does not count
// as lost; and that a small one, as that of a commit, needs no room.
func TestForwardedRequestsAreCharged(t *testing.T) {
	const budget = 4 << 20
	a := admission.New(admission.Config{Bytes: budget})
	peer := bind(t, "a")
	made := &answers{admitted: a}
	made.serve(peer)
	n := start(t, "a", nil)
	small := findOne(peer, call.Local{Client: netip.MustParseAddr("192.0.2.1")}, nil)
	large, many := *small, *small
	large.Request = &mooringv1.FindOneRequest{Database: strings.Repeat("d", 1<<20)}
	items := &mooringv1.InsertManyRequest{Database: "d"}
	for range 1000 {
		items.Documents = append(items.Documents, bsonOf("{}"))
	}
	many.Request, many.Answer = items, (&mooringv1.InsertManyResponse{}).ProtoReflect().Type()
	many.Method = mooringv1.DocumentService_InsertMany_FullMethodName
	streamed := streamFind(peer, small.Local, nil)
	streamed.Request = &mooringv1.StreamFindRequest{Database: strings.Repeat("d", 1<<20)}
	forward := func(f *call.Forwarding) error {
		made.request, made.held = nil, 0
		reply, err := n.Forward(t.Context(), f)
		reply.Drop()
		eventually(t, "the memory of the call is returned", func() bool {
			return a.Bytes().Held == 0 || a.Bytes().Held == budget
		})
		return err
	}
	for _, row := range []struct {
		name string
		f    *call.Forwarding
		want int64
	}{
		{"small", small, 0},
		{"large", &large, 2 * int64(proto.Size(large.Request))},
		{"many items", &many, 1000 * 512},
		{"stream", streamed, 2 * int64(proto.Size(streamed.Request))},
	} {
		if err := forward(row.f); err != nil || made.held != row.want {
			t.Errorf("%s: Forward = %v, with %d bytes; want %d", row.name, err, made.held, row.want)
		}
	}
	var others admission.Account
	a.Open(&others, admission.Principal{Name: "key:other"})
	defer others.Close()
	others.Force(budget)
	for _, f := range []*call.Forwarding{&large, &many, streamed} {
		err := forward(f)
		if err == nil || rpcerr.HTTP(err).Body.GetError().GetReason() != "Overloaded" ||
			made.request != nil {
			t.Errorf("without room: Forward = %v, arrived: %t", err, made.request != nil)
		}
	}
	if err := forward(small); err != nil {
		t.Errorf("a small request without room: %v", err)
	}
	if got := n.Stats().Unreachable; got != 0 {
		t.Errorf("%d replicas count as lost", got)
	}
}

// charging returns the context of a call that a is charged with.
func charging(t *testing.T, a *admission.Admission) (ctx context.Context, c *admission.Account) {
	c = &admission.Account{}
	a.Open(c, admission.Principal{Name: "key:client"})
	t.Cleanup(c.Close)
	return context.WithValue(t.Context(), admission.AccountKey{}, c), c
}

// TestForwardedResponsesAreCharged checks that a large response is charged at the replica that
// answers until it is sent, and at the replica that asks as long as its call may use it.
func TestForwardedResponsesAreCharged(t *testing.T) {
	const size = 8 << 20
	there := admission.New(admission.Config{Bytes: 64 << 20})
	peer := bind(t, "a")
	made := &answers{
		admitted: there, document: strings.Repeat("d", size),
		messages: []string{strings.Repeat("m", size), "small", strings.Repeat("m", size)},
	}
	made.serve(peer)
	n := start(t, "a", nil)
	returned := func(a *admission.Admission) {
		t.Helper()
		eventually(t, "the memory is returned", func() bool { return a.Bytes().Held == 0 })
	}
	isRefused := func(err error) bool {
		_, here := errors.AsType[*admission.Error](err)
		return here || err != nil && rpcerr.HTTP(err).Body.GetError().GetReason() == "Overloaded"
	}
	unary := findOne(peer, call.Local{}, nil)
	streamed := streamFind(peer, call.Local{}, nil)

	t.Run("unary", func(t *testing.T) {
		ctx, account := charging(t, admission.New(admission.Config{Bytes: 64 << 20}))
		reply, err := n.Forward(ctx, unary)
		if got, want := account.Held(), int64(proto.Size(reply.Response)); err != nil ||
			want < size || got != want {
			t.Errorf("Forward = %v, with %d bytes; want %d", err, got, want)
		}
		returned(there)
	})
	t.Run("stream", func(t *testing.T) {
		ctx, account := charging(t, admission.New(admission.Config{Bytes: 64 << 20}))
		reply, err := n.Forward(ctx, streamed)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "a message waits at its replica", func() bool {
			return there.Bytes().Held > size && account.Held() == 0
		})
		for i, want := range append(made.messages, "") {
			m, err := reply.Stream.Recv()
			found, _ := m.(*mooringv1.StreamFindResponse)
			held := int64(0)
			if len(want) == size {
				held = int64(proto.Size(found))
			}
			if err != nil || found.GetDocuments()[0].GetJson() != want || account.Held() != held {
				t.Errorf("message %d: %v, with %d bytes; want %d", i, err, account.Held(), held)
			}
		}
		if _, err := reply.Stream.Recv(); !errors.Is(err, io.EOF) || account.Held() != 0 {
			t.Errorf("the stream ends with %v, and %d bytes", err, account.Held())
		}
		returned(there)
	})
	t.Run("no room", func(t *testing.T) {
		here := admission.New(admission.Config{Bytes: size / 2})
		ctx, _ := charging(t, here)
		if reply, err := n.Forward(ctx, unary); !isRefused(err) {
			t.Errorf("Forward = %v, %v", reply.Response != nil, err)
		}
		reply, err := n.Forward(ctx, streamed)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := reply.Stream.Recv(); !isRefused(err) {
			t.Errorf("Recv = %v, %v", m != nil, err)
		}
		returned(here)
		returned(there)
	})
	t.Run("no room yet", func(t *testing.T) {
		here := admission.New(admission.Config{Bytes: 2 * size, Patience: time.Hour})
		var others admission.Account
		here.Open(&others, admission.Principal{Name: "key:other"})
		others.Force(2 * size)
		ctx, account := charging(t, here)
		reply, err := n.Forward(ctx, streamed)
		if err != nil {
			t.Fatal(err)
		}
		received := make(chan error, 1)
		go func() {
			_, err := reply.Stream.Recv()
			received <- err
		}()
		eventually(t, "the call waits", func() bool { return here.Bytes().Waiting == 1 })
		if got := there.Bytes().Held; got < size || account.Held() > 0 {
			t.Errorf("the message waits with %d bytes there, %d here", got, account.Held())
		}
		others.Close()
		if err := <-received; err != nil || account.Held() < size {
			t.Errorf("Recv = %v, with %d bytes", err, account.Held())
		}
		reply.Drop()
		returned(there)
	})
	t.Run("no room there", func(t *testing.T) {
		var others admission.Account
		there.Open(&others, admission.Principal{Name: "key:other"})
		defer others.Close()
		others.Force(64 << 20)
		ctx, _ := charging(t, admission.New(admission.Config{}))
		if _, err := n.Forward(ctx, unary); !isRefused(err) {
			t.Errorf("Forward = %v", err)
		}
		reply, err := n.Forward(ctx, streamed)
		if err == nil {
			_, err = reply.Stream.Recv()
		}
		if !isRefused(err) {
			t.Errorf("a stream ends with %v", err)
		}
	})
	t.Run("no room there for a stream that has begun", func(t *testing.T) {
		const budget, batch = 64 << 20, 1 << 20
		made.begun, made.batch = true, batch
		defer func() { made.begun, made.batch = false, 0 }()
		var others admission.Account
		there.Open(&others, admission.Principal{Name: "key:other"})
		defer others.Close()
		others.Force(budget)
		ctx, _ := charging(t, admission.New(admission.Config{}))
		first, err := n.Forward(ctx, streamed)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "a message exceeds the budget", func() bool {
			return there.Bytes().Held > budget+batch+size
		})
		made.batch = 0
		second := make(chan error, 1)
		go func() {
			reply, err := n.Forward(ctx, streamed)
			if err == nil {
				err = isWhole(reply.Stream, made.messages)
			}
			second <- err
		}()
		eventually(t, "the next stream waits", func() bool { return there.Bytes().Waiting == 1 })
		if got := there.Bytes().Held; got > budget+batch+2*size {
			t.Errorf("%d bytes are held", got)
		}
		if err := errors.Join(isWhole(first.Stream, made.messages), <-second); err != nil {
			t.Error(err)
		}
		others.Close()
		returned(there)
	})
	t.Run("the other replica goes", func(t *testing.T) {
		ctx, _ := charging(t, admission.New(admission.Config{}))
		gone := start(t, "a", nil)
		if _, err := gone.Forward(ctx, streamed); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a message waits", func() bool { return there.Bytes().Held > size })
		gone.stop()
		returned(there)
	})
	if got := n.Stats().Unreachable; got != 0 {
		t.Errorf("%d replicas count as lost", got)
	}
}

// TestUnaskedSizes checks that a replica of an earlier release, which does not ask for the sizes of
// large messages, gets none.
func TestUnaskedSizes(t *testing.T) {
	peer := bind(t, "a")
	made := &answers{document: strings.Repeat("d", 1<<20)}
	made.serve(peer)
	ctx := metadata.AppendToOutgoingContext(t.Context(),
		replica.ForwardingKey, "", replica.DeploymentKey, peer.Serves())
	found, err := mooringv1.NewDocumentServiceClient(dialAs(t, "a", peer.Advertised())).
		FindOne(ctx, &mooringv1.FindOneRequest{})
	if err != nil || found.GetDocument().GetJson() != made.document {
		t.Errorf("FindOne = %d bytes, %v", len(found.GetDocument().GetJson()), err)
	}
}

// TestForwardedSize checks that a request that is too large for another replica is not taken for a
// call that was lost, and that clients may send requests as large as they may elsewhere.
func TestForwardedSize(t *testing.T) {
	const larger = replica.MaxMessageBytes + 1<<20
	request := &mooringv1.FindOneRequest{Database: strings.Repeat("d", replica.MaxMessageBytes)}
	for _, row := range []struct {
		name    string
		most    int
		arrives bool
	}{{"the largest of a client is smaller", 1, false}, {"it is larger", larger, true}} {
		t.Run(row.name, func(t *testing.T) {
			within := func(c *replica.Config) { c.MaxRequestSize = row.most }
			peer := bind(t, "a", within)
			made := &answers{}
			made.serve(peer)
			n := start(t, "a", nil, within)
			for name, f := range map[string]*call.Forwarding{
				"unary":  findOne(peer, call.Local{}, nil),
				"stream": streamFind(peer, call.Local{}, nil),
			} {
				made.request, f.Request = nil, request
				reply, err := n.Forward(t.Context(), f)
				reply.Drop()
				e, _ := errors.AsType[*rpcerr.Error](err)
				isRefused := e != nil && e.Reason == rpcerr.TooLarge
				if (err == nil) != row.arrives || (made.request != nil) != row.arrives ||
					isRefused == row.arrives {
					t.Errorf("%s: Forward = %v, arrived: %t", name, err, made.request != nil)
				}
			}
			if got := n.Stats().Unreachable; got != 0 {
				t.Errorf("%d replicas count as lost", got)
			}
		})
	}
}

// TestUnassertedCalls checks that a call of the API that does not say for which client it is made,
// or says so more than once or unreadably, is not made.
func TestUnassertedCalls(t *testing.T) {
	peer := bind(t, "a")
	made := &answers{}
	made.serve(peer)
	conn := dialAs(t, "a", peer.Advertised())
	for name, pairs := range map[string][]string{
		"nothing":     nil,
		"twice":       {replica.ForwardingKey, "", replica.ForwardingKey, ""},
		"no message":  {replica.ForwardingKey, "\xff"},
		"bad owner":   {replica.ForwardingKey, "\x0a\x01a"},
		"bad address": {replica.ForwardingKey, "\x5a\x01a"},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(),
			append(pairs, replica.DeploymentKey, peer.Serves())...)
		_, err := mooringv1.NewDocumentServiceClient(conn).FindOne(ctx, &mooringv1.FindOneRequest{})
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: FindOne = %v", name, err)
		}
		ss, err := mooringv1.NewDocumentServiceClient(conn).
			StreamFind(ctx, &mooringv1.StreamFindRequest{})
		if err == nil {
			_, err = ss.Recv()
		}
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: StreamFind = %v", name, err)
		}
	}
	if made.request != nil {
		t.Errorf("%v was run", made.request)
	}
}

// dialAs connects to a replica with those keys.
func dialAs(t *testing.T, letters, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(replica.Credentials(ring(t, letters))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// traceKey is the key of the name of a trace, in a context.
type traceKey struct{}

func traceOf(ctx context.Context) string {
	name, _ := ctx.Value(traceKey{}).(string)
	return name
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
			(&answers{err: row.err}).serve(peer)
			n := start(t, "a", nil, func(c *replica.Config) {
				c.Inject = func(ctx context.Context, md metadata.MD) {
					md.Set(header, traceOf(ctx))
				}
			})
			ctx := context.WithValue(t.Context(), traceKey{}, "one")
			reply, err := n.Forward(ctx, findOne(peer, call.Local{}, nil))
			if found, _ := reply.Response.(*mooringv1.FindOneResponse); status.Code(
				err) != row.code || err == nil && found.GetDocument().GetJson() != "one" {
				t.Errorf("Forward = %v, %v; want the trace one, %v", reply, err, row.code)
			}
			want := ended{mooringv1.DocumentService_FindOne_FullMethodName, "one", row.code}
			if got := <-ends; got != want {
				t.Errorf("Forward: the trace has %+v, want %+v", got, want)
			}

			ctx = context.WithValue(t.Context(), traceKey{}, "two")
			reply, err = n.Forward(ctx, streamFind(peer, call.Local{}, nil))
			if err != nil {
				t.Fatal(err)
			}
			texts, err := receive(reply.Stream)
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if status.Code(err) != row.code || !slices.Equal(texts, []string{"two"}) {
				t.Errorf("a stream = %v, messages %q; want the trace two, %v", err, texts, row.code)
			}
			want = ended{mooringv1.DocumentService_StreamFind_FullMethodName, "two", row.code}
			if got := <-ends; got != want {
				t.Errorf("a stream: the trace has %+v, want %+v", got, want)
			}
		})
	}
}
