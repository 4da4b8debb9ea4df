package changestream_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/match"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// follower keeps what a client of Live has, as docs/change-streams.md tells clients to.
type follower struct {
	t      *testing.T
	stream mooringv1.ChangeStreamService_LiveClient
	cancel context.CancelFunc
	list   map[string]string // documents by their _id, as JSON
	ready  int
}

func liveOn(t *testing.T, filter, projection string) *mooringv1.LiveRequest {
	t.Helper()
	r := &mooringv1.LiveRequest{Database: "db", Collection: "c"}
	if filter != "" {
		r.Filter = payload.NewDocument(doc(t, filter))
	}
	if projection != "" {
		r.Projection = payload.NewDocument(doc(t, projection))
	}
	return r
}

// live opens a stream, and reads until it is ready.
func (g *gateway) live(principal string, req *mooringv1.LiveRequest) *follower {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	s, err := g.api.Live(as(ctx, principal), req)
	if err != nil {
		g.t.Fatal(err)
	}
	f := &follower{t: g.t, stream: s, cancel: cancel, list: map[string]string{}}
	f.until(func() bool { return f.ready > 0 })
	return f
}

// message applies the next message, and says what it is: "added 1, 2".
func (f *follower) message() (string, error) {
	m, err := f.stream.Recv()
	if err != nil {
		return "", err
	}
	var ids []string
	for _, d := range m.GetDocuments() {
		json, id := relaxed(f.t, d.GetBson())
		ids = append(ids, id)
		_, had := f.list[id]
		switch m.GetKind() {
		case "removed":
			if !had {
				f.t.Errorf("%s is removed, and the client does not have it", id)
			}
			delete(f.list, id)
		case "added", "changed":
			if had != (m.GetKind() == "changed") {
				f.t.Errorf("%s is %s, and the client has it: %t", id, m.GetKind(), had)
			}
			f.list[id] = json
		default:
			f.t.Errorf("a document of kind %v", m.GetKind())
		}
	}
	if m.GetKind() == "ready" {
		f.ready++
	}
	return strings.TrimSpace(m.GetKind() + " " + strings.Join(ids, ", ")), nil
}

func relaxed(t *testing.T, d bson.Raw) (json, id string) {
	t.Helper()
	text, err := extjson.Append(nil, d, extjson.Relaxed)
	if err != nil {
		t.Fatal(err)
	}
	value, _ := d.Lookup("_id")
	key, err := extjson.AppendValue(nil, value, extjson.Relaxed)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), string(key)
}

func (f *follower) next() string {
	f.t.Helper()
	said, err := f.message()
	if err != nil {
		f.t.Fatal(err)
	}
	return said
}

func (f *follower) until(done func() bool) {
	f.t.Helper()
	for !done() {
		f.next()
	}
}

// leave ends the stream, and what is left of its call.
func (f *follower) leave() {
	f.cancel()
	for {
		if _, err := f.message(); err != nil {
			break
		}
	}
	time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake
}

// TestLive follows documents as they begin to match, change and no longer match, through the end of
// the collection.
func TestLive(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		g.command(`{"insert": "c", "documents": [
			{"_id": 1, "n": 1, "x": 0}, {"_id": 2, "n": 5, "x": 0}, {"_id": 3, "n": 7, "x": 0}]}`)
		f := g.live("", liveOn(t, `{"n": {"$gte": 5}}`, `{"n": 1}`))
		for _, row := range []struct{ command, want string }{
			{`{"insert": "c", "documents": [{"_id": 4, "n": 9, "x": 1}]}`, "added 4"},
			{`{"insert": "c", "documents": [{"_id": 5, "n": 1}]}`, ""},
			{`{"update": "c", "updates": [{"q": {"_id": 5}, "u": {"$set": {"n": 6}}}]}`, "added 5"},
			{`{"update": "c", "updates": [{"q": {"_id": 5}, "u": {"$set": {"n": 8}}}]}`, "changed 5"},
			{`{"update": "c", "updates": [{"q": {"_id": 5}, "u": {"$set": {"n": 0}}}]}`, "removed 5"},
			{`{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"n": 2}}}]}`, ""},
			{`{"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]}`, ""},
			{`{"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]}`, "removed 2"},
			{`{"update": "c", "updates": [{"q": {"_id": 3}, "u": {"_id": 3, "n": 70}}]}`, "changed 3"},
		} {
			g.command(row.command)
			if row.want == "" {
				continue
			}
			if got := f.next(); got != row.want {
				t.Errorf("%s: %q, want %q", row.command, got, row.want)
			}
		}
		want := map[string]string{"3": `{"_id":3,"n":70}`, "4": `{"_id":4,"n":9}`}
		if fmt.Sprint(f.list) != fmt.Sprint(want) {
			t.Errorf("the client has %v, want %v", f.list, want)
		}
		g.command(`{"drop": "c"}`)
		f.until(func() bool { return f.ready == 2 })
		if len(f.list) > 0 {
			t.Errorf("the client has %v of a collection that is dropped", f.list)
		}
		g.command(`{"insert": "c", "documents": [{"_id": 3, "n": 10}]}`)
		if got := f.next(); got != "added 3" {
			t.Errorf("%q after the collection was dropped", got)
		}
		f.leave()
	})
}

