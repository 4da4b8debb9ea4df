package client_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/seedlist"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// connect starts a client of a cluster; it ends before the test does.
func connect(
	t *testing.T, cluster *fakemongo.Cluster, options string, opt client.Options,
) *client.Client {
	t.Helper()
	opt.Dialer = cluster.Dial
	return startURI(t, cluster.URI(options), opt)
}

var items = client.Namespace{Database: "db", Collection: "items"}

// find reads one document, which says what host it was read from.
func find(t *testing.T, c *client.Client, rp *selection.ReadPreference) string {
	t.Helper()
	found, ok, err := c.FindOne(t.Context(), items,
		client.FindOptions{Common: client.Common{ReadPreference: rp}})
	if err != nil || !ok {
		t.Fatalf("FindOne(%v) = %v, %v", rp, ok, err)
	}
	v, _ := found.Lookup("host")
	host, _ := v.Str()
	return host
}

// stocked gives each host a document with its name.
func stocked(t *testing.T, cluster *fakemongo.Cluster) *fakemongo.Cluster {
	for _, h := range cluster.Hosts() {
		h.SetDocuments("db.items", doc(t, `{"host": "`+h.Address().Host()+`"}`))
	}
	return cluster
}

// preferences are the $readPreference documents that came with finds.
func preferences(t *testing.T, h *fakemongo.Host) (all []string) {
	for _, cmd := range h.Commands("find") {
		if v, ok := cmd.Body.Lookup("$readPreference"); ok {
			rp, _ := v.Document()
			all = append(all, text(t, rp))
		} else {
			all = append(all, "none")
		}
	}
	return all
}

func TestReadsOfAReplicaSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := stocked(t, fakemongo.NewCluster(t, fakemongo.ClusterConfig{},
			fakemongo.Primary, fakemongo.Secondary, fakemongo.Secondary, fakemongo.Arbiter,
			fakemongo.Hidden))
		cluster.Host(2).SetTags("dc", "ny")
		c := connect(t, cluster, "replicaSet=rs", client.Options{})
		time.Sleep(time.Second) //nolint:forbidigo // fake time: all members are known then
		for mode, want := range map[selection.Mode][]string{
			selection.Primary: {"a"}, selection.PrimaryPreferred: {"a"}, selection.Secondary: {"b", "c"},
			selection.SecondaryPreferred: {"b", "c"}, selection.Nearest: {"a", "b", "c"},
		} {
			seen := map[string]bool{}
			for range 40 {
				seen[find(t, c, &selection.ReadPreference{Mode: mode})] = true
			}
			for host := range seen {
				if !slices.Contains(want, host) {
					t.Errorf("%v: read from %s", mode, host)
				}
			}
			if len(seen) != len(want) {
				t.Errorf("%v: read from %v, want %v", mode, seen, want)
			}
		}
		ny := []description.TagSet{description.NewTagSet(description.Tag{Name: "dc", Value: "ny"})}
		if host := find(t, c,
			&selection.ReadPreference{Mode: selection.Nearest, TagSets: ny}); host != "c" {
			t.Errorf("read from %s, want the one with the tag", host)
		}
		if got := preferences(t,
			cluster.Host(2)); got[len(got)-1] != `{"mode":"nearest","tags":[{"dc":"ny"}]}` {
			t.Errorf("sent %v", got[len(got)-1])
		}
		cluster.StepDown()
		synctest.Wait()
		if host := find(t, c,
			&selection.ReadPreference{Mode: selection.PrimaryPreferred}); host == "" {
			t.Error("nothing was read without a primary")
		}
		begin := time.Now()
		_, _, err := c.FindOne(t.Context(), items, client.FindOptions{})
		if err == nil || time.Since(begin) != 30*time.Second ||
			!strings.Contains(err.Error(),
				"timed out after 30s: No servers are suitable for reads with read "+
					"preference primary;") {
			t.Errorf("a read of the primary without one = %v after %v", err, time.Since(begin))
		}
	})
}

// TestPrimaryWithTags is the prose test of that name (SEL-011).
func TestPrimaryWithTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := stocked(t, fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary))
		c := connect(t, cluster, "", client.Options{})
		tags := []description.TagSet{
			description.NewTagSet(description.Tag{Name: "dc", Value: "ny"}),
		}
		begin := time.Now()
		_, _, err := c.FindOne(t.Context(), items, client.FindOptions{
			Common: client.Common{ReadPreference: &selection.ReadPreference{TagSets: tags}},
		})
		if err == nil || time.Since(begin) > 0 {
			t.Errorf("FindOne = %v after %v, want an error at once", err, time.Since(begin))
		}
	})
}

