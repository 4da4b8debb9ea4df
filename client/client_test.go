package client_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// gateway answers as the test says. Tests before a real gateway are in lab/clients.
type gateway struct {
	mooringv1.UnimplementedDocumentServiceServer
	mooringv1.UnimplementedCursorServiceServer
	mooringv1.UnimplementedChangeStreamServiceServer
	mooringv1.UnimplementedCommandServiceServer
	mooringv1.UnimplementedDocumentResourceServiceServer

	calls    []string
	metadata metadata.MD // of the last call
	keys     []string    // the idempotency keys of the calls
	find     *mooringv1.FindRequest
	id       *mooringv1.Value    // of the last document
	answer   *mooringv1.Document // of FindOneAndUpdate, FindOneAndReplace and FindOneAndDelete
	unmet    *mooringv1.WriteConcernError
	large    *mooringv1.Document // unless it is nil, the document that calls answer
	watches  []*mooringv1.WatchRequest
	failures []error                     // of the next calls
	opened   int                         // streams
	refusals []error                     // of the next streams, before their first message
	lives    [][]*mooringv1.LiveResponse // of the next streams
	conn     *cable                      // the newest
	// meanwhile, unless it is nil, is what happens during a call, which then ends with its client.
	meanwhile func()
}

func (g *gateway) called(ctx context.Context, name string) error {
	g.calls = append(g.calls, name)
	g.metadata, _ = metadata.FromIncomingContext(ctx)
	g.keys = append(g.keys, strings.Join(g.metadata.Get("idempotency-key"), " "))
	if g.meanwhile != nil {
		g.meanwhile()
		<-ctx.Done()
	}
	if len(g.failures) == 0 {
		return nil
	}
	err := g.failures[0]
	g.failures = g.failures[1:]
	return err
}

// open returns why a stream ends before its first message, or nil.
func (g *gateway) open() error {
	g.opened++
	if len(g.refusals) == 0 {
		return nil
	}
	err := g.refusals[0]
	g.refusals = g.refusals[1:]
	return err
}

func doc(id int32) *mooringv1.Document {
	b := bson.NewBuilder(nil).Int32("_id", id).Finish()
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: b}}
}

func (g *gateway) FindOne(
	ctx context.Context, r *mooringv1.FindOneRequest,
) (*mooringv1.FindOneResponse, error) {
	if r.GetFilter().GetJson() == "{}" {
		return &mooringv1.FindOneResponse{}, g.called(ctx, "FindOne")
	}
	return &mooringv1.FindOneResponse{Document: doc(1)}, g.called(ctx, "FindOne")
}

func (g *gateway) Find(
	ctx context.Context, r *mooringv1.FindRequest,
) (*mooringv1.FindResponse, error) {
	g.find = r
	return &mooringv1.FindResponse{
		Documents: []*mooringv1.Document{doc(1), doc(2)}, Cursor: proto.String("second"),
	}, g.called(ctx, "Find")
}

func (g *gateway) NextPage(
	ctx context.Context, r *mooringv1.NextPageRequest,
) (*mooringv1.NextPageResponse, error) {
	return &mooringv1.NextPageResponse{Documents: []*mooringv1.Document{doc(3)}},
		g.called(ctx, "NextPage "+r.GetCursor())
}

func (g *gateway) CloseCursor(
	ctx context.Context, r *mooringv1.CloseCursorRequest,
) (*mooringv1.CloseCursorResponse, error) {
	return &mooringv1.CloseCursorResponse{}, g.called(ctx, "CloseCursor "+r.GetCursor())
}

func (g *gateway) InsertOne(
	ctx context.Context, _ *mooringv1.InsertOneRequest,
) (*mooringv1.InsertOneResponse, error) {
	return &mooringv1.InsertOneResponse{Acknowledged: true}, g.called(ctx, "InsertOne")
}

func (g *gateway) StreamFind(
	_ *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
) error {
	if err := g.open(); err != nil {
		return err
	}
	batch := &mooringv1.StreamFindResponse{Documents: []*mooringv1.Document{doc(1), doc(2)}}
	if g.large != nil {
		batch.Documents = []*mooringv1.Document{g.large}
	}
	if err := s.Send(batch); err != nil {
		return err
	}
	return g.called(s.Context(), "StreamFind")
}