// TestLiveEqualsFind changes documents at random, and compares what clients have with a find. The
// _ids are of several types.
func TestLiveEqualsFind(t *testing.T) {
	for seed := range uint64(20) {
		run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
			r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
			ids := []string{
				"1", `"1"`, `{"a": 1}`, "2", "3.5", `{"$oid": "65a000000000000000000001"}`, "null", "true",
			}
			step := func() {
				id := ids[r.IntN(len(ids))]
				switch n := r.IntN(10); {
				case n < 3:
					g.command(fmt.Sprintf(
						`{"delete": "c", "deletes": [{"q": {"_id": %s}, "limit": 1}]}`, id))
				case n < 9:
					g.command(fmt.Sprintf(`{"update": "c", "updates": [{"q": {"_id": %s}, "u": {"$set": {"n": %d, "s.t": "%c"}}, "upsert": true}]}`, id, r.IntN(9), 'a'+rune(r.IntN(3))))
				case r.IntN(4) == 0:
					g.command(`{"drop": "c"}`)
				}
			}
			for range 10 {
				step()
			}
			filters := []string{
				`{}`, `{"n": {"$lt": 5}}`, `{"$or": [{"n": 3}, {"s.t": {"$in": ["a", "b"]}}]}`, `{"_id": {"$gt": -5}}`,
			}
			projections := []string{"", `{"n": 1}`, `{"s": 0}`, `{"s": 1, "_id": 1}`}
			var all []*follower
			var readers sync.WaitGroup
			for i, filter := range filters {
				f := g.live("", liveOn(t, filter, projections[i]))
				all = append(all, f)
				readers.Go(func() {
					for {
						if _, err := f.message(); err != nil {
							return
						}
					}
				})
			}
			for range 15 {
				for range 1 + r.IntN(8) {
					step()
				}
				time.Sleep(time.Second) //nolint:forbidigo // time is fake: the clients have it all
				synctest.Wait()
				for i, f := range all {
					want := map[string]string{}
					cur, err := g.client.Find(t.Context(), shop, client.FindOptions{
						Filter:     doc(t, filters[i]),
						Projection: doc(t, cmp.Or(projections[i], "{}")),
					})
					if err != nil {
						t.Fatal(err)
					}
					for !cur.Done() {
						found, err := cur.Next(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						for _, d := range found.Documents {
							json, id := relaxed(t, d)
							want[id] = json
						}
					}
					if got := fmt.Sprint(f.list); got != fmt.Sprint(want) {
						t.Fatalf("seed %d: %s: the client has\n%v, want\n%v", seed, filters[i], got,
							want)
					}
				}
			}
			for _, f := range all {
				f.cancel()
			}
			readers.Wait()
			time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake
		})
	}
}

// TestLiveShares has many clients with filters of their own, whose changes come of one cursor.
func TestLiveShares(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		n := opened(d)
		var all []*follower
		for i := range maxEach {
			all = append(all, g.live("", liveOn(t, fmt.Sprintf(`{"_id": {"$gt": %d}}`, i), "")))
		}
		g.insert(27720)
		for _, f := range all {
			if got := f.next(); got != "added 27720" {
				t.Errorf("%q", got)
			}
		}
		if n.Load() != 1 {
			t.Errorf("%d cursors for %d clients", n.Load(), len(all))
		}
		_, err := g.api.Live(t.Context(), liveOn(t, "", ""))
		if err == nil {
			s, _ := g.api.Live(t.Context(), liveOn(t, "", ""))
			_, err = s.Recv()
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more client: %v", err)
		}
		for _, f := range all {
			f.leave()
		}
	})
}