// TestReadPreferenceForMongos is the prose test "passing $readPreference to mongos" (SEL-060).
func TestReadPreferenceForMongos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := stocked(t, fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Mongos))
		c := connect(t, cluster, "", client.Options{})
		hundred, tags := int64(100),
			[]description.TagSet{description.NewTagSet(description.Tag{Name: "dc", Value: "ny"})}
		for _, rp := range []*selection.ReadPreference{
			nil,
			{Mode: selection.Primary},
			{Mode: selection.PrimaryPreferred},
			{Mode: selection.Secondary},
			{Mode: selection.SecondaryPreferred},
			{Mode: selection.SecondaryPreferred, TagSets: tags},
			{Mode: selection.Nearest, MaxStalenessSeconds: &hundred},
		} {
			find(t, c, rp)
		}
		want := []string{
			"none", "none", `{"mode":"primaryPreferred"}`, `{"mode":"secondary"}`, `{"mode":"secondaryPreferred"}`,
			`{"mode":"secondaryPreferred","tags":[{"dc":"ny"}]}`, `{"mode":"nearest","maxStalenessSeconds":100}`,
		}
		if got := preferences(t, cluster.Host(0)); !slices.Equal(got, want) {
			t.Errorf("sent:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestDirectConnectionReadsASecondary: the user wants this server, so the server is told that a
// secondary will do (SEL-064).
func TestDirectConnectionReadsASecondary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := stocked(t,
			fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Secondary,
				fakemongo.Primary))
		secondary := cluster.Host(0)
		uri := "mongodb://" + string(secondary.Address()) + "/?directConnection=true"
		c := startURI(t, uri, client.Options{Dialer: cluster.Dial})
		if host := find(t, c, nil); host != "a" {
			t.Errorf("read from %s", host)
		}
		if got := preferences(t, secondary); !slices.Equal(got,
			[]string{`{"mode":"primaryPreferred"}`}) {
			t.Errorf("sent %v", got)
		}
	})
}

// TestSlowMongosGetsLess is the prose test "operation count-based selection": calls in flight
// count against a server.
func TestSlowMongosGetsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := stocked(t,
			fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Mongos, fakemongo.Mongos))
		c := connect(t, cluster, "localThresholdMS=30000", client.Options{})
		time.Sleep(time.Second) //nolint:forbidigo // fake time: both are known then
		quick := func(delay time.Duration) fakemongo.Handler {
			h := cluster.Host(1)
			return func(cmd *fakemongo.Command) fakemongo.Reply {
				return h.Default(cmd).After(delay)
			}
		}
		run := func(threads, finds int) map[string]int {
			hosts := make(chan string, threads*finds)
			done := make(chan struct{})
			for range threads {
				go func() {
					for range finds {
						hosts <- find(t, c, nil)
					}
					done <- struct{}{}
				}()
			}
			for range threads {
				<-done
			}
			close(hosts)
			count := map[string]int{}
			for host := range hosts {
				count[host]++
			}
			return count
		}
		cluster.Host(0).Handle("find", func(cmd *fakemongo.Command) fakemongo.Reply {
			return cluster.Host(0).Default(cmd).After(500 * time.Millisecond)
		})
		cluster.Host(1).Handle("find", quick(time.Millisecond))
		if count := run(10, 10); count["a"] >= 25 {
			t.Errorf("the slow mongos got %d of 100 finds", count["a"])
		}
		cluster.Host(0).Handle("find", func(cmd *fakemongo.Command) fakemongo.Reply {
			return cluster.Host(0).Default(cmd).After(time.Millisecond)
		})
		if count := run(10, 100); count["a"] < 400 || count["a"] > 600 {
			t.Errorf("one of two equal mongoses got %d of 1000 finds", count["a"])
		}
	})
}

