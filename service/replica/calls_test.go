package replica_test

import (
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
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
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
			*x = cursor.State{Server: "db:1", ID: int64(*n), Database: "d", Collection: "c", BatchSize: 5, Remaining: 6}
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
		docs[i] = bson.NewBuilder(nil).Int32("i", int32(i)).Binary("pad", 0, make([]byte, bytes)).Finish()
	}
	return docs
}

// TestQuestionsAndAnswers: every field arrives, in both directions.
func TestQuestionsAndAnswers(t *testing.T) {
	full, moved := filled[paging.Page](), filled[page.Replica]()
	empty := paging.Page{Token: "t"}
	for _, row := range []struct {
		name   string
		answer paging.Answer
	}{
		{"page", paging.Answer{Page: &full}},
		{"page without documents", paging.Answer{Page: &empty}},
		{"streams", paging.Answer{Streams: true}},
		{"moved", paging.Answer{Moved: &moved}},
		{"closed", paging.Answer{Closed: true}},
	} {
		for _, purpose := range []paging.Purpose{paging.ForPage, paging.ForStream, paging.ForClose} {
			t.Run(row.name+" for "+purpose.String(), func(t *testing.T) {
				var asked paging.Question
				owner := start(t, "a", &fake{answer: func(_ context.Context, q paging.Question) (paging.Answer, error) {
					asked = q
					return row.answer, nil
				}})
				q := filled[paging.Question]()
				q.Purpose = purpose
				got, err := start(t, "a", nil).Ask(t.Context(), owner.Advertised(), q)
				if err != nil || !reflect.DeepEqual(got, row.answer) {
					t.Errorf("Ask = %+v, %v; want %+v", got, err, row.answer)
				}
				if !reflect.DeepEqual(asked, q) {
					t.Errorf("asked %+v, want %+v", asked, q)
				}
			})
		}
	}
}

// TestQuestionOfNobody: fields that are not set stay unset.
func TestQuestionOfNobody(t *testing.T) {
	var asked paging.Question
	owner := start(t, "a", &fake{answer: func(_ context.Context, q paging.Question) (paging.Answer, error) {
		asked = q
		return paging.Answer{Closed: true}, nil
	}})
	if _, err := start(t, "a", nil).Ask(t.Context(), owner.Advertised(), paging.Question{}); err != nil || !reflect.DeepEqual(asked, paging.Question{}) {
		t.Errorf("asked %+v, %v; want the zero value", asked, err)
	}
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
	if _, err := n.Push(t.Context(), closing.Advertised(), slices.Values([]paging.Record{record})); !errors.Is(err, handle.ErrClosing) {
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
		t.Errorf("List = %d handles, %v; want %d, first %+v, want %+v", len(got), err, len(all), got[:min(1, len(got))], info)
	}
	if !reflect.DeepEqual(asked, q) {
		t.Errorf("asked for %+v, want %+v", asked, q)
	}
	if got, err := n.List(t.Context(), peer.Advertised(), handle.Query{}); err != nil || len(got) != 0 || !reflect.DeepEqual(asked, handle.Query{}) {
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
		answer: func(context.Context, paging.Question) (paging.Answer, error) { return paging.Answer{}, next },
		kill:   func(context.Context, string) error { return next },
	})
	n := start(t, "a", nil)
	for name, want := range sentinels {
		next = fmt.Errorf("around: %w", want)
		if _, err := n.Ask(t.Context(), peer.Advertised(), paging.Question{}); !errors.Is(err, want) {
			t.Errorf("Ask = %v, want %s", err, name)
		}
		if err := n.Kill(t.Context(), peer.Advertised(), "x"); !errors.Is(err, want) {
			t.Errorf("Kill = %v, want %s", err, name)
		}
		if _, err := n.Stream(t.Context(), peer.Advertised(), paging.Question{}); !errors.Is(err, paging.ErrNotHere) {
			t.Errorf("Stream = %v, want ErrNotHere", err)
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
		peer := start(t, "a", &fake{answer: func(context.Context, paging.Question) (paging.Answer, error) { return paging.Answer{}, original }})
		_, err := start(t, "a", nil).Ask(t.Context(), peer.Advertised(), paging.Question{})
		if _, ok := errors.AsType[*replica.RemoteError](err); !ok {
			t.Errorf("Ask = %v, want *RemoteError of %v", err, original)
			continue
		}
		got, want := rpcerr.Status(err), rpcerr.Status(original)
		same := slices.EqualFunc(got.Details(), want.Details(), func(a, b any) bool { return proto.Equal(a.(proto.Message), b.(proto.Message)) })
		if !same || got.Code() != want.Code() || got.Message() != want.Message() {
			t.Errorf("a client sees %v, want %v", got, want)
		}
	}
}

