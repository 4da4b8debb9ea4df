package client_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// startBalanced starts a client of what is behind a load balancer and closes it at the test's end.
func startBalanced(
	t *testing.T, b *fakemongo.Balanced, uri string, opt client.Options,
) *client.Client {
	t.Helper()
	opt.Dialer = b.Dial
	return startURI(t, uri, opt)
}

// LB-002.
func TestLoadBalancedExcludes(t *testing.T) {
	for uri, ok := range map[string]bool{
		"mongodb://a/?loadBalanced=true":                                true,
		"mongodb://a/?loadBalanced=true&directConnection=false":         true,
		"mongodb://a,b/?loadBalanced=false":                             true,
		"mongodb://a,b/?loadBalanced=true":                              false,
		"mongodb://a/?loadBalanced=true&replicaSet=rs":                  false,
		"mongodb://a/?loadBalanced=true&directConnection=true":          false,
		"mongodb+srv://db.example.com/?loadBalanced=true":               true,
		"mongodb+srv://db.example.com/?loadBalanced=true&srvMaxHosts=1": false,
		"mongodb+srv://db.example.com/?loadBalanced=true&srvMaxHosts=0": true,
	} {
		cfg, err := connstring.Parse(uri)
		if err == nil {
			_, err = client.New(cfg, client.Options{})
		}
		if (err == nil) != ok {
			t.Errorf("%s: %v, want it accepted: %v", uri, err, ok)
		}
	}
}

// LB-003: the TXT record may say it, and the SRV records are not polled then.
func TestLoadBalancedByTXTRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Strict: true})
		z := &zone{hosts: []string{"a"}, txt: []string{"loadBalanced=true"}}
		c := startBalanced(t, b, "mongodb+srv://db.example.com/?tls=false", client.Options{Resolver: z})
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		z.mu.Lock()
		z.hosts = []string{"b"}
		z.mu.Unlock()
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		if topo := c.Topology(); topo.Kind != description.KindLoadBalanced ||
			topo.Server("a.example.com:27017") == nil {
			t.Errorf("the topology is %v, want the one load balancer for good", topo)
		}
	})
}

// LB-012: every connection says hello, over OP_MSG, with loadBalanced; LB-004: and no other
// connection is there.
func TestLoadBalancedHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Strict: true})
		c := startBalanced(t, b, b.URI("&minPoolSize=4"), client.Options{})
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		n := 0
		for _, s := range b.Services() {
			for _, cmd := range s.Commands() {
				v, _ := cmd.Body.Lookup("loadBalanced")
				if asked, _ := v.Bool(); cmd.Name == "hello" && asked && !cmd.Legacy {
					n++
				} else if cmd.Name != "ping" {
					t.Errorf("sent %s: %s", cmd.Name, text(t, cmd.Body))
				}
			}
		}
		if pools := c.Pools(); n != 4 || len(pools) != 1 || pools[0].Total != 4 {
			t.Errorf("%d hellos, pools %+v, want 4 connections of one pool", n, pools)
		}
	})
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		for _, cmd := range srv.Commands() {
			if cmd.Body.Has("loadBalanced") {
				t.Errorf("sent %s without a load balancer", text(t, cmd.Body))
			}
		}
	})
}

// LB-013.
func TestNoLoadBalancer(t *testing.T) {
	runWith(t, nil, connstring.Config{LoadBalanced: true}, client.Options{}, func(
		t *testing.T, _ *fakemongo.Server, c *client.Client,
	) {
		const want = "Driver attempted to initialize in load balancing mode, but the server does " +
			"not support this mode."
		if err := c.Ping(t.Context()); err == nil || err.Error() != want {
			t.Errorf("Ping() = %v, want %q", err, want)
		}
	})
}

// LB-054: what a server can do is what it said on the connection, since the load balancer's
// description says nothing.
func TestCapabilitiesOfTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Services: 1})
		srv := b.Service(0)
		hello := func(wire int32) {
			srv.Handle("hello", func(cmd *fakemongo.Command) fakemongo.Reply {
				return fakemongo.Document(bson.NewBuilder(nil).Bool("isWritablePrimary", true).
					String("msg", "isdbgrid").
					Int32("minWireVersion", 0).Int32("maxWireVersion", wire).
					Int32("maxBsonObjectSize", 100).
					Int32("maxMessageSizeBytes", 48_000_000).Int32("maxWriteBatchSize", 2).
					ObjectID("serviceId", srv.ID()).Int32("ok", 1).Finish())
			})
		}
		hello(8)
		c := startBalanced(t, b, b.URI(""), client.Options{})
		res, err := c.InsertMany(t.Context(), orders,
			[]bson.Raw{doc(t, `{}`), doc(t, `{}`), doc(t, `{}`)}, client.InsertManyOptions{})
		if err != nil || len(res.InsertedIDs) != 3 || len(srv.Commands("insert")) != 2 {
			t.Errorf("InsertMany() = %v with %d commands, want 2 of them: the server takes 2 "+
				"documents", err, len(srv.Commands("insert")))
		}
		large := bson.NewBuilder(nil).String("x", string(make([]byte, 100))).Finish()
		if _, err := c.InsertOne(t.Context(), orders, large,
			client.InsertOneOptions{}); err == nil {
			t.Error("InsertOne() of a document that is too large was sent")
		}
		for _, wire := range []int32{8, 21} {
			hello(wire)
			srv.CutConnections()
			synctest.Wait()
			_, _ = c.RunCommand(t.Context(), "admin", doc(t, `{"ping":1}`),
				client.RunCommandOptions{})
			cur, err := c.Find(t.Context(), orders, client.FindOptions{
				Common: client.Common{Comment: bson.StringValue("c")}, BatchSize: new(int32(2)),
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range cur.Batches(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
			}
			all := srv.Commands("getMore")
			if got := all[len(all)-1].Body.Has("comment"); got != (wire >= 9) {
				t.Errorf("wire version %d: a comment with getMore %v", wire, got)
			}
		}
	})
}