// TestLiveRefusals lists what is refused, with the field that is wrong.
func TestLiveRefusals(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		for _, row := range []struct{ filter, projection, want string }{
			{`{"$where": "true"}`, "", "filter: $where is not supported"},
			{`{"a": {"$regex": "b"}}`, "", "filter: a: "},
			{`{"a": "` + strings.Repeat("a", 16<<10) + `"}`, "", "must have at most 16384"},
			{"", `{"` + strings.Repeat("a", 16<<10) + `": 1}`, "projection: has 16"},
			{"", `{"_id": 0}`, "projection: _id: must not leave out _id, by which documents are told apart"},
			{"", `{"a": {"$slice": 1}}`, "projection: a: computes a value"},
			{"", `{"a": 1, "b": 0}`, "projection: b: mixes"},
		} {
			s, err := g.api.Live(t.Context(), liveOn(t, row.filter, row.projection))
			if err == nil {
				_, err = s.Recv()
			}
			if status.Code(err) != codes.InvalidArgument ||
				!strings.Contains(err.Error(), row.want) {
				t.Errorf("%s %s: %v, want %q", row.filter, row.projection, err, row.want)
			}
		}
		s, err := g.api.Live(t.Context(), &mooringv1.LiveRequest{Database: "db"})
		if err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), "collection: is required") {
			t.Errorf("without a collection: %v", err)
		}
	})
}

// TestLiveUnderPolicy has a rule with a filter and a hidden field: documents of others do not show,
// before and after ready, nor their _ids when they are deleted. When the rule changes, the stream
// ends.
func TestLiveUnderPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parse := func(text string) *policy.Policy {
			p, err := policy.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		const rule = `@filter("{\"of\": \"ann\"}") @hidden("pay") permit (principal, action == Action::"Live", resource);`
		e := policy.NewEnforcer(policy.Config{Policy: parse(rule)})
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{policy: e})
		g.command(`{"insert": "c", "documents": [{"_id": 1, "of": "ann", "pay": 5}, {"_id": 2, "of": "bob", "pay": 6}]}`)
		f := g.live("key:ann", liveOn(t, `{"_id": {"$lt": 100}}`, ""))
		want := map[string]string{"1": `{"_id":1,"of":"ann"}`}
		if fmt.Sprint(f.list) != fmt.Sprint(want) {
			t.Errorf("the client has %v, want %v", f.list, want)
		}
		for _, command := range []string{
			`{"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"pay": 7}}}]}`,
			`{"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]}`,
			`{"insert": "c", "documents": [{"_id": 3, "of": "bob", "pay": 8}]}`,
			`{"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$set": {"of": "ann"}}}]}`,
		} {
			g.command(command)
		}
		if got := f.next(); got != "added 3" {
			t.Errorf("%q", got)
		}
		if got := f.list["3"]; got != `{"_id":3,"of":"ann"}` {
			t.Errorf("the client gets %s", got)
		}
		g.command(`{"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$set": {"of": "bob"}}}]}`)
		if got := f.next(); got != "removed 3" {
			t.Errorf("%q", got)
		}
		for _, bad := range []*mooringv1.LiveRequest{
			liveOn(t, `{"pay": 5}`, ""), liveOn(t, "", `{"pay": 1}`),
			{Database: "db", Collection: "c", Filter: payload.NewDocument(doc(t, `{"$expr": {"$eq": ["$pay", 5]}}`))},
		} {
			s, err := g.api.Live(as(t.Context(), "key:ann"), bad)
			if err == nil {
				_, err = s.Recv()
			}
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("%v: %v", bad, err)
			}
		}
		ticket, err := g.api.CreateTicket(as(t.Context(), "key:ann"),
			&mooringv1.CreateTicketRequest{Live: liveOn(t, "", "")})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			ticket.GetUrl()+"?timeout=5s", nil)
		r.Header.Set("Accept", "text/event-stream")
		w := httptest.NewRecorder()
		g.rest.ServeHTTP(w, r)
		const want2 = "event: added\ndata: {\"_id\":1,\"of\":\"ann\"}\n\nevent: ready\n"
		if !strings.HasPrefix(w.Body.String(), want2) {
			t.Errorf("by a ticket: %d %s", w.Code, w.Body)
		}
		_, err = g.api.CreateTicket(as(t.Context(), "key:ann"),
			&mooringv1.CreateTicketRequest{Live: liveOn(t, `{"pay": 5}`, "")})
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("a ticket that looks at a hidden field: %v", err)
		}
		e.Replace(parse(strings.ReplaceAll(rule, "ann", "bob")))
		for {
			said, err := f.message()
			if err == nil {
				t.Errorf("%q under a rule that has changed", said)
				continue
			}
			if status.Code(err) != codes.PermissionDenied &&
				status.Code(err) != codes.FailedPrecondition {
				t.Errorf("the stream ends with %v", err)
			}
			break
		}
		f.cancel()
		synctest.Wait()
	})
}

