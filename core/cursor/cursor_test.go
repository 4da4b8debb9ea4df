package cursor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

var orders = client.Namespace{Database: "shop", Collection: "orders"}

func doc(t testing.TB, json string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatalf("Parse(%s) = %v", json, err)
	}
	return d
}

func text(t testing.TB, d bson.Raw) string {
	t.Helper()
	out, err := extjson.Append(nil, d, extjson.Relaxed)
	if err != nil {
		t.Fatalf("Append() = %v", err)
	}
	return string(out)
}

// run runs a test in a bubble with a server that has n documents {"_id": 0} … in shop.orders, and
// a client of it.
func run(
	t *testing.T, n int, handlers fakemongo.Handlers,
	test func(t *testing.T, srv *fakemongo.Server, c *client.Client),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := fakemongo.NewServer(t, handlers)
		docs := make([]bson.Raw, n)
		for i := range docs {
			docs[i] = doc(t, fmt.Sprintf(`{"_id":%d}`, i))
		}
		srv.SetDocuments("shop.orders", docs...)
		c, err := client.New(connstring.Config{Hosts: []address.Address{srv.Address()}},
			client.Options{Dialer: srv.Dial})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("Close() = %v", err)
			}
		}()
		test(t, srv, c)
	})
}

func find(t testing.TB, c *client.Client, opt client.FindOptions) *cursor.Cursor {
	t.Helper()
	cur, err := c.Find(context.Background(), orders, opt)
	if err != nil {
		t.Fatalf("Find() = %v", err)
	}
	return cur
}

func TestNext(t *testing.T) {
	run(t, 5, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		cur := find(t, c, client.FindOptions{
			Common: client.Common{Comment: bson.StringValue("c")}, BatchSize: new(int32(2)),
		})
		if cur.Done() || cur.ID() == 0 {
			t.Errorf("a new cursor: Done() = %v, ID() = %d", cur.Done(), cur.ID())
		}
		for i, want := range []int{2, 2, 1} {
			b, err := cur.Next(t.Context())
			if err != nil || len(b.Documents) != want || b.Bytes != want*len(doc(t, `{"_id":1}`)) {
				t.Errorf("Next() = %+v, %v, want %d documents", b, err, want)
			}
			if first := text(t, b.Documents[0]); first != fmt.Sprintf(`{"_id":%d}`, 2*i) {
				t.Errorf("Next() begins with %s", first)
			}
		}
		if _, err := cur.Next(t.Context()); !errors.Is(err, io.EOF) || !cur.Done() ||
			cur.ID() != 0 {
			t.Errorf("Next() = %v, Done() = %v, ID() = %d, want the end", err, cur.Done(), cur.ID())
		}
		if err := cur.Close(t.Context()); err != nil || len(srv.Commands("killCursors")) != 0 {
			t.Errorf("Close() = %v, %d killCursors; nothing was open", err,
				len(srv.Commands("killCursors")))
		}
		want := `{"collection":"orders","batchSize":2,"comment":"c","$db":"shop"}`
		for _, cmd := range srv.Commands("getMore") {
			if got := text(t, bson.Without(cmd.Body, "getMore", "lsid")); got != want {
				t.Errorf("sent %s, want %s", got, want)
			}
		}
	})
}

// stateOnly is a state without its session.
func stateOnly(s cursor.State) cursor.State {
	s.Session = bson.UUID{}
	return s
}

// sentAs is a command without its session.
func sentAs(t *testing.T, cmd bson.Raw) string {
	t.Helper()
	return text(t, bson.Without(cmd, "lsid"))
}

