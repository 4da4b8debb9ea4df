package watchers_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
	"github.com/mooringdb/mooring/service/payload"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

const (
	database, collection = "watchers", "c"
	// perConnection is how many streams share one connection of a client.
	perConnection = 200
	// defaultMost is how many cursors of streams one principal may have with the default pool.
	defaultMost = 64
)

// count returns the number of watchers: LAB_WATCHERS, or few.
func count(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LAB_WATCHERS")
	if text == "" {
		return 100
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("LAB_WATCHERS: %v", err)
	}
	return n
}

type stream = mooringv1.ChangeStreamService_WatchClient

// watch opens n streams, which share a cursor or have their own, and waits until each has its first
// resume token.
func watch(ctx context.Context, t *testing.T, g *gatewaytest.Gateway, n int, shared bool) []stream {
	t.Helper()
	var clients []mooringv1.ChangeStreamServiceClient
	for range (n + perConnection - 1) / perConnection {
		clients = append(clients, mooringv1.NewChangeStreamServiceClient(g.Dial(t)))
	}
	streams := make([]stream, n)
	var opening errgroup.Group
	opening.SetLimit(16)
	for i := range streams {
		opening.Go(func() (err error) {
			streams[i], err = open(ctx, clients[i/perConnection], shared)
			return err
		})
	}
	if err := opening.Wait(); err != nil {
		t.Fatal(err)
	}
	return streams
}

func open(
	ctx context.Context, c mooringv1.ChangeStreamServiceClient, shared bool,
) (stream, error) {
	req := &mooringv1.WatchRequest{Database: database, Collection: new(collection)}
	if !shared { // the gateway evaluates one stage at most
		all := payload.NewDocument(bson.NewBuilder(nil).OpenDocument("$match").Close().Finish())
		req.Pipeline = []*mooringv1.Document{all, all}
	}
	s, err := c.Watch(ctx, req)
	if err != nil {
		return nil, err
	}
	m, err := s.Recv()
	if err == nil && m.GetShared() != shared {
		err = fmt.Errorf("the stream shares a cursor: %t, want %t", m.GetShared(), shared)
	}
	return s, err
}

// readOne reads a stream until it has a change.
func readOne(s stream) error {
	for {
		m, err := s.Recv()
		if err != nil || len(m.GetDocuments()) > 0 {
			return err
		}
	}
}

