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
	peerv1 "github.com/mooringdb/mooring/gen/mooring/peer/v1"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// fill sets every field below v to something that is not zero, so that a field which does not travel is seen.
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
		case *cursor.State: // its form is handle's, and tested there
			*x = cursor.State{Server: "db:1", ID: int64(*n), Database: "d", Collection: "c", BatchSize: 5, Remaining: 6}
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
	case reflect.Uint64:
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

// TestQuestionsAndAnswers: every field arrives, there and back.
func TestQuestionsAndAnswers(t *testing.T) {
	page, holding, moved := filled[handle.Page](), filled[handle.Holding](), filled[handle.Moved]()
	empty := handle.Page{Token: "t"}
	for _, row := range []struct {
		name   string
		answer handle.Answer
	}{
		{"page", handle.Answer{Page: &page}},
		{"page without documents", handle.Answer{Page: &empty}},
		{"grant", handle.Answer{Grant: &holding}},
		{"grant of nothing but a state", handle.Answer{Grant: &handle.Holding{State: cursor.State{ID: 1}}}},
		{"moved", handle.Answer{Moved: &moved}},
		{"closed", handle.Answer{Closed: true}},
	} {
		for _, purpose := range []handle.Purpose{handle.ForPage, handle.ForStream, handle.ForClose} {
			t.Run(row.name+" for "+purpose.String(), func(t *testing.T) {
				var asked handle.Question
				owner := start(t, "a", &fake{answer: func(_ context.Context, q handle.Question) (handle.Answer, error) {
					asked = q
					return row.answer, nil
				}})
				q := filled[handle.Question]()
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

// TestQuestionOfNobody: fields that are not set stay so.
func TestQuestionOfNobody(t *testing.T) {
	var asked handle.Question
	owner := start(t, "a", &fake{answer: func(_ context.Context, q handle.Question) (handle.Answer, error) {
		asked = q
		return handle.Answer{Closed: true}, nil
	}})
	if _, err := start(t, "a", nil).Ask(t.Context(), owner.Advertised(), handle.Question{}); err != nil || !reflect.DeepEqual(asked, handle.Question{}) {
		t.Errorf("asked %+v, %v; want the zero value", asked, err)
	}
}

func TestPush(t *testing.T) {
	moved, held, nothing := filled[handle.Record](), filled[handle.Record](), filled[handle.Record]()
	moved.Holding, held.To, nothing.To, nothing.Holding = nil, nil, nil, nil
	records := []handle.Record{moved, held, nothing}
	var got []handle.Record
	self := filled[handle.Replica]()
	peer := start(t, "a", &fake{self: self, accept: func(rec handle.Record) error {
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

// TestPushThatBreaksOff: nothing of it counts, so that it can go to another replica.
func TestPushThatBreaksOff(t *testing.T) {
	peer := start(t, "a", &fake{accept: func(handle.Record) error {
		t.Error("a record of a push that broke off was accepted")
		return nil
	}})
	way := newProxy(t, peer.Advertised())
	n := start(t, "a", nil)
	record := handle.Record{Holding: &handle.Holding{Rest: documents(1, 1<<20)}}
	_, err := n.Push(t.Context(), way.address(), func(yield func(handle.Record) bool) {
		for i := 0; yield(record); i++ {
			if i == 3 {
				way.cut()
			}
		}
	})
	if e := (*handle.UnreachableError)(nil); !errors.As(err, &e) || !e.Sent {
		t.Errorf("Push = %v, want *UnreachableError, sent", err)
	}
	// Refused by one that is closing itself.
	closing := start(t, "a", nil)
	if _, err := n.Push(t.Context(), closing.Advertised(), slices.Values([]handle.Record{record})); !errors.Is(err, handle.ErrClosing) {
		t.Errorf("Push to a replica that is closing = %v, want ErrClosing", err)
	}
	// It begins to close in the middle: what it has taken counts, so nobody else must get it.
	taken := 0
	half := start(t, "a", &fake{accept: func(handle.Record) error {
		if taken++; taken > 1 {
			return handle.ErrClosing
		}
		return nil
	}})
	_, err = n.Push(t.Context(), half.Advertised(), slices.Values([]handle.Record{record, record}))
	if e := (*handle.UnreachableError)(nil); !errors.As(err, &e) || !e.Sent {
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

// TestNamedErrors: all of handle's come back as themselves.
func TestNamedErrors(t *testing.T) {
	sentinels := map[string]error{
		"ErrCursorNotFound": handle.ErrCursorNotFound, "ErrCursorTokenReused": handle.ErrCursorTokenReused,
		"ErrCursorPositionUnknown": handle.ErrCursorPositionUnknown, "ErrOwnerGone": handle.ErrOwnerGone,
		"ErrClosing": handle.ErrClosing, "ErrHandleNotFound": handle.ErrHandleNotFound, "ErrNotHere": handle.ErrNotHere,
		"ErrTokenTooLong": handle.ErrTokenTooLong,
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../handle/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, name := range spec.Names {
				if name.IsExported() && sentinels[name.Name] == nil {
					t.Errorf("handle.%s is not tested here", name)
				}
			}
		}
		return true
	})
	var next error
	peer := start(t, "a", &fake{
		answer: func(context.Context, handle.Question) (handle.Answer, error) { return handle.Answer{}, next },
		kill:   func(context.Context, string) error { return next },
	})
	n := start(t, "a", nil)
	for name, want := range sentinels {
		next = fmt.Errorf("around: %w", want)
		if _, err := n.Ask(t.Context(), peer.Advertised(), handle.Question{}); !errors.Is(err, want) {
			t.Errorf("Ask = %v, want %s", err, name)
		}
		if err := n.Kill(t.Context(), peer.Advertised(), "x"); !errors.Is(err, want) {
			t.Errorf("Kill = %v, want %s", err, name)
		}
		if _, err := n.Stream(t.Context(), peer.Advertised(), handle.Question{}); !errors.Is(err, handle.ErrNotHere) {
			t.Errorf("Stream = %v, want ErrNotHere", err)
		}
	}
	if strings.Contains(peer.log.String(), "level=ERROR") {
		t.Errorf("the log takes answers for faults: %s", peer.log)
	}
}

// TestOtherErrors: what a server said to the owner is what the asker's client sees.
func TestOtherErrors(t *testing.T) {
	for _, original := range []error{
		&mongoerr.CommandError{Code: 43, Name: "CursorNotFound", Message: "cursor id 7 not found"},
		&mongoerr.CommandError{Code: 50, Name: "MaxTimeMSExpired", Message: "too slow", Labels: []string{"x"}},
		&mongoerr.NetworkError{Address: "db:1", Err: io.ErrUnexpectedEOF},
		&handle.PrincipalLimitError{Max: 3},
	} {
		peer := start(t, "a", &fake{answer: func(context.Context, handle.Question) (handle.Answer, error) { return handle.Answer{}, original }})
		_, err := start(t, "a", nil).Ask(t.Context(), peer.Advertised(), handle.Question{})
		if e := (*replica.RemoteError)(nil); !errors.As(err, &e) {
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

// TestPanicIsNoAnswer: nothing is known of what was done.
func TestPanicIsNoAnswer(t *testing.T) {
	peer := start(t, "a", &fake{answer: func(context.Context, handle.Question) (handle.Answer, error) { panic("ouch") }})
	_, err := start(t, "a", nil).Ask(t.Context(), peer.Advertised(), handle.Question{})
	if e := (*handle.UnreachableError)(nil); !errors.As(err, &e) || !e.Sent {
		t.Errorf("Ask = %v, want *UnreachableError, sent", err)
	}
}

// TestDeadline: the caller's goes along, and its end is the caller's own error.
func TestDeadline(t *testing.T) {
	asked := make(chan time.Duration, 1)
	peer := start(t, "a", &fake{answer: func(ctx context.Context, _ handle.Question) (handle.Answer, error) {
		deadline, _ := ctx.Deadline()
		asked <- time.Until(deadline)
		<-ctx.Done()
		return handle.Answer{}, context.Cause(ctx)
	}})
	n := start(t, "a", nil)
	cause := errors.New("the client's time")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, cause)
	defer cancel()
	_, err := n.Ask(ctx, peer.Advertised(), handle.Question{})
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
	if _, err := n.Ask(ctx, peer.Advertised(), handle.Question{}); !errors.Is(err, cause) {
		t.Errorf("Ask = %v, want the cause of the cancellation", err)
	}
}

// TestUnreachable: Sent is false only if the question certainly never left.
func TestUnreachable(t *testing.T) {
	n := start(t, "a", nil)
	ask := func(address string) (*handle.UnreachableError, error) {
		_, err := n.Ask(t.Context(), address, handle.Question{})
		var e *handle.UnreachableError
		errors.As(err, &e)
		return e, err
	}
	gone := bind(t, "a")
	gone.stop()
	if e, err := ask(gone.Advertised()); e == nil || e.Sent || !e.Refused || e.Address != gone.Advertised() {
		t.Errorf("nobody listens: Ask = %v, want *UnreachableError, refused", err)
	}

	peer := start(t, "a", &fake{answer: func(ctx context.Context, _ handle.Question) (handle.Answer, error) {
		return handle.Answer{Closed: true}, nil
	}})
	way := newProxy(t, peer.Advertised())
	if _, err := ask(way.address()); err != nil {
		t.Fatalf("through the proxy: Ask = %v", err)
	}
	way.set(false, true)
	if e, err := ask(way.address()); e == nil || !e.Sent || e.Refused {
		t.Errorf("the answer was lost: Ask = %v, want *UnreachableError, sent", err)
	}
	way.set(false, false)
	eventually(t, "asking works again", func() bool {
		_, err := ask(way.address())
		return err == nil
	})

	// It takes connections, and says nothing.
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

// TestPartition: a replica that is gone without a word is noticed, although an answer may take as long as a getMore does.
func TestPartition(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	peer := start(t, "a", &fake{answer: func(ctx context.Context, _ handle.Question) (handle.Answer, error) {
		close(asked)
		<-ctx.Done()
		return handle.Answer{}, context.Cause(ctx)
	}})
	way := newProxy(t, peer.Advertised())
	go func() {
		<-asked
		way.set(true, false)
	}()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	_, err := start(t, "a", nil).Ask(ctx, way.address(), handle.Question{})
	if e := (*handle.UnreachableError)(nil); !errors.As(err, &e) || !e.Sent || time.Since(begun) > 20*time.Second {
		t.Errorf("Ask = %v after %s, want *UnreachableError, sent, within 13 s or so", err, time.Since(begun))
	}
}

// TestRestartAtTheSameAddress: the next replica there is found soon.
func TestRestartAtTheSameAddress(t *testing.T) {
	answer := func(n uint64) *fake {
		return &fake{answer: func(context.Context, handle.Question) (handle.Answer, error) {
			return handle.Answer{Moved: &handle.Moved{Next: n}}, nil
		}}
	}
	first := start(t, "a", answer(1))
	n := start(t, "a", nil)
	if a, err := n.Ask(t.Context(), first.Advertised(), handle.Question{}); err != nil || a.Moved.Next != 1 {
		t.Fatalf("Ask = %+v, %v", a, err)
	}
	first.stop()
	if _, err := n.Ask(t.Context(), first.Advertised(), handle.Question{}); err == nil {
		t.Error("Ask of a replica that has stopped = nil")
	}
	start(t, "a", answer(2), at(first.Advertised()))
	eventually(t, "the new replica answers", func() bool {
		a, err := n.Ask(t.Context(), first.Advertised(), handle.Question{})
		return err == nil && a.Moved.Next == 2
	})
}

// TestSizes: a rest as large as a server's largest batch, and a page of many documents.
func TestSizes(t *testing.T) {
	large := handle.Holding{Rest: documents(4, 4<<20)}
	many := handle.Page{Documents: documents(30_000, 80)}
	for _, a := range []handle.Answer{{Grant: &large}, {Page: &many}} {
		owner := start(t, "a", &fake{answer: func(context.Context, handle.Question) (handle.Answer, error) { return a, nil }})
		got, err := start(t, "a", nil).Ask(t.Context(), owner.Advertised(), handle.Question{})
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("Ask: the answer differs, %v", err)
		}
	}
}

// TestHostileMessages: whoever has a key can still not make a replica hold, or believe, anything.
func TestHostileMessages(t *testing.T) {
	peer := start(t, "a", &fake{accept: func(handle.Record) error {
		t.Error("a malformed record was accepted")
		return nil
	}})
	conn, err := grpc.NewClient("passthrough:///"+peer.Advertised(), grpc.WithTransportCredentials(replica.Credentials(ring(t, "a"))),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := peerv1.NewPeerServiceClient(conn)
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(replica.DeploymentKey, peer.Serves()))
	for name, q := range map[string]*peerv1.Question{
		"none":          nil,
		"long instance": {Purpose: peerv1.Purpose_PURPOSE_PAGE, Owner: make([]byte, 17)},
		"no purpose":    {},
		"huge":          {Purpose: peerv1.Purpose_PURPOSE_PAGE, Token: strings.Repeat("x", replica.MaxMessageBytes)},
	} {
		if _, err := c.Ask(ctx, &peerv1.AskRequest{Question: q}); err == nil {
			t.Errorf("%s: Ask = nil", name)
		}
		s, err := c.Stream(ctx, &peerv1.StreamRequest{Question: q})
		if err == nil {
			_, err = s.Recv()
		}
		if err == nil {
			t.Errorf("%s: Stream = nil", name)
		}
	}
	for name, rec := range map[string]*peerv1.Record{
		"length beyond the end":  {Holding: &peerv1.Holding{State: state(), Rest: []byte{255, 255, 255, 127, 0}}},
		"negative length":        {Holding: &peerv1.Holding{State: state(), Rest: []byte{255, 255, 255, 255, 0}}},
		"half a document":        {Holding: &peerv1.Holding{State: state(), Rest: []byte{5, 0}}},
		"no state":               {Holding: &peerv1.Holding{}},
		"phase out of range":     {Phase: 256},
		"short id":               {Id: []byte{1}},
		"with another, and here": {To: &peerv1.Replica{}, Holding: &peerv1.Holding{State: state()}},
	} {
		s, err := c.Push(ctx)
		if err == nil {
			_ = s.Send(&peerv1.PushRequest{Record: rec})
			_, err = s.CloseAndRecv()
		}
		if err == nil {
			t.Errorf("%s: Push = nil", name)
		}
	}
}

// TestPushesAreBounded: one that never ends, in whatever it is large, and many at a time.
func TestPushesAreBounded(t *testing.T) {
	accepted := 0
	peer := bind(t, "a")
	peer.SetMaxPushed(8 << 20)
	peer.Serve(&fake{accept: func(handle.Record) error {
		accepted++
		return nil
	}})
	conn, err := grpc.NewClient("passthrough:///"+peer.Advertised(), grpc.WithTransportCredentials(replica.Credentials(ring(t, "a"))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(replica.DeploymentKey, peer.Serves()))
	begin := func() grpc.ClientStreamingClient[peerv1.PushRequest, peerv1.PushResponse] {
		t.Helper()
		s, err := peerv1.NewPeerServiceClient(conn).Push(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	send := func(s grpc.ClientStreamingClient[peerv1.PushRequest, peerv1.PushResponse], rec *peerv1.Record, times int) {
		for range times {
			if s.Send(&peerv1.PushRequest{Record: rec}) != nil {
				return
			}
		}
	}
	rest := make([]byte, 1<<20)
	rest[2] = 0x10 // its own length, little endian
	large := &peerv1.Record{Holding: &peerv1.Holding{State: state(), Rest: rest}}
	for name, push := range map[string]struct {
		rec   *peerv1.Record
		times int
	}{
		"rests":   {large, 10},
		"names":   {&peerv1.Record{Principal: strings.Repeat("x", 1<<20)}, 10},
		"nothing": {&peerv1.Record{}, 40_000},
	} {
		s := begin()
		send(s, push.rec, push.times)
		if _, err := s.CloseAndRecv(); err == nil || !strings.Contains(err.Error(), "too much") || accepted != 0 {
			t.Errorf("Push of %s = %v, %d accepted; want a refusal", name, err, accepted)
		}
	}
	// Together they may have as much as one. What was refused gives its part back.
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

// TestListIsBounded: a replica that sends more than was asked for is not listened to.
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

// TestOtherDeployment: replicas of two deployments that share their keys have nothing to do with each other. Both say so, once.
func TestOtherDeployment(t *testing.T) {
	serving := func(deployment string) option { return func(c *replica.Config) { c.Deployment = deployment } }
	touched := func(what string) { t.Errorf("a replica of another deployment has %s", what) }
	peer := start(t, "a", &fake{
		answer: func(context.Context, handle.Question) (handle.Answer, error) {
			touched("asked")
			return handle.Answer{}, nil
		},
		accept: func(handle.Record) error {
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
			_, err := n.Ask(t.Context(), address, handle.Question{})
			return err
		},
		"Stream": func() error {
			_, err := n.Stream(t.Context(), address, handle.Question{})
			return err
		},
		"Push": func() error {
			_, err := n.Push(t.Context(), address, slices.Values([]handle.Record{{}}))
			return err
		},
		"List": func() error {
			_, err := n.List(t.Context(), address, handle.Query{Limit: 1})
			return err
		},
		"Kill": func() error { return n.Kill(t.Context(), address, "x") },
	} {
		err := call()
		if e := (*handle.UnreachableError)(nil); !errors.As(err, &e) || e.Sent || !strings.Contains(err.Error(), "different MongoDB deployments") {
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

func state() []byte { return handle.AppendState(nil, &cursor.State{ID: 1}) }

// TestManyReplicas: connections to those that are gone do not pile up.
func TestManyReplicas(t *testing.T) {
	n := start(t, "a", nil)
	for i := range replica.MaxClients + 20 {
		_, _ = n.Ask(t.Context(), fmt.Sprintf("127.0.0.1:%d", 1+i), handle.Question{}) // nobody listens there
	}
	if clients, _ := n.Connections(); clients != replica.MaxClients {
		t.Errorf("connections to %d replicas, want %d", clients, replica.MaxClients)
	}
}

// TestCloseIsBounded: a call that does not end is cut.
func TestCloseIsBounded(t *testing.T) {
	asked := make(chan struct{})
	peer := start(t, "a", &fake{answer: func(ctx context.Context, _ handle.Question) (handle.Answer, error) {
		close(asked)
		<-ctx.Done()
		return handle.Answer{}, context.Cause(ctx)
	}})
	n := start(t, "a", nil)
	done := make(chan error, 1)
	go func() {
		_, err := n.Ask(t.Context(), peer.Advertised(), handle.Question{})
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
	if _, err := n.Ask(t.Context(), peer.Advertised(), handle.Question{}); err == nil {
		t.Error("Ask after Close = nil")
	}
}
