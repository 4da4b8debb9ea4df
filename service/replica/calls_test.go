package replica_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
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

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// fill sets every field below v to a value that is not zero, so that a field that is not carried
// is noticed.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		switch x := v.Addr().Interface().(type) {
		case *time.Time:
			*x = time.UnixMilli(1_700_000_000_000 + int64(*n)).UTC()
			return
		case *cursor.State: // package handle tests its form
			*x = cursor.State{
				Server: "db:1", ID: int64(*n), Database: "d", Collection: "c", BatchSize: 5,
				Remaining: 6,
			}
			return
		case *netip.Addr:
			*x = netip.AddrFrom4([4]byte{192, 0, 2, byte(*n)})
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[[]bson.Raw]() {
			v.Set(reflect.ValueOf(documents(3, *n)))
			return
		}
		if v.Type().Elem() == reflect.TypeFor[*buffer.Buffer]() {
			return // the memory of this replica's process, which stays there
		}
		panic("a slice of " + v.Type().Elem().String())
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(*n + i))
		}
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	default:
		panic("a field of type " + v.Type().String())
	}
}

func filled[T any]() T {
	var v T
	n := 0
	fill(reflect.ValueOf(&v).Elem(), &n)
	return v
}

func documents(n, bytes int) []bson.Raw {
	docs := make([]bson.Raw, n)
	for i := range docs {
		docs[i] = bson.NewBuilder(nil).Int32("i", int32(i)).Binary("pad", 0, make([]byte, bytes)).
			Finish()
	}
	return docs
}

func TestPush(t *testing.T) {
	held, nothing := filled[paging.Record](), filled[paging.Record]()
	nothing.Holding = nil
	records := []paging.Record{held, nothing}
	var got []paging.Record
	self := filled[page.Replica]()
	peer := start(t, "a", &fake{self: self, accept: func(rec paging.Record) error {
		got = append(got, rec)
		return nil
	}})
	who, err := start(t, "a", nil).Push(t.Context(), peer.Advertised(), slices.Values(records))
	if err != nil || who != self {
		t.Errorf("Push = %+v, %v; want %+v", who, err, self)
	}
	if !reflect.DeepEqual(got, records) {
		t.Errorf("accepted %+v, want %+v", got, records)
	}
}

// TestPushThatBreaksOff: no record of it counts, so that it can go to another replica.
func TestPushThatBreaksOff(t *testing.T) {
	peer := start(t, "a", &fake{accept: func(paging.Record) error {
		t.Error("a record of a push that broke off was accepted")
		return nil
	}})
	way := newProxy(t, peer.Advertised())
	n := start(t, "a", nil)
	record := paging.Record{Holding: &paging.Holding{Leftover: documents(1, 1<<20)}}
	_, err := n.Push(t.Context(), way.address(), func(yield func(paging.Record) bool) {
		for i := 0; yield(record); i++ {
			if i == 3 {
				way.cut()
			}
		}
	})
	if e, ok := errors.AsType[*paging.UnreachableError](err); !ok || !e.Sent {
		t.Errorf("Push = %v, want *UnreachableError, sent", err)
	}
	// A replica that is closing refuses it.
	closing := start(t, "a", nil)
	if _, err := n.Push(t.Context(), closing.Advertised(),
		slices.Values([]paging.Record{record})); !errors.Is(err, handle.ErrClosing) {
		t.Errorf("Push to a replica that is closing = %v, want ErrClosing", err)
	}
	// The replica begins to close in the middle: the records that it has accepted count, so no
	// other replica may get them.
	taken := 0
	half := start(t, "a", &fake{accept: func(paging.Record) error {
		if taken++; taken > 1 {
			return handle.ErrClosing
		}
		return nil
	}})
	_, err = n.Push(t.Context(), half.Advertised(), slices.Values([]paging.Record{record, record}))
	if e, ok := errors.AsType[*paging.UnreachableError](err); !ok || !e.Sent {
		t.Errorf("Push that was taken by half = %v, want *UnreachableError, sent", err)
	}
}

