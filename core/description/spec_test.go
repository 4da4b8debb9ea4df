package description_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/spectest"
)

const suite = "server-discovery-and-monitoring"

// elsewhere are folders that other tests run: core/topology those about events, core/client the
// unified ones.
var elsewhere = []string{"monitoring", "unified"}

func TestSpecification(t *testing.T) {
	for _, file := range spectest.Files(t, suite) {
		folder := filepath.Base(filepath.Dir(file))
		if slices.Contains(elsewhere, folder) {
			continue
		}
		name := folder + "/" + strings.TrimSuffix(filepath.Base(file), ".json")
		spectest.Case(t, suite, file, name, func(t *testing.T) { runFile(t, file) })
	}
}

func runFile(t *testing.T, file string) {
	spec := spectest.Document(t, file)
	d := newDeployment(t, spectest.String(t, spec, "uri"))
	phases, _ := spectest.Value(t, spec, "phases").Array()
	for _, v := range phases.All() {
		phase, _ := v.Document()
		d.run(t, phase)
		if t.Failed() {
			t.Fatalf("phase: %v", phase)
		}
	}
}

// deployment is the least shell around a topology: it counts the generations of pools.
type deployment struct {
	topology    description.Topology
	generations map[address.Address]uint64
}

func newDeployment(t *testing.T, uri string) *deployment {
	t.Helper()
	c, err := connstring.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	topology, err := description.New(description.Settings{
		Seeds: c.Hosts, SetName: c.ReplicaSet, LoadBalanced: c.LoadBalanced,
		Direct: c.DirectConnection != nil && *c.DirectConnection,
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.LoadBalanced {
		topology = topology.Apply(description.LoadBalancer(c.Hosts[0]))
	}
	return &deployment{topology: topology, generations: map[address.Address]uint64{}}
}

// run follows the format: all responses first, then all application errors, then the outcome.
func (d *deployment) run(t *testing.T, phase bson.Raw) {
	if responses, ok := phase.Lookup("responses"); ok {
		array, _ := responses.Array()
		for _, v := range array.All() {
			pair, _ := v.Array()
			d.respond(t, pair)
		}
	}
	if failures, ok := phase.Lookup("applicationErrors"); ok {
		array, _ := failures.Array()
		for _, v := range array.All() {
			failure, _ := v.Document()
			d.fail(t, failure)
		}
	}
	outcome, _ := spectest.Value(t, phase, "outcome").Document()
	d.check(t, outcome)
}

func (d *deployment) respond(t *testing.T, pair bson.Array) {
	var addr address.Address
	var reply bson.Raw
	for i, v := range pair.All() {
		if i == 0 {
			text, _ := v.Str()
			addr = mustAddress(t, text)
		} else {
			reply, _ = v.Document()
		}
	}
	if reply.IsEmpty() {
		d.topology = d.topology.Apply(description.Unknown(addr, errors.New("connection reset")))
		return
	}
	s := description.NewServer(addr, reply, 0)
	d.topology = d.topology.Apply(&s)
}

func (d *deployment) fail(t *testing.T, failure bson.Raw) {
	addr := mustAddress(t, spectest.String(t, failure, "address"))
	f := description.Failure{
		Address: addr, PoolGeneration: d.generations[addr], Generation: d.generations[addr],
		Handshaking: spectest.String(t, failure, "when") == "beforeHandshakeCompletes",
	}
	if v, ok := failure.Lookup("generation"); ok {
		n, _ := v.AsInt64()
		f.Generation = uint64(n)
	}
	wire, _ := spectest.Value(t, failure, "maxWireVersion").AsInt64()
	f.MaxWireVersion = int32(wire)
	switch kind := spectest.String(t, failure, "type"); kind {
	case "network":
		f.Err = &mongoerr.NetworkError{
			Address: addr, Op: "read", Err: errors.New("connection reset"),
		}
	case "timeout":
		f.Err = &mongoerr.NetworkError{Address: addr, Op: "read", Err: os.ErrDeadlineExceeded}
	case "command":
		reply, _ := spectest.Value(t, failure, "response").Document()
		f.Err = mongoerr.FromReply(addr, reply)
		if wce := mongoerr.WriteConcernErrorOf(addr, reply); f.Err == nil && wce != nil {
			f.Err = wce
		}
	default:
		t.Fatalf("application error of type %q", kind)
	}
	if f.Handshaking && mongoerr.IsNetwork(f.Err) {
		f.Err = &mongoerr.OverloadError{Err: f.Err} // as package conn does
	}
	var effect description.Effect
	d.topology, effect = d.topology.Fail(f)
	if effect.ClearPool {
		d.generations[addr]++
	}
}

func (d *deployment) check(t *testing.T, outcome bson.Raw) {
	for key, want := range outcome.All() {
		switch key {
		case "topologyType":
			expectString(t, key, d.topology.Kind.String(), want)
		case "setName":
			expectString(t, key, d.topology.SetName, want)
		case "logicalSessionTimeoutMinutes":
			expectInt(t, key, d.topology.LogicalSessionTimeoutMinutes, want)
		case "maxSetVersion":
			expectInt(t, key, d.topology.MaxSetVersion, want)
		case "maxElectionId":
			expectObjectID(t, key, d.topology.MaxElectionID, want)
		case "compatible":
			if b, _ := want.Bool(); b != (d.topology.CompatibilityError == nil) {
				t.Errorf("compatibility error = %v, want compatible %v",
					d.topology.CompatibilityError, b)
			}
		case "servers":
			servers, _ := want.Document()
			d.checkServers(t, servers)
		default:
			t.Fatalf("unknown key %q in an outcome", key)
		}
	}
}

func (d *deployment) checkServers(t *testing.T, want bson.Raw) {
	var addresses []address.Address
	for text, v := range want.All() {
		addr := mustAddress(t, text)
		addresses = append(addresses, addr)
		fields, _ := v.Document()
		if s := d.topology.Server(addr); s != nil {
			d.checkServer(t, s, fields)
		}
	}
	var got []address.Address
	for _, s := range d.topology.Servers {
		got = append(got, s.Address)
	}
	slices.Sort(addresses)
	if !slices.Equal(got, addresses) {
		t.Errorf("servers = %v, want %v", got, addresses)
	}
}

func (d *deployment) checkServer(t *testing.T, s *description.Server, want bson.Raw) {
	for key, want := range want.All() {
		name := string(s.Address) + " " + key
		switch key {
		case "type":
			if text, _ := want.Str(); text == "PossiblePrimary" {
				want = bson.StringValue("Unknown")
			}
			expectString(t, name, s.Kind.String(), want)
		case "setName":
			expectString(t, name, s.SetName, want)
		case "setVersion":
			expectInt(t, name, s.SetVersion, want)
		case "electionId":
			expectObjectID(t, name, s.ElectionID, want)
		case "logicalSessionTimeoutMinutes":
			expectInt(t, name, s.LogicalSessionTimeoutMinutes, want)
		case "minWireVersion":
			expectInt(t, name, orNull(s.MinWireVersion), want)
		case "maxWireVersion":
			expectInt(t, name, orNull(s.MaxWireVersion), want)
		case "topologyVersion":
			expectTopologyVersion(t, name, s.TopologyVersion, want)
		case "error":
			if text, _ := want.Str(); s.LastError == nil != want.IsNull() ||
				s.LastError != nil && !strings.Contains(s.LastError.Error(), text) {
				t.Errorf("%s = %v, want it to contain %q", name, s.LastError, text)
			}
		case "pool":
			pool, _ := want.Document()
			n, _ := spectest.Value(t, pool, "generation").AsInt64()
			if got := d.generations[s.Address]; got != uint64(n) {
				t.Errorf("%s generation = %d, want %d", name, got, n)
			}
		default:
			t.Fatalf("unknown key %q in a server", key)
		}
	}
}

// orNull is nil for 0, which stands for "not said".
func orNull(n int32) *int64 {
	if n == 0 {
		return nil
	}
	return new(int64(n))
}

func expectString(t *testing.T, what, got string, want bson.Value) {
	t.Helper()
	if text, ok := want.Str(); !ok && !want.IsNull() || got != text {
		t.Errorf("%s = %q, want %v %q", what, got, want.Type, text)
	}
}

func expectInt(t *testing.T, what string, got *int64, want bson.Value) {
	t.Helper()
	n, ok := want.AsInt64()
	if ok != (got != nil) || got != nil && *got != n {
		t.Errorf("%s = %v, want %v %d", what, got, want.Type, n)
	}
}

func expectObjectID(t *testing.T, what string, got bson.ObjectID, want bson.Value) {
	t.Helper()
	if id, ok := want.ObjectID(); !ok && !want.IsNull() || got != id {
		t.Errorf("%s = %v, want %v", what, got, id)
	}
}

func expectTopologyVersion(
	t *testing.T, what string, got *description.TopologyVersion, want bson.Value,
) {
	t.Helper()
	doc, ok := want.Document()
	if !ok {
		if got != nil {
			t.Errorf("%s = %v, want none", what, *got)
		}
		return
	}
	id, _ := spectest.Value(t, doc, "processId").ObjectID()
	counter, _ := spectest.Value(t, doc, "counter").AsInt64()
	if got == nil || got.ProcessID != id || got.Counter != counter {
		t.Errorf("%s = %v, want %v %d", what, got, id, counter)
	}
}

func mustAddress(t *testing.T, text string) address.Address {
	t.Helper()
	addr, err := address.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
