package replica_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/cursor"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	cursorservice "github.com/mooringdb/mooring/service/cursor"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/stream"
)

// deployment holds the cursors of some replicas.
type deployment struct {
	uri  string
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	open func() int // cursors
}

func single(t *testing.T, docs ...bson.Raw) deployment {
	t.Helper()
	s := fakemongo.NewServer(t, nil)
	s.SetDocuments("db.c", docs...)
	return deployment{"mongodb://db.test/?directConnection=true", s.Dial, s.OpenCursors}
}

func behindBalancer(t *testing.T, docs ...bson.Raw) deployment {
	t.Helper()
	b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Strict: true})
	b.SetDocuments("db.c", docs...)
	return deployment{b.URI(""), b.Dial, b.OpenCursors}
}

// gateway is a pager with a client, a node and the service of cursors: a replica without its public
// ports.
type gateway struct {
	*node
	*paging.Pager
	client *client.Client
	calls  mooringv1.CursorServiceClient // of the gateway's own clients
}

// join starts a gateway with the key a, which ends with the test. If advertise is not empty, it is
// the address by which other replicas reach the gateway, for example through a proxy.
func join(t *testing.T, d deployment, advertise string, options ...option) *gateway {
	t.Helper()
	g := &gateway{}
	cfg, err := connstring.Parse(d.uri)
	if err == nil {
		g.client, err = client.New(cfg, client.Options{Dialer: d.dial})
	}
	if err == nil {
		err = g.client.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.client.Close(context.Background()) })
	if advertise != "" {
		options = append(options, func(c *replica.Config) { c.Advertise = advertise })
	}
	g.node = bind(t, "a", options...)
	g.Pager = paging.New(paging.Config{
		Keys: g.ring, Deployment: "d", Replica: g.Advertised(),
		Continue: func(s cursor.State) paging.Cursor { return g.client.ContinueCursor(s) },
	})
	g.SetReplicas(g.node)
	around := interceptor.New(interceptor.Config{Replicas: g.node})
	service := cursorservice.New(cursorservice.Config{
		Handles: g.Pager, Streams: stream.New(stream.Config{}),
	})
	register := func(r grpc.ServiceRegistrar) { mooringv1.RegisterCursorServiceServer(r, service) }
	local := inproc.NewConn(around.Unary(), around.Stream())
	register(local)
	g.calls = mooringv1.NewCursorServiceClient(local)
	g.SetAPI(replica.API{Register: register, Unary: around.Unary(), Stream: around.Stream()})
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.Serve(g.Pager)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTime)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("Registry.Close = %v", err)
		}
	})
	return g
}

func (g *gateway) find(ctx context.Context, size int32) (paging.Page, error) {
	ns := client.Namespace{Database: "db", Collection: "c"}
	return g.Open(ctx, paging.Opening{Namespace: paging.Namespace(ns), BatchSize: &size, Run: func(
		ctx context.Context, _ int32,
	) (paging.Cursor, error) {
		return g.client.Find(ctx, ns,
			client.FindOptions{Common: client.Common{RunOn: true}, BatchSize: &size})
	}})
}

func (g *gateway) next(ctx context.Context, token string) (paging.Page, error) {
	resp, err := g.calls.NextPage(ctx, &mooringv1.NextPageRequest{Cursor: token})
	return paging.Page{Documents: raw(resp.GetDocuments()), Token: resp.GetCursor()}, err
}

func raw(docs []*mooringv1.Document) (all []bson.Raw) {
	for _, d := range docs {
		all = append(all, d.GetBson())
	}
	return all
}

// reading records what a client has read: the documents' numbers must be 0, 1, 2, …
type reading struct{ n int32 }

func (r *reading) take(docs []bson.Raw) error {
	for _, doc := range docs {
		v, _ := doc.Lookup("_id")
		if id, ok := v.Int32(); !ok || id != r.n {
			return fmt.Errorf("document %d came where %d was due", id, r.n)
		}
		r.n++
	}
	return nil
}