func TestContinueElsewhere(t *testing.T) {
	run(t, 5, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		cur := find(t, c, client.FindOptions{BatchSize: new(int32(2))})
		if _, err := cur.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := cur.State()
		if want := (cursor.State{
			Server: srv.Address(), ID: cur.ID(), Database: "shop", Collection: "orders",
			BatchSize: 2,
		}); s.ID == 0 || s.Session == (bson.UUID{}) ||
			fmt.Sprint(stateOnly(s)) != fmt.Sprint(want) {
			t.Errorf("State() = %+v, want %+v", s, want)
		}
		next := c.ContinueCursor(s)
		next.SetBatchSize(0)
		b, err := next.Next(t.Context())
		if err != nil || len(b.Documents) != 3 || !next.Done() {
			t.Errorf("Next() = %+v, %v, want the other 3 documents", b, err)
		}
	})
}

func TestNamespaceIsTheServers(t *testing.T) {
	handlers := fakemongo.Handlers{
		"find": fakemongo.Always(fakemongo.CursorReply(7, "shop.a.b", "firstBatch")),
		"getMore": fakemongo.Times(1,
			fakemongo.Always(fakemongo.CursorReply(8, "other.c", "nextBatch")),
			fakemongo.Always(fakemongo.CursorReply(0, "other.c", "nextBatch"))),
	}
	run(t, 0, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		n := 0
		for b, err := range find(t, c, client.FindOptions{}).Batches(t.Context()) {
			if n++; err != nil || len(b.Documents) != 0 {
				t.Errorf("Batches() = %+v, %v, want empty batches", b, err)
			}
		}
		got := ""
		for _, cmd := range srv.Commands("getMore") {
			got += sentAs(t, cmd.Body)
		}
		if want := `{"getMore":7,"collection":"a.b","$db":"shop"}{"getMore":8,"collection":"c","$db":"other"}`; got != want || n != 3 {
			t.Errorf("%d batches by %s, want 3 by %s", n, got, want)
		}
	})
}

func TestLimit(t *testing.T) {
	four := []string{`{"getMore":7,"collection":"orders","batchSize":1,"$db":"shop"}`}
	handlers := fakemongo.Handlers{
		"find": fakemongo.Always(fakemongo.CursorReply(7, "shop.orders", "firstBatch",
			doc(t, `{}`), doc(t, `{}`), doc(t, `{}`))),
		"getMore": fakemongo.Always(fakemongo.CursorReply(7, "shop.orders", "nextBatch",
			doc(t, `{}`), doc(t, `{}`))),
	}
	run(t, 0, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		cur := find(t, c, client.FindOptions{Limit: new(int64(4)), BatchSize: new(int32(3))})
		var sizes []int
		for b, err := range cur.Batches(t.Context()) {
			if err != nil {
				t.Errorf("Batches() = %v", err)
			}
			sizes = append(sizes, len(b.Documents))
		}
		if fmt.Sprint(sizes) != "[3 1]" {
			t.Errorf("batches of %v documents, want 3 and, cut to the limit, 1", sizes)
		}
		if got := sentAs(t, srv.Commands("getMore")[0].Body); got != four[0] {
			t.Errorf("sent %s, want %s", got, four[0])
		}
		if n := len(srv.Commands("killCursors")); n != 1 {
			t.Errorf("%d killCursors, want 1: the server left the cursor open", n)
		}
	})
}

func TestCommentNeedsAVersion(t *testing.T) {
	old := fakemongo.Handlers{"hello": fakemongo.Always(fakemongo.Document(
		doc(t,
			`{"isWritablePrimary":true,"helloOk":true,"minWireVersion":0,"maxWireVersion":8,"ok":1}`)))}
	run(t, 3, old, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		cur := find(t, c, client.FindOptions{
			Common: client.Common{Comment: bson.StringValue("c")}, BatchSize: new(int32(2)),
		})
		for _, err := range cur.Batches(t.Context()) {
			if err != nil {
				t.Errorf("Batches() = %v", err)
			}
		}
		if srv.Commands("getMore")[0].Body.Has("comment") {
			t.Error("a comment was sent to a server that does not take it")
		}
	})
}

