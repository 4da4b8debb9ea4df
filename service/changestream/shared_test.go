package changestream_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// matching returns a request with one $match.
func matching(t *testing.T, filter string) *mooringv1.WatchRequest {
	t.Helper()
	r := onShop()
	r.Pipeline = []*mooringv1.Document{payload.NewDocument(doc(t, `{"$match": `+filter+`}`))}
	return r
}

// after returns a request that starts after a token.
func after(r *mooringv1.WatchRequest, token bson.Raw) *mooringv1.WatchRequest {
	r.StartAfter = payload.NewDocument(token)
	return r
}

// opened counts the streams that servers open from now on.
func opened(d *deployment.Deployment) *atomic.Int64 {
	n := &atomic.Int64{}
	d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "aggregate" {
			n.Add(1)
		}
		return next(cmd)
	})
	return n
}

// TestShared has streams of one collection, which share one cursor. Each gets what its filter
// keeps, and all the end of the collection.
func TestShared(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		n := opened(d)
		var open []*watch
		filters := map[string]string{
			`{}`: "1 2 3 4 5 6",
			`{"operationType": "insert", "fullDocument._id": {"$gt": 4}}`: "5 6",
			`{"documentKey._id": {"$in": [1, 6]}}`:                        "1 6",
			`{"fullDocument._id": {"$mod": [2, 0]}, "ns.coll": "c"}`:      "2 4 6",
			`{"operationType": "delete"}`:                                 "",
		}
		var wants [][]string
		for filter, ids := range filters {
			for range 1 + len(ids)%2 {
				open = append(open, g.watch(matching(t, filter)))
				var want []string
				for id := range strings.FieldsSeq(ids) {
					want = append(want, "insert "+id)
				}
				if filter == `{}` {
					want = append(want, "drop")
				}
				wants = append(wants, append(want, "invalidate"))
			}
		}
		for i := range 6 {
			g.insert(i + 1)
		}
		g.command(`{"drop": "c"}`)
		for i, w := range open {
			if got := w.read(len(wants[i])); !slices.Equal(got, wants[i]) {
				t.Errorf("read %q, want %q", got, wants[i])
			}
			if err := w.end(); err != nil {
				t.Errorf("a stream ends with %v", err)
			}
		}
		if n.Load() != 1 {
			t.Errorf("%d cursors were opened for %d streams, want 1", n.Load(), len(open))
		}
	})
}

// TestSharedSince has a stream without a token join a cursor whose next reply is late. It begins
// with what is written after it was opened, the other one has all.
func TestSharedSince(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		late := make(chan struct{})
		d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == "getMore" {
				<-late
			}
			return next(cmd)
		})
		first := g.watch(onShop())
		g.insert(1)
		second := g.watch(onShop())
		g.insert(2)
		close(late)
		if got, want := first.read(2), []string{"insert 1", "insert 2"}; !slices.Equal(got, want) {
			t.Errorf("the first stream read %q, want %q", got, want)
		}
		if got, want := second.read(1), []string{"insert 2"}; !slices.Equal(got, want) {
			t.Errorf("the second stream read %q, want %q", got, want)
		}
	})
}