// SEL-060, LB-011: as to a mongos. SEL-021: $out goes by the read preference, too.
func TestReadPreferenceToALoadBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Services: 1})
		srv := b.Service(0)
		srv.Handle("aggregate",
			reply(t, `{"cursor":{"id":0,"ns":"shop.orders","firstBatch":[]},"ok":1}`))
		c := startBalanced(t, b, b.URI(""), client.Options{})
		for mode := selection.Primary; mode <= selection.Nearest; mode++ {
			rp := &selection.ReadPreference{Mode: mode}
			want := mode != selection.Primary
			if _, _, err := c.FindOne(t.Context(), orders,
				client.FindOptions{Common: client.Common{ReadPreference: rp}}); err != nil {
				t.Error(err)
			}
			if _, err := c.Aggregate(t.Context(), orders, client.AggregateOptions{
				Common: client.Common{ReadPreference: rp}, Pipeline: array(t, `[{"$out":"x"}]`),
			}); err != nil {
				t.Error(err)
			}
			if _, err := c.DeleteOne(t.Context(), orders, doc(t, `{}`),
				client.DeleteOptions{}); mongoerr.Code(err) != 59 {
				t.Error(err)
			}
			for _, name := range []string{"find", "aggregate", "delete"} {
				all := srv.Commands(name)
				if got := all[len(all)-1].Body.Has("$readPreference"); got != (want &&
					name != "delete") {
					t.Errorf("%v: %s with $readPreference %v", mode, name, got)
				}
			}
		}
	})
}

// LB-052, LB-053: an error after hello clears what leads to the same service, and changes no
// description.
func TestOneServiceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{})
		b.SetDocuments("shop.orders", fakemongo.Numbered(0, 9, 0)...)
		var cleared []bson.ObjectID
		var closed []string
		changes := 0
		c := startBalanced(t, b, b.URI(""), client.Options{Sink: &event.Sink{
			PoolCleared: func(e event.PoolCleared) {
				cleared = append(cleared, e.ServiceID)
			},
			ConnectionClosed: func(e event.ConnectionClosed) {
				closed = append(closed, fmt.Sprint(e.ConnectionID, " ", e.Reason))
			},
			ServerDescriptionChanged: func(event.ServerDescriptionChanged) { changes++ },
		}})
		synctest.Wait()
		before := changes
		var open []interface {
			Close(context.Context) error
		}
		for range 4 {
			cur, err := c.Find(t.Context(), orders, client.FindOptions{BatchSize: new(int32(2))})
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, cur)
		}
		dead := b.Service(1)
		dead.Kill()
		_ = open[1].Close(t.Context()) // killCursors finds out
		for i, cur := range open {
			if i != 1 {
				_ = cur.Close(t.Context())
			}
		}
		if want := []bson.ObjectID{dead.ID()}; !slices.Equal(cleared, want) || changes != before {
			t.Errorf("cleared %v with %d changes of descriptions, want %v and none", cleared,
				changes-before, want)
		}
		if slices.Sort(closed); !slices.Equal(closed, []string{"2 error", "4 error"}) {
			t.Errorf("closed %v, want the connections to the dead service", closed)
		}
		if p := c.Pools()[0]; p.Available != 2 || p.InUse != 0 {
			t.Errorf("%+v, want the two connections to the other service", p.Stats)
		}
	})
}

func TestMaxPinnedShare(t *testing.T) {
	for _, tt := range []struct {
		share float64
		size  *uint64
		want  uint64
	}{
		{0, nil, 0},
		{0.8, nil, 80},
		{0.29, nil, 29},
		{1, nil, 100},
		{0.5, new(uint64(5)), 2},
		{0.01, new(uint64(5)), 1},
		{0.8, new(uint64(0)), 0},
	} {
		cfg, err := client.TopologyConfig(&connstring.Config{MaxPoolSize: tt.size},
			client.Options{MaxPinnedShare: tt.share})
		if err != nil || cfg.Pool.MaxPinned != tt.want {
			t.Errorf("%v of %v: %d, %v, want %d", tt.share, tt.size, cfg.Pool.MaxPinned, err,
				tt.want)
		}
	}
	for _, share := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1)} {
		if _, err := client.TopologyConfig(&connstring.Config{},
			client.Options{MaxRunOnShare: share}); err == nil {
			t.Errorf("MaxRunOnShare %v was taken", share)
		}
		if _, err := client.TopologyConfig(&connstring.Config{},
			client.Options{MaxPinnedShare: share}); err == nil {
			t.Errorf("a share of %v was accepted", share)
		}
	}
}