func TestAwaitTime(t *testing.T) {
	run(t, 3, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		cur := find(t, c, client.FindOptions{
			BatchSize: new(int32(1)), Tailable: new(true), AwaitData: new(true),
			MaxTimeMS: new(int64(99)), MaxAwaitTimeMS: new(int64(5)),
		})
		for range 2 {
			if _, err := cur.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		cur.SetMaxAwaitTimeMS(nil)
		if _, err := cur.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		cmds := srv.Commands("getMore")
		if v, _ := cmds[0].Body.Lookup("maxTimeMS"); string(
			v.Data) != "\x05\x00\x00\x00\x00\x00\x00\x00" || cmds[1].Body.Has("maxTimeMS") {
			t.Errorf("sent %s and %s, want 5 and nothing", text(t, cmds[0].Body),
				sentAs(t, cmds[1].Body))
		}
	})
}

func TestCloseKills(t *testing.T) {
	run(t, 5, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		cur := find(t, c, client.FindOptions{BatchSize: new(int32(2))})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			if err := cur.Close(ctx); err != nil {
				t.Errorf("Close() = %v", err)
			}
		}
		if srv.KilledCursors() != 1 || srv.OpenCursors() != 0 ||
			len(srv.Commands("killCursors")) != 1 || !cur.Done() {
			t.Errorf("killed %d cursors by %d commands, want 1 by 1", srv.KilledCursors(),
				len(srv.Commands("killCursors")))
		}
		if _, err := cur.Next(t.Context()); !errors.Is(err, cursor.ErrClosed) {
			t.Errorf("Next() = %v, want ErrClosed: this was not the end of the result", err)
		}
	})
}

func TestBreakKills(t *testing.T) {
	run(t, 5, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		for _, err := range find(t, c, client.FindOptions{BatchSize: new(int32(2))}).
			Batches(t.Context()) {
			if err != nil {
				t.Errorf("Batches() = %v", err)
			}
			break
		}
		if srv.KilledCursors() != 1 {
			t.Errorf("killed %d cursors, want 1", srv.KilledCursors())
		}
	})
}

func TestCloseDoesNotWaitForever(t *testing.T) {
	run(t, 5, fakemongo.Handlers{"killCursors": fakemongo.Always(fakemongo.Hang())}, func(
		t *testing.T, _ *fakemongo.Server, c *client.Client,
	) {
		began := time.Now()
		err := find(t, c, client.FindOptions{BatchSize: new(int32(2))}).Close(t.Context())
		if err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("Close() = %v after %v", err, time.Since(began))
		}
	})
}

func TestFailedGetMore(t *testing.T) {
	tests := []struct {
		name   string
		answer fakemongo.Reply
		sticky bool // whether a second Next fails without asking
		kills  int
	}{
		{"network", fakemongo.Drop(), true, 0},
		{"cursor not found", fakemongo.Error(43, "CursorNotFound", "gone"), true, 0},
		{"another error", fakemongo.Error(8000, "AtlasError", "try again"), false, 1},
		{"malformed", fakemongo.OK(nil), true, 1},
		{"first batch again", fakemongo.CursorReply(7, "shop.orders", "firstBatch"), true, 1},
		{"timeout", fakemongo.Hang(), true, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, 5, fakemongo.Handlers{"getMore": fakemongo.Always(tt.answer)}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				cur := find(t, c, client.FindOptions{BatchSize: new(int32(2))})
				if _, err := cur.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, first := cur.Next(ctx)
				if first == nil || errors.Is(first, io.EOF) ||
					tt.name == "timeout" && !errors.Is(first, context.DeadlineExceeded) {
					t.Errorf("Next() = %v, want an error", first)
				}
				srv.Handle("getMore", nil)
				_, second := cur.Next(t.Context())
				if asked := len(srv.Commands("getMore")) == 2; tt.sticky == asked ||
					tt.sticky == (second == nil) {
					t.Errorf("Next() again = %v, asked: %v, want an error without asking: %v",
						second, asked, tt.sticky)
				}
				if same := errors.Is(second, first); tt.sticky && same == (tt.name == "timeout") ||
					errors.Is(second, context.DeadlineExceeded) {
					t.Errorf("Next() again = %v after %v, want the same error, but none that "+
						"says that this call's time ran out", second, first)
				}
				if err := cur.Close(t.Context()); err != nil || !cur.Done() {
					t.Errorf("Close() = %v, Done() = %v", err, cur.Done())
				}
				if n := len(srv.Commands("killCursors")); n != tt.kills {
					t.Errorf("%d killCursors, want %d", n, tt.kills)
				}
			})
		})
	}
}