// readAll reads one cursor at random gateways and returns how that ended.
func readAll(t *testing.T, gateways []*gateway, total int32) string {
	any := func() *gateway { return gateways[rand.IntN(len(gateways))] }
	page, err := any().find(t.Context(), 7)
	if err != nil {
		t.Errorf("Open = %v", err)
		return "broken"
	}
	var r reading
	patience := time.NewTicker(20 * time.Millisecond)
	defer patience.Stop()
	unknown := 0
	for {
		if err := r.take(page.Documents); err != nil {
			t.Errorf("%v", err)
			return "broken"
		}
		if page.Token == "" {
			break
		}
		token, read := page.Token, page
		if page, err = any().next(t.Context(), token); err == nil && rand.IntN(3) == 0 {
			// the answer was lost on the way to the client
			page, err = repeat(t, any(), token, page)
		}
		switch {
		case errors.Is(err, paging.ErrCursorTokenReused):
			return "reused"
		// the replica that knows may be reachable again
		case errors.Is(err, paging.ErrCursorPositionUnknown) && unknown < 100:
			unknown++
			<-patience.C
			page = paging.Page{Token: read.Token}
		case errors.Is(err, paging.ErrCursorPositionUnknown):
			return "unknown"
		case err != nil:
			t.Errorf("Next = %v", err)
			return "broken"
		}
	}
	if r.n != total {
		t.Errorf("read %d documents of %d", r.n, total)
		return "broken"
	}
	return "complete"
}

// repeat asks again; the answer must be the same page.
func repeat(t *testing.T, g *gateway, token string, page paging.Page) (paging.Page, error) {
	again, err := g.next(t.Context(), token)
	if err == nil && (again.Token != page.Token || len(again.Documents) != len(page.Documents)) {
		t.Errorf("a repeated Next brings another page")
	}
	return again, err
}