// TestLiveTicketUnderPolicy has a rule that hides the field of its own filter. A ticket has the
// request as the client sent it, so that the rules which limit a stream are those of its opening.
func TestLiveTicketUnderPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parse := func(of string) *policy.Policy {
			p, err := policy.Parse([]byte(`@filter("{'of': '` + of + `'}") @hidden("of")
				permit (principal, action == Action::"Live", resource);`))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		e := policy.NewEnforcer(policy.Config{Policy: parse("ann")})
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{policy: e})
		g.command(`{"insert": "c", "documents": [{"_id": 1, "of": "ann"}, {"_id": 2, "of": "bob"}]}`)
		ticket, err := g.api.CreateTicket(as(t.Context(), "key:ann"),
			&mooringv1.CreateTicketRequest{Live: liveOn(t, `{"_id": {"$lt": 9}}`, "")})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range []struct{ of, want string }{
			{"ann", `{"_id":1}`}, {"bob", `{"_id":2}`},
		} {
			e.Replace(parse(row.of))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
				ticket.GetUrl()+"?timeout=5s", nil)
			r.Header.Set("Accept", "text/event-stream")
			w := httptest.NewRecorder()
			g.rest.ServeHTTP(w, r)
			want := "event: added\ndata: " + row.want + "\n\nevent: ready\n"
			if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), want) {
				t.Errorf("while the rule is %s's: %d %s, want %s", row.of, w.Code, w.Body, want)
			}
		}
		synctest.Wait()
	})
}

// TestLiveEndInABatch has a client that does not read, so that the end of the collection comes with
// what was inserted before it. What is inserted comes first, and nothing stays.
func TestLiveEndInABatch(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		f := g.live("", liveOn(t, "", ""))
		for i := range 20 {
			g.insert(i)
			time.Sleep(time.Second) //nolint:forbidigo // time is fake
		}
		g.command(`{"drop": "c"}`)
		time.Sleep(time.Second) //nolint:forbidigo // time is fake
		f.until(func() bool { return f.ready == 2 })
		if len(f.list) > 0 {
			t.Errorf("the client has %v of a collection that is dropped", f.list)
		}
		f.leave()
	})
}

// insertWide inserts a document of so many fields that only a server decides about it.
func (g *gateway) insertWide(id, z int32) {
	g.t.Helper()
	b := bson.NewBuilder(nil).Int32("_id", id)
	for range match.MaxSteps + 1 {
		b.Null("a")
	}
	one := b.Int32("z", z).Finish()
	if _, err := g.client.InsertOne(g.t.Context(), shop, one,
		client.InsertOneOptions{}); err != nil {
		g.t.Fatal(err)
	}
}

// TestLiveAsksServer has documents of so many fields that only a server decides about them.
func TestLiveAsksServer(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		f := g.live("", liveOn(t, `{"z": 1}`, `{"z": 1}`))
		g.insertWide(1, 2)
		g.insertWide(2, 1)
		if got := f.next(); got != "added 2" {
			t.Errorf("%q, want the document that a server takes", got)
		}
		g.command(`{"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"z": 3}}}]}`)
		if got := f.next(); got != "removed 2" {
			t.Errorf("%q, want that it is removed", got)
		}
		f.leave()
	})
}