func TestListAndKill(t *testing.T) {
	info := filled[handle.Info]()
	all := slices.Repeat([]handle.Info{info}, 1234)
	var asked handle.Query
	killed := ""
	peer := start(t, "a", &fake{
		list: func(q handle.Query) []handle.Info {
			asked = q
			return all[:min(q.Limit, len(all))]
		},
		kill: func(_ context.Context, id string) error {
			killed = id
			return nil
		},
	})
	n := start(t, "a", nil)
	q := filled[handle.Query]()
	q.Limit = 2000
	got, err := n.List(t.Context(), peer.Advertised(), q)
	if err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("List = %d handles, %v; want %d, first %+v, want %+v", len(got), err, len(all),
			got[:min(1, len(got))], info)
	}
	if !reflect.DeepEqual(asked, q) {
		t.Errorf("asked for %+v, want %+v", asked, q)
	}
	if got, err := n.List(t.Context(), peer.Advertised(), handle.Query{}); err != nil ||
		len(got) != 0 || !reflect.DeepEqual(asked, handle.Query{}) {
		t.Errorf("List of nothing = %d handles, %v; asked for %+v", len(got), err, asked)
	}
	if err := n.Kill(t.Context(), peer.Advertised(), "x"); err != nil || killed != "x" {
		t.Errorf("Kill = %v, killed %q, want x", err, killed)
	}
}

// TestNamedErrors: all errors of paging, and those of handle that a replica can return, arrive
// unchanged.
func TestNamedErrors(t *testing.T) {
	sentinels := map[string]error{
		"ErrCursorNotFound": paging.ErrCursorNotFound, "ErrCursorTokenReused": paging.ErrCursorTokenReused,
		"ErrCursorPositionUnknown": paging.ErrCursorPositionUnknown, "ErrOwnerGone": paging.ErrOwnerGone,
		"ErrClosing": handle.ErrClosing, "ErrNotFound": handle.ErrNotFound, "ErrNotHere": paging.ErrNotHere,
		"ErrTokenVersion": paging.ErrTokenVersion, "ErrCursorEvicted": paging.ErrCursorEvicted,
		"ErrOtherTransaction": paging.ErrOtherTransaction,
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../paging/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, name := range spec.Names {
				if name.IsExported() && sentinels[name.Name] == nil {
					t.Errorf("paging.%s is not tested here", name)
				}
			}
		}
		return true
	})
	var next error
	peer := start(t, "a", &fake{
		answer: func(context.Context) error { return next },
		kill:   func(context.Context, string) error { return next },
	})
	n := start(t, "a", nil)
	for name, want := range sentinels {
		next = fmt.Errorf("around: %w", want)
		if err := n.ask(t.Context(), peer.Advertised()); !errors.Is(err, want) {
			t.Errorf("a call = %v, want %s", err, name)
		}
		if err := n.Kill(t.Context(), peer.Advertised(), "x"); !errors.Is(err, want) {
			t.Errorf("Kill = %v, want %s", err, name)
		}
	}
	if strings.Contains(peer.log.String(), "level=ERROR") {
		t.Errorf("the log takes answers for faults: %s", peer.log)
	}
}

// TestOtherErrors: the asker's client sees the error that a server returned to the owner.
func TestOtherErrors(t *testing.T) {
	for _, original := range []error{
		&mongoerr.CommandError{Code: 43, Name: "CursorNotFound", Message: "cursor id 7 not found"},
		&mongoerr.CommandError{Code: 50, Name: "MaxTimeMSExpired", Message: "too slow", Labels: []string{"x"}},
		&mongoerr.NetworkError{Address: "db:1", Err: io.ErrUnexpectedEOF},
		&handle.LimitError{Max: 3},
	} {
		peer := start(t, "a", &fake{answer: func(context.Context) error { return original }})
		err := start(t, "a", nil).ask(t.Context(), peer.Advertised())
		if _, ok := errors.AsType[*replica.RemoteError](err); !ok {
			t.Errorf("a call = %v, want *RemoteError of %v", err, original)
			continue
		}
		got, want := rpcerr.Status(err), rpcerr.Status(original)
		same := slices.EqualFunc(got.Details(), want.Details(), func(a, b any) bool {
			return proto.Equal(a.(proto.Message), b.(proto.Message))
		})
		if !same || got.Code() != want.Code() || got.Message() != want.Message() {
			t.Errorf("a client sees %v, want %v", got, want)
		}
	}
}

