package document_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestStreamsAreComplete(t *testing.T) {
	g := start(t, nil)
	docs := append(servicetest.Docs(8_000, 900), servicetest.Doc(-1, 2<<20),
		servicetest.Doc(-2, 10))
	g.Server.SetDocuments("d.c", docs...)
	find, err := g.Document.StreamFind(t.Context(),
		&mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
	if err != nil {
		t.Fatal(err)
	}
	aggregate, err := g.Document.StreamAggregate(t.Context(),
		&mooringv1.StreamAggregateRequest{Database: "d", Collection: new("c")})
	if err != nil {
		t.Fatal(err)
	}
	for name, recv := range map[string]func() ([]*mooringv1.Document, error){
		"StreamFind":      func() ([]*mooringv1.Document, error) { m, err := find.Recv(); return m.GetDocuments(), err },
		"StreamAggregate": func() ([]*mooringv1.Document, error) { m, err := aggregate.Recv(); return m.GetDocuments(), err },
	} {
		t.Run(name, func(t *testing.T) {
			var got []bson.Raw
			for {
				message, err := recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				size := 0
				for _, d := range message {
					got = append(got, raw(d))
					size += len(raw(d))
				}
				if size > 1<<20 && len(message) > 1 {
					t.Errorf("a message of %d bytes and %d documents", size, len(message))
				}
			}
			equal(t, got, docs)
		})
	}
	g.Idle(0)
	for _, c := range g.Server.Commands("getMore") {
		if v, ok := c.Body.Lookup("batchSize"); !ok {
			t.Errorf("a getMore without batchSize")
		} else if n, _ := v.AsInt64(); n > 1200 {
			t.Errorf("a getMore for %d documents of 900 bytes", n)
		}
	}
}

// TestSlowStreamsLeaveRoom checks that the streams of one principal, whose commands hang, leave
// connections to others, as its pages do.
func TestSlowStreamsLeaveRoom(t *testing.T) {
	const pool, streams = 10, 20
	hold := make(chan struct{})
	slow := func(*fakemongo.Command) fakemongo.Reply {
		<-hold
		return fakemongo.Error(1, "InternalError", "x")
	}
	a := admission.New(admission.Config{
		Calls: admission.Limits{Total: pool}, Streams: admission.Limits{Each: 2000},
		Patience: time.Minute,
	})
	handlers := fakemongo.Handlers{"aggregate": slow}
	g := servicetest.Start(t, fakemongo.NewServer(t, handlers), servicetest.Config{
		URIOptions: "maxPoolSize=" + strconv.Itoa(pool), Admission: a,
	})
	greedy, cancel := context.WithCancel(servicetest.As(t.Context(), "greedy"))
	defer cancel()
	var open sync.WaitGroup
	for range streams {
		open.Go(func() {
			ss, err := g.Document.StreamAggregate(greedy, &mooringv1.StreamAggregateRequest{
				Database: "d", Collection: new("c"),
			})
			if err == nil {
				_, err = ss.Recv()
			}
			if status.Code(err) != codes.FailedPrecondition {
				t.Errorf("StreamAggregate: %v, want the server's error", err)
			}
		})
	}
	const share = 8 // 80 % of the pool
	servicetest.Eventually(t, "the streams' share in use, and the rest waiting", func() bool {
		u := a.Calls()
		return u.Held == share && u.Waiting == streams-share
	})
	other := servicetest.As(t.Context(), "other")
	_, err := g.Document.FindOne(other, &mooringv1.FindOneRequest{Database: "d", Collection: "c"})
	if err != nil {
		t.Errorf("FindOne of another: %v", err)
	}
	close(hold)
	open.Wait()
	g.Idle(0)
	if u := a.Calls(); u.Held != 0 {
		t.Errorf("%d places are taken at the end", u.Held)
	}
}

// A stream asks for no more than its client takes.
func TestSlowClient(t *testing.T) {
	g := start(t, nil)
	g.Server.SetDocuments("d.c", servicetest.Docs(20_000, 900)...)
	ctx, cancel := context.WithCancel(t.Context())
	ss, err := g.Document.StreamFind(ctx,
		&mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ss.Recv(); err != nil {
		t.Fatal(err)
	}
	// It settles: no more getMores come while nothing is read.
	last, since := -1, time.Now()
	servicetest.Eventually(t, "the stream to wait", func() bool {
		if n := len(g.Server.Commands("getMore")); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
	if last > 6 {
		t.Errorf("%d getMores for a client that reads nothing", last)
	}
	cancel()
	g.Idle(0)
	if n := g.Server.KilledCursors(); n != 1 {
		t.Errorf("%d cursors killed, want 1", n)
	}
}

// A client that goes away in the middle of a stream leaves nothing behind, wherever the stream is.
func TestStreamWhoseClientGoesAway(t *testing.T) {
	for _, test := range []struct {
		name   string
		during fakemongo.Handler // getMore
	}{
		{"while it sends", nil},
		{"while it waits for the server", fakemongo.Always(fakemongo.Hang())},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := start(t, fakemongo.Handlers{})
			if test.during != nil {
				g.Server.Handle("getMore", test.during)
			}
			g.Server.SetDocuments("d.c", servicetest.Docs(20_000, 900)...)
			ctx, cancel := context.WithCancel(t.Context())
			ss, err := g.Document.StreamFind(ctx,
				&mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ss.Recv(); err != nil {
				t.Fatal(err)
			}
			servicetest.Eventually(t, "a getMore", func() bool {
				return len(g.Server.Commands("getMore")) > 0
			})
			cancel()
			g.Idle(0)
			if n := g.Server.KilledCursors(); n != 1 {
				t.Errorf("%d cursors killed, want 1", n)
			}
		})
	}
}

func TestDrainDuringStreams(t *testing.T) {
	g := start(t, nil)
	g.Server.SetDocuments("d.c", servicetest.Docs(20_000, 900)...)
	const streams = 50
	results := make(chan error, streams) // one of each
	drained := make(chan struct{})
	for range streams {
		ss, err := g.Document.StreamFind(t.Context(),
			&mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ss.Recv(); err != nil {
			t.Fatal(err)
		}
		go func() {
			<-drained // it does not read meanwhile
			var err error
			for err == nil {
				_, err = ss.Recv()
			}
			results <- err
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := g.Gate.Drain(ctx)
	close(drained)
	if err != nil {
		t.Fatal(err)
	}
	for range streams {
		if err := <-results; status.Code(err) != codes.Unavailable {
			t.Errorf("a stream ended with %v", err)
		}
	}
	g.Idle(0)
	if n := g.Server.KilledCursors(); n != streams {
		t.Errorf("%d cursors killed, want %d", n, streams)
	}
}

// A stream that fails in the middle ends with an error, never as if it were complete.
func TestStreamThatFails(t *testing.T) {
	for _, test := range []struct {
		name    string
		getMore fakemongo.Reply
		code    codes.Code
	}{
		{"refused", fakemongo.Error(43, "CursorNotFound", "gone"), codes.NotFound},
		{"connection lost", fakemongo.Drop(), codes.Unavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := start(t, fakemongo.Handlers{"getMore": fakemongo.Times(1, func(
				*fakemongo.Command,
			) fakemongo.Reply {
				return test.getMore
			}, fakemongo.Always(fakemongo.Drop()))})
			g.Server.SetDocuments("d.c", servicetest.Docs(1000, 10)...)
			ss, err := g.Document.StreamFind(t.Context(),
				&mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
			for err == nil {
				_, err = ss.Recv()
			}
			if status.Code(err) != test.code {
				t.Errorf("the stream ended with %v, want %v", err, test.code)
			}
		})
	}
}

// TestFirstBatches checks that pages and streams share what they learn of the sizes of documents,
// so that the first batch of either fits, and that a single batch is as large as its limit.
func TestFirstBatches(t *testing.T) {
	g := start(t, nil)
	g.Server.SetDocuments("d.large", servicetest.Docs(40, 200<<10)...)
	g.Server.SetDocuments("d.small", servicetest.Docs(400, 100)...)
	read := func(collection string, change func(*mooringv1.StreamFindRequest)) (documents int) {
		t.Helper()
		req := &mooringv1.StreamFindRequest{Database: "d", Collection: collection}
		change(req)
		find, err := g.Document.StreamFind(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for {
			m, err := find.Recv()
			if errors.Is(err, io.EOF) {
				return documents
			}
			if err != nil {
				t.Fatal(err)
			}
			documents += len(m.GetDocuments())
		}
	}
	page := func(collection string) {
		t.Helper()
		_, err := g.Document.Find(t.Context(), &mooringv1.FindRequest{
			Database: "d", Collection: collection,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	plain := func(*mooringv1.StreamFindRequest) {}
	page("large")
	if got := read("large", plain); got != 40 {
		t.Errorf("a stream of %d documents, want 40", got)
	}
	if got := read("small", plain); got != 400 {
		t.Errorf("a stream of %d documents, want 400", got)
	}
	page("small")
	got := read("small", func(req *mooringv1.StreamFindRequest) {
		req.Limit = new(int64(-200))
	})
	if got != 200 {
		t.Errorf("a single batch of %d documents, want 200", got)
	}
	var firsts []int64
	for _, c := range g.Server.Commands("find") {
		v, _ := c.Body.Lookup("batchSize")
		n, _ := v.AsInt64()
		firsts = append(firsts, n)
	}
	want := []int64{8, 2, 8, 101, 200}
	if !slices.Equal(firsts, want) {
		t.Errorf("first batches of %v, want %v", firsts, want)
	}
}