// A server that is not part of the deployment any more cannot be told; one that is only away might
// come back meanwhile.
func TestCloseWhenTheServerHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary, fakemongo.Secondary)
		for _, h := range cluster.Hosts() {
			h.SetDocuments("shop.orders", fakemongo.Numbered(0, 9, 0)...)
		}
		c := newClient(t, parse(t, cluster.URI("")), client.Options{Dialer: cluster.Dial})
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		for _, tt := range []struct {
			name string
			lose func(h *fakemongo.Host)
			want time.Duration
		}{
			{"down", func(h *fakemongo.Host) { h.SetDown(true) }, 3 * time.Second},
			{"removed", cluster.Remove, 0},
		} {
			cur := find(t, c, client.FindOptions{BatchSize: new(int32(2))})
			holder := slices.IndexFunc(cluster.Hosts(), func(h *fakemongo.Host) bool {
				return h.Address() == cur.State().Server
			})
			tt.lose(cluster.Host(holder))
			cluster.Elect(cluster.Host((holder + 1) % 3))
			time.Sleep(time.Minute) //nolint:forbidigo // fake time: until monitors have seen it
			began := time.Now()
			if err := cur.Close(t.Context()); err != nil || time.Since(began) != tt.want {
				t.Errorf("%s: Close() = %v after %v, want %v", tt.name, err, time.Since(began),
					tt.want)
			}
			if tt.name == "down" {
				cluster.Host(holder).SetDown(false)
				time.Sleep(time.Minute) //nolint:forbidigo // fake time
			}
		}
	})
}

// As long as nothing is known of the deployment, the server may still turn up.
func TestCloseBeforeTheDeploymentIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary)
		host := cluster.Primary()
		host.SetDocuments("shop.orders", fakemongo.Numbered(0, 9, 0)...)
		c := newClient(t, parse(t, cluster.URI("")), client.Options{Dialer: cluster.Dial})
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		state := find(t, c, client.FindOptions{BatchSize: new(int32(2))}).State()

		other := connstring.Config{
			Hosts:      []address.Address{cluster.Host(1).Address()},
			ReplicaSet: parse(t, cluster.URI("")).ReplicaSet,
		}
		d := newClient(t, other, client.Options{Dialer: cluster.Dial})
		defer func() { _ = d.Close(context.WithoutCancel(t.Context())) }()
		if err := d.ContinueCursor(state).Close(t.Context()); err != nil ||
			host.KilledCursors() != 1 {
			t.Errorf("Close() = %v, %d cursors killed, want 1", err, host.KilledCursors())
		}
	})
}