// TestLiveTicket opens a stream of live documents with a ticket.
func TestLiveTicket(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		g.insert(1, 2, 3)
		res, err := g.api.CreateTicket(t.Context(), &mooringv1.CreateTicketRequest{
			Live: liveOn(t, `{"_id": {"$gt": 1}}`, ""),
		})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, res.GetUrl()+"?timeout=5s",
			nil)
		r.Header.Set("Accept", "text/event-stream")
		w := httptest.NewRecorder()
		start(t, d).rest.ServeHTTP(w, r)
		want := "event: added\ndata: {\"_id\":2}\n\nevent: added\ndata: {\"_id\":3}\n\nevent: " +
			"ready\ndata: {}\n\n"
		if body := w.Body.String(); w.Code != http.StatusOK || !strings.HasPrefix(body, want) {
			t.Errorf("%d %s, want %s", w.Code, body, want)
		}
		for _, row := range []struct {
			request *mooringv1.CreateTicketRequest
			want    string
		}{
			{&mooringv1.CreateTicketRequest{}, "watch: is required if live is not set"},
			{&mooringv1.CreateTicketRequest{Watch: onShop(), Live: liveOn(t, "", "")}, "live: cannot be set together with watch"},
			{&mooringv1.CreateTicketRequest{Live: liveOn(t, `{"$where": "1"}`, "")}, "live.filter: $where"},
			{&mooringv1.CreateTicketRequest{Live: &mooringv1.LiveRequest{Database: "db"}}, "live.collection: is required"},
			{&mooringv1.CreateTicketRequest{Live: liveOn(t, `{"a": "`+strings.Repeat("a", 9000)+`"}`, "")}, "live: is too large"},
		} {
			_, err := g.api.CreateTicket(t.Context(), row.request)
			if status.Code(err) != codes.InvalidArgument ||
				!strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %q", err, row.want)
			}
		}
	})
}

// TestLiveMemory has a budget that the ids do not fit, and one that is whole again after a stream.
func TestLiveMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{bytes: 1 << 20})
		for i := range 100 {
			var docs []string
			for j := range 100 {
				docs = append(docs, fmt.Sprintf(`{"_id": "%0200d"}`, 100*i+j))
			}
			g.command(`{"insert": "c", "documents": [` + strings.Join(docs, ",") + `]}`)
		}
		s, err := g.api.Live(t.Context(), liveOn(t, "", ""))
		for err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("10,000 ids of 200 bytes in a budget of 1 MiB: %v", err)
		}
		f := g.live("", liveOn(t, fmt.Sprintf(`{"_id": {"$lt": "%0200d"}}`, 100), ""))
		if len(f.list) != 100 || g.admission.Bytes().Held < 100*200 {
			t.Errorf("%d documents, whose ids are charged with %d", len(f.list),
				g.admission.Bytes().Held)
		}
		f.leave()
	})
}

// TestLiveWithoutMemory changes and deletes documents of a client while nothing is left of the
// memory. Only a document that it does not have takes more, and is refused.
func TestLiveWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{bytes: 1 << 20})
		g.insert(1, 2, 3)
		f := g.live("", liveOn(t, `{"n": {"$exists": false}}`, ""))
		held := g.admission.Bytes().Held
		g.fill()
		for _, row := range []struct{ command, want string }{
			{`{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"x": 1}}}]}`, "changed 1"},
			{`{"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]}`, "removed 1"},
			{`{"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"n": 1}}}]}`, "removed 2"},
			{`{"insert": "c", "documents": [{"_id": 4, "n": 1}]}`, ""},
			{`{"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$set": {"x": 1}}}]}`, "changed 3"},
		} {
			g.command(row.command)
			if row.want == "" {
				continue
			}
			if got := f.next(); got != row.want {
				t.Errorf("%s: %q, want %q", row.command, got, row.want)
			}
		}
		if now := g.admission.Bytes().Held - g.admission.Bytes().Limit; now >= held {
			t.Errorf("%d bytes are charged for one document, and were %d for three", now, held)
		}
		g.insert(5)
		if said, err := f.message(); reason(err) != rpcerr.Overloaded {
			t.Errorf("one more document: %q, %v", said, err)
		}
	})
}