// TestSharing says which requests share a cursor.
func TestSharing(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		with := func(change func(*mooringv1.WatchRequest)) *mooringv1.WatchRequest {
			r := onShop()
			change(r)
			return r
		}
		document := payload.NewDocument(doc(t, `{"locale": "en"}`))
		for name, row := range map[string]struct {
			request *mooringv1.WatchRequest
			shared  bool
		}{
			"a collection":  {onShop(), true},
			"a database":    {&mooringv1.WatchRequest{Database: "db"}, true},
			"all databases": {&mooringv1.WatchRequest{}, true},
			"a filter":      {matching(t, `{"fullDocument.a.b": {"$gte": 1}}`), true},
			"a document after an update": {with(func(r *mooringv1.WatchRequest) {
				r.FullDocument = new("updateLookup")
			}), true},
			"a batch size":              {with(func(r *mooringv1.WatchRequest) { r.BatchSize = new(int32(5)) }), true},
			"an operator of JavaScript": {matching(t, `{"$where": "true"}`), false},
			"an open pattern":           {matching(t, `{"ns.coll": {"$regex": "c"}}`), false},
			"a large filter":            {matching(t, `{"a": "`+strings.Repeat("x", 20_000)+`"}`), false},
			"two stages":                {ownOnShop(), false},
			"another stage": {with(func(r *mooringv1.WatchRequest) {
				r.Pipeline = []*mooringv1.Document{
					payload.NewDocument(doc(t, `{"$project": {"ns": 0}}`)),
				}
			}), false},
			"a collation": {with(func(r *mooringv1.WatchRequest) { r.Collation = document }), false},
			"a comment":   {with(func(r *mooringv1.WatchRequest) { r.Comment = payload.NewValue(bson.StringValue("x")) }), false},
			"a read preference": {with(func(r *mooringv1.WatchRequest) {
				r.ReadPreference = &mooringv1.ReadPreference{Mode: new("nearest")}
			}), false},
			"a time to wait": {with(func(r *mooringv1.WatchRequest) { r.MaxAwaitTimeMs = new(int64(5)) }), false},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			s, err := g.api.Watch(ctx, row.request)
			if err != nil {
				t.Fatal(err)
			}
			m, err := s.Recv()
			refused := !row.shared && status.Code(err) == codes.InvalidArgument // by the server
			if err != nil && !refused || m.GetShared() != row.shared {
				t.Errorf("%s: shared: %t, %v", name, m.GetShared(), err)
			}
			cancel()
			time.Sleep(time.Minute) //nolint:forbidigo // time is fake
		}
	})
}

// TestOldServers checks which servers may compare texts by the default collation of a collection.
func TestOldServers(t *testing.T) {
	server := func(kind description.ServerKind, wire int32) *description.Server {
		return &description.Server{Kind: kind, MaxWireVersion: wire}
	}
	now := server(description.ServerRSPrimary, 8)
	for name, row := range map[string]struct {
		ns      client.Namespace
		servers []*description.Server
		want    bool
	}{
		"new servers":      {shop, []*description.Server{now, now}, false},
		"one is older":     {shop, []*description.Server{now, server(description.ServerRSSecondary, 7)}, true},
		"one is not known": {shop, []*description.Server{now, server(description.ServerUnknown, 0)}, false},
		"a load balancer":  {shop, []*description.Server{server(description.ServerLoadBalancer, 0)}, false},
		"a database": {
			client.Namespace{Database: "db"},
			[]*description.Server{server(description.ServerRSPrimary, 7)},
			false,
		},
	} {
		if got := changestream.CompareByCollection(row.ns, row.servers); got != row.want {
			t.Errorf("%s: %t, want %t", name, got, row.want)
		}
	}
}

// TestResumeShared goes on after tokens of the ring, from memory, and after one from before it,
// with a cursor that is closed once the stream has met the ring.
func TestResumeShared(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		first := g.watch(onShop())
		old := first.token
		g.insert(1, 2, 3)
		first.read(3)
		first.leave()
		time.Sleep(time.Minute) //nolint:forbidigo // time is fake: the cursor ends
		if n := d.OpenCursors(); n != 0 {
			t.Fatalf("%d cursors are open without a stream", n)
		}
		live := g.watch(onShop())
		g.insert(4, 5, 6)
		if got, want := live.next(), "insert 4"; got != want {
			t.Fatalf("read %q", got)
		}
		middle := live.token
		live.read(2)
		n := opened(d)
		again := g.watch(after(onShop(), middle))
		if got, want := again.read(2), []string{"insert 5", "insert 6"}; !slices.Equal(got, want) {
			t.Errorf("read %q after a token of the ring", got)
		}
		if n.Load() != 0 {
			t.Errorf("%d cursors were opened for what is in memory", n.Load())
		}
		early := g.watch(after(onShop(), old))
		var want []string
		for i := range 6 {
			want = append(want, fmt.Sprintf("insert %d", i+1))
		}
		if got := early.read(6); !slices.Equal(got, want) {
			t.Errorf("read %q after a token from before", got)
		}
		time.Sleep(5 * time.Second) //nolint:forbidigo // time is fake
		if n.Load() != 1 || d.OpenCursors() != 1 {
			t.Errorf("%d cursors were opened to catch up, %d are open", n.Load(), d.OpenCursors())
		}
		g.insert(7)
		for _, w := range []*watch{live, again, early} {
			if got := w.next(); got != "insert 7" {
				t.Errorf("read %q", got)
			}
			w.leave()
		}
	})
}