// A reply with a cursor that cannot be used: the server holds it all the same.
func TestMalformedFirstBatchIsKilled(t *testing.T) {
	tests := []struct {
		reply string
		want  string // what is sent by killCursors; empty: nothing
	}{
		{`{"firstBatch":[1],"id":{"$numberLong":"7"},"ns":"shop.orders"}`, `{"killCursors":"orders","cursors":[7],"$db":"shop"}`},
		{`{"id":{"$numberLong":"7"},"ns":"other.c.d","firstBatch":{}}`, `{"killCursors":"c.d","cursors":[7],"$db":"other"}`},
		{`{"id":{"$numberLong":"7"},"ns":"shop.orders"}`, `{"killCursors":"orders","cursors":[7],"$db":"shop"}`},
		{`{"firstBatch":[1],"id":{"$numberLong":"0"},"ns":"shop.orders"}`, ``},
		{`{"firstBatch":[1],"id":"7","ns":"shop.orders"}`, ``},
		{`{"firstBatch":[1],"id":{"$numberLong":"7"},"ns":"shop"}`, ``},
		{`{"firstBatch":[1],"id":{"$numberLong":"7"}}`, ``},
	}
	for _, tt := range tests {
		answer := fakemongo.Always(fakemongo.Document(doc(t, `{"cursor":`+tt.reply+`,"ok":1}`)))
		check := func(t *testing.T, c *client.Client, srv *fakemongo.Server) {
			_, err := c.Find(t.Context(), orders, client.FindOptions{})
			if !isA[*mongoerr.MalformedReplyError](err) {
				t.Errorf("Find() = %v, want a MalformedReplyError", err)
			}
			got := ""
			for _, cmd := range srv.Commands("killCursors") {
				got += sentAs(t, cmd.Body)
			}
			if got != tt.want {
				t.Errorf("after %s sent %q, want %q", tt.reply, got, tt.want)
			}
		}
		run(t, 0, fakemongo.Handlers{"find": answer}, func(
			t *testing.T, srv *fakemongo.Server, c *client.Client,
		) {
			check(t, c, srv)
		})
		runBalanced(t, "", client.Options{}, func(t *testing.T, b *balanced) {
			b.Service(0).Handle("find", answer)
			b.Service(1).SetDown(true)
			check(t, b.client, b.Service(0).Server)
		})
	}
}

// A reply of getMore without a namespace continues the cursor that is known.
func TestGetMoreWithoutNamespace(t *testing.T) {
	n := 0
	handler := func(*fakemongo.Command) fakemongo.Reply {
		n++
		if n == 1 {
			return fakemongo.Document(doc(t,
				`{"cursor":{"id":{"$numberLong":"1"},"nextBatch":[{"a":1}]},"ok":1}`))
		}
		return fakemongo.Document(doc(t,
			`{"cursor":{"id":{"$numberLong":"0"},"nextBatch":[{"a":2}]},"ok":1}`))
	}
	run(t, 3, fakemongo.Handlers{"getMore": handler}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		cur := find(t, c, client.FindOptions{BatchSize: new(int32(1))})
		for i := range 3 {
			if b, err := cur.Next(t.Context()); err != nil || len(b.Documents) != 1 {
				t.Fatalf("Next() %d = %d documents, %v", i, len(b.Documents), err)
			}
		}
		cmds := srv.Commands("getMore")
		if got, want := sentAs(t, cmds[1].Body),
			`{"getMore":1,"collection":"orders","batchSize":1,"$db":"shop"}`; got != want {
			t.Errorf("the second getMore is %s, want %s", got, want)
		}
	})
}

// The reply must have a cursor, and that must be a document.
func TestRepliesWithoutCursor(t *testing.T) {
	for reply, want := range map[string]string{
		`{"ok":1}`:             "malformed reply from fakemongo:27017: cursor is missing",
		`{"cursor":1,"ok":1}`:  "malformed reply from fakemongo:27017: cursor has the type int",
		`{"cursor":[],"ok":1}`: "malformed reply from fakemongo:27017: cursor has the type array",
	} {
		handlers := fakemongo.Handlers{"find": fakemongo.Always(fakemongo.Document(doc(t, reply)))}
		run(t, 0, handlers, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
			if _, err := c.Find(t.Context(), orders, client.FindOptions{}); err == nil ||
				err.Error() != want {
				t.Errorf("Find() of %s = %v, want %s", reply, err, want)
			}
			if _, _, err := c.FindOne(t.Context(), orders, client.FindOptions{}); err == nil ||
				err.Error() != want {
				t.Errorf("FindOne() of %s = %v, want %s", reply, err, want)
			}
		})
	}
}

