package selection_test

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/spectest"
)

const localThreshold = 15 * time.Millisecond

func TestServerSelectionSpecification(t *testing.T) { runSuite(t, "server-selection") }

func TestMaxStalenessSpecification(t *testing.T) { runSuite(t, "max-staleness") }

// runners run a folder's files; others run by runSelection.
var runners = map[string]func(*testing.T, bson.Raw){
	"rtt": runRTT, "in_window": runInWindow,
}

func runSuite(t *testing.T, suite string) {
	root := filepath.Join(spectest.Dir(t, suite), "tests")
	for _, file := range spectest.Files(t, suite) {
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		name = strings.TrimSuffix(filepath.ToSlash(name), ".json")
		folder, _, _ := strings.Cut(name, "/")
		if folder == "logging" { // core/client runs these: they are in the unified format
			continue
		}
		spectest.Case(t, suite, file, name, func(t *testing.T) {
			run, ok := runners[folder]
			if !ok {
				run = runSelection
			}
			run(t, spectest.Document(t, file))
		})
	}
}

func runRTT(t *testing.T, spec bson.Raw) {
	sample := milliseconds(t, spec, "new_rtt_ms")
	got := description.RTT{}.Add(sample)
	if text, ok := spectest.Value(t, spec, "avg_rtt_ms").Str(); !ok {
		got = description.RTT{}.Add(milliseconds(t, spec, "avg_rtt_ms")).Add(sample)
	} else if text != "NULL" {
		t.Fatalf("avg_rtt_ms = %q", text)
	}
	want := milliseconds(t, spec, "new_avg_rtt")
	if diff := (got.Average() - want).Abs(); diff > time.Microsecond {
		t.Errorf("average = %v, want %v", got.Average(), want)
	}
}

func runInWindow(t *testing.T, spec bson.Raw) {
	topology := readTopology(t, spectest.Value(t, spec, "topology_description"))
	counts := map[address.Address]int64{}
	states, _ := spectest.Value(t, spec, "mocked_topology_state").Array()
	for _, v := range states.All() {
		state, _ := v.Document()
		counts[address.Address(spectest.String(t, state, "address"))], _ = spectest.Value(t, state,
			"operation_count").AsInt64()
	}
	iterations, _ := spectest.Value(t, spec, "iterations").AsInt64()
	random := rand.New(rand.NewPCG(1, 2))
	chosen := map[address.Address]int{}
	for range iterations {
		suitable, err := selection.Read(&selection.ReadPreference{Mode: selection.Nearest}).
			Select(topology, topology.Servers)
		if err != nil {
			t.Fatal(err)
		}
		s := selection.Choose(selection.InWindow(suitable, localThreshold),
			func(s *description.Server) int64 { return counts[s.Address] }, random.IntN)
		chosen[s.Address]++
	}
	outcome, _ := spectest.Value(t, spec, "outcome").Document()
	tolerance, _ := spectest.Value(t, outcome, "tolerance").AsDouble()
	frequencies, _ := spectest.Value(t, outcome, "expected_frequencies").Document()
	for addr, v := range frequencies.All() {
		want, _ := v.AsDouble()
		got := float64(chosen[address.Address(addr)]) / float64(iterations)
		if exact := want == 0 || want == 1; exact && got != want || math.Abs(got-want) > tolerance {
			t.Errorf("%s was chosen %.3f of the times, want %.3f ± %.3f", addr, got, want,
				tolerance)
		}
	}
}