// TestBehind has more streams catch up than may: one more is told to come back.
func TestBehind(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		first := g.watch(onShop())
		old := first.token
		first.leave()
		time.Sleep(time.Minute) //nolint:forbidigo // time is fake: the cursor ends
		g.insert(1)
		live := g.watch(onShop())
		d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == "getMore" || cmd.Name == "aggregate" {
				return next(cmd).After(2 * time.Second)
			}
			return next(cmd)
		})
		one, err := g.api.Watch(t.Context(), after(onShop(), old))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		more, err := g.api.Watch(t.Context(), after(onShop(), old))
		if err == nil {
			_, err = more.Recv()
		}
		if status.Code(err) != codes.Unavailable || reason(err) != rpcerr.ChangeStreamBehind ||
			retry(err) != rpcerr.Restart {
			t.Fatalf("one more that catches up: %v, %s, retry %s", err, reason(err), retry(err))
		}
		for {
			m, err := one.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if len(m.GetDocuments()) > 0 {
				break
			}
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake
		w := g.watch(after(onShop(), old))
		if got := w.next(); got != "insert 1" {
			t.Errorf("when it comes back it reads %q", got)
		}
		w.leave()
		live.leave()
	})
}

// TestBehindOfOne has a client that does not read open more streams that catch up than its share.
// Another client may catch up meanwhile.
func TestBehindOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cursors, catchUps = 20, 5
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{cursors: cursors})
		first := g.watch(onShop())
		old := first.token
		first.leave()
		time.Sleep(time.Minute) //nolint:forbidigo // time is fake: the cursor ends
		g.insert(1)
		live := g.watch(onShop())
		ctx, cancel := context.WithCancel(as(t.Context(), "key:a"))
		var last mooringv1.ChangeStreamService_WatchClient
		for range catchUps {
			var err error
			if last, err = g.api.Watch(ctx, after(onShop(), old)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := g.service.Stats().CatchUps; n != catchUps-1 {
			t.Errorf("%d streams of a client catch up, want %d", n, catchUps-1)
		}
		if _, err := last.Recv(); err == nil || reason(err) != rpcerr.ChangeStreamBehind {
			t.Errorf("one more of the client: %v", err)
		}
		w := g.watchAs("key:b", after(onShop(), old))
		if got := w.next(); got != "insert 1" {
			t.Errorf("another client reads %q", got)
		}
		cancel()
		w.leave()
		if n := g.service.Stats().CatchUps; n != 0 {
			t.Errorf("%d streams catch up at the end", n)
		}
		again := g.watchAs("key:a", after(onShop(), old))
		if got := again.next(); got != "insert 1" {
			t.Errorf("when it comes back it reads %q", got)
		}
		again.leave()
		live.leave()
	})
}

// TestFilterBehind has a stream catch up whose filter drops a lot: it does not pause between
// replies without an event for it.
func TestFilterBehind(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		first := g.watch(onShop())
		old := first.token
		first.leave()
		time.Sleep(time.Minute) //nolint:forbidigo // time is fake: the cursor ends
		for id := range 1000 {
			g.insert(id + 1)
		}
		live := g.watch(onShop())
		begun := time.Now()
		w := g.watch(after(matching(t, `{"documentKey._id": 1000}`), old))
		if got := w.next(); got != "insert 1000" {
			t.Errorf("read %q", got)
		}
		if passed := time.Since(begun); passed >= 250*time.Millisecond {
			t.Errorf("the event came after %v", passed)
		}
		w.leave()
		live.leave()
	})
}