// A server that leaves a cursor open behind the one document that was asked for: it is killed,
// over the connection that leads to it.
func TestOneKillsWhatIsLeft(t *testing.T) {
	left := fakemongo.Always(fakemongo.Document(doc(t,
		`{"cursor":{"id":{"$numberLong":"7"},"ns":"shop.orders","firstBatch":[{"n":5},{"n":6}]},"ok":1}`)))
	want := `{"killCursors":"orders","cursors":[7],"$db":"shop"}`
	check := func(t *testing.T, c *client.Client, srv *fakemongo.Server) {
		d, found, err := c.FindOne(t.Context(), orders, client.FindOptions{})
		if err != nil || !found || text(t, d) != `{"n":5}` {
			t.Errorf("FindOne() = %v, %v, %v", d, found, err)
		}
		n, err := c.CountDocuments(t.Context(), orders, client.CountDocumentsOptions{})
		if err != nil || n != 5 {
			t.Errorf("CountDocuments() = %d, %v", n, err)
		}
		kills := srv.Commands("killCursors")
		if len(kills) != 2 || sentAs(t, kills[0].Body) != want || sentAs(t, kills[1].Body) != want {
			t.Errorf("%d killCursors %v, want twice %s", len(kills), kills, want)
		}
	}
	handlers := fakemongo.Handlers{"find": left, "aggregate": left}
	run(t, 0, handlers, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		check(t, c, srv)
	})
	runBalanced(t, "", client.Options{}, func(t *testing.T, b *balanced) {
		b.Service(0).Handle("find", left)
		b.Service(0).Handle("aggregate", left)
		b.Service(1).SetDown(true)
		check(t, b.client, b.Service(0).Server)
	})
}

// getMore and killCursors go where the cursor is: they carry no read preference.
func TestNoReadPreferenceOnGetMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		host := cluster.Primary()
		host.SetDocuments("shop.orders", fakemongo.Numbered(0, 9, 0)...)
		cfg := connstring.Config{
			Hosts: []address.Address{host.Address()}, DirectConnection: new(true),
		}
		c := newClient(t, cfg, client.Options{Dialer: cluster.Dial})
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		cur := find(t, c, client.FindOptions{BatchSize: new(int32(2))})
		for range 2 {
			if _, err := cur.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		_ = cur.Close(t.Context())
		cmds := host.Commands("find", "getMore", "killCursors")
		if len(cmds) != 3 {
			t.Fatalf("%d commands, want 3", len(cmds))
		}
		for i, cmd := range cmds {
			if has := cmd.Body.Has("$readPreference"); has != (i == 0) {
				t.Errorf("%s: $readPreference is %v", sentAs(t, cmd.Body), has)
			}
		}
	})
}

func TestBatchesEndWithTheError(t *testing.T) {
	for _, answer := range []fakemongo.Reply{
		fakemongo.Drop(), fakemongo.Error(43, "CursorNotFound", "gone"), fakemongo.OK(nil),
	} {
		run(t, 5, fakemongo.Handlers{"getMore": fakemongo.Always(answer)}, func(
			t *testing.T, _ *fakemongo.Server, c *client.Client,
		) {
			cur := find(t, c, client.FindOptions{BatchSize: new(int32(2))})
			for range 2 { // it is not forgotten
				var last error
				n := 0
				for b, err := range cur.Batches(t.Context()) {
					n, last = n+len(b.Documents), err
				}
				if last == nil || errors.Is(last, io.EOF) {
					t.Errorf("Batches() ends with %v after %d documents, want an error", last, n)
				}
			}
		})
	}
}

func TestNextBeforeSendingMayBeRepeated(t *testing.T) {
	run(t, 3, nil, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		cur := find(t, c, client.FindOptions{BatchSize: new(int32(2))})
		if _, err := cur.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := cur.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Next() = %v, want Canceled", err)
		}
		if b, err := cur.Next(t.Context()); err != nil || len(b.Documents) != 1 {
			t.Errorf("Next() = %v, %v, want the last document", b, err)
		}
	})
}