func runSelection(t *testing.T, spec bson.Raw) {
	topology := readTopology(t, spectest.Value(t, spec, "topology_description"))
	topology.HeartbeatInterval = 10 * time.Second
	if _, ok := spec.Lookup("heartbeatFrequencyMS"); ok {
		topology.HeartbeatInterval = milliseconds(t, spec, "heartbeatFrequencyMS")
	}
	selector := selection.Write()
	if operation, ok := spec.Lookup("operation"); !ok || operation.Equal(bson.StringValue("read")) {
		preference, _ := spectest.Value(t, spec, "read_preference").Document()
		selector = selection.Read(readPreference(t, preference))
	}
	if last, ok := spec.Lookup("deprioritized_servers"); ok {
		selector = selection.Deprioritize(selector, addresses(t, last)...)
	}
	suitable, err := selector.Select(topology, topology.Servers)
	if v, ok := spec.Lookup("error"); ok && v.Truthy() {
		if err == nil {
			t.Errorf("selected %v, want an error", suitable)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	expectServers(t, "suitable", suitable, spectest.Value(t, spec, "suitable_servers"))
	expectServers(t, "in the latency window", selection.InWindow(suitable, localThreshold),
		spectest.Value(t, spec, "in_latency_window"))
}

func addresses(t *testing.T, servers bson.Value) []address.Address {
	t.Helper()
	var all []address.Address
	array, _ := servers.Array()
	for _, v := range array.All() {
		doc, _ := v.Document()
		all = append(all, address.Address(spectest.String(t, doc, "address")))
	}
	return all
}

func expectServers(t *testing.T, what string, got []*description.Server, want bson.Value) {
	t.Helper()
	var gotAddresses []address.Address
	for _, s := range got {
		gotAddresses = append(gotAddresses, s.Address)
	}
	wantAddresses := addresses(t, want)
	slices.Sort(gotAddresses)
	slices.Sort(wantAddresses)
	if !slices.Equal(gotAddresses, wantAddresses) {
		t.Errorf("%s: %v, want %v", what, gotAddresses, wantAddresses)
	}
}

var kinds = map[string]description.Kind{
	"Unknown": description.KindUnknown, "Single": description.KindSingle, "Sharded": description.KindSharded,
	"ReplicaSetNoPrimary":   description.KindReplicaSetNoPrimary,
	"ReplicaSetWithPrimary": description.KindReplicaSetWithPrimary, "LoadBalanced": description.KindLoadBalanced,
}

var serverKinds = map[string]description.ServerKind{
	"Unknown": description.ServerUnknown, "PossiblePrimary": description.ServerUnknown,
	"Standalone": description.ServerStandalone, "Mongos": description.ServerMongos,
	"RSPrimary": description.ServerRSPrimary, "RSSecondary": description.ServerRSSecondary,
	"RSArbiter": description.ServerRSArbiter, "RSOther": description.ServerRSOther,
	"RSGhost": description.ServerRSGhost, "LoadBalancer": description.ServerLoadBalancer,
}

func readTopology(t *testing.T, v bson.Value) description.Topology {
	t.Helper()
	doc, _ := v.Document()
	kind, ok := kinds[spectest.String(t, doc, "type")]
	if !ok {
		t.Fatalf("topology of type %q", spectest.String(t, doc, "type"))
	}
	topology := description.Topology{Kind: kind}
	servers, _ := spectest.Value(t, doc, "servers").Array()
	for _, v := range servers.All() {
		server, _ := v.Document()
		topology.Servers = append(topology.Servers, readServer(t, server))
	}
	slices.SortFunc(topology.Servers, func(a, b *description.Server) int {
		return strings.Compare(string(a.Address), string(b.Address))
	})
	return topology
}

func readServer(t *testing.T, doc bson.Raw) *description.Server {
	t.Helper()
	s := &description.Server{}
	for key, v := range doc.All() {
		switch key {
		case "address":
			text, _ := v.Str()
			s.Address = address.Address(text)
		case "type":
			text, _ := v.Str()
			kind, ok := serverKinds[text]
			if !ok {
				t.Fatalf("server of type %q", text)
			}
			s.Kind = kind
		case "avg_rtt_ms":
			s.AverageRTT = milliseconds(t, doc, key)
		case "maxWireVersion":
		case "tags":
			s.Tags = readTags(v)
		case "lastUpdateTime":
			s.LastUpdateTime = time.UnixMilli(0).Add(milliseconds(t, doc, key))
		case "lastWrite":
			lastWrite, _ := v.Document()
			s.LastWriteDate = time.UnixMilli(0).Add(milliseconds(t, lastWrite, "lastWriteDate"))
		default:
			t.Fatalf("unknown key %q in a server", key)
		}
	}
	return s
}

func readTags(v bson.Value) description.TagSet {
	doc, _ := v.Document()
	var tags []description.Tag
	for name, v := range doc.All() {
		value, _ := v.Str()
		tags = append(tags, description.Tag{Name: name, Value: value})
	}
	return description.NewTagSet(tags...)
}

func readPreference(t *testing.T, doc bson.Raw) *selection.ReadPreference {
	t.Helper()
	rp := &selection.ReadPreference{}
	for key, v := range doc.All() {
		switch key {
		case "mode":
			text, _ := v.Str()
			mode, err := selection.ParseMode(text)
			if err != nil {
				t.Fatal(err)
			}
			rp.Mode = mode
		case "tag_sets":
			array, _ := v.Array()
			for _, v := range array.All() {
				rp.TagSets = append(rp.TagSets, readTags(v))
			}
		case "maxStalenessSeconds":
			seconds, _ := v.AsInt64()
			rp.MaxStalenessSeconds = &seconds
		case "hedge":
			hedge, _ := v.Document()
			enabled, _ := spectest.Value(t, hedge, "enabled").Bool()
			rp.HedgeEnabled = &enabled
		default:
			t.Fatalf("unknown key %q in a read preference", key)
		}
	}
	return rp
}

func milliseconds(t *testing.T, doc bson.Raw, key string) time.Duration {
	t.Helper()
	v := spectest.Value(t, doc, key)
	if n, ok := v.AsInt64(); ok {
		return time.Duration(n) * time.Millisecond
	}
	f, ok := v.AsDouble()
	if !ok {
		t.Fatalf("%q is not a number in %v", key, doc)
	}
	return time.Duration(f * float64(time.Millisecond))
}