// TestPanicIsNoAnswer: it is unknown what was done.
func TestPanicIsNoAnswer(t *testing.T) {
	peer := start(t, "a", &fake{answer: func(context.Context, paging.Question) (paging.Answer, error) { panic("ouch") }})
	_, err := start(t, "a", nil).Ask(t.Context(), peer.Advertised(), paging.Question{})
	if e, ok := errors.AsType[*paging.UnreachableError](err); !ok || !e.Sent {
		t.Errorf("Ask = %v, want *UnreachableError, sent", err)
	}
}

// TestDeadline: the caller's deadline is carried, and its end is the caller's own error.
func TestDeadline(t *testing.T) {
	asked := make(chan time.Duration, 1)
	peer := start(t, "a", &fake{answer: func(ctx context.Context, _ paging.Question) (paging.Answer, error) {
		deadline, _ := ctx.Deadline()
		asked <- time.Until(deadline)
		<-ctx.Done()
		return paging.Answer{}, context.Cause(ctx)
	}})
	n := start(t, "a", nil)
	cause := errors.New("the client's time")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, cause)
	defer cancel()
	_, err := n.Ask(ctx, peer.Advertised(), paging.Question{})
	if left := <-asked; left <= 0 || left > 300*time.Millisecond {
		t.Errorf("the owner has %s left, want at most 300 ms", left)
	}
	if status.Code(err) != codes.DeadlineExceeded && !errors.Is(err, cause) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Ask = %v, want the cause or a deadline", err)
	}
	ctx, cancelCause := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancelCause(cause)
	}()
	if _, err := n.Ask(ctx, peer.Advertised(), paging.Question{}); !errors.Is(err, cause) {
		t.Errorf("Ask = %v, want the cause of the cancellation", err)
	}
}