// TestImpatientServer pauses where a server answers without waiting for changes, for a stream with
// a cursor of its own as for those that share one.
func TestImpatientServer(t *testing.T) {
	for name, request := range map[string]*mooringv1.WatchRequest{
		"own": ownOnShop(), "shared": onShop(),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
				var asked atomic.Int64
				d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
					if cmd.Name != "getMore" {
						return next(cmd)
					}
					asked.Add(1)
					cmd.Body = bson.With(cmd.Body, "maxTimeMS", bson.Int32Value(1))
					return next(cmd)
				})
				w := g.watch(request)
				time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake
				if n := asked.Load(); n < 35 || n > 41 {
					t.Errorf("the server was asked %d times in 10 s, want one in 250 ms", n)
				}
				g.insert(1)
				if got := w.next(); got != "insert 1" {
					t.Errorf("read %q", got)
				}
				w.leave()
			})
		})
	}
}

// TestUndecided has an event come that takes more steps than the gateway makes: the stream goes on
// with the server's own filter, and misses nothing.
func TestUndecided(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		var any []string
		for i := range 300 {
			any = append(any, fmt.Sprintf(`{"fullDocument.n": %d}`, 1000+i))
		}
		any = append(any, `{"fullDocument._id": {"$in": [1, 3, 5]}}`)
		w := g.watch(matching(t, `{"$or": [`+strings.Join(any, ",")+`]}`))
		g.insertNumbers(1, 1)
		if got := w.next(); got != "insert 1" {
			t.Fatalf("read %q", got)
		}
		n := opened(d)
		g.insertNumbers(2, 2)
		g.insertNumbers(3, make([]int, 500)...)
		g.insertNumbers(4, make([]int, 500)...)
		g.insertNumbers(5, 5)
		if got, want := w.read(2), []string{"insert 3", "insert 5"}; !slices.Equal(got, want) {
			t.Errorf("read %q, want %q", got, want)
		}
		if n.Load() != 1 {
			t.Errorf("%d cursors were opened, want one of its own", n.Load())
		}
		w.leave()
	})
}

// TestGreedyFilters has streams whose filters together take too many steps for an event, each by
// itself not: they go on with the server's filters, and miss nothing. One with a cheap filter goes
// on sharing the cursor.
func TestGreedyFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const greedy, conditions, fields = 30, 500, 230
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{cursors: 2 * greedy})
		var open []*watch
		for i := range greedy {
			none := make([]string, conditions, conditions+1)
			for k := range none {
				none[k] = fmt.Sprintf(`{"fullDocument.z": %d}`, 1000*i+k)
			}
			open = append(open, g.watchAs(fmt.Sprint("key:", i/maxEach),
				matching(t, `{"$or": [`+strings.Join(
					append(none, `{"operationType": "insert"}`), ",")+`]}`)))
		}
		open = append(open, g.watchAs("key:b", matching(t, `{"operationType": "insert"}`)))
		n := opened(d)
		var document strings.Builder
		for k := range fields {
			fmt.Fprintf(&document, `, "f%d": 1`, k)
		}
		g.insert(1)
		for id := range 2 {
			g.command(fmt.Sprintf(`{"insert": "c", "documents": [{"_id": %d%s}]}`, id+2, &document))
		}
		for _, w := range open {
			want := []string{"insert 1", "insert 2", "insert 3"}
			if got := w.read(3); !slices.Equal(got, want) {
				t.Errorf("read %q, want %q", got, want)
			}
		}
		if got := g.service.Stats(); n.Load() != greedy || got.Own != greedy ||
			got.Subscribers != 1 {
			t.Errorf("%d cursors were opened, want %d; %+v", n.Load(), greedy, got)
		}
		for _, w := range open {
			w.leave()
		}
	})
}