// TestMoved checks that a replica learns where the cursor is that it has asked another one for.
func TestMoved(t *testing.T) {
	want := filled[page.Replica]()
	peer := start(t, "a", &fake{answer: func(context.Context) error {
		return fmt.Errorf("around: %w", &paging.MovedError{To: want})
	}})
	err := start(t, "a", nil).ask(t.Context(), peer.Advertised())
	if moved, ok := errors.AsType[*paging.MovedError](err); !ok || moved.To != want {
		t.Errorf("a call = %v, want that it has moved to %v", err, want)
	}
}

// TestPanicIsNoAnswer: it is unknown what was done.
func TestPanicIsNoAnswer(t *testing.T) {
	peer := start(t, "a", &fake{accept: func(paging.Record) error { panic("ouch") }})
	_, err := start(t, "a", nil).
		Push(t.Context(), peer.Advertised(), slices.Values([]paging.Record{{}}))
	if e, ok := errors.AsType[*paging.UnreachableError](err); !ok || !e.Sent {
		t.Errorf("Push = %v, want *UnreachableError, sent", err)
	}
}

// TestDeadline: the caller's deadline is carried, and its end is the caller's own error.
func TestDeadline(t *testing.T) {
	asked := make(chan time.Duration, 1)
	peer := start(t, "a", &fake{answer: func(ctx context.Context) error {
		deadline, _ := ctx.Deadline()
		asked <- time.Until(deadline)
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	n := start(t, "a", nil)
	cause := errors.New("the client's time")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, cause)
	defer cancel()
	err := n.ask(ctx, peer.Advertised())
	if left := <-asked; left <= 0 || left > 3*time.Second {
		t.Errorf("the owner has %s left, want at most 3 s", left)
	}
	if status.Code(err) != codes.DeadlineExceeded && !errors.Is(err, cause) &&
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call = %v, want the cause or a deadline", err)
	}
	ctx, cancelCause := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancelCause(cause)
	}()
	if err := n.ask(ctx, peer.Advertised()); !errors.Is(err, cause) {
		t.Errorf("a call = %v, want the cause of the cancellation", err)
	}
}

// TestUnreachable: Sent is false only if the question certainly was not sent.
func TestUnreachable(t *testing.T) {
	n := start(t, "a", nil)
	ask := func(address string) (*paging.UnreachableError, error) {
		err := n.ask(t.Context(), address)
		e, _ := errors.AsType[*paging.UnreachableError](err)
		return e, err
	}
	gone := bind(t, "a")
	gone.stop()
	if e, err := ask(gone.Advertised()); e == nil || e.Sent || !e.Refused ||
		e.Address != gone.Advertised() {
		t.Errorf("nobody listens: a call = %v, want *UnreachableError, refused", err)
	}

	peer := start(t, "a", &fake{answer: func(ctx context.Context) error {
		return nil
	}})
	way := newProxy(t, peer.Advertised())
	if _, err := ask(way.address()); err != nil {
		t.Fatalf("through the proxy: a call = %v", err)
	}
	way.setMute(true)
	if e, err := ask(way.address()); e == nil || !e.Sent || e.Refused {
		t.Errorf("the answer was lost: a call = %v, want *UnreachableError, sent", err)
	}
	if s := n.Stats(); s.Calls < 3 || s.Unreachable != 2 {
		t.Errorf("Stats() = %+v, want 2 unreachable of at least 3 calls", s)
	}
	way.setMute(false)
	eventually(t, "asking works again", func() bool {
		_, err := ask(way.address())
		return err == nil
	})

	// It accepts connections and sends nothing.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	begun := time.Now()
	if e, err := ask(l.Addr().String()); e == nil || e.Sent || e.Refused ||
		time.Since(begun) > 5*time.Second {
		t.Errorf("nobody answers the handshake: a call = %v after %s, want *UnreachableError, "+
			"not sent, in 2 s", err, time.Since(begun))
	}
}