// TestRotationWhileReading: keys change on all replicas, step by step, without an effect on
// clients.
func TestRotationWhileReading(t *testing.T) {
	const total = 150
	d := single(t, fakemongo.Numbered(0, total, 10)...)
	gateways := []*gateway{join(t, d, ""), join(t, d, ""), join(t, d, "")}
	stop := make(chan struct{})
	var reading sync.WaitGroup
	for range 8 {
		reading.Go(func() {
			for {
				if end := readAll(t, gateways, total); end != "complete" {
					t.Errorf("a reading ended as %s", end)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	// As docs/operations.md says, the old key leaves when its tokens have expired. Here it leaves
	// when no client reads any more.
	for _, step := range []string{"ab", "ba"} {
		for _, g := range gateways {
			g.rotate(step)
			_ = readAll(t, gateways, total)
		}
	}
	close(stop)
	reading.Wait()
	for _, g := range gateways {
		g.rotate("b")
	}
	if end := readAll(t, gateways, total); end != "complete" {
		t.Errorf("with the new key alone a reading ended as %s", end)
	}
}

// TestLifeAfterLife: at the address of a crashed replica, the next replica cannot know what was
// delivered.
func TestLifeAfterLife(t *testing.T) {
	d := single(t, fakemongo.Numbered(0, 50, 10)...)
	b := join(t, d, "")
	a := join(t, d, "")
	page, err := a.find(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	a.stop() // no replica reaches it any more
	if _, err := b.next(t.Context(), page.Token); !errors.Is(err, paging.ErrCursorPositionUnknown) {
		t.Errorf("Next while nobody is there = %v, want ErrCursorPositionUnknown", err)
	}
	again := join(t, d, "", at(a.Advertised()))
	for name, g := range map[string]*gateway{"another replica": b, "the next one itself": again} {
		if _, err := g.next(t.Context(), page.Token); !errors.Is(err,
			paging.ErrCursorPositionUnknown) {
			t.Errorf("Next at %s = %v, want ErrCursorPositionUnknown", name, err)
		}
	}
}

// TestDrainMovesLargeRests: the leftover of a batch of 16 MiB is pushed, over TLS.
func TestDrainMovesLargeRests(t *testing.T) {
	const total = 8
	d := single(t, fakemongo.Numbered(0, total, 2<<20-100)...)
	b := join(t, d, "")
	a := join(t, d, "", knowing(b.Advertised()))
	page, err := a.find(t.Context(), total-1) // a batch of 14 MiB, of which a page is one document
	if err != nil {
		t.Fatal(err)
	}
	var r reading
	if err := r.take(page.Documents); err != nil || r.n > 2 {
		t.Fatalf("the first page has %d documents, %v", r.n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	if err := a.Drain(ctx); err != nil {
		t.Errorf("Drain = %v", err)
	}
	a.stop()
	for page.Token != "" {
		if page, err = b.next(t.Context(), page.Token); err != nil {
			t.Fatalf("after %d documents: %v", r.n, err)
		}
		if err := r.take(page.Documents); err != nil {
			t.Fatal(err)
		}
	}
	if r.n != total || d.open() != 0 {
		t.Errorf("read %d documents of %d, %d cursors are open", r.n, total, d.open())
	}
}

// TestPinned: a pinned cursor is read, streamed and closed at any replica; its owner does the
// work.
func TestPinned(t *testing.T) {
	const total = 60
	d := behindBalancer(t, fakemongo.Numbered(0, total, 10)...)
	a, b := join(t, d, ""), join(t, d, "")
	for range 5 {
		if end := readAll(t, []*gateway{a, b}, total); end != "complete" {
			t.Errorf("a reading ended as %s", end)
		}
	}
	page, err := a.find(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	var r reading
	_ = r.take(page.Documents)
	if err := b.stream(t.Context(), page.Token, r.take); err != nil || r.n != total {
		t.Errorf("streamed up to document %d of %d: %v", r.n, total, err)
	}
	if page, err = a.find(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if _, err := b.calls.CloseCursor(t.Context(),
		&mooringv1.CloseCursorRequest{Cursor: page.Token}); err != nil || d.open() != 0 {
		t.Errorf("CloseCursor = %v, %d cursors are open", err, d.open())
	}

	// A client that streams it at another replica and goes away ends it.
	if page, err = a.find(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	if err := b.stream(t.Context(), page.Token, func([]bson.Raw) error {
		return enough
	}); !errors.Is(err, enough) {
		t.Errorf("the stream ended with %v", err)
	}
	eventually(t, "the cursor is closed on its server", func() bool { return d.open() == 0 })

	// The owner is gone.
	if page, err = a.find(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	a.stop()
	if _, err := b.next(t.Context(), page.Token); !errors.Is(err, paging.ErrOwnerGone) {
		t.Errorf("Next = %v, want ErrOwnerGone", err)
	}
}

// TestSlowReaderOfPinned: what is fetched for a stream at another replica is bounded, whatever the
// size of the result. A slow reader does not delay other clients.
func TestSlowReaderOfPinned(t *testing.T) {
	const total, size = 2400, 16 << 10
	b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Services: 1})
	b.SetDocuments("db.c", fakemongo.Numbered(0, total, size)...)
	d := deployment{b.URI(""), b.Dial, b.OpenCursors}
	owner, other := join(t, d, ""), join(t, d, "")
	page, err := owner.find(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ss, err := other.calls.Stream(ctx, &mooringv1.CursorServiceStreamRequest{Cursor: page.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer end(ss, cancel)
	if _, err := ss.Recv(); err != nil {
		t.Fatal(err)
	}
	fetched := func() int {
		n := 0
		for _, c := range b.Service(0).Commands("getMore") {
			v, _ := c.Body.Lookup("batchSize")
			size, _ := v.Int64()
			n += int(size)
		}
		return n
	}
	still := time.NewTicker(200 * time.Millisecond)
	defer still.Stop()
	for before := -1; before != fetched(); <-still.C {
		before = fetched()
	}
	if n := fetched() * size; n == 0 || n > 6<<20 {
		t.Errorf("%d bytes were asked of the server for a stream that nobody reads, want some, "+
			"and at most 6 MiB", n)
	}
	if end := readAll(t, []*gateway{other}, total); end != "complete" {
		t.Errorf("another reading ended as %s", end)
	}
	if end := readAll(t, []*gateway{owner, other}, total); end != "complete" {
		t.Errorf("another reading ended as %s", end)
	}
}

// TestDeadlineOfPinned: the owner's getMore ends with the caller's time.
func TestDeadlineOfPinned(t *testing.T) {
	b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Services: 1})
	b.SetDocuments("db.c", fakemongo.Numbered(0, 60, 10)...)
	d := deployment{b.URI(""), b.Dial, b.OpenCursors}
	owner, other := join(t, d, ""), join(t, d, "")
	page, err := owner.find(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	b.Service(0).Handle("getMore", fakemongo.Always(fakemongo.Hang()))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err = other.next(ctx, page.Token)
	if err == nil || time.Since(begun) > 5*time.Second {
		t.Errorf("Next = %v after %s, want an end after 300 ms", err, time.Since(begun))
	}
}

// stream reads a cursor to its end.
func (g *gateway) stream(ctx context.Context, token string, take func([]bson.Raw) error) error {
	ctx, cancel := context.WithCancel(ctx)
	ss, err := g.calls.Stream(ctx, &mooringv1.CursorServiceStreamRequest{Cursor: token})
	if err != nil {
		cancel()
		return err
	}
	defer end(ss, cancel)
	for {
		m, err := ss.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := take(raw(m.GetDocuments())); err != nil {
			return err
		}
	}
}

// end ends a stream, and returns when its handler has returned.
func end(ss grpc.ServerStreamingClient[mooringv1.CursorServiceStreamResponse], cancel func()) {
	cancel()
	for {
		if _, err := ss.Recv(); err != nil {
			return
		}
	}
}
