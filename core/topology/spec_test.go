package topology_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/spectest"
)

const suite = "server-discovery-and-monitoring"

// TestMonitoringSpecification runs the suite's files about events; package description's tests run
// the others.
func TestMonitoringSpecification(t *testing.T) {
	for _, file := range spectest.Files(t, suite) {
		if filepath.Base(filepath.Dir(file)) != "monitoring" {
			continue
		}
		name := "monitoring/" + strings.TrimSuffix(filepath.Base(file), ".json")
		spectest.Case(t, suite, file, name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { runMonitoring(t, spectest.Document(t, file)) })
		})
	}
}

func runMonitoring(t *testing.T, spec bson.Raw) {
	c, err := connstring.Parse(spectest.String(t, spec, "uri"))
	if err != nil {
		t.Fatal(err)
	}
	var r recorder
	topo := start(t, topology.Config{
		Seeds: c.Hosts, ReplicaSet: c.ReplicaSet, LoadBalanced: c.LoadBalanced,
		DirectConnection: c.DirectConnection != nil && *c.DirectConnection,
		Conn:             unreachableConn,
		Sink:             r.sink(),
	})
	defer stop(t, topo)
	phases, _ := spectest.Value(t, spec, "phases").Array()
	for _, v := range phases.All() {
		phase, _ := v.Document()
		if responses, ok := phase.Lookup("responses"); ok {
			array, _ := responses.Array()
			for _, v := range array.All() {
				pair, _ := v.Array()
				respond(t, topo, pair)
			}
		}
		synctest.Wait()
		outcome, _ := spectest.Value(t, phase, "outcome").Document()
		events, _ := spectest.Value(t, outcome, "events").Array()
		r.expect(t, events)
	}
}

var unreachableConn = conn.Config{Dialer: unreachable}

// unreachable is a network in which nothing ever happens.
func unreachable(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func respond(t *testing.T, topo *topology.Topology, pair bson.Array) {
	var addr address.Address
	for i, v := range pair.All() {
		if i == 0 {
			text, _ := v.Str()
			var err error
			if addr, err = address.Parse(text); err != nil {
				t.Fatal(err)
			}
			continue
		}
		reply, _ := v.Document()
		s := description.NewServer(addr, reply, 0)
		topo.Apply(&s)
	}
}

// recorder writes events down as the specification's files do.
type recorder struct {
	mu     sync.Mutex
	events []bson.Raw
}

func (r *recorder) add(name string, body func(*bson.Builder)) {
	b := bson.NewBuilder(nil)
	b.OpenDocument(name)
	b.String("topologyId", "42")
	body(b)
	b.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, b.Finish())
}

func (r *recorder) sink() *event.Sink {
	return &event.Sink{
		TopologyOpening: func(event.TopologyOpening) {
			r.add("topology_opening_event", func(*bson.Builder) {})
		},
		TopologyDescriptionChanged: func(e event.TopologyDescriptionChanged) {
			r.add("topology_description_changed_event", func(b *bson.Builder) {
				appendTopology(b, "previousDescription", e.Previous)
				appendTopology(b, "newDescription", e.New)
			})
		},
		ServerOpening: func(e event.ServerOpening) {
			r.add("server_opening_event", func(b *bson.Builder) {
				b.String("address", string(e.Address))
			})
		},
		ServerClosed: func(e event.ServerClosed) {
			r.add("server_closed_event", func(b *bson.Builder) {
				b.String("address", string(e.Address))
			})
		},
		ServerDescriptionChanged: func(e event.ServerDescriptionChanged) {
			r.add("server_description_changed_event", func(b *bson.Builder) {
				b.String("address", string(e.Address))
				appendServer(b, "previousDescription", e.Previous)
				appendServer(b, "newDescription", e.New)
			})
		},
	}
}

func (r *recorder) expect(t *testing.T, want bson.Array) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var wanted []bson.Raw
	for doc := range want.Documents() {
		wanted = append(wanted, doc)
	}
	for i := range min(len(wanted), len(r.events)) {
		if got, want := bson.DocumentValue(r.events[i]),
			bson.DocumentValue(wanted[i]); !matches(got, want) {
			t.Errorf("event %d = %v, want %v", i, text(t, r.events[i]), text(t, wanted[i]))
		}
	}
	if len(r.events) != len(wanted) {
		t.Errorf("%d events, want %d", len(r.events), len(wanted))
	}
	r.events = nil
}

// matches tells whether got has all that want has; arrays of servers compare without order.
func matches(got, want bson.Value) bool {
	if doc, ok := want.Document(); ok {
		g, ok := got.Document()
		for key, v := range doc.All() {
			found, has := g.Lookup(key)
			ok = ok && has && matches(found, v)
		}
		return ok
	}
	if array, ok := want.Array(); ok {
		g, ok := got.Array()
		n := 0
		for _, v := range array.All() {
			n++
			found := false
			for _, candidate := range g.All() {
				found = found || matches(candidate, v)
			}
			ok = ok && found
		}
		return ok && len(slices.Collect(values(g))) == n
	}
	// the same as Unknown where monitors run in parallel
	if want.Equal(bson.StringValue("PossiblePrimary")) {
		want = bson.StringValue("Unknown")
	}
	return got.Equal(want)
}

func values(a bson.Array) func(func(bson.Value) bool) {
	return func(yield func(bson.Value) bool) {
		for _, v := range a.All() {
			if !yield(v) {
				return
			}
		}
	}
}

func appendTopology(b *bson.Builder, key string, topo description.Topology) {
	b.OpenDocument(key).String("topologyType", topo.Kind.String())
	if topo.SetName != "" {
		b.String("setName", topo.SetName)
	}
	b.OpenArray("servers")
	for _, s := range topo.Servers {
		appendServer(b, "", s)
	}
	b.Close().Close()
}

func appendServer(b *bson.Builder, key string, s *description.Server) {
	b.OpenDocument(key).String("address", string(s.Address)).String("type", s.Kind.String())
	for _, list := range []struct {
		name string
		of   []address.Address
	}{{"hosts", s.Hosts}, {"passives", s.Passives}, {"arbiters", s.Arbiters}} {
		b.OpenArray(list.name)
		for _, addr := range list.of {
			b.String("", string(addr))
		}
		b.Close()
	}
	if s.SetName != "" {
		b.String("setName", s.SetName)
	}
	if s.Primary != "" {
		b.String("primary", string(s.Primary))
	}
	b.Close()
}

func text(t *testing.T, doc bson.Raw) string {
	t.Helper()
	json, err := extjson.Append(nil, doc, extjson.Relaxed)
	if err != nil {
		t.Fatal(err)
	}
	return string(json)
}