func (g *gateway) Watch(
	r *mooringv1.WatchRequest, s grpc.ServerStreamingServer[mooringv1.WatchResponse],
) error {
	if err := g.open(); err != nil {
		return err
	}
	g.watches = append(g.watches, r)
	n := int32(len(g.watches))
	message := &mooringv1.WatchResponse{
		Documents: []*mooringv1.Document{doc(n)}, ResumeToken: doc(100 + n),
	}
	if g.large != nil {
		message.Documents = []*mooringv1.Document{g.large}
	}
	if err := s.Send(message); err != nil {
		return err
	}
	return g.called(s.Context(), "Watch")
}

func (g *gateway) Live(
	_ *mooringv1.LiveRequest, s grpc.ServerStreamingServer[mooringv1.LiveResponse],
) error {
	if err := g.open(); err != nil {
		return err
	}
	messages := g.lives[0]
	g.lives = g.lives[1:]
	for _, m := range messages {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return g.called(s.Context(), "Live")
}

// failed is an error of a gateway.
func failed(code codes.Code, reason, retry, httpStatus string) error {
	s, err := status.New(code, "what happened").WithDetails(
		&errdetails.ErrorInfo{Reason: reason, Domain: "mooring.v1", Metadata: map[string]string{
			"retry": retry, "httpStatus": httpStatus,
		}},
		&errdetails.RequestInfo{RequestId: "id"},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "filter.a"},
		}},
		&mooringv1.ServerError{Code: 11000},
		&mooringv1.BulkWriteResult{InsertedCount: proto.Int64(1)},
	)
	if err != nil {
		return err
	}
	return s.Err()
}

// noAnswer is what grpc makes of a connection that is cut.
var noAnswer = status.Error(codes.Unavailable, "error reading from server: EOF")

var unavailable = failed(codes.Unavailable, "NoSuitableServer", "same-request", "503")

// dial serves a gateway, and returns a collection on it.
func dial(t *testing.T, g *gateway, options client.Options) *client.Collection[bson.Raw] {
	t.Helper()
	return client.In[bson.Raw](client.New(connect(t, g), options), "shop", "orders")
}

// connect serves a gateway, and returns a connection to it.
func connect(t *testing.T, g *gateway, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	mooringv1.RegisterDocumentServiceServer(server, g)
	mooringv1.RegisterCursorServiceServer(server, g)
	mooringv1.RegisterChangeStreamServiceServer(server, g)
	mooringv1.RegisterCommandServiceServer(server, g)
	mooringv1.RegisterDocumentResourceServiceServer(server, g)
	mooringv1.RegisterTransactionServiceServer(server, transactions{g: g})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	cc, err := grpc.NewClient("passthrough:///gateway", append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := listener.DialContext(ctx)
			g.conn = &cable{Conn: conn}
			return g.conn, err
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cc.Close()
		server.Stop()
		<-done
	})
	return cc
}

// cable is a client's end of a connection. What is written to it is lost once it is cut.
type cable struct {
	net.Conn
	cut atomic.Bool
}

func (c *cable) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// ids returns the _id of each document, and the error at the end.
func ids(documents func(func(bson.Raw, error) bool), most int) (all []int32, err error) {
	documents(func(d bson.Raw, e error) bool {
		if err = e; e != nil {
			return false
		}
		id, _ := d.Lookup("_id")
		n, _ := id.Int32()
		all = append(all, n)
		return len(all) < most
	})
	return all, err
}

func TestFind(t *testing.T) {
	g := &gateway{}
	orders := dial(t, g, client.Options{Token: "secret"})
	got, err := ids(orders.Find(t.Context(), client.JSON(`{"a": 1}`),
		func(r *mooringv1.FindRequest) { r.BatchSize = proto.Int32(2) }), 10)
	if err != nil || !slices.Equal(got, []int32{1, 2, 3}) {
		t.Errorf("Find yields %v, %v", got, err)
	}
	if g.find.GetFilter().GetJson() != `{"a": 1}` || g.find.GetBatchSize() != 2 ||
		g.find.GetDatabase() != "shop" || g.find.GetCollection() != "orders" {
		t.Errorf("the request is %v", g.find)
	}
	if token := g.metadata.Get("authorization"); !slices.Equal(token, []string{"Bearer secret"}) {
		t.Errorf("the credential is %q", token)
	}
	if want := []string{"Find", "NextPage second"}; !slices.Equal(g.calls, want) {
		t.Errorf("the calls are %q, want %q", g.calls, want)
	}
}

