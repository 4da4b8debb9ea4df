package deployment_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/topology"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/deployment"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway serves the service in process, through the real interceptors, over a cluster.
type gateway struct {
	cluster  *fakemongo.Cluster
	client   *client.Client
	conn     *inproc.Conn
	service  mooringv1.DeploymentServiceClient
	stopping chan struct{}
}

func start(t *testing.T, roles ...fakemongo.Role) *gateway {
	t.Helper()
	g := &gateway{
		cluster:  fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, roles...),
		stopping: make(chan struct{}),
	}
	cfg, err := connstring.Parse(g.cluster.URI("heartbeatFrequencyMS=500"))
	if err != nil {
		t.Fatal(err)
	}
	if g.client, err = client.New(cfg, client.Options{Dialer: g.cluster.Dial}); err != nil {
		t.Fatal(err)
	}
	if err := g.client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.client.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	g.conn = newConn()
	mooringv1.RegisterDeploymentServiceServer(g.conn,
		deployment.New(deployment.Config{Client: g.client, Stopping: g.stopping}))
	g.service = mooringv1.NewDeploymentServiceClient(g.conn)
	return g
}

// kinds is a deployment in short: "ReplicaSetWithPrimary: RSPrimary RSSecondary".
func kinds(d *mooringv1.TopologyDescription) string {
	text := d.GetKind() + ":"
	for _, s := range d.GetServers() {
		text += " " + s.GetKind()
	}
	return text
}

type watch = grpc.ServerStreamingClient[mooringv1.WatchTopologyResponse]

// await reads until the deployment is so, and returns it.
func await(t *testing.T, w watch, want string) *mooringv1.TopologyDescription {
	t.Helper()
	seen := ""
	for {
		m, err := w.Recv()
		if err != nil {
			t.Fatalf("%v; saw %s; want %s", err, seen, want)
		}
		if seen = kinds(m.GetTopology()); seen == want {
			return m.GetTopology()
		}
	}
}

// open begins to watch, until the test ends at the latest.
func (g *gateway) open(t *testing.T) (watch, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	w, err := g.service.WatchTopology(ctx, &mooringv1.WatchTopologyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return w, cancel
}

const (
	whole   = "ReplicaSetWithPrimary: RSPrimary RSSecondary RSArbiter"
	oneDown = "ReplicaSetWithPrimary: RSPrimary Unknown RSArbiter"
)

func TestWatchSeesAServerGoAndComeBack(t *testing.T) {
	g := start(t, fakemongo.Primary, fakemongo.Secondary, fakemongo.Arbiter)
	g.cluster.Host(1).SetTags("dc", "east", "rack", "7")
	w, _ := g.open(t)
	await(t, w, whole)
	g.cluster.Host(1).SetDown(true)
	down := await(t, w, oneDown).GetServers()[1]
	if down.GetAddress() != "b:27017" || down.GetLastError() == "" || down.MaxWireVersion != nil ||
		len(down.GetTags()) > 0 {
		t.Errorf("a server that is down: %v", down)
	}
	g.cluster.Host(1).SetDown(false)
	back := await(t, w, whole).GetServers()[1]
	if back.LastError != nil || back.GetTags()["dc"] != "east" {
		t.Errorf("a server that is back: %v", back)
	}
	g.cluster.Elect(g.cluster.Host(1))
	await(t, w, "ReplicaSetWithPrimary: RSSecondary RSPrimary RSArbiter")
}

func TestFields(t *testing.T) {
	g := start(t, fakemongo.Primary, fakemongo.Secondary, fakemongo.Arbiter)
	g.cluster.Host(0).SetTags("dc", "east", "rack", "7")
	w, cancel := g.open(t)
	await(t, w, whole)
	cancel()
	servicetest.Eventually(t, "round-trip times, and tags", func() bool {
		p := g.client.Topology().Primary()
		return p != nil && p.MinRTT > 0 && len(p.Tags) > 0
	})
	resp, err := g.service.GetTopology(t.Context(), &mooringv1.GetTopologyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	d := resp.GetTopology()
	if d.GetSetName() != "rs" || d.GetLogicalSessionTimeoutMinutes() != 30 ||
		d.CompatibilityError != nil {
		t.Errorf("the deployment: %v", d)
	}
	p := d.GetServers()[0]
	got := fmt.Sprint(p.GetAddress(), p.GetSetName(), p.GetSetVersion(), p.GetPrimary(),
		p.GetHosts(), p.GetPassives(), p.GetArbiters(), p.GetTags(),
		p.GetMinWireVersion(), p.GetMaxWireVersion(), p.GetMaxBsonObjectSize(),
		p.GetMaxMessageSizeBytes(), p.GetMaxWriteBatchSize(),
		p.GetLogicalSessionTimeoutMinutes())
	if want := "a:27017rs1a:27017[a:27017 b:27017][][c:27017]map[dc:east " +
		"rack:7]02116777216480000001000003 0"; strings.ReplaceAll(got, " ",
		"") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("the primary: %s\nwant %s", got, want)
	}
	if p.MinWireVersion == nil || p.GetElectionId() != "7fffffff0000000000000001" ||
		len(p.GetTopologyVersion().GetProcessId()) != 24 ||
		p.GetAverageRttMicros() <= 0 || p.GetMinRttMicros() <= 0 || p.LastError != nil ||
		time.Since(p.GetLastUpdateTime().AsTime()) > time.Minute ||
		time.Since(p.GetLastWriteDate().AsTime()) > time.Minute {
		t.Errorf("the primary: %v", p)
	}
	if a := d.GetServers()[2]; a.LogicalSessionTimeoutMinutes != nil || a.ElectionId != nil {
		t.Errorf("the arbiter: %v", a)
	}
}

// A reader that sleeps through many changes gets the message that was offered to it meanwhile,
// and then what is so.
func TestSlowReaderGetsTheNewest(t *testing.T) {
	g := start(t, fakemongo.Primary, fakemongo.Secondary, fakemongo.Arbiter)
	w, _ := g.open(t)
	await(t, w, whole)
	for i := range 50 {
		next := g.cluster.Host((i + 1) % 2)
		g.cluster.Elect(next)
		servicetest.Eventually(t, "an election", func() bool {
			p := g.client.Topology().Primary()
			return p != nil && p.Address == next.Address() && p.ElectionID == electionID(i+2)
		})
	}
	read, last := 0, ""
	for last != electionID(51).Hex() {
		m, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		last = m.GetTopology().GetServers()[0].GetElectionId()
		read++
	}
	// One was offered before the first election was over, and what the members say of the last
	// one comes one by one.
	if read > 5 {
		t.Errorf("read %d messages until the newest, of 50 elections", read)
	}
}

func electionID(term int) bson.ObjectID {
	return bson.ObjectID{0: 0x7f, 1: 0xff, 2: 0xff, 3: 0xff, 11: byte(term)}
}

// scripted is a client whose topology a test sets.
type scripted struct {
	mu       sync.Mutex
	topology description.Topology
	changed  chan struct{}
	pools    []topology.PoolStats
}

func (c *scripted) Pools() []topology.PoolStats { return c.pools }

func (c *scripted) WatchTopology() (description.Topology, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.topology, c.changed
}

func (c *scripted) Topology() description.Topology {
	t, _ := c.WatchTopology()
	return t
}

func (c *scripted) set(servers ...*description.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
	}
	c.topology, c.changed = description.Topology{Kind: description.KindSharded, Servers: servers},
		make(chan struct{})
}