func insert(t *testing.T, g *gatewaytest.Gateway, id int32) {
	t.Helper()
	_, err := g.Documents(t).InsertOne(t.Context(), &mooringv1.InsertOneRequest{
		Database: database, Collection: collection,
		Document: payload.NewDocument(bson.NewBuilder(nil).Int32("_id", id).Finish()),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitTime is how long a server waits for changes before it answers that there are none.
const awaitTime = time.Second

// startDeployment makes a replica set whose hosts wait for changes, as real servers do, until the
// returned function is called.
func startDeployment(t *testing.T) (d *deployment.Deployment, changed func()) {
	t.Helper()
	d = deployment.Listen(t, deployment.ReplicaSet, "7.0.0")
	change := make(chan struct{})
	d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "getMore" {
			select {
			case <-change:
			case <-time.After(awaitTime):
			}
		}
		return next(cmd)
	})
	return d, sync.OnceFunc(func() { close(change) })
}

// usage is what the gateway uses at one time.
type usage struct {
	gateway.Vars
	resident int64
}

func measure(t *testing.T, g *gatewaytest.Gateway) usage {
	t.Helper()
	resident, err := proc.RSS(g.Pid())
	if err != nil {
		t.Logf("resident memory is not known: %v", err)
	}
	return usage{g.Vars(t), resident}
}

// poolFor returns the size of a pool with which one principal, which gets 80 % of the change
// streams, may have n, and other calls have some connections.
func poolFor(n int) int { return n*5/4 + 100 }

// TestWatchers opens many streams, with a pool that allows so many, and measures what each costs.
// Each of them gets a change, and nothing is left of them at the end. With cursors of their own,
// each has a connection; with a shared one, there is one.
func TestWatchers(t *testing.T) {
	for name, shared := range map[string]bool{"own": false, "shared": true} {
		t.Run(name, func(t *testing.T) { testWatchers(t, count(t), shared) })
	}
}

func testWatchers(t *testing.T, n int, shared bool) {
	cursors := n
	if shared {
		cursors = 1
	}
	d, changed := startDeployment(t)
	defer changed()
	g := suite.Start(t, fmt.Sprintf("%s&maxPoolSize=%d", d.URI(false, nil), poolFor(n)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	insert(t, g, 0)
	before := measure(t, g)
	for range 20 { // until the connections that the start needed have ended
		<-time.After(50 * time.Millisecond)
		if now := measure(t, g); now.Goroutines < before.Goroutines {
			before = now
		}
	}
	began := time.Now()
	streams := watch(ctx, t, g, n, shared)
	opened := time.Since(began)
	var reading errgroup.Group
	for _, s := range streams { // a stream whose client does not read does not go on
		reading.Go(func() error { return readOne(s) })
	}
	gatewaytest.Eventually(t, time.Minute, func() error {
		if held := g.Vars(t).CheckedOut(); held < cursors*9/10 {
			return fmt.Errorf("%d connections wait for changes, want about %d", held, cursors)
		}
		return nil
	})
	if open := d.OpenCursors(); open != cursors {
		t.Errorf("%d cursors are open on the server, want %d", open, cursors)
	}
	during := measure(t, g)
	began = time.Now()
	insert(t, g, 1)
	changed()
	if err := reading.Wait(); err != nil {
		t.Fatal(err)
	}
	told := time.Since(began)
	each := func(before, after int64) float64 { return float64(after-before) / float64(n) }
	t.Logf("%d watchers, opened in %v; a change reaches all of them in %v; each costs %.1f "+
		"goroutines, %.1f KB of the heap (garbage included), %.1f KB of resident memory; "+
		"%d cursors "+
		"on the server, %d of the pool's %d connections in use", n, opened.Round(time.Millisecond),
		told.Round(time.Millisecond), each(int64(before.Goroutines), int64(during.Goroutines)),
		each(int64(before.Memory.HeapAlloc), int64(during.Memory.HeapAlloc))/1024,
		each(before.resident, during.resident)/1024, cursors, during.CheckedOut(), poolFor(n))
	cancel()
	gatewaytest.Eventually(t, time.Minute, func() error {
		if open, held := d.OpenCursors(), g.Vars(t).CheckedOut(); open > 0 || held > 0 {
			return fmt.Errorf("%d cursors are open and %d connections checked out", open, held)
		}
		return nil
	})
}

// TestLimit opens as many streams with cursors of their own as the default pool allows one
// principal. One more is refused in words that help, and other calls are served.
func TestLimit(t *testing.T) {
	d, changed := startDeployment(t)
	defer changed()
	g := suite.Start(t, d.URI(false, nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	insert(t, g, 0)
	streams := watch(ctx, t, g, defaultMost, false)
	_, err := open(ctx, mooringv1.NewChangeStreamServiceClient(g.Dial(t)), false)
	if status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "maxPoolSize") {
		t.Errorf("one stream more: %v, want RESOURCE_EXHAUSTED and a word of maxPoolSize", err)
	}
	t.Logf("%v", err)
	documents := g.Documents(t)
	var reading errgroup.Group
	began := time.Now()
	const readers, reads = 50, 20
	for range readers {
		reading.Go(func() error {
			for range reads {
				resp, err := documents.FindOne(ctx, &mooringv1.FindOneRequest{
					Database: database, Collection: collection,
				})
				if err != nil {
					return err
				}
				if resp.GetDocument() == nil {
					return io.ErrUnexpectedEOF
				}
			}
			return nil
		})
	}
	if err := reading.Wait(); err != nil {
		t.Errorf("reads beside the streams: %v", err)
	}
	t.Logf("%d reads by %d callers beside %d streams take %v", readers*reads, readers, defaultMost,
		time.Since(began).Round(time.Millisecond))
	insert(t, g, 1)
	changed()
	for _, s := range streams {
		if err := readOne(s); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	gatewaytest.Eventually(t, time.Minute, func() error {
		if open := d.OpenCursors(); open > 0 {
			return fmt.Errorf("%d cursors are open", open)
		}
		return nil
	})
}