// TestLiveWaitsForItsPlace has no place among the calls in flight when a server must be asked about
// a document, and when the collection is dropped. A stream that has begun waits, another is
// refused.
func TestLiveWaitsForItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{calls: admission.Limits{Total: 1}})
		var other admission.Account
		g.admission.Open(&other, admission.Principal{Name: "others"})
		whileFull := func(do func()) {
			if err := other.EnterCommand(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			do()
			time.Sleep(time.Minute) //nolint:forbidigo // time is fake
			other.LeaveCommand()
		}
		f := g.live("", liveOn(t, `{"z": 1}`, `{"z": 1}`))
		whileFull(func() { g.insertWide(1, 1) })
		if got := f.next(); got != "added 1" {
			t.Errorf("%q, want the document that a server takes", got)
		}
		whileFull(func() { g.command(`{"drop": "c"}`) })
		f.until(func() bool { return f.ready == 2 })
		whileFull(func() {
			s, err := g.api.Live(t.Context(), liveOn(t, "", ""))
			if err == nil {
				_, err = s.Recv()
			}
			if reason(err) != rpcerr.Overloaded {
				t.Errorf("a stream without a place for its find: %v", err)
			}
		})
		f.leave()
	})
}

// TestLiveSnapshotIsNotHeld has a stream that has sent its documents, once and again after the
// collection was dropped. It is charged for the ids of these documents only.
func TestLiveSnapshotIsNotHeld(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		const documents, size, idCost = 100, 5000, 200
		d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			for id := range documents {
				if cmd.Name == "aggregate" {
					g.command(fmt.Sprintf(`{"insert": "c", "documents": [{"_id": %d, "a": "%s"}]}`,
						id, strings.Repeat("x", size)))
				}
			}
			return next(cmd)
		})
		f := g.live("", liveOn(t, "", ""))
		for ready := 1; ready < 4; ready++ {
			f.until(func() bool { return f.ready == ready && len(f.list) == documents })
			time.Sleep(time.Minute) //nolint:forbidigo // time is fake: the cursor is quiet
			ring := g.service.Stats().RingBytes
			if held := g.admission.Bytes().Held; held > ring+documents*idCost {
				t.Errorf("%d bytes are held beside %d of the ring, for %d ids", held-ring, ring,
					documents)
			}
			g.command(`{"drop": "c"}`)
		}
		f.leave()
	})
}

// TestLiveMissesNothing inserts a document between the opening of the stream and the snapshot, and
// one between the snapshot and the first change. Each is added once.
func TestLiveMissesNothing(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		between := 0
		d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name != "find" || between > 0 {
				return next(cmd)
			}
			between++
			g.insert(1)
			reply := next(cmd)
			g.insert(2)
			return reply
		})
		f := g.live("", liveOn(t, "", ""))
		f.until(func() bool { return len(f.list) == 2 })
		g.insert(3)
		if got := f.next(); got != "added 3" {
			t.Errorf("%q", got)
		}
		f.leave()
	})
}

// TestLiveOnServerBehind has reads answered by a server that has none of the documents yet, unless
// they say which time they must see.
func TestLiveOnServerBehind(t *testing.T) {
	for _, version := range []deployment.Version{"4.2.0", "7.0.0"} {
		t.Run(string(version), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := deployment.New(t, deployment.ReplicaSet, version)
				g := start(t, d)
				f := g.live("", liveOn(t, `{"z": 1}`, `{"z": 1}`))
				d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
					_, after := cmd.Body.Lookup("readConcern", "afterClusterTime")
					_, at := cmd.Body.Lookup("readConcern", "atClusterTime")
					if cmd.Name != "find" || after || at {
						return next(cmd)
					}
					return fakemongo.Document(doc(t, `{"ok": 1, "cursor": {"id": 0, "ns": "db.c", "firstBatch": [], "atClusterTime": {"$timestamp": {"t": 1, "i": 1}}}}`))
				})
				g.command(`{"insert": "c", "documents": [{"_id": 1, "z": 1}]}`)
				if got := f.next(); got != "added 1" {
					t.Errorf("%q", got)
				}
				second := g.live("", liveOn(t, `{"z": 1}`, ""))
				if len(second.list) != 1 {
					t.Errorf("the second client has %v, which misses what the first has",
						second.list)
				}
				g.insertWide(2, 1)
				g.command(`{"insert": "c", "documents": [{"_id": 3, "z": 1}]}`)
				if got := f.next(); got != "added 2" {
					t.Errorf("%q, want the document that a server takes", got)
				}
				f.leave()
				second.leave()
			})
		})
	}
}