func TestFindThatIsLeft(t *testing.T) {
	g := &gateway{}
	got, err := ids(dial(t, g, client.Options{}).Find(t.Context(), nil), 1)
	if err != nil || len(got) != 1 {
		t.Errorf("Find yields %v, %v", got, err)
	}
	if want := []string{"Find", "CloseCursor second"}; !slices.Equal(g.calls, want) {
		t.Errorf("the calls are %q, want %q", g.calls, want)
	}
}

func TestFindThatFails(t *testing.T) {
	refused := failed(codes.NotFound, "CursorNotFound", "restart", "404")
	g := &gateway{failures: []error{nil, refused}}
	got, err := ids(dial(t, g, client.Options{}).Find(t.Context(), nil), 10)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Reason != "CursorNotFound" {
		t.Errorf("Find yields the error %v", err)
	}
	if !slices.Equal(got, []int32{1, 2}) {
		t.Errorf("before that it yields %v", got)
	}
}

func TestRetries(t *testing.T) {
	never := failed(codes.Unknown, "WriteOutcomeUnknown", "never", "500")
	for _, c := range []struct {
		name     string
		failures []error
		retries  int
		calls    int
		ok       bool
	}{
		{"until it succeeds", []error{unavailable, unavailable}, 0, 3, true},
		{"as often as it may", []error{unavailable, unavailable}, 1, 2, false},
		{"never", []error{unavailable}, -1, 1, false},
		{"nothing that the error forbids", []error{never}, 0, 1, false},
		{"a write with a key, without an answer", []error{noAnswer}, 0, 2, true},
		{"nothing that failed elsewhere", []error{status.Error(codes.Internal, "x")}, 0, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &gateway{failures: c.failures}
			orders := dial(t, g, client.Options{Retries: c.retries})
			_, err := orders.InsertOne(client.WithIdempotencyKey(t.Context(), "key"),
				bson.Raw{5, 0, 0, 0, 0})
			if (err == nil) != c.ok || len(g.calls) != c.calls {
				t.Errorf("%d calls and %v", len(g.calls), err)
			}
			if key := g.metadata.Get("idempotency-key"); !slices.Equal(key, []string{"key"}) {
				t.Errorf("the key is %q", key)
			}
		})
	}
}

// TestRepeatsPages: a page that got no answer is asked for again, with the same token.
func TestRepeatsPages(t *testing.T) {
	g := &gateway{failures: []error{nil, noAnswer}}
	_, err := ids(dial(t, g, client.Options{}).Find(t.Context(), nil), 10)
	if want := []string{"Find", "NextPage second", "NextPage second"}; err != nil ||
		!slices.Equal(g.calls, want) {
		t.Errorf("the calls are %q and the error is %v, want %q", g.calls, err, want)
	}
	g = &gateway{failures: []error{noAnswer}}
	_, err = dial(t, g, client.Options{Retries: -1}).FindOne(t.Context(), nil)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Retry != client.SameRequest {
		t.Errorf("a read without an answer: %v", err)
	}
}

func TestError(t *testing.T) {
	duplicate := failed(codes.AlreadyExists, "DuplicateKey", "never", "409")
	g := &gateway{failures: []error{duplicate}}
	_, err := dial(t, g, client.Options{}).FindOne(t.Context(), nil)
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		t.Fatalf("the error is %v", err)
	}
	if e.Code != codes.AlreadyExists || e.Reason != "DuplicateKey" || e.Retry != client.Never ||
		e.HTTPStatus != 409 || e.RequestID != "id" || e.Field != "filter.a" ||
		e.Server.GetCode() != 11000 || e.Result.GetInsertedCount() != 1 ||
		e.Error() != "mooring: DuplicateKey: what happened" {
		t.Errorf("the error is %+v", e)
	}
	if status.Code(err) != codes.AlreadyExists {
		t.Errorf("gRPC's status is %v", status.Code(err))
	}
}