// TestRestartAtTheSameAddress: a new replica at the address is found soon.
func TestRestartAtTheSameAddress(t *testing.T) {
	answer := func(address string) *fake {
		return &fake{answer: func(context.Context) error {
			return &paging.MovedError{To: page.Replica{Address: address}}
		}}
	}
	first := start(t, "a", answer("1"))
	n := start(t, "a", nil)
	told := func() string {
		moved, ok := errors.AsType[*paging.MovedError](n.ask(t.Context(), first.Advertised()))
		if !ok {
			return ""
		}
		return moved.To.Address
	}
	if got := told(); got != "1" {
		t.Fatalf("the first replica answers %q", got)
	}
	first.stop()
	if err := n.ask(t.Context(), first.Advertised()); err == nil {
		t.Error("a call of a replica that has stopped = nil")
	}
	start(t, "a", answer("2"), at(first.Advertised()))
	eventually(t, "the new replica answers", func() bool { return told() == "2" })
}

// TestSizes: a page as large as a server's largest batch, and a page of many documents.
func TestSizes(t *testing.T) {
	for _, want := range [][]bson.Raw{documents(3, 16<<20), documents(30_000, 80)} {
		owner := start(t, "a", &fake{documents: want})
		reply, err := start(t, "a", nil).Forward(t.Context(), &call.Forwarding{
			To: page.Replica{Address: owner.Advertised()}, Request: &mooringv1.NextPageRequest{},
			Method: mooringv1.CursorService_NextPage_FullMethodName,
			Answer: (&mooringv1.NextPageResponse{}).ProtoReflect().Type(),
			Local:  call.Local{Forwarded: true},
		})
		got, _ := reply.Response.(*mooringv1.NextPageResponse)
		if err != nil || !slices.EqualFunc(got.GetDocuments(), want, func(
			d *mooringv1.Document, want bson.Raw,
		) bool {
			return bytes.Equal(d.GetBson(), want)
		}) {
			t.Errorf("NextPage: the page differs, %v", err)
		}
	}
}