// TestTooLargeEvent has a shared cursor fail at an event that is larger than a server may send. Who
// does not want it goes on with the server's own filter, also later, after a token from before it.
func TestTooLargeEvent(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		all := g.watch(onShop())
		some := g.watch(matching(t, `{"documentKey._id": {"$in": [1, 3]}}`))
		old := some.token
		g.insert(1)
		if got := some.next(); got != "insert 1" {
			t.Fatalf("read %q", got)
		}
		tooLarge := fakemongo.Document(doc(t,
			`{"ok": 0, "code": 10334, "codeName": "BSONObjectTooLarge", "errmsg": "no"}`))
		d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			_, resumes := cmd.Body.Lookup("pipeline", "0", "$changeStream", "startAfter")
			if _, filters := cmd.Body.Lookup("pipeline", "1"); resumes && !filters {
				return tooLarge
			}
			reply := next(cmd)
			events, _ := reply.Document().Lookup("cursor", "nextBatch")
			list, _ := events.Array()
			for event := range list.Documents() {
				id, _ := event.Lookup("documentKey", "_id")
				if n, _ := id.Int32(); n == 2 {
					return tooLarge
				}
			}
			return reply
		})
		g.insert(2)
		if err := all.end(); reason(err) != "BSONObjectTooLarge" {
			t.Errorf("a stream without a filter ends with %v", err)
		}
		g.insert(3)
		if got := some.next(); got != "insert 3" {
			t.Errorf("read %q", got)
		}
		some.leave()
		ctx, cancel := context.WithCancel(t.Context())
		s, err := g.api.Watch(ctx,
			after(matching(t, `{"documentKey._id": {"$in": [1, 3]}}`), old))
		if err != nil {
			t.Fatal(err)
		}
		again := &watch{t: t, stream: s, cancel: cancel}
		if got, want := again.read(2), []string{"insert 1", "insert 3"}; !slices.Equal(got, want) {
			t.Errorf("read %q, want %q", got, want)
		}
		again.leave()
	})
}

// insertNumbers inserts a document with an array n, or a number.
func (g *gateway) insertNumbers(id int, numbers ...int) {
	g.t.Helper()
	b := bson.NewBuilder(nil).Int32("_id", int32(id)).OpenArray("n")
	for _, n := range numbers {
		b.Int32("", int32(n))
	}
	insert := bson.NewBuilder(nil).String("insert", "c").OpenArray("documents").
		Document("", b.Close().Finish()).Close().Finish()
	if _, err := g.client.RunCommand(g.t.Context(), "db", insert,
		client.RunCommandOptions{}); err != nil {
		g.t.Fatal(err)
	}
}

// TestForms reads one change by gRPC, as lines, as events and by a ticket: all share one cursor.
func TestForms(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		n := opened(d)
		w := g.watch(onShop())
		const path = "/v1/databases/db/collections/c:watch"
		ticket, err := g.api.CreateTicket(t.Context(),
			&mooringv1.CreateTicketRequest{Watch: onShop()})
		if err != nil {
			t.Fatal(err)
		}
		forms := []struct{ url, accept, begin string }{
			{path, "application/x-ndjson", `{"progress":{"resumeToken":{"_data":"`},
			{path, "text/event-stream", ": shared\nid: "},
			{ticket.GetUrl(), "text/event-stream", ": shared\nid: "},
		}
		var open sync.WaitGroup
		for _, form := range forms {
			open.Go(func() {
				response := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, form.url, nil)
				r.Header.Set("Accept", form.accept)
				g.rest.ServeHTTP(response, r)
				text := response.Body.String()
				if strings.Count(text, `"operationType":"insert"`) != 1 ||
					!strings.Contains(text, `"invalidate"`) ||
					!strings.HasPrefix(text, form.begin) ||
					!strings.Contains(text[:100], "shared") {
					t.Errorf("%s as %s: %d %s", form.url, form.accept, response.Code, text)
				}
			})
		}
		synctest.Wait()
		g.insert(1)
		if got := w.next(); got != "insert 1" {
			t.Errorf("read %q", got)
		}
		g.command(`{"drop": "c"}`)
		open.Wait()
		w.leave()
		if n.Load() != 1 {
			t.Errorf("%d cursors were opened, want 1", n.Load())
		}
	})
}

// TestSharedLimits has a principal open as many streams of one cursor as it may.
func TestSharedLimits(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		var open []*watch
		for range maxEach {
			open = append(open, g.watchAs("key:a", onShop()))
		}
		s, err := g.api.Watch(as(t.Context(), "key:a"), onShop())
		if err == nil {
			_, err = s.Recv()
		}
		if reason(err) != rpcerr.QuotaExceeded {
			t.Errorf("one more: %v, want QuotaExceeded", err)
		}
		open = append(open, g.watchAs("key:b", onShop()))
		synctest.Wait()
		if got := g.service.Stats(); got.Subscribers != maxEach+1 || got.Shared != 1 ||
			got.Own != 0 {
			t.Errorf("%+v", got)
		}
		for _, w := range open {
			w.cancel()
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake
	})
}