func TestFindOne(t *testing.T) {
	orders := dial(t, &gateway{}, client.Options{})
	if d, err := orders.FindOne(t.Context(), nil); err != nil || !d.Has("_id") {
		t.Errorf("FindOne = %v, %v", d, err)
	}
	if _, err := orders.FindOne(t.Context(), client.JSON("{}")); !errors.Is(err,
		client.ErrNoDocument) {
		t.Errorf("FindOne without a match: %v", err)
	}
	if _, err := orders.FindOne(t.Context(), struct{}{}); err == nil {
		t.Error("FindOne takes a struct without Marshal")
	}
}

func TestStream(t *testing.T) {
	for _, c := range []struct {
		most, want int
		failure    error
	}{{10, 2, nil}, {1, 1, nil}, {10, 2, unavailable}} {
		g := &gateway{failures: []error{c.failure}}
		got, err := ids(dial(t, g, client.Options{}).Stream(t.Context(), nil), c.most)
		if len(got) != c.want || (err != nil) != (c.failure != nil) {
			t.Errorf("Stream yields %v, %v", got, err)
		}
	}
}

func TestWatch(t *testing.T) {
	stopping := failed(codes.Unavailable, "ShuttingDown", "restart", "503")
	lost := failed(codes.FailedPrecondition, "ChangeStreamHistoryLost", "restart", "410")
	g := &gateway{failures: []error{stopping, noAnswer, lost}}
	got, err := ids(dial(t, g, client.Options{}).Watch(t.Context()), 10)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Reason != "ChangeStreamHistoryLost" {
		t.Errorf("Watch ends with %v", err)
	}
	if !slices.Equal(got, []int32{1, 2, 3}) || len(g.watches) != 3 {
		t.Fatalf("Watch yields %v in %d streams", got, len(g.watches))
	}
	if !proto.Equal(g.watches[1].GetStartAfter(), doc(101)) {
		t.Errorf("the second stream starts after %v", g.watches[1].GetStartAfter())
	}
	g = &gateway{}
	if got, err := ids(dial(t, g, client.Options{}).Watch(t.Context()), 1); err != nil ||
		len(got) != 1 {
		t.Errorf("Watch that is left yields %v, %v", got, err)
	}
}

// TestResumeTokens: the token of a message comes after its changes, also of a stream that goes on;
// and Watch ends with the error of who keeps them.
func TestResumeTokens(t *testing.T) {
	g := &gateway{failures: []error{noAnswer, noAnswer}}
	full := errors.New("no space left")
	var got []string // documents
	ctx := client.WithResumeTokens(t.Context(), func(token *mooringv1.Document) error {
		if got = append(got, string(token.GetBson())); len(g.watches) == 2 {
			return full
		}
		return nil
	})
	var last error
	for change, err := range dial(t, g, client.Options{}).Watch(ctx) {
		if last = err; err == nil {
			got = append(got, string(change))
		}
	}
	var want []string
	for _, id := range []int32{1, 101, 2, 102} {
		want = append(want, string(doc(id).GetBson()))
	}
	if !slices.Equal(got, want) || !errors.Is(last, full) {
		t.Errorf("Watch tells of %q and ends with %v, want %q", got, last, want)
	}
}

// TestStreamsAreOpenedAgain: a stream that fails before its first message is repeated as a call is.
func TestStreamsAreOpenedAgain(t *testing.T) {
	denied := failed(codes.PermissionDenied, "PermissionDenied", "never", "403")
	stopping := failed(codes.Unavailable, "ShuttingDown", "restart", "503")
	const again = client.SameRequest
	fails := func(times int, err error) []error { return slices.Repeat([]error{err}, times) }
	for _, c := range []struct {
		name          string
		refusals      []error
		inTransaction bool
		opened        int // streams
		reason        string
		retry         client.Retry
	}{
		{"until it succeeds", fails(2, unavailable), false, 3, "PermissionDenied", client.Never},
		{"as often as it may", fails(9, unavailable), false, 4, "NoSuitableServer", again},
		{"no answer", fails(2, noAnswer), false, 3, "PermissionDenied", client.Never},
		{"never an answer", fails(9, noAnswer), false, 4, "", again},
		{"nothing else", fails(9, stopping), false, 1, "ShuttingDown", client.Restart},
		{"in a transaction", fails(2, unavailable), true, 3, "PermissionDenied", client.Never},
		{"no answer in a transaction", fails(9, noAnswer), true, 1, "", client.Never},
	} {
		for name, run := range streams {
			if c.inTransaction && name != "Stream" {
				continue // they are in none
			}
			t.Run(name+", "+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := &gateway{
						refusals: c.refusals, failures: []error{denied}, lives: ready(1),
					}
					ctx := t.Context()
					if c.inTransaction {
						ctx = metadata.AppendToOutgoingContext(ctx, "mooring-transaction", "t")
					}
					err := run(ctx, dial(t, g, client.Options{}))
					e, ok := errors.AsType[*client.Error](err)
					if !ok || e.Reason != c.reason || e.Retry != c.retry || g.opened != c.opened {
						t.Errorf("%d streams and %v, want %d", g.opened, err, c.opened)
					}
				})
			})
		}
	}
}