// TestUnreachable: Sent is false only if the question certainly was not sent.
func TestUnreachable(t *testing.T) {
	n := start(t, "a", nil)
	ask := func(address string) (*paging.UnreachableError, error) {
		_, err := n.Ask(t.Context(), address, paging.Question{})
		e, _ := errors.AsType[*paging.UnreachableError](err)
		return e, err
	}
	gone := bind(t, "a")
	gone.stop()
	if e, err := ask(gone.Advertised()); e == nil || e.Sent || !e.Refused || e.Address != gone.Advertised() {
		t.Errorf("nobody listens: Ask = %v, want *UnreachableError, refused", err)
	}

	peer := start(t, "a", &fake{answer: func(ctx context.Context, _ paging.Question) (paging.Answer, error) {
		return paging.Answer{Closed: true}, nil
	}})
	way := newProxy(t, peer.Advertised())
	if _, err := ask(way.address()); err != nil {
		t.Fatalf("through the proxy: Ask = %v", err)
	}
	way.setMute(true)
	if e, err := ask(way.address()); e == nil || !e.Sent || e.Refused {
		t.Errorf("the answer was lost: Ask = %v, want *UnreachableError, sent", err)
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
	if e, err := ask(l.Addr().String()); e == nil || e.Sent || e.Refused || time.Since(begun) > 5*time.Second {
		t.Errorf("nobody answers the handshake: Ask = %v after %s, want *UnreachableError, not sent, in 2 s", err, time.Since(begun))
	}
}

// TestRestartAtTheSameAddress: a new replica at the address is found soon.
func TestRestartAtTheSameAddress(t *testing.T) {
	answer := func(address string) *fake {
		return &fake{answer: func(context.Context, paging.Question) (paging.Answer, error) {
			return paging.Answer{Moved: &page.Replica{Address: address}}, nil
		}}
	}
	first := start(t, "a", answer("1"))
	n := start(t, "a", nil)
	if a, err := n.Ask(t.Context(), first.Advertised(), paging.Question{}); err != nil || a.Moved.Address != "1" {
		t.Fatalf("Ask = %+v, %v", a, err)
	}
	first.stop()
	if _, err := n.Ask(t.Context(), first.Advertised(), paging.Question{}); err == nil {
		t.Error("Ask of a replica that has stopped = nil")
	}
	start(t, "a", answer("2"), at(first.Advertised()))
	eventually(t, "the new replica answers", func() bool {
		a, err := n.Ask(t.Context(), first.Advertised(), paging.Question{})
		return err == nil && a.Moved.Address == "2"
	})
}

// TestSizes: a page as large as a server's largest batch, and a page of many documents.
func TestSizes(t *testing.T) {
	large := paging.Page{Documents: documents(3, 16<<20)}
	many := paging.Page{Documents: documents(30_000, 80)}
	for _, a := range []paging.Answer{{Page: &large}, {Page: &many}} {
		owner := start(t, "a", &fake{answer: func(context.Context, paging.Question) (paging.Answer, error) { return a, nil }})
		got, err := start(t, "a", nil).Ask(t.Context(), owner.Advertised(), paging.Question{})
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("Ask: the answer differs, %v", err)
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
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(replica.DeploymentKey, peer.Serves()))
	for name, q := range map[string]*replicav1.Question{
		"none":          nil,
		"long instance": {Purpose: replicav1.Purpose_PURPOSE_PAGE, Holder: make([]byte, 17)},
		"no purpose":    {},
		"huge":          {Purpose: replicav1.Purpose_PURPOSE_PAGE, Token: strings.Repeat("x", replica.MaxMessageBytes)},
	} {
		if _, err := c.Ask(ctx, &replicav1.AskRequest{Question: q}); err == nil {
			t.Errorf("%s: Ask = nil", name)
		}
		s, err := c.Stream(ctx, &replicav1.StreamRequest{Question: q})
		if err == nil {
			_, err = s.Recv()
		}
		if err == nil {
			t.Errorf("%s: Stream = nil", name)
		}
	}
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
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(replica.DeploymentKey, peer.Serves()))
	begin := func() grpc.ClientStreamingClient[replicav1.PushRequest, replicav1.PushResponse] {
		t.Helper()
		s, err := replicav1.NewReplicaServiceClient(conn).Push(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	send := func(s grpc.ClientStreamingClient[replicav1.PushRequest, replicav1.PushResponse], rec *replicav1.Record, times int) {
		for range times {
			if s.Send(&replicav1.PushRequest{Record: rec}) != nil {
				return
			}
		}
	}
	rest := make([]byte, 1<<20)
	rest[2] = 0x10 // its own length, little endian
	large := &replicav1.Record{Ledger: &replicav1.Ledger{Next: 1, Phase: 1}, Holding: &replicav1.Holding{State: state(), Leftover: rest}}
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
		if _, err := s.CloseAndRecv(); err == nil || !strings.Contains(err.Error(), "too much") || accepted != 0 {
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
	serving := func(deployment string) option { return func(c *replica.Config) { c.Deployment = deployment } }
	touched := func(what string) { t.Errorf("a replica of another deployment has %s", what) }
	peer := start(t, "a", &fake{
		answer: func(context.Context, paging.Question) (paging.Answer, error) {
			touched("asked")
			return paging.Answer{}, nil
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
		"Ask": func() error {
			_, err := n.Ask(t.Context(), address, paging.Question{})
			return err
		},
		"Stream": func() error {
			_, err := n.Stream(t.Context(), address, paging.Question{})
			return err
		},
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
		if e, ok := errors.AsType[*paging.UnreachableError](err); !ok || e.Sent || !strings.Contains(err.Error(), "different MongoDB deployments") {
			t.Errorf("%s = %v, want *UnreachableError, not sent, which says why", name, err)
		}
	}
	if got := strings.Count(n.log.String(), "level=WARN"); got != 1 {
		t.Errorf("the asker warns %d times, want once: %s", got, n.log)
	}
	if got := strings.Count(peer.log.String(), "level=WARN"); got != 1 {
		t.Errorf("the one that was asked warns %d times, want once: %s", got, peer.log)
	}
	same := start(t, "a", &fake{kill: func(context.Context, string) error { return nil }}, serving("bank"))
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
		_, _ = n.Ask(t.Context(), fmt.Sprintf("127.0.0.1:%d", 1+i), paging.Question{})
	}
	if open, _ := n.Connections(); open != 0 {
		t.Errorf("%d connections to addresses where nothing listens", open)
	}
	many := start(t, "a", yes(), func(c *replica.Config) { c.Address = "0.0.0.0:0" })
	_, port, _ := net.SplitHostPort(many.Address())
	for i := range replica.MaxConnected + 20 {
		if _, err := n.Ask(t.Context(), fmt.Sprintf("127.0.1.%d:%s", 1+i, port), paging.Question{}); err != nil {
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
	peer := start(t, "a", &fake{answer: func(ctx context.Context, _ paging.Question) (paging.Answer, error) {
		close(asked)
		<-ctx.Done()
		return paging.Answer{}, context.Cause(ctx)
	}})
	n := start(t, "a", nil)
	done := make(chan error, 1)
	go func() {
		_, err := n.Ask(t.Context(), peer.Advertised(), paging.Question{})
		done <- err
	}()
	<-asked
	begun := time.Now()
	peer.stop()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("Close took %s", took)
	}
	if err := <-done; err == nil {
		t.Error("Ask of a replica that was closed = nil")
	}
	n.stop()
	if _, err := n.Ask(t.Context(), peer.Advertised(), paging.Question{}); err == nil {
		t.Error("Ask after Close = nil")
	}
}