// News that is none, but for times, is not sent.
func TestEqualNewsIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{}
		c.set(&description.Server{Address: "a:1", Kind: description.ServerMongos})
		conn := newConn()
		mooringv1.RegisterDeploymentServiceServer(conn,
			deployment.New(deployment.Config{Client: c}))
		ctx, cancel := context.WithCancel(t.Context())
		w, err := mooringv1.NewDeploymentServiceClient(conn).
			WatchTopology(ctx, &mooringv1.WatchTopologyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		sent := 0
		var ended error
		go func() {
			for ended == nil {
				if _, ended = w.Recv(); ended == nil {
					sent++
				}
			}
		}()
		for _, step := range []struct {
			server description.Server
			want   int
		}{
			{description.Server{Address: "a:1", Kind: description.ServerMongos, AverageRTT: 5, LastUpdateTime: time.Now()}, 1},
			{description.Server{Address: "a:1", Kind: description.ServerMongos, Tags: description.NewTagSet(description.Tag{Name: "x", Value: "y"})}, 2},
			{description.Server{Address: "a:1", LastError: errors.New("gone")}, 3},
			{description.Server{Address: "a:1", LastError: errors.New("gone"), LastUpdateTime: time.Now().Add(1)}, 3},
		} {
			synctest.Wait()
			c.set(&step.server)
			synctest.Wait()
			if sent != step.want {
				t.Errorf("%d messages after %v, want %d", sent, &step.server, step.want)
			}
		}
		cancel()
		synctest.Wait()
		if status.Code(ended) != codes.Canceled {
			t.Errorf("the watch ended with %v", ended)
		}
	})
}