// TestSharedWithoutMemory has a cursor read a large event while nothing is left of the memory. The
// ring has no room for it, so that the stream catches up with a cursor of its own, which gets what
// the shared one has given back.
func TestSharedWithoutMemory(t *testing.T) { testWithoutMemory(t, onShop()) }

// TestOwnWithoutMemory has a stream with a cursor of its own read large events while nothing is
// left of the memory.
func TestOwnWithoutMemory(t *testing.T) { testWithoutMemory(t, ownOnShop()) }

func testWithoutMemory(t *testing.T, request *mooringv1.WatchRequest) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{bytes: 1 << 20})
		w := g.watch(request)
		empty := g.fill()
		for id := range 3 {
			g.command(fmt.Sprintf(`{"insert": "c", "documents": [{"_id": %d, "a": "%s"}]}`, id,
				strings.Repeat("x", 100_000)))
			late := time.AfterFunc(time.Hour, w.cancel)
			if got, want := w.next(), fmt.Sprint("insert ", id); got != want {
				t.Errorf("read %q, want %q", got, want)
			}
			late.Stop()
		}
		empty()
		w.leave()
	})
}

// TestOpenWithoutMemory has no memory for the reply that opens a stream: the client, which has
// nothing of it, is refused.
func TestOpenWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{bytes: 1 << 20})
		first := g.watch(ownOnShop())
		first.leave()
		g.command(`{"insert": "c", "documents": [{"_id": 1, "a": "` +
			strings.Repeat("x", 100_000) + `"}]}`)
		empty := g.fill()
		s, err := g.api.Watch(t.Context(), after(ownOnShop(), first.token))
		if err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.Unavailable || reason(err) != rpcerr.Overloaded {
			t.Errorf("a stream without room for its first event: %v", err)
		}
		empty()
		time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake: what is left of the call ends
	})
}

// TestFilterMemory opens streams with filters that take much more memory than their text. It is
// charged until a stream ends; one whose filter does not fit is refused.
func TestFilterMemory(t *testing.T) {
	const size = 200_000
	filter := `{` + strings.Repeat(`"a": null, `, 420) + `"b": null}`
	for name, open := range map[string]func(g *gateway) (leave func()){
		"Watch": func(g *gateway) func() { return g.watch(matching(t, filter)).leave },
		"Live":  func(g *gateway) func() { return g.live("", liveOn(t, filter, "")).leave },
	} {
		synctest.Test(t, func(t *testing.T) {
			d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
			g := start(t, d, options{bytes: 1 << 20})
			before := g.admission.Bytes().Held
			leave := open(g)
			if held := g.admission.Bytes().Held - before; held < size || held > 2*size {
				t.Errorf("%s: %d bytes are charged, want about %d", name, held, size)
			}
			leave()
		})
	}
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{bytes: 1 << 20})
		empty := g.fill()
		watch, err := g.api.Watch(t.Context(), matching(t, filter))
		if err == nil {
			_, err = watch.Recv()
		}
		if reason(err) != rpcerr.Overloaded {
			t.Errorf("Watch without room for its filter: %v", err)
		}
		live, err := g.api.Live(t.Context(), liveOn(t, filter, ""))
		if err == nil {
			_, err = live.Recv()
		}
		if reason(err) != rpcerr.Overloaded {
			t.Errorf("Live without room for its filter: %v", err)
		}
		empty()
	})
}