// TestLiveWithoutSnapshot has servers that refuse reads from a snapshot of a collection that is
// new: for a moment, for good, or when the first documents are read.
func TestLiveWithoutSnapshot(t *testing.T) {
	for name, row := range map[string]struct {
		refused string
		times   int
		fails   bool
	}{
		"for a moment":         {"find", 3, false},
		"for good":             {"find", 1 << 20, true},
		"behind the documents": {"getMore", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
				for i := range 300 {
					g.insert(i)
				}
				left := row.times
				var snapshot bson.Value // the id of its cursor
				d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
					id, _ := cmd.Body.Lookup("getMore")
					of := cmd.Name == "find" || cmd.Name == "getMore" && id.Equal(snapshot)
					if of && cmd.Name == row.refused && left > 0 {
						left--
						return fakemongo.Document(doc(t, `{"ok": 0, "code": 246, "errmsg": "pending"}`))
					}
					reply := next(cmd)
					if cmd.Name == "find" {
						snapshot, _ = reply.Document().Lookup("cursor", "id")
					}
					return reply
				})
				if !row.fails {
					f := g.live("", liveOn(t, "", ""))
					if len(f.list) != 300 {
						t.Errorf("the client has %d documents", len(f.list))
					}
					f.leave()
					return
				}
				s, err := g.api.Live(t.Context(), liveOn(t, "", ""))
				for err == nil {
					_, err = s.Recv()
				}
				if reason(err) != rpcerr.ChangeStreamBehind || retry(err) != rpcerr.Restart {
					t.Errorf("the stream ends with %v", err)
				}
			})
		})
	}
}

// TestLiveBeginsAnew has a server end the changes in ways after which a stream cannot be resumed:
// the client opens a live stream again nevertheless, EventSource as well.
func TestLiveBeginsAnew(t *testing.T) {
	for _, code := range []int{136, 260, 280, 286, 10334} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
				g.insert(1)
				f := g.live("", liveOn(t, "", ""))
				g.fail(d, code)
				var err error
				for err == nil {
					_, err = f.message()
				}
				if reason(err) != rpcerr.ChangeStreamBehind || retry(err) != rpcerr.Restart {
					t.Errorf("the stream ends with %v, retry %s", err, retry(err))
				}
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
					"/v1/databases/db/collections/c/documents:live", nil)
				r.Header.Set("Accept", "text/event-stream")
				w := httptest.NewRecorder()
				g.rest.ServeHTTP(w, r)
				if text := w.Body.String(); !strings.Contains(text, "event: ready") ||
					!strings.Contains(text, "event: failure") || strings.Contains(text, "id: end") {
					t.Errorf("EventSource gets %s", text)
				}
				d.Disturb(nil)
				f = g.live("", liveOn(t, "", ""))
				g.insert(2)
				f.until(func() bool { return len(f.list) == 2 })
				f.leave()
			})
		})
	}
}