// cuts are what grpc makes of a stream that a proxy resets or answers.
var cuts = []error{
	status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: NO_ERROR"),
	status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL"),
	status.Error(codes.Unknown, "unexpected HTTP status code received from server: 500"),
}

// lasting opens a stream of each kind, and returns the error at its end.
var lasting = map[string]func(context.Context, *client.Collection[bson.Raw]) error{
	"Watch": func(ctx context.Context, orders *client.Collection[bson.Raw]) (last error) {
		for _, err := range orders.Watch(ctx) {
			last = err
		}
		return last
	},
	"Live": func(ctx context.Context, orders *client.Collection[bson.Raw]) (last error) {
		for _, err := range orders.Live(ctx, nil) {
			last = err
		}
		return last
	},
}

// streams are those of lasting, and one that has an end.
var streams = func() map[string]func(context.Context, *client.Collection[bson.Raw]) error {
	all := maps.Clone(lasting)
	all["Stream"] = func(ctx context.Context, orders *client.Collection[bson.Raw]) error {
		_, err := ids(orders.Stream(ctx, nil), 10)
		return err
	}
	return all
}()

// ready are the messages of live streams without documents.
func ready(streams int) [][]*mooringv1.LiveResponse {
	message := &mooringv1.LiveResponse{Kind: string(client.LiveReady)}
	return slices.Repeat([][]*mooringv1.LiveResponse{{message}}, streams)
}

// TestCutStreams: Watch and Live go on after a proxy has cut them, but not after their caller has
// ended their context, or closed the connection.
func TestCutStreams(t *testing.T) {
	denied := failed(codes.PermissionDenied, "PermissionDenied", "never", "403")
	for name, run := range lasting {
		t.Run(name, func(t *testing.T) {
			g := &gateway{failures: append(slices.Clone(cuts), denied), lives: ready(len(cuts) + 1)}
			err := run(t.Context(), dial(t, g, client.Options{}))
			if e, ok := errors.AsType[*client.Error](err); !ok || e.Reason != "PermissionDenied" ||
				len(g.calls) != len(cuts)+1 {
				t.Errorf("cut: %d streams and %v, want %d", len(g.calls), err, len(cuts)+1)
			}
			ctx, cancel := context.WithCancel(t.Context())
			g = &gateway{failures: cuts[1:], lives: ready(2), meanwhile: cancel}
			if err := run(ctx, dial(t, g, client.Options{})); err == nil || len(g.calls) != 1 {
				t.Errorf("left: %d streams and %v, want one", len(g.calls), err)
			}
			g = &gateway{lives: ready(2)}
			cc := connect(t, g)
			g.meanwhile = func() { _ = cc.Close() }
			orders := client.In[bson.Raw](client.New(cc, client.Options{}), "shop", "orders")
			if err := run(t.Context(), orders); err == nil || len(g.calls) != 1 {
				t.Errorf("closed: %d streams and %v, want one", len(g.calls), err)
			}
		})
	}
}

// TestSilentConnection: with Keepalive, Watch goes on after a connection that is lost without a
// sign.
func TestSilentConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		g.meanwhile = func() {
			g.meanwhile = nil
			g.conn.cut.Store(true)
		}
		orders := client.In[bson.Raw](
			client.New(connect(t, g, client.Keepalive()), client.Options{}), "shop", "orders",
		)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := ids(orders.Watch(ctx), 2); !slices.Equal(got, []int32{1, 2}) {
			t.Errorf("Watch yields %v, %v; want the change after the loss", got, err)
		}
	})
}