// TestWithoutMemoryOnREST has streams of the REST port that have begun write the JSON of a large
// document while nothing is left of the memory.
func TestWithoutMemoryOnREST(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{bytes: 1 << 20})
		for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			r := httptest.NewRequestWithContext(ctx, http.MethodGet,
				"/v1/databases/db/collections/c:watch", nil)
			r.Header.Set("Accept", accept)
			from, to := io.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				g.rest.ServeHTTP(&piped{header: http.Header{}, to: to}, r)
				_ = to.Close()
			}()
			lines := bufio.NewReader(from)
			for begun := false; !begun; {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				begun = strings.Contains(line, "_data")
			}
			empty := g.fill()
			g.command(`{"insert": "c", "documents": [{"a": "` + strings.Repeat("x", 300_000) +
				`"}]}`)
			got := ""
			for err := error(nil); err == nil && !strings.Contains(got, "xxx"); {
				got, err = lines.ReadString('\n')
			}
			if !strings.Contains(got, "xxx") {
				t.Errorf("%s ends with %q", accept, got)
			}
			empty()
			cancel()
			_, _ = io.Copy(io.Discard, from)
			<-done
			time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake
		}
	})
}

// insertLarge inserts a document of a megabyte.
func (g *gateway) insertLarge(collection string, id int) {
	g.t.Helper()
	g.command(fmt.Sprintf(`{"insert": "%s", "documents": [{"_id": %d, "a": "%s"}]}`, collection, id,
		strings.Repeat("x", 1_000_000)))
}

// TestUnreadOfOne has a client open streams that it does not read, each of which takes another
// event. They hold what they have taken of its memory, and only a part of all: the streams of
// another client get their event from their shared cursor.
func TestUnreadOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, unread, prompt = 12 << 20, maxEach, 5
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{cursors: 20, bytes: all})
		var a, b []*watch
		for id := range unread {
			a = append(a, g.watchAs("key:a", onShop()))
			synctest.Wait()
			g.insertLarge("c", id)
			synctest.Wait()
		}
		other := onShop()
		other.Collection = new("d")
		for range prompt {
			b = append(b, g.watchAs("key:b", other))
		}
		n := opened(d)
		g.insertLarge("d", 1)
		for _, w := range b {
			if got := w.next(); got != "insert 1" {
				t.Errorf("another client reads %q", got)
			}
		}
		if n.Load() != 0 {
			t.Errorf("%d cursors were opened to catch up", n.Load())
		}
		for _, w := range append(a, b...) {
			w.leave()
		}
	})
}

// unreadClient is the response writer of a client that reads what comes before a large event.
type unreadClient struct {
	*httptest.ResponseRecorder
	cut chan struct{}
}

func (c *unreadClient) Write(b []byte) (int, error) {
	if len(b) < 50_000 {
		return c.ResponseRecorder.Write(b)
	}
	<-c.cut
	return 0, os.ErrDeadlineExceeded
}

func (c *unreadClient) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() && at.Before(time.Now()) {
		close(c.cut)
	}
	return nil
}

// TestUnreadIsCut has a stream on REST not read an event, which is small enough that its text is
// not charged. It holds the event, also when the shared cursor's memory is given up, and ends when
// a call needs that.
func TestUnreadIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, size = 1 << 20, 100_000
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{bytes: all})
		prompt := g.watchAs("key:b", onShop())
		r := httptest.NewRequest(http.MethodGet, "/v1/databases/db/collections/c:watch", nil)
		r.Header.Set("Accept", "text/event-stream")
		w := &unreadClient{httptest.NewRecorder(), make(chan struct{})}
		var over sync.WaitGroup
		over.Go(func() { g.rest.ServeHTTP(w, r) })
		synctest.Wait()
		g.command(`{"insert": "c", "documents": [{"_id": 1, "a": "` + strings.Repeat("x", size) +
			`"}]}`)
		prompt.next()
		time.Sleep(31 * time.Second) //nolint:forbidigo // time is fake
		g.hub.Reclaim(all)
		if held := g.admission.Bytes().Held; held < size || held > size+10_000 {
			t.Errorf("%d bytes are held, want those of the event", held)
		}
		var other admission.Account
		g.admission.Open(&other, admission.Principal{Name: "others"})
		_ = other.GrowLast(t.Context(), all)
		select {
		case <-w.cut:
		default:
			t.Error("the stream goes on")
		}
		over.Wait()
		if err := other.GrowLast(t.Context(), all); err != nil {
			t.Errorf("after the end of the stream: %v", err)
		}
		other.Close()
		prompt.leave()
	})
}