// TestLiveMovesBetweenShards has a document that moves to another shard, which deletes it at the
// one where it was, before or after it is there: it stays until no shard has it.
func TestLiveMovesBetweenShards(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		g.insert(7)
		d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			reply := next(cmd)
			batch, ok := reply.Document().Lookup("cursor", "nextBatch")
			if !ok {
				return reply
			}
			events, _ := batch.Array()
			b := bson.NewBuilder(nil).OpenArray("")
			for event := range events.Documents() {
				kind, _ := event.Lookup("operationType")
				if kind.Equal(bson.StringValue("update")) {
					event = bson.With(bson.Without(event, "fullDocument", "updateDescription"),
						"operationType", bson.StringValue("delete"))
				}
				id, _ := event.Lookup("documentKey", "_id")
				event = bson.With(event, "documentKey", bson.DocumentValue(
					bson.NewBuilder(nil).String("region", "a").Value("_id", id).Finish()))
				b.Document("", event)
			}
			list, _ := b.Close().Finish().Lookup("")
			cursor, _ := reply.Document().Lookup("cursor")
			of, _ := cursor.Document()
			return fakemongo.Document(bson.With(reply.Document(), "cursor",
				bson.DocumentValue(bson.With(of, "nextBatch", list))))
		})
		f := g.live("", liveOn(t, "", ""))
		g.command(`{"update": "c", "updates": [{"q": {"_id": 7}, "u": {"$set": {"region": "b"}}}]}`)
		g.insert(8)
		if got := f.next(); got != "added 8" {
			t.Errorf("%q when a shard has deleted what another has", got)
		}
		g.command(`{"delete": "c", "deletes": [{"q": {"_id": 7}, "limit": 1}]}`)
		if got := f.next(); got != "removed 7" {
			t.Errorf("%q when no shard has the document", got)
		}
		f.leave()
	})
}

// TestLiveWithoutCollations has a server that refuses every collation.
func TestLiveWithoutCollations(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		g.insert(1)
		d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Body.Has("collation") {
				return fakemongo.Document(doc(t, `{"ok": 0, "code": 115, "errmsg": "not yet"}`))
			}
			return next(cmd)
		})
		f := g.live("", liveOn(t, "", ""))
		if len(f.list) != 1 {
			t.Errorf("the client has %v", f.list)
		}
		f.leave()
	})
}

// TestLiveOnREST reads the two forms of a stream, and of its failures.
func TestLiveOnREST(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		g.insert(1)
		const path = "/v1/databases/db/collections/c/documents:live"
		for name, row := range map[string]struct {
			method, target, accept, body string
			want                         []string
		}{
			"NDJSON": {
				http.MethodPost, path, "application/x-ndjson",
				`{"filter": {"_id": {"$gt": 0}}}`,
				[]string{
					`{"added":{"_id":1}}`, `{"ready":{}}`, `{"added":{"_id":2}}`, `{"removed":{"_id":2}}`,
				},
			},
			"events": {http.MethodGet, path + "?filter=%7B%7D", "text/event-stream", "", []string{
				"event: added", `data: {"_id":1}`, "", "event: ready", "data: {}", "",
				"event: added", `data: {"_id":2}`, "", "event: removed", `data: {"_id":2}`, "",
			}},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			r := httptest.NewRequestWithContext(ctx, row.method, row.target,
				strings.NewReader(row.body))
			r.Header.Set("Accept", row.accept)
			if row.body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			from, to := io.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				g.rest.ServeHTTP(&piped{header: http.Header{}, to: to}, r)
				_ = to.Close()
			}()
			lines := bufio.NewScanner(from)
			var got []string
			for len(got) < len(row.want) && lines.Scan() {
				got = append(got, lines.Text())
				if strings.Contains(lines.Text(), "ready") {
					go func() {
						g.insert(2)
						g.command(`{"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]}`)
					}()
				}
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("%s: %q, want %q", name, got, row.want)
			}
			cancel()
			_, _ = io.Copy(io.Discard, from)
			<-done
			time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake
		}
		for _, row := range []struct {
			target, accept string
			status         int
		}{
			{path + "?filter=%7B%22%24where%22:1%7D", "text/event-stream", http.StatusBadRequest},
			{path + "?sort=%7B%7D", "text/event-stream", http.StatusBadRequest},
			{path, "application/x-ndjson;bare=true", http.StatusNotAcceptable},
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, row.target, nil)
			r.Header.Set("Accept", row.accept)
			w := httptest.NewRecorder()
			if g.rest.ServeHTTP(w, r); w.Code != row.status {
				t.Errorf("%s, %s: %d %s", row.target, row.accept, w.Code, w.Body)
			}
		}
	})
}

// piped is a response that is read as it is written.
type piped struct {
	header http.Header
	to     *io.PipeWriter
}

func (p *piped) Header() http.Header              { return p.header }
func (p *piped) WriteHeader(int)                  {}
func (p *piped) Write(b []byte) (int, error)      { return p.to.Write(b) }
func (p *piped) Flush()                           {}
func (p *piped) SetWriteDeadline(time.Time) error { return nil }
