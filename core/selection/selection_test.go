package selection_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/selection"
)

func TestParseMode(t *testing.T) {
	for text, want := range map[string]selection.Mode{
		"primary": selection.Primary, "primaryPreferred": selection.PrimaryPreferred, "Secondary": selection.Secondary,
		"secondarypreferred": selection.SecondaryPreferred, "NEAREST": selection.Nearest,
	} {
		if got, err := selection.ParseMode(text); err != nil || got != want {
			t.Errorf("ParseMode(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "any", "primary "} {
		if got, err := selection.ParseMode(text); err == nil {
			t.Errorf("ParseMode(%q) = %v, want an error", text, got)
		}
	}
}

func TestParseTagSet(t *testing.T) {
	got, err := selection.ParseTagSet("rack:1,dc:ny:east")
	if want := description.NewTagSet(
		description.Tag{Name: "dc", Value: "ny:east"}, description.Tag{Name: "rack", Value: "1"},
	); err != nil || !slices.Equal(got, want) {
		t.Errorf("ParseTagSet = %v, %v, want %v", got, err, want)
	}
	if got, err := selection.ParseTagSet(""); err != nil || len(got) != 0 {
		t.Errorf(`ParseTagSet("") = %v, %v, want the empty set`, got, err)
	}
	for _, text := range []string{"dc", ":ny", "dc:ny,", ","} {
		if got, err := selection.ParseTagSet(text); err == nil {
			t.Errorf("ParseTagSet(%q) = %v, want an error", text, got)
		}
	}
}

// tagged is a read preference with one of each component.
func tagged(mode selection.Mode) *selection.ReadPreference {
	return &selection.ReadPreference{
		Mode: mode, TagSets: []description.TagSet{{{Name: "dc", Value: "ny"}}, {}},
		MaxStalenessSeconds: new(int64(120)), HedgeEnabled: new(true),
	}
}

func TestValidate(t *testing.T) {
	valid := []*selection.ReadPreference{
		nil,
		{},
		{TagSets: []description.TagSet{{}}},
		{MaxStalenessSeconds: new(int64(-1))},
		tagged(selection.Nearest), tagged(selection.PrimaryPreferred),
	}
	for _, rp := range valid {
		if err := rp.Validate(); err != nil {
			t.Errorf("Validate(%v) = %v", rp, err)
		}
	}
	for _, rp := range []*selection.ReadPreference{
		{TagSets: []description.TagSet{{{Name: "a", Value: "b"}}}},
		{MaxStalenessSeconds: new(int64(120))},
		{HedgeEnabled: new(false)},
		{Mode: 99},
	} {
		if err := rp.Validate(); err == nil {
			t.Errorf("Validate(%v) succeeded", rp)
		}
	}
}

// TestToSend is the specification's section "Passing read preference to mongos and load
// balancers", and "Single".
func TestToSend(t *testing.T) {
	const none = "none"
	single, set := description.KindSingle, description.KindReplicaSetWithPrimary
	for _, tt := range []struct {
		topology description.Kind
		server   description.ServerKind
		rp       *selection.ReadPreference
		want     string
	}{
		{description.KindSharded, description.ServerMongos, nil, none},
		{description.KindSharded, description.ServerMongos, &selection.ReadPreference{}, none},
		{description.KindSharded, description.ServerMongos, &selection.ReadPreference{Mode: selection.SecondaryPreferred}, `{"mode":"secondaryPreferred"}`},
		{description.KindSharded, description.ServerMongos, tagged(selection.Nearest), `{"mode":"nearest","tags":[{"dc":"ny"},{}],"maxStalenessSeconds":120,"hedge":{"enabled":true}}`},
		{description.KindLoadBalanced, description.ServerLoadBalancer, nil, none},
		{description.KindLoadBalanced, description.ServerLoadBalancer, &selection.ReadPreference{Mode: selection.Secondary}, `{"mode":"secondary"}`},
		{single, description.ServerStandalone, &selection.ReadPreference{Mode: selection.Secondary}, none},
		{single, description.ServerMongos, nil, none},
		{single, description.ServerMongos, &selection.ReadPreference{Mode: selection.Secondary}, `{"mode":"secondary"}`},
		{single, description.ServerRSSecondary, nil, `{"mode":"primaryPreferred"}`},
		{single, description.ServerRSPrimary, &selection.ReadPreference{}, `{"mode":"primaryPreferred"}`},
		{single, description.ServerRSArbiter, nil, `{"mode":"primaryPreferred"}`},
		{single, description.ServerRSOther, nil, `{"mode":"primaryPreferred"}`},
		{single, description.ServerRSGhost, nil, `{"mode":"primaryPreferred"}`},
		{single, description.ServerRSSecondary, &selection.ReadPreference{Mode: selection.Nearest}, `{"mode":"nearest"}`},
		{set, description.ServerRSPrimary, nil, none},
		{set, description.ServerRSSecondary, &selection.ReadPreference{Mode: selection.Secondary, MaxStalenessSeconds: new(int64(-1))}, `{"mode":"secondary"}`},
		{set, description.ServerRSPrimary, &selection.ReadPreference{Mode: selection.PrimaryPreferred}, `{"mode":"primaryPreferred"}`},
	} {
		t.Run(fmt.Sprintf("%v to %v in %v", tt.rp, tt.server, tt.topology), func(t *testing.T) {
			got := none
			if rp := tt.rp.ToSend(tt.topology, &description.Server{Kind: tt.server}); rp != nil {
				got = document(t, rp)
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func document(t *testing.T, rp *selection.ReadPreference) string {
	t.Helper()
	b := bson.NewBuilder(nil)
	rp.AppendTo(b, "rp")
	value, _ := b.Finish().Lookup("rp")
	doc, _ := value.Document()
	json, err := extjson.Append(nil, doc, extjson.Relaxed)
	if err != nil {
		t.Fatal(err)
	}
	return string(json)
}

func TestAddress(t *testing.T) {
	topo := sharded(3)
	got, err := selection.Address(topo.Servers[1].Address).Select(topo, topo.Servers)
	if err != nil || len(got) != 1 || got[0] != topo.Servers[1] {
		t.Errorf("Select = %v, %v", got, err)
	}
	if got, err := selection.Address("elsewhere:1").Select(topo, topo.Servers); err != nil ||
		len(got) != 0 {
		t.Errorf("Select = %v, %v, want none", got, err)
	}
}

func TestFuncIsASelector(t *testing.T) {
	sel := selection.Func("the last one", func(
		_ description.Topology, all []*description.Server,
	) []*description.Server {
		return all[len(all)-1:]
	})
	topo := sharded(3)
	if got, err := sel.Select(topo, topo.Servers); err != nil || got[0] != topo.Servers[2] ||
		sel.String() != "the last one" {
		t.Errorf("Select = %v, %v", got, err)
	}
}

func TestSelectLeavesCandidatesAlone(t *testing.T) {
	topo := description.Topology{Kind: description.KindReplicaSetWithPrimary}
	for i, kind := range []description.ServerKind{
		description.ServerRSSecondary, description.ServerRSPrimary, description.ServerRSArbiter, description.ServerRSSecondary,
	} {
		topo.Servers = append(topo.Servers, &description.Server{
			Address: address.Address(fmt.Sprintf("%d:1", i)), Kind: kind,
			AverageRTT: time.Duration(i) * time.Second,
		})
	}
	before := slices.Clone(topo.Servers)
	for _, mode := range []selection.Mode{
		selection.Primary, selection.PrimaryPreferred, selection.Secondary, selection.SecondaryPreferred, selection.Nearest,
	} {
		suitable, err := selection.Read(&selection.ReadPreference{Mode: mode}).
			Select(topo, topo.Servers)
		if err != nil || len(suitable) == 0 {
			t.Errorf("Select = %v, %v", suitable, err)
		}
		selection.InWindow(suitable, time.Second)
	}
	if !slices.Equal(before, topo.Servers) {
		t.Error("the topology's servers have changed")
	}
}

func TestChooseDrawsTwoDifferentServers(t *testing.T) {
	servers := sharded(3).Servers
	for i := range 3 {
		for j := range 2 {
			draws := []int{i, j}
			got := selection.Choose(servers, func(s *description.Server) int64 {
				if s == servers[i] {
					return 1 // any other is idler
				}
				return 0
			}, func(int) int {
				n := draws[0]
				draws = draws[1:]
				return n
			})
			if got == servers[i] {
				t.Errorf("draws %d and %d chose the same server twice", i, j)
			}
		}
	}
	if selection.Choose(nil, nil, nil) != nil {
		t.Error("Choose of none chose one")
	}
	if got := selection.Choose(servers[:1], nil, nil); got != servers[0] {
		t.Errorf("Choose of one = %v", got)
	}
}

func TestStalenessNeedsADate(t *testing.T) {
	topo := description.Topology{
		Kind: description.KindReplicaSetNoPrimary, HeartbeatInterval: 10 * time.Second,
		Servers: []*description.Server{{Address: "a:1", Kind: description.ServerRSSecondary}},
	}
	for _, seconds := range []int64{90, 1 << 32} {
		got, err := selection.Read(&selection.ReadPreference{
			Mode: selection.Secondary, MaxStalenessSeconds: &seconds,
		}).Select(topo, topo.Servers)
		if err != nil || len(got) != 0 {
			t.Errorf("Select = %v, %v, want none: nobody knows how stale it is", got, err)
		}
	}
	for _, seconds := range []int64{-2, 0, 89, 1 << 62} {
		if _, err := selection.Read(&selection.ReadPreference{
			Mode: selection.Secondary, MaxStalenessSeconds: &seconds,
		}).Select(topo, topo.Servers); err == nil {
			t.Errorf("a maxStalenessSeconds of %d was accepted", seconds)
		}
	}
}

func sharded(n int) description.Topology {
	topo := description.Topology{Kind: description.KindSharded}
	for i := range n {
		topo.Servers = append(topo.Servers, &description.Server{
			Address:    address.Address(fmt.Sprintf("mongos%04d:27017", i)),
			Kind:       description.ServerMongos,
			AverageRTT: time.Duration(i%20) * time.Millisecond,
		})
	}
	return topo
}

func BenchmarkSelectOf(b *testing.B) {
	for _, n := range []int{1, 3, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			topo := sharded(n)
			sel := selection.Read(nil)
			b.ReportAllocs()
			for b.Loop() {
				suitable, err := sel.Select(topo, topo.Servers)
				if err != nil {
					b.Fatal(err)
				}
				selection.Choose(selection.InWindow(suitable, 15*time.Millisecond),
					func(*description.Server) int64 { return 0 }, rand.IntN)
			}
		})
	}
}

// TestDeprioritize checks that servers on the list are selected only if no other server suits, on
// every kind of topology, and that the whole selection runs without them first (SS-101).
func TestDeprioritize(t *testing.T) {
	servers := func(kinds ...description.ServerKind) (all []*description.Server) {
		for i, kind := range kinds {
			all = append(all, &description.Server{
				Address: address.Address(string(rune('a'+i)) + ":1"), Kind: kind,
			})
		}
		return all
	}
	mongoses := description.Topology{
		Kind: description.KindSharded,
		Servers: servers(description.ServerMongos, description.ServerMongos,
			description.ServerUnknown),
	}
	set := description.Topology{
		Kind: description.KindReplicaSetWithPrimary,
		Servers: servers(description.ServerRSPrimary, description.ServerRSSecondary,
			description.ServerRSSecondary),
	}
	single := description.Topology{
		Kind: description.KindSingle, Servers: servers(description.ServerStandalone),
	}
	read := func(mode selection.Mode) selection.Selector {
		return selection.Read(&selection.ReadPreference{Mode: mode})
	}
	for name, test := range map[string]struct {
		topology description.Topology
		sel      selection.Selector
		last     []address.Address
		want     string
	}{
		"none":                         {mongoses, selection.Write(), nil, "a:1 b:1 "},
		"another suits":                {mongoses, selection.Write(), []address.Address{"b:1"}, "a:1 "},
		"another suits, for reads":     {mongoses, read(selection.Nearest), []address.Address{"a:1"}, "b:1 "},
		"no other suits":               {mongoses, selection.Write(), []address.Address{"a:1", "b:1"}, "a:1 b:1 "},
		"the operation's own selector": {mongoses, selection.For(selection.Address("a:1"), "getMore", 1), []address.Address{"a:1"}, "a:1 "},
		"secondary of a replica set":   {set, read(selection.Secondary), []address.Address{"b:1"}, "c:1 "},
		"primary of a replica set":     {set, read(selection.PrimaryPreferred), []address.Address{"a:1"}, "b:1 c:1 "},
		"the only primary":             {set, selection.Write(), []address.Address{"a:1"}, "a:1 "},
		"all secondaries":              {set, read(selection.SecondaryPreferred), []address.Address{"b:1", "c:1"}, "a:1 "},
		"all members":                  {set, read(selection.SecondaryPreferred), []address.Address{"a:1", "b:1", "c:1"}, "b:1 c:1 "},
		"a single server":              {single, selection.Write(), []address.Address{"a:1"}, "a:1 "},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := selection.Deprioritize(test.sel, test.last...).
				Select(test.topology, test.topology.Servers)
			got := ""
			for _, s := range found {
				got += string(s.Address) + " "
			}
			if err != nil || got != test.want {
				t.Errorf("selected %q, %v, want %q", got, err, test.want)
			}
		})
	}
	failing := selection.Read(&selection.ReadPreference{
		Mode: selection.Secondary, MaxStalenessSeconds: new(int64(1)),
	})
	if _, err := selection.Deprioritize(failing, "a:1").Select(set, set.Servers); err == nil {
		t.Error("the selector's error is lost")
	}
}

func TestOperationOfASelector(t *testing.T) {
	if name, id := selection.Operation(selection.For(selection.Write(), "insert",
		7)); name != "insert" || id != 7 {
		t.Errorf("Operation = %q, %d", name, id)
	}
	if name, id := selection.Operation(selection.Write()); name != "" || id != 0 {
		t.Errorf("Operation of a plain selector = %q, %d", name, id)
	}
}

// TestReadableAndWritable is the table of the specification's hasReadableServer and
// hasWritableServer.
func TestReadableAndWritable(t *testing.T) {
	of := func(kind description.Kind, servers ...description.ServerKind) description.Topology {
		topology := description.Topology{Kind: kind, HeartbeatInterval: 10 * time.Second}
		for i, s := range servers {
			topology.Servers = append(topology.Servers,
				&description.Server{Address: address.Address(fmt.Sprint(i, ":1")), Kind: s})
		}
		return topology
	}
	secondary := &selection.ReadPreference{Mode: selection.Secondary}
	for name, test := range map[string]struct {
		topology           description.Topology
		primary, secondary bool // can be read with that preference
		writable           bool
	}{
		"unknown":               {of(description.KindUnknown, description.ServerUnknown), false, false, false},
		"single":                {of(description.KindSingle, description.ServerStandalone), true, true, true},
		"single, down":          {of(description.KindSingle, description.ServerUnknown), false, false, false},
		"no primary":            {of(description.KindReplicaSetNoPrimary, description.ServerRSSecondary), false, true, false},
		"no primary, arbiter":   {of(description.KindReplicaSetNoPrimary, description.ServerRSArbiter), false, false, false},
		"primary":               {of(description.KindReplicaSetWithPrimary, description.ServerRSPrimary), true, false, true},
		"primary and secondary": {of(description.KindReplicaSetWithPrimary, description.ServerRSPrimary, description.ServerRSSecondary), true, true, true},
		"sharded":               {of(description.KindSharded, description.ServerUnknown, description.ServerMongos), true, true, true},
		"sharded, down":         {of(description.KindSharded, description.ServerUnknown), false, false, false},
		"load balanced":         {of(description.KindLoadBalanced, description.ServerLoadBalancer), true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := selection.HasReadable(test.topology, nil); got != test.primary {
				t.Errorf("HasReadable(primary) = %v", got)
			}
			if got := selection.HasReadable(test.topology, secondary); got != test.secondary {
				t.Errorf("HasReadable(secondary) = %v", got)
			}
			if got := selection.HasWritable(test.topology); got != test.writable {
				t.Errorf("HasWritable = %v", got)
			}
		})
	}
}