func TestPostBatchResumeToken(t *testing.T) {
	res := operation.Result{Server: "a:27017", Reply: doc(t,
		`{"cursor":{"id":0,"ns":"a.b","firstBatch":[],"postBatchResumeToken":{"_data":"8"}},"ok":1}`)}
	cur, err := cursor.New(t.Context(), res, cursor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := cur.Next(t.Context()); err != nil ||
		text(t, b.PostBatchResumeToken) != `{"_data":"8"}` {
		t.Errorf("Next() = %v, %v, want the token", b, err)
	}
}

func TestFirst(t *testing.T) {
	for _, row := range []struct{ reply, want string }{
		{`{"cursor":{"id":0,"ns":"a.b","firstBatch":[{"a":1},{"a":2}]},"ok":1}`, `{"a":1}`},
		{`{"cursor":{"id":0,"ns":"a.b","firstBatch":[]},"ok":1}`, ``},
	} {
		got, err := cursor.First(&operation.Result{Server: "a:27017", Reply: doc(t, row.reply)})
		if err != nil || (got != nil) != (row.want != "") ||
			got != nil && text(t, got) != row.want {
			t.Errorf("first(%s) = %v, %v; want %q", row.reply, got, err, row.want)
		}
	}
}

func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		`{"cursor":{"id":0,"ns":"a.b","firstBatch":[{},{"a":1}]},"ok":1}`,
		`{"cursor":{"firstBatch":[1],"id":{"$numberLong":"5"},"ns":"a"}}`,
		`{"cursor":{"firstBatch":{},"id":"x","ns":".","postBatchResumeToken":1}}`,
		`{"cursor":[]}`,
	} {
		f.Add([]byte(doc(f, seed)))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		res := operation.Result{Server: "a:27017", Reply: reply}
		cur, err := cursor.New(t.Context(), res, cursor.Options{})
		_, errFirst := cursor.First(&res)
		if err != nil {
			if !isA[*mongoerr.MalformedReplyError](err) {
				t.Errorf("New() = %v, want a MalformedReplyError", err)
			}
			return
		}
		if errFirst != nil {
			t.Errorf("first() = %v, but New() takes it", errFirst)
		}
		b, err := cur.Next(t.Context())
		n := 0
		for _, d := range b.Documents {
			n += len(d)
		}
		if err != nil || n != b.Bytes || n > len(reply) {
			t.Errorf("Next() = %+v, %v", b, err)
		}
		if s := cur.State(); s.ID != 0 && (s.Database == "" || s.Collection == "") {
			t.Errorf("State() = %+v, want a namespace", s)
		}
	})
}

// isA reports whether err is, or wraps, an E.
func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Abandon kills a cursor only on a server that is known to be there.
func TestAbandon(t *testing.T) {
	run(t, 5, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		cur := find(t, c, client.FindOptions{BatchSize: new(int32(2))})
		if v := cur.WireVersion(); v != 21 {
			t.Errorf("WireVersion() = %d, want 21", v)
		}
		cur.Abandon(t.Context())
		if n := len(srv.Commands("killCursors")); n != 1 || !cur.Done() {
			t.Errorf("%d killCursors, Done() = %v", n, cur.Done())
		}
		if v := c.ContinueCursor(cursor.State{}).WireVersion(); v != 0 {
			t.Errorf("WireVersion() = %d before any command", v)
		}

		cur = find(t, c, client.FindOptions{BatchSize: new(int32(2))})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		cur.Abandon(ctx)
		if n := len(srv.Commands("killCursors")); n != 1 || !cur.Done() {
			t.Errorf("%d killCursors with a context that has ended, Done() = %v", n, cur.Done())
		}

		cur = find(t, c, client.FindOptions{BatchSize: new(int32(2))})
		srv.SetDown(true)
		for c.Topology().Servers[0].IsAvailable() {
			time.Sleep(time.Second) //nolint:forbidigo // fake time, until the monitor has noticed
		}
		began := time.Now()
		cur.Abandon(t.Context())
		if d := time.Since(began); d > 0 || !cur.Done() {
			t.Errorf("Abandon() took %v, Done() = %v; the server is gone", d, cur.Done())
		}
	})
}