// TestHostileMessages: a peer with a key cannot make a replica hold unbounded memory or accept a
// malformed message.
func TestHostileMessages(t *testing.T) {
	peer := start(t, "a", &fake{accept: func(paging.Record) error {
		t.Error("a malformed record was accepted")
		return nil
	}})
	conn, err := grpc.NewClient("passthrough:///"+peer.Advertised(), grpc.WithTransportCredentials(replica.Credentials(ring(t, "a"))),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := replicav1.NewReplicaServiceClient(conn)
	ctx := metadata.NewOutgoingContext(t.Context(),
		metadata.Pairs(replica.DeploymentKey, peer.Serves()))
	ok := &replicav1.Ledger{Next: 1, Phase: 1}
	for name, rec := range map[string]*replicav1.Record{
		"length beyond the end": {Ledger: ok, Holding: &replicav1.Holding{State: state(), Leftover: []byte{255, 255, 255, 127, 0}}},
		"negative length":       {Ledger: ok, Holding: &replicav1.Holding{State: state(), Leftover: []byte{255, 255, 255, 255, 0}}},
		"half a document":       {Ledger: ok, Holding: &replicav1.Holding{State: state(), Leftover: []byte{5, 0}}},
		"no state":              {Ledger: ok, Holding: &replicav1.Holding{}},
		"no ledger":             {},
		"phase out of range":    {Ledger: &replicav1.Ledger{Phase: 256}},
		"short id":              {Ledger: ok, Id: []byte{1}},
	} {
		s, err := c.Push(ctx)
		if err == nil {
			_ = s.Send(&replicav1.PushRequest{Record: rec})
			_, err = s.CloseAndRecv()
		}
		if err == nil {
			t.Errorf("%s: Push = nil", name)
		}
	}
}

// TestPushesAreBounded: a push that does not end, whichever part of it is large, and many pushes
// at a time.
func TestPushesAreBounded(t *testing.T) {
	accepted := 0
	peer := bind(t, "a")
	peer.SetMaxPushed(8 << 20)
	peer.Serve(&fake{accept: func(paging.Record) error {
		accepted++
		return nil
	}})
	conn, err := grpc.NewClient("passthrough:///"+peer.Advertised(), grpc.WithTransportCredentials(replica.Credentials(ring(t, "a"))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.NewOutgoingContext(t.Context(),
		metadata.Pairs(replica.DeploymentKey, peer.Serves()))
	begin := func() grpc.ClientStreamingClient[replicav1.PushRequest, replicav1.PushResponse] {
		t.Helper()
		s, err := replicav1.NewReplicaServiceClient(conn).Push(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	send := func(
		s grpc.ClientStreamingClient[replicav1.PushRequest, replicav1.PushResponse],
		rec *replicav1.Record, times int,
	) {
		for range times {
			if s.Send(&replicav1.PushRequest{Record: rec}) != nil {
				return
			}
		}
	}
	rest := make([]byte, 1<<20)
	rest[2] = 0x10 // its own length, little endian
	large := &replicav1.Record{
		Ledger:  &replicav1.Ledger{Next: 1, Phase: 1},
		Holding: &replicav1.Holding{State: state(), Leftover: rest},
	}
	for name, push := range map[string]struct {
		rec   *replicav1.Record
		times int
	}{
		"rests":   {large, 10},
		"names":   {&replicav1.Record{Principal: strings.Repeat("x", 1<<20)}, 10},
		"nothing": {&replicav1.Record{}, 40_000},
	} {
		s := begin()
		send(s, push.rec, push.times)
		if _, err := s.CloseAndRecv(); err == nil || !strings.Contains(err.Error(), "too much") ||
			accepted != 0 {
			t.Errorf("Push of %s = %v, %d accepted; want a refusal", name, err, accepted)
		}
	}
	// All pushes together have the bound of one. A refused push releases its part.
	first, second := begin(), begin()
	send(first, large, 5)
	eventually(t, "all of the first push has come", func() bool { return peer.Pushed() > 5<<20 })
	send(second, large, 5)
	if _, err := second.CloseAndRecv(); err == nil || !strings.Contains(err.Error(), "too much") {
		t.Errorf("the second of two pushes of 5 MiB = %v, want a refusal", err)
	}
	if _, err := first.CloseAndRecv(); err != nil || accepted != 5 {
		t.Errorf("the first of two pushes of 5 MiB = %v, %d accepted; want 5", err, accepted)
	}
	third := begin()
	send(third, large, 5)
	if _, err := third.CloseAndRecv(); err != nil || accepted != 10 {
		t.Errorf("a push of 5 MiB after the others = %v, %d accepted; want 10", err, accepted)
	}
}

// TestListIsBounded: the caller ignores handles beyond the limit that it asked for.
func TestListIsBounded(t *testing.T) {
	sent := 0
	peer := start(t, "a", &fake{list: func(handle.Query) []handle.Info {
		sent++
		return slices.Repeat([]handle.Info{filled[handle.Info]()}, 300_000)
	}})
	n := start(t, "a", nil)
	for _, limit := range []int{0, 1, 499, 500, 501} {
		got, err := n.List(t.Context(), peer.Advertised(), handle.Query{Limit: limit})
		if err != nil || len(got) != limit {
			t.Errorf("List of %d = %d handles, %v", limit, len(got), err)
		}
	}
	if sent != 5 {
		t.Errorf("asked %d times, want 5", sent)
	}
}

// TestOtherDeployment: replicas of two deployments that share their keys refuse each other. Both
// log it, once.
func TestOtherDeployment(t *testing.T) {
	serving := func(deployment string) option {
		return func(c *replica.Config) { c.Deployment = deployment }
	}
	touched := func(what string) { t.Errorf("a replica of another deployment has %s", what) }
	peer := start(t, "a", &fake{
		answer: func(context.Context) error {
			touched("asked")
			return nil
		},
		accept: func(paging.Record) error {
			touched("pushed")
			return nil
		},
		list: func(handle.Query) []handle.Info {
			touched("listed")
			return nil
		},
		kill: func(context.Context, string) error {
			touched("killed")
			return nil
		},
	}, serving("shop"))
	n := start(t, "a", nil, serving("bank"))
	address := peer.Advertised()
	for name, call := range map[string]func() error{
		"a call": func() error { return n.ask(t.Context(), address) },
		"Push": func() error {
			_, err := n.Push(t.Context(), address, slices.Values([]paging.Record{{}}))
			return err
		},
		"List": func() error {
			_, err := n.List(t.Context(), address, handle.Query{Limit: 1})
			return err
		},
		"Kill": func() error { return n.Kill(t.Context(), address, "x") },
	} {
		err := call()
		if e, ok := errors.AsType[*paging.UnreachableError](err); !ok || e.Sent ||
			!strings.Contains(err.Error(), "different MongoDB deployments") {
			t.Errorf("%s = %v, want *UnreachableError, not sent, which says why", name, err)
		}
	}
	if got := strings.Count(n.log.String(), "level=WARN"); got != 1 {
		t.Errorf("the asker warns %d times, want once: %s", got, n.log)
	}
	if got := strings.Count(peer.log.String(), "level=WARN"); got != 1 {
		t.Errorf("the one that was asked warns %d times, want once: %s", got, peer.log)
	}
	same := start(t, "a", &fake{kill: func(context.Context, string) error {
		return nil
	}}, serving("bank"))
	if err := n.Kill(t.Context(), same.Advertised(), "x"); err != nil {
		t.Errorf("Kill at a replica of the same deployment = %v", err)
	}
}

func state() []byte { return paging.AppendState(nil, &cursor.State{ID: 1}) }

// TestManyReplicas: unused connections do not pile up, and connections to addresses where no
// process listens do not stay.
func TestManyReplicas(t *testing.T) {
	n := start(t, "a", nil)
	for i := range 20 {
		_ = n.ask(t.Context(), fmt.Sprintf("127.0.0.1:%d", 1+i))
	}
	if open, _ := n.Connections(); open != 0 {
		t.Errorf("%d connections to addresses where nothing listens", open)
	}
	many := start(t, "a", yes(), func(c *replica.Config) { c.Address = "0.0.0.0:0" })
	_, port, _ := net.SplitHostPort(many.Address())
	for i := range replica.MaxConnected + 20 {
		if err := n.ask(t.Context(), fmt.Sprintf("127.0.1.%d:%s", 1+i, port)); err != nil {
			t.Fatal(err)
		}
	}
	if open, _ := n.Connections(); open != replica.MaxConnected {
		t.Errorf("%d connections, want %d", open, replica.MaxConnected)
	}
}

// TestCloseIsBounded: a call that does not end is cut.
func TestCloseIsBounded(t *testing.T) {
	asked := make(chan struct{})
	peer := start(t, "a", &fake{answer: func(ctx context.Context) error {
		close(asked)
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	n := start(t, "a", nil)
	done := make(chan error, 1)
	go func() {
		err := n.ask(t.Context(), peer.Advertised())
		done <- err
	}()
	<-asked
	begun := time.Now()
	peer.stop()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("Close took %s", took)
	}
	if err := <-done; err == nil {
		t.Error("a call of a replica that was closed = nil")
	}
	n.stop()
	if err := n.ask(t.Context(), peer.Advertised()); err == nil {
		t.Error("a call after Close = nil")
	}
}