// TestParsingErrors is the prose test of that name: from which parts of a reply a state change is
// read.
func TestParsingErrors(t *testing.T) {
	for name, test := range map[string]struct {
		reply string
		want  bool
	}{
		"not primary":                   {`{"ok": 0, "code": 10107, "errmsg": "not primary"}`, true},
		"not primary on a read":         {`{"ok": 0, "code": 13435, "errmsg": "not primary and secondaryOk=false"}`, true},
		"recovering":                    {`{"ok": 0, "code": 11602, "errmsg": "interrupted"}`, true},
		"recovering, in write concern":  {`{"ok": 1, "n": 1, "writeConcernError": {"code": 91, "errmsg": "shutdown"}}`, true},
		"by its words":                  {`{"ok": 0, "errmsg": "not master"}`, true},
		"a code makes words irrelevant": {`{"ok": 0, "code": 1, "errmsg": "not master"}`, false},
		"in a write error":              {`{"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 10107, "errmsg": "not primary"}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				unknown := false
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
				c := connect(t, cluster, "", client.Options{Sink: &event.Sink{
					ServerDescriptionChanged: func(e event.ServerDescriptionChanged) {
						unknown = unknown || e.New.Kind == description.ServerUnknown
					},
				}})
				cluster.Host(0).Handle("insert", reply(t, test.reply))
				result, err := c.InsertOne(t.Context(), items, doc(t, `{"_id": 1}`),
					client.InsertOneOptions{})
				if err == nil && result.WriteConcernError == nil {
					t.Error("InsertOne succeeded")
				}
				synctest.Wait()
				if unknown != test.want {
					t.Errorf("after %v the server was made unknown: %v, want %v", err, unknown,
						test.want)
				}
			})
		})
	}
}

// TestAllServersUnavailable is the prose test of that name.
func TestAllServersUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary)
		for _, h := range cluster.Hosts() {
			h.SetDown(true)
		}
		c := connect(t, cluster, "serverSelectionTimeoutMS=2000", client.Options{})
		begin := time.Now()
		_, err := c.InsertOne(t.Context(), items, doc(t, `{"_id": 1}`), client.InsertOneOptions{})
		if err == nil || !strings.Contains(err.Error(), "connection refused") ||
			time.Since(begin) != 2*time.Second {
			t.Errorf("InsertOne = %v after %v", err, time.Since(begin))
		}
		if kind := c.Topology().Kind; kind != description.KindUnknown {
			t.Errorf("the topology is %v", kind)
		}
	})
}

// TestNetworkErrorWritingToPrimary is the prose test of that name.
func TestNetworkErrorWritingToPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary)
		c := connect(t, cluster, "", client.Options{})
		time.Sleep(time.Second) //nolint:forbidigo // fake time: both are known then
		cluster.Host(0).Handle("insert", fakemongo.Always(fakemongo.Drop()))
		if _, err := c.InsertOne(t.Context(), items, doc(t, `{"_id": 1}`),
			client.InsertOneOptions{}); !mongoerr.IsNetwork(err) {
			t.Errorf("InsertOne = %v", err)
		}
		if topo := c.Topology(); topo.Kind != description.KindReplicaSetNoPrimary ||
			topo.Server("a:27017").IsAvailable() {
			t.Errorf("the topology is %v", topo)
		}
	})
}

// TestTopologyDiscovery are the prose tests "topology discovery, direct connection, default": from
// one secondary.
func TestTopologyDiscovery(t *testing.T) {
	for options, want := range map[string]string{
		"replicaSet=rs": "ReplicaSetWithPrimary 3", "directConnection=true": "Single 1", "": "ReplicaSetWithPrimary 3",
		"directConnection=false": "ReplicaSetWithPrimary 3",
	} {
		t.Run(options, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
					fakemongo.Secondary, fakemongo.Secondary)
				c := startURI(t, "mongodb://b:27017/?"+options, client.Options{Dialer: cluster.Dial})
				time.Sleep(time.Second) //nolint:forbidigo // fake time
				if got := fmt.Sprint(c.Topology().Kind, " ",
					len(c.Topology().Servers)); got != want {
					t.Errorf("found %s, want %s", got, want)
				}
			})
		})
	}
}

// zone answers for the records of one name.
type zone struct {
	mu    sync.Mutex
	hosts []string
	txt   []string
	err   error
}

func (z *zone) LookupSRV(context.Context, string) (found []seedlist.SRV, err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, host := range z.hosts {
		found = append(found, seedlist.SRV{Target: host + ".example.com.", Port: 27017})
	}
	return found, z.err
}

func (z *zone) LookupTXT(context.Context, string) ([]string, error) { return z.txt, nil }

func TestServersNamedByDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := connstring.Parse("mongodb+srv://db.example.com/?tls=false")
		if err != nil {
			t.Fatal(err)
		}
		server := fakemongo.NewServer(t,
			fakemongo.Handlers{"hello": helloWith(t, `{"msg": "isdbgrid", "maxWireVersion": 21}`)})
		z := &zone{hosts: []string{"a"}}
		c, err := client.New(cfg, client.Options{Dialer: server.Dial, Resolver: z})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Ping(t.Context()); err == nil || len(c.Topology().Servers) != 0 {
			t.Errorf("Ping before Start = %v", err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }() //nolint:usetesting // the test's own context may be over
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		z.mu.Lock()
		z.hosts = []string{"a", "b"}
		z.mu.Unlock()
		time.Sleep(time.Minute + time.Second) //nolint:forbidigo // fake time
		if n := len(c.Topology().Servers); n != 2 {
			t.Errorf("%d servers after the records changed, want 2", n)
		}
	})
}

func TestServersThatDNSDoesNotName(t *testing.T) {
	for name, test := range map[string]struct {
		zone *zone
		want string
	}{
		"error": {&zone{err: context.DeadlineExceeded}, "look up SRV records"},
		"none":  {&zone{}, "no SRV records"},
		"two hosts behind a load balancer": {
			&zone{hosts: []string{"a", "b"}, txt: []string{"loadBalanced=true"}}, "loadBalanced=true needs exactly one host",
		},
		"a replica set behind a load balancer": {
			&zone{hosts: []string{"a"}, txt: []string{"loadBalanced=true&replicaSet=rs"}}, "loadBalanced=true and replicaSet cannot be used together",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := connstring.Parse("mongodb+srv://db.example.com/")
			if err != nil {
				t.Fatal(err)
			}
			c, err := client.New(cfg, client.Options{Resolver: test.zone})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(t.Context()); err == nil ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("Start = %v, want %q", err, test.want)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