// What servers say can be anything; gRPC refuses to send strings that are not UTF-8.
func TestTextsOfServers(t *testing.T) {
	c := &scripted{}
	c.set(&description.Server{
		Address: "a\xff:1", SetName: "s\xff",
		Tags:           description.NewTagSet(description.Tag{Name: "\xff", Value: "\xff"}),
		LastError:      errors.New(strings.Repeat("\xff", 1<<20)),
		LastUpdateTime: time.Unix(1, 123_456_789),
	})
	conn := newConn()
	mooringv1.RegisterDeploymentServiceServer(conn, deployment.New(deployment.Config{Client: c}))
	resp, err := mooringv1.NewDeploymentServiceClient(conn).
		GetTopology(t.Context(), &mooringv1.GetTopologyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if wire, err := proto.Marshal(resp); err != nil || len(wire) > 2<<10 {
		t.Errorf("Marshal = %d bytes, %v", len(wire), err)
	}
	if at := resp.GetTopology().GetServers()[0].GetLastUpdateTime().
		AsTime(); !at.Equal(time.UnixMilli(1123)) {
		t.Errorf("lastUpdateTime = %v", at)
	}
}

func TestWatchEndsWithTheGateway(t *testing.T) {
	g := start(t, fakemongo.Standalone)
	w, _ := g.open(t)
	await(t, w, "Single: Standalone")
	close(g.stopping)
	var err error
	for err == nil {
		_, err = w.Recv()
	}
	if r := rpcerr.HTTP(err); r.Code != 503 || r.Body.GetError().GetReason() != "ShuttingDown" ||
		r.Body.GetError().GetRetry() != "restart" {
		t.Errorf("the watch ended with %v", err)
	}
}

// Over gRPC. Leaving ends the handler: goroutines are counted at the end of all tests.
func TestLeaving(t *testing.T) {
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	w, err := g.Deployment.WatchTopology(ctx, &mooringv1.WatchTopologyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, w, "Single: Standalone")
	if n := g.Gate.InFlight(); n != 1 {
		t.Errorf("%d calls in flight", n)
	}
	cancel()
	servicetest.Eventually(t, "the handler's end", func() bool { return g.Gate.InFlight() == 0 })
}

func TestRefusals(t *testing.T) {
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{})
	unknown := &mooringv1.GetTopologyRequest{}
	unknown.ProtoReflect().
		SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	for _, c := range []struct {
		name     string
		req      *mooringv1.GetTopologyRequest
		metadata []string
		want     codes.Code
	}{
		{"an unknown field", unknown, nil, codes.InvalidArgument},
		{"a session", &mooringv1.GetTopologyRequest{}, []string{"mooring-session", "s"}, codes.InvalidArgument},
		{"an encoding that is none", &mooringv1.GetTopologyRequest{}, []string{"mooring-document-encoding", "xml"}, codes.InvalidArgument},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), c.metadata...)
		if _, err := g.Deployment.GetTopology(ctx, c.req); status.Code(err) != c.want {
			t.Errorf("GetTopology with %s: %v, want %v", c.name, err, c.want)
		}
		watched := &mooringv1.WatchTopologyRequest{}
		watched.ProtoReflect().SetUnknown(c.req.ProtoReflect().GetUnknown())
		w, err := g.Deployment.WatchTopology(ctx, watched)
		if err == nil {
			_, err = w.Recv()
		}
		if status.Code(err) != c.want {
			t.Errorf("WatchTopology with %s: %v, want %v", c.name, err, c.want)
		}
	}
}

// An EventSource's connection drops and comes back, with the id that it has seen last.
func TestEvents(t *testing.T) {
	g := start(t, fakemongo.Primary, fakemongo.Secondary, fakemongo.Arbiter)
	h, err := front.New(front.Config{Conn: g.conn, APIs: []front.API{rest.New(rest.Config{})}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	open := func(lastEventID string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			server.URL+"/v1/deployment/topology:watch", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		if lastEventID != "" {
			r.Header.Set("Last-Event-ID", lastEventID)
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != http.StatusOK ||
			resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		return resp
	}
	const up, down = `"kind":"RSSecondary"`, `"address":"b:27017","kind":"Unknown"`
	first := open("")
	lines := bufio.NewScanner(first.Body)
	id := awaitEvent(t, lines, up)
	g.cluster.Host(1).SetDown(true)
	awaitEvent(t, lines, down)
	first.Body.Close()

	second := open(id)
	lines = bufio.NewScanner(second.Body)
	awaitEvent(t, lines, down) // at once: it is so
	g.cluster.Host(1).SetDown(false)
	awaitEvent(t, lines, up)
	close(g.stopping)
	var tail []string
	for lines.Scan() {
		tail = append(tail, lines.Text())
	}
	if text := strings.Join(tail, "\n"); !strings.Contains(text,
		"event: failure\nid: w\ndata: {\"error\":") || lines.Err() != nil {
		t.Errorf("the end: %q, %v", text, lines.Err())
	}
}

// awaitEvent reads events until one has the text, and returns its id.
func awaitEvent(t *testing.T, lines *bufio.Scanner, text string) (id string) {
	t.Helper()
	for lines.Scan() {
		line := lines.Text()
		if v, ok := strings.CutPrefix(line, "id: "); ok {
			id = v
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok &&
			strings.HasPrefix(data, `{"kind":`) && strings.Contains(data, text) {
			return id
		}
	}
	t.Fatalf("the stream ended before %s: %v", text, lines.Err())
	return ""
}

// newConn returns a Conn with the interceptors, which put a call into the handlers' context.
func newConn() *inproc.Conn {
	x := interceptor.New(interceptor.Config{})
	return inproc.NewConn(x.Unary(), x.Stream())
}
